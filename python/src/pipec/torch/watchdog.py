"""Says where a rank stands that does not get on: at which instruction, and what it waits for."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Sequence

from ..instruction import Instruction
from ..instructions import CollStart, CopyStart, GatherStart, RecvStart, Run, SendStart, Wait
from ..program import Program
from .agreement import ranks_text

BETWEEN_STEPS = -1
"""The place of a rank that runs no step."""
BEGINNING = -2
"""That of a rank that has begun one, and waits for the others."""


class Watchdog:
    """Watches the steps of one rank. `place` is the number of the call that runs: all that is written for an
    instruction.
    """

    __slots__ = ("__weakref__", "_is_watched", "_patience", "_positions", "_program", "_rank", "n_steps", "place")

    def __init__(self, program: Program, rank: int, patience: float | None) -> None:
        self._program = program
        self._rank = rank
        self._patience = patience
        self._positions: Sequence[int] = ()
        self._is_watched = False
        self.n_steps = 0
        self.place = BETWEEN_STEPS

    def begin(self) -> None:
        """A step begins."""
        self.n_steps += 1
        self.place = BEGINNING
        if self._patience is not None and not self._is_watched:
            self._is_watched = True
            watch = threading.Thread(target=_watch, args=(weakref.ref(self), self._patience), daemon=True)
            watch.start()

    def follow(self, positions: Sequence[int]) -> None:
        """Its calls begin, which carry out the instructions in these positions."""
        self._positions = positions
        self.place = 0

    def end(self) -> None:
        """The step has ended."""
        self.place = BETWEEN_STEPS

    def standing(self, place: int) -> str:
        """What the rank does at a call, as a sentence without its subject."""
        if place == BEGINNING:
            return "waits for the other ranks to begin the step"
        if place >= len(self._positions):
            return "has run all its instructions, and waits for the end of what it sends"
        position = self._positions[place]
        instruction = self._program.devices[self._rank].step[position]
        said = f"instruction {position}, `{self._program.text(instruction)}`"
        if isinstance(instruction, Wait):
            return f"waits at {said}, for {awaited(self._program, self._rank, position)}"
        return f"computes at {said}" if isinstance(instruction, Run) else f"stands at {said}"


def _watch(watched: weakref.ref[Watchdog], patience: float) -> None:
    """Looks from time to time, until the runner is gone; tells again when twice as long has passed."""
    before, since, limit = (0, BETWEEN_STEPS), time.monotonic(), patience
    while True:
        time.sleep(patience / 8)
        dog = watched()
        if dog is None:
            return
        now, passed = (dog.n_steps, dog.place), time.monotonic() - since
        if now != before or dog.place == BETWEEN_STEPS:
            before, since, limit = now, time.monotonic(), patience
        elif passed >= limit:
            limit *= 2
            text = f"pipec: for {passed:.0f} s, rank {dog._rank} {dog.standing(dog.place)} (step {dog.n_steps} of `{dog._program.name}`)"
            print(text, file=sys.stderr, flush=True)
        del dog


def awaited(program: Program, device: int, position: int) -> str:
    """What the `wait` in a position waits for, and where the other side does its part."""
    steps = program.devices[device].step
    token = getattr(steps[position], "token", None)
    begun = next(number for number in range(position - 1, -1, -1) if getattr(steps[number], "token", None) == token)
    start = steps[begun]
    text = f"`{program.text(start)}`"
    if isinstance(start, RecvStart):
        source = program.devices[start.source].step
        number = sum(_receives(one, start.source, start.kind) for one in steps[:begun])
        sends = [place for place, one in enumerate(source) if _sends(one, device, start.kind)]
        return f"{text}, which rank {start.source} sends at its instruction {sends[number]}"
    if isinstance(start, SendStart):
        number = sum(_sends(one, start.to, start.kind) for one in steps[:begun])
        target = program.devices[start.to].step
        receives = [place for place, one in enumerate(target) if _receives(one, device, start.kind)]
        return f"{text} or one before it, which rank {start.to} receives at its instruction {receives[number]}"
    if isinstance(start, (CollStart, GatherStart)):
        others = [one for one in program.groups[start.group] if one != device]
        return f"{text} with {ranks_text(others)}" if others else text
    assert isinstance(start, CopyStart), "nothing else has a token"
    return f"the copy {text}"


def _sends(one: Instruction, to: int, kind: str) -> bool:
    return isinstance(one, SendStart) and (one.to, one.kind) == (to, kind)


def _receives(one: Instruction, source: int, kind: str) -> bool:
    return isinstance(one, RecvStart) and (one.source, one.kind) == (source, kind)
