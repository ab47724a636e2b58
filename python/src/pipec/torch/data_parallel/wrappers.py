"""Which modules with data parallelism of their own the stages have, and which of them a program cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from ...errors import StageError
from ...instructions import CollStart, CopyStart, Fill, GatherStart, Run, SendStart
from ...program import Program
from .averaging import refuse_options

try:
    from torch.distributed._composable.contract import _get_registry
except ImportError:  # The composable `replicate` of this torch has no registry to ask.
    _get_registry = None  # type: ignore[assignment]

_OF_WEIGHTS = {"parameters", "parameter_gradients", "optimizer_state"}


@dataclass(frozen=True)
class Wrapped:
    """The outermost wrappers in the module of a stage."""

    replicated: tuple[nn.Module, ...]
    """Modules of `DistributedDataParallel`, or to which the composable `replicate` was applied that hooks one to
    them.
    """
    sharded: tuple[FSDPModule, ...]
    """Those that `fully_shard`, or the `replicate` that is built on it, has changed."""


def find_wrappers(
    program: Program, device: int, stages: Mapping[int, nn.Module], tied: Mapping[str, str]
) -> dict[int, Wrapped]:
    """Finds the wrappers of a rank's stages, by stage.

    Raises:
        StageError: The program or the runner does with the weights what a wrapper does not allow.
    """
    found: dict[int, Wrapped] = {}
    for index, module in stages.items():
        replicated: list[nn.Module] = []
        sharded: list[FSDPModule] = []
        for path, inner in _outermost(module, ""):
            where = f"the module of stage {index}" if path == "" else f"`{path}` in the module of stage {index}"
            if isinstance(inner, FullyShardedDataParallel):
                raise StageError(
                    f"{where} is wrapped in FullyShardedDataParallel, which reduces gradients after every backward: "
                    "shard it with fully_shard"
                )
            is_sharded = isinstance(inner, FSDPModule)
            by = "is sharded by fully_shard" if is_sharded else f"is wrapped in {_name(inner)}"
            needs = _whole_weights(program, device, is_sharded)
            if needs is not None:
                raise StageError(f"{where} {by}, but `{program.name}` needs whole weights: {needs}")
            if isinstance(inner, FSDPModule):
                _refuse_ties(program, index, where, tied)
                sharded.append(inner)
            else:
                if isinstance(inner, DistributedDataParallel):
                    refuse_options(inner)
                replicated.append(inner)
        found[index] = Wrapped(tuple(replicated), tuple(sharded))
    return found


def _outermost(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Wrapped modules that are not inside of others, with their paths."""
    if is_replicated(module) or isinstance(module, (DistributedDataParallel, FSDPModule, FullyShardedDataParallel)):
        yield path, module
        return
    for name, child in module.named_children():
        yield from _outermost(child, f"{path}.{name}" if path else name)


def is_replicated(module: nn.Module) -> bool:
    """Whether the composable `replicate` was applied, which hooks a `DistributedDataParallel` to the module."""
    if _get_registry is None or isinstance(module, FSDPModule):
        return False
    return "replicate" in (_get_registry(module) or ())


def _name(module: nn.Module) -> str:
    return "replicate" if is_replicated(module) else type(module).__name__


def _refuse_ties(program: Program, stage: int, where: str, tied: Mapping[str, str]) -> None:
    ends = {name.partition(".")[0] for pair in tied.items() for name in pair}
    if str(stage) in ends or program.stages[stage].weights_of:
        raise StageError(
            f"{where} is sharded by fully_shard, but the stage has tied weights, which are one tensor only while they are whole: "
            "tie them inside of one stage, or replicate the stage with DistributedDataParallel"
        )


def _whole_weights(program: Program, device: int, is_sharded: bool) -> str | None:
    """What a device divides, moves or keeps in versions, which takes weights that are whole tensors: an instruction, as
    a text.

    Gradients of whole weights may be added up by the program and by a wrapper; those of shards are elsewhere.
    """
    if program.n_steps > 1:
        return f"{program.n_steps} steps in one list, with a version of the weights for each"
    holds: dict[int, int] = {}
    for one in (*program.devices[device].setup, *program.devices[device].step):
        if isinstance(one, Fill):
            holds[one.buffer] = one.value
        elif isinstance(one, Run):
            written = zip(program.execs[one.exec].operands, one.buffers)
            holds.update((buffer, operand.value) for operand, buffer in written if operand.access == "write")
        needs = isinstance(one, GatherStart) or (isinstance(one, SendStart) and one.kind == "sum")
        needs |= isinstance(one, CollStart) and (is_sharded or one.collective != "all_reduce")
        if isinstance(one, CopyStart):
            value = holds[one.buffer] = holds[one.source]
            needs = is_sharded or program.values[value].kind in _OF_WEIGHTS
        if needs:
            return f"`{program.text(one)}`"
    return None
