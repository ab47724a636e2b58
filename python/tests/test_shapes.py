"""Shapes that change from step to step: ranks find out by themselves, and learn what one process learns."""

from __future__ import annotations

from typing import Any

import models
import pytest
import torch
from cluster import Cluster, needs_groups_within_a_group
from torch import Tensor, nn

import pipec
from pipec import Program, Runner
from pipec.torch import known_shapes, transport

ROWS = (2, 5, 2, 1, 5)
"""Of the microbatches of each step."""


def batch_of(program: Program, step: int, rows: int) -> tuple[Tensor, Tensor]:
    """Symbols and targets of a step whose microbatches have some rows, and with slices as many symbols in each."""
    numbers = torch.Generator().manual_seed(step)
    shape = (
        2,
        rows * program.n_microbatches // program.n_slices,
        *([rows * program.n_slices] * (program.n_slices > 1)),
    )
    drawn = torch.randint(models.SYMBOLS, shape, generator=numbers)
    return drawn[0], drawn[1]


def train(
    rank: int, group: Any, target: str, devices: int, make: str, has_tags: bool, most: int
) -> tuple[list[list[float]], dict[str, Any], list[int]]:
    """Steps of several shapes: their losses, the gradients of all, and how many transfers each has announced. Only
    ranks that need inputs and targets have them.
    """
    program = pipec.compile(target, devices=devices, microbatches=4)
    announced = 0
    announce, most_known = transport.Transport.announce, known_shapes.MOST_KNOWN

    def counted(*arguments: Any) -> None:
        nonlocal announced
        announced += 1
        announce(*arguments)

    if not has_tags:
        transport.TAGGED.clear()
    vars(known_shapes)["MOST_KNOWN"] = most
    transport.Transport.announce = counted  # type: ignore[method-assign, assignment]
    losses, counts = [], []
    try:
        modules = getattr(models, make)(program)
        mine = {stage: modules[stage] for stage in program.stages_on(rank)}
        runner = Runner(program, mine, models.loss, group=group)
        for step, rows in enumerate(ROWS):
            inputs, targets = batch_of(program, step, rows)
            announced = 0
            found = runner.step(inputs if 0 in mine else None, targets if program.n_stages - 1 in mine else None)
            losses.append([one.item() for one in found])
            counts.append(announced)
    finally:
        transport.TAGGED.add("gloo")
        transport.Transport.announce = announce  # type: ignore[method-assign]
        vars(known_shapes)["MOST_KNOWN"] = most_known
    return losses, {name: one.numpy() for name, one in models.gradients(mine).items()}, counts


def expected_of(target: str, devices: int, make: str) -> tuple[list[list[float]], dict[str, Tensor]]:
    """Losses and gradients of one process that runs whole microbatches."""
    program = pipec.compile(target, devices=devices, microbatches=4)
    modules = getattr(models, make)(program)
    losses = []
    for step, rows in enumerate(ROWS):
        inputs, targets = batch_of(program, step, rows)
        of_step = []
        for output, target_of in zip(inputs.split(rows), targets.split(rows)):
            for stage in range(program.n_stages):
                output = models.whole(modules[stage], [output])
            loss = models.loss(output, target_of)
            (loss * (program.n_slices / program.n_microbatches)).backward()
            of_step.append(loss.item())
        losses.append(of_step)
    return losses, models.gradients(modules)


@pytest.mark.parametrize(
    ("target", "devices", "make", "has_tags"),
    [
        ("std:1f1b", 2, "chain", True),
        ("std:1f1b", 2, "chain", False),
        ("std:zb_h1", 2, "chain", True),
        ("std:v_half", 2, "chain", False),
        ("std:chimera", 2, "chain", True),
        ("std:interleaved_1f1b", 1, "chain", True),
        ("std:interleaved_1f1b", 4, "chain", True),
        ("std:seq_1f1b", 2, "sequences", True),
    ],
)
def test_shapes_change_from_step_to_step(
    cluster: Cluster, target: str, devices: int, make: str, has_tags: bool
) -> None:
    needs_groups_within_a_group(not has_tags or target == "std:chimera")
    losses, gradients = expected_of(target, devices, make)
    answers = cluster.run(train, devices, target, devices, make, has_tags, known_shapes.MOST_KNOWN)
    for step, of_step in enumerate(losses):
        found = [one for of_rank, _, _ in answers for one in of_rank[step]]
        assert sum(found) / len(found) == pytest.approx(sum(of_step) / len(of_step), rel=1e-6)
    for rank, (_, mine, counts) in enumerate(answers):
        for name, array in mine.items():
            torch.testing.assert_close(
                torch.from_numpy(array), gradients[name], rtol=1e-5, atol=1e-7, msg=f"rank {rank} {name}"
            )
        # What has the shapes of an earlier step is announced no more.
        assert [count > 0 for count in counts] == [
            devices > 1 and rows not in ROWS[:step] for step, rows in enumerate(ROWS)
        ]


def test_what_is_known_is_limited(cluster: Cluster) -> None:
    for _, _, counts in cluster.run(train, 2, "std:1f1b", 2, "chain", True, 1):
        assert all(count > 0 for count in counts), "every step has other shapes than the one before"


class _Masked(nn.Module):
    """Hands a mask on, where it gets one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = models.First()

    def forward(self, symbols: Tensor, mask: Tensor | None = None) -> dict[str, Tensor | None]:
        return {"state": self.first(symbols), "mask": mask}


class _Masking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = models.Last()

    def forward(self, flowing: dict[str, Tensor]) -> Tensor:
        mask = flowing["mask"]
        found: Tensor = self.last(flowing["state"] if mask is None else flowing["state"] * mask[:, None])
        return found


def masked(rank: int, group: Any) -> list[list[float]]:
    """The losses of steps with and without a mask of ones, in turns."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=4)
    torch.manual_seed(0)
    modules = {0: _Masked(), 1: _Masking()}
    runner = Runner(program, {rank: modules[rank]}, models.loss, group=group)
    symbols, targets = models.batch(program, 3)
    given: list[Any] = [{"symbols": symbols}, {"symbols": symbols, "mask": torch.ones(len(symbols))}]
    return [[one.item() for one in runner.step(given[number % 2], targets)] for number in range(4)]


def test_what_flows_may_be_more_in_some_steps(cluster: Cluster) -> None:
    first, last = cluster.run(masked, 2)
    assert first == [[]] * 4
    assert last == [last[0]] * 4 and len(last[0]) == 4
