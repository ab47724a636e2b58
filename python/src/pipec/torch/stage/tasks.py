"""The tasks of one stage: what `F`, `R`, `B`, `W` and `BW` do with the stage's module and autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import StageError
from ...program import Stage
from ..batches import Given
from ..copies import Copier
from . import engine
from .buffers import ChangedBuffers
from .engine import Root
from .flow import Flow, Step, Tensors
from .saved_tensors import SavedTensors
from .slices import Carrying
from .split_backward import Deferred, Splitter
from .split_report import SplitReport, split_report

LossFunction = Callable[..., Tensor]


class _Saved:
    """What a forward leaves for the backward: its inputs, value by value, and the roots of its graph; likewise what
    slices carry.
    """

    earlier: Sequence[Tensors] = ()
    carried: Sequence[Root | None] = ()
    deferred: Deferred | None = None

    def __init__(self, inputs: Sequence[Tensors], roots: Sequence[Root | None]) -> None:
        self.inputs = inputs
        self.roots = roots

    def leaves(self) -> list[Tensor]:
        """All inputs that need gradients."""
        found = [one for value in self.inputs for one in value if one.requires_grad]
        return found + [one for value in self.earlier for one in value if one.requires_grad] if self.earlier else found


class StageTasks:
    """A stage on this rank. `inputs` and `targets` are those of a step, by microbatch.

    Args:
        stages: The stage, with what flows of each slice; one where slices are equal.
        module: Its module.
        loss_fn: That of the runner.
        seeds: By slice likewise, what the gradient of a loss is.
        step: What a step works on.
        device: Where the module is.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        module: nn.Module,
        loss_fn: LossFunction | None,
        seeds: Sequence[float],
        step: Step,
        device: torch.device,
    ) -> None:
        self.stage = stages[0]
        self._stages = stages
        self.module = module
        self.inputs: list[Given] = []
        self.targets: list[Given | None] = []
        self.weights: Sequence[float] | None = None
        """Of the losses of microbatches in what a step differentiates; without them all of a slice are the same."""
        self._loss_fn = loss_fn
        self._seed_values = seeds
        self._seeds: dict[tuple[torch.dtype, float], Tensor] = {}
        self._step = step
        self._flows = [Flow(stage, module, step) for stage in stages]
        self._is_last = self.stage.is_last
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

    def stage_of(self, microbatch: int) -> Stage:
        """The stage with what flows of a microbatch of the stream."""
        return self._stages[microbatch % len(self._stages)]

    def _flow(self, microbatch: int) -> Flow:
        return self._flows[microbatch % len(self._flows)]

    # Tasks: `reads` and `writes` are the buffers of what flows in and out, in the order of the stage's table.

    def forward(self, microbatch: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """`F` of a stage that keeps its graph for the backward."""
        flow = self._flow(microbatch)
        inputs = flow.leaves(reads)
        outputs, roots = self._call_and_keep(microbatch, inputs)
        self._save(microbatch, inputs, roots)
        flow.hand_on(outputs, writes)

    def forward_alone(self, microbatch: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """`F` without a graph, where nothing is trained."""
        flow = self._flow(microbatch)
        with torch.no_grad():
            outputs, _ = self._call(microbatch, flow.leaves(reads))
        flow.hand_on(outputs, writes)

    def forward_to_repeat(self, microbatch: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """`F` of a stage that recomputes: without a graph, but with what `R` needs to do the same."""
        self._random[microbatch] = _random_state(self._device)
        with self._buffers.kept_for(microbatch):
            self.forward_alone(microbatch, reads, writes)

    def recompute(self, microbatch: int, reads: Sequence[int]) -> None:
        """`R`: the forward once more, with the random numbers that it drew and the buffers that it began with."""
        inputs = self._flow(microbatch).leaves(reads)
        random = _random_numbers_of(self._device, self._random.pop(microbatch))
        with random, self._buffers.as_before(microbatch):
            _, roots = self._call_and_keep(microbatch, inputs)
        self._save(microbatch, inputs, roots)

    def backward(self, microbatch: int, arriving: Sequence[Sequence[int]], returned: Sequence[int | None]) -> None:
        """`BW`: adds to the gradients of the weights, and writes those of what flowed in."""
        saved = self._saved.pop(microbatch)
        roots, gradients = self._begin(microbatch, saved, arriving)
        if roots:
            engine.backward(roots, gradients)
        self._return(saved, [one.grad for one in saved.leaves()], returned)
        self._end(microbatch)

    def input_half(self, microbatch: int, arriving: Sequence[Sequence[int]], returned: Sequence[int | None]) -> None:
        """`B`: writes the gradients of what flowed in, and keeps what the weights' gradients need; nothing of a frozen
        stage.
        """
        began = perf_counter()
        saved = self._saved[microbatch]
        roots, gradients = self._begin(microbatch, saved, arriving)
        found, saved.deferred = self._splitter.input_half(roots, gradients, saved.leaves())
        self._return(saved, found, returned)
        saved.roots, saved.carried = (), ()
        self._halves[microbatch] = (perf_counter() - began, 0.0)
        if "W" not in self.stage.kinds:
            self._saved.pop(microbatch)
            self._end(microbatch)

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

    def _save(self, microbatch: int, inputs: Sequence[Tensors], roots: Sequence[Root | None]) -> None:
        saved = self._saved[microbatch] = _Saved(inputs, roots)
        if self.carrying is not None:
            saved.earlier, saved.carried = self.carrying.earlier, self.carrying.roots()

    def _end(self, microbatch: int) -> None:
        if self.kept:
            self.kept.pop(microbatch, None)
        if self.on_empty and not self._saved:
            for call in self.on_empty:
                call()

    def _call_and_keep(
        self, microbatch: int, inputs: Sequence[Tensors]
    ) -> tuple[Sequence[Tensors], Sequence[Root | None]]:
        """The same as `_call`, where what autograd saves may have to leave."""
        if microbatch not in self.leaves_saved or self.copier is None:
            return self._call(microbatch, inputs)
        held = [one for value in inputs for one in value]
        held += [*self.inputs[microbatch].tensors(), *(self.targets[microbatch] or Given()).tensors()]
        with SavedTensors(self.module, held, self.copier) as kept:
            outputs, roots = self._call(microbatch, inputs)
        kept.keep_here(one for value in outputs for one in value)
        self.kept[microbatch] = kept
        return outputs, roots

    def _call(self, microbatch: int, inputs: Sequence[Tensors]) -> tuple[Sequence[Tensors], Sequence[Root | None]]:
        """Runs the module: what flows out, value by value, and the roots of its graph: of the last stage its loss."""
        flow = self._flow(microbatch)
        arguments = flow.arguments(inputs)
        given = self.inputs[microbatch]
        if given.args:
            arguments += given.args
        if self.carrying is not None:
            self.carrying.begin(torch.is_grad_enabled() and flow.trains)
        if not self._is_last:
            return flow.values(self._run(arguments, given.kwargs, microbatch))
        targets = self.targets[microbatch]
        if targets is None:
            self._step.outputs[microbatch] = self._run(arguments, given.kwargs, microbatch)
            return (), ()
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
        return (), (loss,)

    def _run(self, arguments: Sequence[Any], keywords: Mapping[str, Any], microbatch: int) -> Any:
        if self.carrying is None:
            return self.module(*arguments, **keywords)
        return self.carrying.call(partial(self.module, **keywords), arguments, microbatch)

    def _begin(
        self, microbatch: int, saved: _Saved, arriving: Sequence[Sequence[int]]
    ) -> tuple[list[Root], list[Tensor]]:
        """Roots that need a gradient, and their gradients."""
        roots: list[Root] = []
        gradients: list[Tensor] = []
        if self._is_last:
            loss = saved.roots[0]
            assert isinstance(loss, Tensor), "the root of the last stage is its loss"
            if loss.requires_grad:
                roots, gradients = [loss], [self._seed(microbatch, loss)]
        else:
            for root, gradient in zip(saved.roots, self._flow(microbatch).arrived(arriving)):
                if root is not None:
                    roots.append(root)
                    gradients.append(gradient)
        if self.carrying is not None:
            for root, gradient in self.carrying.arriving(saved.carried):
                roots.append(root)
                gradients.append(gradient)
        return roots, gradients

    def _seed(self, microbatch: int, loss: Tensor) -> Tensor:
        seeds, weights = self._seed_values, self.weights
        value = seeds[microbatch % len(seeds)] if weights is None else weights[microbatch]
        seed = self._seeds.get((loss.dtype, value))
        if seed is None:
            seed = torch.full_like(loss, value, requires_grad=False)
            if weights is None:  # Weights may be others in each step.
                self._seeds[loss.dtype, value] = seed
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
