"""Stages with data parallelism of their own: whatever wraps them and whatever the schedule, gradients are those of one
process.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

import models
import pytest
import torch
from cluster import OLD, Cluster
from test_gradients import EXAMPLES, compiled, sized
from test_updates import pipeline
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import pipec
from pipec import Runner

WIDTH = models.WIDTH


class Llama(nn.Module):
    """A block with attention and a gated product, each behind a norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.before(x)).unsqueeze(0).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).squeeze(0))
        y = self.between(x)
        found: Tensor = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return found


class Tower(nn.Module):
    """Blocks behind the first or before the last stage of the chain, and a weight of the tower's own beside the
    path.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Llama(), Llama()])
        self.shift = nn.Parameter(torch.randn(WIDTH))
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        first = x if x.is_floating_point() else self.inner(x)
        for block in self.blocks:
            first = block(first) + self.shift * self.shift.sum()
        found: Tensor = self.inner(first) if x.is_floating_point() else first
        return found


def towers(program: pipec.Program) -> dict[int, nn.Module]:
    """The chain with blocks as they are in a Llama, in both precisions."""
    stages = models.chain(program)
    torch.manual_seed(5)
    return {stage: Tower(module) for stage, module in stages.items()}


def _ddp(module: nn.Module, data: DeviceMesh, **options: Any) -> nn.Module:
    return DistributedDataParallel(module, process_group=data.get_group(), **options)


def _inner_ddp(module: nn.Module, data: DeviceMesh) -> nn.Module:
    name, child = next((name, child) for name, child in module.named_children() if list(child.parameters()))
    setattr(module, name, _ddp(child, data))
    return module


def _static_ddp(module: nn.Module, data: DeviceMesh) -> nn.Module:
    return _ddp(module, data, static_graph=True)


def _searching_ddp(module: nn.Module, data: DeviceMesh) -> nn.Module:
    return _ddp(module, data, find_unused_parameters=True, gradient_as_bucket_view=True)


def _hooked_ddp(module: nn.Module, data: DeviceMesh) -> nn.Module:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    wrapped = DistributedDataParallel(module, process_group=data.get_group())
    wrapped.register_comm_hook(None, allreduce_hook)
    return wrapped


def _replicate(module: nn.Module, data: DeviceMesh) -> nn.Module:
    from torch.distributed._composable.replicate import replicate

    replicated: nn.Module = replicate(module, process_group=data.get_group())
    return replicated


def _new_replicate(module: nn.Module, data: DeviceMesh) -> nn.Module:
    from torch.distributed._composable.replicate_with_fsdp import replicate

    replicate(module, mesh=data)
    return module


def _fsdp1(module: nn.Module, data: DeviceMesh) -> nn.Module:
    return FullyShardedDataParallel(module, process_group=data.get_group(), device_id=torch.device("cpu"))


def _fsdp2(module: nn.Module, data: DeviceMesh) -> nn.Module:
    for child in [*getattr(module, "blocks", ()), *module.children()]:
        if not isinstance(child, nn.ModuleList):
            fully_shard(child, mesh=data)
    fully_shard(module, mesh=data)
    return module


def _fsdp2_without_a_root(module: nn.Module, data: DeviceMesh) -> nn.Module:
    for child in module.children():
        fully_shard(child, mesh=data)
    return module


_WRAP = {
    "ddp": _ddp,
    "inner_ddp": _inner_ddp,
    "static_ddp": _static_ddp,
    "searching_ddp": _searching_ddp,
    "hooked_ddp": _hooked_ddp,
    "replicate": _replicate,
    "new_replicate": _new_replicate,
    "fsdp1": _fsdp1,
    "fsdp2": _fsdp2,
    "fsdp2_without_a_root": _fsdp2_without_a_root,
}
_MAKE = {"chain": models.chain, "towers": towers, "tied": models.tied}


@cache
def mesh_of(first: str, second: str) -> DeviceMesh:
    """Two by two of the ranks."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=(first, second))


def refusal(rank: int, group: Any, text: str, wrap: str, is_late: bool) -> str | None:
    """What is said of stages that are wrapped before the runner is made, or after it."""
    mesh = mesh_of("data", "pipe")
    program = pipec.loads(text)
    modules = models.chain(program)
    mine = {stage: modules[stage] for stage in program.stages_on(mesh["pipe"].get_local_rank())}
    try:
        if not is_late:
            mine = {stage: _WRAP[wrap](module, mesh["data"]) for stage, module in mine.items()}
        runner = Runner(program, mine, models.loss, group=mesh["pipe"], optimizer=models.adam)
        for module in mine.values():
            _WRAP[wrap](module, mesh["data"])
        runner.step(*models.batch(program, 1))
    except pipec.StageError as error:
        return str(error)
    return None


def largest_error(rank: int, group: Any, text: str, make: str, wrap: str, dtype: torch.dtype, tied: Any) -> float:
    """The largest error of a gradient of two pipelines with different batches, relative to the largest number of its
    tensor.

    Two steps add to the gradients, with an evaluation between them.
    """
    mesh = mesh_of("data", "pipe")
    program = pipec.loads(text)
    pipe, data = mesh["pipe"].get_local_rank(), mesh["data"].get_local_rank()
    torch.set_default_dtype(dtype)
    try:
        modules = {stage: module.to(dtype) for stage, module in _MAKE[make](program).items()}
        mine = {stage: _WRAP[wrap](modules[stage], mesh["data"]) for stage in program.stages_on(pipe)}
        prefix = "module." if wrap.endswith("ddp") and wrap != "inner_ddp" else ""
        own = {_renamed(one, prefix): _renamed(other, prefix) for one, other in tied.items()}
        runner = Runner(program, mine, models.loss, group=mesh["pipe"], tied=own)
        runner.step(*models.batch(program, 3 + data))
        runner.evaluate(*models.batch(program, 3))
        runner.step(*models.batch(program, 5 + data))
        expected = []
        for one in range(2):
            whole = {stage: module.to(dtype) for stage, module in _MAKE[make](program).items()}
            models.tie(whole, tied)
            expected.append(models.reference(program, whole, [3 + one, 5 + one])[1])
    finally:
        torch.set_default_dtype(torch.float32)
    errors = []
    for stage, module in mine.items():
        for name, parameter in module.named_parameters():
            plain = f"{stage}.{name.replace('module.', '')}"
            plain = plain if plain in expected[0] else tied[plain]
            mean = (expected[0][plain] + expected[1][plain]) / 2
            if wrap == "inner_ddp" and "module." not in name:
                mean = expected[data][plain]  # These stay with each replica.
            assert parameter.grad is not None, name
            found = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
            errors.append(((found - mean).abs().max() / mean.abs().max()).item())
    return max(errors)


def weight_error(rank: int, group: Any, text: str, wrap: str) -> float:
    """The largest error of a weight behind two updates, which stand in the list of the program."""
    mesh = mesh_of("data", "pipe")
    program = pipec.loads(text)
    pipe, data = mesh["pipe"].get_local_rank(), mesh["data"].get_local_rank()
    modules = models.chain(program)
    mine = {stage: _WRAP[wrap](modules[stage], mesh["data"]) for stage in program.stages_on(pipe)}
    make = partial(torch.optim.SGD, lr=0.1)
    runner = Runner(program, mine, models.loss, group=mesh["pipe"], optimizer=make)
    whole = models.chain(program)
    optimizer = make([one for module in whole.values() for one in module.parameters()])
    for step in range(2):
        runner.step(*models.batch(program, 2 * step + data))
        models.reference(program, whole, [2 * step, 2 * step + 1])
        for group_ in optimizer.param_groups:
            for one in group_["params"]:
                one.grad /= 2
        optimizer.step()
        optimizer.zero_grad()
    expected = models.weights(whole)
    errors = []
    for stage, module in mine.items():
        for name, one in module.named_parameters():
            found = one.full_tensor() if isinstance(one, DTensor) else one
            errors.append((found - expected[f"{stage}.{name.replace('module.', '')}"]).abs().max().item())
    return max(errors)


def _renamed(name: str, prefix: str) -> str:
    stage, _, rest = name.partition(".")
    return f"{stage}.{prefix}{rest}"


LIMITS = {torch.float64: 1e-10, torch.float32: 1e-5}


def right(
    cluster: Cluster,
    text: str,
    wrap: str,
    make: str = "chain",
    dtype: torch.dtype = torch.float64,
    tied: dict[str, str] | None = None,
) -> None:
    """Compares with one process."""
    errors = cluster.run(largest_error, 4, text, make, wrap, dtype, tied or {})
    assert max(errors) < LIMITS[dtype], errors


SCHEDULES = ["std:1f1b", "std:zb_h1", "std:v_half", "std:interleaved_1f1b"]


@pytest.mark.parametrize("target", SCHEDULES)
@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_gradients_are_those_of_one_process(cluster: Cluster, target: str, wrap: str) -> None:
    right(cluster, sized(target, 2, 4), wrap)
    right(cluster, sized(target, 2, 4), wrap, dtype=torch.float32)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
@pytest.mark.parametrize("target", ["std:1f1b", "std:zb_h1"])
def test_blocks_of_a_llama(cluster: Cluster, target: str, wrap: str) -> None:
    right(cluster, sized(target, 2, 4), wrap, "towers")


@pytest.mark.parametrize(
    "wrap", ["inner_ddp", "static_ddp", "searching_ddp", "replicate", "new_replicate", "fsdp2_without_a_root"]
)
def test_other_ways_to_wrap(cluster: Cluster, wrap: str) -> None:
    right(cluster, sized("std:zb_h1", 2, 4), wrap)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
@pytest.mark.parametrize("target", ["std:1f1b", "std:zb_h1"])
def test_with_recomputation(cluster: Cluster, target: str, wrap: str) -> None:
    right(cluster, sized(target, 2, 4, "--recompute", "all"), wrap)


@pytest.mark.skipif(OLD, reason="torch before 2.15 cannot make groups within a group")
def test_replicas_of_the_schedule_are_averaged_as_well(cluster: Cluster) -> None:
    right(cluster, sized("std:chimera", 2, 4), "ddp")


def test_sharded_stages_are_refused_where_the_program_needs_whole_weights(cluster: Cluster) -> None:
    for said in cluster.run(refusal, 4, sized("std:chimera", 2, 4), "fsdp2", False):
        assert said is not None and re.search(r"`chimera` needs whole weights: `coll.start .* all_reduce", said), said


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_versions_of_weights_are_refused(cluster: Cluster, wrap: str) -> None:
    for said in cluster.run(refusal, 4, sized("std:cyclic_dp", 2, 4), wrap, False):
        assert said is not None and re.search(r"`cyclic_dp` needs whole weights: \d steps in one list", said), said


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        ("fsdp1", "reduces gradients after every backward"),
        ("hooked_ddp", "with a communication hook, which a runner does not know"),
    ],
)
def test_what_a_runner_does_not_know_is_refused(cluster: Cluster, wrap: str, message: str) -> None:
    for said in cluster.run(refusal, 4, sized("std:1f1b", 2, 4), wrap, False):
        assert said is not None and message in said, said


@pytest.mark.parametrize("wrap", ["fsdp2", "replicate"])
def test_stages_that_are_wrapped_later_are_refused(cluster: Cluster, wrap: str) -> None:
    for said in cluster.run(refusal, 4, sized("std:zb_h1", 2, 4), wrap, True):
        assert said is not None and "after the runner was made" in said, said


def test_tied_weights_are_averaged_once(cluster: Cluster) -> None:
    text = compiled(str(EXAMPLES / "tied.pipe"))
    program = pipec.loads(text)
    assert program.n_devices == 2
    right(cluster, text, "ddp", "tied", tied={"3.weight": "0.table.weight"})


def test_activations_may_leave_where_stages_are_replicated(cluster: Cluster) -> None:
    right(cluster, pipeline("zb_h1", 2, 4, "offload activations"), "ddp", dtype=torch.float32)


@pytest.mark.parametrize("more", ["offload optimizer", "offload parameters"])
def test_weights_that_leave_are_refused(cluster: Cluster, more: str) -> None:
    for said in cluster.run(refusal, 4, pipeline("zb_h1", 2, 4, more), "ddp", False):
        assert said is not None and "needs whole weights: `copy.start" in said, said


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_updates_in_the_list_wait_for_gradients(cluster: Cluster, wrap: str) -> None:
    text = pipeline("zb_h1", 2, 4)
    assert any("U" in stage.kinds for stage in pipec.loads(text).stages)
    assert max(cluster.run(weight_error, 4, text, wrap)) < 1e-6


@pytest.mark.skipif(OLD, reason="torch before 2.15 cannot make groups within a group")
def test_ties_between_devices_add_up_averages(cluster: Cluster) -> None:
    right(cluster, sized("std:zb_h1", 2, 4), "ddp", "tied", tied={"1.weight": "0.table.weight"})
