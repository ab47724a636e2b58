"""Stages for microbatches of several shapes: a stage has a graph for each, and runs the one that was traced for what it
gets. Weights and modules are the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from ...errors import StageError

Shapes = Mapping[str, torch.Size]
"""Of the tensors that flow in, by name."""


@dataclass(frozen=True)
class StageGraph:
    """What a stage computes for microbatches of one shape."""

    graph: fx.Graph
    root: Mapping[str, Any]
    """What its `get_attr` and `call_module` nodes name."""
    inputs: tuple[str, ...]
    """The names of its arguments."""
    shapes: Shapes


def join(graphs: Sequence[StageGraph], model: nn.Module, is_first: bool) -> fx.GraphModule:
    """A module that runs the graph whose shapes its arguments have. Where there is one graph, only the first stage
    compares them.

    Raises:
        StageError: Two graphs are for the same shapes, and differ.
    """
    root = dict(graphs[0].root)
    for number, one in enumerate(graphs[1:], start=1):
        _add(root, one, f"of_shape_{number}")
    made = [fx.GraphModule(root, one.graph, "SplitStage") for one in graphs]
    module = made[0]
    for name, value in root.items():  # Also what only the other graphs name.
        fx.graph_module._assign_attr(value, module, name)
    for number, one in enumerate(graphs):
        for before, other in zip(made[:number], graphs):
            if other.shapes == one.shapes and before.code != made[number].code:
                raise StageError(
                    f"for two examples a stage of `{type(model).__name__}` gets the same shapes, {_text(one.shapes)}, "
                    "and computes different things: give one of them"
                )
    if len(graphs) > 1 or (is_first and graphs[0].shapes):
        choices = [(one.shapes, type(of_shape).forward) for one, of_shape in zip(graphs, made)]
        # The class is one that fx has made for this module alone.
        type(module).forward = _choosing(graphs[0].inputs, choices)
    return module


def _add(root: dict[str, Any], one: StageGraph, suffix: str) -> None:
    """Adds what a graph names; what is something else under a name that is there gets another one."""
    renamed = {}
    for name, value in one.root.items():
        if root.setdefault(name, value) is not value:
            renamed[name] = f"{name}_{suffix}"
            root[renamed[name]] = value
    for node in one.graph.nodes:
        if node.op in ("get_attr", "call_module") and node.target in renamed:
            node.target = renamed[node.target]


def _choosing(names: Sequence[str], choices: Sequence[tuple[Shapes, Callable[..., Any]]]) -> Callable[..., Any]:
    """A forward that takes one of several."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args)), **kwargs}
        for shapes, run in choices:
            if _fit(given, shapes):
                return run(self, *args, **kwargs)
        raise StageError(_unknown(given, [shapes for shapes, _ in choices]))

    return forward


def _fit(given: Mapping[str, Any], shapes: Shapes) -> bool:
    tensors = {name: one for name, one in given.items() if isinstance(one, Tensor)}
    return len(tensors) == len(shapes) and all(
        name in tensors and tensors[name].shape == shape for name, shape in shapes.items()
    )


def _unknown(given: Mapping[str, Any], known: Sequence[Shapes]) -> str:
    """What is said of arguments that fit no graph: the one that fits none, or else all of them."""
    for name, one in given.items():
        shapes = list(dict.fromkeys(of_graph[name] for of_graph in known if name in of_graph))
        if shapes and (not isinstance(one, Tensor) or one.shape not in shapes):
            got = list(one.shape) if isinstance(one, Tensor) else type(one).__name__
            expected = " or ".join(str(list(shape)) for shape in shapes)
            return (
                f"`{name}` is {got}, but the model was split for {expected}: give `split` a microbatch of this shape "
                "as example, or in `also=`"
            )
    got = _text({name: one.shape for name, one in given.items() if isinstance(one, Tensor)})
    return (
        f"a stage gets {got}, but the model was split for {'; '.join(map(_text, known))}: give `split` such a "
        "microbatch in `also=`"
    )


def _text(shapes: Shapes) -> str:
    return ", ".join(f"`{name}` {list(shape)}" for name, shape in shapes.items()) or "no tensors"
