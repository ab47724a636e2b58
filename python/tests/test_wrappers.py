"""Stages with data parallelism of their own: what is right runs, and what would be silently wrong is refused."""

from __future__ import annotations

import re
from typing import Any

import models
import pytest
import torch
from cluster import Cluster
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import pipec
from pipec import Runner


def _ddp(module: nn.Module, data: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(module, process_group=data.get_group())


def _inner_ddp(module: nn.Module, data: DeviceMesh) -> nn.Module:
    name, child = next(iter(module.named_children()))
    setattr(module, name, _ddp(child, data))
    return module


def _replicate(module: nn.Module, data: DeviceMesh) -> nn.Module:
    from torch.distributed._composable.replicate import replicate

    replicated: nn.Module = replicate(module, process_group=data.get_group())
    return replicated


def _fsdp1(module: nn.Module, data: DeviceMesh) -> nn.Module:
    return FullyShardedDataParallel(module, process_group=data.get_group(), device_id=torch.device("cpu"))


def _fsdp2(module: nn.Module, data: DeviceMesh) -> nn.Module:
    for child in module.children():
        fully_shard(child, mesh=data)
    fully_shard(module, mesh=data)
    return module


_WRAP = {"ddp": _ddp, "inner_ddp": _inner_ddp, "replicate": _replicate, "fsdp1": _fsdp1, "fsdp2": _fsdp2}


def _mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipe"))


def refusal(rank: int, group: Any, target: str, wrap: str, is_late: bool, options: dict[str, Any]) -> str | None:
    """What is said of stages that are wrapped before the runner is made, or after it."""
    mesh = _mesh()
    program = pipec.compile(target, devices=2, microbatches=4, **options)
    modules = models.chain(program)
    mine = {stage: modules[stage] for stage in program.stages_on(mesh["pipe"].get_local_rank())}
    try:
        if not is_late:
            mine = {stage: _WRAP[wrap](module, mesh["data"]) for stage, module in mine.items()}
        group = mesh["pipe"].get_group()
        runner = Runner(program, mine, models.loss, group=group, optimizer=models.adam)
        for module in mine.values():
            _WRAP[wrap](module, mesh["data"])
        runner.step(*models.batch(program, 1))
    except pipec.StageError as error:
        return str(error)
    return None


def sharded(rank: int, group: Any, target: str, options: dict[str, Any]) -> float:
    """The largest error of a gradient of two pipelines with different batches, relative to the largest number of its tensor."""
    mesh = _mesh()
    program = pipec.compile(target, devices=2, microbatches=4, **options)
    modules = models.chain(program)
    pipe, data = mesh["pipe"].get_local_rank(), mesh["data"].get_local_rank()
    mine = {stage: _fsdp2(modules[stage], mesh["data"]) for stage in program.stages_on(pipe)}
    runner = Runner(program, mine, models.loss, group=mesh["pipe"].get_group())
    runner.step(*models.batch(program, 3 + data))
    expected = [models.reference(program, models.chain(program), [3 + one])[1] for one in range(2)]
    errors = []
    for stage, module in mine.items():
        for name, parameter in module.named_parameters():
            mean = (expected[0][f"{stage}.{name}"] + expected[1][f"{stage}.{name}"]) / 2
            assert parameter.grad is not None
            found: torch.Tensor = parameter.grad.full_tensor()  # type: ignore[attr-defined]
            errors.append(((found - mean).abs().max() / mean.abs().max()).item())
    return max(errors)


@pytest.mark.parametrize("target", ["std:1f1b", "std:zb_h1"])
@pytest.mark.parametrize("wrap", ["ddp", "inner_ddp", "replicate", "fsdp1"])
def test_averages_of_incomplete_gradients_are_refused(cluster: Cluster, target: str, wrap: str) -> None:
    for said in cluster.run(refusal, 4, target, wrap, False, {}):
        assert said is not None and "averages gradients before all microbatches have added to them" in said


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("std:zb_h1", {}, r"`zb_h1` splits the backward of stage [01] into `B` and `W`"),
        ("std:v_half", {}, r"`v_half` splits the backward of stage [0-3] into `B` and `W`"),
        ("std:chimera", {}, r"`chimera` needs whole weights: `coll.start .* all_reduce"),
        ("std:cyclic_dp", {}, r"`cyclic_dp` needs whole weights: \d steps in one list"),
    ],
)
def test_sharded_stages_are_refused(cluster: Cluster, target: str, options: dict[str, Any], message: str) -> None:
    for said in cluster.run(refusal, 4, target, "fsdp2", False, options):
        assert said is not None and re.search(message, said), said


def test_stages_that_are_wrapped_later_are_refused(cluster: Cluster) -> None:
    for said in cluster.run(refusal, 4, "std:zb_h1", "fsdp2", True, {}):
        assert said is not None and "is sharded by fully_shard" in said


@pytest.mark.parametrize(
    ("target", "options"), [("std:1f1b", {}), ("std:interleaved_1f1b", {}), ("std:1f1b", {"recompute": "all"})]
)
def test_sharded_stages_with_fused_backwards_are_right(cluster: Cluster, target: str, options: dict[str, Any]) -> None:
    assert max(cluster.run(sharded, 4, target, options)) < 1e-5
