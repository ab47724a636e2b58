"""What a runner is made with: whether each argument is of the type that it should be."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ..program import Program


def require_program(program: object) -> None:
    """Checks that the first argument is a program.

    Raises:
        TypeError: It is the name of one, or something else.
    """
    if isinstance(program, Program):
        return
    name = f'"{program}"' if isinstance(program, str) else "target"
    raise TypeError(
        f"the first argument is {_named(program)}, expected a `Program`: compile it first, "
        f"`pipec.compile({name}, devices=.., microbatches=..)`"
    )


def wrong_type(stages: object, loss_fn: object, optimizer: object, names: object) -> TypeError | None:
    """An error about the first of the other arguments that is of another type than it should be."""
    if not isinstance(stages, Mapping):
        return TypeError(f"stages are {_named(stages)}, expected a dict of modules by stage, such as `{{0: module}}`")
    for stage, module in stages.items():
        if not isinstance(stage, int) or not isinstance(module, nn.Module):
            return TypeError(
                f"stages have {_module_text(module)} for {stage!r}, expected an `nn.Module` for the number of its stage"
            )
    if loss_fn is not None and not callable(loss_fn):
        return TypeError(f"`loss_fn` is {_named(loss_fn)}, expected a function of output and targets")
    if isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        return TypeError(
            f"`optimizer=` is an instance of `{kind}`, expected a function or class that makes one from parameters, "
            f"such as `partial({kind}, lr=..)`; or leave it out, and call `optimizer.step()` behind `runner.step`"
        )
    if optimizer is not None and not callable(optimizer):
        return TypeError(
            f"`optimizer=` is {_named(optimizer)}, expected a function or class that makes an optimizer from parameters"
        )
    if names is not None and not isinstance(names, Mapping):
        return TypeError(f'`names=` is {_named(names)}, expected a dict by stage, such as `{{0: "layers.0"}}`')
    return None


def _module_text(module: object) -> str:
    return "a module" if isinstance(module, nn.Module) else _named(module)


def _named(one: object) -> str:
    """A value in an error: `a list`, `an int`, `None`."""
    if one is None:
        return "`None`"
    kind = type(one).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
