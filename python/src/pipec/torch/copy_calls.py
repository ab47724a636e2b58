"""Turns the copies of a device's list into calls: of what tasks hand on, of what autograd saves, of weights and of the
optimizer's state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..instructions import CopyStart
from .weights.flat_params import Resident
from .weights.offload import HostState

if TYPE_CHECKING:
    from .device_list import Machine

Call = Callable[[], Any]
SAVED = ("saved_for_input", "saved_for_weight")
"""Kinds of values that a graph holds, all of one forward together."""


class Copies:
    """The copies of a list; `holds` and `gathered` are those of its translator: what is in each buffer, and weights
    that have come.
    """

    def __init__(
        self, machine: Machine, holds: dict[int, tuple[int, int]], gathered: dict[int, Resident], trains: bool
    ) -> None:
        self._machine = machine
        self._holds = holds
        self._gathered = gathered
        self._trains = trains
        self._saved: dict[tuple[int, int], set[int]] = {}
        self._ends: dict[int, Call | None] = {}

    def wrote(self, buffer: int) -> None:
        """Sees that a task has written a buffer of the device."""
        key = self._key(buffer)
        if key is not None:
            self._saved.setdefault(key, set()).add(buffer)

    def free(self, buffer: int) -> None:
        """Sees that a buffer goes."""
        key = self._key(buffer)
        if key is not None:
            self._saved.get(key, set()).discard(buffer)

    def _key(self, buffer: int) -> tuple[int, int] | None:
        """Stage and microbatch of what a graph has saved."""
        value, microbatch = self._holds.get(buffer, (-1, 0))
        one = self._machine.program.values[value]
        return (one.stage, microbatch) if value >= 0 and one.kind in SAVED else None

    def start(self, copy: CopyStart) -> Call | None:
        """What begins a copy."""
        begin = self._begin(copy)
        if begin is None:
            return None
        tokens, token = self._machine.step.tokens, copy.token

        def start() -> None:
            tokens[token] = begin()

        return start

    def end(self, copy: CopyStart) -> Call | None:
        """What its `wait` does."""
        value, microbatch = self._holds[copy.source]
        self._holds[copy.buffer] = (value, microbatch)
        if self._begin(copy) is None:
            return None
        tokens, token = self._machine.step.tokens, copy.token

        def end() -> None:
            tokens[token]()
            tokens[token] = None

        return end

    def _begin(self, copy: CopyStart) -> Callable[[], Call] | None:
        """What begins a copy, and returns what waits for it."""
        value, microbatch = self._holds[copy.source]
        one = self._machine.program.values[value]
        if one.kind == "parameters":
            weights = self._machine.hosts.get(one.stage)
            if weights is None:
                return None
            if copy.direction == "d2h":
                return weights.start_going
            self._gathered[copy.buffer] = weights
            return weights.start_coming
        if one.kind == "optimizer_state":
            return self._state(value, copy.direction)
        if one.kind in SAVED:
            return self._graph(copy, one.stage, microbatch)
        # What `B` keeps for `W` are gradients, which others may hold as well.
        return None if one.kind == "deferred_gradient" else self._tensors(copy)

    def _state(self, value: int, direction: str) -> Callable[[], Call] | None:
        program = self._machine.program
        for exec, update in self._machine.updates.items():
            if self._trains and any(operand.value == value for operand in program.execs[exec].operands):
                state = HostState(update, self._machine.copier)
                return lambda: state.start(direction)
        return None

    def _graph(self, copy: CopyStart, stage: int, microbatch: int) -> Callable[[], Call] | None:
        """All that a forward has saved leaves together, when the last of its values does."""
        if not self._trains:
            return None
        tasks, here = self._machine.stages[stage], self._saved.setdefault((stage, microbatch), set())
        if copy.direction == "h2d":
            here.add(copy.buffer)
            return (lambda: tasks.kept[microbatch].come()) if microbatch in tasks.leaves_saved else None
        here.discard(copy.source)
        if here:
            return None
        tasks.leaves_saved.add(microbatch)
        return lambda: tasks.kept[microbatch].leave()

    def _tensors(self, copy: CopyStart) -> Callable[[], Call]:
        buffers, copier = self._machine.step.buffers, self._machine.copier
        memory = copier.host_memory if copy.direction == "d2h" else copier.device_memory

        def begin() -> Call:
            held = buffers[copy.source] or ()
            pairs = [(memory(one), one) for one in held if isinstance(one, torch.Tensor)]
            buffers[copy.buffer] = tuple(to for to, _ in pairs)
            return copier.start(copy.direction, pairs)

        return begin
