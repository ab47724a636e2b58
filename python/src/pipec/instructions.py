"""The instructions of a device, one class for each; `docs/ir.md` says what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union


@dataclass(frozen=True)
class Alloc:
    """Begins the lifespan of a buffer."""

    buffer: int

    def __str__(self) -> str:
        return f"alloc %{self.buffer}"


@dataclass(frozen=True)
class Free:
    """Ends the lifespan of a buffer."""

    buffer: int

    def __str__(self) -> str:
        return f"free %{self.buffer}"


@dataclass(frozen=True)
class Fill:
    """Writes zeros or initial contents of a value that belongs to no microbatch."""

    buffer: int
    value: int
    contents: str

    def __str__(self) -> str:
        return f"fill %{self.buffer} = v{self.value} {self.contents}"


@dataclass(frozen=True)
class Load:
    """Writes a microbatch's data of the next step."""

    buffer: int
    value: int
    microbatch: int

    def __str__(self) -> str:
        return f"load %{self.buffer} = v{self.value} m{self.microbatch}"


@dataclass(frozen=True)
class Run:
    """Runs an executable on a microbatch; `buffers` are its operands."""

    exec: int
    microbatch: int
    buffers: tuple[int, ...]

    def __str__(self) -> str:
        return f"run @{self.exec} m{self.microbatch} ({', '.join(f'%{buffer}' for buffer in self.buffers)})"


@dataclass(frozen=True)
class Emit:
    """Hands a buffer's contents, a loss, to the host."""

    buffer: int

    def __str__(self) -> str:
        return f"emit %{self.buffer}"


@dataclass(frozen=True)
class SendStart:
    """Queues a buffer on the queue to a device and class."""

    buffer: int
    to: int
    kind: str
    token: int

    def __str__(self) -> str:
        return f"send.start %{self.buffer} to d{self.to} {self.kind} -> !{self.token}"


@dataclass(frozen=True)
class RecvStart:
    """Queues a buffer on the queue from a device and class."""

    buffer: int
    value: int
    microbatch: int
    source: int
    kind: str
    token: int

    def __str__(self) -> str:
        what = f"%{self.buffer} = v{self.value} m{self.microbatch}"
        return f"recv.start {what} from d{self.source} {self.kind} -> !{self.token}"


@dataclass(frozen=True)
class CollStart:
    """Joins the next collective of a group."""

    buffer: int
    collective: str
    group: int
    token: int

    def __str__(self) -> str:
        return f"coll.start %{self.buffer} {self.collective} g{self.group} -> !{self.token}"


@dataclass(frozen=True)
class GatherStart:
    """Joins the next collective of a group: shares of weights come into a buffer for all of them."""

    buffer: int
    share: int
    group: int
    token: int

    def __str__(self) -> str:
        return f"gather.start %{self.buffer} = %{self.share} g{self.group} -> !{self.token}"


@dataclass(frozen=True)
class CopyStart:
    """Queues a copy between the memory of the device and that of its host."""

    buffer: int
    source: int
    direction: str
    token: int

    def __str__(self) -> str:
        return f"copy.start %{self.buffer} = %{self.source} {self.direction} -> !{self.token}"


@dataclass(frozen=True)
class Wait:
    """Waits until a transfer, collective or copy has ended."""

    token: int

    def __str__(self) -> str:
        return f"wait !{self.token}"


Instruction = Union[Alloc, Free, Fill, Load, Run, Emit, SendStart, RecvStart, CollStart, GatherStart, CopyStart, Wait]

Fields = Mapping[str, Any]
Read = Callable[[Fields, "list[int]"], Instruction]


def _run(fields: Fields, operands: list[int]) -> Run:
    start, length = int(fields["operands"]["start"]), int(fields["operands"]["len"])
    if start + length > len(operands):
        raise ValueError(f"operands {start}..{start + length} of a run, but the device has {len(operands)}")
    return Run(int(fields["exec"]), int(fields["microbatch"]), tuple(operands[start : start + length]))


_READ: dict[str, Read] = {
    "alloc": lambda f, _: Alloc(int(f["buffer"])),
    "free": lambda f, _: Free(int(f["buffer"])),
    "fill": lambda f, _: Fill(int(f["buffer"]), int(f["value"]), str(f["with"])),
    "load": lambda f, _: Load(int(f["buffer"]), int(f["value"]), int(f["microbatch"])),
    "run": _run,
    "emit": lambda f, _: Emit(int(f["buffer"])),
    "send.start": lambda f, _: SendStart(int(f["buffer"]), int(f["to"]), str(f["class"]), int(f["token"])),
    "recv.start": lambda f, _: RecvStart(
        int(f["buffer"]), int(f["value"]), int(f["microbatch"]), int(f["from"]), str(f["class"]), int(f["token"])
    ),
    "coll.start": lambda f, _: CollStart(int(f["buffer"]), str(f["collective"]), int(f["group"]), int(f["token"])),
    "gather.start": lambda f, _: GatherStart(int(f["buffer"]), int(f["share"]), int(f["group"]), int(f["token"])),
    "copy.start": lambda f, _: CopyStart(int(f["buffer"]), int(f["from"]), str(f["direction"]), int(f["token"])),
    "wait": lambda f, _: Wait(int(f["token"])),
}


def read_instruction(entry: Mapping[str, Fields], operands: list[int]) -> Instruction:
    """Reads an instruction: an object whose only key is the instruction's word.

    Args:
        entry: For example `{"wait": {"token": 3}}`.
        operands: The device's table of operands, into which `run` points.

    Raises:
        ValueError: The word is unknown, or the operands are not in the table.
        KeyError: A field is missing.
    """
    if len(entry) != 1:
        raise ValueError(f"an instruction with {len(entry)} words: {sorted(entry)}")
    ((word, fields),) = entry.items()
    if word not in _READ:
        raise ValueError(f"the instruction `{word}` is unknown")
    return _READ[word](fields, operands)
