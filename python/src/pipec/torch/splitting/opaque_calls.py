"""Lets modules of a model be single calls while its forward is run or exported: what is inside of them is not traced.

First the model runs on the example, and it is noted what each module gets and returns. Then `torch.export` runs the
forward once more, where each of these calls is an operator without a meaning, `pipec::module(number, tensors)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import StageError
from ..stage.structures import Structure, take_apart

torch.library.define("pipec::module", "(int number, Tensor[] tensors) -> Tensor[]")
OPERATOR = torch.ops.pipec.module.default
"""The operator that stands for a call."""

_exported: list[Call] = []
"""The calls of the model that is being exported; one is at a time."""


@torch.library.register_fake("pipec::module")  # type: ignore[untyped-decorator]
def _shapes(number: int, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in _exported[number].forms]


@dataclass(frozen=True)
class Call:
    """A call of a module: its name, what it gets, and what it returns, as tensors with a structure around them."""

    module: str
    arguments: Structure
    """Around the tensors that it gets when it is exported."""
    places: tuple[int, ...]
    """Which of the leaves of its arguments these are."""
    constants: Mapping[int, Any]
    """The leaves that are no tensors when the model runs."""
    changed: frozenset[int]
    """The leaves that the module changes in place."""
    forms: tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
    """Of the tensors that it returns: shape, type, device."""
    result: Structure | None

    def of(self, tensors: Sequence[Any], is_fixed: Callable[[Any], bool]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call with these for the tensors in them.

        A tensor that is fixed, and that was none when the model ran, is what it was then: a causal mask that is made
        for the exporter alone would keep attention from its fast path.
        """
        found = [
            self.constants[place] if place in self.constants and is_fixed(one) else one
            for place, one in zip(self.places, tensors)
        ]
        args, kwargs = self.arguments.build(found)
        return tuple(args), dict(kwargs)


class Unfit(Exception):
    """A module gets or returns what is no tensor, number or text; `args` are its name, and what is wrong."""


def record(
    model: nn.Module, leaves: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Call], Any]:
    """Runs the model without gradients: the calls of these modules in their order, and what the model returns.

    Raises:
        Unfit: A module cannot be a single call.
        StageError: The model does not run on the example.
    """
    calls: list[Call] = []

    def note(name: str, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _, arguments = take_apart((args, kwargs))
        if arguments is None:
            raise Unfit(name, f"gets {_strange((args, kwargs))}")
        leaves = list(enumerate(leaves_of(args, kwargs)))
        before = {place: one._version for place, one in leaves if isinstance(one, Tensor)}
        found = run(*args, **kwargs)
        tensors, result = take_apart(found)
        if not tensors:
            raise Unfit(name, f"returns {_strange(found)}")
        forms = tuple((one.shape, one.dtype, one.device) for one in tensors)
        constants = {place: one for place, one in leaves if not isinstance(one, Tensor)}
        changed = frozenset(place for place, one in leaves if place in before and one._version != before[place])
        calls.append(Call(name, arguments, (), constants, changed, forms, result))
        return found

    with _called_by(model, leaves, note), torch.no_grad():
        try:
            return calls, model(*args, **kwargs)
        except Unfit:
            raise
        except Exception as error:
            raise StageError(
                f"the model does not run on the example, {_described(args, kwargs)}: {type(error).__name__}: {error}"
            ) from error


@contextmanager
def exported(model: nn.Module, leaves: Sequence[str], calls: list[Call]) -> Iterator[None]:
    """Inside, calls of these modules are calls of `OPERATOR`; their arguments are noted.

    Raises:
        StageError: The forward makes other calls than those that were recorded.
    """
    _exported[:] = calls
    number = 0

    def stand_in(name: str, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal number
        if number == len(calls) or calls[number].module != name:
            before = f"`{calls[number].module}`" if number < len(calls) else "nothing more"
            raise StageError(
                f"when it is exported, the forward calls `{name}` where it called {before} on the example: "
                "what it calls has to be the same each time"
            )
        call, (tensors, arguments) = calls[number], take_apart((args, kwargs))
        if arguments is None:
            raise StageError(f"when it is exported, `{name}` gets {_strange((args, kwargs))}")
        places = tuple(place for place, one in enumerate(leaves_of(args, kwargs)) if isinstance(one, Tensor))
        calls[number] = replace(call, arguments=arguments, places=places)
        found = tuple(OPERATOR(number, list(tensors)))
        number += 1
        if call.result is not None:
            return call.result.build(found)
        return found[0] if len(found) == 1 else found

    try:
        with _called_by(model, leaves, stand_in):
            yield
    finally:
        _exported.clear()


@contextmanager
def _called_by(model: nn.Module, leaves: Sequence[str], handler: Callable[..., Any]) -> Iterator[None]:
    """Inside, calls of these modules go to a handler: their class is one whose `__call__` does so, because hooks and
    checkpoints are in a `__call__`, too.
    """
    before = {name: type(model.get_submodule(name)) for name in leaves}

    def of(name: str, kind: type[nn.Module]) -> type[nn.Module]:
        def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return handler(name, lambda *a, **k: kind.__call__(self, *a, **k), args, kwargs)

        return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})

    try:
        for name, kind in before.items():
            model.get_submodule(name).__class__ = of(name, kind)
        yield
    finally:
        for name, kind in before.items():
            model.get_submodule(name).__class__ = kind


def leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """All that is in the arguments of a call."""
    return pytree.tree_leaves((args, kwargs))


def _strange(value: Any) -> str:
    """What of a value is no tensor, number or text."""
    kinds = {type(one).__name__ for one in pytree.tree_leaves(value) if not isinstance(one, (Tensor, int, float, str))}
    kinds -= {"NoneType"}
    return "no tensor" if not kinds else "a " + " and a ".join(f"`{one}`" for one in sorted(kinds))


def _described(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    def of(value: Any) -> str:
        return (
            f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            if isinstance(value, Tensor)
            else repr(value)
        )

    return ", ".join([*map(of, args), *(f"{name}={of(value)}" for name, value in kwargs.items())]) or "which is empty"
