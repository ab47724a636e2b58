"""Autograd's engine, without what `torch.autograd.backward` and `grad` do before they call it.

Both check their arguments in Python, one by one, which takes longer than the engine itself takes for a small stage. The
roots and gradients of a stage fit each other, and the engine checks shapes, types and devices once more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

Root = Tensor | GradientEdge
"""Where a backward begins. An edge does not keep its tensor alive."""

_run: Any = getattr(torch.autograd.graph, "_engine_run_backward", None)
"""What both call at their end. It has no public name: a torch without it gets the public calls."""
_run_here: Any = torch.autograd.Variable._execution_engine.run_backward
"""The engine itself. The call above logs graphs, and hands settings to the threads of GPUs."""
_log = logging.getLogger("torch.autograd.graph")
_PythonNode: type = torch._C._FunctionBase
"""Nodes of functions in Python, whose edges have to hold the graph as well."""


def _engine_for(gradients: Sequence[Tensor]) -> Any:
    """The shortest call that does all that these gradients need. A graph on CPUs runs in the thread that calls."""
    if _run is not None and gradients[0].is_cpu and not _log.isEnabledFor(logging.DEBUG):
        return _run_here
    return _run


def backward(
    roots: Sequence[Root], gradients: Sequence[Tensor], weights: Sequence[Tensor] = (), keeps_graph: bool = False
) -> None:
    """Adds to the `grad` of leaves: of some weights, or without any of all that the roots, at least one, lead to."""
    run = _engine_for(gradients)
    if run is not None:
        run(
            tuple(roots),
            tuple(gradients),
            keeps_graph,
            False,
            tuple(weights),
            allow_unreachable=True,
            accumulate_grad=True,
        )
    else:
        torch.autograd.backward(cast("Sequence[Tensor]", roots), gradients, keeps_graph, inputs=weights or None)


def gradients_of(
    wanted: Sequence[Root], roots: Sequence[Root], gradients: Sequence[Tensor], keeps_graph: bool
) -> Sequence[Tensor | None]:
    """The gradients that arrive at leaves and edges, at least one; `None` for those that the roots do not lead to."""
    run = _engine_for(gradients)
    found: Sequence[Tensor | None]
    if run is not None:
        found = run(
            tuple(roots),
            tuple(gradients),
            keeps_graph,
            False,
            tuple(wanted),
            allow_unreachable=True,
            accumulate_grad=False,
        )
    else:
        tensors, inputs = cast("Sequence[Tensor]", roots), cast("Sequence[Tensor]", wanted)
        found = torch.autograd.grad(tensors, inputs, gradients, keeps_graph, allow_unused=True)
    return found


def edge_of(tensor: Tensor) -> GradientEdge:
    """What `get_gradient_edge` returns for a tensor that needs a gradient, sooner."""
    node = tensor.grad_fn
    if node is None or isinstance(node, _PythonNode):
        return get_gradient_edge(tensor)
    return GradientEdge(node, tensor.output_nr)
