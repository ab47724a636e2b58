"""Measures what a chain of modules costs: each runs forward and backward some times, on what the one before returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
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


@dataclass
class _Bench:
    """A module with what it gets, and what its tasks took."""

    module: nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    loss: Loss | None
    device: torch.device
    splitter: Splitter = field(default_factory=Splitter)
    samples: _Samples = field(default_factory=_Samples)


def measure(
    names: Sequence[str],
    modules: Sequence[nn.Module],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loss: Loss | None,
    repeats: int,
) -> tuple[LayerCost, ...]:
    """The costs of modules that read each other in a chain. All of them take turns, so that another load of the machine
    is about all of them alike.

    Args:
        names: A name for each.
        modules: The modules; the first one gets the arguments, each other what the one before returns.
        args: One microbatch.
        kwargs: The same, by name.
        loss: Makes a loss of what the last one returns; its time is that module's.
        repeats: How often each is measured; medians are returned.
    """
    benches, sizes = [], []
    for module in modules:
        of_last = loss if module is modules[-1] else None
        bench = _Bench(module, args, kwargs, of_last, _device(module, [*args, *kwargs.values()]))
        (flops,), _ = forward_flops([module], args, kwargs)
        held, outputs = _held(bench)
        sizes.append((held, _n_bytes(module.parameters()), _n_bytes(_tensors(outputs)), flops))
        benches.append(bench)
        flowing = pytree.tree_map_only(Tensor, _like, outputs)
        args, kwargs = (flowing if isinstance(flowing, tuple) else (flowing,)), {}
    order, draw = list(benches), Random(0)
    for repeat in range(repeats + 1):
        draw.shuffle(order)  # What else runs on the machine may come at fixed times.
        for bench in order:
            if repeat == 1:
                bench.samples = _Samples()  # Those of the first time are dropped.
            _halves(bench)
            _whole(bench)
    return tuple(
        LayerCost(
            name,
            median(bench.samples.forward),
            median(bench.samples.backward_input),
            median(bench.samples.backward_weight),
            median(bench.samples.backward),
            *of_module,
        )
        for name, bench, of_module in zip(names, benches, sizes)
    )


def _n_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


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


def _like(value: Tensor) -> Tensor:
    """The same numbers, for the next module."""
    return value.detach().requires_grad_(value.requires_grad)


def _run(bench: _Bench) -> tuple[list[Tensor], Any, list[Tensor]]:
    """A forward: the leaves that need gradients, what the module returns, and the roots of the backward."""
    leaves: list[Tensor] = []

    def leaf(value: Tensor) -> Tensor:
        made = _like(value)
        if made.requires_grad:
            leaves.append(made)
        return made

    args, kwargs = pytree.tree_map_only(Tensor, leaf, (tuple(bench.args), dict(bench.kwargs)))
    outputs = bench.module(*args, **kwargs)
    ends = outputs if bench.loss is None else bench.loss(outputs)
    return leaves, outputs, [one for one in _tensors(ends) if one.requires_grad]


def _halves(bench: _Bench) -> None:
    """`F`, `B` and `W`."""
    leaves, roots, gradients = _forward(bench)
    began = _now(bench.device)
    _, deferred = bench.splitter.input_half(roots, gradients, leaves)
    half = _now(bench.device)
    deferred.run()
    bench.samples.backward_input.append(half - began)
    bench.samples.backward_weight.append(_now(bench.device) - half)


def _whole(bench: _Bench) -> None:
    """`F` and `BW`."""
    _, roots, gradients = _forward(bench)
    began = _now(bench.device)
    if roots:
        torch.autograd.backward(cast("Sequence[Tensor]", roots), gradients)
    bench.samples.backward.append(_now(bench.device) - began)


def _forward(bench: _Bench) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """A forward that is timed: the leaves, and the roots with gradients."""
    began = _now(bench.device)
    leaves, _, roots = _run(bench)
    bench.samples.forward.append(_now(bench.device) - began)
    return leaves, roots, [torch.ones_like(one) for one in roots]


def _held(bench: _Bench) -> tuple[int, Any]:
    """The bytes that a forward leaves for the backward, and what it returns."""
    saved: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        leaves, outputs, _ = _run(bench)
    for one in leaves:
        saved[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    for one in (*bench.module.parameters(), *bench.module.buffers(), *_tensors(outputs)):
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
