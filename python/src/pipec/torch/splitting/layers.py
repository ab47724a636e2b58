"""The layers of a model: its forward, traced and cut wherever a stage may begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ...errors import StageError
from .chain import Chain, Layer
from .leaves import atoms, find_blocks, require_modules, whole_around, without_weights
from .trace import trace


def layers_of(model: nn.Module, example: Any, at: Sequence[str] | None, by: str | None) -> tuple[Chain, list[Layer]]:
    """The traced forward and its layers."""
    if by not in (None, "blocks", "export"):
        raise StageError(f'`by` is {by!r}, expected "blocks" or "export"')
    if at is not None and by is not None:
        raise StageError("`at=` names the places to cut, and `by=` asks for them to be found: give one of them")
    if at is not None:
        require_modules(model, at)
        chain = _chain(model, example, whole_around(model, at), at)
        return chain, chain.layers(chain.at_modules(at, closes=False))
    blocks = find_blocks(model) if by != "export" else []
    if not blocks and by == "blocks":
        raise StageError(
            f"`{type(model).__name__}` has no list of several modules of one class: name the modules to cut at "
            "with `at=`"
        )
    if blocks:
        chain = _chain(model, example, whole_around(model, blocks), blocks)
        return chain, chain.layers(chain.at_modules(blocks, closes=True))
    chain = _chain(model, example, atoms(model), [])
    return chain, chain.layers(chain.at_single_values())


def _chain(model: nn.Module, example: Any, leaves: Sequence[str], places: Sequence[str]) -> Chain:
    """The traced forward, where these modules are whole. Those without weights are traced, too, if what they return is
    the same for all inputs, so that it need not go from stage to stage.
    """
    opened = [one for one in without_weights(model, leaves) if one not in places]
    if opened:
        try:
            chain = Chain(trace(model, example, [one for one in leaves if one not in opened], places))
        except StageError:
            chain = None
        if chain is not None and not (kept := [one for one in opened if not chain.is_constant(one)]):
            return chain
        if chain is not None and len(kept) < len(opened):
            return Chain(trace(model, example, [one for one in leaves if one not in opened or one in kept], places))
    return Chain(trace(model, example, leaves, places))


def too_few(chain: Chain, found: Sequence[Layer], at: Sequence[str] | None, by: str | None) -> str:
    """What to do where there are too few layers."""
    if at is not None:
        return "Name more modules, or compile the program for fewer stages"
    if by != "export" and find_blocks(chain.traced.model):
        return 'Compile the program for fewer stages, or cut inside of blocks with `by="export"` or `at=`'
    largest = max(found, key=lambda one: one.end - one.begin)
    middle = (largest.begin + largest.end) // 2
    crossing = [one for one in chain.crossing(middle) if one.op != "placeholder"]
    if len(crossing) > 1:
        values = " and ".join(chain.describe(one) for one in crossing[:3])
        return (
            f"Inside `{largest.name}` several values go side by side, such as {values}: name modules to cut at "
            "with `at=`, "
            "and they cross the cut together"
        )
    return "Compile the program for fewer stages, or name modules inside of the layers with `at=`"
