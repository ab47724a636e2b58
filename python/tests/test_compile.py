"""Stages that `torch.compile` has compiled: every schedule, once for all microbatches, whatever their number of
rows.
"""

from __future__ import annotations

from typing import Any

import models
import pytest
import torch
from cluster import ALL, Cluster
from test_gradients import sized

import pipec
from pipec import Runner


def compiled(rank: int, group: Any, text: str, backend: str) -> tuple[float, float, list[float]]:
    """The largest relative error of a gradient, how many graphs a stage was compiled to, and what part of each stage
    waits for `W`.
    """
    import torch._dynamo.utils as dynamo

    torch._dynamo.reset()
    dynamo.counters.clear()
    program = pipec.loads(text)
    modules = models.chain(program)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    for module in mine.values():
        module.compile(backend=backend, dynamic=True)
    runner = Runner(program, mine, models.loss, group=group)
    whole = models.chain(program)
    for seed in (3, 4):
        inputs, targets = models.batch(program, seed)
        runner.step([one.clone() for one in inputs.split(models.ROWS)], targets)
    models.reference(program, whole, [3, 4])
    # Not views of one tensor: dynamo compiles once more where the size of what they are views of has changed.
    rows = [torch.arange(first, first + models.ROWS + 1) for first in range(program.n_microbatches)]
    runner.step(rows, rows)
    for one in rows:
        output = one
        for module in whole.values():
            output = module(output)
        (models.loss(output, one) / program.n_microbatches).backward()
    expected = models.gradients(whole)
    errors = []
    for name, one in models.gradients(mine).items():
        errors.append(((one - expected[name]).abs().max() / expected[name].abs().max()).item())
    n_graphs = dynamo.counters["stats"]["unique_graphs"] / len(mine)
    return max(errors), n_graphs, [one.later for one in runner.split_report()]


def right(cluster: Cluster, target: str, backend: str) -> None:
    """Compares with one process."""
    for error, n_graphs, later in cluster.run(compiled, 2, sized(target, 2, 4), backend):
        assert error < 1e-5 and 0 < n_graphs <= 1, (error, n_graphs)  # Equal stages share a graph.
        assert set(later) <= {0.0, 1.0}, (
            "a compiled graph computes all of its gradients at once, in the first stage later"
        )


@ALL
def test_compiled_stages(cluster: Cluster) -> None:
    right(cluster, "std:zb_h1", "aot_eager")


@ALL
@pytest.mark.parametrize("target", ["std:1f1b", "std:v_half", "std:interleaved_1f1b", "std:zb_v"])
def test_compiled_stages_of_any_schedule(cluster: Cluster, target: str) -> None:
    right(cluster, target, "aot_eager")


@ALL
@pytest.mark.parametrize("target", ["std:1f1b", "std:zb_h1", "std:v_half"])
def test_stages_that_inductor_has_compiled(cluster: Cluster, target: str) -> None:
    right(cluster, target, "inductor")
