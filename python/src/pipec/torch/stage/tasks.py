"""The tasks of one stage: what `F`, `R`, `B`, `W` and `BW` do with the stage's module and autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from ...errors import StageError
from ...program import Stage, Write
from ..batches import Given
from ..copies import Copier
from ..transport import Forms, forms_of
from .buffers import ChangedBuffers
from .saved_tensors import SavedTensors
from .slices import Carrying
from .split_backward import Deferred, Root, Splitter
from .split_report import SplitReport, split_report
from .structures import Structure, take_apart

Tensors = tuple[Tensor, ...]
LossFunction = Callable[..., Tensor]


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


class _Saved:
    """What a forward leaves for the backward: its inputs, value by value, and the roots of its graph; likewise what
    slices carry.
    """

    __slots__ = ("carried", "deferred", "earlier", "inputs", "roots", "weight")

    def __init__(self, inputs: list[Tensors], roots: list[Root | None]) -> None:
        self.inputs = inputs
        self.roots = roots
        self.earlier: list[Tensors] = []
        self.carried: list[Root | None] = []
        self.deferred: Deferred | None = None
        self.weight: float | None = None


class StageTasks:
    """A stage on this rank. `inputs` and `targets` are those of a step, by microbatch."""

    def __init__(
        self,
        stage: Stage,
        module: nn.Module,
        loss_fn: LossFunction | None,
        seed: float,
        step: Step,
        device: torch.device,
    ) -> None:
        self.stage = stage
        self.module = module
        self.inputs: list[Given] = []
        self.targets: list[Given | None] = []
        self.weights: Sequence[float] | None = None
        """Of the losses of microbatches in what a step differentiates; without them all are the same."""
        self._loss_fn = loss_fn
        self._seed_value = seed
        self._seeds: dict[torch.dtype, Tensor] = {}
        self._step = step
        self._device = device
        self._splitter = Splitter()
        self._saved: dict[int, _Saved] = {}
        self._halves: dict[int, tuple[float, float]] = {}
        self.carrying: Carrying | None = None
        """What slices of microbatches carry, where there are any."""
        self.copier: Copier | None = None
        self.leaves_saved: set[int] = set()
        """Microbatches whose saved tensors leave for the host before their backward."""
        self.kept: dict[int, SavedTensors] = {}
        """What their forwards have saved."""
        self.on_empty: list[Callable[[], None]] = []
        """Called when no microbatch waits for its backward."""
        self.scale: Callable[[Tensor], Tensor] | None = None
        """Multiplies the gradient of a loss, which the backward begins with; for gradients of few bits."""
        self._random: dict[int, list[Tensor]] = {}
        self._buffers = ChangedBuffers(module)

    def clear(self) -> None:
        """Drops what a step that failed has left."""
        self._saved.clear()
        self.kept.clear()
        self._random.clear()
        self._buffers.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether a microbatch that went forward waits for its backward, or the second half of it."""
        return bool(self._saved)

    # Tasks: `reads` and `writes` are the buffers of what flows in and out, in the order of the stage's table.

    def forward(self, microbatch: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """`F` of a stage that keeps its graph for the backward."""
        inputs = self._leaves(reads)
        outputs, loss = self._call_and_keep(microbatch, inputs)
        self._save(microbatch, inputs, outputs, loss)
        self._hand_on(outputs, writes)

    def forward_alone(self, microbatch: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """`F` without a graph, where nothing is trained."""
        with torch.no_grad():
            outputs, _ = self._call(microbatch, self._leaves(reads))
        self._hand_on(outputs, writes)

    def forward_to_repeat(self, microbatch: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """`F` of a stage that recomputes: without a graph, but with what `R` needs to do the same."""
        self._random[microbatch] = _random_state(self._device)
        with self._buffers.kept_for(microbatch):
            self.forward_alone(microbatch, reads, writes)

    def recompute(self, microbatch: int, reads: Sequence[int]) -> None:
        """`R`: the forward once more, with the random numbers that it drew and the buffers that it began with."""
        inputs = self._leaves(reads)
        random = _random_numbers_of(self._device, self._random.pop(microbatch))
        with random, self._buffers.as_before(microbatch):
            outputs, loss = self._call_and_keep(microbatch, inputs)
        self._save(microbatch, inputs, outputs, loss)

    def backward(self, microbatch: int, arriving: Sequence[Sequence[int]], returned: Sequence[int | None]) -> None:
        """`BW`: adds to the gradients of the weights, and writes those of what flowed in."""
        saved = self._saved.pop(microbatch)
        roots, gradients = self._begin(saved, arriving)
        if roots:
            torch.autograd.backward(cast("Sequence[Tensor]", roots), gradients)
        leaves = [one for value in (*saved.inputs, *saved.earlier) for one in value if one.requires_grad]
        self._return(saved, [one.grad for one in leaves], returned)
        self._end(microbatch)

    def input_half(self, microbatch: int, arriving: Sequence[Sequence[int]], returned: Sequence[int | None]) -> None:
        """`B`: writes the gradients of what flowed in, and keeps what the weights' gradients need."""
        began = perf_counter()
        saved = self._saved[microbatch]
        roots, gradients = self._begin(saved, arriving)
        leaves = [one for value in (*saved.inputs, *saved.earlier) for one in value if one.requires_grad]
        found, saved.deferred = self._splitter.input_half(roots, gradients, leaves)
        self._return(saved, found, returned)
        saved.roots, saved.carried = [], []
        self._halves[microbatch] = (perf_counter() - began, 0.0)

    def weight_half(self, microbatch: int) -> None:
        """`W`: adds to the gradients of the weights what `B` left."""
        began = perf_counter()
        deferred = self._saved.pop(microbatch).deferred
        assert deferred is not None, "the verifier of programs lets no `W` run before its `B`"
        deferred.run()
        self._halves[microbatch] = (self._halves[microbatch][0], perf_counter() - began)
        self._end(microbatch)

    def split_report(self) -> SplitReport:
        """How the halves of the last step shared the work."""
        takes = list(self._halves.values()) if self._device.type == "cpu" else None
        return split_report(self.stage.index, self._splitter.splits, takes)

    def _save(self, microbatch: int, inputs: list[Tensors], outputs: list[Tensors], loss: Tensor | None) -> None:
        saved = self._saved[microbatch] = _Saved(inputs, [loss] if loss is not None else self._roots(outputs))
        if self.weights is not None:
            saved.weight = self.weights[microbatch]
        if self.carrying is not None:
            saved.earlier, saved.carried = self.carrying.earlier, self.carrying.roots()

    def _end(self, microbatch: int) -> None:
        if self.kept:
            self.kept.pop(microbatch, None)
        if self.on_empty and not self._saved:
            for call in self.on_empty:
                call()

    def _leaves(self, buffers: Sequence[int]) -> list[Tensors]:
        """What flows in, as leaves of a graph of this stage's own."""
        held, forms = self._step.buffers, self._step.forms
        if self._step.is_free:
            return [tuple(one.detach() for one in held[buffer]) for buffer in buffers]
        return [
            tuple(
                one.detach().requires_grad_() if form.needs_gradient else one.detach()
                for one, form in zip(held[buffer], forms[read.value])
            )
            for buffer, read in zip(buffers, self.stage.reads)
        ]

    def _call_and_keep(self, microbatch: int, inputs: Sequence[Tensors]) -> tuple[list[Tensors], Tensor | None]:
        """The same as `_call`, where what autograd saves may have to leave."""
        if microbatch not in self.leaves_saved or self.copier is None:
            return self._call(microbatch, inputs)
        held = [one for value in inputs for one in value]
        held += [*self.inputs[microbatch].tensors(), *(self.targets[microbatch] or Given()).tensors()]
        with SavedTensors(self.module, held, self.copier) as kept:
            outputs, loss = self._call(microbatch, inputs)
        kept.keep_here(one for value in outputs for one in value)
        self.kept[microbatch] = kept
        return outputs, loss

    def _call(self, microbatch: int, inputs: Sequence[Tensors]) -> tuple[list[Tensors], Tensor | None]:
        """Runs the module: what flows out, value by value, and the loss of the last stage."""
        arguments = self._arguments(inputs)
        given = self.inputs[microbatch]
        arguments += given.args
        if self.carrying is not None:
            self.carrying.begin(torch.is_grad_enabled() and self._trains())
        if not self.stage.is_last:
            return self._values(self._run(arguments, given.kwargs, microbatch)), None
        targets = self.targets[microbatch]
        if targets is None:
            self._step.outputs[microbatch] = self._run(arguments, given.kwargs, microbatch)
            return [], None
        if self._loss_fn is None:
            loss = self._run([*arguments, *targets.args], {**given.kwargs, **targets.kwargs}, microbatch)
        else:
            output = self._run(arguments, given.kwargs, microbatch)
            loss = self._loss_fn(output, *targets.args, **targets.kwargs)
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            shape = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise StageError(
                f"the loss of microbatch {microbatch} is {shape}, expected a tensor with one number and shape []"
            )
        self._step.losses[microbatch] = loss.detach()
        return [], loss

    def _arguments(self, inputs: Sequence[Tensors]) -> list[Any]:
        """What flows in, as the modules before have returned it."""
        structures = self._step.structures
        if not structures:
            return [one for value in inputs for one in value]
        found: list[Any] = []
        for read, value in zip(self.stage.reads, inputs):
            structure = structures.get(read.value)
            found += value if structure is None else structure.arguments(value)
        return found

    def _run(self, arguments: Sequence[Any], keywords: Mapping[str, Any], microbatch: int) -> Any:
        if self.carrying is None:
            return self.module(*arguments, **keywords)
        return self.carrying.call(partial(self.module, **keywords), arguments, microbatch)

    def _trains(self) -> bool:
        """Whether something that the stage computes needs gradients."""
        forms = self._step.forms
        reads = any(form.needs_gradient for read in self.stage.reads for form in forms[read.value])
        return reads or any(one.requires_grad for one in self.module.parameters())

    def _values(self, output: Any) -> list[Tensors]:
        """A module's output, value by value, checked against what was announced."""
        writes = self.stage.writes
        if len(writes) == 1:
            values = [output]
        elif isinstance(output, (tuple, list)) and len(output) == len(writes):
            values = list(output)
        else:
            got = f"{len(output)} values" if isinstance(output, (tuple, list)) else type(output).__name__
            raise StageError(f"stage {self.stage.index} hands on {len(writes)} values, but its module returned {got}")
        return [self._tensors(write, value) for write, value in zip(writes, values)]

    def _tensors(self, write: Write, value: Any) -> Tensors:
        tensors, structure = take_apart(value)
        forms = None if self._step.is_free else self._step.forms.get(write.value)
        if forms is None:
            self._require_tensors(value, tensors)
            self._step.structures.pop(write.value, None)
            if structure is not None:
                self._step.structures[write.value] = structure
            if self._step.is_free:
                return tensors
            forms = self._step.forms[write.value] = self._learn(write, tensors)
        elif structure != self._step.structures.get(write.value):
            raise StageError(
                f"the module of stage {self.stage.index} returned another structure around its tensors than in the first step: it and what "
                "is no tensor have to stay the same; after a change, call `reset` on all ranks"
            )
        for one, form in zip(tensors, forms):
            if one.shape != form.shape or one.dtype != form.dtype or (one.requires_grad and not form.needs_gradient):
                self._changed(tensors, forms)
        if len(tensors) != len(forms):
            self._changed(tensors, forms)
        return tensors

    def _require_tensors(self, value: Any, tensors: Tensors) -> None:
        if not tensors:
            raise StageError(
                f"the module of stage {self.stage.index} returned {type(value).__name__}, expected a tensor, or a tuple, dict or dataclass "
                "of tensors"
            )

    def _learn(self, write: Write, tensors: Tensors) -> Forms:
        """The forms of what the first forward hands on."""
        if torch.is_grad_enabled():
            needs = [one.requires_grad for one in tensors]
        else:
            trains = self._trains()
            needs = [trains and one.is_floating_point() for one in tensors]
        if not write.gradients and any(one.requires_grad for one in tensors):
            raise StageError(
                f"the module of stage {self.stage.index} returned a tensor that needs a gradient, but the program has none for what it hands on"
            )
        return forms_of(tensors, [one and bool(write.gradients) for one in needs])

    def _changed(self, tensors: Tensors, forms: Forms) -> None:
        got = ", ".join(str(one) for one in forms_of(tensors, [one.requires_grad for one in tensors]))
        expected = ", ".join(str(form) for form in forms)
        raise StageError(
            f"the module of stage {self.stage.index} returned {got}, but in the first step {expected}: microbatches and steps "
            "have one shape and the same tensors that need gradients; after a change, call `reset` on all ranks"
        )

    def _roots(self, outputs: Sequence[Tensors]) -> list[Root | None]:
        """Where the backward begins: one entry for each tensor of which a gradient arrives. An edge does not keep its
        tensor alive.
        """
        forms = self._step.forms
        return [
            get_gradient_edge(one) if one.requires_grad else None
            for write, tensors in zip(self.stage.writes, outputs)
            for one, form in zip(tensors, forms[write.value])
            if form.needs_gradient
        ]

    def _hand_on(self, outputs: Sequence[Tensors], buffers: Sequence[int]) -> None:
        for buffer, tensors in zip(buffers, outputs):
            self._step.buffers[buffer] = tensors

    def _begin(self, saved: _Saved, arriving: Sequence[Sequence[int]]) -> tuple[list[Root], list[Tensor]]:
        """Roots and their gradients; those of several readers are added up in the order of the program."""
        if self.stage.is_last:
            loss = saved.roots[0]
            assert isinstance(loss, Tensor), "the root of the last stage is its loss"
            pairs: list[tuple[Root, Tensor]] = [(loss, self._seed(loss, saved.weight))] if loss.requires_grad else []
            return self._with_carried(saved, pairs)
        held = self._step.buffers
        gradients: list[Tensor] = []
        for buffers in arriving:
            total = held[buffers[0]] if buffers else ()
            for buffer in buffers[1:]:
                total = [one + other for one, other in zip(total, held[buffer])]
            gradients += total
        pairs = [(root, gradient) for root, gradient in zip(saved.roots, gradients) if root is not None]
        return self._with_carried(saved, pairs)

    def _with_carried(self, saved: _Saved, pairs: list[tuple[Root, Tensor]]) -> tuple[list[Root], list[Tensor]]:
        if self.carrying is not None:
            pairs = pairs + self.carrying.arriving(saved.carried)
        return [root for root, _ in pairs], [gradient for _, gradient in pairs]

    def _seed(self, loss: Tensor, weight: float | None) -> Tensor:
        seed = self._seeds.get(loss.dtype) if weight is None else torch.full_like(loss, weight, requires_grad=False)
        if seed is None:
            seed = self._seeds[loss.dtype] = torch.full_like(loss, self._seed_value, requires_grad=False)
        return seed if self.scale is None else self.scale(seed).to(loss.dtype)

    def _return(self, saved: _Saved, found: Sequence[Tensor | None], buffers: Sequence[int | None]) -> None:
        """Hands the gradients of what flowed in back; zeros where the outputs do not depend on it."""
        position = 0
        for leaves, buffer in zip(saved.inputs, buffers):
            gradients = []
            for leaf in leaves:
                if leaf.requires_grad:
                    gradient = found[position]
                    gradients.append(torch.zeros_like(leaf) if gradient is None else gradient)
                    position += 1
            if buffer is not None:
                self._step.buffers[buffer] = gradients
        if self.carrying is not None:
            self.carrying.hand_back(saved.earlier, found[position:])


def _random_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


class _random_numbers_of:
    """Draws random numbers from some states, and then goes on where it was."""

    def __init__(self, device: torch.device, states: list[Tensor]) -> None:
        self._device = device
        self._states = states
        self._before: list[Tensor] = []

    def __enter__(self) -> None:
        self._before = _random_state(self._device)
        self._set(self._states)

    def __exit__(self, *_: object) -> None:
        self._set(self._before)

    def _set(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1], self._device)
