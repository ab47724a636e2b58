"""Checks pipec on an NVIDIA GPU and measures it, beside PyTorch, in three calls of under ten minutes, ordered by worth.

  benches/card.sh                         the first call
  benches/card.sh 2 3                     the other two
  benches/card.sh look first --limit-seconds 120
  LD_LIBRARY_PATH=fakes benches/card.sh 1 2 3 --dry-run

It needs no Rust and no network. A part that fails or takes too long is noted, and the next one begins. The exit code is
0 if every part is well, 1 if one failed, 2 if the command line is wrong or pipec is missing, and 3 if none failed but
time was too short for some.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

import gpu

BENCHES = pathlib.Path(__file__).resolve().parent
CALL_SECONDS = 540


@dataclass(frozen=True)
class Part:
    """Commands that belong together: each runs, whatever came of the one before."""

    call: int
    about: str
    # The most seconds of all its commands.
    seconds: int
    commands: list[list[str]]
    # A tool without which there is nothing to do.
    needs: str | None = None


@dataclass
class Found:
    """What came of a part."""

    name: str
    ok: bool
    seconds: float
    out_of_time: bool = False
    # Why nothing was done.
    skipped: str | None = None
    exit_codes: list[int | None] = field(default_factory=list)


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """All of them, in order of worth."""
    dry = options.dry_run
    steps, small, medium, size = ("2", "least", "least", "tiny") if dry else ("10", "small", "medium", "small")
    pipec, kernels, python = str(options.carry / "pipec"), options.carry / "kernels", sys.executable
    measure = [python, str(BENCHES / "gpu.py"), "--pipec", pipec, "--repeat", "1", "--steps", steps, "--format", "json"]
    one = ["--schedule", "1f1b"]
    own = [*measure, "--part", "pipec", "--precision", "bf16"]
    both = ["--devices", "2"] if dry else ["--devices", "1", "--devices", "4"]
    check = [python, str(BENCHES / "gpu_check"), "--pipec", pipec, "--jobs", str(options.jobs), "--size", size]
    check += ["--format", "json"]
    if kernels.exists():
        check += ["--kernels", str(kernels)]
    # Of a dry run: one case of each kind.
    check += ["--steps", "2"] if dry else []
    few = ["--only", "f32", "--only", "profile"] if dry else []
    run = [pipec, "run", str(options.out / "small.pipe"), "--steps", steps]
    run += "--backend cuda --products bf16 --no-checkpoint".split()
    ncu = ["ncu", "--clock-control", "none", "--kernel-name", "regex:attention", "--launch-count", "8"]
    ncu += [
        word for name in ("SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats") for word in ("--section", name)
    ]
    # The fakes are no GPU for PyTorch.
    theirs = ["--device", "cpu", "--mode", "eager"] if dry else []
    card = [] if dry else [["nvidia-smi"]]
    torch = "import sys, torch; print(sys.version, torch.__version__, torch.version.cuda)"
    own_small = [*own, "--shape", small]
    theirs_small = [*measure, *theirs, "--part", "torch", "--shape", small]
    look = [*card, ["uname", "-a"], [python, "-c", torch], [pipec, "--version"]]
    medium_of_both = [
        [*own, *one, "--shape", medium, *both],
        [*measure, *theirs, "--part", "torch", "--shape", medium],
    ]
    profile = [*measure, *one, "--part", "profile", "--precision", "bf16", "--shape", small]
    steps_of_small = [[*run, "--profile"], [*run, "--no-capture", "--format", "json"]]
    schedules = [*own_small, "--schedule", "zb_h1", "--schedule", "zb_v"]
    examined = [*check, "--sanitizer", "auto", "--only", "check: f32" if dry else "check:"]
    single = [*measure, *one, "--part", "pipec", "--shape", small]
    single += [word for name in gpu.PRECISIONS if name != "bf16" for word in ("--precision", name)]
    gpt = "tokens per second of"
    return {
        "look": Part(1, "what is here: card, driver, libraries, Python", 40, look),
        "first": Part(1, f"{gpt} GPT-2 small, on 1 and 4 devices of the card", 150, [[*own_small, *one, *both]]),
        "check": Part(1, "whether the card computes what the processor computes", 300, [[*check, *few]]),
        "torch": Part(1, f"{gpt} PyTorch, eager and compiled", 150, [[*theirs_small, "--part", "ceilings"]]),
        "medium": Part(2, f"{gpt} GPT-2 medium, of both", 200, medium_of_both),
        "profile": Part(2, "the step that a profile predicts, beside the measured one", 100, [profile]),
        "kernels": Part(2, "where the time of a step goes, and steps without a graph", 100, steps_of_small),
        "schedules": Part(2, f"{gpt} GPT-2 small under zb_h1 and zb_v", 140, [schedules]),
        "sanitizer": Part(3, "small sources and every kernel, examined", 300, [examined], "compute-sanitizer"),
        "ncu": Part(3, "counters of attention's kernels", 120, [[*ncu, *run, "--no-capture"]], "ncu"),
        "single": Part(3, f"{gpt} GPT-2 small in single precision", 120, [single]),
    }


def run(command: list[str], out: pathlib.Path, name: str, seconds: float) -> int | None:
    """Runs a command with its output in files; what it says goes to the terminal, too. `None` if time was too short."""
    with open(out / f"{name}.out", "ab") as results, open(out / f"{name}.txt", "ab") as said:
        said.write(f"$ {' '.join(command)}\n".encode())
        said.flush()
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=results, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            said.write(f"{error}\n".encode())
            print(error, file=sys.stderr)
            return 127

        def copy() -> None:
            assert child.stderr is not None
            for line in child.stderr:
                said.write(line)
                said.flush()
                sys.stderr.buffer.write(line)
                sys.stderr.flush()

        copying = threading.Thread(target=copy)
        copying.start()
        try:
            code: int | None = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        # What it started and left behind ends with it.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        copying.join(10)
        return code


def perform(name: str, part: Part, options: argparse.Namespace, left: float) -> Found:
    """Runs the commands of a part."""
    if part.needs and shutil.which(part.needs) is None:
        return Found(name, True, 0.0, skipped=f"{part.needs} is not here")
    began, codes = time.monotonic(), []
    seconds = min(part.seconds, left)
    print(f"=== {name}: {part.about} (at most {seconds:.0f} s)", file=sys.stderr, flush=True)
    for command in part.commands:
        rest = seconds - (time.monotonic() - began)
        limited = (
            [*command, "--limit-seconds", f"{max(rest - 5, 1):.0f}"]
            if command[0] == sys.executable and command[1] != "-c"
            else command
        )
        codes.append(run(limited, options.out, name, rest) if rest > 1 else None)
    took = time.monotonic() - began
    print(f"=== {name}: exit codes {codes}, {took:.0f} s", file=sys.stderr, flush=True)
    is_late = any(code in (None, 3) for code in codes)
    return Found(name, all(code == 0 for code in codes), took, out_of_time=is_late, exit_codes=codes)


def arguments() -> tuple[argparse.Namespace, dict[str, Part]]:
    """What the user wants, and the parts that are known."""
    parser = argparse.ArgumentParser(prog="card.sh", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", default=["1"], metavar="CALL|PART", help="1, 2, 3, or the name of a part [default: 1]"
    )
    parser.add_argument(
        "--carry",
        type=pathlib.Path,
        default="carry",
        metavar="FOLDER",
        help="where the stripped `pipec` and `kernels` are [default: carry]",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default="card",
        metavar="FOLDER",
        help="what is found: PART.txt and PART.out (JSON where it has some), summary.json [default: card]",
    )
    parser.add_argument(
        "--limit-seconds", type=float, metavar="N", help="of all parts together [default: 540 for each call]"
    )
    parser.add_argument("--jobs", type=int, default=8, metavar="N", help="cases of `check` at once [default: 8]")
    parser.add_argument("--dry-run", action="store_true", help="tiny models, for the fakes of docs/cuda.md")
    known = parts(parser.parse_args([]))
    width = max(map(len, known))
    parser.description = f"{__doc__}\n" + "\n".join(
        f"  call {part.call}  {name:<{width}}  {part.about}" for name, part in known.items()
    )
    options = parser.parse_args()
    options.carry, options.out = options.carry.resolve(), options.out.resolve()
    known = parts(options)
    calls = {word for word in options.parts if word in "123"}
    for word in options.parts:
        if word not in calls and word not in known:
            parser.error(f"no call or part is named `{word}`: there are 1, 2, 3, {', '.join(known)}")
    if not os.access(options.carry / "pipec", os.X_OK):
        parser.error(
            f"{options.carry}/pipec is not here: `strip -o {options.carry}/pipec target/release/pipec` makes it"
        )
    options.limit_seconds = options.limit_seconds or CALL_SECONDS * max(len(calls), 1)
    return options, {name: part for name, part in known.items() if name in options.parts or str(part.call) in calls}


def main() -> int:
    """Performs all parts that are wanted; the exit code."""
    options, wanted = arguments()
    end = time.monotonic() + options.limit_seconds
    os.environ["PYTHONUNBUFFERED"] = "1"
    options.out.mkdir(parents=True, exist_ok=True)
    shape = gpu.named("least" if options.dry_run else "small")
    source = gpu.PIPELINE.format(
        schedule="1f1b", devices=2 if options.dry_run else 4, steps=20, precision="precision bf16", **shape
    )
    (options.out / "small.pipe").write_text(source)
    found = []
    for name, part in wanted.items():
        left = end - time.monotonic()
        found.append(perform(name, part, options, left) if left > 10 else Found(name, False, 0.0, out_of_time=True))
        summary = {"schema": "pipec.card/1", "dry_run": options.dry_run, "parts": [asdict(one) for one in found]}
        (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    for one in found:
        told = "ok" if one.ok else "out of time" if one.out_of_time else "FAILED"
        print(f"{one.name:<10} {one.seconds:5.0f} s  {f'skipped: {one.skipped}' if one.skipped else told}")
    if any(not one.ok and not one.out_of_time for one in found):
        return 1
    return 3 if any(one.out_of_time for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
