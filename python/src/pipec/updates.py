"""The updates of a program: `U` of a stage, of a chunk of its weights, or of a member's share, each with an optimizer of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import Parameter

from .instructions import Run
from .program import Program
from .shares import Shares

Named = list[tuple[str, Parameter]]
MakeOptimizer = Callable[[Named], torch.optim.Optimizer]
"""Makes an optimizer of some weights, which it gets as pairs of name and parameter, as those of `torch.optim` take them."""


class Update:
    """One update."""

    def __init__(self, make: MakeOptimizer, named: Named) -> None:
        self.optimizer = make(named) if named else None
        self._parameters = [parameter for _, parameter in named]

    def run(self) -> None:
        """Makes a step of the optimizer, and gives back the gradients."""
        if self.optimizer is not None:
            self.optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None


@dataclass(frozen=True)
class Updates:
    """The updates of a rank: by executable those in its list, and those of weights that no instruction updates, for its end."""

    by_exec: Mapping[int, Update]
    at_end: Sequence[Update]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that have weights to update."""
        every = [*self.by_exec.values(), *self.at_end]
        return [update.optimizer for update in every if update.optimizer is not None]


def updates(program: Program, device: int, named: Named, shares: Mapping[int, Shares], make: MakeOptimizer) -> Updates:
    """Makes the optimizers of a rank.

    Args:
        program: Says which updates its device runs.
        device: That of this rank.
        named: Its weights, by name, such as `0.table.weight`.
        shares: By stage, what of them is divided.
        make: Makes an optimizer.
    """
    runs = (one for one in program.devices[device].step if isinstance(one, Run))
    execs = dict.fromkeys(one.exec for one in runs if program.execs[one.exec].kind == "Update")
    of_stage: dict[int, Named] = {}
    for name, parameter in named:
        if parameter.requires_grad:
            of_stage.setdefault(int(name.partition(".")[0]), []).append((name, parameter))
    by_exec: dict[int, Update] = {}
    for exec in execs:
        stage = program.execs[exec].stage
        whole, divided = of_stage.pop(stage, []), shares.get(stage)
        if divided is not None:
            whole = [*divided.pieces(), *(pair for pair in whole if not divided.holds(pair[1]))]
        by_exec[exec] = Update(make, whole)
    return Updates(by_exec, [Update(make, left) for left in of_stage.values()])
