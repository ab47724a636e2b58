"""What the ranks of a runner agree on when it is made: where programs or settings differ, they would wait for each
other forever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from ..errors import PipecError, ProgramError, StageError
from ..program import Program

Facts = dict[str, str]
"""By topic, what a rank has: a short text that people read, or the digest of a long one."""

_NAME = "the name"
_COUNTS = ("devices", "stages", "microbatches", "steps", "slices")


def agree(control: dist.ProcessGroup, program: Program, settings: Mapping[str, Any], failure: Exception | None) -> None:
    """Compares programs and settings over all ranks, and lets all of them fail where one does. A collective call.

    Args:
        control: The group over which objects are exchanged.
        program: That of this rank.
        settings: By name, arguments of the runner that have to be the same on all ranks.
        failure: What this rank has found wrong by itself.

    Raises:
        ProgramError: Ranks have different programs.
        StageError: Settings differ, or another rank has failed.
        Exception: The failure of this rank.
    """
    told = None if failure is None else _headline(failure)
    mine = (_counts(program), _digests(program), {name: str(value) for name, value in settings.items()}, told)
    all_of: list[Any] = [None] * dist.get_world_size(control)
    dist.all_gather_object(all_of, mine, group=control)
    counts, digests, chosen, failures = map(list, zip(*all_of))
    # What differs in short is the reason of what differs in long; names alone do not matter.
    differing = _differing([_without_name(one) for one in counts], "is") or _differing(digests, None)
    if differing:
        raise ProgramError(
            f"ranks have different programs, and would wait for each other forever: "
            f"{'; '.join([*_differing([{_NAME: one[_NAME]} for one in counts], 'is'), *differing])}. "
            "Compile the same target with the same options on all ranks, or load one file"
        )
    if failure is not None:
        raise failure
    failed = [rank for rank, one in enumerate(failures) if one is not None]
    if failed:
        raise StageError(f"rank {failed[0]} cannot make its runner: {failures[failed[0]]}")
    differing = _differing(chosen, "is")
    if differing:
        raise StageError(f"ranks make their runners with different settings: {'; '.join(differing)}")


def _headline(failure: Exception) -> str:
    return str(failure) if isinstance(failure, PipecError) else f"{type(failure).__name__}: {failure}"


def _counts(program: Program) -> Facts:
    numbers = {f"the number of {name}": str(getattr(program, f"n_{name}")) for name in _COUNTS}
    return {_NAME: f"`{program.name}`", **numbers}


def _without_name(facts: Facts) -> Facts:
    return {topic: fact for topic, fact in facts.items() if topic != _NAME}


def _digests(program: Program) -> Facts:
    """The text of a dataclass has all of its fields, and is the same in every process."""
    tables = {
        "the groups": program.groups,
        "the weights' versions": program.lags,
        "the values": program.values,
        "the executables": program.execs,
    }
    lists = {f"the list of d{number}": device for number, device in enumerate(program.devices)}
    return {topic: hashlib.sha256(repr(one).encode()).hexdigest() for topic, one in {**tables, **lists}.items()}


def _differing(facts: list[Facts], verb: str | None) -> list[str]:
    """What ranks differ in; with a verb also what each has."""
    found = []
    for topic in dict.fromkeys(topic for one in facts for topic in one):
        ranks: dict[str | None, list[int]] = {}
        for rank, one in enumerate(facts):
            ranks.setdefault(one.get(topic), []).append(rank)
        if len(ranks) == 1:
            continue
        if verb is None:
            found.append(f"{topic} differs between {' and '.join(ranks_text(group) for group in ranks.values())}")
        else:
            parts = ", ".join(f"{value} on {ranks_text(group)}" for value, group in ranks.items())
            found.append(f"{topic} {verb} {parts}")
    return found


def ranks_text(ranks: list[int]) -> str:
    """Some ranks, as `rank 3` or `ranks 0, 1 and 4`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
