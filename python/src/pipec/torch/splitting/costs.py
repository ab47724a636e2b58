"""What layers or stages cost: seconds of each kind of task, and bytes, as a table and as what the compiler reads."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ...errors import StageError
from ...program import Program
from .chain import span

SCHEMA = "pipec.profile/1"
"""The form of the profiles that `pipec check --profile` reads."""

KINDS = {"F": "forward", "B": "backward_input", "W": "backward_weight", "BW": "backward"}
"""The kinds of tasks that are measured, and the field of each."""


@dataclass(frozen=True)
class LayerCost:
    """What a layer (or a stage) takes for one microbatch, on one device."""

    name: str
    forward: float
    """Seconds of `F`."""
    backward_input: float
    """Seconds of `B`: the gradients of what flows in."""
    backward_weight: float
    """Seconds of `W`: the gradients of the weights."""
    backward: float
    """Seconds of `BW`: both at once."""
    activation_bytes: int
    """What is held from the forward to the backward: what flows in, and what autograd saves, but for weights and for
    what flows out, which the next layer counts.
    """
    parameter_bytes: int
    """Weights, each once."""
    output_bytes: int
    """What flows out to the next layer."""
    flops: int
    """Floating-point operations of the forward, as PyTorch's `FlopCounterMode` counts them."""

    def of(self, kind: str) -> float:
        """Seconds of a kind of task: `F`, `B`, `W`, `BW`, or `R`, which is a forward."""
        seconds: float = getattr(self, KINDS["F" if kind == "R" else kind])
        return seconds


@dataclass(frozen=True)
class Profile:
    """What the layers of a model take, in their order. Make one with `pipec.torch.profile`; `print` shows a table."""

    layers: tuple[LayerCost, ...]

    def __str__(self) -> str:
        rows = _rows(self)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for row in rows:
            cells = [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:]))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = _rows(self)
        cells = "".join(
            f'<th style="text-align:{"right" if number else "left"}">{one}</th>' for number, one in enumerate(head)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:{"right" if number else "left"}">{html.escape(one)}</td>'
                for number, one in enumerate(row)
            )
            + "</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"

    @property
    def total(self) -> LayerCost:
        """All layers together; what flows out is that of the last one."""
        return _sum("all", self.layers)

    def merged(self, counts: Sequence[int]) -> Profile:
        """The costs of stages that have so many layers each.

        Raises:
            StageError: That is another number of layers.
        """
        if sum(counts) != len(self.layers) or min(counts) < 1:
            raise StageError(f"{list(counts)} are {sum(counts)} layers, but {len(self.layers)} were measured")
        firsts = [sum(counts[:stage]) for stage in range(len(counts))]
        parts = [self.layers[first : first + count] for first, count in zip(firsts, counts)]
        return Profile(tuple(_sum(span([one.name for one in part]), part) for part in parts))

    def cost(self, program: Program) -> str:
        """What `pipec.check(.., cost=)` takes, in microseconds, where this is a profile of a program's stages.

        Raises:
            StageError: It is one of another number of stages.
        """
        self._require_stages(program)
        kinds = [
            (stage.index, kind) for stage in program.stages for kind in KINDS if kind in stage.kinds or kind == "F"
        ]
        return ",".join(f"{kind}[{stage}]={max(1e6 * self.layers[stage].of(kind), 1e-6):.6f}" for stage, kind in kinds)

    def activation(self, program: Program) -> str:
        """What `pipec.check(.., activation=)` takes: what each stage saves, where 1 is the mean.

        Raises:
            StageError: It is a profile of another number of stages.
        """
        self._require_stages(program)
        mean = max(sum(one.activation_bytes for one in self.layers) / len(self.layers), 1)
        return ",".join(f"F[{stage}]={one.activation_bytes / mean:.6f}" for stage, one in enumerate(self.layers))

    def save(self, path: str | os.PathLike[str], *, target: str = "model", transfer: float = 0.0) -> None:
        """Writes a file that `pipec check --profile` and `pipec.check(.., profile=)` read, where this is a profile of
        stages; `Profile.load` reads it, too.

        Args:
            path: The file, such as `here.profile.json`.
            target: The name that the file has for what was measured.
            transfer: Seconds between the end of a task and the start of one on another device that reads what it
                makes; this package does not measure them.
        """
        tasks = [
            {"stage": stage, "kind": kind, "ns": max(round(1e9 * one.of(kind)), 0), "flops": 0}
            for stage, one in enumerate(self.layers)
            for kind in KINDS
        ]
        text = {
            "schema": SCHEMA,
            "target": target,
            "stages": len(self.layers),
            "transfer_ns": round(1e9 * transfer),
            "tasks": tasks,
            "layers": [asdict(one) for one in self.layers],
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(text, file, indent=1)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Profile:
        """Reads what `save` wrote.

        Raises:
            StageError: The file is none that `save` wrote.
        """
        with open(path, encoding="utf-8") as file:
            try:
                found = json.load(file)
                return Profile(tuple(LayerCost(**one) for one in found["layers"]))
            except (ValueError, KeyError, TypeError) as error:
                raise StageError(
                    f"{os.fspath(path)} is no profile that `Profile.save` wrote: {type(error).__name__}: {error}"
                ) from None

    def _require_stages(self, program: Program) -> None:
        if len(self.layers) != program.n_stages:
            raise StageError(
                f"this is a profile of {len(self.layers)} layers, but `{program.name}` has {program.n_stages} stages: "
                "take `Split.profile`, or `merged` with the number of layers of each stage"
            )


def _sum(name: str, layers: Sequence[LayerCost]) -> LayerCost:
    numbers: dict[str, Any] = {
        field.name: sum(getattr(one, field.name) for one in layers)
        for field in fields(LayerCost)
        if field.name not in ("name", "output_bytes")
    }
    return LayerCost(name=name, output_bytes=layers[-1].output_bytes, **numbers)


def _rows(profile: Profile) -> list[list[str]]:
    head = ["layer", "F", "B", "W", "BW", "activations", "weights", "output"]
    return [head, *(_row(one) for one in (*profile.layers, profile.total))]


def _row(one: LayerCost) -> list[str]:
    times: Iterable[float] = (one.forward, one.backward_input, one.backward_weight, one.backward)
    sizes = (one.activation_bytes, one.parameter_bytes, one.output_bytes)
    return [one.name, *map(time_text, times), *map(size_text, sizes)]


def time_text(seconds: float) -> str:
    """A time with its unit, such as `1.24 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds * 1e6)} us"


def size_text(n_bytes: float) -> str:
    """A size with its unit, such as `12.5 MiB`."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= scale:
            return f"{_three(n_bytes / scale)} {unit}"
    return f"{n_bytes:.0f} B"


def _three(number: float) -> str:
    """Three digits."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
