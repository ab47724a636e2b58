"""A `GradScaler` that is the same on all ranks of a pipeline: where a gradient of one of them is infinite, all of them
skip the update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState


class PipelineGradScaler(torch.amp.GradScaler):
    """What `Runner.grad_scaler` makes; it is used as any other, but that `Runner.step` scales the losses itself.

    The ranks look for infinite gradients together, once for each `update`, whichever optimizers each of them has.
    """

    def __init__(self, device: torch.device, find: Callable[[], Tensor], **options: Any) -> None:
        """`find` says whether a gradient of any rank is not finite: 1 or 0. It is a collective call."""
        super().__init__(device.type, **options)
        self._find = find
        self._found: Tensor | None = None

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients of an optimizer by the scale. The first call since `update` is a collective one."""
        if not self._enabled:
            return
        found = self._find_once()
        super().unscale_(optimizer)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {found.device: found.clone()}

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """Updates the weights, unless a gradient of any rank is not finite; unscales the gradients before, if
        `unscale_` has not.
        """
        if self._enabled and self._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY:
            # Optimizers that divide by the scale themselves would look at the gradients of this rank alone.
            self.unscale_(optimizer)
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale, alike on all ranks; also those call it that have no weights."""
        if self._enabled:
            found = self._find_once()
            self._per_optimizer_states[0]["found_inf_per_device"] = {found.device: found.clone()}
            self._found = None
        super().update(new_scale)

    def _find_once(self) -> Tensor:
        if self._found is None:
            self._found = self._find()
        return self._found
