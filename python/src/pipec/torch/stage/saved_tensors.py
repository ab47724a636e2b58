"""What autograd saves in a forward, so that it can wait in the memory of the host until the backward.

Weights, and what flows into or out of the stage, are held by others as well, so their memory would not be given back;
they stay.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..copies import Copier


class _Slot:
    """A tensor that a graph has saved; with the host, `away` is its copy."""

    __slots__ = ("__weakref__", "away", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.away: Tensor | None = None


class SavedTensors:
    """What one forward saves. The graph holds the tensors, so they go with it."""

    def __init__(self, module: nn.Module, held: Iterable[Tensor], copier: Copier) -> None:
        self._copier = copier
        tensors = (*module.parameters(), *module.buffers(), *held)
        self._stays = {one.untyped_storage().data_ptr() for one in tensors}
        self._slots: dict[Any, weakref.ref[_Slot]] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def __enter__(self) -> SavedTensors:
        self._hooks.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> None:
        self._hooks.__exit__(*arguments)

    def keep_here(self, held: Iterable[Tensor]) -> None:
        """Says what else stays: what the forward hands on."""
        self._stays.update(one.untyped_storage().data_ptr() for one in held)

    def _pack(self, tensor: Tensor) -> Any:
        if tensor.numel() == 0 or tensor.untyped_storage().data_ptr() in self._stays:
            return tensor
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        known = self._slots.get(key)
        slot = None if known is None else known()
        if slot is None:
            # Without its graph: a task's result that its own backward needs would hold itself.
            slot = _Slot(tensor.detach())
            self._slots[key] = weakref.ref(slot)
        return slot

    def _unpack(self, saved: Any) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        if saved.tensor is None:
            self._bring_back([saved])()
        tensor: Tensor = saved.tensor
        return tensor

    def leave(self) -> Callable[[], None]:
        """Starts to copy everything to the host, and returns what waits for that and gives the memory of the device
        back.
        """
        alive = [
            slot for slot in (one() for one in self._slots.values()) if slot is not None and slot.tensor is not None
        ]
        pairs = []
        for slot in alive:
            tensor = slot.tensor
            assert tensor is not None, "those without are left out above"
            if tensor.untyped_storage().data_ptr() not in self._stays:
                slot.away = self._copier.host_memory(tensor)
                pairs.append((slot.away, tensor))
        wait = self._copier.start("d2h", pairs)

        def end() -> None:
            wait()
            for slot in alive:
                if slot.away is not None:
                    slot.tensor = None

        return end

    def come(self) -> Callable[[], None]:
        """Starts to copy it back, and returns what waits for that."""
        alive = (slot for slot in (one() for one in self._slots.values()) if slot is not None)
        return self._bring_back([slot for slot in alive if slot.tensor is None])

    def _bring_back(self, slots: list[_Slot]) -> Callable[[], None]:
        pairs = []
        for slot in slots:
            assert slot.away is not None, "what is not here is with the host"
            pairs.append((self._copier.device_memory(slot.away), slot.away))
        wait = self._copier.start("h2d", pairs)

        def end() -> None:
            wait()
            for slot, (tensor, _) in zip(slots, pairs):
                slot.tensor, slot.away = tensor, None

        return end
