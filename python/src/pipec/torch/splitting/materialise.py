"""Models on the device `meta`, which have shapes and no numbers: stages get memory where they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ...errors import StageError

_META = torch.device("meta")


def is_on_meta(model: nn.Module) -> bool:
    """Whether a model has weights without numbers."""
    return any(one.is_meta for one in model.parameters())


def on_device_of(model: nn.Module) -> AbstractContextManager[Any]:
    """Inside, tensors that the forward of a model on `meta` makes are there as well."""
    return _META if is_on_meta(model) else nullcontext()


def example_for(model: nn.Module, example: Any) -> Any:
    """The example where the model is."""
    return pytree.tree_map_only(Tensor, lambda one: one.to(_META), example) if is_on_meta(model) else example


def compute_on(device: torch.device, graph: fx.Graph, root: Mapping[str, Any]) -> None:
    """Lets a traced forward make its tensors on a device, and not on `meta`; also the graphs that it calls."""

    def moved(one: Any) -> Any:
        return device if one == _META else one

    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            node.args = fx.node.map_aggregate(node.args, moved)
            node.kwargs = fx.node.map_aggregate(node.kwargs, moved)
    for inner in root.values():
        if isinstance(inner, fx.GraphModule):
            compute_on(device, inner.graph, dict(inner.named_children()))
            inner.recompile()


def materialise(
    stages: Mapping[int, nn.Module],
    device: torch.device,
    state: Mapping[str, Any] | None,
    init: Callable[[nn.Module], Any] | None,
) -> None:
    """Gives the weights and buffers of some stages memory on a device, and fills it.

    Raises:
        StageError: Something is missing in the state, or nobody fills a buffer that is in no state.
    """
    made: dict[int, tuple[Tensor, Tensor]] = {}  # With the old one, so that no other tensor gets its number.
    for module in stages.values():
        for part in module.modules():
            _make_here(part._parameters, device, made)
            _make_here(part._buffers, device, made)
    for stage, module in stages.items():
        if init is None:
            _require_saved(stage, module, {id(one) for _, one in made.values()})
        else:
            init(module)
        if state is not None:
            _load(stage, module, state)


def _make_here(held: dict[str, Any], device: torch.device, made: dict[int, tuple[Tensor, Tensor]]) -> None:
    """Weights that several modules have stay one."""
    for name, one in held.items():
        if one is not None and one.is_meta:
            if id(one) not in made:
                empty = torch.empty_like(one, device=device)
                is_weight = isinstance(one, nn.Parameter)
                made[id(one)] = one, nn.Parameter(empty, one.requires_grad) if is_weight else empty
            held[name] = made[id(one)][1]


def _require_saved(stage: int, module: nn.Module, made: set[int]) -> None:
    saved = module.state_dict(keep_vars=True)
    left = [name for name, one in module.named_buffers() if id(one) in made and name not in saved]
    if left:
        raise StageError(
            f"stage {stage} has buffers that are in no state, so that nobody fills them: "
            f"{', '.join(f'`{one}`' for one in left)}. Give `init=`, a function that fills them in a module"
        )


def _load(stage: int, module: nn.Module, state: Mapping[str, Any]) -> None:
    wanted = module.state_dict()
    missing = [name for name in wanted if name not in state]
    if missing:
        more = f" and {len(missing) - 1} more of its weights" if len(missing) > 1 else ""
        raise StageError(f"`{missing[0]}` of stage {stage}{more} {'are' if more else 'is'} not in the state")
    module.load_state_dict({name: state[name] for name in wanted})
