"""Cuts what a step is given into microbatches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

import torch
from torch import Tensor

from ..errors import StageError

Tensors = tuple[Tensor, ...]
Batch = Union[Tensor, Tensors, Sequence[Union[Tensor, Tensors, None]], None]
"""A batch: a tensor, or a tuple of tensors, whose first axis is cut into equal microbatches; or a list with an entry for each microbatch, which
may be `None` where this rank does not need it."""


def cut(batch: Batch, n_microbatches: int, name: str, n_slices: int = 1) -> list[Tensors | None]:
    """Microbatches, each a tuple of tensors; or their slices along the second axis, as many for each.

    Raises:
        StageError: The batch does not divide into equal microbatches, or these not into equal slices.
    """
    whole = _microbatches(batch, n_microbatches // n_slices, name)
    return whole if n_slices == 1 else [one for entry in whole for one in _slices(entry, n_slices, name)]


def _microbatches(batch: Batch, n_microbatches: int, name: str) -> list[Tensors | None]:
    if batch is None:
        return [None] * n_microbatches
    if isinstance(batch, Tensor):
        return list(zip(_chunks(batch, n_microbatches, name)))
    if isinstance(batch, tuple):
        columns = [_chunks(_tensor(one, name), n_microbatches, name) for one in batch]
        return list(zip(*columns)) if columns else [()] * n_microbatches
    if not isinstance(batch, list):
        raise StageError(
            f"{name} are {type(batch).__name__}, expected a tensor, a tuple of tensors or a list of microbatches"
        )
    if len(batch) != n_microbatches:
        raise StageError(f"{name} are a list of {len(batch)}, but the program has {n_microbatches} microbatches")
    return [_entry(one, name) for one in batch]


def cut_inputs(
    batch: Batch | Mapping[int, Batch], n_microbatches: int, stage: int, is_first: bool, n_slices: int = 1
) -> list[Tensors | None]:
    """The inputs of one stage: what a mapping has for it, or all of a batch where nothing else flows into it."""
    if isinstance(batch, Mapping):
        return cut(batch.get(stage), n_microbatches, f"inputs of stage {stage}", n_slices)
    return cut(batch, n_microbatches, "inputs", n_slices) if is_first else [None] * n_microbatches


def to_device(microbatch: Tensors, device: torch.device) -> Tensors:
    """The same on a device."""
    return tuple(one.to(device, non_blocking=True) for one in microbatch)


def _entry(entry: Tensor | Tensors | None, name: str) -> Tensors | None:
    if entry is None:
        return None
    return tuple(_tensor(one, name) for one in entry) if isinstance(entry, (tuple, list)) else (_tensor(entry, name),)


def _tensor(one: object, name: str) -> Tensor:
    if not isinstance(one, Tensor):
        raise StageError(f"{name} have {type(one).__name__} where a tensor was expected")
    return one


def _chunks(batch: Tensor, n_microbatches: int, name: str) -> list[Tensor]:
    rows = batch.shape[0] if batch.dim() else 0
    if rows == 0 or rows % n_microbatches != 0:
        raise StageError(
            f"{name} of shape {list(batch.shape)} cannot be cut into {n_microbatches} equal microbatches along their first axis"
        )
    return list(batch.split(rows // n_microbatches))


def _slices(entry: Tensors | None, n_slices: int, name: str) -> list[Tensors | None]:
    if entry is None:
        return [None] * n_slices
    for one in entry:
        if one.dim() < 2 or one.shape[1] % n_slices != 0:
            raise StageError(
                f"a microbatch of {name} of shape {list(one.shape)} cannot be cut into {n_slices} equal slices along its second axis"
            )
    columns = [one.split(one.shape[1] // n_slices, dim=1) for one in entry]
    return list(zip(*columns)) if columns else [()] * n_slices
