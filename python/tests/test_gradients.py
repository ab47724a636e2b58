"""Whatever the schedule, the gradients are those of one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import models
import pytest
import torch
import workers
from cluster import OLD, Cluster

import pipec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def compiled(target: str, *options: str) -> str:
    """The JSON text of a program, as the workers read it."""
    command = [pipec.find_compiler(), "build", target, "--emit", "json", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def sized(target: str, devices: int, microbatches: int, *options: str) -> str:
    """The same for some numbers of devices and microbatches."""
    return compiled(target, "--set", f"devices={devices}", "--set", f"microbatches={microbatches}", *options)


def same(cluster: Cluster, text: str, make: str, exact: bool, steps: int = 2, **options: Any) -> None:
    """Runs some steps, and compares losses and accumulated gradients with one process."""
    program = pipec.loads(text)
    seeds = list(range(1, 1 + steps))
    modules = getattr(models, make)(program)
    models.tie(modules, options.get("tied", {}))
    losses, gradients = models.reference(program, modules, seeds)
    answers = cluster.run(workers.train, program.n_devices, text, make, seeds, options)
    for step in range(steps):
        found = sorted(one for of_rank, _ in answers for one in of_rank[step])
        assert found == pytest.approx(sorted(losses[step]), rel=1e-6)
    seen = set()
    for rank, (_, mine) in enumerate(answers):
        for name, array in mine.items():
            got = torch.from_numpy(array)
            expected = gradients.get(name, torch.zeros_like(got))
            seen.add(name)
            if exact:
                assert torch.equal(got, expected), f"rank {rank} {name}: {(got - expected).abs().max()}"
            else:
                torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7, msg=f"rank {rank} {name}")
    assert seen >= set(gradients)


@pytest.mark.parametrize(
    ("target", "devices", "microbatches"),
    [
        ("std:gpipe", 2, 3),
        ("std:1f1b", 4, 6),
        ("std:interleaved_1f1b", 2, 4),
        ("std:zb_h1", 3, 5),
        ("std:zb_v", 2, 4),
        ("std:v_half", 4, 8),
        ("std:dualpipe_v", 2, 4),
        ("std:hanayo", 2, 4),
    ],
)
def test_without_replicas_bits_are_equal(cluster: Cluster, target: str, devices: int, microbatches: int) -> None:
    same(cluster, sized(target, devices, microbatches), "chain", exact=True)


@pytest.mark.parametrize(
    ("target", "devices", "microbatches"),
    [("std:chimera", 4, 4), ("std:dp_1f1b", 4, 6), ("std:dualpipe", 4, 8)],
)
def test_replicas_add_up(cluster: Cluster, target: str, devices: int, microbatches: int) -> None:
    same(cluster, sized(target, devices, microbatches), "chain", exact=False, steps=3)


@pytest.mark.skipif(OLD, reason="torch before 2.15 cannot make groups within a group")
def test_replicas_within_a_group(cluster: Cluster) -> None:
    same(cluster, sized("std:dp_1f1b", 2, 5), "chain", exact=False, steps=3)


@pytest.mark.skipif(not OLD, reason="torch 2.15 can make groups within a group")
def test_replicas_within_a_group_are_refused(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="let all ranks run it"):
        cluster.run(workers.train, 2, sized("std:dp_1f1b", 2, 5), "chain", [1], {})


def test_more_than_two_replicas_have_the_same_bits(cluster: Cluster) -> None:
    source = "schedule all { stages 1 place s, m on m % D order d { repeat (M - d + D - 1) / D { F[0] BW[0] } } }"
    text = from_source(source, "--set", "devices=4", "--set", "microbatches=8")
    same(cluster, text, "chain", exact=False)
    answers = cluster.run(workers.train, 4, text, "chain", [1], {})
    for _, gradients in answers[1:]:
        for name, array in gradients.items():
            assert (array == answers[0][1][name]).all(), name


@pytest.mark.parametrize("target", ["std:interleaved_1f1b", "std:dualpipe_v", "std:chimera", "std:zb_v"])
def test_backends_without_tags_need_the_order_of_channels_alone(cluster: Cluster, target: str) -> None:
    exact = target != "std:chimera"
    same(cluster, sized(target, 4, 8), "pairs" if exact else "chain", exact=exact, without_tags=True)


def test_stages_anywhere(cluster: Cluster) -> None:
    source = """
        schedule odd {
            stages 5
            place s on (2 * s) % D
            order d {
                for m in 0..M { for s in 0..S { if (2 * s) % D == d { F[s, m] } } }
                for m in 0..M { for k in 1..S + 1 { if (2 * (S - k)) % D == d { BW[S - k, m] } } }
            }
        }
    """
    same(cluster, from_source(source, "--set", "devices=3", "--set", "microbatches=3"), "chain", exact=True)


def test_halves_that_run_at_once(cluster: Cluster) -> None:
    text = compiled(str(EXAMPLES.parent / "tests" / "ir" / "lower" / "joined_halves.pipe"))
    assert [stage.kinds for stage in pipec.loads(text).stages] == [{"F", "BW", "U"}, {"F", "B", "W", "U"}]
    same(cluster, text, "chain", exact=True)


def from_source(source: str, *options: str) -> str:
    command = [pipec.find_compiler(), "build", "-", "--emit", "json", *options]
    ended = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_skip_connections(cluster: Cluster) -> None:
    text = compiled(str(EXAMPLES / "unet.pipe"), "--set", "microbatches=4")
    assert any(len(stage.reads) > 1 for stage in pipec.loads(text).stages)
    same(cluster, text, "graph", exact=True)


def test_branches(cluster: Cluster) -> None:
    same(cluster, compiled(str(EXAMPLES / "two_tower.pipe"), "--set", "microbatches=4"), "graph", exact=True)


def test_tied_weights_on_one_device(cluster: Cluster) -> None:
    text = compiled(str(EXAMPLES / "tied.pipe"))
    same(cluster, text, "tied", exact=False, tied={"3.weight": "0.table.weight"})


def test_tied_weights_on_two_devices(cluster: Cluster) -> None:
    source = (EXAMPLES / "tied.pipe").read_text().replace("schedule v_half", "schedule 1f1b")
    text = from_source(source, "--set", "devices=4")
    assert pipec.loads(text).stages[3].weights_of == {0}
    same(cluster, text, "tied", exact=False, tied={"3.weight": "0.table.weight"})


@pytest.mark.parametrize(
    ("target", "devices", "tied"),
    [
        ("std:zb_h1", 4, {"3.weight": "0.table.weight"}),
        ("std:dp_1f1b", 4, {"1.weight": "0.table.weight"}),
    ],
)
def test_ties_that_no_program_knows(cluster: Cluster, target: str, devices: int, tied: dict[str, str]) -> None:
    text = sized(target, devices, 4)
    assert not any(stage.weights_of for stage in pipec.loads(text).stages)
    same(cluster, text, "tied", exact=False, steps=3, tied=tied)


@pytest.mark.parametrize("target", ["std:1f1b", "std:zb_h1"])
def test_recomputation_draws_the_same_random_numbers(cluster: Cluster, target: str) -> None:
    plain, again = sized(target, 2, 4), sized(target, 2, 4, "--recompute", "all")
    same(cluster, again, "chain", exact=True)
    before = cluster.run(workers.train, 2, plain, "noisy", [1, 2], {})
    pipeline = f"pipeline p {{ devices 2 microbatches 4 schedule {target[4:]} recompute F[s, m] if s != m % 2 }}"
    some = from_source(pipeline)
    assert {exec.name for exec in pipec.loads(some).execs} >= {"@F.s0", "@F.s0.r", "@R.s0"}
    for text in (again, some):
        after = cluster.run(workers.train, 2, text, "noisy", [1, 2], {})
        assert [losses for losses, _ in before] == [losses for losses, _ in after]
        for (_, expected), (_, found) in zip(before, after):
            for name, array in expected.items():
                assert (array == found[name]).all(), name


def test_several_tensors_flow_along_an_edge(cluster: Cluster) -> None:
    same(cluster, sized("std:zb_h1", 3, 4), "pairs", exact=True)
    same(cluster, sized("std:1f1b", 3, 4, "--recompute", "all"), "pairs", exact=True)


def test_the_sum_instead_of_the_mean(cluster: Cluster) -> None:
    text = sized("std:1f1b", 2, 4)
    ((_, mean), _), ((_, total), _) = (
        cluster.run(workers.train, 2, text, "chain", [1], {"average": average}) for average in (True, False)
    )
    for name, array in mean.items():
        assert total[name] == pytest.approx(4 * array)


def test_json_is_what_the_compiler_writes() -> None:
    assert json.loads(sized("std:1f1b", 2, 2))["schema"] == "pipec.program/1"
