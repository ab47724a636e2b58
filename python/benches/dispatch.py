"""What a runtime costs beside the work: our `Runner` and PyTorch's own `_PipelineScheduleRuntime`, with the same orders
in the same processes.

    python python/benches/dispatch.py            # prints a table; PIPEC names the compiler

Stages multiply four numbers by a weight, so nearly all of a step is what a runtime and autograd take. *Beyond autograd*
is what is left after the same forwards and backwards in a plain loop, without stages, schedule and transfers. Steps of
both runtimes alternate, and medians are taken over all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
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
from torch.multiprocessing.spawn import spawn

import pipec
from pipec.instructions import Run

WIDTH = 4


@dataclass(frozen=True)
class Case:
    """A schedule with its numbers of devices and microbatches, and what else is set."""

    schedule: str
    devices: int
    microbatches: int
    settings: tuple[tuple[str, int], ...] = ()


CASES = (
    Case("std:interleaved_1f1b", 1, 8, (("chunks", 8),)),
    Case("std:interleaved_1f1b", 1, 8, (("chunks", 32),)),
    Case("std:v_half", 1, 16),
    Case("std:1f1b", 2, 16),
    Case("std:interleaved_1f1b", 2, 8, (("chunks", 4),)),
    Case("std:zb_h1", 2, 16),
    Case("std:zb_v", 2, 16),
)


class Trivial(nn.Module):
    """A product with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, 4]` to the same."""
        return x * self.weight


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    """A number."""
    return output.sum()


def build(case: Case, kind: str, path: Path) -> None:
    """Writes what the compiler makes of a case."""
    command = [pipec.find_compiler(), "build", case.schedule, "--emit", kind, "-o", str(path), "--quiet"]
    for name, value in (("devices", case.devices), ("microbatches", case.microbatches), *case.settings):
        command += ["--set", f"{name}={value}"]
    subprocess.run(command, check=True)


def ours(program: pipec.Program, rank: int, batch: Tensor) -> Callable[[], Any]:
    """A step of our runner."""
    stages = {stage: Trivial() for stage in program.stages_on(rank)}
    runner = pipec.Runner(program, stages, loss_of)
    return lambda: runner.step(batch, batch)


def theirs(program: pipec.Program, rank: int, batch: Tensor, table: Path) -> Callable[[], Any]:
    """A step of PyTorch's runtime, with the same order of tasks."""
    device = torch.device("cpu")
    own = program.stages_on(rank)
    stages = [PipelineStage(Trivial(), stage, program.n_stages, device) for stage in own]
    runtime = _PipelineScheduleRuntime(stages, program.n_microbatches, loss_fn=loss_of)
    # A schedule class says this; the runtime has no argument for it.
    runtime.stage_index_to_group_rank = {stage.index: stage.devices[0] for stage in program.stages}
    for stage in stages:
        stage.stage_index_to_group_rank = runtime.stage_index_to_group_rank
    runtime._load_csv(str(table), format="compute_only")
    inputs = (batch,) if 0 in own else ()
    target = batch if program.n_stages - 1 in own else None
    return lambda: runtime.step(*inputs, target=target, losses=[], return_outputs=False)


def plain(program: pipec.Program, rank: int, batch: Tensor) -> Callable[[], Any]:
    """As many forwards and backwards, one after the other, of as many stages, each with a graph of its own."""
    modules = [Trivial() for _ in program.stages_on(rank)]
    microbatches = batch.chunk(program.n_microbatches)
    seed = torch.tensor(1 / program.n_microbatches)
    is_last = program.n_stages - 1 in program.stages_on(rank)

    def step() -> None:
        for microbatch in microbatches:
            x, kept = microbatch, []
            for module in modules:
                leaf = x.detach().requires_grad_()
                x = module(leaf)
                kept.append((leaf, x))
            gradient = batch[: len(microbatch)]
            if is_last:
                leaf, x = kept.pop()
                torch.autograd.backward((x.sum(),), (seed,))
                assert leaf.grad is not None
                gradient = leaf.grad
            for leaf, x in reversed(kept):
                torch.autograd.backward((x,), (gradient,))
                assert leaf.grad is not None
                gradient = leaf.grad

    return step


def measure(rank: int, case: Case, folder: str, n_steps: int) -> None:
    """Runs the steps of a case on one rank; the first one writes the medians."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=case.devices, init_method=f"file://{folder}/rendezvous")
    program = pipec.load(Path(folder) / "x.json")
    batch = torch.ones(2 * case.microbatches, WIDTH)
    kinds = {
        "ours": ours(program, rank, batch),
        "theirs": theirs(program, rank, batch, Path(folder) / "x.csv"),
        "plain": plain(program, rank, batch),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(n_steps + 5):
        for kind, step in kinds.items():
            dist.barrier()
            began = time.perf_counter()
            step()
            if number >= 5:
                found[kind].append(time.perf_counter() - began)
    if rank == 0:
        (Path(folder) / "medians").write_text(" ".join(str(statistics.median(found[kind])) for kind in kinds))
    dist.destroy_process_group()


def row(case: Case, n_steps: int) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        build(case, "json", Path(folder) / "x.json")
        build(case, "torch-csv", Path(folder) / "x.csv")
        program = pipec.load(Path(folder) / "x.json")
        spawn(measure, (case, folder, n_steps), case.devices)
        mine, other, loop = map(float, (Path(folder) / "medians").read_text().split())
    step = program.devices[0].step
    tasks = sum(isinstance(one, Run) and program.execs[one.exec].kind != "Update" for one in step)
    split = any("W" in stage.kinds for stage in program.stages)
    micro = 1e6 / tasks
    beyond = "" if split else f"{(mine - loop) * micro:.0f} | {(other - loop) * micro:.0f}"
    settings = "".join(f", {name} {value}" for name, value in case.settings)
    name = f"`{case.schedule.removeprefix('std:')}`{settings}"
    return (
        f"| {name} | {case.devices} | {tasks} | {len(step)} | {mine * micro:.0f} | {other * micro:.0f} | {beyond or ' | '} | "
        f"{mine * 1e6 / len(step):.1f} | {other / mine:.1f} |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="measured steps of each runtime and case")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"PyTorch {torch.__version__}, {options.steps} steps each, medians of rank 0, in microseconds\n")
    print(
        "| schedule | ranks | tasks | instructions | a task, ours | PyTorch | beyond autograd, ours | PyTorch | an instruction, ours | ratio |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for case in CASES:
        print(row(case, options.steps), flush=True)


if __name__ == "__main__":
    main()
