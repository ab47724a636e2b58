"""Copies of a GPU: which stream does what, and what waits for what, on streams that only note it.

No GPU is asked for, so this says nothing about what a card does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pipec.torch.copies import Copier

Log = list[tuple[Any, ...]]


class Stream:
    """A stream that notes what is asked of it."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self.name = name

    def wait_stream(self, other: Stream) -> None:
        self._log.append((self.name, "waits for", other.name))

    def record_event(self) -> str:
        self._log.append((self.name, "has reached its event"))
        return f"event of {self.name}"

    def wait_event(self, event: str) -> None:
        self._log.append((self.name, "waits for", event))


class Card:
    """A GPU: its streams, and the one that is current."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: Log = []
        self._current = [Stream(self.log, "compute")]
        names = iter(("first", "second"))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(self.log, next(names)))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self._current[-1])
        monkeypatch.setattr(torch.cuda, "stream", self._use)

    @contextmanager
    def _use(self, stream: Stream) -> Iterator[None]:
        self._current.append(stream)
        yield
        self._current.pop()

    def memory(self, name: str) -> Any:
        """A tensor that notes what is done with it."""
        return Memory(self, name)

    def note(self, *what: Any) -> None:
        """Notes what happens on the current stream."""
        self.log.append((self._current[-1].name, *what))


class Memory:
    def __init__(self, card: Card, name: str) -> None:
        self._card = card
        self.name = name

    def copy_(self, source: Memory, non_blocking: bool) -> None:
        self._card.note("copies", source.name, "to", self.name, non_blocking)

    def record_stream(self, stream: Stream) -> None:
        self._card.note("keeps", self.name, "for", stream.name)


@pytest.mark.parametrize(("direction", "stream"), [("d2h", "first"), ("h2d", "second")])
def test_a_copy_runs_on_its_own_stream_between_two_events(
    direction: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card(monkeypatch)
    copier = Copier(torch.device("cuda", 0))
    to, source = card.memory("to"), card.memory("source")
    wait = copier.start(direction, [(to, source)])
    on_device = "source" if direction == "d2h" else "to"
    assert card.log == [
        (stream, "waits for", "compute"),
        (stream, "copies", "source", "to", "to", True),
        (stream, "keeps", on_device, "for", stream),
        (stream, "has reached its event"),
    ]
    card.log.clear()
    wait()
    assert card.log == [("compute", "waits for", f"event of {stream}")]


def test_memory_of_the_host_is_pinned_where_a_gpu_copies_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    Card(monkeypatch)
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: asked.append(options))
    for device in ("cuda", "cpu"):
        Copier(torch.device(device)).host_memory(torch.ones(1))
    assert asked == [{"device": "cpu", "pin_memory": True}, {"device": "cpu", "pin_memory": False}]


def test_a_copy_on_cpus_has_ended_when_it_has_started() -> None:
    to, source = torch.zeros(3), torch.arange(3.0, requires_grad=True)
    wait = Copier(torch.device("cpu")).start("d2h", [(to, source)])
    assert to.tolist() == [0.0, 1.0, 2.0] and not to.requires_grad
    wait()
