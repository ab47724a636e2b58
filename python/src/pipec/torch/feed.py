"""Hands the batch of a step to the stages of a rank, and says what is missing before the step begins."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import StageError
from ..program import Program
from .batches import Batch, Batches, Given, cut, cut_inputs, is_by_stage, shares_of, to_device
from .stage.tasks import LossFunction, StageTasks


class Feed:
    """The stages of a rank, as far as they take inputs and targets."""

    def __init__(
        self,
        program: Program,
        rank: int,
        stages: Mapping[int, StageTasks],
        loss_fn: LossFunction | None,
        device: torch.device,
    ) -> None:
        self._program = program
        self._rank = rank
        self._stages = stages
        self._device = device
        self._runs = {index: program.microbatches(index, rank) for index in stages}
        self._needs_targets = loss_fn is not None and not _takes_output_alone(loss_fn)

    def require_known_stages(self, inputs: Batches) -> None:
        """Checks that inputs by stage are for stages of the program.

        Raises:
            StageError: They are not.
        """
        if is_by_stage(inputs):
            unknown = [stage for stage in inputs if not 0 <= stage < self._program.n_stages]
            if unknown:
                raise StageError(
                    f"inputs for stages {unknown}, but `{self._program.name}` has {self._program.n_stages}"
                )

    def give(self, inputs: Batches, targets: Batch, limit: int, needs_targets: bool) -> None:
        """Hands a batch to the stages, as far as the microbatch `limit`.

        Raises:
            StageError: Something is missing, or does not divide.
        """
        for tasks in self._stages.values():
            tasks.inputs = [Given()] * self._program.n_microbatches
            tasks.targets = [None] * self._program.n_microbatches
        for index, microbatch, entry, goal in self.found(inputs, targets, limit, needs_targets):
            tasks = self._stages[index]
            tasks.inputs[microbatch] = to_device(entry, self._device)
            if goal is not None:
                tasks.targets[microbatch] = to_device(goal, self._device)

    def found(
        self, inputs: Batches, targets: Batch, limit: int, needs_targets: bool
    ) -> list[tuple[int, int, Given, Given | None]]:
        """The stages that take something of a batch, the microbatch, and its inputs and targets."""
        count, shares = self._program.n_microbatches, shares_of(self._program)
        goals = cut(targets, count, "targets", shares)
        found = []
        for index, tasks in self._stages.items():
            stage = tasks.stage
            given = cut_inputs(inputs, count, index, stage.is_first, shares)
            if not (stage.is_first or stage.is_last or is_by_stage(inputs)):
                continue
            for microbatch in (one for one in self._runs[index] if one < limit):
                entry, goal = given[microbatch], None
                if entry is None and stage.is_first:
                    raise StageError(
                        f"rank {self._rank} runs stage {index}, which takes inputs, but has none of microbatch "
                        f"{microbatch}"
                    )
                if stage.is_last and needs_targets:
                    goal = goals[microbatch]
                    if goal is None and (targets is not None or self._needs_targets):
                        raise StageError(
                            f"rank {self._rank} runs stage {index}, which computes the loss, but has no targets of "
                            f"microbatch {microbatch}"
                        )
                    goal = goal or Given()
                found.append((index, microbatch, entry or Given(), goal))
        return found

    def weigh(self, weights: float | Sequence[float] | Tensor | None) -> None:
        """Hands the weights of the losses to the stages.

        Raises:
            StageError: There are too few, or too many.
        """
        count = self._program.n_microbatches
        said = weights.tolist() if isinstance(weights, Tensor) else weights
        each = [float(said)] * count if isinstance(said, (int, float)) else said
        if each is not None and len(each) != count:
            raise StageError(f"weights are {len(each)} numbers, but the program has {count} microbatches")
        for tasks in self._stages.values():
            tasks.weights = None if each is None else [float(one) for one in each]


def _takes_output_alone(loss_fn: LossFunction) -> bool:
    """Whether a loss can be called without targets, as far as its signature says."""
    called: Any = loss_fn.forward if isinstance(loss_fn, nn.Module) else loss_fn
    try:
        inspect.signature(called).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
