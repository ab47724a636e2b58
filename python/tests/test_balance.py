"""Cuts are as good as the best of all cuts, whatever the placement, and fit where any does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

import pipec
from pipec.torch.splitting.balance import SLACK, TOLERANCE, Loads, Room, balance
from pipec.torch.splitting.occupancy import held_at_once, runs_of

PLACEMENTS: dict[str, list[dict[int, float]]] = {
    "a stage each": [{0: 1.0}, {1: 1.0}, {2: 1.0}],
    "a V": [{0: 1.0}, {1: 1.0}, {1: 1.0}, {0: 1.0}],
    "round about": [{0: 1.0}, {1: 1.0}, {0: 1.0}, {1: 1.0}, {0: 1.0}],
    "replicas": [{0: 0.5, 1: 0.5}, {1: 0.5, 0: 0.5}, {2: 1.0}],
}


def all_cuts(n_layers: int, n_stages: int) -> Iterator[list[int]]:
    """Every way to cut layers into stages."""
    for places in itertools.combinations(range(1, n_layers), n_stages - 1):
        borders = [0, *places, n_layers]
        yield [end - begin for begin, end in itertools.pairwise(borders)]


def of_stages(costs: list[float], counts: list[int]) -> list[float]:
    """What each stage takes."""
    return [sum(costs[sum(counts[:stage]) :][:count]) for stage, count in enumerate(counts)]


def slowest(costs: list[float], runs: list[dict[int, float]], counts: list[int]) -> float:
    """What the slowest device takes."""
    devices = {device for one in runs for device in one}
    stages = of_stages(costs, counts)
    return max(sum(cost * one.get(device, 0.0) for cost, one in zip(stages, runs)) for device in devices)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_no_cut_is_better(placement: str) -> None:
    runs, draw = PLACEMENTS[placement], random.Random(placement)
    for _ in range(20):
        costs = [draw.choice([draw.uniform(0.5, 1.5), 1.0, 5 * draw.random()]) for _ in range(9)]
        found = balance(Loads([costs] * len(runs), runs))
        assert found is not None and found.is_proved
        counts, cuts = list(found.counts), list(all_cuts(len(costs), len(runs)))
        best = min(slowest(costs, runs, one) for one in cuts)
        assert found.load == pytest.approx(slowest(costs, runs, counts))
        assert found.load <= best * SLACK * (1 + 2 * TOLERANCE)
        as_good = [max(of_stages(costs, one)) for one in cuts if slowest(costs, runs, one) <= best * (1 + 1e-9)]
        assert max(of_stages(costs, counts)) <= min(as_good) * (1 + 2 * TOLERANCE)


def test_a_cut_that_fits_is_found_where_there_is_one() -> None:
    draw = random.Random(7)
    fitted = 0
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    runs, held = runs_of(program), held_at_once(program)
    for _ in range(60):
        costs, kept, state = ([draw.uniform(0.5, 2) for _ in range(8)] for _ in range(3))
        cuts = list(all_cuts(8, 4))
        room = Room(draw.uniform(8, 20), held, kept, state)
        found = balance(Loads([costs] * 4, runs), room)
        fits = [one for one in cuts if max(room.needed(one)) <= room.limit]
        assert (found is not None) == bool(fits)
        if found is not None:
            fitted += 1
            assert max(room.needed(found.counts)) <= room.limit * (1 + 1e-9)
            best = min(slowest(costs, runs, one) for one in fits)
            assert found.load <= best * SLACK * (1 + 2 * TOLERANCE)
    assert 10 < fitted < 60


def test_many_stages_are_balanced_soon() -> None:
    """64 blocks that do not differ much, on 16 devices with a V."""
    draw = random.Random(3)
    costs = [draw.uniform(0.97, 1.03) for _ in range(64)]
    runs = [{device: 1.0} for device in (*range(16), *reversed(range(16)))]
    found = balance(Loads([costs] * 32, runs))
    assert found is not None
    assert found.counts == (2,) * 32
    assert found.load <= 1.03 * sum(costs) / 16


@pytest.mark.parametrize(
    ("target", "settings"),
    [("1f1b", {}), ("zb_h1", {}), ("v_half", {}), ("interleaved_1f1b", {"chunks": 2}), ("seq_1f1b", {"slices": 2})],
)
def test_microbatches_held_are_those_that_the_compiler_counts(target: str, settings: dict[str, int]) -> None:
    options = {"devices": 4, "microbatches": 8, "settings": settings}
    found = pipec.check(f"std:{target}", **options).require()  # type: ignore[arg-type]
    program = pipec.compile(f"std:{target}", **options)  # type: ignore[arg-type]
    units = program.n_stages / program.n_devices
    for device, moments in enumerate(held_at_once(program)):
        held = max(sum(one.values()) for one in moments) / units
        assert held == pytest.approx(found.per_device[device].peak_activation)


def test_replicas_share_the_microbatches() -> None:
    program = pipec.compile("std:dp_1f1b", devices=4, microbatches=8, settings={"replicas": 2})
    assert runs_of(program) == [{0: 0.5, 2: 0.5}, {1: 0.5, 3: 0.5}]
