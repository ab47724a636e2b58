"""What all instructions have in common: how they are read from JSON, and their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar

Entry = Mapping[str, Any]
Convert = Callable[[Any, "list[int]"], Any]
One = TypeVar("One", bound="Instruction")


@dataclass(frozen=True)
class Instruction:
    """A row of the instruction table."""

    WORD: ClassVar[str]
    """The key of its object in JSON, and the word that its text begins with."""
    TEXT: ClassVar[str]
    """Its text, with the fields in braces."""
    KEYS: ClassVar[Mapping[str, str]] = {}
    """Keys in JSON of fields that are named otherwise: keywords of Python, and `operands`, which become buffers."""
    BY_WORD: ClassVar[dict[str, type[Instruction]]] = {}
    """Every class of `instructions`."""

    def __init_subclass__(cls) -> None:
        Instruction.BY_WORD[cls.WORD] = cls

    def __str__(self) -> str:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        texts = {name: _text(value) for name, value in values.items()}
        return self.TEXT.format(**texts)

    @classmethod
    def read(cls: type[One], entry: Entry, operands: list[int]) -> One:
        """Reads its fields; a range of operands becomes the buffers that stand there."""
        return cls(*(convert(entry[key], operands) for key, convert in _columns(cls.WORD)))


def _text(value: int | str | tuple[int, ...]) -> str:
    return ", ".join(f"%{one}" for one in value) if isinstance(value, tuple) else str(value)


@cache
def _columns(word: str) -> list[tuple[str, Convert]]:
    """The key of each field of an instruction, and what makes its value."""
    cls = Instruction.BY_WORD[word]
    return [(cls.KEYS.get(one.name, one.name), _CONVERT[str(one.type)]) for one in fields(cls)]


def _buffers(value: Any, operands: list[int]) -> tuple[int, ...]:
    start, length = int(value["start"]), int(value["len"])
    if start + length > len(operands):
        raise ValueError(f"operands {start}..{start + length} of a run, but the device has {len(operands)}")
    return tuple(operands[start : start + length])


_CONVERT: dict[str, Convert] = {
    "int": lambda value, _: int(value),
    "str": lambda value, _: str(value),
    "tuple[int, ...]": _buffers,
}


def read_instruction(entry: Mapping[str, Entry], operands: list[int]) -> Instruction:
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
    ((word, rest),) = entry.items()
    if word not in Instruction.BY_WORD:
        raise ValueError(f"the instruction `{word}` is unknown")
    return Instruction.BY_WORD[word].read(rest, operands)
