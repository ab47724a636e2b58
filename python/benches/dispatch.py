"""What a runtime costs beside the work: our `Runner` and PyTorch's own `_PipelineScheduleRuntime`, with the same orders
in the same processes.

    python python/benches/dispatch.py            # prints a table; PIPEC names the compiler

Stages multiply four numbers by a weight, so nearly all of a step is what a runtime and autograd take. *Beyond autograd*
is what is left after the same forwards and backwards in a plain loop, without stages, schedule and transfers; *beyond
the engine* after a loop that calls autograd's engine directly, without the checks of `torch.autograd.backward`. Steps
of all of them alternate, and medians are taken over all steps. Times are of the processor, in all threads of rank 0,
but for the last two columns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from runtimes import Case, Took, join, ours, theirs, timed
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

import pipec
from pipec.instructions import Run

WIDTH = 4
CASES = (
    Case("std:interleaved_1f1b", 1, 8, (("chunks", 8),)),
    Case("std:interleaved_1f1b", 1, 8, (("chunks", 32),)),
    Case("std:v_half", 1, 16),
    Case("std:1f1b", 2, 16),
    Case("std:interleaved_1f1b", 2, 8, (("chunks", 4),)),
    Case("std:zb_h1", 2, 16),
    Case("std:zb_v", 2, 16),
)
UNMEASURED = 5
"""Steps of each kind before those that count."""


class Trivial(nn.Module):
    """A product with a weight."""

    def __init__(self, index: int = 0, n_stages: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, 4]` to the same."""
        return x * self.weight


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    """A number."""
    return output.sum()


def engine(roots: tuple[Tensor], gradients: tuple[Tensor]) -> None:
    """What `torch.autograd.backward` calls in the end."""
    run: Any = torch.autograd.Variable._execution_engine.run_backward
    run(roots, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)


def plain(program: pipec.Program, rank: int, batch: Tensor, backward: Callable[..., None]) -> Callable[[], Any]:
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
                backward((x.sum(),), (seed,))
                assert leaf.grad is not None
                gradient = leaf.grad
            for leaf, x in reversed(kept):
                backward((x,), (gradient,))
                assert leaf.grad is not None
                gradient = leaf.grad

    return step


def measure(rank: int, case: Case, folder: Path, n_steps: int) -> None:
    """Runs the steps of a case on one rank; the first one writes what they took."""
    program = join(rank, case, folder)
    batch = torch.ones(2 * case.microbatches, WIDTH)
    kinds = {
        "ours": ours(program, Trivial, loss_of, batch, batch),
        "theirs": theirs(program, Trivial, loss_of, batch, batch, folder / "x.csv"),
        "plain": plain(program, rank, batch, torch.autograd.backward),
        "engine": plain(program, rank, batch, engine),
    }
    found: dict[str, list[Took]] = {kind: [] for kind in kinds}
    for number in range(n_steps + UNMEASURED):
        for kind, step in kinds.items():
            took = timed(step)
            if number >= UNMEASURED:
                found[kind].append(took)
    if rank == 0:
        medians = {
            kind: (statistics.median(one.wall for one in all), statistics.median(one.cpu for one in all))
            for kind, all in found.items()
        }
        (folder / "medians").write_text(json.dumps(medians))
    dist.destroy_process_group()


def row(case: Case, n_steps: int) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = case.build(folder)
        spawn(partial(measure, case=case, folder=folder, n_steps=n_steps), nprocs=case.devices)
        medians = json.loads((folder / "medians").read_text())
    step = program.devices[0].step
    tasks = sum(isinstance(one, Run) and program.execs[one.exec].kind != "Update" for one in step)
    wall, cpu = ({kind: 1e6 * both[part] / tasks for kind, both in medians.items()} for part in (0, 1))
    beyond = [f"{cpu[one] - cpu[base]:.1f}" for base in ("plain", "engine") for one in ("ours", "theirs")]
    if any("W" in stage.kinds for stage in program.stages):
        beyond = [""] * len(beyond)
    cells = [
        str(case),
        *map(str, (case.devices, tasks, len(step))),
        *(f"{cpu[one]:.0f}" for one in ("ours", "theirs")),
        *beyond,
        f"{cpu['ours'] * tasks / len(step):.1f}",
        *(f"{wall[one]:.0f}" for one in ("ours", "theirs")),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="measured steps of each runtime and case")
    parser.add_argument("--ranks", type=int, default=None, help="only the cases with this number of ranks")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"PyTorch {torch.__version__}, {options.steps} steps each, microseconds, medians of rank 0, load {load}\n")
    print(
        "| schedule | ranks | tasks | instructions | a task, ours | PyTorch | beyond autograd, ours | PyTorch | "
        "beyond the engine, ours | PyTorch | an instruction, ours | clock, a task, ours | PyTorch |"
    )
    print("|---|" + "---:|" * 12)
    for case in CASES:
        if options.ranks in (None, case.devices):
            print(row(case, options.steps), flush=True)


if __name__ == "__main__":
    main()
