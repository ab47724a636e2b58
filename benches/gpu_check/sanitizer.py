"""Kernel by kernel on the GPU, and runs under NVIDIA's compute-sanitizer, which looks at every access of a kernel."""

import os
import pathlib
import re
import shutil

import cases
from runs import Clock, Failed, Verdict, shown, written

# What it answers where it found something.
FOUND = 86
# Of copies, not of kernels: buffers are copied with the bytes that fill them up to 64, which nobody writes and nobody looks at.
COPIED = re.compile("Host API (?:uninitialized )?memory access")
UNWRITTEN = re.compile("Uninitialized __global__ memory read")


def find(path: str) -> str | None:
    """The command that a path names, or the one of this machine for `auto`."""
    if path != "auto":
        return path if os.access(path, os.X_OK) else None
    folders = [os.environ.get("PATH", ""), "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"]
    return shutil.which("compute-sanitizer", path=":".join(folders))


# Tools, and kernels that are compiled first, take longer than a run.
SLOW = 5


def examine(clock: Clock, command: list[str], folder: pathlib.Path, verdict: Verdict, **more: str) -> None:
    """Runs a command under a tool, which is to find nothing."""
    ended = clock.run(command, folder, SLOW, **more)
    text = ended.out + ended.error
    copied = len(COPIED.findall(text))
    if "initcheck" in verdict.name and ended.code == FOUND and copied and not UNWRITTEN.search(text):
        verdict.notes.append(f"{copied} copies have bytes that nobody wrote: those between buffers")
    elif ended.code != 0:
        told = [line for line in text.splitlines() if line.startswith("=========")]
        raise Failed(f"exit code {ended.code}: {shown(command)}", "\n".join(told[:40]) or text)
    elif "running 0 tests" in text:
        raise Failed("it has no tests of kernels: `cargo test --release -p pipe-cuda --lib --no-run` builds them", text)
    verdict.ok = True


def of_runs(clock: Clock, tool: str, command: str, pipec: str, one: cases.Examined) -> Verdict:
    """Two steps of a source under a tool."""
    verdict = Verdict(f"{tool}: {one.name}")
    with written(one.source) as folder:
        run = "run check.pipe --backend cuda --steps 2 --no-checkpoint --quiet"
        line = [pipec, *run.split(), *one.arguments]
        return judged(verdict, clock, under(command, tool, line), pathlib.Path(folder))


def of_kernels(clock: Clock, kernels: str, threads: int, under_tool: tuple[str, str] | None) -> Verdict:
    """Every kernel by itself, beside the processor; perhaps under a tool."""
    line = [kernels, "kernels::", "--skip", "all_kernels_compile", "--test-threads", str(threads)]
    if under_tool is None:
        return judged(Verdict("kernels"), clock, line, pathlib.Path.cwd(), PIPEC_GPU="1")
    command, tool = under_tool
    return judged(Verdict(f"{tool}: kernels"), clock, under(command, tool, line), pathlib.Path.cwd(), PIPEC_GPU="1")


def under(command: str, tool: str, line: list[str]) -> list[str]:
    """A command under a tool."""
    return [command, "--tool", tool, "--error-exitcode", str(FOUND), *line]


def judged(verdict: Verdict, clock: Clock, line: list[str], folder: pathlib.Path, **more: str) -> Verdict:
    """The verdict, with what was found."""
    try:
        examine(clock, line, folder, verdict, **more)
    except Failed as failed:
        verdict.notes.append(str(failed))
        verdict.said = failed.said
    return verdict
