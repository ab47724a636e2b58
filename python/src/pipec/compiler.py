"""Calls the compiler, the `pipec` binary."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from .errors import CompileError
from .program import Program, loads


def find_compiler() -> str:
    """The path of the `pipec` binary: what the environment variable `PIPEC` names, or else the first one on `PATH`.

    Raises:
        CompileError: There is none.
    """
    named = os.environ.get("PIPEC")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise CompileError(f"the environment variable PIPEC names `{named}`, which is no program that can be run")
        return named
    found = shutil.which("pipec")
    if found is None:
        raise CompileError(
            "there is no `pipec` on PATH: build it with `cargo build --release`, and let the environment variable PIPEC "
            'name target/release/pipec; a program that is compiled already needs none: `pipec.load("x.json")`'
        )
    return found


def compile(
    target: str | os.PathLike[str],
    *,
    devices: int | None = None,
    microbatches: int | None = None,
    schedule: str | None = None,
    pipeline: str | None = None,
    recompute: str | None = None,
    cost: str | None = None,
    memory: str | None = None,
    zero: int | None = None,
    offload: str | None = None,
    settings: Mapping[str, int] | None = None,
) -> Program:
    """Compiles a schedule or pipeline; the same as `pipec build TARGET --emit json` on the command line.

    Equal targets and settings give equal programs, so every rank may compile for itself.

    Args:
        target: A `.pipe` file, or a schedule of the standard library such as `std:v_half`.
        devices: How many devices, one for each rank.
        microbatches: How many microbatches a step has.
        schedule: Which schedule, where the file declares several.
        pipeline: Which pipeline, where the file declares several.
        recompute: Stages that run their forward once more for the backward: `all`, `none`, or such as `0..3,5`.
        cost: Durations of tasks by which the compiler orders transfers, such as `F=1,B=1.2,comm=0.1`.
        memory: Limit of the activations of every device, in units.
        zero: What replicas divide, by the stages of ZeRO; the target is a pipeline with a model.
        offload: What lives with the host: `activations`, `optimizer`, `parameters`, several between commas, or `none`; of a pipeline with
            a model as well.
        settings: Other parameters, such as `{"chunks": 2}` for `std:interleaved_1f1b`.

    Raises:
        CompileError: The compiler is missing, or rejects the target; the text is what it printed.
        ProgramError: The compiler is of another version, and writes another schema.
    """
    values = dict(settings or {})
    for name, value in (("devices", devices), ("microbatches", microbatches)):
        if value is not None:
            values[name] = value
    command = [find_compiler(), "build", os.fspath(target), "--emit", "json", "--quiet"]
    for name, value in sorted(values.items()):
        command += ["--set", f"{name}={value}"]
    options = {
        "schedule": schedule,
        "pipeline": pipeline,
        "recompute": recompute,
        "cost": cost,
        "memory": memory,
        "zero": None if zero is None else str(zero),
        "offload": offload,
    }
    for name, text in options.items():
        if text is not None:
            command += [f"--{name}", text]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = ended.stderr.strip() or f"`{' '.join(command)}` ended with code {ended.returncode}"
        raise CompileError(said)
    return loads(ended.stdout)
