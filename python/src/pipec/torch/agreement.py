"""What the ranks of a runner agree on when it is made: where programs or settings differ, they would wait for each
other forever.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from ..errors import PipecError, ProgramError, StageError
from ..program import Program
from .names import OriginalName, require_distinct

Facts = dict[str, str]
"""By topic, what a rank has: a short text that people read, or the digest of a long one."""

_NAME = "the name"
_COUNTS = ("devices", "stages", "microbatches", "steps", "slices")


@dataclass(frozen=True)
class RankFacts:
    """What a rank tells the others about the arguments of its runner."""

    settings: Facts
    """By name, arguments that have to be the same on all ranks."""
    has_loss_fn: bool
    names: tuple[OriginalName, ...]
    """What its weights and buffers are called in the original model, where `names=` says so."""
    failure: str | None
    """What it has found wrong by itself."""


def agree(control: dist.ProcessGroup, program: Program, mine: RankFacts, failure: Exception | None) -> None:
    """Compares programs and settings over all ranks, and lets all of them fail where one does. A collective call.

    Args:
        control: The group over which objects are exchanged.
        program: That of this rank.
        mine: The arguments of this rank.
        failure: What this rank has found wrong by itself.

    Raises:
        ProgramError: Ranks have different programs.
        StageError: Settings differ, the last stage has no loss, weights have one name, or another rank has failed.
        Exception: The failure of this rank.
    """
    all_of: list[Any] = [None] * dist.get_world_size(control)
    dist.all_gather_object(all_of, (_counts(program), _digests(program), mine), group=control)
    counts, digests, facts = map(list, zip(*all_of))
    # What differs in short is the reason of what differs in long; names alone do not matter.
    differing = _differing([_without_name(one) for one in counts], "is") or _differing(digests, None)
    if differing:
        raise ProgramError(
            f"ranks have different programs, and would wait for each other forever: "
            f"{'; '.join([*_differing([{_NAME: one[_NAME]} for one in counts], 'is'), *differing])}. "
            "Compile the same target with the same options on all ranks, or load one file"
        )
    _raise_first([one.failure for one in facts], failure, "cannot make its runner")
    differing = _differing([one.settings for one in facts], "is")
    if differing:
        raise StageError(f"ranks make their runners with different settings: {'; '.join(differing)}")
    _require_loss(program, [one.has_loss_fn for one in facts])
    require_distinct([name for one in facts for name in one.names])


def raise_together(control: dist.ProcessGroup, failure: Exception | None, verb: str) -> None:
    """Raises the failure of this rank, or tells that of another one. A collective call.

    Args:
        control: The group over which objects are exchanged.
        failure: What this rank has found wrong.
        verb: What a rank with a failure cannot do.

    Raises:
        StageError: Another rank has failed.
        Exception: The failure of this rank.
    """
    all_of: list[Any] = [None] * dist.get_world_size(control)
    dist.all_gather_object(all_of, None if failure is None else headline(failure), group=control)
    _raise_first(all_of, failure, verb)


def _raise_first(failures: list[str | None], failure: Exception | None, verb: str) -> None:
    """Raises the failure of this rank, or else one that tells the first of another one."""
    if failure is not None:
        raise failure
    failed = [rank for rank, one in enumerate(failures) if one is not None]
    if failed:
        raise StageError(f"rank {failed[0]} {verb}: {failures[failed[0]]}")


def _require_loss(program: Program, has_loss_fn: list[bool]) -> None:
    """Where a rank has a loss function, those of the last stage have one. Without any, the last module computes the
    loss, or nobody does: a runner may only predict.
    """
    if not any(has_loss_fn):
        return
    last = sorted({device for stage in program.stages if stage.is_last for device in stage.devices})
    without = [rank for rank in last if not has_loss_fn[rank]]
    if without:
        others = [rank for rank, has in enumerate(has_loss_fn) if has]
        verb = "has" if len(without) == 1 else "have"
        raise StageError(
            f"{ranks_text(without)} {verb} the last stage, but no loss_fn: {ranks_text(others)} "
            f"{'has' if len(others) == 1 else 'have'} one; give it to all ranks"
        )


def headline(failure: Exception) -> str:
    """What other ranks are told of an error."""
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
        "the length of slices": program.slice_shares,
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
