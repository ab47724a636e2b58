"""Stages that a program freezes have no gradients, whatever their modules say; the others have those of one process."""

from __future__ import annotations

import models
import pytest
import scenes
import torch
import workers
from cluster import Cluster
from test_gradients import from_source

import pipec


def pipeline(line: str, devices: int = 4) -> str:
    """The program of a pipeline."""
    return from_source(f"pipeline p {{ devices {devices} microbatches 6 {line} }}")


@pytest.mark.parametrize(
    ("line", "frozen"),
    [
        ("schedule 1f1b frozen s if s < 2", {0, 1}),
        ("schedule 1f1b frozen s if s > 1", {2, 3}),
        ("schedule zb_h1 frozen s if s == 1", {1}),
        ("schedule gpipe frozen s if s != 1 recompute all", {0, 2, 3}),
        ("schedule v_half frozen s if s % 2 == 1", {1, 3, 5, 7}),
    ],
)
def test_frozen_stages_have_no_gradients(cluster: Cluster, line: str, frozen: set[int]) -> None:
    text = pipeline(line)
    program = pipec.loads(text)
    losses, gradients = models.reference(program, models.chain(program), [1, 2])
    answers = cluster.run(workers.train, program.n_devices, text, "chain", [1, 2], {})
    for step, expected in enumerate(losses):
        found = sorted(one for of_rank, _ in answers for one in of_rank[step])
        assert found == pytest.approx(sorted(expected), rel=1e-6)
    mine = {name: torch.from_numpy(array) for _, of_rank in answers for name, array in of_rank.items()}
    trained = {name for name in gradients if int(name.split(".")[0]) not in frozen}
    assert set(mine) == trained
    assert all(torch.equal(mine[name], gradients[name]) for name in trained)


@pytest.mark.parametrize("line", ["schedule v_half frozen all", "schedule 1f1b frozen s if s > 0"])
def test_nothing_is_left_of_a_step(cluster: Cluster, line: str) -> None:
    text = pipeline(line, devices=2)
    for waiting, _ in cluster.run(scenes.waiting_after_a_step, 2, text):
        assert waiting == 0


def test_forwards_alone_have_the_losses_of_an_evaluation(cluster: Cluster) -> None:
    answers = cluster.run(scenes.waiting_after_a_step, 2, pipeline("schedule zb_h1 frozen all", devices=2))
    program = pipec.loads(pipeline("schedule zb_h1", devices=2))
    ((*losses,), *_), _ = models.reference(program, models.chain(program), [3])
    assert [one for _, found in answers for one in found] == pytest.approx(losses, rel=1e-6)
