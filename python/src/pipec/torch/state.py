"""Weights and optimizers' state under the names of the original model, so that any other schedule or a plain model can
load them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..errors import StageError
from .names import Names, original


def held_state(stages: Mapping[int, nn.Module]) -> dict[str, Any]:
    """The weights and buffers of some stages, by stage and name there."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    return dict(get_model_state_dict(_together(stages)))


def model_state(stages: Mapping[int, nn.Module], names: Names | None, copies: bool) -> dict[str, Any]:
    """The weights and buffers of some stages, by their original names."""
    found: dict[str, Any] = {}
    for key, one in held_state(stages).items():
        stage, _, name = key.partition(".")
        found[original(names, int(stage), name)] = one.detach().clone() if copies else one
    return found


def load_model_state(stages: Mapping[int, nn.Module], names: Names | None, state: Mapping[str, Any]) -> None:
    """Loads what of a state belongs to some stages.

    Raises:
        StageError: Something of theirs is missing.
    """
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    whole = _together(stages)
    set_model_state_dict(whole, _chosen(list(get_model_state_dict(whole)), names, state))


def optimizer_state(
    stages: Mapping[int, nn.Module], names: Names | None, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Any]:
    """The state of optimizers, by the original names of their weights: `state.NAME.exp_avg`, `param_groups.NAME.lr`."""
    return {_renamed(names, key): one for key, one in _flat(stages, optimizers).items()}


def load_optimizer_state(
    stages: Mapping[int, nn.Module],
    names: Names | None,
    optimizers: Sequence[torch.optim.Optimizer],
    state: Mapping[str, Any],
) -> None:
    """Loads what of a state belongs to the weights of some optimizers.

    Raises:
        StageError: Something of theirs is missing, or the state is one of `optimizer.state_dict()`.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    if {"state", "param_groups"} <= state.keys():
        raise StageError(
            "the state is as `optimizer.state_dict()` makes it, which knows weights by their number: "
            "`runner.optimizer_state_dict(optimizer)` makes one by their names in the original model"
        )
    chosen = {key: _found(state, _renamed(names, key)) for key in _flat(stages, optimizers)}
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    set_optimizer_state_dict(_together(stages), list(optimizers), optim_state_dict=chosen, options=options)


def _flat(stages: Mapping[int, nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    held = {one for module in stages.values() for one in module.parameters()}
    updated = {one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    if not updated <= held:
        raise StageError(
            "an optimizer updates something that is no weight of this rank's stages, such as a share or a version of one: "
            "its state has no names in the original model"
        )
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    return dict(get_optimizer_state_dict(_together(stages), list(optimizers), options=options)) if optimizers else {}


def _renamed(names: Names | None, key: str) -> str:
    section, stage, name = key.split(".", 2)
    return f"{section}.{original(names, int(stage), name)}"


def _chosen(keys: Sequence[str], names: Names | None, state: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key in keys:
        stage, _, name = key.partition(".")
        found[key] = _found(state, original(names, int(stage), name))
    return found


def _found(state: Mapping[str, Any], name: str) -> Any:
    if name not in state:
        known = ", ".join(f"`{one}`" for one in list(state)[:4])
        raise StageError(
            f"`{name}` is not in the state, which has {known or 'nothing'}{', ..' if len(state) > 4 else ''}"
        )
    return state[name]


def _together(stages: Mapping[int, nn.Module]) -> nn.Module:
    return nn.ModuleDict({str(stage): module for stage, module in stages.items()})
