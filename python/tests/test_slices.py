"""Sequences that are cut in slices: losses and gradients are those of one process that takes whole sequences."""

from __future__ import annotations

from operator import mul

import models
import pytest
import scenes
import torch
import workers
from cluster import Cluster
from test_gradients import from_source, sized

import pipec
from pipec.torch.splitting.occupancy import held_at_once

UNEQUAL = """
    schedule unequal {
        stages 2
        slices SHARES
        place s on s % D
        order d {
            for m in 0..M {
                for s in 0..2 { for q in 0..Q { if s % D == d { F[s, m, q] } } }
                for s in 1..3 { for q in 1..Q + 1 { if s % D == d { B[2 - s, m, Q - q] } } }
                for s in 0..2 { for q in 0..Q { if s % D == d { W[s, m, q] } } }
            }
        }
    }
"""


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


def unequal(shares: str, devices: int, *options: str) -> str:
    """A program whose slices have several lengths."""
    sizes = ("--set", f"devices={devices}", "--set", "microbatches=2")
    return from_source(UNEQUAL.replace("SHARES", shares), *sizes, *options)


@pytest.mark.parametrize(
    ("devices", "shares", "options"), [(2, "[5, 4, 4, 3]", ()), (1, "[1, 3]", ("--recompute", "all"))]
)
def test_slices_of_several_lengths(cluster: Cluster, devices: int, shares: str, options: tuple[str, ...]) -> None:
    text = unequal(shares, devices, *options)
    program = pipec.loads(text)
    modules = {stage: module.double() for stage, module in models.sequences(program).items()}
    losses, gradients = models.reference(program, modules, [1, 2])
    answers = cluster.run(scenes.slices_of_several_lengths, devices, text)
    (*found, evaluated), _, is_free, _ = answers[-1]
    parts = [share / sum(program.slice_shares) for share in program.slice_shares]
    for of_step, expected in zip(found, losses):
        each = [of_step[first : first + len(parts)] for first in range(0, len(of_step), len(parts))]
        assert [sum(map(mul, parts, one)) for one in each] == pytest.approx(expected, rel=1e-10)
    assert evaluated == found[1] and not is_free
    assert [mean for _, mean, _, _ in answers] == pytest.approx([sum(losses[1]) / 2] * devices, rel=1e-10)
    for name, array in [one for *_, mine in answers for one in mine.items()]:
        torch.testing.assert_close(torch.from_numpy(array), gradients.pop(name), rtol=1e-10, atol=1e-14)
    assert not gradients


def test_losses_that_are_sums(cluster: Cluster) -> None:
    ((of_means, *of_sums),) = cluster.run(scenes.gradients_of_sums, 1, unequal("[1, 3]", 1))
    for found in of_sums:
        assert found == {name: pytest.approx(one, rel=1e-4, abs=1e-6) for name, one in of_means.items()}


def test_slices_held_are_those_that_the_compiler_counts() -> None:
    source = pipec.Source(UNEQUAL.replace("SHARES", "[5, 4, 4, 3]"), {"devices": 2, "microbatches": 2})
    peaks = [one.peak_activation for one in pipec.check(source).require().per_device]
    moments = held_at_once(pipec.compile(source))
    assert [max(sum(one.values()) for one in of_device) for of_device in moments] == pytest.approx(peaks)


def test_evaluation_of_slices(cluster: Cluster) -> None:
    before, losses = cluster.run(scenes.slices, 2, sized("std:seq_1f1b", 2, 2, "--set", "slices=2"))[1]
    assert before == losses and len(losses) == 4


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("slices_of_vectors", r"a microbatch of inputs of shape \[2\] cannot be cut into 2 equal slices"),
        ("slices_of_another_length", r"in proportion to 5, 4, 4, 3: .* must be a multiple of 16, such as 32"),
        ("slices_without_a_pair", "takes `carried` and returned Tensor, expected a pair"),
    ],
)
def test_mistakes_are_named(cluster: Cluster, scene: str, message: str) -> None:
    is_unequal = scene == "slices_of_another_length"
    text = unequal("[5, 4, 4, 3]", 1) if is_unequal else sized("std:seq_1f1b", 1, 2)
    with pytest.raises(AssertionError, match=message):
        cluster.run(scenes.mistake_in_slices, 1, scene, text)
