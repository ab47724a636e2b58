"""Measures what a chain of modules costs: each runs forward and backward some times, on what the one before returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from ..stage.split_backward import Splitter
from .costs import LayerCost

Loss = Callable[[Any], Tensor]


@dataclass
class _Samples:
    """What one repetition after the other took, in seconds."""

    forward: list[float] = field(default_factory=list)
    backward_input: list[float] = field(default_factory=list)
    backward_weight: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)


def measure(
    names: Sequence[str],
    modules: Sequence[nn.Module],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loss: Loss | None,
    repeats: int,
) -> tuple[LayerCost, ...]:
    """The costs of modules that read each other in a chain.

    Args:
        names: A name for each.
        modules: The modules; the first one gets the arguments, each other what the one before returns.
        args: One microbatch.
        kwargs: The same, by name.
        loss: Makes a loss of what the last one returns; its time is that module's.
        repeats: How often each is measured; medians are returned.
    """
    costs = []
    for number, (name, module) in enumerate(zip(names, modules)):
        of_last = loss if number == len(modules) - 1 else None
        cost, outputs = _measure(name, module, args, kwargs, of_last, repeats)
        costs.append(cost)
        args, kwargs = (outputs if isinstance(outputs, tuple) else (outputs,)), {}
    return tuple(costs)


def forward_flops(
    modules: Sequence[nn.Module], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[int], Any]:
    """The operations of the forward of each module of a chain, and what the last one returns. Operations that are not
    products count nothing.
    """
    found = []
    outputs: Any = None
    with torch.no_grad():
        for module in modules:
            with FlopCounterMode(display=False) as counter:
                outputs = module(*args, **kwargs)
            found.append(counter.get_total_flops())
            args, kwargs = (outputs if isinstance(outputs, tuple) else (outputs,)), {}
    return found, outputs


def _measure(
    name: str, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Loss | None, repeats: int
) -> tuple[LayerCost, Any]:
    device = _device(module, [*args, *kwargs.values()])
    samples, splitter = _Samples(), Splitter()
    for repeat in range(repeats + 1):
        if repeat == 1:
            samples = _Samples()  # Those of the first time are dropped.
        _halves(module, args, kwargs, loss, splitter, device, samples)
        _whole(module, args, kwargs, loss, device, samples)
    (flops,), _ = forward_flops([module], args, kwargs)
    held, outputs = _held(module, args, kwargs, loss)
    cost = LayerCost(
        name,
        median(samples.forward),
        median(samples.backward_input),
        median(samples.backward_weight),
        median(samples.backward),
        held,
        sum(one.numel() * one.element_size() for one in module.parameters()),
        sum(one.numel() * one.element_size() for one in _tensors(outputs)),
        flops,
    )
    return cost, pytree.tree_map_only(Tensor, _like, outputs)


def _like(value: Tensor) -> Tensor:
    """The same numbers, for the next module."""
    return value.detach().requires_grad_(value.requires_grad)


def _run(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Loss | None
) -> tuple[list[Tensor], Any, list[Tensor]]:
    """A forward: the leaves that need gradients, what the module returns, and the roots of the backward."""
    leaves: list[Tensor] = []

    def leaf(value: Tensor) -> Tensor:
        made = value.detach().requires_grad_(value.requires_grad)
        if made.requires_grad:
            leaves.append(made)
        return made

    given = pytree.tree_map_only(Tensor, leaf, (tuple(args), dict(kwargs)))
    outputs = module(*given[0], **given[1])
    ends = outputs if loss is None else loss(outputs)
    return leaves, outputs, [one for one in _tensors(ends) if one.requires_grad]


def _halves(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loss: Loss | None,
    splitter: Splitter,
    device: torch.device,
    samples: _Samples,
) -> None:
    """`F`, `B` and `W`."""
    began = _now(device)
    leaves, _, roots = _run(module, args, kwargs, loss)
    forward = _now(device)
    samples.forward.append(forward - began)
    gradients = [torch.ones_like(one) for one in roots]
    forward = _now(device)
    _, deferred = splitter.input_half(roots, gradients, leaves)
    half = _now(device)
    deferred.run()
    samples.backward_input.append(half - forward)
    samples.backward_weight.append(_now(device) - half)


def _whole(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loss: Loss | None,
    device: torch.device,
    samples: _Samples,
) -> None:
    """`F` and `BW`."""
    began = _now(device)
    _, _, roots = _run(module, args, kwargs, loss)
    forward = _now(device)
    samples.forward.append(forward - began)
    gradients = [torch.ones_like(one) for one in roots]
    forward = _now(device)
    if roots:
        torch.autograd.backward(cast("Sequence[Tensor]", roots), gradients)
    samples.backward.append(_now(device) - forward)


def _held(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Loss | None) -> tuple[int, Any]:
    """The bytes that a forward leaves for the backward, and what it returns."""
    saved: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        leaves, outputs, _ = _run(module, args, kwargs, loss)
    for one in leaves:
        saved[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    for one in (*module.parameters(), *module.buffers(), *_tensors(outputs)):
        saved.pop(one.untyped_storage().data_ptr(), None)
    return sum(saved.values()), outputs


def _tensors(value: Any) -> list[Tensor]:
    return [one for one in pytree.tree_leaves(value) if isinstance(one, Tensor)]


def _device(module: nn.Module, given: Iterable[Any]) -> torch.device:
    found = [*module.parameters(), *_tensors(list(given))]
    return found[0].device if found else torch.device("cpu")


def _now(device: torch.device) -> float:
    """The time when all that was asked of a device has ended."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return perf_counter()
