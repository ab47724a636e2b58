"""Cuts what a step is given into microbatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, TypeGuard, Union, cast

import torch
from torch import Tensor

from ..errors import StageError
from ..program import Program

Tensors = tuple[Tensor, ...]
Microbatch = Union[Tensor, Tensors, Mapping[str, Any], "Given", None]
Batch = Union[Microbatch, Sequence[Microbatch]]
"""A batch: a tensor, a tuple of tensors, or a dict of them for keyword arguments, whose first axis is cut into equal
microbatches; or a list with an entry for each microbatch, which may be `None` where this rank does not need it. What is
no tensor in a dict is the same for all.
"""
Batches = Union[Batch, Mapping[int, Batch]]
"""A batch, or one for each of several stages."""


@dataclass(frozen=True)
class Given:
    """What a module or a loss is called with of a microbatch."""

    args: Tensors = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self) -> Iterator[Tensor]:
        """All of them."""
        yield from self.args
        yield from (one for one in self.kwargs.values() if isinstance(one, Tensor))

    def forms(self) -> tuple[Any, ...]:
        """What two microbatches have in common if one can take the place of the other."""
        return tuple((one.dtype, one.shape) for one in self.tensors())


def is_by_stage(batch: Batches) -> TypeGuard[Mapping[int, Batch]]:
    """Whether it is a mapping with the batch of each stage, and not one of keyword arguments."""
    return isinstance(batch, Mapping) and not any(isinstance(key, str) for key in batch)


def number_given(batch: Batches) -> int | None:
    """How many microbatches a batch says that it has."""
    if isinstance(batch, Mapping):
        found = [len(one) for one in batch.values() if isinstance(one, list)] if is_by_stage(batch) else []
        return max(found, default=None)
    return len(batch) if isinstance(batch, list) else None


def require_rows(inputs: Batches, targets: Batch) -> None:
    """Checks that a batch whose rows are cut has a target for each row of the inputs.

    Raises:
        StageError: There are fewer.
    """
    given, wanted = _rows(inputs), _rows(targets)
    if given is not None and wanted is not None and wanted < given:
        raise StageError(
            f"targets have {wanted} rows, but inputs have {given}: each row needs a target; where it is otherwise, "
            "give lists with an entry for each microbatch"
        )


def _rows(batch: Batches) -> int | None:
    """The rows of a batch whose tensors are cut; `None` of lists and of batches by stage."""
    if isinstance(batch, Mapping) and not is_by_stage(batch):
        batch = tuple(one for one in batch.values() if isinstance(one, Tensor))
    first = batch[0] if isinstance(batch, tuple) and batch else batch
    return first.shape[0] if isinstance(first, Tensor) and first.dim() else None


def shares_of(program: Program) -> Sequence[int]:
    """By slice, its share of the sequence."""
    return program.slice_shares or (1,) * program.n_slices


def cut(batch: Batch, n_microbatches: int, name: str, shares: Sequence[int] = (1,)) -> list[Given | None]:
    """Microbatches; or their slices along the second axis, as many for each, which have these shares of it.

    Raises:
        StageError: The batch does not divide into equal microbatches, or these not into such slices.
    """
    whole = _microbatches(batch, n_microbatches // len(shares), name)
    return whole if len(shares) == 1 else [one for entry in whole for one in _slices(entry, shares, name)]


def _microbatches(batch: Batch, n_microbatches: int, name: str) -> list[Given | None]:
    if batch is None:
        return [None] * n_microbatches
    if isinstance(batch, list):
        if len(batch) != n_microbatches:
            raise StageError(f"{name} are a list of {len(batch)}, but the program has {n_microbatches} microbatches")
        return [_entry(one, name) for one in batch]
    if not isinstance(batch, (Tensor, tuple, Mapping)):
        raise StageError(
            f"{name} are {type(batch).__name__}, expected a tensor, a tuple or dict of tensors, or a list of microbatches"
        )
    whole = _entry(batch, name)
    assert whole is not None, "only `None` has no entry"
    return list(_parts(whole, lambda one: _chunks(one, n_microbatches, name), n_microbatches))


def listed(batch: Batches, number: int, name: str) -> Any:
    """The same as lists of some number of microbatches, whole ones."""
    if batch is None:
        return None
    if is_by_stage(batch):
        return {stage: listed(one, number, f"{name} of stage {stage}") for stage, one in batch.items()}
    return _microbatches(cast("Batch", batch), number, name)


def window(batch: Any, first: int, number: int, length: int) -> Any:
    """Some microbatches of lists, and `None` up to a length."""
    if isinstance(batch, dict):
        return {stage: window(one, first, number, length) for stage, one in batch.items()}
    return None if batch is None else [*batch[first : first + number], *[None] * (length - number)]


def cut_inputs(
    batch: Batches, n_microbatches: int, stage: int, is_first: bool, shares: Sequence[int] = (1,)
) -> list[Given | None]:
    """The inputs of one stage: what a mapping has for it, or all of a batch where nothing else flows into it."""
    if is_by_stage(batch):
        return cut(batch.get(stage), n_microbatches, f"inputs of stage {stage}", shares)
    return cut(cast("Batch", batch), n_microbatches, "inputs", shares) if is_first else [None] * n_microbatches


def to_device(microbatch: Given, device: torch.device) -> Given:
    """The same on a device."""

    def move(one: Any) -> Any:
        return one.to(device, non_blocking=True) if isinstance(one, Tensor) else one

    return Given(tuple(map(move, microbatch.args)), {name: move(one) for name, one in microbatch.kwargs.items()})


def _entry(entry: Microbatch, name: str) -> Given | None:
    if entry is None:
        return None
    if isinstance(entry, Given):
        return entry
    if isinstance(entry, Mapping):
        odd = [key for key in entry if not isinstance(key, str)]
        if odd:
            raise StageError(f"{name} are a dict with the key {odd[0]!r}, expected names of arguments")
        return Given((), dict(entry))
    if isinstance(entry, (tuple, list)):
        return Given(tuple(_tensor(one, name) for one in entry))
    return Given((_tensor(entry, name),))


def _parts(whole: Given, divide: Callable[[Tensor], Sequence[Tensor]], count: int) -> Iterator[Given]:
    """Parts of all tensors; what is no tensor is the same in each."""
    args = [divide(one) for one in whole.args]
    kwargs = {name: divide(one) if isinstance(one, Tensor) else [one] * count for name, one in whole.kwargs.items()}
    for number in range(count):
        yield Given(tuple(one[number] for one in args), {name: one[number] for name, one in kwargs.items()})


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


def _slices(entry: Given | None, shares: Sequence[int], name: str) -> list[Given | None]:
    if entry is None:
        return [None] * len(shares)
    total = sum(shares)
    unit = total // gcd(*shares)
    for one in entry.tensors():
        if one.dim() < 2 or one.shape[1] % unit != 0:
            shape = f"a microbatch of {name} of shape {list(one.shape)}"
            if unit == len(shares):
                raise StageError(f"{shape} cannot be cut into {unit} equal slices along its second axis")
            fits = unit if one.dim() < 2 else -(-one.shape[1] // unit) * unit
            raise StageError(
                f"{shape} cannot be cut along its second axis in proportion to {', '.join(map(str, shares))}: the "
                f"length of this axis must be a multiple of {unit}, such as {fits}"
            )
    parts = _parts(
        entry, lambda one: one.split([one.shape[1] * share // total for share in shares], dim=1), len(shares)
    )
    return list(parts)
