"""Stages that `fully_shard` has sharded: weights are gathered once in a step, and gradients scattered once, when they
are complete.

Between the two, all halves of all backwards find the weights whole, as the graphs of their forwards have left them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ...errors import StageError

_FINALIZE = "finalize_backward"
_CALLBACK = "_root_post_backward_final_callback"


class Sharding:
    """The sharded modules of one stage. `waits_at_once` where they cannot reduce at the same time as those of other
    stages.
    """

    def __init__(self, stage: int, roots: Sequence[FSDPModule], after: int, waits_at_once: bool) -> None:
        self.after = after
        self._roots: Sequence[Any] = roots
        self._waits_at_once = waits_at_once
        self._handles: list[Any] = []
        self._finalizes = all(hasattr(root, _FINALIZE) for root in roots)
        for root in self._roots:
            if not self._finalizes and not hasattr(root._get_fsdp_state(), _CALLBACK):
                raise StageError(
                    f"stage {stage} is sharded by fully_shard, and torch {torch.__version__} has neither `{_FINALIZE}` nor "
                    f"`{_CALLBACK}`, one of which reduces gradients at the last backward: use torch 2.15, or let the schedule have "
                    "replicas (`std:dp_1f1b`)"
                )
        for one in self._modules():
            if not _is_whole(one):
                cast("Any", one).set_reshard_after_forward(False, recurse=False)

    def _modules(self) -> Iterator[FSDPModule]:
        for root in self._roots:
            yield from (one for one in root.modules() if isinstance(one, FSDPModule))

    def begin_step(self) -> None:
        """Keeps the weights whole, and the gradients where the backwards leave them, until the stage's last one."""
        for root in self._roots:
            root.set_requires_gradient_sync(False)
            root.set_reshard_after_backward(False)
            if self._finalizes:
                root.set_manual_backward_finalization(True)
            else:
                root.set_is_last_backward(False)

    def start(self) -> None:
        """Reduces the gradients, and gives the whole weights back."""
        for root in self._roots:
            root.set_requires_gradient_sync(True)
            root.set_reshard_after_backward(True)
            if self._finalizes:
                handle = root.finalize_backward(async_op=not self._waits_at_once)
                self._handles += [] if handle is None else [handle]
            else:
                root.set_is_last_backward(True)
                getattr(root._get_fsdp_state(), _CALLBACK)()

    def finish(self) -> None:
        """Waits until the gradients of the shards are there."""
        for handle in self._handles:
            handle.wait()
        self._handles.clear()

    def end(self) -> None:
        """Leaves shards alone, for an optimizer: a forward without a backward leaves weights whole."""
        for root in self._roots:
            if self._finalizes:
                root.set_manual_backward_finalization(False)
        for one in self._modules():
            one.reshard()


def share_a_context(roots: Sequence[FSDPModule]) -> bool:
    """Whether some use one another's streams (`share_comm_ctx`), where one reduction has to end before the next."""
    contexts = [getattr(cast("Any", root)._get_fsdp_state(), "_comm_ctx", None) for root in roots]
    return len({id(one) for one in contexts}) < len(contexts)


def _is_whole(module: FSDPModule) -> bool:
    """Whether the `replicate` that is built on fully_shard made it: there are no shards."""
    return any(one.__name__ == "ReplicateModule" for one in type(cast(nn.Module, module)).__mro__)
