"""The cut of a chain into stages that keeps the slowest device as quick as possible.

A device takes as long as all of its stages: with V shapes it has two, far apart in the chain. Cuts are found by
deciding whether every device can stay below a limit, stage by stage, depth first; states that failed are not tried
again. Halving the limit's range then gives a cut within a thousandth of the best one, unless a search was given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 1e-3
"""How close to the best cut a search ends."""
SLACK = 1.01
"""Cuts whose slowest device takes so much longer than that of the best one count as equal: of them, that with the
smallest largest stage is taken.
"""
MOST_STATES = 10_000
"""After so many states of one decision it is given up, and its answer taken to be no."""


@dataclass(frozen=True)
class Loads:
    """What stages do to devices.

    `costs[s][l]` is what layer `l` takes in stage `s`, `runs[s]` which part of the microbatches each device runs of it:
    1.0 unless it has replicas.
    """

    costs: Sequence[Sequence[float]]
    runs: Sequence[dict[int, float]]

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.costs[0])


@dataclass(frozen=True)
class Room:
    """What fits into devices: `held[d]` has, for each moment that matters, how many microbatches of each stage device
    `d` holds activations of. All in bytes.
    """

    limit: float
    held: Sequence[Sequence[dict[int, float]]]
    activations: Sequence[float]
    """By layer, of one microbatch."""
    state: Sequence[float]
    """By layer: weights, their gradients and what the optimizer keeps."""

    def needed(self, counts: Sequence[int]) -> list[float]:
        """The bytes that each device needs with so many layers in each stage."""
        firsts = [sum(counts[:stage]) for stage in range(len(counts))]
        kept = [sum(self.activations[a : a + n]) for a, n in zip(firsts, counts)]
        state = [sum(self.state[a : a + n]) for a, n in zip(firsts, counts)]
        return [
            max(sum(number * kept[stage] + state[stage] for stage, number in moment.items()) for moment in moments)
            for moments in self.held
        ]


@dataclass(frozen=True)
class Balanced:
    """A cut: how many layers each stage has, what the slowest device takes, and whether no search was given up."""

    counts: tuple[int, ...]
    load: float
    is_proved: bool


def balance(loads: Loads, room: Room | None = None) -> Balanced | None:
    """Cuts layers into as many stages as there are rows of costs, each with one layer at least.

    Returns:
        The cut, or `None` if none was found that fits.
    """
    search = _Search(loads, room)
    found = search.below(float("inf"), float("inf"))
    if found is None:
        return None
    low, is_proved = search.least(), True
    high = search.slowest(found)
    while high - low > TOLERANCE * high:
        limit = (low + high) / 2
        better = search.below(limit, float("inf"))
        if better is None:
            low, is_proved = limit, is_proved and not search.gave_up
        else:
            found, high = better, search.slowest(better)
    allowed, largest = SLACK * high, search.largest(found)
    low = search.least_of_largest()
    while largest - low > TOLERANCE * largest:
        limit = (low + largest) / 2
        better = search.below(allowed, limit)
        if better is None:
            low = limit
        else:
            found, largest = better, search.largest(better)
    return Balanced(tuple(found), search.slowest(found), is_proved)


class _Search:
    """Decides whether there are cuts below limits."""

    def __init__(self, loads: Loads, room: Room | None) -> None:
        self._loads = loads
        self._room = room
        self._n_stages, self._n_layers = len(loads.costs), loads.n_layers
        self._sums = [_running(row) for row in loads.costs]
        self._devices = sorted({one for runs in loads.runs for one in runs})
        last = {device: stage for stage, runs in enumerate(loads.runs) for device in runs}
        self._open = [[one for one in self._devices if last[one] >= stage] for stage in range(self._n_stages + 1)]
        cheapest = [
            min(row[layer] * sum(runs.values()) for row, runs in zip(loads.costs, loads.runs))
            for layer in range(self._n_layers)
        ]
        self._left = [sum(cheapest[layer:]) for layer in range(self._n_layers + 1)]
        quickest = [min(row[layer] for row in loads.costs) for layer in range(self._n_layers)]
        self._left_of_stages = [sum(quickest[layer:]) for layer in range(self._n_layers + 1)]
        self._kept = _running(room.activations) if room else []
        self._state = _running(room.state) if room else []
        self.gave_up = False

    def slowest(self, counts: Sequence[int]) -> float:
        """What the slowest device takes."""
        loads = dict.fromkeys(self._devices, 0.0)
        for stage, cost in enumerate(self._of_stages(counts)):
            for device, part in self._loads.runs[stage].items():
                loads[device] += part * cost
        return max(loads.values())

    def largest(self, counts: Sequence[int]) -> float:
        """What the largest stage takes."""
        return max(self._of_stages(counts))

    def least(self) -> float:
        """No cut has a slowest device that is quicker than this."""
        return self._left[0] / len(self._devices)

    def least_of_largest(self) -> float:
        """No cut has a largest stage that is quicker than this."""
        return self._left_of_stages[0] / self._n_stages

    def below(self, limit: float, stage_limit: float) -> list[int] | None:
        """A cut with every device and every stage below limits, if it is found."""
        self.gave_up = False
        failed: set[tuple[object, ...]] = set()
        counts: list[int] = []
        limit *= 1 + 1e-12

        def descend(stage: int, layer: int, loads: dict[int, float], bytes_: dict[int, tuple[float, ...]]) -> bool:
            if stage == self._n_stages:
                return layer == self._n_layers
            still = self._open[stage]
            key = (stage, layer, *(loads[one] for one in still), *(bytes_.get(one) for one in still if bytes_))
            if key in failed:
                return False
            if len(failed) >= MOST_STATES:
                self.gave_up = True
                return False
            room = sum(max(limit - loads[one], 0.0) for one in still) * (1 + 1e-12)
            of_stages = stage_limit * (self._n_stages - stage) * (1 + 1e-12)
            if self._left[layer] <= room and self._left_of_stages[layer] <= of_stages:
                for count in self._sizes(stage, layer):
                    cost = self._cost(stage, layer, count)
                    if cost > stage_limit:
                        continue
                    after = dict(loads)
                    for device, part in self._loads.runs[stage].items():
                        after[device] += part * cost
                    if any(after[one] > limit for one in self._loads.runs[stage]):
                        continue
                    filled = self._fill(bytes_, stage, layer, count)
                    if filled is None:
                        continue
                    counts.append(count)
                    if descend(stage + 1, layer + count, after, filled):
                        return True
                    counts.pop()
            failed.add(key)
            return False

        empty = {one: tuple(0.0 for _ in self._room.held[one]) for one in self._devices} if self._room else {}
        return list(counts) if descend(0, 0, dict.fromkeys(self._devices, 0.0), empty) else None

    def _sizes(self, stage: int, layer: int) -> list[int]:
        """How many layers the stage may take: first those that come close to an equal part of what is left."""
        stages_left = self._n_stages - stage
        most = self._n_layers - layer - (stages_left - 1)
        if stages_left == 1:
            return [self._n_layers - layer]
        fair = self._cost(stage, layer, self._n_layers - layer) / stages_left
        return sorted(range(1, most + 1), key=lambda count: abs(self._cost(stage, layer, count) - fair))

    def _cost(self, stage: int, layer: int, count: int) -> float:
        return self._sums[stage][layer + count] - self._sums[stage][layer]

    def _of_stages(self, counts: Sequence[int]) -> list[float]:
        return [self._cost(stage, sum(counts[:stage]), count) for stage, count in enumerate(counts)]

    def _fill(
        self, bytes_: dict[int, tuple[float, ...]], stage: int, layer: int, count: int
    ) -> dict[int, tuple[float, ...]] | None:
        """The bytes of devices with one stage more, if they fit."""
        if self._room is None:
            return bytes_
        kept = self._kept[layer + count] - self._kept[layer]
        state = self._state[layer + count] - self._state[layer]
        filled = dict(bytes_)
        for device in self._loads.runs[stage]:
            moments = self._room.held[device]
            filled[device] = tuple(
                before + moment.get(stage, 0.0) * kept + state for before, moment in zip(bytes_[device], moments)
            )
            if max(filled[device]) > self._room.limit:
                return None
        return filled


def _running(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for one in values:
        sums.append(sums[-1] + one)
    return sums
