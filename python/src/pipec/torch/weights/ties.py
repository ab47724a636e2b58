"""Weights that stages on different devices share without a word of the program: their gradients are added up at the end
of a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import Parameter

from ...errors import StageError
from ...program import Program
from ..transport import new_group
from .flat_params import Slot
from .reduction import Reduction


@dataclass(frozen=True)
class Tie:
    """A weight of the stage `owning`, and the stages with weights that are tied to it, which are on other devices."""

    owner: str
    owning: int
    members: tuple[int, ...]


def is_between_devices(program: Program, stage: int, owning: int) -> bool:
    """Whether a tie of two stages is left to the runner: the program does not add up their gradients, and no device has
    both.
    """
    here, there = program.stages[stage], program.stages[owning]
    return owning not in here.weights_of and not set(here.devices) & set(there.devices)


def ties_between_devices(program: Program, tied: Mapping[str, str]) -> list[Tie]:
    """Those that are left to the runner, in the same order on all ranks."""
    members: dict[str, set[int]] = {}
    for member, owner in tied.items():
        stage, owning = int(member.partition(".")[0]), int(owner.partition(".")[0])
        if is_between_devices(program, stage, owning):
            members.setdefault(owner, set()).add(stage)
    return [
        Tie(owner, int(owner.partition(".")[0]), tuple(sorted(stages))) for owner, stages in sorted(members.items())
    ]


def join_ties(
    program: Program,
    device: int,
    ranks: Sequence[int],
    whole: dist.ProcessGroup,
    control: dist.ProcessGroup,
    ties: Sequence[Tie],
    modules: Mapping[int, nn.Module],
    owners: Mapping[Parameter, str],
    ordered: bool,
    synchronise: bool,
) -> list[Reduction]:
    """Makes the sums of this rank, one for each set of devices; all ranks take part. The members take over the weight
    of the owner.

    Raises:
        StageError: Weights that are tied differ.
    """
    if not ties:
        return []
    held = {owner: parameter for parameter, owner in owners.items()}
    for tie in ties:
        if tie.owning in modules:
            held[tie.owner] = modules[tie.owning].get_parameter(tie.owner.partition(".")[2])
    layout = {name: (one.shape, one.dtype, isinstance(one, DTensor)) for name, one in held.items()}
    layouts: list[Any] = [None] * len(ranks)
    dist.all_gather_object(layouts, layout, group=control)
    by_devices: dict[tuple[int, ...], list[Tie]] = {}
    for tie in ties:
        stages = [program.stages[stage] for stage in (tie.owning, *tie.members)]
        devices = tuple(sorted({one for stage in stages for one in stage.devices}))
        by_devices.setdefault(devices, []).append(tie)
    found = []
    for devices, together in by_devices.items():
        group = new_group(whole, [ranks[one] for one in devices])
        slots, counted_elsewhere = [], set()
        for tie in together:
            first = program.stages[tie.owning].devices[0]
            shape, dtype = _the_same(tie, devices, layouts)
            slots.append(Slot(tie.owner, shape, dtype, held.get(tie.owner)))
            if device != first and device in program.stages[tie.owning].devices:
                counted_elsewhere.add(tie.owner)  # The program has added up those of the owner's replicas.
            if group is not None and synchronise:
                with torch.no_grad():
                    data = held[tie.owner].detach().contiguous()
                    dist.broadcast(data, ranks[first], group=group)
                    held[tie.owner].copy_(data)
        if group is not None:
            where = held[together[0].owner].device
            found.append(Reduction(slots, group, where, ordered, counted_elsewhere=frozenset(counted_elsewhere)))
    return found


def _the_same(tie: Tie, devices: Sequence[int], layouts: Sequence[Mapping[str, Any]]) -> tuple[torch.Size, torch.dtype]:
    shape, dtype, _ = layouts[devices[0]][tie.owner]
    for device in devices:
        other, kind, is_sharded = layouts[device][tie.owner]
        if is_sharded:
            raise StageError(f"`{tie.owner}` is tied over devices, and sharded on d{device}: tie whole weights")
        if (other, kind) != (shape, dtype):
            raise StageError(
                f"`{tie.owner}` is {_said(shape, dtype)} on d{devices[0]}, but what is tied to it is {_said(other, kind)} on d{device}"
            )
    return shape, dtype


def _said(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"
