"""Weights that several stages or ranks hold: ties, replicas, and who adds up which gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter

from ...errors import StageError, UnsupportedError
from ...instructions import CollStart, Fill, GatherStart, Run, SendStart
from ...program import Program
from ..transport import new_group
from .flat_params import Slot
from .in_step_updates import in_step_update
from .reduction import Reduction
from .shares import Shares
from .sums import TravellingSum
from .ties import is_between_devices
from .versions import Weights

Modules = Mapping[int, nn.Module]
Layout = dict[str, tuple[torch.Size, torch.dtype, bool]]
"""By name: shape, type and whether it is trained, of the weights and buffers of a rank."""


@dataclass(frozen=True)
class Ranks:
    """Who this is: the device that it runs, the ranks of all devices, their group, and that over which objects are
    exchanged.
    """

    device: int
    all: list[int]
    whole: dist.ProcessGroup
    control: dist.ProcessGroup


def named_weights(modules: Modules, owners: Mapping[Parameter, str]) -> Iterator[tuple[str, Parameter]]:
    """The trained and frozen parameters of a rank, each once, by the name of its owner, such as `0.table.weight`."""
    seen: set[int] = set()
    for stage in sorted(modules):
        for name, parameter in modules[stage].named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield owners.get(parameter, f"{stage}.{name}"), parameter


def tie(
    program: Program, device: int, modules: Modules, tied: Mapping[str, str], updates_inside: bool
) -> dict[Parameter, str]:
    """Ties the weights of this rank, and returns the names of those whose owner may be on another one.

    Args:
        program: Says which stages share weights.
        device: The device that this rank runs.
        modules: Its stages.
        tied: By name, such as `3.head.weight`, the name of the weight that it is, such as `0.table.weight`.
        updates_inside: Whether the updates of the program run inside a step.

    Raises:
        StageError: A name is not one of a weight, or the program demands a tie that is missing.
        UnsupportedError: Nobody adds up the gradients of the two.
    """
    owners: dict[Parameter, str] = {}
    for member, owner in sorted(tied.items()):
        (stage, name), (owning, owner_name) = _parts(program, member), _parts(program, owner)
        if stage not in modules:
            continue
        parameter = _parameter(modules[stage], name, member)
        if owning in modules:
            _replace(modules[stage], name, parameter, _parameter(modules[owning], owner_name, owner))
            continue
        if is_between_devices(program, stage, owning):
            inside = in_step_update(program) or (_updated(program) if updates_inside else None)
        elif owning not in program.stages[stage].weights_of:
            inside = "some devices have both stages, and others one"
        else:
            inside = None
        if inside is not None:
            raise UnsupportedError(
                f"`{member}` is tied to `{owner}` of another device, but `{program.name}` does not add up their gradients, and nor can the "
                f"runner at the end of a step ({inside}): tie the two in the model of the .pipe file (`with table = words.token`), or place "
                "both stages on one device"
            )
        owners[parameter] = owner
    for stage, module in modules.items():
        for owning in sorted(program.stages[stage].weights_of):
            mine = set(module.parameters())
            theirs = set(modules[owning].parameters()) if owning in modules else set()
            elsewhere = any(one in mine and name.startswith(f"{owning}.") for one, name in owners.items())
            if not (mine & theirs or elsewhere):
                raise StageError(
                    f"in `{program.name}` stage {stage} shares weights with stage {owning}: say which, as in "
                    f'`tied={{"{stage}.head.weight": "{owning}.table.weight"}}`'
                )
    return owners


def _updated(program: Program) -> str | None:
    """An update inside a step, as a text."""
    runs = [one for device in program.devices for one in device.step if isinstance(one, Run)]
    updates = (one for one in runs if program.execs[one.exec].kind == "Update")
    found = next(updates, None)
    return None if found is None else f"`{program.text(found)}` runs before it, because of `optimizer=`"


def _parts(program: Program, name: str) -> tuple[int, str]:
    stage, _, rest = name.partition(".")
    if not stage.isdigit() or not rest or int(stage) >= program.n_stages:
        raise StageError(
            f"`{name}` is not the name of a weight: expected its stage and its name there, as in `0.table.weight`"
        )
    return int(stage), rest


def _parameter(module: nn.Module, name: str, whole: str) -> Parameter:
    try:
        return module.get_parameter(name)
    except AttributeError:
        known = ", ".join(f"`{one}`" for one, _ in module.named_parameters())
        raise StageError(f"there is no weight `{whole}`: its stage has {known or 'none'}") from None


def _replace(module: nn.Module, name: str, before: Parameter, owner: Parameter) -> None:
    if before.shape != owner.shape:
        raise StageError(
            f"`{name}` of shape {list(before.shape)} cannot be tied to a weight of shape {list(owner.shape)}"
        )
    path, _, last = name.rpartition(".")
    setattr(module.get_submodule(path), last, owner)


@dataclass(frozen=True)
class Joined:
    """What this rank does with others: sums of gradients, by their value, and weights that are divided, by their stage.

    With it, weights in several versions or whose sums travel, by their stage, and these sums, by value.
    """

    reductions: dict[int, Reduction]
    shares: dict[int, Shares]
    versions: dict[int, Weights]
    sums: dict[int, TravellingSum]


def joined(
    program: Program, ranks: Ranks, modules: Modules, owners: Mapping[Parameter, str], ordered: bool, synchronise: bool
) -> Joined:
    """Finds what this rank does with others; all ranks take part.

    Raises:
        StageError: Replicas of a stage differ in their weights.
    """
    made = Joined({}, {}, {}, {})
    summed = sorted(set(_summed(program)))
    travelling = _travelling(program)
    _keep_versions(program, ranks.device, modules, owners, travelling, made)
    if not summed and not travelling:
        return made
    mine = dict(named_weights(modules, owners))
    layout: Layout = {name: (one.shape, one.dtype, one.requires_grad) for name, one in mine.items()}
    buffers = {f"{stage}.{name}": one for stage in modules for name, one in modules[stage].named_buffers()}
    layout.update({name: (one.shape, one.dtype, False) for name, one in buffers.items()})
    layouts: list[Layout] = [{} for _ in ranks.all]
    dist.all_gather_object(layouts, layout, group=ranks.control)
    device = next((one.device for one in mine.values()), torch.device("cpu"))
    groups = [new_group(ranks.whole, [ranks.all[one] for one in members]) for members in program.groups]
    held: dict[str, Tensor] = {**mine, **buffers}

    def take_over(stage: int, members: tuple[int, ...], together: dist.ProcessGroup) -> list[str]:
        names = _shared(program, stage, members, layouts)
        for name in names if synchronise else ():
            source = _source(program, stage, members)
            _copy(held.get(name), *layouts[source][name][:2], device, ranks.all[source], together)
        return names

    for value, members in sorted(travelling.items()):
        alike = new_group(ranks.whole, [ranks.all[one] for one in members])
        if alike is not None:
            take_over(program.values[value].stage, members, alike)
    for weights in made.versions.values():
        weights.begin_alike()
    gathered = {program.values[value].stage for value in _gathered(program)}
    for value, group, collective in summed:
        stage, members = program.values[value].stage, program.groups[group]
        together = groups[group]
        if together is None:
            continue
        names = take_over(stage, members, together)
        source = _source(program, stage, members)
        trained = [name for name in names if layouts[source][name][2]]
        slots = [Slot(name, *layouts[source][name][:2], mine.get(name)) for name in trained]
        if collective == "all_reduce":
            made.reductions[value] = Reduction(slots, together, device, ordered)
            continue
        keeps = stage not in gathered
        made.shares[stage] = Shares(slots, together, ranks.all[source], device, keeps_whole=keeps, ordered=ordered)
    return made


def _source(program: Program, stage: int, members: tuple[int, ...]) -> int:
    """The device whose weights the others take over."""
    return next(one for one in members if one in program.stages[stage].devices)


def _keep_versions(
    program: Program,
    device: int,
    modules: Modules,
    owners: Mapping[Parameter, str],
    travelling: Mapping[int, tuple[int, ...]],
    made: Joined,
) -> None:
    """Finds the weights of this rank of which there are several versions, or whose sums travel."""
    buffers: dict[int, list[int]] = {}
    for one in program.devices[device].setup:
        if isinstance(one, Fill) and program.values[one.value].kind == "parameters":
            buffers.setdefault(program.values[one.value].stage, []).append(one.buffer)
    sums = {program.values[value].stage: value for value, members in travelling.items() if device in members}
    for stage, held in buffers.items():
        if len(held) == 1 and stage not in sums:
            continue
        pairs = [pair for pair in named_weights(modules, owners) if pair[0].startswith(f"{stage}.")]
        trained = [(name, one) for name, one in pairs if one.requires_grad]
        weights = Weights([name for name, _ in trained], [one for _, one in trained], modules.values())
        weights.keep(held)
        made.versions[stage] = weights
        if stage in sums:
            made.sums[sums[stage]] = TravellingSum(weights)


def _travelling(program: Program) -> dict[int, tuple[int, ...]]:
    """Values of gradients whose sums travel, with the devices between which they do."""
    members: dict[int, set[int]] = {}
    for number, device in enumerate(program.devices):
        fills = (one for one in (*device.setup, *device.step) if isinstance(one, Fill))
        holds = {one.buffer: one.value for one in fills}
        for one in device.step:
            if isinstance(one, SendStart) and one.kind == "sum":
                members.setdefault(holds[one.buffer], set()).update((number, one.to))
    return {value: tuple(sorted(devices)) for value, devices in members.items()}


def _gathered(program: Program) -> Iterator[int]:
    """Values of weights that are gathered for the tasks that read them."""
    for device in program.devices:
        fills = (one for one in (*device.setup, *device.step) if isinstance(one, Fill))
        holds = {one.buffer: one.value for one in fills}
        for one in device.step:
            if isinstance(one, GatherStart):
                yield holds[one.share]


def _summed(program: Program) -> Iterator[tuple[int, int, str]]:
    """Values of gradients that are summed up, with their groups and collectives."""
    for device in program.devices:
        holds: dict[int, int] = {}
        for one in device.step:
            if isinstance(one, Fill):
                holds[one.buffer] = one.value
            elif isinstance(one, CollStart) and one.collective != "all_gather":
                yield holds[one.buffer], one.group, one.collective


def _shared(program: Program, stage: int, members: tuple[int, ...], layouts: list[Layout]) -> list[str]:
    """Names of what several members hold of a stage's weights, in the order of its first device."""
    running = [one for one in members if one in program.stages[stage].devices]
    first = layouts[running[0]]
    names = [name for name in first if name.startswith(f"{stage}.")]
    for member in members:
        theirs = [name for name in layouts[member] if name.startswith(f"{stage}.")]
        for name in theirs if member not in running else dict.fromkeys([*names, *theirs]):
            if first.get(name) != layouts[member].get(name):
                raise StageError(
                    f"`{name}` is {_said(first.get(name))} on d{running[0]} and {_said(layouts[member].get(name))} on d{member}, "
                    "but both add up its gradients"
                )
    return [name for name in names if sum(name in layouts[member] for member in members) > 1]


def _said(row: tuple[torch.Size, torch.dtype, bool] | None) -> str:
    if row is None:
        return "missing"
    return f"{str(row[1]).removeprefix('torch.')}{list(row[0])}{'' if row[2] else ' without gradients'}"


def _copy(
    held: Tensor | None, shape: torch.Size, dtype: torch.dtype, device: torch.device, source: int, group: Any
) -> None:
    """Takes over a tensor from a rank."""
    with torch.no_grad():
        data = torch.empty(shape, dtype=dtype, device=device) if held is None else held.detach().contiguous()
        wire = data.view(torch.uint8) if dtype == torch.bool else data
        dist.broadcast(wire, source, group=group)
        if held is not None and data.data_ptr() != held.data_ptr():
            held.copy_(data)
