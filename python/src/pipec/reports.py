"""What the compiler reports, as dataclasses; the whole JSON of each is its `json`."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .command import Source, call
from .errors import CompileError
from .picture import Picture, preformatted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Row = TypeVar("Row", bound=DataclassInstance)
else:
    Row = TypeVar("Row")


@dataclass(frozen=True)
class Diagnostic:
    """An error or a warning, with its place in the source."""

    code: str
    """`pipec explain CODE` tells more."""
    severity: str
    """`error` or `warning`."""
    message: str
    file: str | None
    line: int | None
    """Counted from 1, as the other three."""
    column: int | None
    end_line: int | None
    end_column: int | None
    help: str | None
    """What to change."""

    def __str__(self) -> str:
        """The message behind its place, as compilers print it."""
        place = "" if self.file is None or self.line is None else f"{self.file}:{self.line}:{self.column}: "
        told = f"\n  help: {self.help}" if self.help else ""
        return f"{place}{self.severity}: {self.message} [{self.code}]{told}"


@dataclass(frozen=True)
class DeviceReport:
    """What one device does in a step. Times are in the unit of the costs (milliseconds with a cluster), activations in
    units.
    """

    device: int
    first_start: float | None
    last_end: float | None
    busy: float | None
    """How long its tasks take together."""
    peak_activation: float | None
    bound_activation: float | None
    """The least that any order of a periodic schedule holds; `None` where there is no period."""
    peak_bytes: int | None
    """Of all memory, where the model says sizes."""
    limit_bytes: int | None


@dataclass(frozen=True, repr=False)
class Check:
    """A checked target: whether it is accepted, how long it takes and what it holds. In a notebook it shows its
    timeline.
    """

    ok: bool
    """Whether dependencies, freedom from deadlock and memory are proved."""
    target: str
    schedule: str | None
    pipeline: str | None
    devices: int | None
    stages: int | None
    microbatches: int | None
    tasks: int | None
    instructions: int | None
    makespan: float | None
    """From the first start to the last end."""
    longest_stage: float | None
    """The longest time from first start to last end on one device."""
    bubble_mean: float | None
    """The share of the makespan in which devices idle, as a mean over them."""
    bubble_makespan: float | None
    bubble_longest_stage: float | None
    lower_bound: float | None
    """No order of the same tasks is shorter."""
    gap: float | None
    """How much longer the makespan is than the bound, as a share of it; 0 proves that it is the shortest."""
    peak_activation: float | None
    bound_activation: float | None
    deadlock_free: bool | None
    valid_for_all_microbatches: bool | None
    per_device: tuple[DeviceReport, ...]
    diagnostics: tuple[Diagnostic, ...]
    json: Mapping[str, Any] = field(repr=False, compare=False)
    """All that the compiler reports: schema `pipec.check/1`."""
    picture: Picture = field(repr=False, compare=False)
    """Its timeline."""

    def require(self) -> Check:
        """Itself, if the target is accepted.

        Raises:
            CompileError: It is rejected; the text is what `pipec check` prints.
        """
        if not self.ok:
            raise CompileError(self._whole_diagnostics() or f"{self.target} is rejected")
        return self

    def _whole_diagnostics(self) -> str:
        """What was found, with the lines of the source."""
        ended = call("check", self.picture.target, self.picture.options, ["--quiet"])
        return (ended.stderr.strip() if ended.returncode else "") or _lines(self.diagnostics)

    def __repr__(self) -> str:
        name, kind = self.schedule or self.pipeline or self.target, type(self).__name__
        if not self.ok:
            count = len(self.diagnostics)
            return f"{kind}({name}: rejected, {count} diagnostic{'s' * (count != 1)})"
        sizes = f"{self.devices} devices, {self.stages} stages, {self.microbatches} microbatches"
        return f"{kind}({name}: accepted, {sizes}, {self.instructions} instructions, makespan {_short(self.makespan)})"

    def __str__(self) -> str:
        """The figures in a few lines, or what was found."""
        name = self.schedule or self.pipeline or self.target
        lines = [f"{name}: {'accepted' if self.ok else 'rejected'}"]
        if self.makespan is not None:
            lines[0] += f", {self.devices} devices, {self.stages} stages, {self.microbatches} microbatches"
            lines.append(
                f"  makespan {_short(self.makespan)}, lower bound {_short(self.lower_bound)}, "
                f"mean bubble {_percent(self.bubble_mean)}, peak activation {_short(self.peak_activation)} units"
            )
        return "\n".join([*lines, *map(str, self.diagnostics)])

    def _repr_html_(self) -> str:
        return self.picture._repr_html_()


@dataclass(frozen=True, repr=False)
class Search(Check):
    """A schedule that the search found, checked."""

    source: str | None
    """It as a `.pipe` file; `None` where nothing fits."""
    seconds: float | None
    proved_optimal: bool | None
    """Whether no schedule for these devices, costs and memory is shorter."""

    def as_source(self) -> Source:
        """The schedule as a target of `compile`, `check` and `plot`.

        Raises:
            CompileError: None was found.
        """
        self.require()
        if self.source is None:
            raise CompileError(f"the search for {self.target} found no schedule")
        return found_source(self.source, self.json)

    def _whole_diagnostics(self) -> str:
        """Those of the search: a check of its target says other things."""
        return _lines(self.diagnostics)

    def save(self, path: str | Path) -> None:
        """Writes the schedule as a `.pipe` file."""
        Path(path).write_text(self.as_source().text, encoding="utf-8")


@dataclass(frozen=True)
class Candidate:
    """A way to divide a model among a cluster's devices."""

    tensor: int
    """Devices that share each layer."""
    devices: int
    """Devices of a pipeline, each with its stages."""
    data: int
    """Pipelines that learn from different rows."""
    expert: int
    rows: int
    """Rows of a microbatch."""
    microbatches: int
    schedule: str
    """The standard schedule with its parameters."""
    recompute: str
    zero: int
    sequence_parallel: bool
    offload: str
    step: float
    """How long a step takes, in milliseconds."""
    mfu: float | None
    """Model FLOP utilisation: 0 to 1."""
    tokens_per_second: float | None
    bubble_mean: float | None
    peak_bytes: int
    """Of the device that holds the most."""


@dataclass(frozen=True, repr=False)
class Tune:
    """The ways to divide a model among a cluster, the fastest first."""

    ok: bool
    target: str
    best: tuple[Candidate, ...]
    lower_bound: float | None
    """No candidate that may fit is shorter, in milliseconds."""
    complete: bool | None
    """Whether nothing that was left out can be faster."""
    seconds: float | None
    source: str | None
    """The first of `best` as a `.pipe` file."""
    diagnostics: tuple[Diagnostic, ...]
    json: Mapping[str, Any] = field(repr=False, compare=False)
    """All that the compiler reports, with what is slower, does not fit or is not allowed: schema `pipec.tune/1`."""

    def as_source(self) -> Source:
        """The schedule of the best for its devices and microbatches, as a target of `compile`, `check` and `plot`.

        It is without the model, whose modules a `Runner` gets. What else the best says is for these modules: `tensor`,
        `data`, `expert`, `rows`, `recompute`, `zero`, `sequence_parallel` and `offload`.

        Raises:
            CompileError: Nothing fits.
        """
        return Source(schedule_of_pipeline(self._require()))

    def save(self, path: str | Path) -> None:
        """Writes the best as a `.pipe` file; the model's `config.json` has to be beside it.

        Raises:
            CompileError: Nothing fits.
        """
        Path(path).write_text(self._require(), encoding="utf-8")

    def _require(self) -> str:
        if self.source is None:
            raise CompileError(self._nothing())
        return self.source

    def _nothing(self) -> str:
        return _lines(self.diagnostics) or f"nothing that was tried for {self.target} fits"

    def __repr__(self) -> str:
        if not self.best:
            return f"Tune({self.target}: nothing fits)"
        first = self.best[0]
        sizes = f"{first.devices} devices, {first.microbatches} microbatches, {_short(first.step)} ms"
        return f"Tune({self.target}: {len(self.best)} candidates, the first {first.schedule} on {sizes})"

    def __str__(self) -> str:
        """The candidates as a table, the fastest first, or why there are none."""
        return candidates_table(self.best) if self.best else self._nothing()

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The candidates by column, as `pandas.DataFrame` takes them."""
        return {one.name: [getattr(row, one.name) for row in self.best] for one in fields(Candidate)}

    def _repr_html_(self) -> str:
        if not self.best:
            return preformatted(self._nothing())
        names = [one.name for one in fields(Candidate)]
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{_cell(getattr(row, name))}</td>" for name in names) + "</tr>" for row in self.best
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def schedule_of_pipeline(text: str) -> str:
    """The pipeline that `tune` has written, without its model and memory, and the schedules behind it."""
    pipeline, _, schedules = text.partition("\n}\n")
    said = {key: re.search(rf"^ *{pattern}", pipeline, re.MULTILINE) for key, pattern in _LINES.items()}
    lines = [found[0].strip() for found in said.values() if found is not None]
    assert len(lines) == len(_LINES), "`tune` writes each of them"
    name, *rest = lines
    return "\n    ".join([f"{name} {{", *rest]) + f"\n}}\n{schedules}"


_LINES = {
    "name": r"pipeline \w+",
    "devices": r"devices \d+",
    "microbatches": r"microbatches \d+",
    "schedule": r"schedule .*",
}
"""What says when which task runs, of a pipeline that `tune` has written."""


def candidates_table(rows: tuple[Candidate, ...]) -> str:
    """Candidates in aligned columns."""
    heads = ["step", "MFU", "mean bubble", "peak", "tensor", "devices", "data", "expert", "rows", "microbatches"]
    cells = [[*heads, "schedule"]]
    for one in rows:
        sizes = (one.tensor, one.devices, one.data, one.expert, one.rows, one.microbatches)
        peak = f"{one.peak_bytes / 2**30:.3g} GiB"
        measured = [f"{_short(one.step)} ms", _percent(one.mfu), _percent(one.bubble_mean), peak]
        cells.append([*measured, *map(str, sizes), _schedule_text(one)])
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return "\n".join(
        "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row, widths)), row[-1]]).rstrip() for row in cells
    )


def _schedule_text(one: Candidate) -> str:
    """The schedule, and what is not as usual."""
    more = [
        f"recompute {one.recompute}" if one.recompute != "none" else "",
        f"zero {one.zero}" if one.zero else "",
        "sequence parallel" if one.sequence_parallel else "",
        f"offload {one.offload}" if one.offload != "none" else "",
    ]
    return ", ".join([one.schedule, *filter(None, more)])


def found_source(text: str, found: Mapping[str, Any]) -> Source:
    """What a search has written, with the sizes that it is for."""
    sizes = {name: found[name] for name in ("devices", "microbatches") if found.get(name) is not None}
    return Source(text, sizes)


def check_of(found: Mapping[str, Any], picture: Picture) -> Check:
    """A report of schema `pipec.check/1`."""
    return Check(**_checked(found, picture))


def search_of(found: Mapping[str, Any], picture: Picture) -> Search:
    """A report of schema `pipec.search/1`."""
    more = {name: found.get(name) for name in ("source", "seconds", "proved_optimal")}
    return Search(**{**_checked(found, picture), **more})


def tune_of(found: Mapping[str, Any]) -> Tune:
    """A report of schema `pipec.tune/1`."""
    return Tune(
        ok=found["ok"],
        target=found["target"],
        best=tuple(row(Candidate, one) for one in found.get("best") or ()),
        lower_bound=found.get("lower_bound"),
        complete=found.get("complete"),
        seconds=found.get("seconds"),
        source=found.get("source"),
        diagnostics=_diagnostics(found),
        json=found,
    )


def row(kind: type[Row], found: Mapping[str, Any]) -> Row:
    """A dataclass from the JSON object with its fields; what else is there stays in the whole report."""
    return kind(**{one.name: found.get(one.name) for one in fields(kind)})


def _checked(found: Mapping[str, Any], picture: Picture) -> dict[str, Any]:
    plain = {one.name: found.get(one.name) for one in fields(Check)}
    per_device = tuple(row(DeviceReport, one) for one in found.get("per_device") or ())
    return {**plain, "per_device": per_device, "diagnostics": _diagnostics(found), "json": found, "picture": picture}


def _diagnostics(found: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    return tuple(row(Diagnostic, one) for one in found.get("diagnostics") or ())


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _cell(value: Any) -> str:
    return _short(value) if isinstance(value, float) else html.escape(str(value))


def _lines(diagnostics: tuple[Diagnostic, ...]) -> str:
    return "\n".join(map(str, diagnostics))
