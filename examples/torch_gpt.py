"""Trains a small GPT on the text in examples/data, its layers cut into the stages of any schedule, with PyTorch on all
ranks.

    torchrun --nproc-per-node 4 examples/torch_gpt.py
    torchrun --nproc-per-node 4 examples/torch_gpt.py --schedule std:chimera --steps 20
    torchrun --nproc-per-node 4 examples/torch_gpt.py --schedule std:dualpipe_v --microbatches 8 --check
    torchrun --nproc-per-node 2 examples/torch_gpt.py --schedule std:zb_h1 --recompute all
    torchrun --nproc-per-node 4 examples/torch_gpt.py --schedule examples/zero.pipe --zero 3

`--check` compares the gradients of one step with those of one process instead, which every rank computes for itself. It
needs `pip install "./python[torch]"`, or the folder python/src on PYTHONPATH and a compiler that the environment
variable PIPEC names.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import pipec

ROOT = Path(__file__).resolve().parents[1]
SYMBOLS = 256


class Embedding(nn.Module):
    """Bytes to vectors, with their positions."""

    def __init__(self, hidden: int, sequence: int) -> None:
        super().__init__()
        self.token = nn.Embedding(SYMBOLS, hidden)
        self.position = nn.Parameter(torch.randn(sequence, hidden) * 0.02)
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """`[rows, sequence]` to `[rows, sequence, hidden]`."""
        return self.token(tokens) + self.position


class Block(nn.Module):
    """Attention and a two-layer network, each with a norm before and a residual around it."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, sequence, hidden]` to the same."""
        rows, sequence, hidden = x.shape
        joint = self.qkv(self.norm1(x)).view(rows, sequence, 3, self.heads, -1).transpose(1, 3)
        query, key, value = joint.unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, sequence, hidden))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Head(nn.Module):
    """Vectors to scores of the next byte."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(hidden), nn.Linear(hidden, SYMBOLS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, sequence, hidden]` to `[rows, sequence, 256]`."""
        return self.scores(self.norm(x))


def layer(number: int, options: argparse.Namespace) -> nn.Module:
    """A layer of the model: the same on every rank that makes it."""
    torch.manual_seed(1000 * options.seed + number)
    if number == 0:
        return Embedding(options.hidden, options.sequence)
    if number == options.blocks + 1:
        return Head(options.hidden)
    return Block(options.hidden, options.heads)


def stage(index: int, n_stages: int, options: argparse.Namespace) -> nn.Module:
    """The layers of a stage: as many as of every other one, or one more."""
    n_layers = options.blocks + 2
    first, end = (n_layers * part // n_stages for part in (index, index + 1))
    return nn.Sequential(*(layer(number, options) for number in range(first, end)))


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean over all positions of a microbatch."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def corpus(options: argparse.Namespace) -> tuple[Tensor, torch.Generator]:
    """The text, and what places in it are drawn with: all ranks draw the same."""
    text = (ROOT / "examples" / "data" / "shakespeare.txt").read_bytes()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long(), torch.Generator().manual_seed(options.seed)


def draw(text: Tensor, numbers: torch.Generator, rows: int, sequence: int) -> tuple[Tensor, Tensor]:
    """Rows of the text, and what follows each of their bytes."""
    starts = torch.randint(len(text) - sequence - 1, (rows,), generator=numbers)
    window = torch.stack([text[start : start + sequence + 1] for start in starts.tolist()])
    return window[:, :-1].contiguous(), window[:, 1:].contiguous()


def check(runner: pipec.Runner, inputs: Tensor, targets: Tensor, options: argparse.Namespace) -> bool:
    """Compares losses and gradients of one step with those of one process that takes one microbatch after the other."""
    program, device = runner.program, next(runner.parameters()).device
    whole = nn.ModuleList([stage(index, program.n_stages, options) for index in range(program.n_stages)]).to(device)
    expected = []
    pairs = zip(inputs.chunk(program.n_microbatches), targets.chunk(program.n_microbatches))
    for microbatch, goal in pairs:
        x = microbatch.to(device)
        for one in whole:
            x = one(x)
        loss = loss_of(x, goal.to(device))
        (loss / program.n_microbatches).backward()
        expected.append(loss.item())
    losses = runner.step(inputs, targets)
    difference, largest, equal = 0.0, 0.0, True
    reference = dict(whole.named_parameters())
    for name, parameter in runner.named_parameters():
        found, sought = parameter.grad, reference[name].grad
        assert found is not None and sought is not None, name
        difference = max(difference, (found - sought).abs().max().item())
        largest = max(largest, sought.abs().max().item())
        equal &= torch.equal(found, sought)
    mean = runner.mean_loss(losses)
    numbers = torch.tensor([difference, largest, float(not equal)], dtype=torch.float64, device=device)
    dist.all_reduce(numbers, dist.ReduceOp.MAX)
    difference, largest, unequal = numbers.tolist()
    off = abs(mean - sum(expected) / len(expected))
    if runner.rank == 0:
        bits = "not all bits are equal" if unequal else "all bits are equal"
        print(f"gradients of all ranks differ by at most {difference:.2e} where the largest is {largest:.2e}: {bits}")
        print(f"the mean loss is {mean:.6f}, of one process {sum(expected) / len(expected):.6f}")
    return difference <= options.tolerance * largest and off <= options.tolerance * mean


def train(runner: pipec.Runner, text: Tensor, numbers: torch.Generator, options: argparse.Namespace) -> None:
    """Some steps; each updates the weights."""
    rows = options.rows * runner.program.n_microbatches
    began = time.perf_counter()
    for step in range(options.steps):
        losses = runner.step(*draw(text, numbers, rows, options.sequence))
        if step % options.every == 0 or step == options.steps - 1:
            mean = runner.mean_loss(losses)
            if runner.rank == 0:
                tokens = (step + 1) * rows * options.sequence / (time.perf_counter() - began)
                print(f"step {step:>4}   loss {mean:.4f}   {tokens:,.0f} tokens/s", flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", default="std:v_half", help="a schedule of the standard library, or a .pipe file")
    parser.add_argument("--microbatches", type=int, default=8, help="of a step")
    parser.add_argument("--recompute", default=None, help="stages that recompute, such as all or 0..3")
    parser.add_argument(
        "--zero", type=int, default=None, help="what replicas of a pipeline divide: a stage of ZeRO, 0 to 3"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the schedule")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10, help="steps between two lines of output")
    parser.add_argument("--rows", type=int, default=2, help="of a microbatch")
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=14)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--check", action="store_true", help="compare the gradients of one step with those of one process"
    )
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of that, relative to the largest gradient")
    return parser.parse_args()


def main() -> int:
    """Trains, or checks; the exit code says whether gradients agree."""
    options = arguments()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    try:
        program = pipec.compile(
            options.schedule,
            devices=dist.get_world_size(),
            microbatches=options.microbatches,
            recompute=options.recompute,
            zero=options.zero,
            settings=dict((name, int(value)) for name, _, value in (one.partition("=") for one in options.set)),
        )
        if program.n_stages > options.blocks + 2:
            raise pipec.StageError(f"{program.n_stages} stages need --blocks {program.n_stages - 2} or more")
        stages = {index: stage(index, program.n_stages, options).to(device) for index in program.stages_on(rank)}
        optimizer = None if options.check else partial(torch.optim.AdamW, lr=options.learning_rate)
        runner = pipec.Runner(program, stages, loss_of, device=device, optimizer=optimizer)
        text, numbers = corpus(options)
        if rank == 0:
            count = sum(one.numel() for one in runner.parameters())
            print(
                f"{program.name}: {program.n_devices} ranks, {program.n_stages} stages, {count:,} weights on rank 0",
                flush=True,
            )
        if options.check:
            batch = draw(text, numbers, options.rows * program.n_microbatches, options.sequence)
            return 0 if check(runner, *batch, options) else 1
        train(runner, text, numbers, options)
        return 0
    except pipec.PipecError as error:
        print(error if rank == 0 else "", file=sys.stderr)
        return 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
