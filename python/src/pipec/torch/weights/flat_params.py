"""Weights of a stage as one vector for each type, of which the weights of modules are views: so ranks can divide it,
and its memory come and go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

ALIGNMENT = 64
"""Bytes: where a weight begins in its vector, and how long an equal part of it is, are multiples."""


@dataclass(frozen=True)
class Slot:
    """A tensor that members of a group hold; `parameter` is that of this rank, where it holds it."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    parameter: Parameter | None


@dataclass(frozen=True)
class Piece:
    """Some numbers of a weight, one behind the other, as a parameter that an optimizer updates: those from `begin` on
    of the vector.
    """

    name: str
    begin: int
    parameter: Parameter

    @property
    def end(self) -> int:
        """One past its last number in the vector."""
        return self.begin + self.parameter.numel()


class Waiting(Protocol):
    """Somebody who may wait for weights."""

    @property
    def is_waiting(self) -> bool:
        """Whether they do."""


class Vector:
    """All weights of one type, each aligned; what is left to `n_parts` equal parts is zeros that nobody uses."""

    def __init__(self, slots: Sequence[Slot], n_parts: int, device: torch.device) -> None:
        self.dtype = slots[0].dtype
        unit = max(1, ALIGNMENT // self.dtype.itemsize)
        self.rows: list[tuple[Slot, int]] = []
        length = 0
        for slot in slots:
            self.rows.append((slot, length))
            length += -(-slot.shape.numel() // unit) * unit
        self.part = -(-length // (n_parts * unit)) * unit
        self.whole = torch.zeros(n_parts * self.part, dtype=self.dtype, device=device)
        with torch.no_grad():
            for slot, begin in self.rows:
                if slot.parameter is not None:
                    view = self.whole[begin : begin + slot.shape.numel()].view(slot.shape)
                    view.copy_(slot.parameter)
                    slot.parameter.data = view

    def pieces(self, begin: int, end: int, memory: Tensor | None = None) -> list[Piece]:
        """What of each weight is among the numbers `begin..end`: in the vector's own memory, or in another that holds
        just these.
        """
        source = self.whole[begin:end] if memory is None else memory
        found = []
        for slot, first in self.rows:
            low, high = max(begin, first), min(end, first + slot.shape.numel())
            if low < high:
                found.append(Piece(slot.name, low, Parameter(source[low - begin : high - begin])))
        return found

    def gradients(self) -> Tensor:
        """The gradients of all weights, in one vector of the same form; zeros where there are none."""
        flat = torch.zeros_like(self.whole) if self.whole.untyped_storage().size() else self.empty().zero_()
        for slot, begin in self.rows:
            gradient = None if slot.parameter is None else slot.parameter.grad
            if gradient is not None:
                flat[begin : begin + slot.shape.numel()] = gradient.reshape(-1)
        return flat

    def empty(self) -> Tensor:
        """Memory for as many numbers."""
        return torch.empty(self.whole.shape, dtype=self.dtype, device=self.whole.device)

    def drop_gradients(self) -> None:
        """Gives back the memory of the gradients."""
        for slot, _ in self.rows:
            if slot.parameter is not None:
                slot.parameter.grad = None

    def leave(self) -> None:
        """Gives back the memory of the weights; graphs that saved them find them again when they have come."""
        self.whole.untyped_storage().resize_(0)

    def come(self) -> None:
        """Takes memory for the weights, whose contents are to be written."""
        self.whole.untyped_storage().resize_(self.whole.numel() * self.dtype.itemsize)


class Resident(ABC):
    """Weights of one stage that come for the tasks that read them, and leave after these."""

    def __init__(self, vectors: Sequence[Vector]) -> None:
        self.vectors = vectors
        self._readers: list[Waiting] = []
        self._is_due = False

    def weights(self) -> list[Parameter]:
        """Those of this rank."""
        rows = (slot for vector in self.vectors for slot, _ in vector.rows)
        return [slot.parameter for slot in rows if slot.parameter is not None]

    def keep_for(self, reader: Waiting) -> None:
        """Names a stage with backwards that, in the program, read no weights: autograd may, so the memory waits for
        them.
        """
        self._readers.append(reader)

    def release(self) -> None:
        """Gives back the memory of the weights, or lets that wait for those who still need them."""
        self._is_due = any(reader.is_waiting for reader in self._readers)
        if not self._is_due:
            self.leave()

    def release_if_due(self) -> None:
        """Gives back what waited, if nobody needs it any more."""
        if self._is_due:
            self.release()

    @abstractmethod
    def gather(self) -> None:
        """Lets them come, for whoever wants to read them all."""

    @abstractmethod
    def keep_changes(self) -> None:
        """Takes over what has been written into them since they were gathered."""

    @abstractmethod
    def scatter(self) -> None:
        """Lets them go again, unless they stay anyway; they have not changed."""

    def leave(self) -> None:
        """Gives back the memory of the weights."""
        for vector in self.vectors:
            vector.leave()

    def come(self) -> None:
        """Takes memory for the weights."""
        self._is_due = False
        for vector in self.vectors:
            vector.come()


def vectors(slots: Sequence[Slot], n_parts: int, device: torch.device) -> list[Vector]:
    """A vector for each type, in the order of their first weights."""
    by_type: dict[torch.dtype, list[Slot]] = {}
    for slot in slots:
        by_type.setdefault(slot.dtype, []).append(slot)
    return [Vector(of_type, n_parts, device) for of_type in by_type.values()]
