"""Nodes of a graph that compute all of their gradients whenever they run, whichever are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from ...errors import StageError

_CHECKPOINTS = "torch.utils.checkpoint"


def why_whole(node: Node, below: Iterable[Node]) -> str | None:
    """Why a node that leads to inputs and to weights should run once, as a text; `below` are those that lead to its
    weights.

    A Python function sees which arguments need gradients, but not which gradients this backward asks for. What a
    checkpoint has dropped is computed again in each half.

    Raises:
        StageError: A checkpoint is one that cannot tell inputs from weights.
    """
    if any(_is_checkpointed(one) for one in (node, *below)):
        return "checkpointed block"
    return node.name() if isinstance(node, BackwardCFunction) else None


def is_compiled(node: Node) -> bool:
    """Whether a graph that `torch.compile` has made is behind a node.

    Raises:
        StageError: The node is a checkpoint that calls autograd itself, for all gradients.
    """
    name = node.name()
    if name == "CheckpointFunctionBackward":
        raise StageError(
            "a block is checkpointed with use_reentrant=True, whose backward cannot be split into `B` and `W`: "
            "say use_reentrant=False, or take a schedule with whole backwards, such as `std:1f1b`"
        )
    return name == "CompiledFunctionBackward"


def without_donation(applies: bool) -> AbstractContextManager[Any]:
    """A context in which compiled graphs run though the nodes around them are kept.

    They refuse that, since they overwrite what they have saved; but each of them runs only once.
    """
    if not applies:
        return nullcontext()
    import torch._functorch.config as functorch

    patched: AbstractContextManager[Any] = functorch.patch(donated_buffer=False)
    return patched


def _is_checkpointed(node: Node) -> bool:
    return any(getattr(getattr(one, "unpack_hook", None), "__module__", "") == _CHECKPOINTS for one in _saved(node))


def _saved(node: Node) -> Iterator[Any]:
    """What a node has saved for its backward, as it is kept."""
    for name in dir(type(node)):
        if name.startswith("_raw_saved"):
            try:
                found = getattr(node, name)
            except RuntimeError:  # It has saved nothing.
                continue
            yield from found if isinstance(found, (tuple, list)) else (found,)
