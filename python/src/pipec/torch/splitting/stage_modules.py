"""Stages of a chain as modules, whose weights have the names that they have in the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from .chain import Chain
from .materialise import compute_on
from .shapes import StageGraph, join
from .trace import Traced


class _Result(nn.Module):
    """Puts what the last stage returns together as the model does."""

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self._spec = spec

    def forward(self, leaves: Sequence[Any]) -> Any:
        """What the model returns."""
        return pytree.tree_unflatten(list(leaves), self._spec)


def stage_module(parts: Sequence[tuple[Chain, int, int]], device: torch.device | None = None) -> fx.GraphModule:
    """The nodes `begin..end` of a chain as a module. A model traced for several shapes has a chain for each.

    The first stage takes the arguments of the model, any other the values that cross the cut before it. The last one
    returns what the model returns, any other a tensor, or a tuple of them. With a device it makes its tensors there,
    where the model was traced on `meta`.
    """
    model = parts[0][0].traced.model
    graphs = [_stage_graph(*part) for part in parts]
    if device is not None:
        for one in graphs:
            compute_on(device, one.graph, one.root)
    module = join(graphs, model, is_first=parts[0][1] == 0)
    _keep_names(module, model, {name: value for one in graphs for name, value in one.root.items()})
    module.training = model.training  # Those inside keep theirs.
    return module


def _stage_graph(chain: Chain, begin: int, end: int) -> StageGraph:
    traced, graph = chain.traced, fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    root: dict[str, Any] = {}
    is_first, is_last = begin == 0, end == len(chain.nodes)
    entering = chain.inputs if is_first else chain.crossing(begin)
    changed = chain.changed_in(begin, end)
    for one in entering:
        values[one] = graph.node_copy(one) if is_first else graph.placeholder(f"from_{one.name}")
    # Values that cross a cut come in order; for another shape they may be others.
    inputs = tuple(str(one.target) if is_first else f"value {number}" for number, one in enumerate(entering))
    for one in entering if not is_first else ():
        if one in changed:  # Not what has come, which is a leaf of the stage's graph.
            values[one] = graph.call_function(torch.ops.aten.clone.default, (values[one],))

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
    known = traced.shapes if is_first else {name: _shape(traced, one) for name, one in zip(inputs, entering)}
    return StageGraph(graph, root, inputs, {name: one for name, one in known.items() if one is not None})


def _shape(traced: Traced, value: fx.Node) -> torch.Size | None:
    """That of a tensor which crosses a cut."""
    if value.op == "placeholder":
        return traced.shapes.get(str(value.target))
    found = value.meta.get("val")
    return found.shape if isinstance(found, Tensor) else None


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
