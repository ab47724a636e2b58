"""Stages whose weights `parallelize_module` divides: gradients are those of one process, whatever the schedule."""

from __future__ import annotations

from typing import Any

import models
import pytest
import torch
from cluster import Cluster
from test_data_parallel import Tower, mesh_of, towers
from test_gradients import sized
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import pipec
from pipec import Runner


def _divided(module: nn.Module, tensor: DeviceMesh) -> nn.Module:
    assert isinstance(module, Tower)
    for block in module.blocks:
        plan: Any = {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, tensor, plan)
    ends: Any = {
        "table": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    own = {name: plan for name, plan in ends.items() if hasattr(module.inner, name)}
    parallelize_module(module.inner, tensor, own)
    return module


def errors(rank: int, group: Any, text: str) -> tuple[float, int]:
    """The largest error of a gradient, relative to the largest number of its tensor, and how many weights are
    divided.
    """
    mesh = mesh_of("tensor", "pipe")
    program = pipec.loads(text)
    torch.set_default_dtype(torch.float64)
    try:
        modules = towers(program)
        mine = {
            stage: _divided(modules[stage].double(), mesh["tensor"])
            for stage in program.stages_on(mesh["pipe"].get_local_rank())
        }
        runner = Runner(program, mine, models.loss, group=mesh["pipe"])
        for seed in (3, 4):
            runner.step(*models.batch(program, seed))
        whole = {stage: module.double() for stage, module in towers(program).items()}
        _, expected = models.reference(program, whole, [3, 4])
    finally:
        torch.set_default_dtype(torch.float32)
    found = []
    n_divided = 0
    for name, parameter in runner.named_parameters():
        assert parameter.grad is not None, name
        n_divided += isinstance(parameter, DTensor)
        gradient = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
        found.append(((gradient - expected[name]).abs().max() / expected[name].abs().max()).item())
    return max(found), n_divided


@pytest.mark.parametrize("target", ["std:1f1b", "std:zb_h1"])
def test_gradients_of_divided_weights_are_those_of_one_process(cluster: Cluster, target: str) -> None:
    for error, n_divided in cluster.run(errors, 4, sized(target, 2, 4)):
        assert error < 1e-10 and n_divided >= 7
