"""Modules hand dicts, dataclasses and nested tuples on, as they would without a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import models
import pytest
import scenes
import torch
from cluster import Cluster
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import pipec
from pipec import Program


@dataclass
class Hidden:
    """What flows from stage to stage."""

    state: Tensor
    others: dict[str, Tensor]
    mask: Tensor | None = None
    scale: float = 1.0


class Scores(NamedTuple):
    """What the last stage returns."""

    scores: Tensor
    length: int


class _First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = models.First()

    def forward(self, symbols: Tensor) -> Any:
        return Hidden(self.first(symbols), {"symbols": symbols, "half": self.first(symbols) / 2}, None, 0.5)


class _ToDict(nn.Module):
    """Reads a dataclass, and returns a dict beside a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = models.Middle()

    def forward(self, hidden: Hidden) -> Any:
        assert hidden.mask is None and hidden.others["symbols"].dtype == torch.int64
        return {"a": self.middle(hidden.state) * hidden.scale, "b": [hidden.others["half"], "name"]}, hidden.state


class _ToHidden(nn.Module):
    """The other way round; the parts of a tuple are arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = models.Middle()

    def forward(self, pair: Any, state: Tensor) -> Any:
        assert pair["b"][1] == "name"
        return Hidden(self.middle(pair["a"]) + state, {"half": pair["b"][0]})


class _Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = models.Last()

    def forward(self, hidden: Hidden) -> Scores:
        return Scores(self.last(hidden.state + hidden.others["half"]), len(hidden.state))


def _loss(output: Scores, targets: Tensor) -> Tensor:
    return cross_entropy(output.scores, targets)


def _stages(program: Program) -> dict[int, nn.Module]:
    made: list[type[nn.Module]] = [_First, _ToDict, _ToHidden, _Last]
    stages = {}
    for stage, one in enumerate(made):
        torch.manual_seed(stage)
        stages[stage] = one()
    return stages


def structured(rank: int, group: Any, target: str, devices: int, recompute: str | None) -> Any:
    """Losses and gradients of two steps, the losses of an evaluation of other shapes, and the number of rows of a
    prediction.
    """
    program = pipec.compile(target, devices=devices, microbatches=4, recompute=recompute)
    modules = _stages(program)
    runner = scenes.runner_of(program, rank, group, modules, loss_fn=_loss)
    losses = [scenes.numbers(runner.step(*models.batch(program, seed))) for seed in (1, 2)]
    gradients = {name: one.numpy() for name, one in models.gradients(dict(runner.stages)).items()}
    inputs, targets = models.batch(program, 3)
    others = scenes.numbers(runner.evaluate(list(inputs.split([3, 4, 1])), list(targets.split([3, 4, 1]))))
    return losses, gradients, others, [one.length for one in runner.predict(inputs)]


@pytest.mark.parametrize(
    ("target", "devices", "recompute"),
    [("std:1f1b", 4, None), ("std:v_half", 2, None), ("std:1f1b", 4, "all")],
)
def test_structures_arrive_as_they_were(cluster: Cluster, target: str, devices: int, recompute: str | None) -> None:
    program = pipec.compile(target, devices=devices, microbatches=4)
    modules = _stages(program)

    def loss_of(symbols: Tensor, goal: Tensor) -> Tensor:
        pair, state = modules[1](modules[0](symbols))
        return _loss(modules[3](modules[2](pair, state)), goal)

    expected = []
    for seed in (1, 2):
        batches = (one.split(models.ROWS) for one in models.batch(program, seed))
        of_step = [loss_of(*one) for one in zip(*batches)]
        for loss in of_step:
            loss.backward(torch.tensor(0.25))
        expected.append([loss.item() for loss in of_step])
    gradients = models.gradients(modules)
    inputs, targets = models.batch(program, 3)
    others = [loss_of(*one).item() for one in zip(inputs.split([3, 4, 1]), targets.split([3, 4, 1]))]
    answers = cluster.run(structured, devices, target, devices, recompute)
    last = program.stages[3].devices[0]
    losses, _, evaluated, predicted = answers[last]
    assert losses == expected and predicted == [2] * 4
    assert evaluated == pytest.approx(others, rel=1e-6)
    for _, mine, _, _ in answers:
        for name, array in mine.items():
            assert torch.equal(torch.from_numpy(array), gradients[name]), name


class _Changing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = models.First()
        self.number = 0

    def forward(self, symbols: Tensor) -> Any:
        self.number += 1
        return {"x": self.first(symbols), "number": self.number}


class _FromDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = models.Last()

    def forward(self, given: dict[str, Any]) -> Tensor:
        found: Tensor = self.last(given["x"])
        return found


def changing(rank: int, group: Any) -> str:
    """What is said of a structure that changes."""
    program = pipec.compile("std:interleaved_1f1b", devices=1, microbatches=2, settings={"chunks": 2})
    runner = scenes.runner_of(program, rank, group, {0: _Changing(), 1: _FromDict()})
    try:
        runner.step(*models.batch(program, 1))
    except pipec.StageError as error:
        return str(error)
    return ""


def test_structures_that_change_are_refused(cluster: Cluster) -> None:
    (said,) = cluster.run(changing, 1)
    assert said.startswith("the module of stage 0 returned another structure around its tensors than before, with")
