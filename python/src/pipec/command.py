"""Calls the compiler: the same options as on the command line, as arguments of Python."""

from __future__ import annotations

import json
import keyword
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from .binary import find_compiler
from .errors import CompileError

if TYPE_CHECKING:
    pass

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """A schedule or pipeline as text, where a target is expected: `pipec.check(pipec.Source("schedule ..."))`."""

    text: str
    settings: Mapping[str, int] = field(default_factory=dict)
    """Parameters that it needs, unless others are given: what a search finds is for some `devices` and
    `microbatches`.
    """


Target = Path | Source
"""A `.pipe` file, a schedule of PyTorch as `.csv`, a schedule of the standard library such as `std:v_half`, or a
`Source`.
"""


class Options(TypedDict, total=False):
    """What every command takes with a target, by the names of the command line; `None` is as if it were not there."""

    devices: int | None
    """How many devices."""
    microbatches: int | None
    """How many microbatches a step has."""
    settings: Mapping[str, int] | None
    """Other parameters, such as `{"chunks": 2}` for `std:interleaved_1f1b`."""
    schedule: str | None
    """Which schedule, where the file declares several."""
    pipeline: str | None
    """Which pipeline, where the file declares several."""
    cost: str | None
    """Durations of tasks in any one unit, such as `F=1,B=1.2,W=0.8,comm=0.1`."""
    memory: str | float | None
    """Limit of the activations of each device, in units (one microbatch of one device's share of the model), or such as
    `30GiB`.
    """
    activation: str | None
    """What activations count in units, such as `W=0.5`."""
    recompute: str | None
    """Stages that run their forward once more for the backward: `all`, `none`, or such as `0..3,5`."""
    zero: int | None
    """What replicas divide, by the stages of ZeRO; the target is a pipeline with a model."""
    offload: str | None
    """What lives with the host: `activations`, `optimizer`, `parameters`, several between commas, or `none`."""
    layout: str | None
    """The layers of each stage, as Megatron-LM's `--pipeline-model-parallel-layout` has them."""
    torch: str | None
    """The version of PyTorch that loads a schedule as `.csv`, such as `2.9`."""
    profile: Path | None
    """Durations as `pipec profile` measured them."""
    cluster: Path | None
    """Machines to run on: a `cluster.toml`."""
    rates: Path | None
    """A profile by whose rates the cluster's devices compute."""


def call(
    command: str, target: Target, options: Mapping[str, Any], more: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs `pipec COMMAND TARGET` with options and further arguments; what it prints is in the result."""
    if isinstance(target, Source):
        where, text = "-", target.text
        given = {**target.settings, **(options.get("settings") or {})}
        options = {**options, "settings": {name: value for name, value in given.items() if options.get(name) is None}}
    else:
        where, text = os.fspath(target), None
    arguments = [find_compiler(), command, where, "--color", "never", *_options(options), *more]
    return subprocess.run(arguments, capture_output=True, text=True, input=text, check=False)


def report(command: str, target: Target, options: Mapping[str, Any], more: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON that a command prints: about a target that is accepted, or rejected with diagnostics.

    Raises:
        CompileError: It is neither: a wrong option, a missing file.
    """
    ended = call(command, target, options, ["--json", "--quiet", *more])
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        raise failure(command, ended) from None
    if not isinstance(found, dict) or found.get("schema") == "pipec.usage/1":
        raise failure(command, ended)
    return found


def failure(command: str, ended: subprocess.CompletedProcess[str]) -> CompileError:
    """An error with what the compiler said."""
    said = ended.stderr.strip()
    return CompileError(_without_usage(said) or f"`pipec {command}` ended with code {ended.returncode}")


def _without_usage(said: str) -> str:
    """An error about an option of the command line, in the words of Python: `cost=` instead of `--cost <COSTS>`, and
    neither usage nor hints of the command line.
    """
    if not said.endswith("For more information, try `--help`."):
        return said
    kept = [part for part in said.split("\n\n") if not part.lstrip().startswith(("Usage:", "For more", "tip:"))]
    return re.sub(r"`?--([a-z-]+)(?: <[A-Z_=]+>)?`?", lambda found: f"`{_argument(found[1])}=`", "\n\n".join(kept))


def _argument(option: str) -> str:
    """The name in Python of an option: `for_` of `for`, `may_recompute` of `may-recompute`."""
    name = {"set": "settings"}.get(option, option.replace("-", "_"))
    return f"{name}_" if keyword.iskeyword(name) else name


def _options(options: Mapping[str, Any]) -> list[str]:
    """Options as arguments; those that are `None` are left out.

    Raises:
        TypeError: There is no such option.
    """
    arguments = []
    for name, value in options.items():
        if name not in Options.__annotations__:
            raise TypeError(f"there is no option `{name}`; there are {', '.join(sorted(Options.__annotations__))}")
        if value is None:
            continue
        if name == "settings":
            for parameter, setting in sorted(value.items()):
                arguments.append(f"--set={parameter}={setting}")
        else:
            arguments.append(f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return arguments


def flags(**given: Any) -> list[str]:
    """Options of one command as arguments: `True` is a flag, a list is joined by commas, `None` and `False` are left
    out.
    """
    arguments = []
    for name, value in given.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(option)
        elif isinstance(value, (list, tuple)):
            arguments.append(f"{option}={','.join(map(str, value))}")
        else:
            arguments.append(f"{option}={value}")
    return arguments
