"""Whether the modules of a rank fit its program: the stages that they are of, the device that they are on, and the cut
that made them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ..errors import StageError
from ..program import Program


def require_stages(program: Program, rank: int, stages: Mapping[int, nn.Module]) -> None:
    """Checks that there is a module for each stage of a rank, and for no other.

    Raises:
        StageError: There is not.
    """
    expected, given = set(program.stages_on(rank)), set(stages)
    where = f"rank {rank} runs d{rank} of `{program.name}`, which has stages {sorted(expected)}"
    if given - expected:
        raise StageError(f"{where}, but a module is given for {sorted(given - expected)} as well")
    if expected - given:
        raise StageError(f"{where}, but no module is given for {sorted(expected - given)}")


def cut_of(stages: Mapping[int, nn.Module]) -> str:
    """Where the model was cut whose stages a rank has, as `split` notes it; unknown of modules that it has not made."""
    noted = (getattr(one, "cut_of_model", None) for module in stages.values() for one in module.modules())
    return next((str(one) for one in noted if one is not None), "unknown")


def find_device(
    rank: int, stages: Mapping[int, nn.Module], device: torch.device | str | None, backend: str
) -> torch.device:
    """The device of a rank's modules, unless another one is named.

    Raises:
        StageError: They are on several, or the backend does not carry tensors of it.
    """
    found = {one.device for module in stages.values() for one in module.parameters()}
    if device is not None:
        found = {torch.device(device)}
    if len(found) > 1:
        raise StageError(f"the modules of rank {rank} are on several devices: {sorted(map(str, found))}")
    of_modules = found.pop() if found else torch.device("cpu")
    if of_modules.type == "meta":
        raise StageError(
            f"the modules of rank {rank} are on the device `meta`, without numbers: give them memory first, "
            "such as with `cut.materialise(rank, state=..)` where `split` has made them"
        )
    if backend == "gloo" and of_modules.type != "cpu":
        raise StageError(
            f"gloo carries tensors of the CPU, not of `{of_modules}`: initialise torch.distributed with nccl"
        )
    return of_modules
