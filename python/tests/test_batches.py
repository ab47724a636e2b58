"""Batches of all kinds: keyword arguments, losses with weights, and evaluations of any number of microbatches of any
shapes.
"""

from __future__ import annotations

import math
from typing import Any

import models
import pytest
import scenes
import torch
from cluster import Cluster
from torch import Tensor, nn

import pipec
from pipec import Program


class _Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = models.First()

    def forward(self, symbols: Tensor, *, scale: float, shift: Tensor | None = None) -> Tensor:
        found: Tensor = self.first(symbols) * scale
        return found if shift is None else found + shift[:, None]


def _loss(output: Tensor, targets: Tensor, weight: float = 1.0) -> Tensor:
    return models.loss(output, targets) * weight


def by_name(rank: int, group: Any) -> list[list[float]]:
    """The losses of the same batch, with arguments by name and by position."""
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    torch.manual_seed(0)
    modules = {**models.chain(program), 0: _Named()}
    runner = scenes.runner_of(program, rank, group, modules, loss_fn=_loss)
    symbols, targets = models.batch(program, 3)
    shift = torch.arange(len(symbols)) / 10
    whole = {"symbols": symbols, "scale": 2.0, "shift": shift}
    goals = {"targets": targets, "weight": 3.0}
    each = [
        {"symbols": one, "scale": 2.0, "shift": other}
        for one, other in zip(symbols.split(models.ROWS), shift.split(models.ROWS))
    ]
    found = [
        runner.step(whole, goals),
        runner.step(each, [{"targets": one, "weight": 3.0} for one in targets.split(models.ROWS)]),
        runner.step({0: whole}, goals),
        runner.evaluate(each, goals),
    ]
    return [scenes.numbers(one) for one in found]


def test_arguments_are_given_by_name(cluster: Cluster) -> None:
    last, others = cluster.run(by_name, 2)
    assert others == [[]] * 4 and len(last[0]) == 4
    assert all(one == last[0] for one in last)


def weighted(rank: int, group: Any, weights: Any) -> dict[str, Any]:
    """The gradients of a step whose losses have weights."""
    program, runner = scenes.chain("std:v_half", rank, group)
    mine = dict(runner.stages)
    runner.step(*models.batch(program, 3), weights=weights)
    return {name: one.numpy() for name, one in models.gradients(mine).items()}


@pytest.mark.parametrize("weights", [[0.1, 0.4, 0.0, 2.0], 0.7])
def test_losses_have_weights(cluster: Cluster, weights: Any) -> None:
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    modules = models.chain(program)
    each = iter([weights] * 4 if isinstance(weights, float) else weights)
    models.reference(program, modules, [3], lambda _: torch.tensor(next(each)))
    expected = models.gradients(modules)
    for gradients in cluster.run(weighted, 2, weights):
        for name, array in gradients.items():
            assert torch.equal(torch.from_numpy(array), expected[name]), name


def _microbatches(lengths: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    numbers = torch.Generator().manual_seed(5)
    shapes = [(rows, 2 + rows) for rows in lengths]
    inputs, targets = ([torch.randint(models.SYMBOLS, shape, generator=numbers) for shape in shapes] for _ in range(2))
    return inputs, targets


def _losses(program: Program, lengths: list[int]) -> list[float]:
    modules = models.chain(program)
    whole = nn.Sequential(*(modules[stage] for stage in range(program.n_stages)))
    return [models.loss(whole(one), goal).item() for one, goal in zip(*_microbatches(lengths))]


LENGTHS = ([3, 1, 4, 1, 5, 9, 2], [2], [2, 2, 2, 2, 2], [2, 2, 2, 2])


def anything(rank: int, group: Any, target: str) -> tuple[list[list[float]], list[list[float]], list[int]]:
    """Losses of evaluations around a step, and those of the step; the first rank alone has the inputs."""
    program = pipec.compile(target, devices=4, microbatches=4)
    runner = scenes.runner_of(program, rank, group, models.chain(program))
    evaluated, trained = [], []
    for trains in (False, True):
        if trains:
            trained.append(scenes.numbers(runner.step(*models.batch(program, 3))))
        for lengths in LENGTHS:
            inputs, targets = _microbatches(lengths)
            given = inputs if 0 in runner.stages else None
            goals = targets if program.n_stages - 1 in runner.stages else None
            evaluated.append(scenes.numbers(runner.evaluate(given, goals)))
        runner.reset() if not trains else None
    trained.append(scenes.numbers(runner.step(*models.batch(program, 3))))
    inputs, _ = _microbatches([1, 2])
    return evaluated, trained, [len(one) for one in runner.predict(inputs)]


@pytest.mark.parametrize("target", ["std:v_half", "std:dp_1f1b"])
def test_any_number_of_microbatches_is_evaluated(cluster: Cluster, target: str) -> None:
    program = pipec.compile(target, devices=4, microbatches=4)
    expected = [_losses(program, lengths) for lengths in LENGTHS]
    answers = cluster.run(anything, 4, target)
    for number, losses in enumerate([*expected, *expected]):
        found = sorted(one for evaluated, _, _ in answers for one in evaluated[number])
        assert found == pytest.approx(sorted(losses), rel=1e-6)
    (once,), _ = models.reference(program, models.chain(program), [3])
    for number in range(2):
        assert sorted(one for _, trained, _ in answers for one in trained[number]) == pytest.approx(sorted(once))
    assert sorted(one for _, _, predicted in answers for one in predicted) == [1, 2]


def differing(rank: int, group: Any) -> str:
    """What is said where ranks have lists of different lengths."""
    _, runner = scenes.chain("std:1f1b", rank, group)
    inputs, targets = _microbatches([2, 2, 2])
    try:
        runner.evaluate(*((inputs, None) if rank == 0 else (None, targets[:2])))
    except pipec.StageError as error:
        return str(error)
    return ""


def test_different_numbers_are_told_on_all_ranks(cluster: Cluster) -> None:
    assert cluster.run(differing, 2) == ["ranks evaluate different numbers of microbatches: [2, 3]"] * 2


def mistaken(rank: int, group: Any) -> list[str]:
    """What is said of weights and names that do not fit."""
    _, runner = scenes.chain("std:1f1b", rank, group)
    said = []
    batches: list[tuple[Tensor, Any, Any]] = [
        (torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), [1.0]),
        (torch.zeros(4, dtype=torch.int64), {1: torch.zeros(4)}, math.pi),
    ]
    for inputs, targets, weights in batches:
        try:
            runner.step(inputs, targets, weights=weights)
        except pipec.StageError as error:
            said.append(str(error))
    return said


def test_what_does_not_fit_is_named(cluster: Cluster) -> None:
    for said in cluster.run(mistaken, 2):
        assert said == [
            "weights are 1 numbers, but the program has 4 microbatches",
            "targets are a dict with the key 1, expected names of arguments",
        ]
