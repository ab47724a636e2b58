"""Buffers that a forward changes, such as the statistics of a BatchNorm: `F` changes them, and `R`, which repeats it,
does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Place = tuple[nn.Module, str]


class ChangedBuffers:
    """Those of the module of one stage. `R` gets copies of what they were before its `F`, so that it computes the
    same.
    """

    def __init__(self, module: nn.Module) -> None:
        self._places: list[Place] = [
            (part, name) for part in module.modules() for name, one in part._buffers.items() if one is not None
        ]
        self._owners = list(dict.fromkeys(part for part, _ in self._places))
        self._changed: dict[tuple[bool, ...], list[Place]] = {}
        self._before: dict[int, list[tuple[Place, Tensor]]] = {}

    def clear(self) -> None:
        """Drops what a step that failed has left."""
        self._before.clear()

    @contextmanager
    def kept_for(self, microbatch: int) -> Iterator[None]:
        """Around the `F` of a microbatch. Which buffers it changes is found by the first one in each mode of the
        modules.
        """
        if not self._places:
            yield
            return
        mode = tuple(part.training for part in self._owners)
        known = self._changed.get(mode)
        copies = [(place, _held(place).detach().clone()) for place in (self._places if known is None else known)]
        yield
        if known is None:
            copies = [(place, copy) for place, copy in copies if not _same(_held(place), copy)]
            self._changed[mode] = [place for place, _ in copies]
        self._before[microbatch] = copies

    @contextmanager
    def as_before(self, microbatch: int) -> Iterator[None]:
        """Around the `R` of a microbatch: the modules have the copies, which the graph may keep."""
        copies = self._before.pop(microbatch, [])
        now = [(place, _held(place)) for place, _ in copies]
        _put(copies)
        try:
            yield
        finally:
            _put(now)


def _held(place: Place) -> Tensor:
    part, name = place
    held = part._buffers[name]
    assert held is not None, "only buffers that were there are changed"
    return held


def _put(buffers: list[tuple[Place, Tensor]]) -> None:
    for (part, name), one in buffers:
        part._buffers[name] = one


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
