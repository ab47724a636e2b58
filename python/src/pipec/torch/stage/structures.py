"""What a module returns around its tensors: dicts, dataclasses and nested tuples are taken apart to travel, and put
together behind that.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

_CONSTANTS = (type(None), bool, int, float, str)


class _Hole:
    """Where a tensor was; there is one."""

    def __reduce__(self) -> str:
        return "_HOLE"


_HOLE = _Hole()


@dataclass(frozen=True)
class Structure:
    """A value without its tensors: `leaves` has a hole for each of them, and the constants between."""

    spec: Any
    leaves: tuple[Any, ...]

    def build(self, tensors: Sequence[Tensor]) -> Any:
        """The value with these tensors."""
        rest = iter(tensors)
        return pytree.tree_unflatten([next(rest) if one is _HOLE else one for one in self.leaves], self.spec)

    def arguments(self, tensors: Sequence[Tensor]) -> Sequence[Any]:
        """What the module that reads the value gets of it: the parts of a tuple, or the whole value."""
        built = self.build(tensors)
        return built if type(built) in (tuple, list) else [built]

    def encode(self) -> bytes:
        """As bytes that another rank can read, which has the same classes."""
        return pickle.dumps((self.spec, self.leaves))

    @staticmethod
    def decode(data: bytes) -> Structure:
        """Reads them."""
        spec, leaves = pickle.loads(data)
        _register(kind for kind in _kinds(spec))
        return Structure(spec, leaves)


def take_apart(value: Any) -> tuple[tuple[Tensor, ...], Structure | None]:
    """The tensors of a value, and what is around them: nothing around one tensor, or a tuple of them. Without tensors
    it cannot be taken apart.
    """
    if isinstance(value, Tensor):
        return (value,), None
    if isinstance(value, (tuple, list)) and all(isinstance(one, Tensor) for one in value):
        return tuple(value), None
    leaves, spec = pytree.tree_flatten(value)
    while unknown := {type(one) for one in leaves if dataclasses.is_dataclass(one)}:
        _register(unknown)
        leaves, spec = pytree.tree_flatten(value)
    if not all(isinstance(one, (Tensor, *_CONSTANTS)) for one in leaves):
        return (), None
    tensors = tuple(one for one in leaves if isinstance(one, Tensor))
    return tensors, Structure(spec, tuple(_HOLE if isinstance(one, Tensor) else one for one in leaves))


def _register(kinds: Any) -> None:
    """Lets torch take dataclasses apart."""
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind not in pytree.SUPPORTED_NODES:
            pytree.register_dataclass(kind)


def _kinds(spec: Any) -> list[Any]:
    """The classes in a structure."""
    return [spec.type, *(kind for child in spec.children_specs for kind in _kinds(child))]
