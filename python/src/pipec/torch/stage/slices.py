"""Slices of a microbatch along its sequence: what a stage hands from each slice to the later ones, such as keys and
values, and its gradients.

The program has a buffer for what each slice carries, and one for the gradients of what all earlier slices carried, as
far as they are added up: the backward of a slice adds its part, takes out what is its own, and hands the rest to the
slice before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ...errors import StageError
from ...program import Exec
from .engine import Root, edge_of

Tensors = Sequence[Tensor]
Gradients = list[list["Tensor | None"]]
"""By earlier slice, of each tensor that it carries."""


@dataclass(frozen=True)
class Carry:
    """The buffers of one run: of earlier slices in their order, its own, and of gradients from the slice after it and
    for the one before.
    """

    earlier: tuple[int, ...]
    own: int | None
    arriving: int | None
    returned: int | None


def carry_of(exec: Exec, buffers: Sequence[int], kinds: Sequence[str]) -> Carry:
    """Finds them among the operands of an executable; `kinds` are those of all values."""
    earlier: list[tuple[int, int]] = []
    found: dict[str, int] = {}
    for operand, buffer in zip(exec.operands, buffers):
        kind = kinds[operand.value]
        if kind == "carried" and operand.ahead < 0:
            earlier.append((operand.ahead, buffer))
        elif kind == "carried" and operand.access == "write":
            found["own"] = buffer
        elif kind == "carried_gradient":
            found["returned" if operand.access == "write" else "arriving"] = buffer
    ordered = tuple(buffer for _, buffer in sorted(earlier))
    return Carry(ordered, found.get("own"), found.get("arriving"), found.get("returned"))


class Carrying:
    """What the slices of one stage carry. `carry` is that of the run that comes next."""

    def __init__(self, stage: int, module: nn.Module, n_slices: int, buffers: list[Any]) -> None:
        parameters = inspect.signature(module.forward).parameters.values()
        self._takes = any(one.name == "carried" or one.kind == one.VAR_KEYWORD for one in parameters)
        self._stage = stage
        self._n_slices = n_slices
        self._buffers = buffers
        self._trains = False
        self.carry = Carry((), None, None, None)
        self.earlier: list[Tensors] = []
        self.own: Tensors = ()

    def begin(self, trains: bool) -> None:
        """Takes what earlier slices carry, as leaves of the graph of this one."""
        held = (self._buffers[buffer] for buffer in self.carry.earlier)
        self.earlier = [
            tuple(one.detach().requires_grad_(trains and one.is_floating_point()) for one in tensors)
            for tensors in held
        ]

    def call(self, module: Callable[..., Any], arguments: Sequence[Any], microbatch: int) -> Any:
        """Runs the module: it gets what earlier slices carry, and returns what it hands on and what it carries
        itself.
        """
        if not self._takes:
            self.own = ()
            self._keep()
            return module(*arguments)
        if len(self.earlier) != microbatch % self._n_slices:
            raise StageError(
                f"the module of stage {self._stage} takes `carried`, but the program carries nothing from "
                "slice to slice there: compile a "
                "schedule without a model, or one whose stage has attention"
            )
        returned = module(*arguments, carried=list(self.earlier))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise StageError(
                f"the module of stage {self._stage} takes `carried` and returned {type(returned).__name__}, "
                "expected a pair: what it hands "
                "on, and a tuple of the tensors that later slices get"
            )
        output, own = returned
        self.own = (own,) if isinstance(own, Tensor) else tuple(own)
        if not all(isinstance(one, Tensor) for one in self.own):
            raise StageError(f"the module of stage {self._stage} carries something that is no tensor")
        self._keep()
        return output

    def _keep(self) -> None:
        if self.carry.own is not None:
            self._buffers[self.carry.own] = tuple(one.detach() for one in self.own)

    def roots(self) -> list[Root | None]:
        """Where the gradients of what this slice carries arrive; the tensors themselves are not kept here."""
        own, self.own = self.own, ()
        return [edge_of(one) if one.requires_grad else None for one in own]

    def arriving(self, roots: Sequence[Root | None]) -> list[tuple[Root, Tensor]]:
        """These, with the sums of what later slices found."""
        gradients = [] if self.carry.arriving is None else self._buffers[self.carry.arriving][-1]
        return [(root, one) for root, one in zip(roots, gradients) if root is not None and one is not None]

    def hand_back(self, earlier: Sequence[Tensors], found: Sequence[Tensor | None]) -> None:
        """Adds the gradients of what earlier slices carried to those of later slices."""
        if self.carry.returned is None:
            return
        sums: Gradients = [] if self.carry.arriving is None else self._buffers[self.carry.arriving][:-1]
        following = iter(found)
        total: Gradients = []
        for number, leaves in enumerate(earlier):
            mine = [next(following) if leaf.requires_grad else None for leaf in leaves]
            total.append([_added(one, other) for one, other in zip(sums[number], mine)] if sums else mine)
        self._buffers[self.carry.returned] = total


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other
