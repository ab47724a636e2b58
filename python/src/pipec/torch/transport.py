"""Moves tensors between ranks: one channel for each sender, receiver and class, as the instructions say.

The shapes of what flows are not in a program, so the first transfer of each value is announced: a small message over
gloo says how many tensors there are, their types and shapes, and which of them need gradients. In later steps with
inputs of the same shapes only the tensors travel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import StageError, UnsupportedError
from ..instructions import RecvStart, SendStart
from ..program import Program
from .stage.structures import Structure

MOST_TENSORS = 16
"""Of a value."""
TAGGED = {"gloo"}
"""Backends whose messages have tags."""
SENDS_BEHIND = 2
"""How many sends of a channel may be under way behind their `wait`; their tensors are kept until then."""
_MOST_DIMENSIONS = 8
_TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
_HEAD = 2
_ROW = 3 + _MOST_DIMENSIONS

_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


@dataclass(frozen=True)
class Form:
    """What is known of a tensor that flows, for all microbatches."""

    dtype: torch.dtype
    shape: torch.Size
    needs_gradient: bool

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


Forms = tuple[Form, ...]


def forms_of(tensors: Sequence[Tensor], needs_gradient: Sequence[bool]) -> Forms:
    """The forms of some tensors."""
    return tuple(Form(one.dtype, one.shape, needs) for one, needs in zip(tensors, needs_gradient))


@dataclass
class Incoming:
    """A transfer that was started on the receiving side."""

    instruction: RecvStart
    tensors: tuple[Tensor, ...]
    works: list[Any]
    announcement: Tensor | None = None
    announced: Any = None


class Transport:
    """The transfers of one device.

    On gloo each transfer has a tag of its own. Other backends have no tags, but carry what a channel is given in order;
    there each class and direction has a process group, so that no transfer waits behind one of another channel.
    """

    def __init__(
        self, program: Program, group: dist.ProcessGroup, control: dist.ProcessGroup, device: torch.device
    ) -> None:
        self.control = control
        self._device = device
        self._n_microbatches = program.n_microbatches
        self._n_transfers = len(program.values) * program.n_microbatches
        self._rank = dist.get_rank(group)
        ranks = dist.get_process_group_ranks(group)
        self._ranks = ranks
        backend = dist.get_backend(group)
        self._has_tags = backend in TAGGED
        if self._has_tags and self._n_transfers * (MOST_TENSORS + 2) >= 2**31 - 1:
            raise StageError(f"{self._n_transfers} transfers are more than gloo has tags for")
        self._groups: dict[tuple[str, bool], dist.ProcessGroup] = {}
        for kind in ("activation", "gradient", *(("sum",) if program.n_steps > 1 else ())):
            for upward in (True, False):
                self._groups[kind, upward] = group if self._has_tags else _same(group, ranks, backend)
        if not self._has_tags:
            self._open_channels(program)
        self.forms: dict[int, Forms] = {}
        self.structures: dict[int, Structure] = {}
        self._until_end: list[Any] = []
        self._sent: dict[tuple[int, str], deque[list[Any]]] = {}
        self._unposted: dict[tuple[int, str], deque[Incoming]] = {}

    def _open_channels(self, program: Program) -> None:
        """Connects both ends of every channel, in an order that is the same on all ranks: connecting blocks."""
        channels = {
            (device, one.to, one.kind)
            for device, lists in enumerate(program.devices)
            for one in lists.step
            if isinstance(one, SendStart)
        }
        for source, to, kind in sorted(channels):
            group, token = self._groups[kind, to > source], torch.zeros(1, device=self._device)
            if source == self._rank:
                dist.send(token, self._ranks[to], group=group)
            elif to == self._rank:
                dist.recv(token, self._ranks[source], group=group)

    def tag(self, value: int, microbatch: int) -> int:
        """The number of a transfer."""
        return value * self._n_microbatches + microbatch

    def announce(self, value: int, microbatch: int, forms: Forms, structure: Structure | None, to: int) -> None:
        """Tells a receiver what a value is made of."""
        around = b"" if structure is None else structure.encode()
        messages = [_encode(forms, len(around))]
        if around:
            messages.append(torch.frombuffer(bytearray(around), dtype=torch.uint8))
        for number, message in enumerate(messages):
            tag = self._control_tag(value, microbatch, number)
            self._until_end.append((dist.isend(message, self._ranks[to], group=self.control, tag=tag), message))

    def _control_tag(self, value: int, microbatch: int, number: int) -> int:
        """That of an announcement, and of the structure behind it."""
        first = self._n_transfers * MOST_TENSORS if self._has_tags else 1
        return first + number * self._n_transfers + self.tag(value, microbatch)

    def relay(self, number: int, root: int) -> int:
        """Brings a number of one rank to all others, from rank to rank; the first one waits for nobody."""
        n_ranks = len(self._ranks)
        tag = self._n_transfers * (MOST_TENSORS + 2) if self._has_tags else 0
        message = torch.tensor([number])
        if self._rank != root:
            self.control.recv([message], (self._rank - 1) % n_ranks, tag).wait()
        after = (self._rank + 1) % n_ranks
        if after != root:
            self._until_end.append((self.control.send([message], after, tag), message))
        return int(message)

    def send(self, instruction: SendStart, tag: int, tensors: Sequence[Tensor]) -> list[Any]:
        """Starts to send the tensors of a value."""
        to = instruction.to
        group = self._groups[instruction.kind, to > self._rank]
        tag = tag * MOST_TENSORS if self._has_tags else 0
        works = []
        for one in tensors:
            data = _plain(one.detach().contiguous())
            works.append((group.send([data], to, tag), data))
            tag += self._has_tags
        return works

    def receive(self, instruction: RecvStart) -> Incoming:
        """Starts to receive the tensors of a value whose forms are known."""
        incoming = Incoming(instruction, (), [])
        self._post(incoming, self.forms[instruction.value])
        return incoming

    def expect(self, instruction: RecvStart) -> Incoming:
        """Starts to receive a value that will be announced."""
        message = torch.empty(_HEAD + MOST_TENSORS * _ROW, dtype=torch.int64)
        tag = self._control_tag(instruction.value, instruction.microbatch, 0)
        work = dist.irecv(message, self._ranks[instruction.source], group=self.control, tag=tag)
        incoming = Incoming(instruction, (), [], message, work)
        self._unposted.setdefault((instruction.source, instruction.kind), deque()).append(incoming)
        return incoming

    def learn(self, incoming: Incoming, remembers: bool) -> None:
        """Waits for the announcement of a value, and starts to receive it, after all that come before it in its
        channel.

        With `remembers` later ones have the same forms.
        """
        waiting = self._unposted[incoming.instruction.source, incoming.instruction.kind]
        while incoming.announced is not None:
            first = waiting.popleft()
            assert first.announcement is not None, "what stands in the queue waits for its announcement"
            first.announced.wait()
            forms = _decode(first.announcement)
            self._learn_structure(first.instruction, int(first.announcement[1]))
            if remembers:
                self.forms.setdefault(first.instruction.value, forms)
            first.announced = first.announcement = None
            self._post(first, forms)

    def _learn_structure(self, receive: RecvStart, n_bytes: int) -> None:
        """Takes what is around the tensors of a value."""
        self.structures.pop(receive.value, None)
        if n_bytes:
            data = torch.empty(n_bytes, dtype=torch.uint8)
            tag = self._control_tag(receive.value, receive.microbatch, 1)
            dist.recv(data, self._ranks[receive.source], group=self.control, tag=tag)
            self.structures[receive.value] = Structure.decode(data.numpy().tobytes())

    def _post(self, incoming: Incoming, forms: Forms) -> None:
        one = incoming.instruction
        group = self._groups[one.kind, one.source < self._rank]
        tag = self.tag(one.value, one.microbatch) * MOST_TENSORS if self._has_tags else 0
        tensors = tuple(torch.empty(form.shape, dtype=form.dtype, device=self._device) for form in forms)
        incoming.tensors = tensors
        for tensor in tensors:
            incoming.works.append(group.recv([_plain(tensor)], one.source, tag))
            tag += self._has_tags

    def retire(self, instruction: SendStart, works: list[Any]) -> None:
        """Ends a send, and waits for an earlier one of its channel: a rank need not stand still until the other one has
        come.
        """
        sent = self._sent.setdefault((instruction.to, instruction.kind), deque())
        sent.append(works)
        if len(sent) > SENDS_BEHIND:
            _wait(sent.popleft())

    def end_later(self, works: list[Any]) -> None:
        """Keeps what a step has started to send until its end."""
        self._until_end += works

    def end_step(self) -> None:
        """Waits for all that is still under way."""
        for sent in self._sent.values():
            while sent:
                _wait(sent.popleft())
        _wait(self._until_end)
        self._until_end.clear()


def _plain(tensor: Tensor) -> Tensor:
    """The same memory as a tensor that backends carry."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _wait(works: list[Any]) -> None:
    for work, _ in works:
        work.wait()


def control_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """The group over which ranks exchange objects and announcements: the same, or one of gloo beside it. A collective
    call.
    """
    if dist.get_backend(group) in TAGGED:
        return group
    return _same(group, dist.get_process_group_ranks(group), "gloo")


def new_group(whole: dist.ProcessGroup, ranks: list[int], backend: str | None = None) -> dist.ProcessGroup | None:
    """A process group of some ranks of a group, `None` for the others; all ranks of the group call it.

    torch names groups by how many a rank has made, so a rank that is no member makes one for itself, where not all
    ranks of the run take part. Before 2.15 it counted otherwise, and ranks waited for each other under different names.

    Raises:
        UnsupportedError: Not all ranks take part, and torch is too old for that.
    """
    if dist.get_world_size(whole) == dist.get_world_size():
        made = dist.new_group(ranks, backend=backend)
    elif _TORCH < (2, 15):
        raise UnsupportedError(
            f"the program needs process groups of its own, and torch {torch.__version__} cannot make them "
            "within a group: "
            "let all ranks run it (without `group`), or use torch 2.15"
        )
    elif dist.get_rank() in ranks:
        made = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
    else:
        dist.new_group([dist.get_rank()], backend=backend, use_local_synchronization=True)
        return None
    return made if isinstance(made, dist.ProcessGroup) else None


def _same(whole: dist.ProcessGroup, ranks: list[int], backend: str) -> dist.ProcessGroup:
    group = new_group(whole, ranks, backend)
    assert group is not None, "every rank of the group is a member"
    return group


def _encode(forms: Forms, n_bytes: int) -> Tensor:
    if len(forms) > MOST_TENSORS:
        raise StageError(
            f"{len(forms)} tensors flow from one stage to another as one value, and at most {MOST_TENSORS} can"
        )
    message = torch.zeros(_HEAD + MOST_TENSORS * _ROW, dtype=torch.int64)
    numbers = [len(forms), n_bytes]
    for form in forms:
        if form.dtype not in _DTYPES:
            raise StageError(f"tensors of type {form.dtype} cannot flow between stages")
        if len(form.shape) > _MOST_DIMENSIONS:
            raise StageError(
                f"{form} has {len(form.shape)} dimensions, and at most {_MOST_DIMENSIONS} can flow between stages"
            )
        row = [_DTYPES.index(form.dtype), int(form.needs_gradient), len(form.shape), *form.shape]
        numbers += row + [0] * (_ROW - len(row))
    message[: len(numbers)] = torch.tensor(numbers)
    return message


def _decode(message: Tensor) -> Forms:
    numbers: list[int] = message.tolist()
    forms = []
    for number in range(numbers[0]):
        dtype, needs, dimensions, *shape = numbers[_HEAD + number * _ROW : _HEAD + (number + 1) * _ROW]
        forms.append(Form(_DTYPES[dtype], torch.Size(shape[:dimensions]), bool(needs)))
    return tuple(forms)
