"""Which stage reads what from whom, found in the operands of a program's executables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .errors import ProgramError
from .instructions import Run
from .program import LETTERS, Exec, Program, Read, Stage, Write


def stages_of(program: Program, slice: int) -> tuple[Stage, ...]:
    """The stages of a program, with what flows of a slice. Where slices are equal, that is the same for all.

    A forward reads and writes activations; the backward reads the gradients of what the forward wrote, one from each
    reader, and writes one for each number that it read of a stage with a backward. Both name them in the same order.

    Raises:
        ProgramError: A stage has no forward, reads an earlier microbatch, or gradients do not fit its activations.
    """
    for exec in program.execs:
        for operand in exec.operands:
            if operand.ahead != 0 and program.values[operand.value].kind in ("activation", "gradient"):
                raise ProgramError(
                    f"s{exec.stage} reads another microbatch, as `behind` says in its schedule: "
                    "only `pipec run` runs that"
                )
    devices: dict[int, set[int]] = defaultdict(set)
    used: dict[int, set[int]] = defaultdict(set)
    for number, device in enumerate(program.devices):
        for instruction in device.step:
            if isinstance(instruction, Run):
                stage = program.execs[instruction.exec].stage
                used[stage].add(instruction.exec)
                if program.execs[instruction.exec].kind != "Update":
                    devices[stage].add(number)
    backward = {stage for stage, execs in used.items() if _backwards(program.execs[one] for one in execs)}
    own = {stage: [one for one in sorted(execs) if _is_of(program, one, slice)] for stage, execs in used.items()}
    reads = {stage: _reads(program, stage, own.get(stage, []), backward) for stage in range(program.n_stages)}
    readers: dict[int, list[int]] = defaultdict(list)
    for stage in range(program.n_stages):
        for read in reads[stage]:
            if read.gradient is not None:
                readers[read.value].append(read.gradient)
    found = []
    for stage in range(program.n_stages):
        execs = [program.execs[one] for one in used[stage]]
        found.append(
            Stage(
                index=stage,
                reads=reads[stage],
                writes=_writes(program, stage, [program.execs[one] for one in own[stage]], readers),
                devices=tuple(sorted(devices[stage])),
                kinds=frozenset(LETTERS[one.kind] for one in execs),
                weights_of=_weights_of(program, stage, execs),
            )
        )
    return tuple(found)


def _is_of(program: Program, exec: int, slice: int) -> bool:
    """Whether an executable reads and writes what flows of a slice."""
    return not program.slice_shares or program.execs[exec].slice in (None, slice)


def _values(program: Program, execs: Iterable[Exec], access: str, kind: str) -> list[int]:
    """The values of a kind that the first of some executables touches so."""
    first = next(iter(execs), None)
    operands = () if first is None else first.operands
    return [one.value for one in operands if one.access == access and program.values[one.value].kind == kind]


def _backwards(execs: Iterable[Exec]) -> list[Exec]:
    return [one for one in execs if one.kind in ("Backward", "BackwardInput")]


def _reads(program: Program, stage: int, used: list[int], backward: set[int]) -> tuple[Read, ...]:
    execs = [program.execs[one] for one in used]
    forwards = [one for one in execs if one.kind == "Forward"]
    if not forwards:
        raise ProgramError(f"s{stage} has no forward")
    read = _values(program, forwards, "read", "activation")
    numbers = [value for value in read if program.values[value].is_number and program.values[value].stage in backward]
    gradients: dict[int, int] = {}
    for exec in _backwards(execs):
        written = _values(program, [exec], "write", "gradient")
        if len(written) != len(numbers):
            raise ProgramError(f"{exec.name} writes {len(written)} gradients of {len(numbers)} activations")
        for value, gradient in zip(numbers, written):
            _belongs(program, exec, value, gradient)
            if gradients.setdefault(value, gradient) != gradient:
                raise ProgramError(f"{exec.name} and another backward write different gradients of one activation")
    return tuple(Read(value, gradients.get(value)) for value in read)


def _belongs(program: Program, backward: Exec, value: int, gradient: int) -> None:
    """A gradient `gradient.X`, or `gradient.X.sR` where there are several readers, is that of `activation.X`; where
    slices are not equal, the slice stands behind both.
    """
    end = f".q{backward.slice}" if program.slice_shares else ""
    activation, name = (program.values[one].name.removesuffix(end) for one in (value, gradient))
    if activation.startswith("activation.") and name.startswith("gradient."):
        what = activation.removeprefix("activation.")
        if name.removeprefix("gradient.") not in (what, f"{what}.s{backward.stage}"):
            raise ProgramError(f"{backward.name} writes `{name}` where the gradient of `{activation}` was expected")


def _writes(program: Program, stage: int, execs: list[Exec], readers: dict[int, list[int]]) -> tuple[Write, ...]:
    forwards = [one for one in execs if one.kind == "Forward"]
    read = _values(program, _backwards(execs), "read", "gradient")
    writes = []
    for value in _values(program, forwards, "write", "activation"):
        gradients = tuple(gradient for gradient in read if gradient in readers[value])
        if set(gradients) != set(readers[value]):
            missing = sorted(set(readers[value]) - set(gradients))
            raise ProgramError(f"no backward of s{stage} reads `{program.values[missing[0]].name}`")
        writes.append(Write(value, gradients))
    return tuple(writes)


def _weights_of(program: Program, stage: int, execs: list[Exec]) -> frozenset[int]:
    touched = (one.value for exec in execs if exec.kind != "Update" for one in exec.operands)
    owners = {program.values[value].stage for value in touched if program.values[value].kind == "parameters"}
    return frozenset(owners - {stage})
