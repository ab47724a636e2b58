"""What lives with the host and comes to the device for its uses: weights of a stage, and the optimizer's state of an
update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...instructions import CopyStart, Fill, Run
from ...program import Program
from ..copies import Copier
from .flat_params import Resident, Slot, vectors
from .updates import Named, Update


class HostWeights(Resident):
    """The weights of one stage. Between the uses that the program says, only the host has them."""

    def __init__(self, slots: Sequence[Slot], device: torch.device, copier: Copier, *, lives_here: bool) -> None:
        super().__init__(vectors(slots, 1, device))
        self._copier = copier
        self._lives_here = lives_here
        self._away: list[Tensor] = []

    def begin(self) -> None:
        """Lets them go for the first time, when all views of them are made."""
        if not self._lives_here:
            self._away = [self._copier.host_memory(vector.whole) for vector in self.vectors]
            self.start_going()()
            self.leave()

    def start_coming(self) -> Callable[[], None]:
        """Starts to copy them to the device, and returns what waits for that."""
        self.come()
        return self._copier.start("h2d", [(vector.whole, away) for vector, away in zip(self.vectors, self._away)])

    def start_going(self) -> Callable[[], None]:
        """Starts to copy them back to the host, and returns what waits for that."""
        return self._copier.start("d2h", [(away, vector.whole) for vector, away in zip(self.vectors, self._away)])

    def gather(self) -> None:  # noqa: D102
        if not self._lives_here:
            self.start_coming()()

    def keep_changes(self) -> None:  # noqa: D102
        if not self._lives_here:
            self.start_going()()

    def scatter(self) -> None:  # noqa: D102
        if not self._lives_here:
            self.leave()


class HostState:
    """The state of an update's optimizer: what it keeps for each weight, numbers for the whole weight aside."""

    def __init__(self, update: Update, copier: Copier) -> None:
        self._update = update
        self._copier = copier

    def start(self, direction: str) -> Callable[[], None]:
        """Starts to copy it to the device or back, and returns what waits for that; before its first update there is
        none.
        """
        found = self._tensors()
        memory = self._copier.host_memory if direction == "d2h" else self._copier.device_memory
        pairs = [(memory(one), one) for _, _, one in found]
        wait = self._copier.start(direction, pairs)

        def end() -> None:
            wait()
            for (state, key, _), (copy, _) in zip(found, pairs):
                state[key] = copy

        return end

    def _tensors(self) -> list[tuple[dict[str, Any], str, Tensor]]:
        optimizer = self._update.optimizer
        states = () if optimizer is None else optimizer.state.values()
        return [
            (state, key, one)
            for state in states
            for key, one in state.items()
            if isinstance(one, Tensor) and one.dim() > 0
        ]


def host_weights(program: Program, device: int, named: Named, copier: Copier) -> dict[int, HostWeights]:
    """By stage: weights of a rank that live with the host, and those that stay, but are updated in chunks."""
    own = program.devices[device]
    holds = {one.buffer: one.value for one in own.setup if isinstance(one, Fill)}
    copied = (holds.get(one.source) for one in own.step if isinstance(one, CopyStart))
    away = {program.values[one].stage for one in copied if one is not None and program.values[one].kind == "parameters"}
    runs = (program.execs[one.exec] for one in own.step if isinstance(one, Run))
    chunked = {exec.stage for exec in runs if exec.chunk is not None and exec.chunk.group is None}
    found: dict[int, HostWeights] = {}
    for stage in sorted(away | chunked):
        pairs = [pair for pair in named if pair[0].startswith(f"{stage}.") and pair[1].requires_grad]
        if pairs:
            slots = [Slot(name, one.shape, one.dtype, one) for name, one in pairs]
            found[stage] = HostWeights(slots, pairs[0][1].device, copier, lives_here=stage not in away)
    return found
