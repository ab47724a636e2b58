"""Programs: what `pipec build --emit json` writes, read into tables that say which stage reads what from whom."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .errors import ProgramError
from .instruction import Instruction, read_instruction
from .instructions import Run

SCHEMA = "pipec.program/1"
"""The form of JSON programs that this package reads."""

LETTERS = {
    "Forward": "F",
    "BackwardInput": "B",
    "BackwardWeight": "W",
    "Backward": "BW",
    "Recompute": "R",
    "Update": "U",
}
"""The letters of each kind of task."""

PERSISTENT = frozenset({"parameters", "parameter_gradients", "optimizer_state", "scratch"})
"""Kinds of values that belong to no microbatch."""


@dataclass(frozen=True)
class Value:
    """What a buffer may hold."""

    name: str
    kind: str
    stage: int
    bytes: int
    is_number: bool
    """False for indices, which have no gradient."""


@dataclass(frozen=True)
class Operand:
    """A buffer of an executable: the value in it, and `read`, `write` or `update`."""

    value: int
    access: str
    ahead: int = 0
    """How many microbatches after that of the run the value belongs to, before it if negative: slices read each other's
    values.
    """


@dataclass(frozen=True)
class Chunk:
    """The part of a stage's weights that an update changes, in bytes of the program's weights; with a group, a member's
    share.
    """

    number: int
    begin: int
    end: int
    group: int | None


@dataclass(frozen=True)
class Exec:
    """What a device can run: one kind of task of one stage."""

    kind: str
    stage: int
    operands: tuple[Operand, ...]
    slice: int | None = None
    chunk: Chunk | None = None
    is_repeated: bool = False
    """Whether it is a forward that `R` runs once more, in a stage that has another one that it does not."""

    @property
    def name(self) -> str:
        """As it is written in the textual IR, such as `@BW.s3`, `@F.s0.q1`, `@F.s0.r` or `@U.s2.c0`."""
        part = "" if self.slice is None else f".q{self.slice}"
        part += "" if self.chunk is None else f".c{self.chunk.number}"
        part += ".r" if self.is_repeated else ""
        return f"@{LETTERS[self.kind]}.s{self.stage}{part}"


@dataclass(frozen=True)
class Device:
    """The program of one device: what is filled before the first step, and each step; `peak` is the most bytes of it
    alive at once.
    """

    n_buffers: int
    n_tokens: int
    peak: int
    setup: tuple[Instruction, ...]
    step: tuple[Instruction, ...]


@dataclass(frozen=True)
class Read:
    """What a stage takes from another one: the value, and the value of the gradient that it gives back, if it has
    one.
    """

    value: int
    gradient: int | None


@dataclass(frozen=True)
class Write:
    """What a stage hands on: the value, and the gradients that its readers give back, in the order in which they are
    added up.
    """

    value: int
    gradients: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A stage of the model, as a program sees it."""

    index: int
    reads: tuple[Read, ...]
    """What flows in, in the order of the module's arguments."""
    writes: tuple[Write, ...]
    """What flows out; a module that writes several values returns as many."""
    devices: tuple[int, ...]
    """Where it lives; several are replicas."""
    kinds: frozenset[str]
    """Letters of the tasks that it runs."""
    weights_of: frozenset[int]
    """Other stages whose weights it shares (tied weights)."""

    @property
    def is_first(self) -> bool:
        """Whether nothing flows in, so that its module gets the inputs of the step."""
        return not self.reads

    @property
    def is_last(self) -> bool:
        """Whether nothing flows out, so that it computes the loss."""
        return not self.writes

    @property
    def runs_backward(self) -> bool:
        """Whether it computes gradients; a frozen stage does not if no stage before it trains."""
        return bool(self.kinds & {"B", "BW"})

    @property
    def recomputes(self) -> bool:
        """Whether its forward runs once more for the backward, of some microbatches at least."""
        return "R" in self.kinds


@dataclass(frozen=True, repr=False)
class Program:
    """A compiled program: who runs what, in which order, and what flows between devices.

    Make one with `pipec.compile` or `pipec.load`. All ranks of a run need the same program.
    """

    name: str
    n_stages: int
    n_microbatches: int
    n_steps: int
    n_slices: int
    slice_shares: tuple[int, ...]
    """By slice, its share of the sequence; empty where all are equal."""
    lags: tuple[tuple[int, ...], ...]
    """By stage and microbatch of a step: how many updates fewer than the step's number the weights have that its tasks
    read.
    """
    groups: tuple[tuple[int, ...], ...]
    values: tuple[Value, ...]
    execs: tuple[Exec, ...]
    devices: tuple[Device, ...]

    def __repr__(self) -> str:
        sizes = f"{self.n_devices} devices, {self.n_stages} stages, {self.n_microbatches} microbatches"
        return f"Program({self.name}: {sizes}, {self.n_instructions} instructions)"

    @property
    def n_devices(self) -> int:
        """How many devices, hence ranks, run it."""
        return len(self.devices)

    @property
    def n_instructions(self) -> int:
        """How many instructions a step has, on all devices together."""
        return sum(len(device.step) for device in self.devices)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages; what flows is that of the first slice.

        Raises:
            ProgramError: Gradients do not fit activations.
        """
        return self.stages_by_slice[0]

    @cached_property
    def stages_by_slice(self) -> tuple[tuple[Stage, ...], ...]:
        """All stages with what flows of each slice; one entry for all slices where they are equal.

        Raises:
            ProgramError: Gradients do not fit activations.
        """
        from .stage_graph import stages_of

        return tuple(stages_of(self, slice) for slice in range(len(self.slice_shares) or 1))

    def stages_on(self, device: int) -> tuple[int, ...]:
        """The stages that live on a device, ascending: those that a rank has to give modules for."""
        return tuple(stage.index for stage in self.stages if device in stage.devices)

    def microbatches(self, stage: int, device: int) -> tuple[int, ...]:
        """The microbatches whose forward of a stage a device runs, ascending."""
        runs = (one for one in self.devices[device].step if isinstance(one, Run))
        mine = (one.microbatch for one in runs if self.is_task(one, "Forward", stage))
        return tuple(sorted(mine))

    def relative_length(self, microbatch: int) -> float:
        """How long the slice is that a microbatch of the stream is, over the mean slice; 1 where all are equal."""
        shares = self.slice_shares
        return shares[microbatch % self.n_slices] * self.n_slices / sum(shares) if shares else 1.0

    @cached_property
    def _keeping(self) -> frozenset[int]:
        """The stages that recompute some microbatches, and keep what the forwards of others saved."""
        return frozenset(exec.stage for exec in self.execs if exec.is_repeated)

    def saves(self, exec: Exec) -> bool:
        """Whether an executable saves what the backward reads: `R` where it runs the forward once more, and `F`
        elsewhere.
        """
        if exec.kind != "Forward":
            return exec.kind == "Recompute"
        return not exec.is_repeated if exec.stage in self._keeping else not self.stages[exec.stage].recomputes

    def is_task(self, run: Run, kind: str, stage: int) -> bool:
        """Whether a run is a task of this kind and stage."""
        return (self.execs[run.exec].kind, self.execs[run.exec].stage) == (kind, stage)

    def text(self, instruction: Instruction) -> str:
        """An instruction as the textual IR writes it."""
        text = str(instruction)
        if isinstance(instruction, Run):
            return text.replace(f"@{instruction.exec}", self.execs[instruction.exec].name, 1)
        value = getattr(instruction, "value", None)
        return text if value is None else text.replace(f"v{value}", self.values[value].name, 1)


def load(path: str | os.PathLike[str]) -> Program:
    """Reads a program from a file that `pipec build x.pipe --emit json -o x.json` wrote.

    Raises:
        ProgramError: The file holds something else.
        OSError: It cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return loads(text)
    except ProgramError as error:
        raise ProgramError(f"{os.fspath(path)}: {error}") from None


def loads(text: str) -> Program:
    """Reads a program from its JSON text.

    Raises:
        ProgramError: The text is no program of the schema `pipec.program/1`.
    """
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProgramError(f"not JSON: {error}") from None
    if not isinstance(whole, dict) or "schema" not in whole:
        raise ProgramError(f"not a program: expected an object with `schema`, `{SCHEMA}`, and `program`")
    if whole["schema"] != SCHEMA:
        raise ProgramError(f"the schema is `{whole['schema']}`, expected `{SCHEMA}`")
    try:
        return _program(whole["program"])
    except KeyError as error:
        raise ProgramError(f"not a program: {error} is missing") from None
    except (ValueError, TypeError, IndexError) as error:
        raise ProgramError(f"not a program: {error}") from None


def _program(fields: Mapping[str, Any]) -> Program:
    members = int(fields.get("members", 1))
    if members > 1:
        raise ProgramError(
            f"each device of the program is a group of {members} devices, which `pipec run` executes: "
            "leave `tensor` out of the pipeline"
        )
    if any(value["kind"] == "gradient_norm" for value in fields["values"]):
        raise ProgramError(
            "the program clips gradients, which `pipec run` does: leave `clip_norm` out of the pipeline, and call "
            "`Runner.clip_grad_norm_`"
        )
    program = Program(
        name=str(fields["name"]),
        n_stages=int(fields["n_stages"]),
        n_microbatches=int(fields["n_microbatches"]),
        n_steps=int(fields["n_steps"]),
        n_slices=int(fields.get("n_slices", 1)),
        slice_shares=tuple(int(share) for share in fields.get("slice_shares", [])),
        lags=tuple(tuple(int(lag) for lag in row) for row in fields["lags"]),
        groups=tuple(tuple(int(device) for device in group) for group in fields.get("groups", [])),
        values=tuple(_value(value) for value in fields["values"]),
        execs=tuple(_exec(one) for one in fields["execs"]),
        devices=tuple(_device(device) for device in fields["devices"]),
    )
    for number, device in enumerate(program.devices):
        for instruction in (*device.setup, *device.step):
            _in_range(program, device, number, instruction)
    return program


def _in_range(program: Program, device: Device, number: int, instruction: Instruction) -> None:
    """Ids that an instruction names are those of rows of the tables."""
    counts = {
        "buffer": device.n_buffers,
        "token": device.n_tokens,
        "value": len(program.values),
        "microbatch": program.n_microbatches,
        "exec": len(program.execs),
        "group": len(program.groups),
        "to": len(program.devices),
        "source": device.n_buffers if hasattr(instruction, "direction") else len(program.devices),
    }
    for field, count in counts.items():
        index = getattr(instruction, field, 0)
        if not 0 <= index < max(count, 1):
            raise ValueError(f"d{number} `{instruction}`: {field} {index}, but there are {count}")
    if isinstance(instruction, Run) and len(instruction.buffers) != len(program.execs[instruction.exec].operands):
        n_operands = len(program.execs[instruction.exec].operands)
        raise ValueError(f"d{number} `{instruction}`: {len(instruction.buffers)} buffers for {n_operands} operands")


def _value(fields: Mapping[str, Any]) -> Value:
    types = [str(slot["ty"]["dtype"]) for slot in fields["tensors"]]
    is_number = all(not dtype.startswith("i") for dtype in types)
    return Value(str(fields["name"]), str(fields["kind"]), int(fields["stage"]), int(fields["bytes"]), is_number)


def _exec(fields: Mapping[str, Any]) -> Exec:
    if fields["kind"] not in LETTERS:
        raise ValueError(f"the kind of task `{fields['kind']}` is unknown")
    operands = tuple(
        Operand(int(one["value"]), str(one["access"]), int(one.get("ahead", 0))) for one in fields["operands"]
    )
    part = None if fields.get("slice") is None else int(fields["slice"])
    is_repeated = bool(fields.get("is_repeated", False))
    return Exec(str(fields["kind"]), int(fields["stage"]), operands, part, _chunk(fields.get("chunk")), is_repeated)


def _chunk(fields: Mapping[str, Any] | None) -> Chunk | None:
    if fields is None:
        return None
    group = fields.get("group")
    return Chunk(int(fields["number"]), int(fields["from"]), int(fields["to"]), None if group is None else int(group))


def _device(fields: Mapping[str, Any]) -> Device:
    operands = [int(buffer) for buffer in fields["operands"]]
    return Device(
        n_buffers=len(fields["buffers"]),
        n_tokens=int(fields["n_tokens"]),
        peak=int(fields["peak"]),
        setup=tuple(read_instruction(entry, operands) for entry in fields.get("setup", [])),
        step=tuple(read_instruction(entry, operands) for entry in fields["step"]),
    )
