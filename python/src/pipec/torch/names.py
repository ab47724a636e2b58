"""What weights are called in the original model, and that no two of them have one name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from torch import Tensor, nn

from ..errors import StageError

Names = Mapping[int, Union[str, Mapping[str, str]]]
"""By stage, the prefix that its names have in the original model; or by prefix of its names, that in the original
model.
"""


def original(names: Names | None, stage: int, name: str) -> str:
    """The name in the original model of what a stage calls `name`.

    Raises:
        StageError: `names` does not say.
    """
    if names is None:
        return f"{stage}.{name}"
    said = original_of_stage(names, stage)
    if isinstance(said, str):
        return f"{said}.{name}" if said else name
    prefix = name
    while prefix not in said and prefix:
        prefix = prefix.rpartition(".")[0]
    if prefix not in said:
        raise StageError(
            f"`names=` does not say what `{name}` of stage {stage} is in the original model: it has {list(said)}"
        )
    parts = (said[prefix], name[len(prefix) :].lstrip("."))
    return ".".join(part for part in parts if part)


def original_of_stage(names: Names, stage: int) -> str | Mapping[str, str]:
    """What `names` says of a stage.

    Raises:
        StageError: Nothing.
    """
    said = names.get(stage)
    if said is None:
        raise StageError(
            f"`names=` has no entry for stage {stage}: give its prefix in the original model, or a mapping"
        )
    return said


@dataclass(frozen=True)
class OriginalName:
    """A weight or buffer of a stage, and what it is called in the original model."""

    name: str
    stage: int
    own: str
    """In its stage."""
    owner: str
    """The weight that it is, such as `0.table.weight`: itself unless it is tied, or a buffer, which stages may
    share.
    """


def original_names(
    stages: Mapping[int, nn.Module], names: Names | None, tied: Mapping[str, str], held: Mapping[str, Any]
) -> tuple[OriginalName, ...]:
    """What all that the stages of a rank hold is called in the original model; nothing where `names` does not say.

    Args:
        stages: The stages.
        names: What they are called there.
        tied: By name, the weight that a weight is.
        held: The state of the stages, by stage and name.

    Raises:
        StageError: `names` lacks a stage or a weight.
    """
    if names is None:
        return ()
    for number in stages:
        original_of_stage(names, number)
    buffers = {one.data_ptr() for module in stages.values() for one in module.buffers()}
    found = []
    for key, one in held.items():
        stage, _, own = key.partition(".")
        name = original(names, int(stage), own)
        is_buffer = type(one) is Tensor and one.data_ptr() in buffers
        owner = f"buffer {name} {list(one.shape)}" if is_buffer else _owner(key, tied)
        found.append(OriginalName(name, int(stage), own, owner))
    return tuple(found)


def require_distinct(found: Iterable[OriginalName]) -> None:
    """Checks that each name is that of one weight. Replicas hold the same ones, and so do ties.

    Raises:
        StageError: Two weights would be saved under one name.
    """
    by_name: dict[str, OriginalName] = {}
    for one in found:
        other = by_name.setdefault(one.name, one)
        if other.owner == one.owner:
            continue
        first, second = sorted((other, one), key=lambda it: (it.stage, it.own))
        stages = (
            f"stage {first.stage} names `{first.own}` and `{second.own}`"
            if first.stage == second.stage
            else f"stages {first.stage} and {second.stage} name `{first.own}` and `{second.own}`"
        )
        raise StageError(
            f"with `names=`, {stages} both `{one.name}`: a checkpoint would keep one of them; "
            "give each its own name, or, where they are one weight, tie them with `tied=`"
        )


def _owner(key: str, tied: Mapping[str, str]) -> str:
    """The weight that a weight is; names of states lack those of wrappers, which ties have."""
    owners = {_unwrapped(member): _unwrapped(owner) for member, owner in tied.items()}
    key = _unwrapped(key)
    seen = {key}
    while key in owners and owners[key] not in seen:
        key = owners[key]
        seen.add(key)
    return key


def _unwrapped(name: str) -> str:
    stage, _, own = name.partition(".")
    kept = [part for part in own.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module")]
    return f"{stage}.{'.'.join(kept).removeprefix('module.')}"
