"""Adds up the gradients of weights that several ranks hold: replicas of a stage, tied weights, and what
`DistributedDataParallel` wraps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from .flat_params import Slot


class Reduction:
    """One sum of gradients over a group, of the weights of one stage.

    With `ordered` every member gets all gradients and adds them up in the order of the group, so that the bits do not
    depend on how the backend works; between two ranks a plain `all_reduce` has the same bits. With `is_mean` the result
    is divided by the number of ranks. Of weights in `counted_elsewhere` another member has the gradient of this one as
    well.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        group: dist.ProcessGroup,
        device: torch.device,
        ordered: bool,
        is_mean: bool = False,
        counted_elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        self._counted_elsewhere = counted_elsewhere
        self._group = group
        self._device = device
        self._size = dist.get_world_size(group)
        self._ordered = ordered and self._size > 2
        self._is_mean = is_mean
        self._by_type: dict[torch.dtype, list[Slot]] = {}
        for slot in slots:
            self._by_type.setdefault(slot.dtype, []).append(slot)
        self._before: dict[Parameter, Tensor] = {}
        self._started: list[tuple[Any, Tensor, list[Tensor], list[Slot]]] = []

    def parameters(self) -> Iterator[Parameter]:
        """The weights of this rank whose gradients are summed up."""
        for slots in self._by_type.values():
            yield from (slot.parameter for slot in slots if slot.parameter is not None)

    def begin_step(self) -> None:
        """Puts aside gradients of earlier steps, which are summed up already."""
        for slot in (slot for slots in self._by_type.values() for slot in slots):
            if slot.parameter is not None and slot.parameter.grad is not None:
                self._before[slot.parameter] = slot.parameter.grad
                slot.parameter.grad = None

    def start(self) -> None:
        """Joins the collective."""
        for dtype, slots in self._by_type.items():
            flat = torch.cat([self._part(slot) for slot in slots])
            if self._is_mean:
                flat /= self._size  # Before the sum, which might be too large for half a precision.
            parts: list[Tensor] = []
            if self._ordered:
                parts = [torch.empty_like(flat) for _ in range(self._size)]
                work = dist.all_gather(parts, flat, group=self._group, async_op=True)
            else:
                work = dist.all_reduce(flat, group=self._group, async_op=True)
            assert flat.dtype == dtype, "parts have the type of their weights"
            self._started.append((work, flat, parts, slots))

    def _part(self, slot: Slot) -> Tensor:
        gradient = None if slot.parameter is None else slot.parameter.grad
        if gradient is None or slot.name in self._counted_elsewhere:
            return torch.zeros(slot.shape.numel(), dtype=slot.dtype, device=self._device)
        return gradient.reshape(-1)

    def finish(self) -> None:
        """Waits for the collective; the gradients then are the sums, added to what was put aside."""
        for work, flat, parts, slots in self._started:
            work.wait()
            total = flat
            if parts:
                total = parts[0]
                for part in parts[1:]:
                    total += part
            offset = 0
            for slot in slots:
                end = offset + slot.shape.numel()
                if slot.parameter is not None:
                    gradient = total[offset:end].view(slot.shape)
                    before = self._before.pop(slot.parameter, None)
                    slot.parameter.grad = gradient if before is None else before.add_(gradient)
                offset = end
        self._started.clear()
