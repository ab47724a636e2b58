"""Sequences that are cut in slices: losses and gradients are those of one process that takes whole sequences."""

from __future__ import annotations

import models
import pytest
import scenes
import torch
import workers
from cluster import Cluster
from test_gradients import from_source, sized

import pipec


def slices_agree(cluster: Cluster, text: str) -> None:
    """Compares gradients and the mean of each microbatch's losses, of two steps."""
    program = pipec.loads(text)
    losses, gradients = models.reference(program, models.sequences(program), [1, 2])
    answers = cluster.run(workers.train, program.n_devices, text, "sequences", [1, 2], {})
    for step, expected in enumerate(losses):
        found = [one for of_rank, _ in answers for one in of_rank[step]]
        count = program.n_slices
        means = [sum(found[first : first + count]) / count for first in range(0, len(found), count)]
        assert means == pytest.approx(expected, rel=1e-5)
    seen = set()
    for rank, (_, mine) in enumerate(answers):
        for name, array in mine.items():
            seen.add(name)
            torch.testing.assert_close(
                torch.from_numpy(array), gradients[name], rtol=1e-4, atol=1e-6, msg=f"rank {rank} {name}"
            )
    assert seen == set(gradients)


@pytest.mark.parametrize(("devices", "microbatches", "slices"), [(2, 2, 2), (3, 3, 3), (4, 2, 4)])
def test_slices(cluster: Cluster, devices: int, microbatches: int, slices: int) -> None:
    slices_agree(cluster, sized("std:seq_1f1b", devices, microbatches, "--set", f"slices={slices}"))


def test_slices_that_are_recomputed(cluster: Cluster) -> None:
    slices_agree(cluster, sized("std:seq_1f1b", 2, 2, "--set", "slices=3", "--recompute", "all"))


def test_halves_of_slices(cluster: Cluster) -> None:
    source = """
        schedule halves {
            stages D
            slices 2
            place s on s
            order d {
                for m in 0..M {
                    for q in 0..2 { F[d, m, q] }
                    for q in 1..3 { B[d, m, 2 - q] }
                    for q in 0..2 { W[d, m, q] }
                }
            }
        }
    """
    slices_agree(cluster, from_source(source, "--set", "devices=2", "--set", "microbatches=3"))


def test_evaluation_of_slices(cluster: Cluster) -> None:
    before, losses = cluster.run(scenes.slices, 2, sized("std:seq_1f1b", 2, 2, "--set", "slices=2"))[1]
    assert before == losses and len(losses) == 4


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("slices_of_vectors", r"a microbatch of inputs of shape \[2\] cannot be cut into 2 equal slices"),
        ("slices_without_a_pair", "takes `carried` and returned Tensor, expected a pair"),
    ],
)
def test_mistakes_are_named(cluster: Cluster, scene: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        cluster.run(scenes.mistake_in_slices, 1, scene)
