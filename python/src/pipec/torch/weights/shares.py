"""Weights that replicas divide (ZeRO): each member of a group sums up, updates and, in its third stage, keeps an equal
part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from .flat_params import Piece, Resident, Slot, vectors


@dataclass(frozen=True)
class _Sum:
    """A sum that was started: what is exchanged, the share of it that comes back, or the shares of all members, to be
    added up.
    """

    work: Any
    sent: Tensor
    total: Tensor
    parts: list[Tensor]


class Shares(Resident):
    """The weights of one stage, divided among the members of a group.

    With `ordered`, shares of a sum are added up in the order of the group, so that the bits are those of an undivided
    run that does the same.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        group: dist.ProcessGroup,
        source: int,
        device: torch.device,
        *,
        keeps_whole: bool,
        ordered: bool,
    ) -> None:
        """Takes over the weights of the rank `source`. Only with `keeps_whole` they stay between gatherings."""
        self._group = group
        self._size = dist.get_world_size(group)
        position = dist.get_rank(group)
        self._ordered = ordered
        super().__init__(vectors(slots, self._size, device))
        self._own: list[Tensor] = []
        self._pieces: list[list[Piece]] = []
        for vector in self.vectors:
            dist.broadcast(vector.whole, source, group=group)
            begin, end = position * vector.part, (position + 1) * vector.part
            own = vector.whole[begin:end]
            self._own.append(own if keeps_whole else own.clone())
            self._pieces.append(vector.pieces(begin, end, self._own[-1]))
        self._position = position
        self._sums: list[_Sum] = []
        self._gathering: list[Any] = []
        self.keeps_whole = keeps_whole
        self.scatter()

    def holds(self, parameter: Parameter) -> bool:
        """Whether a weight is divided; one that a single member has is not."""
        return any(slot.parameter is parameter for vector in self.vectors for slot, _ in vector.rows)

    def pieces(self) -> list[tuple[str, Parameter]]:
        """What this member updates: its part of each weight, flat, by the weight's name."""
        return [(piece.name, piece.parameter) for pieces in self._pieces for piece in pieces]

    def start_sum(self) -> None:
        """Joins the `reduce_scatter` of the gradients."""
        for vector in self.vectors:
            sent = vector.gradients()
            if self._ordered:
                received = torch.empty_like(sent)
                work = dist.all_to_all_single(received, sent, group=self._group, async_op=True)
                parts = list(received.split(vector.part))
                self._sums.append(_Sum(work, sent, parts[0], parts[1:]))
            else:
                total = torch.empty(vector.part, dtype=vector.dtype, device=sent.device)
                work = dist.reduce_scatter_tensor(total, sent, group=self._group, async_op=True)
                self._sums.append(_Sum(work, sent, total, []))

    def finish_sum(self) -> None:
        """Waits for it: the pieces have their gradients, and the whole ones go."""
        for vector, pieces, one in zip(self.vectors, self._pieces, self._sums):
            one.work.wait()
            for part in one.parts:
                one.total.add_(part)
            vector.drop_gradients()
            begin = self._position * vector.part
            for piece in pieces:
                piece.parameter.grad = one.total[piece.begin - begin : piece.end - begin]
        self._sums.clear()

    def start_gathering(self) -> None:
        """Joins the gathering of the weights."""
        self.come()
        for vector, own in zip(self.vectors, self._own):
            self._gathering.append(dist.all_gather_into_tensor(vector.whole, own, group=self._group, async_op=True))

    def finish_gathering(self) -> None:
        """Waits for it."""
        for work in self._gathering:
            work.wait()
        self._gathering.clear()

    def gather(self) -> None:  # noqa: D102
        self.start_gathering()
        self.finish_gathering()

    def keep_changes(self) -> None:  # noqa: D102
        if not self.keeps_whole:
            for vector, own in zip(self.vectors, self._own):
                begin = self._position * vector.part
                own.copy_(vector.whole[begin : begin + vector.part])

    def scatter(self) -> None:  # noqa: D102
        if not self.keeps_whole:
            self.leave()
