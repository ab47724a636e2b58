"""Ranks that could not run together are told so when their runners are made, and ranks that stand still say where."""

from __future__ import annotations

import re
import sys
import time
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import models
import pytest
import scenes
import torch
from cluster import Cluster
from torch import Tensor, nn

import pipec


def difference(rank: int, group: Any, of_others: dict[str, Any], of_last: dict[str, Any]) -> tuple[str, str]:
    """What is said where the last rank has another program, or other settings."""
    given = {"target": "std:1f1b", "devices": 4, "microbatches": 4, **(of_last if rank == 3 else of_others)}
    program = pipec.compile(given.pop("target"), **{name: given.pop(name) for name in ("devices", "microbatches")})
    modules = {stage: nn.Linear(1, 1) for stage in program.stages_on(min(rank, program.n_devices - 1))}
    try:
        pipec.Runner(program, modules, models.loss, group=group, **given)
    except pipec.PipecError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize(
    ("of_last", "kind", "message"),
    [
        (
            {"microbatches": 8},
            "ProgramError",
            r"the number of microbatches is 4 on ranks 0, 1 and 2, 8 on rank 3\. Compile",
        ),
        (
            {"devices": 2},
            "ProgramError",
            "the number of devices is 4 on ranks 0, 1 and 2, 2 on rank 3; the number of st",
        ),
        (
            {"target": "std:zb_h1"},
            "ProgramError",
            r"the name is `1f1b` on ranks 0, 1 and 2, `zb_h1` on rank 3; .*the list of d0 differs between ranks 0, 1 and 2 and rank 3",
        ),
        (
            {"average": False},
            "StageError",
            r"different settings: average= is True on ranks 0, 1 and 2, False on rank 3",
        ),
        ({"device": "cuda"}, "StageError", "gloo carries tensors of the CPU, not of `cuda`"),
    ],
)
def test_what_differs_is_named_on_every_rank(
    cluster: Cluster, of_last: dict[str, Any], kind: str, message: str
) -> None:
    for found, said in cluster.run(difference, 4, {}, of_last):
        assert found == kind and re.search(message, said), said


def test_a_failure_of_one_rank_is_that_of_all(cluster: Cluster) -> None:
    *others, (_, last) = cluster.run(difference, 4, {}, {"device": "cuda"})
    assert last.startswith("gloo carries")
    for _, said in others:
        assert said.startswith("rank 3 cannot make its runner: gloo carries")


def loss_of_some(rank: int, group: Any, ranks: list[int]) -> str:
    """What is said where only some ranks give a loss function."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=2)
    try:
        loss_fn = models.loss if rank in ranks else None
        scenes.runner_of(program, rank, group, models.chain(program), loss_fn=loss_fn)
    except pipec.StageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("ranks", [[], [1], [0, 1]])
def test_only_the_last_stage_needs_a_loss(cluster: Cluster, ranks: list[int]) -> None:
    assert cluster.run(loss_of_some, 2, ranks) == ["", ""]


def test_a_last_stage_without_a_loss_is_named_on_all_ranks(cluster: Cluster) -> None:
    said = "rank 1 has the last stage, but no loss_fn: rank 0 has one; give it to all ranks"
    assert cluster.run(loss_of_some, 2, [0]) == [said, said]


def wrong_types(rank: int, group: Any) -> list[tuple[str, str]]:
    """What is said of arguments of other types, by the first rank and by the other."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=2)
    mine = {stage: models.chain(program)[stage] for stage in program.stages_on(rank)}
    optimizer = torch.optim.SGD(mine[rank].parameters(), lr=0.1)
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        ("std:1f1b", mine, {}),
        (program, list(mine.values()), {}),
        (program, {rank: "module"}, {}),
        (program, mine, {"optimizer": optimizer}),
        (program, mine, {"loss_fn": "loss"}),
        (program, mine, {"names": "layers"}),
        # A mistake of one rank is told to the other one.
        (program, list(mine.values()) if rank == 0 else mine, {}),
    ]
    said = []
    for given, stages, options in cases:
        try:
            pipec.Runner(given, stages, group=group, **options)
        except (TypeError, pipec.StageError) as error:
            said.append((type(error).__name__, str(error)))
    return said


def test_arguments_of_wrong_types_are_named(cluster: Cluster) -> None:
    first, other = cluster.run(wrong_types, 2)
    expected = [
        'the first argument is a str, expected a `Program`: compile it first, `pipec.compile("std:1f1b", devices=',
        "stages are a list, expected a dict of modules by stage, such as `{0: module}`",
        "stages have a str for 0, expected an `nn.Module` for the number of its stage",
        "`optimizer=` is an instance of `SGD`, expected a function or class that makes one from parameters, such as "
        "`partial(SGD, lr=..)`",
        "`loss_fn` is a str, expected a function of output and targets",
        "`names=` is a str, expected a dict by stage",
        "stages are a list",
    ]
    assert [kind for kind, _ in first] == ["TypeError"] * len(expected)
    for (_, said), start in zip(first, expected):
        assert said.startswith(start), said
    assert other[-1][0] == "StageError"
    assert other[-1][1].startswith("rank 0 cannot make its runner: TypeError: stages are a list")


class _Slow(nn.Module):
    """Sleeps in its second forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = models.Last()
        self.n_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n_calls += 1
        time.sleep(0.8 if self.n_calls == 2 else 0)
        found: Tensor = self.inner(x)
        return found


def standing_still(rank: int, group: Any) -> str:
    """What ranks print where the last stage takes long for a microbatch."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=4)
    mine = {0: models.First()} if rank == 0 else {1: _Slow()}
    runner = pipec.Runner(program, mine, models.loss, group=group, patience=0.3)
    with redirect_stderr(StringIO()) as said:
        runner.step(*models.batch(program, 1))
    return said.getvalue()


def test_ranks_that_stand_still_say_where(cluster: Cluster) -> None:
    first, last = cluster.run(standing_still, 2)
    assert re.match(
        r"pipec: for \d s, rank 1 computes at instruction \d+, `run @F.s1 m1 .*` \(step 1 of `1f1b`\)\n", last
    ), last
    waits = r"pipec: for \d s, rank 0 waits at instruction \d+, `wait !\d+`, for `recv.start %\d+ = gradient.s0 m1 from d1 gradient -> !\d+`"
    assert re.match(waits + r", which rank 1 sends at its instruction \d+ \(step 1 of", first), first


def late(rank: int, group: Any) -> str:
    """What a rank prints that begins a step sooner than the other one."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=4)
    runner = scenes.runner_of(program, rank, group, models.chain(program), patience=0.3)
    with redirect_stderr(StringIO()) as said:
        time.sleep(0.8 if rank == 0 else 0)
        runner.step(*models.batch(program, 1))
    return said.getvalue()


def test_ranks_that_are_early_say_so(cluster: Cluster) -> None:
    _, last = cluster.run(late, 2)
    assert re.match(r"pipec: for \d s, rank 1 waits for the other ranks to begin the step \(step 1 of", last), last


class _Breaks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("on purpose")


def error_in_a_module(rank: int, group: Any) -> list[str]:
    """The notes of an error that a module raises."""
    program = pipec.compile("std:gpipe", devices=1, microbatches=2)
    runner = scenes.runner_of(program, rank, group, {0: _Breaks()}, device="cpu")
    try:
        runner.step(torch.zeros(2), torch.zeros(2))
    except ValueError as error:
        return getattr(error, "__notes__", [])
    return []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_errors_carry_their_instruction(cluster: Cluster) -> None:
    ((note,),) = cluster.run(error_in_a_module, 1)
    assert re.match(r"in `gpipe`, where rank 0 computes at instruction \d+, `run @F.s0 m0 ", note), note
