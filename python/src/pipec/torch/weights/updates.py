"""The updates of a program: `U` of a stage, of a chunk of its weights, or of a member's share, each with an optimizer
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import Parameter

from ...instructions import Run
from ...program import Chunk, Program
from .flat_params import Resident
from .shares import Shares
from .versions import Weights

Named = list[tuple[str, Parameter]]
MakeOptimizer = Callable[[Named], torch.optim.Optimizer]
"""Makes an optimizer of some weights, which it gets as pairs of name and parameter, as those of `torch.optim` take
them.
"""


class Update:
    """One update, of weights of which there is one version."""

    def __init__(self, make: MakeOptimizer, named: Named) -> None:
        self.optimizer = make(named) if named else None
        self._parameters = [parameter for _, parameter in named]

    def run(self, read: int = -1, write: int = -1) -> None:
        """Makes a step of the optimizer, and gives back the gradients; where there are versions, of that in one buffer
        into another.
        """
        if self.optimizer is not None:
            self.optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None


class VersionedUpdate(Update):
    """An update of weights in several versions: its optimizer has parameters of its own, which are in the memory of the
    version that is made.
    """

    def __init__(self, make: MakeOptimizer, weights: Weights) -> None:
        self._weights = weights
        # `.data` has a count of changes of its own, by which autograd tells whether what a graph has saved is still
        # there.
        super().__init__(make, [(name, Parameter(one.data)) for name, one in weights.named()])

    def run(self, read: int = -1, write: int = -1) -> None:
        """Makes the version in `write` of the newest one, which is in `read`."""
        gradients = self._weights.take_gradients()
        made = self._weights.make(read, write)
        for own, new, gradient in zip(self._parameters, made, gradients):
            own.data = new.data
            own.grad = gradient
        super().run()
        for new in made:
            torch.autograd.graph.increment_version(new)


class ChunkUpdate(Update):
    """An update of a chunk of a stage's weights: of these numbers of their vector, whose gradients are parts of those
    of the weights.
    """

    def __init__(self, make: MakeOptimizer, resident: Resident, chunk: Chunk, whole: int) -> None:
        self._parts: list[tuple[Parameter, Parameter, int]] = []
        named: Named = []
        for vector in resident.vectors:
            rows = {slot.name: (slot.parameter, begin) for slot, begin in vector.rows}
            length = vector.whole.numel()
            for piece in vector.pieces(chunk.begin * length // whole, chunk.end * length // whole):
                weight, begin = rows[piece.name]
                assert weight is not None, "the weights of a stage that is not divided are all here"
                self._parts.append((piece.parameter, weight, piece.begin - begin))
                named.append((piece.name, piece.parameter))
        self._ends = [one for one in resident.weights()] if chunk.end == whole else []
        super().__init__(make, named)

    def run(self, read: int = -1, write: int = -1) -> None:
        """Updates the chunk; the last one gives back the gradients."""
        for part, weight, begin in self._parts:
            part.grad = None if weight.grad is None else weight.grad.reshape(-1)[begin : begin + part.numel()]
        super().run()
        for weight in self._ends:
            weight.grad = None


@dataclass(frozen=True)
class Updates:
    """The updates of a rank: by executable those in its list, and those of weights that no instruction updates, for its
    end.
    """

    by_exec: Mapping[int, Update]
    at_end: Sequence[Update]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that have weights to update."""
        every = [*self.by_exec.values(), *self.at_end]
        return [update.optimizer for update in every if update.optimizer is not None]


def updates(
    program: Program,
    device: int,
    named: Named,
    shares: Mapping[int, Shares],
    versions: Mapping[int, Weights],
    residents: Mapping[int, Resident],
    make: MakeOptimizer,
) -> Updates:
    """Makes the optimizers of a rank.

    Args:
        program: Says which updates its device runs.
        device: That of this rank.
        named: Its weights, by name, such as `0.table.weight`.
        shares: By stage, what of them is divided.
        versions: By stage, those of which there may be several versions.
        residents: By stage, those that are updated in chunks.
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
        stage, chunk = program.execs[exec].stage, program.execs[exec].chunk
        whole, divided = of_stage.pop(stage, []), shares.get(stage)
        if divided is not None:
            whole = [*divided.pieces(), *(pair for pair in whole if not divided.holds(pair[1]))]
        kept = versions.get(stage)
        if kept is not None:
            by_exec[exec] = VersionedUpdate(make, kept)
        elif chunk is not None and chunk.group is None and stage in residents:
            value = program.execs[exec].operands[0].value
            by_exec[exec] = ChunkUpdate(make, residents[stage], chunk, program.values[value].bytes)
        else:
            by_exec[exec] = Update(make, whole)
    return Updates(by_exec, [Update(make, left) for left in of_stage.values()])
