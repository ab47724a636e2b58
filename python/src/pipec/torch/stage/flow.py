"""What flows into a stage and out of it: the tensors of each value, checked against the forms that are known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import StageError
from ...program import Stage, Write
from ..transport import Forms, forms_of
from .engine import Root, edge_of
from .structures import Structure, take_apart

Tensors = Sequence[Tensor]
"""Those of one value."""


@dataclass
class Step:
    """What a step works on: the contents of buffers and tokens, the losses and outputs by microbatch, the forms of all
    that flows.
    """

    buffers: list[Any]
    tokens: list[Any]
    losses: list[Tensor | None]
    outputs: list[Any]
    forms: dict[int, Forms]
    structures: dict[int, Structure]
    """Of values that are more than tensors, or tuples of them."""
    is_free: bool = False
    """Whether microbatches have shapes of their own, so that each transfer is announced and nothing is remembered."""


class Flow:
    """What flows through one stage."""

    def __init__(self, stage: Stage, module: nn.Module, step: Step) -> None:
        self._stage = stage
        self._module = module
        self._step = step
        self._reads = tuple(read.value for read in stage.reads)

    def leaves(self, buffers: Sequence[int]) -> Sequence[Tensors]:
        """What flows in, value by value, as leaves of a graph of this stage's own."""
        held, forms = self._step.buffers, self._step.forms
        if self._step.is_free:
            return [[one.detach() for one in held[buffer]] for buffer in buffers]
        found: list[Tensors] = []
        for buffer, value in zip(buffers, self._reads):
            leaves = []
            for one, form in zip(held[buffer], forms[value]):
                leaf = one.detach()
                if form.needs_gradient:
                    leaf.requires_grad_()
                leaves.append(leaf)
            found.append(leaves)
        return found

    def arguments(self, inputs: Sequence[Tensors]) -> list[Any]:
        """What flows in, as the modules before have returned it."""
        structures = self._step.structures
        if not structures:
            return [one for value in inputs for one in value]
        found: list[Any] = []
        for value, tensors in zip(self._reads, inputs):
            structure = structures.get(value)
            found += tensors if structure is None else structure.arguments(tensors)
        return found

    @property
    def trains(self) -> bool:
        """Whether something that the stage computes needs gradients."""
        forms = self._step.forms
        reads = any(form.needs_gradient for value in self._reads for form in forms[value])
        return reads or any(one.requires_grad for one in self._module.parameters())

    def values(self, output: Any) -> tuple[Sequence[Tensors], list[Root | None]]:
        """A module's output, value by value, checked against what was announced; and where the backward begins: an
        entry for each tensor of which a gradient arrives.
        """
        writes = self._stage.writes
        roots: list[Root | None] = []
        if len(writes) == 1:
            return (self._tensors(writes[0], output, roots),), roots
        if not isinstance(output, (tuple, list)) or len(output) != len(writes):
            got = f"{len(output)} values" if isinstance(output, (tuple, list)) else type(output).__name__
            raise StageError(f"stage {self._stage.index} hands on {len(writes)} values, but its module returned {got}")
        return [self._tensors(write, value, roots) for write, value in zip(writes, output)], roots

    def hand_on(self, outputs: Sequence[Tensors], buffers: Sequence[int]) -> None:
        """Puts what flows out into buffers."""
        held = self._step.buffers
        for buffer, tensors in zip(buffers, outputs):
            held[buffer] = tensors

    def arrived(self, arriving: Sequence[Sequence[int]]) -> list[Tensor]:
        """The gradients of what flowed out; those of several readers are added up in the order of the program."""
        held = self._step.buffers
        gradients: list[Tensor] = []
        for buffers in arriving:
            total = held[buffers[0]] if buffers else ()
            for buffer in buffers[1:]:
                total = [one + other for one, other in zip(total, held[buffer])]
            gradients += total
        return gradients

    def _tensors(self, write: Write, value: Any, roots: list[Root | None]) -> Tensors:
        tensors, structure = take_apart(value)
        step = self._step
        forms = None if step.is_free else step.forms.get(write.value)
        if forms is None:
            self._require_tensors(value, tensors)
            step.structures.pop(write.value, None)
            if structure is not None:
                step.structures[write.value] = structure
            if step.is_free:
                return tensors
            forms = step.forms[write.value] = self._learn(write, tensors)
        elif structure is not None or step.structures:
            self._require_same(write, structure)
        if len(tensors) != len(forms):
            self._changed(tensors, forms)
        for one, form in zip(tensors, forms):
            if one.shape != form.shape or one.dtype is not form.dtype:
                self._changed(tensors, forms)
            if not one.requires_grad:
                if form.needs_gradient:
                    roots.append(None)
            elif form.needs_gradient:
                roots.append(edge_of(one))
            else:
                self._changed(tensors, forms)
        return tensors

    def _require_tensors(self, value: Any, tensors: Tensors) -> None:
        if not tensors:
            raise StageError(
                f"the module of stage {self._stage.index} returned {type(value).__name__}, expected a tensor, "
                "or a tuple, dict or dataclass "
                "of tensors"
            )

    def _require_same(self, write: Write, structure: Structure | None) -> None:
        if structure != self._step.structures.get(write.value):
            raise StageError(
                f"the module of stage {self._stage.index} returned another structure around its tensors than "
                "before, with inputs of the same shapes: it and what is no tensor have to stay the same; after a "
                "change of the module, call `reset` on all ranks"
            )

    def _learn(self, write: Write, tensors: Tensors) -> Forms:
        """The forms of what the first forward hands on."""
        if torch.is_grad_enabled():
            needs = [one.requires_grad for one in tensors]
        else:
            trains = self.trains
            needs = [trains and one.is_floating_point() for one in tensors]
        if not write.gradients and any(one.requires_grad for one in tensors):
            raise StageError(
                f"the module of stage {self._stage.index} returned a tensor that needs a gradient, but the "
                "program has none for what it hands on"
            )
        return forms_of(tensors, [one and bool(write.gradients) for one in needs])

    def _changed(self, tensors: Tensors, forms: Forms) -> None:
        got = ", ".join(str(one) for one in forms_of(tensors, [one.requires_grad for one in tensors]))
        expected = ", ".join(str(form) for form in forms)
        raise StageError(
            f"the module of stage {self._stage.index} returned {got}, but before {expected}: all "
            "microbatches of a step have one shape and the same tensors that need gradients, and so have steps with "
            "inputs of the same shapes; after a change of the module, call `reset` on all ranks"
        )
