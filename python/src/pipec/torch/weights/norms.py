"""The norm of all gradients of a pipeline, each counted once, whoever holds it and however it is sharded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Parameter
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

Named = Sequence[tuple[str, Parameter]]


def held_before(named: Named, control: dist.ProcessGroup) -> frozenset[str]:
    """Names of weights that earlier ranks hold as well, such as replicas and tied weights. A collective call."""
    names: list[Any] = [None] * dist.get_world_size(control)
    dist.all_gather_object(names, [name for name, _ in named], group=control)
    return frozenset(name for of_rank in names[: dist.get_rank(control)] for name in of_rank)


def norm_over_ranks(
    gradients: Iterable[Tensor], norm_type: float, group: dist.ProcessGroup, device: torch.device
) -> Tensor:
    """The norm of the gradients of all ranks of a group, in double precision. A collective call."""
    parts = [_whole(get_total_norm(one, norm_type)).to(device, torch.float64) for one in _alike(gradients)]
    total = torch.stack(parts) if parts else torch.zeros(1, dtype=torch.float64, device=device)
    if math.isinf(norm_type):
        found = total.max()
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=group)
        return found
    found = total.pow(norm_type).sum()
    dist.all_reduce(found, group=group)
    return found.pow(1 / norm_type)


def not_finite(gradients: Iterable[Tensor], device: torch.device) -> Tensor:
    """Whether a gradient of this rank is infinite or no number: 1 or 0."""
    largest = [_whole(get_total_norm(one, math.inf)).to(device, torch.float64) for one in _alike(gradients)]
    return (~torch.isfinite(torch.stack([torch.zeros((), dtype=torch.float64, device=device), *largest]))).any().float()


def clip(parameters: Iterable[Parameter], max_norm: float, total: Tensor) -> None:
    """Scales the gradients of some weights down, so that the total norm becomes the largest one that is allowed."""
    by_form: dict[Any, list[Parameter]] = {}
    for one in parameters:
        if one.grad is not None:
            by_form.setdefault(_form(one.grad), []).append(one)
    for alike in by_form.values():
        clip_grads_with_norm_(alike, max_norm, total)


def _alike(gradients: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """Operations of torch take either plain tensors or those of one mesh and sharding."""
    by_form: dict[Any, list[Tensor]] = {}
    for one in gradients:
        by_form.setdefault(_form(one), []).append(one)
    return by_form.values()


def _form(gradient: Tensor) -> Any:
    return (gradient.device_mesh, gradient.placements) if isinstance(gradient, DTensor) else gradient.device


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
