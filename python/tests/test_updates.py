"""Updates inside a program: what is learnt is what one process learns, whoever keeps which part of the weights and of
the optimizer's state.
"""

from __future__ import annotations

from typing import Any

import models
import pytest
import scenes
import torch
import workers
from cluster import Cluster, needs_groups_within_a_group
from test_gradients import EXAMPLES, from_source, sized

import pipec

PIPELINE = """
import std.models.gpt
pipeline small {{
    model gpt(vocab = 16, hidden = 8, heads = 2, blocks = {blocks}, sequence = 4, rows = 1)
    devices {devices}
    microbatches {microbatches}
    schedule {schedule}
    {more}
    train {{
        data synthetic
        steps 12
        optimizer adamw(learning_rate = 0.01)
    }}
}}
"""


def pipeline(schedule: str, devices: int, microbatches: int, more: str = "", blocks: int = 6) -> str:
    """The JSON text of a pipeline with a model; of it, only what is divided and moved matters here."""
    source = PIPELINE.format(schedule=schedule, devices=devices, microbatches=microbatches, more=more, blocks=blocks)
    return from_source(source)


def learns_alike(
    cluster: Cluster,
    text: str,
    make: str = "chain",
    optimizer: str = "adam",
    exact: bool = False,
    steps: int = 3,
    **options: Any,
) -> list[dict[str, int]]:
    """Runs some steps with updates, and compares losses and weights with one process; returns what each rank keeps."""
    program = pipec.loads(text)
    seeds = list(range(1, 1 + steps))
    modules = getattr(models, make)(program)
    models.tie(modules, options.get("tied", {}))
    reference = models.learnt if program.n_steps == 1 else models.stale
    losses, weights = reference(program, modules, seeds, getattr(models, optimizer))
    answers = cluster.run(workers.learn, program.n_devices, text, make, seeds, optimizer, options)
    for step in range(steps):
        found = sorted(one for of_rank, _, _ in answers for one in of_rank[step])
        assert found == pytest.approx(sorted(losses[step]), rel=1e-5)
    seen = set()
    for rank, (_, mine, _) in enumerate(answers):
        for name, array in mine.items():
            seen.add(name)
            got, expected = torch.from_numpy(array), weights[name]
            if exact:
                assert torch.equal(got, expected), f"rank {rank} {name}: {(got - expected).abs().max()}"
            else:
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, msg=f"rank {rank} {name}")
    assert seen == set(weights)
    return [kept for _, _, kept in answers]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_replicas_divide(cluster: Cluster, zero: int, optimizer: str) -> None:
    learns_alike(cluster, pipeline("dp_1f1b(replicas = 2)", 4, 4, f"zero {zero}"), optimizer=optimizer)


BREADTH = (
    "schedule breadth { stages 4 place s, m on m % D order d { let own = (M - d + D - 1) / D "
    "for s in 0..S { repeat own { F[s] } } for s in 0..S { repeat own { BW[S - 1 - s] } } } }\n"
)


@pytest.mark.parametrize("schedule", ["dp_1f1b(replicas = 2)", "chimera", "dualpipe", "breadth"])
def test_the_bits_do_not_depend_on_what_is_divided(cluster: Cluster, schedule: str) -> None:
    found = []
    for zero in range(4):
        text = from_source(
            (BREADTH if schedule == "breadth" else "")
            + PIPELINE.format(schedule=schedule, devices=4, microbatches=8, more=f"zero {zero}", blocks=6)
        )
        found.append(cluster.run(workers.learn, 4, text, "chain", [1, 2, 3], "adam", {}))
    for divided in found[1:]:
        for (losses, weights, _), (same_losses, same_weights, _) in zip(found[0], divided):
            assert losses == same_losses
            assert all((array == same_weights[name]).all() for name, array in weights.items())
    kept = [[kept for _, _, kept in answers] for answers in found]
    for whole, state, gradients, shares in zip(*kept):
        assert state["state"] == gradients["state"] == shares["state"] < whole["state"]
        assert shares["weights"] == 0 < whole["weights"]


@pytest.mark.parametrize("zero", [1, 3])
def test_tied_weights_are_divided(cluster: Cluster, zero: int) -> None:
    source = (EXAMPLES / "tied.pipe").read_text().replace("schedule v_half", "schedule dp_1f1b(replicas = 2)")
    text = from_source(source, "--set", "devices=4", "--zero", str(zero))
    assert pipec.loads(text).stages[1].weights_of == {0}
    learns_alike(cluster, text, "tied", tied={"1.weight": "0.table.weight"})


def test_ties_that_no_program_knows(cluster: Cluster) -> None:
    tied = {"3.weight": "0.table.weight"}
    learns_alike(cluster, sized("std:1f1b", 4, 4), "tied", "momentum", tied=tied)
    text = pipeline("1f1b", 4, 4)
    with pytest.raises(
        AssertionError, match=r"nor can the runner .*`run @U.* runs before it, because of `optimizer=`\)"
    ):
        cluster.run(workers.learn, 4, text, "tied", [1], "adam", {"tied": tied})


def test_evaluation_gathers_shares(cluster: Cluster) -> None:
    text = pipeline("chimera", 4, 4, "zero 3")
    for before, after in cluster.run(scenes.evaluation_of_shares, 4, text):
        assert before == after


def test_a_program_that_updates_in_a_step_asks_for_an_optimizer(cluster: Cluster) -> None:
    text = pipeline("dp_1f1b(replicas = 2)", 4, 4, "zero 1")
    with pytest.raises(AssertionError, match=r"updates weights inside a step .* give `optimizer=`"):
        cluster.run(workers.train, 4, text, "chain", [1], {})


def test_an_optimizer_may_run_behind_the_step_of_a_schedule_alone(cluster: Cluster) -> None:
    learns_alike(cluster, sized("std:zb_h1", 3, 5), exact=True)


PIPEDREAM = """
schedule pipedream {{
    require M >= 2
    stages D
    place s on s
    weights {weights}
    block every 3 {{
        F[s]  at s
        BW[s] at D + 2 * (D - 1 - s)
    }}
}}
"""


@pytest.mark.parametrize(("weights", "microbatches"), [("newest", 2), ("newest", 3), ("previous", 4)])
@pytest.mark.parametrize("recompute", [[], ["--recompute", "all"]])
def test_steps_that_run_on_read_the_versions_that_the_program_says(
    cluster: Cluster, weights: str, microbatches: int, recompute: list[str]
) -> None:
    source = PIPEDREAM.format(weights=weights)
    text = from_source(source, "--set", "devices=3", "--set", f"microbatches={microbatches}", *recompute)
    assert any(lag for row in pipec.loads(text).lags for lag in row)
    learns_alike(cluster, text, exact=True)


@pytest.mark.parametrize("fresh", [0, 1])
@pytest.mark.parametrize(("devices", "microbatches"), [(2, 4), (3, 3), (4, 4)])
def test_cyclic_data_parallelism(cluster: Cluster, devices: int, microbatches: int, fresh: int) -> None:
    needs_groups_within_a_group(devices < 4)
    learns_alike(cluster, sized("std:cyclic_dp", devices, microbatches, "--set", f"fresh={fresh}"), exact=True)


def test_halves_of_stale_steps(cluster: Cluster) -> None:
    source = """
        schedule halves {
            stages D
            place s on s
            weights newest
            block every 3 {
                F[s] at s
                B[s] at 2 * D - s
                W[s] fill
            }
        }
    """
    text = from_source(source, "--set", "devices=2", "--set", "microbatches=2")
    assert pipec.loads(text).stages[0].kinds == {"F", "B", "W", "U"}
    learns_alike(cluster, text, exact=True)


def test_versions_of_a_language_model_with_other_stages(cluster: Cluster) -> None:
    source = PIPEDREAM.format(weights="newest") + PIPELINE.format(
        schedule="pipedream", devices=3, microbatches=2, more="", blocks=6
    )
    learns_alike(cluster, from_source(source), exact=True)


@pytest.mark.parametrize(
    "what", ["optimizer", "parameters", "optimizer, parameters", "activations, optimizer, parameters"]
)
@pytest.mark.parametrize(("schedule", "devices"), [("interleaved_1f1b(chunks = 2)", 2), ("1f1b", 3)])
def test_state_that_lives_with_the_host(cluster: Cluster, schedule: str, devices: int, what: str) -> None:
    text = pipeline(schedule, devices, 4, f"offload {what}")
    assert "copy.start" in text
    learns_alike(cluster, text, exact=True)


@pytest.mark.parametrize("recompute", [[], ["--recompute", "all"]])
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_activations_that_wait_with_the_host(cluster: Cluster, schedule: str, recompute: list[str]) -> None:
    source = PIPELINE.format(schedule=schedule, devices=3, microbatches=6, more="offload activations", blocks=6)
    text = from_source(source, *recompute)
    assert "copy.start" in text
    learns_alike(cluster, text, exact=True)


def test_shares_of_state_live_with_the_host(cluster: Cluster) -> None:
    learns_alike(cluster, pipeline("chimera", 4, 4, "zero 1\n    offload optimizer"))
    learns_alike(cluster, pipeline("chimera", 4, 4, "zero 3\n    offload activations"))
