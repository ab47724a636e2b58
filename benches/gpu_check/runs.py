"""Runs of commands within a limit of time, and what came of a case."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field


class Failed(Exception):
    """A case is not as it should be; with what a command said."""

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(why)
        self.said = said


class OutOfTime(Exception):
    """The limit was reached."""


@dataclass
class Verdict:
    """What came of a case."""

    name: str
    ok: bool = False
    # The largest difference of a loss from that of the processor, relative to its size, and how large it may be.
    error: float | None = None
    tolerance: float | None = None
    # A step of the GPU: as a graph, and call by call.
    step_ms: float | None = None
    call_ms: float | None = None
    notes: list[str] = field(default_factory=list)
    # What a command that failed has said.
    said: str = ""


@dataclass
class Ended:
    """A command that ended by itself."""

    code: int
    out: str
    error: str


class Clock:
    """How long commands may take: each by itself, and all together."""

    def __init__(self, of_one: float, of_all: float | None) -> None:
        self.of_one = of_one
        self.running: set[subprocess.Popen[str]] = set()
        self.end = None if of_all is None else time.monotonic() + of_all

    def stop(self) -> None:
        """Ends all that runs, and begins nothing more."""
        self.end = 0.0
        for child in list(self.running):
            os.killpg(child.pid, signal.SIGKILL)

    def run(self, command: list[str], folder: pathlib.Path, times: int = 1, **more: str) -> Ended:
        """Runs a command to its end, with more variables than this process has, for so many times as long as others may take."""
        left = float("inf") if self.end is None else self.end - time.monotonic()
        most = times * self.of_one
        if left < 1:
            raise OutOfTime
        # In a group of its own, so that it ends with all that it started.
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.running.add(child)
        try:
            out, error = child.communicate(timeout=min(left, most))
            return Ended(child.returncode, out, error)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            _, error = child.communicate()
            if left < most:
                raise OutOfTime from None
            raise Failed(f"does not end within {most:.0f} s: {shown(command)}", error) from None
        finally:
            self.running.discard(child)


def shown(command: list[str]) -> str:
    """A command as one may type it."""
    return " ".join([os.path.basename(command[0]), *command[1:]])


def written(source: str) -> tempfile.TemporaryDirectory[str]:
    """A folder with a source."""
    folder = tempfile.TemporaryDirectory(prefix="gpu-check-")
    (pathlib.Path(folder.name) / "check.pipe").write_text(source)
    return folder
