"""The compiler's commands as functions: `compile`, `build`, `check`, `search`, `tune`, `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .command import Options, Target, call, failure, flags, report
from .picture import Picture
from .program import Program, loads
from .reports import Check, Search, Tune, check_of, found_source, search_of, tune_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def compile(target: Target, **options: Unpack[Options]) -> Program:
    """Compiles a schedule or pipeline; the same as `pipec build TARGET --emit json` on the command line.

    Equal targets and options give equal programs, so every rank may compile for itself::

        program = pipec.compile("std:v_half", devices=4, microbatches=8)

    Args:
        target: A `.pipe` file, a schedule of the standard library such as `std:v_half`, or a `Source`.
        **options: `devices`, `microbatches`, `settings`, `cost`, `memory` and the others of `pipec.Options`.

    Raises:
        CompileError: The compiler is missing, or rejects the target; the text is what it printed.
        ProgramError: The compiler is of another version, and writes another schema.
    """
    return loads(build(target, "json", **options))


def build(target: Target, emit: str, **options: Unpack[Options]) -> str:
    """What `pipec build TARGET --emit KIND` writes: another form of a program or of its schedule::

        table = pipec.build("std:v_half", "torch-csv", devices=4, microbatches=8)

    Args:
        target: A `.pipe` file, a schedule of the standard library such as `std:v_half`, or a `Source`.
        emit: The form, such as `ir`, `torch-csv`, `torchtitan`, `megatron-layout` or `perfetto`.
        **options: `devices`, `microbatches`, `settings`, `cost`, `memory` and the others of `pipec.Options`.

    Raises:
        CompileError: The compiler is missing, rejects the target, or it has no such form.
    """
    ended = call("build", target, options, ["--emit", emit, "--quiet"])
    if ended.returncode != 0:
        raise failure("build", ended)
    return ended.stdout


def check(target: Target, **options: Unpack[Options]) -> Check:
    """Proves a schedule or pipeline; the same as `pipec check TARGET` on the command line. Needs no PyTorch.

    A target that is rejected is no exception: `ok` is false and `diagnostics` says why (`require` makes it one)::

        found = pipec.check("std:v_half", devices=8, microbatches=24)
        print(found.makespan, found.peak_activation)

    Args:
        target: A `.pipe` file, a schedule of the standard library such as `std:v_half`, or a `Source`.
        **options: `devices`, `microbatches`, `settings`, `cost`, `memory` and the others of `pipec.Options`.

    Raises:
        CompileError: The compiler is missing, an option is wrong or a file cannot be read.
    """
    return check_of(report("check", target, options), Picture(target, options))


def search(
    target: Target,
    *,
    objective: str | None = None,
    time: float | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    may_recompute: bool = False,
    may_offload: bool = False,
    **options: Unpack[Options],
) -> Search:
    """Finds a short schedule under a memory limit; the same as `pipec search TARGET` on the command line.

    The result has the schedule as source::

        found = pipec.search("std:1f1b", devices=4, microbatches=8, memory=3, time=5)
        program = pipec.compile(found.as_source())

    Args:
        target: Which devices, stages, costs and limits; without `memory`, devices may hold what the fullest one holds
            in the target.
        objective: What is to be short: `makespan` (the default) or `longest-stage`.
        time: Stops after this many seconds, with the best so far; 20 by default.
        rounds: Rounds of improvement, each twice as long as the one before; 8 by default.
        seed: Where random choices come from.
        jobs: Threads; the result does not depend on their number, as long as there is time.
        may_recompute: Stages may run their forward once more, where that makes the step shorter.
        may_offload: State of a model may live with the hosts, where that makes the step shorter.
        **options: `devices`, `microbatches`, `settings`, `cost`, `memory` and the others of `pipec.Options`.

    Raises:
        CompileError: The compiler is missing, an option is wrong or a file cannot be read.
    """
    more = flags(
        objective=objective,
        time=time,
        rounds=rounds,
        seed=seed,
        jobs=jobs,
        may_recompute=may_recompute,
        may_offload=may_offload,
    )
    found = report("search", target, options, more)
    return search_of(found, _picture(target, found, options))


def tune(
    target: Target,
    *,
    batch: int | None = None,
    schedules: Sequence[str] | None = None,
    best: int | None = None,
    time: float | None = None,
    search: float | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    may_offload: bool = False,
    **options: Unpack[Options],
) -> Tune:
    """Finds how to divide a model among a cluster's devices; the same as `pipec tune TARGET` on the command line.

    ::

        found = pipec.tune("llama3_70b.pipe", cluster="cluster.toml")
        found.save("best.pipe")
        program = pipec.compile(found.as_source())

    Args:
        target: A pipeline whose model comes from a `config.json`.
        batch: Rows of a step over all pipelines; those of the target, unless said.
        schedules: Only these standard schedules.
        best: How many of the best are reported; 10 by default.
        time: Stops after this many seconds, with the best so far; 600 by default.
        search: Then looks for shorter orders for the best, for so many seconds.
        seed: Where random choices of `search` come from.
        jobs: Threads; the result does not depend on their number, as long as there is time.
        may_offload: Also tries state that lives with the hosts, where it does not fit otherwise.
        **options: `cluster` (always), `settings` that hold a dimension fast, and the others of `pipec.Options`.

    Raises:
        TypeError: `cluster` is missing.
        CompileError: The compiler is missing, an option is wrong or a file cannot be read.
    """
    if options.get("cluster") is None:
        raise TypeError('`tune` needs `cluster=`: the machines to run on, such as `cluster="cluster.toml"`')
    more = flags(
        batch=batch,
        schedules=None if schedules is None else list(schedules),
        best=best,
        time=time,
        search=search,
        seed=seed,
        jobs=jobs,
        may_offload=may_offload,
    )
    return tune_of(report("tune", target, options, more))


def plot(target: Target, **options: Unpack[Options]) -> Picture:
    """The timeline of a target, which a notebook shows; `save` writes it as a page or figure.

    ::

        pipec.plot("std:v_half", devices=4, microbatches=8).save("fig.pdf", for_="paper", width="85mm")

    Raises:
        CompileError: When it is drawn: the compiler is missing, or an option is wrong.
    """
    return Picture(target, options)


def _picture(target: Target, found: Mapping[str, Any], options: Mapping[str, Any]) -> Picture:
    """The timeline of what a search has found, or else of its target. The source that was found has its own tasks and
    sizes.
    """
    if found.get("source") is None:
        return Picture(target, options)
    of_target = ("devices", "microbatches", "settings", "schedule", "pipeline", "recompute", "layout")
    kept = {name: value for name, value in options.items() if name not in of_target}
    return Picture(found_source(found["source"], found), kept)
