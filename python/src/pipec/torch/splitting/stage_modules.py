"""Stages of a chain as modules, whose weights have the names that they have in the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ...errors import StageError
from .chain import Chain


class _SameShapes(nn.Module):
    """Refuses inputs of other shapes than those of the example, for which the forward was traced."""

    def __init__(self, shapes: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self._shapes = dict(shapes)

    def forward(self, *inputs: Any) -> None:
        """Compares shapes."""
        for (name, shape), one in zip(self._shapes.items(), inputs):
            if not isinstance(one, Tensor) or one.shape != shape:
                got = list(one.shape) if isinstance(one, Tensor) else type(one).__name__
                raise StageError(
                    f"`{name}` is {got}, but the model was split for {list(shape)}: give `split` a microbatch "
                    "of this shape as example"
                )


class _Result(nn.Module):
    """Puts what the last stage returns together as the model does."""

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self._spec = spec

    def forward(self, leaves: Sequence[Any]) -> Any:
        """What the model returns."""
        return pytree.tree_unflatten(list(leaves), self._spec)


def stage_module(chain: Chain, begin: int, end: int) -> fx.GraphModule:
    """The nodes `begin..end` of a chain as a module.

    The first stage takes the arguments of the model, any other the values that cross the cut before it. The last one
    returns what the model returns, any other a tensor, or a tuple of them.
    """
    traced, graph = chain.traced, fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    root: dict[str, Any] = {}
    is_first, is_last = begin == 0, end == len(chain.nodes)
    entering = chain.inputs if is_first else chain.crossing(begin)
    changed = chain.changed_in(begin, end)
    for one in entering:
        values[one] = graph.node_copy(one) if is_first else graph.placeholder(f"from_{one.name}")
    for one in entering if not is_first else ():
        if one in changed:  # Not what has come, which is a leaf of the stage's graph.
            values[one] = graph.call_function(torch.ops.aten.clone.default, (values[one],))
    if is_first and traced.shapes:
        root["same_shapes"] = _SameShapes(traced.shapes)
        tensors = tuple(values[one] for one in chain.inputs if one.target in traced.shapes)
        graph.call_module("same_shapes", tensors)

    def copied(node: fx.Node) -> fx.Node:
        """A constant is copied where it is first read."""
        if node not in values:
            values[node] = graph.node_copy(node, copied)
            if node.op in ("get_attr", "call_module"):
                root[str(node.target)] = traced.attributes[str(node.target)]
        return values[node]

    for node in chain.nodes[begin:end]:
        copied(node)
    if is_last:
        leaves = [copied(one) if isinstance(one, fx.Node) else one for one in chain.output.args[0]]
        if traced.result is None:
            graph.output(leaves[0])
        else:
            root["result"] = _Result(traced.result)
            graph.output(graph.call_module("result", (tuple(leaves),)))
    else:
        leaving = [
            _handed_on(graph, values[one], one in entering and one not in changed) for one in chain.crossing(end)
        ]
        graph.output(leaving[0] if len(leaving) == 1 else tuple(leaving))
    module = fx.GraphModule(root, graph, "SplitStage")
    _keep_names(module, traced.model, root)
    module.training = traced.model.training  # Those inside keep theirs.
    return module


def _handed_on(graph: fx.Graph, value: fx.Node, only_passes: bool) -> fx.Node:
    """What a stage passes on has to be a value of its own, so that its gradient goes through the stage."""
    return graph.call_function(torch.ops.aten.alias.default, (value,)) if only_passes else value


def _keep_names(module: nn.Module, model: nn.Module, root: Mapping[str, Any]) -> None:
    """Buffers are saved as in the model, and what is there once is there once."""
    saved = set(model.state_dict())
    for name, value in root.items():
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            path, _, last = name.rpartition(".")
            holder = module.get_submodule(path)
            holder.register_buffer(last, value, persistent=name in saved)


def shared_weights(stages: Sequence[nn.Module]) -> dict[str, str]:
    """The weights that several stages have, such as a table that is also the head: by name with the stage in front,
    that of the first stage that has it.
    """
    owners: dict[int, str] = {}
    tied: dict[str, str] = {}
    for stage, module in enumerate(stages):
        for name, parameter in module.named_parameters(remove_duplicate=False):
            owner = owners.setdefault(id(parameter), f"{stage}.{name}")
            if not owner.startswith(f"{stage}."):
                tied[f"{stage}.{name}"] = owner
    return tied


def unused_weights(model: nn.Module, stages: Iterable[nn.Module]) -> tuple[str, ...]:
    """The weights of a model that no stage has, because its forward does not read them."""
    used = {id(one) for module in stages for one in module.parameters()}
    return tuple(name for name, one in model.named_parameters() if id(one) not in used)
