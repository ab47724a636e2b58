"""What the processes of the cluster run."""

from __future__ import annotations

from typing import Any

import models
import torch
import torch.distributed as dist

from pipec import Program, Runner, loads, transport


def train(
    rank: int, group: dist.ProcessGroup, text: str, make: str, seeds: list[int], options: dict[str, Any]
) -> tuple[list[list[float]], dict[str, Any]]:
    """Runs some steps without updates: the losses of each, and all gradients, as arrays."""
    program = loads(text)
    if options.pop("without_tags", False):
        transport.TAGGED.clear()
    try:
        return _train(rank, group, program, make, seeds, options)
    finally:
        transport.TAGGED.add("gloo")


def _train(
    rank: int, group: dist.ProcessGroup, program: Program, make: str, seeds: list[int], options: dict[str, Any]
) -> tuple[list[list[float]], dict[str, Any]]:
    modules = getattr(models, make)(program)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    runner = Runner(program, mine, models.loss, group=group, **options)
    losses = []
    for seed in seeds:
        torch.manual_seed(seed)
        inputs, targets = models.batch(program, seed)
        losses.append([one.item() for one in runner.step(inputs, targets)])
    return losses, {name: one.numpy() for name, one in models.gradients(mine).items()}
