"""What the processes of the cluster run."""

from __future__ import annotations

from typing import Any

import models
import torch
import torch.distributed as dist

from pipec import Program, Runner, loads
from pipec.torch import transport


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


def learn(
    rank: int,
    group: dist.ProcessGroup,
    text: str,
    make: str,
    seeds: list[int],
    optimizer: str,
    options: dict[str, Any],
) -> tuple[list[list[float]], dict[str, Any], dict[str, int]]:
    """Runs some steps with updates: the losses of each, the weights at the end, and what the rank keeps, in numbers."""
    program = loads(text)
    modules = getattr(models, make)(program)
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    runner = Runner(program, mine, models.loss, group=group, optimizer=getattr(models, optimizer), **options)
    losses = []
    for seed in seeds:
        inputs, targets = models.batch(program, seed)
        losses.append([one.item() for one in runner.step(inputs, targets)])
        assert all(one.grad is None for one in runner.parameters())
    states = [one for made in runner.optimizers for state in made.state.values() for one in state.values()]
    kept = {
        "weights": sum(
            one.untyped_storage().size() for one in {id(p.untyped_storage()): p for p in runner.parameters()}.values()
        ),
        "state": sum(one.numel() for one in states if one.dim() > 0),
    }
    with runner.whole_weights():
        return losses, {name: one.numpy() for name, one in models.weights(mine).items()}, kept
