"""Sums of gradients that travel: where steps run on without a flush, each replica adds to what the one before it has
sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..transport import Form, Forms
from .versions import Weights


class TravellingSum:
    """The sum of the gradients of one stage's weights, as it is on this rank: one vector for each type of them."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        by_type: dict[torch.dtype, list[int]] = {}
        for number, one in enumerate(weights.parameters):
            by_type.setdefault(one.dtype, []).append(number)
        self._by_type = by_type

    @property
    def forms(self) -> Forms:
        """Of what travels."""
        held = self._weights.parameters
        lengths = {dtype: sum(held[one].numel() for one in numbers) for dtype, numbers in self._by_type.items()}
        return tuple(Form(dtype, torch.Size([length]), False) for dtype, length in lengths.items())

    def gradients(self) -> list[Tensor]:
        """What it is now, to be sent; zeros where there are no gradients yet."""
        held = self._weights.parameters
        return [torch.cat([_flat(held[one]) for one in numbers]) for numbers in self._by_type.values()]

    def replace(self, arrived: Sequence[Tensor]) -> None:
        """Takes over what another rank has sent."""
        for flat, numbers in zip(arrived, self._by_type.values()):
            position = 0
            for number in numbers:
                parameter = self._weights.parameters[number]
                parameter.grad = flat[position : position + parameter.numel()].view_as(parameter)
                position += parameter.numel()


def _flat(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
    return parameter.grad.reshape(-1)
