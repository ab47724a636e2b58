"""What happens between a step and the optimizer: clipping and gradient scaling over ranks, and buffers that forwards
change.
"""

from __future__ import annotations

from typing import Any

import models
import pytest
import scenes
import torch
from cluster import Cluster
from test_gradients import EXAMPLES, from_source, sized
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.utils import clip_grad_norm_

import pipec


def clipped(rank: int, group: Any, text: str, make: str, tied: dict[str, str], orders: list[float]) -> list[Any]:
    """For each order of a norm: the norm, and the gradients that were scaled down to half of it."""
    program = pipec.loads(text)
    modules = getattr(models, make)(program)
    runner = scenes.runner_of(program, rank, group, modules, tied=tied)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    found = []
    for order in orders:
        runner.step(*models.batch(program, 1))
        norm = runner.clip_grad_norm_(0.05, order).item()
        found.append((norm, {name: one.numpy() for name, one in models.gradients(mine).items()}))
        for parameter in runner.parameters():
            parameter.grad = None
    return found


def clips_alike(cluster: Cluster, text: str, make: str = "chain", tied: dict[str, str] | None = None) -> None:
    """Compares with one process."""
    program, orders = pipec.loads(text), [2.0, 1.0, float("inf")]
    answers = cluster.run(clipped, program.n_devices, text, make, tied or {}, orders)
    for number, order in enumerate(orders):
        modules = getattr(models, make)(program)
        models.tie(modules, tied or {})
        models.reference(program, modules, [1])
        weights = {one for module in modules.values() for one in module.parameters()}
        norm = clip_grad_norm_(weights, 0.05, order).item()
        assert norm > 0.05
        expected = models.gradients(modules)
        for of_rank in answers:
            got, gradients = of_rank[number]
            assert got == pytest.approx(norm, rel=1e-6)
            for name, array in gradients.items():
                torch.testing.assert_close(torch.from_numpy(array), expected[name], rtol=1e-5, atol=1e-7)
    assert len({tuple(norm for norm, _ in of_rank) for of_rank in answers}) == 1


def test_norms_are_over_all_ranks(cluster: Cluster) -> None:
    clips_alike(cluster, sized("std:v_half", 2, 4))


def test_norms_count_replicas_once(cluster: Cluster) -> None:
    clips_alike(cluster, sized("std:chimera", 4, 4))


def test_norms_count_tied_weights_once(cluster: Cluster) -> None:
    source = (EXAMPLES / "tied.pipe").read_text().replace("schedule v_half", "schedule 1f1b")
    clips_alike(cluster, from_source(source, "--set", "devices=4"), "tied", {"3.weight": "0.table.weight"})


def norm_of_shards(rank: int, group: Any) -> tuple[float, float, float]:
    """The norm of a pipeline with sharded stages, that of one process, and the error of a gradient that was scaled
    down.
    """
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipe"))
    program = pipec.compile("std:1f1b", devices=2, microbatches=4)
    modules, pipe = models.chain(program), mesh["pipe"].get_local_rank()
    for child in modules[pipe].children():
        fully_shard(child, mesh=mesh["data"])
    runner = pipec.Runner(program, {pipe: modules[pipe]}, models.loss, group=mesh["pipe"].get_group())
    runner.step(*models.batch(program, 1))
    found = runner.clip_grad_norm_(0.05).item()
    whole = models.chain(program)
    models.reference(program, whole, [1])
    expected = clip_grad_norm_([one for module in whole.values() for one in module.parameters()], 0.05).item()
    (name, parameter) = next(iter(modules[pipe].named_parameters()))
    assert parameter.grad is not None
    gradient: torch.Tensor = parameter.grad.full_tensor()  # type: ignore[attr-defined]
    other = whole[pipe].get_parameter(name).grad
    assert other is not None
    return found, expected, (gradient - other).abs().max().item()


def test_norms_are_of_whole_weights_where_they_are_sharded(cluster: Cluster) -> None:
    for found, expected, error in cluster.run(norm_of_shards, 4):
        assert found == pytest.approx(expected, rel=1e-6) and error < 1e-6


def norm_of_parts(rank: int, group: Any) -> tuple[float, float, float]:
    """The same where the products of a stage are divided among two ranks, and its norms are not."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tensor", "pipe"))
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    modules, pipe = models.chain(program), mesh["pipe"].get_local_rank()
    plan: dict[str, ParallelStyle] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for module in modules.values():
        if isinstance(module, models.Middle):
            parallelize_module(module, mesh["tensor"], plan)
    runner = scenes.runner_of(program, pipe, mesh["pipe"].get_group(), modules)
    runner.step(*models.batch(program, 1))
    found = runner.clip_grad_norm_(0.05).item()
    whole = models.chain(program)
    models.reference(program, whole, [1])
    expected = clip_grad_norm_([one for module in whole.values() for one in module.parameters()], 0.05).item()
    errors = [0.0]
    for stage in (stage for stage in runner.stages if isinstance(modules[stage], models.Middle)):
        gradient, other = (of[stage].get_parameter("up.weight").grad for of in (modules, whole))
        assert gradient is not None and other is not None
        full: torch.Tensor = gradient.full_tensor()  # type: ignore[attr-defined]
        errors.append((full - other).abs().max().item())
    return found, expected, max(errors)


def test_norms_are_of_whole_weights_where_they_are_divided(cluster: Cluster) -> None:
    for found, expected, error in cluster.run(norm_of_parts, 4):
        assert found == pytest.approx(expected, rel=1e-6) and error < 1e-6


SCALER: dict[str, Any] = {"init_scale": 2.0**126, "growth_interval": 2}
SPOILT = 2
"""The step in which a gradient of the last stage becomes infinite."""


def _spoil(step: int, module: nn.Module) -> None:
    parameter = next(module.parameters())
    if step == SPOILT and parameter.grad is not None:
        parameter.grad.view(-1)[0] = float("inf")


def scaled(rank: int, group: Any, clips: bool) -> tuple[list[float], dict[str, Any]]:
    """The scales of some steps, and the weights behind them; each stage has an optimizer of its own."""
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    modules = models.chain(program)
    runner = scenes.runner_of(program, rank, group, modules)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    optimizers = [models.adam(module.parameters()) for module in mine.values()]
    scaler, scales = runner.grad_scaler(**SCALER), []
    for step in range(6):
        runner.step(*models.batch(program, step))
        for stage, module in mine.items():
            _spoil(step, module) if stage == program.n_stages - 1 else None
        if clips:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
            runner.clip_grad_norm_(0.05)
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, {name: one.numpy() for name, one in models.weights(mine).items()}


@pytest.mark.parametrize("clips", [False, True])
def test_all_ranks_skip_updates_and_adapt_the_scale(cluster: Cluster, clips: bool) -> None:
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    modules = models.chain(program)
    weights = [one for module in modules.values() for one in module.parameters()]
    optimizer, scaler, scales = models.adam(weights), torch.amp.GradScaler("cpu", **SCALER), []
    for step in range(6):
        models.reference(program, modules, [step], scaler.scale)
        _spoil(step, modules[program.n_stages - 1])
        if clips:
            scaler.unscale_(optimizer)
            clip_grad_norm_(weights, 0.05)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    assert scales[SPOILT] == scales[SPOILT - 1] / 2 < scales[-1]
    expected = models.weights(modules)
    for found, mine in cluster.run(scaled, 2, clips):
        assert found == scales
        for name, array in mine.items():
            torch.testing.assert_close(torch.from_numpy(array), expected[name], rtol=1e-5, atol=1e-7)


def refused(rank: int, group: Any) -> list[str]:
    """What is said of clipping and scaling where the runner has the optimizer."""
    _, runner = scenes.chain("std:1f1b", rank, group, optimizer=models.adam)
    said = []
    for call in (lambda: runner.clip_grad_norm_(1.0), runner.grad_scaler):
        try:
            call()
        except pipec.StageError as error:
            said.append(str(error))
    return said


def test_gradients_that_are_used_up_are_refused(cluster: Cluster) -> None:
    for clipping, scaling in cluster.run(refused, 2):
        assert clipping.startswith("`clip_grad_norm_` needs gradients behind the step, but with `optimizer=`")
        assert scaling.startswith("`grad_scaler` needs gradients behind the step")


def statistics(rank: int, group: Any, target: str, recompute: str | None) -> dict[str, Any]:
    """Buffers and gradients after steps in two modes."""
    program = pipec.compile(target, devices=2, microbatches=4, recompute=recompute)
    modules = models.normed(program)
    runner = scenes.runner_of(program, rank, group, modules)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    for step in range(3):
        for module in mine.values():
            module.train(step != 1)
        runner.step(*models.batch(program, step))
    buffers = {f"{stage}.{name}": one for stage, module in mine.items() for name, one in module.named_buffers()}
    return {name: one.numpy() for name, one in {**buffers, **models.gradients(mine)}.items()}


@pytest.mark.parametrize(("target", "recompute"), [("std:v_half", None), ("std:v_half", "all"), ("std:gpipe", "all")])
def test_buffers_change_once_for_each_forward(cluster: Cluster, target: str, recompute: str | None) -> None:
    program = pipec.compile(target, devices=2, microbatches=4, recompute=recompute)
    modules = models.normed(program)
    for step in range(3):
        for module in modules.values():
            module.train(step != 1)
        models.reference(program, modules, [step])
    buffers = {f"{stage}.{name}": one for stage, module in modules.items() for name, one in module.named_buffers()}
    expected = {**buffers, **models.gradients(modules)}
    found = {
        name: array for of_rank in cluster.run(statistics, 2, target, recompute) for name, array in of_rank.items()
    }
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert torch.equal(torch.from_numpy(array), expected[name]), name
