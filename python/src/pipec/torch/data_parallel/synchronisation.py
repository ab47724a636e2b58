"""When the gradients of a rank's weights are complete, and what then brings them together with those of other
replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from ...instructions import CollStart, Fill, Run, Wait
from ...program import Program
from ..weights.reduction import Reduction
from .averaging import Averaging, Replica
from .sharding import Sharding, share_a_context
from .wrappers import Wrapped

Modules = Mapping[int, nn.Module]


class Synchronisation(Protocol):
    """One synchronisation of some weights with those of other pipelines, in each step."""

    after: int
    """The position in the step list of the last instruction that adds to their gradients."""

    def begin_step(self) -> None:
        """Sees that a step begins, which computes gradients."""

    def start(self) -> None:
        """Starts, since the gradients are complete."""

    def finish(self) -> None:
        """Waits until the gradients are those of all replicas, if that has not been done yet."""

    def end(self) -> None:
        """Sees that a list has ended, whether it computed gradients or not."""


def synchronisations(
    program: Program,
    device: int,
    stages: Modules,
    wrapped: Mapping[int, Wrapped],
    reductions: Mapping[int, Reduction],
    on: torch.device,
) -> list[Synchronisation]:
    """Makes those of a rank.

    Args:
        program: Says when gradients are complete.
        device: That of this rank.
        stages: Its modules.
        wrapped: By stage, what wraps them.
        reductions: By value, the sums of gradients that the program itself makes. They come first.
        on: Where the modules are.
    """
    last = _last_backwards(program, device)
    sums = _sums(program, device)
    complete: dict[Parameter, int] = {}
    for stage, module in stages.items():
        _at_least(complete, module.parameters(), last.get(stage, 0))
    for value, reduction in reductions.items():
        _at_least(complete, reduction.parameters(), sums.get(value, 0))
    made: list[Synchronisation] = [*_averages(wrapped, complete, on)]
    roots = [root for one in wrapped.values() for root in one.sharded]
    is_shared = share_a_context(roots)
    for stage, one in wrapped.items():
        if one.sharded:
            made.append(Sharding(stage, one.sharded, last.get(stage, 0), waits_at_once=is_shared))
    return sorted(made, key=lambda one: one.after)


def _averages(
    wrapped: Mapping[int, Wrapped], complete: Mapping[Parameter, int], on: torch.device
) -> Iterable[Averaging]:
    """An average for each group of ranks, and for each moment at which gradients are complete; tied weights are in one
    of them.
    """
    replicas = [Replica(module) for one in wrapped.values() for module in one.replicated]
    by_moment: dict[tuple[int, dist.ProcessGroup], dict[Parameter, str]] = {}
    homes: dict[tuple[int, dist.ProcessGroup], list[Replica]] = {}
    seen: set[Parameter] = set()
    for replica in replicas:
        for name, parameter in replica.named_parameters():
            if parameter in complete and parameter not in seen:
                seen.add(parameter)
                moment = (complete[parameter], replica.group)
                by_moment.setdefault(moment, {})[parameter] = name
                homes.setdefault(moment, []).append(replica)
    for (after, group), named in by_moment.items():
        yield Averaging(named, group, list(dict.fromkeys(homes[after, group])), after, on)


def _at_least(complete: dict[Parameter, int], parameters: Iterable[Parameter], position: int) -> None:
    for one in parameters:
        complete[one] = max(complete.get(one, 0), position)


def _last_backwards(program: Program, device: int) -> dict[int, int]:
    """By stage: where the device runs the last task that adds to gradients of the stage's weights."""
    last: dict[int, int] = {}
    for position, one in enumerate(program.devices[device].step):
        if isinstance(one, Run) and program.execs[one.exec].kind in ("Backward", "BackwardInput", "BackwardWeight"):
            last[program.execs[one.exec].stage] = position
    return last


def _sums(program: Program, device: int) -> dict[int, int]:
    """By value: where the device has waited for the last sum of these gradients."""
    holds: dict[int, int] = {}
    tokens: dict[int, int] = {}
    ends: dict[int, int] = {}
    for position, one in enumerate(program.devices[device].step):
        if isinstance(one, Fill):
            holds[one.buffer] = one.value
        elif isinstance(one, CollStart) and one.collective == "all_reduce":
            tokens[one.token] = holds[one.buffer]
        elif isinstance(one, Wait) and one.token in tokens:
            ends[tokens.pop(one.token)] = position
    return ends
