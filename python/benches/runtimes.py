"""Two runtimes with the same orders of tasks and the same stages in one process: our `Runner`, and PyTorch's own
`_PipelineScheduleRuntime`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

import pipec

MakeStage = Callable[[int, int], nn.Module]
"""Makes a stage by its index and the number of stages."""


@dataclass(frozen=True)
class Case:
    """A schedule with its numbers of devices and microbatches, and what else is set."""

    schedule: str
    devices: int
    microbatches: int
    settings: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        settings = "".join(f", {name} {value}" for name, value in self.settings)
        return f"`{self.schedule.removeprefix('std:')}`{settings}"

    def build(self, folder: Path) -> pipec.Program:
        """Writes what the compiler makes of it, for both runtimes."""
        for kind, name in (("json", "x.json"), ("torch-csv", "x.csv")):
            command = [pipec.find_compiler(), "build", self.schedule, "--emit", kind, "-o", str(folder / name)]
            for key, value in (("devices", self.devices), ("microbatches", self.microbatches), *self.settings):
                command += ["--set", f"{key}={value}"]
            subprocess.run([*command, "--quiet"], check=True)
        return pipec.load(folder / "x.json")


def join(rank: int, case: Case, folder: Path) -> pipec.Program:
    """Makes this process a rank of a case; the program that it runs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=case.devices, init_method=f"file://{folder}/rendezvous")
    return pipec.load(folder / "x.json")


def ours(program: pipec.Program, make: MakeStage, loss: Any, inputs: Tensor, targets: Tensor) -> Callable[[], Any]:
    """A step of our runner."""
    stages = {stage: make(stage, program.n_stages) for stage in program.stages_on(dist.get_rank())}
    runner = pipec.Runner(program, stages, loss)
    return lambda: runner.step(inputs, targets)


def theirs(
    program: pipec.Program, make: MakeStage, loss: Any, inputs: Tensor, targets: Tensor, table: Path
) -> Callable[[], Any]:
    """A step of PyTorch's runtime, with the same order of tasks."""
    device, own = torch.device("cpu"), program.stages_on(dist.get_rank())
    stages = [PipelineStage(make(stage, program.n_stages), stage, program.n_stages, device) for stage in own]
    runtime = _PipelineScheduleRuntime(stages, program.n_microbatches, loss_fn=loss)
    # A schedule class says this; the runtime has no argument for it.
    runtime.stage_index_to_group_rank = {stage.index: stage.devices[0] for stage in program.stages}
    for stage in stages:
        stage.stage_index_to_group_rank = runtime.stage_index_to_group_rank
    runtime._load_csv(str(table), format="compute_only")
    given = (inputs,) if 0 in own else ()
    goal = targets if program.n_stages - 1 in own else None
    return lambda: runtime.step(*given, target=goal, losses=[], return_outputs=False)


@dataclass(frozen=True)
class Took:
    """What a step took, in seconds: of the clock, and of the processor in all threads of this process."""

    wall: float
    cpu: float


def timed(step: Callable[[], Any]) -> Took:
    """Runs a step, which begins on all ranks together."""
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)
