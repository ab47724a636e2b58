"""Copies between the memory of a device and that of its host: one stream each way on a GPU, plain copies to other
memory on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Copier:
    """Copies tensors of a device. What is copied from has to stay as it is until the copy has ended."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._streams: dict[str, Any] = {way: torch.cuda.Stream(device) for way in ("d2h", "h2d")} if on_gpu else {}

    def host_memory(self, like: Tensor) -> Tensor:
        """Memory of the host for a tensor; pinned, where a GPU copies to it."""
        return torch.empty_like(like, device="cpu", pin_memory=bool(self._streams))

    def device_memory(self, like: Tensor) -> Tensor:
        """Memory of the device for a tensor."""
        return torch.empty_like(like, device=self._device)

    def start(self, direction: str, pairs: Sequence[tuple[Tensor, Tensor]]) -> Callable[[], None]:
        """Starts to copy, for each pair from the second to the first, and returns what waits for it."""
        if not self._streams:
            with torch.no_grad():
                for to, source in pairs:
                    to.copy_(source)
            return _nothing
        stream = self._streams[direction]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.no_grad(), torch.cuda.stream(stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
                (to if direction == "h2d" else source).record_stream(stream)
        ended = stream.record_event()
        return lambda: torch.cuda.current_stream(self._device).wait_event(ended)


def _nothing() -> None:
    """What was copied is there."""
