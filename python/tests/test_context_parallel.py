"""Sequences that several ranks share: attention gathers the keys and values of all parts. Gradients are those of one
process, whatever the schedule.
"""

from __future__ import annotations

from typing import Any

import models
import pytest
import torch
from cluster import Cluster
from models import WIDTH
from test_data_parallel import mesh_of
from test_gradients import sized
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

import pipec
from pipec import Program, Runner

LENGTH = 8
# The old name is deprecated from torch 2.15 on.
_gathered: Any = getattr(collectives, "all_gather_single_autograd", None) or collectives.all_gather_tensor_autograd


class Gathering(nn.Module):
    """Causal attention of a part of a sequence to all parts before it, and to itself."""

    def __init__(self, context: DeviceMesh | None) -> None:
        super().__init__()
        self.mix, self.block = nn.Linear(WIDTH, 3 * WIDTH), models.Middle()
        self.context = context

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mix(x).chunk(3, -1)
        before = 0
        if self.context is not None:
            group = self.context.get_group()
            before = self.context.get_local_rank() * x.shape[1]
            # Several tensors as one: every rank joins in as many collectives, in the same order.
            both = _gathered(torch.cat([key, value], -1).contiguous(), 1, group)
            key, value = both.chunk(2, -1)
        is_later = torch.ones(x.shape[1], key.shape[1]).triu(before + 1).bool()
        scores = (query @ key.transpose(1, 2)).masked_fill(is_later, float("-inf"))
        found: Tensor = self.block(x + scores.softmax(-1) @ value)
        return found


def stages_of(program: Program, context: DeviceMesh | None) -> dict[int, nn.Module]:
    """Attention in every stage, in double precision."""
    torch.manual_seed(5)
    made: dict[int, nn.Module] = {}
    for stage in program.stages:
        ends = [models.First()] if stage.is_first else [], [models.Last()] if stage.is_last else []
        made[stage.index] = nn.Sequential(*ends[0], Gathering(context), *ends[1]).double()
    return made


def loss(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean over the tokens of a part."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def errors(rank: int, group: Any, text: str) -> list[float]:
    """The errors of gradients, relative to the largest number of their tensors, and of the mean loss."""
    mesh = mesh_of("context", "pipe")
    program = pipec.loads(text)
    mine: dict[int, nn.Module] = {}
    for stage, module in stages_of(program, mesh["context"]).items():
        if stage in program.stages_on(mesh["pipe"].get_local_rank()):
            mine[stage] = DistributedDataParallel(module, process_group=mesh["context"].get_group())
    runner = Runner(program, mine, loss, group=mesh["pipe"])
    drawn = torch.randint(models.SYMBOLS, (2, 2 * program.n_microbatches, LENGTH), generator=torch.manual_seed(3))
    part = slice(mesh["context"].get_local_rank() * LENGTH // 2, (mesh["context"].get_local_rank() + 1) * LENGTH // 2)
    for _ in range(2):
        losses = runner.step(drawn[0][:, part], drawn[1][:, part])
    mean = torch.tensor(runner.mean_loss(losses), dtype=torch.float64)
    torch.distributed.all_reduce(mean, group=mesh["context"].get_group())

    whole = stages_of(program, None)
    model = nn.Sequential(*(whole[stage] for stage in range(program.n_stages)))
    expected = loss(model(drawn[0]), drawn[1])
    (2 * expected).backward()
    gradients = models.gradients(whole)
    found = [abs(mean.item() / 2 - expected.item())]
    for name, one in models.gradients(mine).items():
        right = gradients[name.replace("module.", "", 1)]
        found.append(((one - right).abs().max() / right.abs().max()).item())
    return found


@pytest.mark.parametrize("target", ["std:1f1b", "std:v_half", "std:zb_h1"])
def test_gradients_of_parts_are_those_of_whole_sequences(cluster: Cluster, target: str) -> None:
    for found in cluster.run(errors, 4, sized(target, 2, 4)):
        assert len(found) > 9 and max(found) < 1e-10
