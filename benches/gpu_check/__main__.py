#!/usr/bin/env python3
"""Whether a GPU computes what the processor computes: everything that a card can show, in one go.

  python3 benches/gpu_check --jobs 4 --limit-seconds 540                 every case, the most telling first
  python3 benches/gpu_check --only heads --only zero                     cases whose names have one of these words
  python3 benches/gpu_check --kernels tests --sanitizer auto             kernel by kernel too, and under compute-sanitizer
  python3 benches/gpu_check --pipec target/debug/pipec --device cpu      the same script, where there is no GPU

A case runs 20 steps on the processor and three times on the GPU: as a captured graph, again, and call by call. Losses
must agree (in single precision to 1e-5 of their size, from the sixth step on to 1e-4). The three runs must learn the
same bits, and measured peaks must be the predicted ones. The exit code is 0 if all is well, 1 if a case failed, 2 if
there is nothing to run, and 3 if none failed but the limit left some out.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import cases
import sanitizer
from cases import Case
from runs import Clock, Failed, OutOfTime, Verdict, shown, written

Report = dict[str, Any]

# Lines of what a failed command said that are shown.
SHOWN = 20
# What a fake driver says of a call that it should not have got, and pipec of steps that are no graph.
COMPLAINT, UNCAPTURED = "fake cuda:", "steps are not captured as a graph"
# Of a device's report, and that of its host's memory: what is the same.
PEAKS = (("predicted_peak_bytes", "measured_peak_bytes"), ("arena_bytes", "measured_arena_bytes"))


@dataclass
class Checker:
    """Runs cases in folders of their own; what the processor learns is computed once for each source."""

    options: argparse.Namespace
    clock: Clock
    known: dict[tuple[str, tuple[str, ...]], "concurrent.futures.Future[Report]"] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pipec(self, folder: pathlib.Path, backend: str, *more: str, command: str = "run") -> tuple[Report, str]:
        """The report of a command on the source of a folder, and what it warned of."""
        if self.options.device == "cpu":
            more = on_processor(more)
        line = [self.options.pipec, command, "check.pipe", "--backend", backend, "--format", "json", *more]
        ended = self.clock.run(line, folder)
        if COMPLAINT in ended.error:
            raise Failed(f"the fake driver complains: {shown(line)}", ended.error)
        if ended.code != 0:
            raise Failed(f"exit code {ended.code}: {shown(line)}", ended.error + ended.out)
        try:
            report: Report = json.loads(ended.out)
        except ValueError:
            raise Failed(f"no report: {shown(line)}", ended.error + ended.out) from None
        return report, ended.error

    def trained(self, folder: pathlib.Path, backend: str, case: Case, *more: str) -> tuple[Report, str]:
        """A run of a case whose peaks are the predicted ones."""
        own = case.arguments if backend != "cpu" else ()
        report, said = self.pipec(folder, backend, "--steps", str(self.options.steps), *case.always, *own, *more)
        for device in report["per_device"]:
            for name, place in (("", device), (" of the host", device.get("host", {}))):
                for predicted, measured in PEAKS:
                    if place and place[predicted] != place[measured]:
                        raise Failed(
                            f"d{device['device']}{name}: {place[predicted]} {predicted}, {place[measured]} {measured}",
                            said,
                        )
        return report, said

    def expected(self, case: Case) -> Report:
        """What the processor says of a case."""
        key = (case.source, case.always)
        with self.lock:
            known = self.known.get(key)
            if mine := known is None:
                known = self.known[key] = concurrent.futures.Future()
        assert known is not None
        if mine:
            try:
                with written(case.source) as folder:
                    known.set_result(self.trained(pathlib.Path(folder), "cpu", case, "--no-checkpoint")[0])
            except BaseException as error:
                known.set_exception(error)
        return known.result()

    def check(self, case: Case) -> Verdict:
        """What comes of a case."""
        verdict = Verdict(case.name, tolerance=case.tolerance)
        try:
            with written(case.source) as folder:
                CHECKS[case.kind](self, pathlib.Path(folder), case, verdict)
            verdict.ok = True
        except Failed as failed:
            verdict.notes.insert(0, str(failed))
            verdict.said = failed.said
        return verdict

    def losses(self, folder: pathlib.Path, case: Case, verdict: Verdict) -> None:
        """Losses of all steps beside the processor's, and the same bits in three runs."""
        device = self.options.device
        first, said = self.trained(folder, device, case, "--checkpoint", "first")
        verdict.step_ms = 1000 * first["seconds"] / first["steps"]
        if UNCAPTURED in said:
            verdict.notes.append("not captured: " + next(line for line in said.splitlines() if UNCAPTURED in line))
        compare(self.expected(case)["losses"], first["losses"], verdict)
        for name, more in (("again", ()), ("call by call", ("--no-capture",))):
            other, _ = self.trained(folder, device, case, "--checkpoint", name.replace(" ", "_"), *more)
            same_bits(folder, ("first", first), (name, other))
            verdict.call_ms = 1000 * other["seconds"] / other["steps"]

    def stress(self, folder: pathlib.Path, case: Case, verdict: Verdict) -> None:
        """The same bits under random delays."""
        first, _ = self.trained(folder, self.options.device, case, "--checkpoint", "first")
        compare(self.expected(case)["losses"], first["losses"], verdict)
        for seed in ("1", "2"):
            other, _ = self.trained(folder, self.options.device, case, "--checkpoint", seed, "--stress", seed)
            same_bits(folder, ("first", first), (seed, other))

    def resume(self, folder: pathlib.Path, case: Case, verdict: Verdict) -> None:
        """The first half on one side, the second on the other."""
        device, half = self.options.device, str(self.options.steps // 2)
        expected = self.expected(case)["losses"]
        for begins, ends in (("cpu", device), (device, "cpu"), (device, device)):
            saved = f"{begins}-{ends}"
            self.pipec(folder, begins, "--steps", half, "--checkpoint", saved)
            report, _ = self.trained(folder, ends, case, "--no-checkpoint", "--resume", saved)
            verdict.notes.append(f"{begins} to {ends}")
            compare(expected[int(half) :], report["losses"], verdict, before=int(half))
        verdict.notes.clear()

    def message(self, folder: pathlib.Path, case: Case, verdict: Verdict) -> None:
        """Both sides end with the same message."""
        messages = []
        for backend in ("cpu", self.options.device):
            line = [self.options.pipec, "run", "check.pipe", "--backend", backend, "--steps", "1", "--no-checkpoint"]
            messages.append(self.clock.run(line, folder).error)
        if messages[0] != messages[1] or "but the table has" not in messages[0]:
            raise Failed("messages differ", "\n".join(messages))
        verdict.tolerance = None

    def profile(self, folder: pathlib.Path, case: Case, verdict: Verdict) -> None:
        """The step that a profile predicts, beside the measured one: said, and not judged."""
        report, _ = self.pipec(folder, self.options.device, "--steps", str(3 * self.options.steps), command="profile")
        step = report["comparison"]["step"]
        verdict.tolerance, verdict.step_ms = None, step["measured_ns"] / 1e6
        verdict.notes.append(f"{step['predicted_ns'] / 1e6:.3f} ms predicted ({step['difference_percent']:+.1f}%)")


CHECKS = {
    "losses": Checker.losses,
    "stress": Checker.stress,
    "resume": Checker.resume,
    "message": Checker.message,
    "profile": Checker.profile,
}


def on_processor(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments without those that are for GPUs alone."""
    kept = [word for word in arguments if word not in ("--no-capture", "--no-cublas")]
    if "--products" in kept:
        at = kept.index("--products")
        del kept[at : at + 2]
    return tuple(kept)


def compare(expected: list[float], found: list[float], verdict: Verdict, before: int = 0) -> None:
    """Relative differences of losses are within what the case allows; `before` steps came before the first of these."""
    if len(expected) != len(found):
        raise Failed(f"{len(found)} losses instead of {len(expected)}")
    errors = [abs(own - other) / abs(own) for own, other in zip(expected, found)]
    for at, error in enumerate(errors):
        # What is no number is greater than any.
        error = float("inf") if error != error else error
        verdict.error = max(error, verdict.error or 0.0)
        if error > cases.allowed(verdict.tolerance or 0.0, before + at):
            raise Failed(f"loss {found[at]!r} instead of {expected[at]!r} in step {before + at + 1}")


def same_bits(folder: pathlib.Path, *runs: tuple[str, Report]) -> None:
    """Two runs have the same losses, and have saved the same bytes."""
    (first, one), (second, other) = runs
    if one["losses"] != other["losses"]:
        step = next(at for at, pair in enumerate(zip(one["losses"], other["losses"])) if pair[0] != pair[1])
        raise Failed(f"{second}: other losses than in the first run, from step {step + 1} on")
    if saved(folder / first) != saved(folder / second.replace(" ", "_")):
        raise Failed(f"{second}: the same losses, but other weights than in the first run")


def saved(folder: pathlib.Path) -> bytes:
    """The newest checkpoint of a folder."""
    return max(folder.iterdir()).read_bytes()


# Tables.


def of_number(number: float | None, form: str) -> str:
    """A cell, empty where there is none."""
    return "" if number is None else format(number, form)


def line_of(verdict: Verdict, wide: int) -> str:
    """One line, and what a failed run said below it."""
    errors = [of_number(verdict.error, ".1e"), of_number(verdict.tolerance, ".0e")]
    cells = [*errors, of_number(verdict.step_ms, ".2f"), of_number(verdict.call_ms, ".2f")]
    told = "; ".join(["ok" if verdict.ok else "FAIL", *verdict.notes])
    text = f"{verdict.name:<{wide}} " + " ".join(f"{cell:>8}" for cell in cells) + f"  {told}"
    said = verdict.said.strip().splitlines()[-SHOWN:]
    return "\n".join([text.rstrip(), *(f"    | {line}" for line in said)])


def arguments() -> argparse.Namespace:
    """What the user wants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipec", default="target/release/pipec", help="the binary")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="what is compared with the processor")
    parser.add_argument(
        "--size", choices=list(cases.SIZES), default="small", help="of the models: tiny ones are for emulated GPUs"
    )
    parser.add_argument("--steps", type=int, default=20, help="an even number")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="cases whose names have this word; again for several",
    )
    parser.add_argument("--jobs", type=int, default=1, help="cases at once")
    parser.add_argument("--limit-seconds", type=float, metavar="S", help="stops then, and says what was not run")
    parser.add_argument(
        "--run-seconds", type=float, default=120, metavar="S", help="a run that takes longer has failed"
    )
    parser.add_argument(
        "--kernels", metavar="BINARY", help="tests of pipe-cuda, which then run every kernel by itself on the GPU"
    )
    parser.add_argument(
        "--sanitizer",
        metavar="PATH",
        help="also looks with compute-sanitizer at some cases (and at the kernels); `auto` finds it",
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--list", action="store_true", help="says which cases there are, and runs none")
    options = parser.parse_args()
    if options.steps < 2 or options.steps % 2 != 0 or options.jobs < 1:
        parser.error("--steps is an even number, and --jobs at least 1")
    for name in ("pipec", "kernels"):
        path = getattr(options, name)
        if path and not options.list and not os.access(path, os.X_OK):
            parser.error(f"--{name}: {path} cannot be run")
        setattr(options, name, os.path.abspath(path) if path else None)
    return options


def works(options: argparse.Namespace, clock: Clock) -> list[tuple[str, Callable[[], Verdict]]]:
    """All that is wanted, by name, in the order in which it is begun."""
    checker = Checker(options, clock)

    def checked(case: Case) -> tuple[str, Callable[[], Verdict]]:
        return case.name, lambda: checker.check(case)

    def kernels(name: str, tool: tuple[str, str] | None) -> tuple[str, Callable[[], Verdict]]:
        return name, lambda: sanitizer.of_kernels(clock, options.kernels, options.jobs, tool)

    def examined(tool: str, one: cases.Examined) -> tuple[str, Callable[[], Verdict]]:
        return f"{tool}: {one.name}", lambda: sanitizer.of_runs(clock, tool, options.sanitizer, options.pipec, one)

    found = [checked(case) for case in cases.cases(options.size)]
    if options.kernels:
        found.insert(0, kernels("kernels", None))
    if options.sanitizer:
        for tool in cases.ALL_TOOLS:
            found += [examined(tool, one) for one in cases.examined() if tool in one.tools]
            if options.kernels:
                found.append(kernels(f"{tool}: kernels", (options.sanitizer, tool)))
    return [(name, work) for name, work in found if not options.only or any(word in name for word in options.only)]


def main() -> int:
    """Runs what is wanted; the exit code."""
    options = arguments()
    out = sys.stdout if options.format == "text" else sys.stderr
    if options.sanitizer:
        wanted, options.sanitizer = options.sanitizer, sanitizer.find(options.sanitizer)
        if options.sanitizer is None:
            print(f"compute-sanitizer is not here ({wanted}): nothing runs under it", file=out)
    clock, started = Clock(options.run_seconds, options.limit_seconds), time.monotonic()
    todo = works(options, clock)
    if options.list:
        print("\n".join(name for name, _ in todo))
        return 0
    if not todo:
        print("nothing to run: `--list` says which cases there are", file=out)
        return 2
    version = Clock(options.run_seconds, None).run([options.pipec, "--version"], pathlib.Path.cwd()).out
    told = "\n".join(line for line in version.splitlines() if line.startswith(("pipec", "cuda")))
    print(told, file=out)
    if options.device != "cpu" and "driver for CUDA" not in told:
        print("without a driver nothing runs: `--device cpu` compares the processor with itself", file=out)
        return 2
    wide = max((len(name) for name, _ in todo), default=0)
    print(f"\n{'':<{wide}} {'error':>8} {'allowed':>8} {'ms/step':>8} {'by call':>8}", file=out, flush=True)
    verdicts, left = [], []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(work): name for name, work in todo}
        try:
            for done in concurrent.futures.as_completed(waiting):
                try:
                    verdicts.append(done.result())
                    print(line_of(verdicts[-1], wide), file=out, flush=True)
                except OutOfTime:
                    left.append(waiting[done])
        except BaseException:
            clock.stop()
            raise
    return conclude(options, verdicts, left, time.monotonic() - started)


def conclude(options: argparse.Namespace, verdicts: list[Verdict], left: list[str], seconds: float) -> int:
    """Says what came of all cases; the exit code."""
    failed = [verdict.name for verdict in verdicts if not verdict.ok]
    if options.format == "json":
        found = {"ok": not failed and not left, "cases": [asdict(verdict) for verdict in verdicts], "not_run": left}
        print(json.dumps({"schema": "pipec.gpu_check/1", **found, "seconds": seconds}, indent=2))
    else:
        told = [f"{len(verdicts) - len(failed)} of {len(verdicts) + len(left)} ok"]
        told += [f"{len(failed)} FAILED: {', '.join(failed)}"] if failed else []
        told += [f"{len(left)} not run within {options.limit_seconds:g} s: {', '.join(left)}"] if left else []
        print(f"\n{'; '.join(told)} ({seconds:.0f} s)")
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Nobody reads on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
