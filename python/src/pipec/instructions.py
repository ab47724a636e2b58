"""The instructions of a device, one class for each; generated from the table in `compiler/ir/src/instruction.rs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from .instruction import Instruction


@dataclass(frozen=True)
class Alloc(Instruction):
    """Begins the lifespan of a buffer."""

    WORD: ClassVar[str] = "alloc"
    TEXT: ClassVar[str] = "alloc %{buffer}"

    buffer: int


@dataclass(frozen=True)
class Free(Instruction):
    """Ends the lifespan of a buffer."""

    WORD: ClassVar[str] = "free"
    TEXT: ClassVar[str] = "free %{buffer}"

    buffer: int


@dataclass(frozen=True)
class Fill(Instruction):
    """Writes zeros or initial contents; the buffer then holds the value, of no microbatch."""

    WORD: ClassVar[str] = "fill"
    TEXT: ClassVar[str] = "fill %{buffer} = v{value} {contents}"
    KEYS: ClassVar[Mapping[str, str]] = {"contents": "with"}

    buffer: int
    value: int
    contents: str


@dataclass(frozen=True)
class Load(Instruction):
    """Writes a microbatch's data of the next step."""

    WORD: ClassVar[str] = "load"
    TEXT: ClassVar[str] = "load %{buffer} = v{value} m{microbatch}"

    buffer: int
    value: int
    microbatch: int


@dataclass(frozen=True)
class Run(Instruction):
    """Runs an executable on its operands."""

    WORD: ClassVar[str] = "run"
    TEXT: ClassVar[str] = "run @{exec} m{microbatch} ({buffers})"
    KEYS: ClassVar[Mapping[str, str]] = {"buffers": "operands"}

    exec: int
    microbatch: int
    buffers: tuple[int, ...]


@dataclass(frozen=True)
class Emit(Instruction):
    """Hands a buffer's contents to the host: the loss of a microbatch."""

    WORD: ClassVar[str] = "emit"
    TEXT: ClassVar[str] = "emit %{buffer}"

    buffer: int


@dataclass(frozen=True)
class SendStart(Instruction):
    """Queues a buffer on the queue to a device and class."""

    WORD: ClassVar[str] = "send.start"
    TEXT: ClassVar[str] = "send.start %{buffer} to d{to} {kind} -> !{token}"
    KEYS: ClassVar[Mapping[str, str]] = {"kind": "class"}

    buffer: int
    to: int
    kind: str
    token: int


@dataclass(frozen=True)
class RecvStart(Instruction):
    """Queues a buffer on the queue from a device and class."""

    WORD: ClassVar[str] = "recv.start"
    TEXT: ClassVar[str] = "recv.start %{buffer} = v{value} m{microbatch} from d{source} {kind} -> !{token}"
    KEYS: ClassVar[Mapping[str, str]] = {"source": "from", "kind": "class"}

    buffer: int
    value: int
    microbatch: int
    source: int
    kind: str
    token: int


@dataclass(frozen=True)
class CollStart(Instruction):
    """Joins the next collective of a group: gradients of the same weights are added up, whole or each member
    its share, or shares of weights are exchanged."""

    WORD: ClassVar[str] = "coll.start"
    TEXT: ClassVar[str] = "coll.start %{buffer} {collective} g{group} -> !{token}"

    buffer: int
    collective: str
    group: int
    token: int


@dataclass(frozen=True)
class GatherStart(Instruction):
    """Joins the next collective of a group: the share of weights that the device keeps, and those of the
    other members, come into a buffer for all of them."""

    WORD: ClassVar[str] = "gather.start"
    TEXT: ClassVar[str] = "gather.start %{buffer} = %{share} g{group} -> !{token}"

    buffer: int
    share: int
    group: int
    token: int


@dataclass(frozen=True)
class CopyStart(Instruction):
    """Queues a copy of a buffer into one of the other memory space, on the device's queue of that direction."""

    WORD: ClassVar[str] = "copy.start"
    TEXT: ClassVar[str] = "copy.start %{buffer} = %{source} {direction} -> !{token}"
    KEYS: ClassVar[Mapping[str, str]] = {"source": "from"}

    buffer: int
    source: int
    direction: str
    token: int


@dataclass(frozen=True)
class LaneStart(Instruction):
    """Queues the next N instructions, which are `wait`, `run` and `send.start`, on a lane of the device: a
    queue beside its list."""

    WORD: ClassVar[str] = "lane.start"
    TEXT: ClassVar[str] = "lane.start l{lane} {count} -> !{token}"

    lane: int
    count: int
    token: int


@dataclass(frozen=True)
class Wait(Instruction):
    """Waits until the transfer, collective or copy has ended, or the instructions on a lane."""

    WORD: ClassVar[str] = "wait"
    TEXT: ClassVar[str] = "wait !{token}"

    token: int
