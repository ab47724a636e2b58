#!/usr/bin/env python3
"""Training a GPT on one GPU: pipec with a pipeline on the card, beside PyTorch without one, in one go.

  benches/gpu.py --pipec target/release/pipec                 GPT-2 small and medium on the GPU
  benches/gpu.py --shape small --schedule 1f1b --precision bf16 --limit-seconds 300   the most telling in five minutes
  benches/gpu.py --device cpu --shape tiny --pipec target/debug/pipec   the same script, where there is no GPU

First what the card can do (a large matrix product, a copy), then tokens per second of both, each in a process of its own, and what
share of the card's bf16 products that is, with `precision bf16` beside PyTorch's autocast (both keep and multiply bfloat16, and have weights and sums in single
precision), then with single precision kept and products of less: 6 operations per weight and token, and 6 * blocks * sequence * hidden for attention
(arXiv 2204.02311, appendix B, where a token attends to half of the others). A step's time is that of many steps less that of fewer,
so that starting counts on neither side. Idle is the part of a step in which the card ran no task; below, what a profile predicts for
a step, against steps that it is not from.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# Blocks, hidden, heads, vocabulary, sequence, sequences in a microbatch, microbatches.
SHAPES = {
    "least": (6, 32, 2, 32, 8, 1, 4),
    "tiny": (6, 64, 4, 256, 64, 2, 8),
    "small": (12, 768, 12, 50304, 1024, 4, 8),
    "medium": (24, 1024, 16, 50304, 1024, 4, 8),
}

# The line of a pipeline, and what `--products` says.
PRECISIONS = {
    "bf16": ("precision bf16", "bf16"),
    "f32, bf16 products": ("precision f32", "bf16"),
    "f32, tf32 products": ("precision f32", "tf32"),
    "f32": ("precision f32", "fp32"),
}

PIPELINE = """import std.models.gpt
pipeline gpu {{
    model gpt(vocab = {vocab}, hidden = {hidden}, heads = {heads}, blocks = {blocks}, sequence = {sequence}, rows = {rows})
    {precision}
    devices {devices}
    microbatches {microbatches}
    schedule {schedule}
    train {{
        data synthetic
        steps {steps}
        seed 1
        optimizer adamw(learning_rate = 0.0003, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)
    }}
}}
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """A pipeline of pipec on the card."""

    shape: str
    schedule: str
    devices: int
    precision: str

    def __str__(self):
        return f"{self.devices} device{'s' if self.devices > 1 else ''}, {self.schedule}, {self.precision}"


def named(shape):
    return dict(zip(("blocks", "hidden", "heads", "vocab", "sequence", "rows", "microbatches"), SHAPES[shape]))


def flops_per_token(shape):
    size = named(shape)
    block = 12 * size["hidden"] ** 2
    weights = size["blocks"] * block + size["vocab"] * size["hidden"]
    return 6 * weights + 6 * size["blocks"] * size["sequence"] * size["hidden"]


class OutOfTime(Exception):
    """The limit was reached."""


def left(arguments):
    """Seconds until the limit, `None` if there is none."""
    if arguments.end is None:
        return None
    seconds = arguments.end - time.monotonic()
    if seconds < 5:
        raise OutOfTime
    return seconds


def ended(arguments, command, folder=None):
    """A command within the limit."""
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=left(arguments))
    except subprocess.TimeoutExpired:
        raise OutOfTime from None


def pipec(arguments, command, case, steps):
    """What `run` or `profile` reports of so many steps."""
    line, products = PRECISIONS[case.precision]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "gpu.pipe"
        size = named(case.shape)
        path.write_text(PIPELINE.format(schedule=case.schedule, devices=case.devices, steps=steps, precision=line, **size))
        more = ["--no-checkpoint"] if command == "run" else ["--steps", str(steps)]
        command = [arguments.pipec, command, str(path), "--backend", arguments.device, "--format", "json", *more]
        if arguments.device == "cuda":
            command += ["--products", products]
        done = ended(arguments, command, folder)
    if done.returncode != 0:
        raise RuntimeError(reason(done))
    return json.loads(done.stdout)


def reason(done):
    """Why a run of pipec failed, in one line."""
    try:
        report = json.loads(done.stdout)
        return report.get("error") or report["diagnostics"][0]["message"]
    except (ValueError, LookupError):
        return ((done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def tokens(shape):
    """In a step."""
    size = named(shape)
    return size["rows"] * size["sequence"] * size["microbatches"]


def pipec_rate(arguments, case):
    times = []
    for _ in range(arguments.repeat):
        few = pipec(arguments, "run", case, arguments.steps)
        report = pipec(arguments, "run", case, 3 * arguments.steps)
        times.append((report["seconds"] - few["seconds"]) / (2 * arguments.steps))
    idle = max((gpu["idle"] for gpu in report.get("gpus", [])), default=None)
    return tokens(case.shape) / statistics.median(times), idle


def pipec_prediction(arguments, case):
    """A step as a profile predicts it, and as others of the same run took it: what `profile` compares."""
    # Of three steps one is judged.
    return pipec(arguments, "profile", case, 3 * arguments.steps)["comparison"]


def told(found):
    """A comparison of `profile`, in one line."""
    step = found["step"]
    return (f"step {step['predicted_ns'] / 1e6:.2f} ms predicted, {step['measured_ns'] / 1e6:.2f} ms measured "
            f"({step['difference_percent']:+.1f}%; makespan {found['makespan']['difference_percent']:+.1f}%, "
            f"unfitted {found['unfitted_makespan']['difference_percent']:+.1f}%)")  # fmt: skip


def torch_rate(arguments, shape, mode):
    command = [sys.executable, __file__, "--torch", mode, "--shape", shape, "--device", arguments.device]
    command += ["--steps", str(arguments.steps), "--repeat", str(arguments.repeat)]
    done = ended(arguments, command)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def torch_model(shape):
    import torch
    import torch.nn.functional as F
    from torch import nn

    size = named(shape)
    hidden, heads, vocab = size["hidden"], size["heads"], size["vocab"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            rows, length, _ = x.shape
            split = self.qkv(self.norm1(x)).view(rows, length, 3, heads, hidden // heads)
            queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, hidden))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(vocab, hidden), nn.Embedding(size["sequence"], hidden)
            self.blocks = nn.Sequential(*[Block() for _ in range(size["blocks"])])
            self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)

        def forward(self, tokens, targets):
            x = self.blocks(self.token(tokens) + self.position.weight)
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

    return torch, Model()


def torch_steps(arguments):
    """Trains in this process and prints tokens per second: bf16 products under autocast, weights and optimizer in fp32."""
    torch, model = torch_model(arguments.shape[0])
    size, device = named(arguments.shape[0]), arguments.device
    model = model.to(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    compute = torch.compile(model) if arguments.torch == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    shape = (size["microbatches"], size["rows"], size["sequence"] + 1)

    def step():
        data = torch.randint(size["vocab"], shape).to(device)
        for rows in data:
            with torch.autocast(device, torch.bfloat16):
                loss = compute(rows[:, :-1], rows[:, 1:]) / size["microbatches"]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.item()

    for _ in range(3):
        step()
    times = []
    for _ in range(arguments.repeat):
        start = time.perf_counter()
        for _ in range(arguments.steps):
            step()
        times.append((time.perf_counter() - start) / arguments.steps)
    print(tokens(arguments.shape[0]) / statistics.median(times))


def timed(torch, device, work, count):
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    work()
    wait()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            work()
        wait()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def ceilings(device):
    """Operations a second of bf16, tf32 and fp32 products, and bytes a second of a copy: what the card reaches here and now."""
    import torch

    n = 8192 if device == "cuda" else 512
    found = {}
    for name, kind, tf32 in (("bf16", torch.bfloat16, False), ("tf32", torch.float32, True), ("fp32", torch.float32, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
        found[name] = 2 * n**3 / timed(torch, device, lambda a=a, b=b: a @ b, 10)
    source = torch.empty(n * n * 8, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found["copy"] = 2 * source.numel() / timed(torch, device, lambda: target.copy_(source), 10)
    return found


def works(arguments):
    """What is measured, in order: its shape, its name, and what measures it."""
    # A processor multiplies in single precision in any case.
    precisions = arguments.precision or (PRECISIONS if arguments.device == "cuda" else ("bf16", "f32"))
    for shape in arguments.shape:
        cases = [
            Case(shape, schedule, devices, precision)
            for schedule in arguments.schedule
            for devices in arguments.devices
            for precision in precisions
            if devices > 1 or schedule == arguments.schedule[0]
        ]
        if "pipec" in arguments.part:
            for case in cases:
                yield shape, f"pipec, {case}", "rate", lambda case=case: pipec_rate(arguments, case)
        if "profile" in arguments.part:
            for case in cases:
                if case.schedule == arguments.schedule[0]:
                    yield shape, f"pipec profile, {case}", "prediction", lambda case=case: pipec_prediction(arguments, case)
        if "torch" in arguments.part:
            for mode in arguments.mode or MODES:
                name = "torch.compile" if mode == "compile" else mode
                yield shape, f"PyTorch, {name}, bf16", "rate", lambda shape=shape, mode=mode: (torch_rate(arguments, shape, mode), None)


def measure(arguments, out):
    """Measures all that is wanted, prints a table, and says what was found."""
    limits, rows, missed, shown = None, [], [], None
    if "ceilings" in arguments.part:
        limits = ceilings(arguments.device)
        print(f"products: bf16 {limits['bf16'] / 1e12:.1f}, tf32 {limits['tf32'] / 1e12:.1f}, fp32 {limits['fp32'] / 1e12:.1f} TFLOP/s; "
              f"copies {limits['copy'] / 1e9:.0f} GB/s, read and written", file=out)  # fmt: skip
    for shape, name, kind, work in works(arguments):
        if shape != shown:
            size, shown = named(shape), shape
            print(f"\n{shape}: {size['blocks']} blocks, hidden {size['hidden']}, sequence {size['sequence']}, "
                  f"{size['microbatches']} microbatches of {size['rows']}", file=out)  # fmt: skip
            print(f"{'':<48} {'tokens/s':>10} {'ms/step':>9} {'of bf16':>8} {'idle':>8}", file=out)
        row = {"shape": shape, "name": name}
        try:
            if kind == "prediction":
                row["comparison"] = work()
                line = told(row["comparison"])
            else:
                rate, idle = work()
                share = None if limits is None else rate * flops_per_token(shape) / limits["bf16"]
                row |= {"tokens_per_second": rate, "step_ms": 1e3 * tokens(shape) / rate, "share": share, "idle": idle}
                cells = [f"{rate:>10.0f} {row['step_ms']:>9.2f}", *("" if part is None else f"{part:.1%}" for part in (share, idle))]
                line = f"{cells[0]} {cells[1]:>8} {cells[2]:>8}".rstrip()
        except OutOfTime:
            missed.append(f"{shape}: {name}")
            continue
        except (RuntimeError, OSError) as error:
            row["error"] = str(error)
            line = f"{'-':>10}   {error}"
        rows.append(row)
        print(f"{name:<48} {line}", file=out, flush=True)
    if missed:
        print(f"\nnot run within {arguments.limit_seconds:g} s: {'; '.join(missed)}", file=out)
    return {"schema": "pipec.gpu/1", "ceilings": limits, "rows": rows, "not_run": missed}


PARTS = ("ceilings", "pipec", "profile", "torch")
MODES = ("eager", "compile")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipec", default="target/release/pipec", help="the binary")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shape", choices=list(SHAPES), action="append", help="again for several; small and medium unless named")
    parser.add_argument("--schedule", action="append", help="again for several; 1f1b, zb_h1 and zb_v unless named")
    parser.add_argument("--devices", type=int, action="append", metavar="N", help="of the pipeline, on one card; again for several; 4 unless named")
    parser.add_argument("--precision", choices=list(PRECISIONS), action="append", help="again for several; all unless named")
    parser.add_argument("--part", choices=PARTS, action="append", help="what is measured; again for several; all unless named")
    parser.add_argument("--mode", choices=MODES, action="append", help="of PyTorch; again for several; both unless named")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3, help="medians of so many")
    parser.add_argument("--limit-seconds", type=float, metavar="S", help="stops then, and says what was not run")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="json: the table goes to standard error")
    parser.add_argument("--torch", choices=MODES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.shape = arguments.shape or ["small", "medium"]
    arguments.schedule = arguments.schedule or ["1f1b", "zb_h1", "zb_v"]
    arguments.devices = arguments.devices or [4]
    arguments.part = arguments.part or PARTS
    arguments.pipec = os.path.abspath(arguments.pipec)
    arguments.end = None if arguments.limit_seconds is None else time.monotonic() + arguments.limit_seconds
    if arguments.torch:
        torch_steps(arguments)
        return 0
    found = measure(arguments, sys.stderr if arguments.format == "json" else sys.stdout)
    if arguments.format == "json":
        print(json.dumps(found, indent=2))
    return 1 if any("error" in row for row in found["rows"]) else 3 if found["not_run"] else 0


if __name__ == "__main__":
    sys.exit(main())
