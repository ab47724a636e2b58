"""Checkpoints under the names of the original model: one schedule saves them, others load them and learn on alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import models
import pytest
import scenes
import torch
from cluster import OLD, Cluster
from test_updates import pipeline
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel

import pipec
from pipec import Program

N_LAYERS = 8


def layers(program: Program) -> tuple[dict[int, nn.Module], dict[int, str | dict[str, str]]]:
    """The stages of a model with eight layers, and the names of these in the model."""
    whole = [models.First(), *(models.Normed() for _ in range(N_LAYERS - 2)), models.Last()]
    each = N_LAYERS // program.n_stages
    if each == 1:
        return dict(enumerate(whole)), {stage: f"layers.{stage}" for stage in range(N_LAYERS)}
    stages: dict[int, nn.Module] = {}
    names: dict[int, str | dict[str, str]] = {}
    for stage in range(program.n_stages):
        stages[stage] = nn.Sequential(*whole[stage * each : (stage + 1) * each])
        names[stage] = {str(number): f"layers.{stage * each + number}" for number in range(each)}
    return stages, names


def learn_on(
    rank: int, group: Any, target: str, devices: int, folder: str, saves: bool
) -> tuple[float, dict[str, Any]]:
    """Learns and saves, or loads; then the loss of the next step, and the state behind it."""
    torch.manual_seed(7 if saves else 8)
    program = pipec.compile(target, devices=devices, microbatches=8)
    modules, names = layers(program)
    runner = scenes.runner_of(program, rank, group, modules, names=names)
    optimizer = models.adam(runner.parameters())
    if saves:
        for step in range(2):
            runner.step(*models.batch(program, step))
            optimizer.step()
            optimizer.zero_grad()
        state: dict[str, Any] = {"model": runner, "optimizer": runner.optimizer_state_dict(optimizer)}
        save(state, checkpoint_id=folder, process_group=group)
    else:
        state = {"model": runner, "optimizer": runner.optimizer_state_dict(optimizer)}
        load(state, checkpoint_id=folder, process_group=group)
        runner.load_optimizer_state_dict(state["optimizer"], optimizer)
    losses = runner.step(*models.batch(program, 2))
    optimizer.step()
    return runner.mean_loss(losses), {name: one.numpy() for name, one in runner.state_dict().items()}


def test_other_schedules_learn_on_alike(cluster: Cluster, tmp_path: Path) -> None:
    folder, found = str(tmp_path / "checkpoint"), []
    for target, devices, saves in (("std:1f1b", 4, True), ("std:v_half", 4, False), ("std:v_half", 2, False)):
        answers = cluster.run(learn_on, devices, target, devices, folder, saves)
        states = {name: array for _, state in answers for name, array in state.items()}
        found.append((answers[0][0], states))
    assert set(found[0][1]) >= {"layers.0.table.weight", "layers.3.statistics.running_mean", "layers.7.head.bias"}
    for loss, states in found[1:]:
        assert loss == found[0][0]
        assert states.keys() == found[0][1].keys()
        for name, array in states.items():
            assert (array == found[0][1][name]).all(), name


def loaded_into_shares(rank: int, group: Any, text: str) -> tuple[list[float], list[float]]:
    """The losses of a runner whose weights are divided, or live with the host, and of another one that has loaded its
    state.
    """
    program = pipec.loads(text)
    batch, found = models.batch(program, 3), []
    state: dict[str, Any] = {}
    for number in range(2):
        modules = models.chain(program)
        for module in modules.values() if number == 0 else ():
            nn.init.normal_(next(module.parameters()), 0.1)
        runner = scenes.runner_of(program, rank, group, modules, optimizer=models.momentum)
        if number == 0:
            state = runner.state_dict()
        else:
            runner.load_state_dict(state)
        losses = [scenes.numbers(runner.step(*batch)), scenes.numbers(runner.step(*batch))]
        found.append([one for of_step in losses for one in of_step])
    return found[0], found[1]


@pytest.mark.parametrize(("schedule", "more"), [("dp_1f1b(replicas = 2)", "zero 3"), ("1f1b", "offload parameters")])
def test_divided_weights_are_saved_and_loaded_whole(cluster: Cluster, schedule: str, more: str) -> None:
    for losses, loaded in cluster.run(loaded_into_shares, 4, pipeline(schedule, 4, 4, more)):
        assert losses == loaded


def names_that_are_wrong(rank: int, group: Any) -> list[str]:
    """What is said of names, and of states, that lack something."""
    said = []
    for names in ({1: "head"}, {0: {"words": "embedding"}, 1: "head"}, {0: "", 1: "head"}):
        try:
            _, runner = scenes.chain("std:1f1b", rank, group, names=names)
            runner.load_state_dict({"some": torch.zeros(1)})
        except pipec.StageError as error:
            said.append(str(error))
    _, runner = scenes.chain("std:1f1b", rank, group)
    optimizer = models.adam(runner.parameters())
    try:
        runner.load_optimizer_state_dict(optimizer.state_dict(), optimizer)
    except pipec.StageError as error:
        said.append(str(error))
    return [*said, *runner.state_dict()]


def test_what_is_missing_is_named(cluster: Cluster) -> None:
    first, last = cluster.run(names_that_are_wrong, 2)
    assert first == [
        "`names=` has no entry for stage 0: give its prefix in the original model, or a mapping",
        "`names=` does not say what `table.weight` of stage 0 is in the original model: it has ['words']",
        "`table.weight` is not in the state, which has `some`",
        "the state is as `optimizer.state_dict()` makes it, which knows weights by their number: "
        "`runner.optimizer_state_dict(optimizer)` makes one by their names in the original model",
        "0.table.weight",
    ]
    assert last[:2] == [f"rank 0 cannot make its runner: {one}" for one in first[:2]]
    assert last[2] == "`head.head.weight` is not in the state, which has `some`"
    assert last[4:] == ["1.head.weight", "1.head.bias"]


def names_that_collide(rank: int, group: Any) -> list[str]:
    """What is said of two stages with one name, of other wrong names, and of names that are right."""
    said = []
    program = pipec.compile("std:1f1b", devices=2, microbatches=2)
    linear: dict[int, nn.Module] = {0: nn.Linear(2, 2), 1: nn.Linear(2, 2)}
    norms: dict[int, nn.Module] = {0: nn.BatchNorm1d(2, affine=False), 1: nn.BatchNorm1d(2, affine=False)}
    alone = scenes._own()
    wrapped: dict[int, nn.Module] = {s: DistributedDataParallel(nn.Linear(2, 2), process_group=alone) for s in (0, 1)}
    same = {0: "a", 1: "a"}
    cases: list[tuple[dict[int, nn.Module], dict[str, Any]]] = [
        (linear, {"names": same}),
        (linear, {"names": {0: "a", 1: {"": "b"}} if rank == 0 else None}),
        (linear, {"names": {0: {"weight": "a.w", "bias": "a.w"}, 1: "b"}}),
        (linear, {"names": same, "tied": {"1.weight": "0.weight", "1.bias": "0.bias"}}),
        (norms, {"names": same}),
        (wrapped, {"names": same, "tied": {"1.module.weight": "0.module.weight", "1.module.bias": "0.module.bias"}}),
        (wrapped, {"names": same}),
    ]
    for modules, options in cases:
        try:
            scenes.runner_of(program, rank, group, modules, device="cpu", **options)
            said.append("")
        except pipec.StageError as error:
            said.append(str(error))
    return said


@pytest.mark.skipif(OLD, reason="torch before 2.15 cannot make groups within a group")
def test_names_that_collide_are_refused_on_all_ranks(cluster: Cluster) -> None:
    for stages, given, within, tied, buffers, tied_in_ddp, in_ddp in cluster.run(names_that_collide, 2):
        for said in (stages, in_ddp):
            assert said.startswith("with `names=`, stages 0 and 1 name `weight` and `weight` both `a.weight`: a check")
        assert given.endswith("different settings: names= is given on rank 0, not given on rank 1")
        assert within.startswith("with `names=`, stage 0 names `bias` and `weight` both `a.w`")
        assert tied == buffers == tied_in_ddp == ""


def scheduled(rank: int, group: Any, target: str) -> dict[str, Any]:
    """The weights behind steps with an optimizer for each stage, whose rates follow a schedule."""
    program = pipec.compile(target, devices=2, microbatches=4)
    modules = models.chain(program)
    runner = scenes.runner_of(program, rank, group, modules)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    _learn_by_schedule(mine, lambda step: runner.step(*models.batch(program, step)))
    return {name: one.numpy() for name, one in models.weights(mine).items()}


def _learn_by_schedule(modules: dict[int, nn.Module], step_of: Any) -> None:
    rates = {stage: 0.1 / (1 + stage) for stage in modules}
    optimizers = [torch.optim.SGD(module.parameters(), lr=rates[stage]) for stage, module in modules.items()]
    cosine = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=4)
    schedulers = [cosine(optimizer) for optimizer in optimizers]
    for step in range(4):
        step_of(step)
        for optimizer, scheduler in zip(optimizers, schedulers):
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()


def test_stages_have_optimizers_and_rates_of_their_own(cluster: Cluster) -> None:
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    modules = models.chain(program)
    _learn_by_schedule(modules, lambda step: models.reference(program, modules, [step]))
    expected = models.weights(modules)
    for mine in cluster.run(scheduled, 2, "std:v_half"):
        for name, array in mine.items():
            assert torch.equal(torch.from_numpy(array), expected[name]), name
