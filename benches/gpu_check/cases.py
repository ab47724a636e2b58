"""What `gpu_check.py` runs: small models over all schedules and settings, those that say most first."""

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

# How near losses on the GPU are to those on the processor, relative to their size, in the first steps.
SINGLE, DOUBLE, HALF = 1e-5, 1e-10, 2e-2
# The same where factors of products are rounded to 10 bits of fraction.
TF32 = 2e-3

# Losses of single and double precision differ more after this many steps: AdamW divides small gradients by their size.
FIRST_STEPS, GROWN = 5, 10


def allowed(tolerance: float, step: int) -> float:
    """How large the difference of a step's loss may be; steps count from 0."""
    return tolerance * GROWN if tolerance <= SINGLE and step >= FIRST_STEPS else tolerance


SCHEDULES = pathlib.Path(__file__).resolve().parents[2] / "stdlib" / "schedules"

# What a schedule needs beside its name.
PARAMETERS = {"seq_1f1b": "(slices = 5)", "dp_1f1b": "(replicas = 2)"}
# Schedules that run on across steps: windows of two.
WINDOWS = {"cyclic_dp": ("--set", "steps=2")}


@dataclass(frozen=True)
class Sizes:
    """A pipeline, and the model of the cases that are about something else."""

    devices: int
    microbatches: int
    model: str
    # Of attention's cases: positions, and how many heads of each width.
    sequence: int
    heads: int


SIZES = {
    # As small as a model can be on which every schedule runs: for emulated GPUs.
    "tiny": Sizes(2, 4, "gpt(vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 5, rows = 2)", 9, 1),
    # Tiles and rows that end inside of a block, several of them, and sizes that are no multiples of vectors.
    "small": Sizes(4, 8, "gpt(vocab = 211, hidden = 48, heads = 3, blocks = 6, sequence = 70, rows = 2)", 150, 2),
}

ADAMW = "adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)"
MOMENTUM = "sgd(learning_rate = 0.05, momentum = 0.9, weight_decay = 0.01)"

# Attention that is written out, both kinds of soft-maxima, and functions that a GPT has not.
WRITTEN = """
layer seen(hidden) {
    input x
    weight gain: [hidden] = ones
    weight bias: [hidden] = zeros
    weight qkv: [hidden, 3 * hidden] = normal(0.2)
    weight out: [hidden, hidden] = normal(0.2)
    let joint = matmul(layer_norm(x, gain, bias), qkv)
    let keys = transpose(slice(joint, 2, hidden, hidden), 0, 2, 1)
    let scores = matmul(slice(joint, 2, 0, hidden), keys) * 0.25
    let values = slice(joint, 2, 2 * hidden, hidden)
    let both = concat(2, matmul(causal_softmax(scores), values), matmul(softmax(scores), values))
    output x + gelu(matmul(slice(both, 2, hidden / 2, hidden), out))
}
layer bent(hidden) {
    input x
    weight up: [hidden, 2 * hidden] = normal(0.2)
    weight down: [2 * hidden, hidden] = normal(0.2)
    let wide = matmul(x, up)
    let scale = sqrt(1 + mean(x * x, 2)) + log(1 + exp(-sum(x * x, 2)))
    output x + matmul(relu(wide) - tanh(wide), down) / scale
}
model written(vocab, hidden, sequence, rows, repeats) {
    embedding(vocab, hidden, sequence, rows)
    repeat repeats {
        seen(hidden)
        bent(hidden)
    }
    head(hidden, vocab, sequence, rows)
}
"""

# Indices that no table has.
WILD = """
layer lookup() {
    data tokens: i32[2, 3]
    data targets: i32[2, 3]
    weight table: [5, 4] = normal(0.1)
    loss cross_entropy(reshape(gather(table, reshape(tokens, [6])), [2, 3, 4]), targets)
}
model wild() { lookup() }
"""


def pipeline(
    sizes: Sizes, schedule: str, *, layers: str = "", model: str = "", precision: str = "f32", optimizer: str = ADAMW
) -> str:
    """The source of a case; nothing in it depends on how many steps it runs."""
    return f"""import std.models.gpt
{layers}
pipeline check {{
    model {model or sizes.model}
    precision {precision}
    devices {sizes.devices}
    microbatches {sizes.microbatches}
    schedule {schedule}
    train {{
        data synthetic
        steps 20
        seed 7
        optimizer {optimizer}
        warmup 5
        minimum 0.0001
    }}
}}
"""


@dataclass(frozen=True)
class Case:
    """One source, on the processor and on the GPU."""

    name: str
    source: str
    tolerance: float = SINGLE
    # Of the runs on the GPU.
    arguments: tuple[str, ...] = ()
    # Of all runs.
    always: tuple[str, ...] = ()
    # What is compared: `losses` over all steps; `resume`, halves of a run on either side; `stress`, bits under random delays;
    # `message`, why a run fails; `profile`, the step that a profile predicts.
    kind: str = "losses"


def schedules() -> list[str]:
    """All of the standard library, by their names."""
    found = sorted(path.stem for path in SCHEDULES.glob("*.pipe"))
    if not found:
        raise SystemExit(f"no schedules in {SCHEDULES}: gpu_check runs in a checkout of pipec")
    return found


def of_precisions(sizes: Sizes) -> Iterator[Case]:
    """Each way to store and to multiply, by cuBLASLt where it is there, and by kernels of our own."""
    single, half = pipeline(sizes, "1f1b"), pipeline(sizes, "1f1b", precision="bf16")
    written = f"written(vocab = 37, hidden = 24, sequence = 21, rows = 2, repeats = {sizes.devices})"
    yield Case("f32", single)
    yield Case("bf16", half, HALF)
    for name, case in {
        "f32": Case("", single),
        "bf16": Case("", half, HALF),
        "tf32 products": Case("", single, TF32, ("--products", "tf32")),
        "bf16 products": Case("", single, HALF, ("--products", "bf16")),
        "f64": Case("", pipeline(sizes, "zb_v", precision="f64"), DOUBLE),
    }.items():
        if name not in ("f32", "bf16"):
            yield replace(case, name=name)
        yield replace(case, name=f"{name}, no cuBLASLt", arguments=(*case.arguments, "--no-cublas"))
    yield Case("written", pipeline(sizes, "1f1b", layers=WRITTEN, model=written))
    yield Case("written, bf16", pipeline(sizes, "zb_h1", layers=WRITTEN, model=written, precision="bf16"), HALF)
    yield Case("momentum", pipeline(sizes, "1f1b", optimizer=MOMENTUM))


def of_heads(sizes: Sizes) -> Iterator[Case]:
    """Attention with heads of several widths, in every precision that has a kernel of its own for them."""
    one = replace(sizes, devices=1, microbatches=2)
    for width in (16, 64, 80, 128):
        model = f"gpt(vocab = 37, hidden = {sizes.heads * width}, heads = {sizes.heads}, blocks = 1, sequence = {sizes.sequence}, rows = 1)"
        single, half = pipeline(one, "gpipe", model=model), pipeline(one, "gpipe", model=model, precision="bf16")
        yield Case(f"heads of {width}", single)
        yield Case(f"heads of {width}, tf32 products", single, TF32, ("--products", "tf32"))
        yield Case(f"heads of {width}, bf16 products", single, HALF, ("--products", "bf16"))
        yield Case(f"heads of {width}, bf16", half, HALF, ("--products", "bf16"))


def of_settings(sizes: Sizes) -> Iterator[Case]:
    """What a pipeline can say beside its schedule, and what goes on from where."""
    replicas = "dp_1f1b(replicas = 2)"
    yield Case("checkpoints", pipeline(sizes, "zb_v"), kind="resume")
    yield Case("stress", pipeline(sizes, f"{replicas} offload optimizer"), kind="stress")
    lines = [
        "1f1b recompute all",
        "v_half recompute 0, 2",
        "1f1b offload optimizer, parameters",
        "1f1b offload activations",
    ]
    lines += [
        "zb_v offload activations, optimizer",
        *(f"{replicas} zero {number}" for number in (1, 2, 3)),
        "chimera zero 1",
    ]
    for line in lines:
        yield Case(line, pipeline(sizes, line))
    for line in ("zb_h1 recompute all", f"{replicas} zero 2", "1f1b offload activations", "seq_1f1b(slices = 5)"):
        yield Case(f"{line}, bf16", pipeline(sizes, line, precision="bf16"), HALF)
    yield Case("cyclic_dp(fresh = 0)", pipeline(sizes, "cyclic_dp(fresh = 0)"), always=WINDOWS["cyclic_dp"])
    yield Case(
        "indices beyond a table",
        pipeline(replace(sizes, devices=1), "gpipe", layers=WILD, model="wild()"),
        kind="message",
    )
    yield Case("profile", pipeline(sizes, "1f1b"), kind="profile")


def cases(size: str) -> list[Case]:
    """All of them, in order of worth."""
    sizes = SIZES[size]
    found = [*of_precisions(sizes), *of_heads(sizes)]
    for name in schedules():
        line = name + PARAMETERS.get(name, "")
        found.append(Case(line, pipeline(sizes, line), always=WINDOWS.get(name, ())))
    return found + list(of_settings(sizes))


# What compute-sanitizer looks at: a few steps of small sources, by its tools. Every tool sees own kernels of either precision.
OWN = ("--no-cublas",)
FEW = Sizes(2, 2, "gpt(vocab = 61, hidden = 48, heads = 3, blocks = 2, sequence = 21, rows = 2)", 21, 3)
ALL_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass(frozen=True)
class Examined:
    """A run under some tools of compute-sanitizer."""

    name: str
    source: str
    arguments: tuple[str, ...]
    tools: tuple[str, ...] = ("memcheck",)


def examined() -> list[Examined]:
    """Captured and not, with each kind of work that a step has."""
    written = "written(vocab = 37, hidden = 24, sequence = 21, rows = 2, repeats = 1)"
    calls = ("--no-capture", *OWN)
    return [
        Examined("f32", pipeline(FEW, "1f1b"), calls, ALL_TOOLS),
        Examined("bf16", pipeline(FEW, "zb_h1", precision="bf16"), ("--products", "bf16", *calls), ALL_TOOLS),
        Examined("written", pipeline(FEW, "1f1b", layers=WRITTEN, model=written), calls, ALL_TOOLS),
        Examined("f32, captured", pipeline(FEW, "v_half"), OWN),
        Examined("f32, cuBLASLt, captured", pipeline(FEW, "1f1b"), ()),
        Examined("tf32 products", pipeline(FEW, "1f1b"), ("--products", "tf32", *OWN)),
        Examined("f64", pipeline(FEW, "1f1b", precision="f64"), OWN),
        Examined("replicas, zero 2", pipeline(FEW, "dp_1f1b(replicas = 2) zero 2"), OWN),
        Examined("offload", pipeline(FEW, "1f1b offload activations, optimizer"), OWN),
        Examined("slices", pipeline(FEW, "seq_1f1b(slices = 3)"), OWN),
    ]
