"""A GPT of 8 blocks with 6.5 million weights over gloo: steps of our `Runner` and of PyTorch's own
`_PipelineScheduleRuntime`, with the same order of tasks and equal stages, in turns in the same processes.

    python python/benches/gpt.py                 # prints a table; PIPEC names the compiler

A step is all forwards and backwards, without an update. *clock* is how long it takes, *processor* what all threads of
all ranks take together, which other processes of the machine change less; *modules alone* is the processor time of the
same forwards and backwards in a plain loop. Steps of all of them alternate; a line has the median of each round, and
PyTorch's median over ours.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from runtimes import Case, join, ours, theirs, timed
from torch import Tensor
from torch.multiprocessing.spawn import spawn

import pipec

CASES = (
    Case("std:1f1b", 2, 8),
    Case("std:1f1b", 4, 8),
    Case("std:interleaved_1f1b", 2, 8, (("chunks", 2),)),
    Case("std:interleaved_1f1b", 4, 8, (("chunks", 2),)),
    Case("std:zb_h1", 2, 8),
    Case("std:zb_h1", 4, 8),
    Case("std:zb_v", 4, 8),
)
UNMEASURED = 2
"""Steps of each kind before those that count."""


def model() -> Any:
    """The file with the model, which `benches/torch_gpt.py` trains as well."""
    path = Path(__file__).resolve().parents[2] / "benches" / "torch_gpt.py"
    found = importlib.util.spec_from_file_location("torch_gpt", path)
    assert found is not None and found.loader is not None, "the file is part of the repository"
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def alone(program: pipec.Program, gpt: Any, inputs: Tensor, targets: Tensor) -> Callable[[], Any]:
    """The forwards and whole backwards of this rank's stages, without transfers: each gets random numbers."""
    own = [(stage, gpt.Stage(stage, program.n_stages)) for stage in program.stages_on(dist.get_rank())]
    batches = list(zip(inputs.split(gpt.MB), targets.split(gpt.MB)))
    hidden = torch.randn(gpt.MB, gpt.SEQ, gpt.HIDDEN)

    def step() -> None:
        for tokens, goal in batches:
            for stage, module in own:
                output = module(hidden.detach().requires_grad_() if stage else tokens)
                if stage == program.n_stages - 1:
                    (gpt.loss_fn(output, goal) / len(batches)).backward()
                else:
                    output.backward(hidden)

    return step


def measure(rank: int, case: Case, folder: Path, n_rounds: int, n_steps: int) -> None:
    """Runs the rounds of a case on one rank; the first one writes what they took."""
    program, gpt = join(rank, case, folder), model()
    torch.manual_seed(rank)
    inputs, targets = next(gpt.batches(case.microbatches))
    kinds = {
        "ours": ours(program, gpt.Stage, gpt.loss_fn, inputs, targets),
        "theirs": theirs(program, gpt.Stage, gpt.loss_fn, inputs, targets, folder / "x.csv"),
        "alone": alone(program, gpt, inputs, targets),
    }
    for step in [*kinds.values()] * UNMEASURED:
        step()
    rounds = []
    for _ in range(n_rounds):
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(n_steps):
            for kind in sorted(kinds, reverse=number % 2 == 0):
                took = timed(kinds[kind])
                both = torch.tensor([took.wall, took.cpu], dtype=torch.float64)
                longest, total = both.clone(), both
                dist.all_reduce(longest, dist.ReduceOp.MAX)
                dist.all_reduce(total)
                found[kind].append((longest[0].item(), total[1].item()))
        rounds.append({kind: [statistics.median(part) for part in zip(*all)] for kind, all in found.items()})
    if rank == 0:
        (folder / "rounds").write_text(json.dumps(rounds))
    dist.destroy_process_group()


def row(case: Case, n_rounds: int, n_steps: int) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.build(folder)
        spawn(partial(measure, case=case, folder=folder, n_rounds=n_rounds, n_steps=n_steps), nprocs=case.devices)
        rounds = json.loads((folder / "rounds").read_text())
    cells = [str(case), str(case.devices)]
    for part in (0, 1):
        for kind in ("ours", "theirs"):
            cells.append(", ".join(f"{1e3 * one[kind][part]:.0f}" for one in rounds))
        cells.append(", ".join(f"{one['theirs'][part] / one['ours'][part]:.2f}" for one in rounds))
    cells.append(", ".join(f"{1e3 * one['alone'][1]:.0f}" for one in rounds))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often all steps are measured")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each runtime, case and round")
    parser.add_argument("--only", default="", help="only the schedules whose names have this in them")
    parser.add_argument("--ranks", type=int, default=None, help="only the cases with this number of ranks")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"PyTorch {torch.__version__}, {options.rounds} rounds of {options.steps} steps, milliseconds, load {load}\n")
    print(
        "| schedule | ranks | clock, ours | PyTorch | ratio | processor, ours | PyTorch | ratio | modules alone |\n"
        + f"|---|{'---:|' * 8}"
    )
    for case in CASES:
        if options.only in case.schedule and options.ranks in (None, case.devices):
            print(row(case, options.rounds, options.steps), flush=True)


if __name__ == "__main__":
    main()
