"""Which modules with data parallelism of their own a program can run: the others would learn wrong gradients without an error."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from ...errors import StageError
from ...instructions import CollStart, CopyStart, GatherStart, SendStart
from ...program import Program

try:
    from torch.distributed._composable.contract import _get_registry
except ImportError:  # The composable `replicate` of this torch has no registry to ask.
    _get_registry = None  # type: ignore[assignment]


def refuse_wrappers(program: Program, device: int, stages: Mapping[int, nn.Module]) -> None:
    """Refuses stages whose data parallelism synchronises gradients at the wrong backward.

    `DistributedDataParallel` counts one backward for each forward, so it averages gradients that are incomplete. `fully_shard` expects a
    backward to be one pass over its module, which `B` and `W` are not, and its weights are no whole tensors that replicas could add up or
    divide.

    Raises:
        StageError: A module of a stage is wrapped so.
    """
    needs = _needs_whole_weights(program, device)
    for index, module in stages.items():
        for path, inner in module.named_modules():
            where = f"the module of stage {index}" if path == "" else f"`{path}` in the module of stage {index}"
            if isinstance(inner, (DistributedDataParallel, FullyShardedDataParallel)) or _is_replicated(inner):
                name = "replicate" if _is_replicated(inner) else type(inner).__name__
                raise StageError(
                    f"{where} is wrapped in {name}, which averages gradients before all microbatches have added to them: "
                    "pass the module itself, and average its gradients after `step` (dist.all_reduce), or let the schedule have replicas "
                    "(`std:dp_1f1b`)"
                )
            if not isinstance(inner, FSDPModule):
                continue
            if "W" in program.stages[index].kinds:
                raise StageError(
                    f"{where} is sharded by fully_shard, but `{program.name}` splits the backward of stage {index} into `B` and `W`: "
                    "fully_shard would reduce incomplete gradients. Use a schedule with fused backwards, such as `std:1f1b`"
                )
            if needs is not None:
                raise StageError(
                    f"{where} is sharded by fully_shard, but `{program.name}` needs whole weights: {needs}"
                )


def _is_replicated(module: nn.Module) -> bool:
    """Whether the composable `replicate` was applied, which hooks a `DistributedDataParallel` to the module."""
    return _get_registry is not None and "replicate" in (_get_registry(module) or ())


def _needs_whole_weights(program: Program, device: int) -> str | None:
    """What a device adds up, divides, moves or keeps in versions, which takes weights that are whole tensors: an instruction, as a text."""
    if program.n_steps > 1:
        return f"{program.n_steps} steps in one list, with a version of the weights for each"
    for one in program.devices[device].step:
        is_sum = isinstance(one, SendStart) and one.kind == "sum"
        if is_sum or isinstance(one, (CollStart, CopyStart, GatherStart)):
            return f"`{program.text(one)}`"
    return None
