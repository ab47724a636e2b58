"""What is known of all that flows, by the shapes of the inputs of a step: shapes may change from step to step.

At the beginning of each step ranks agree whether its inputs have the shapes of an earlier one. Where they do, only
tensors travel; otherwise every transfer is announced, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from ..program import Program
from .batches import Given
from .stage.flow import Step
from .stage.structures import Structure
from .transport import Forms, Transport

MOST_KNOWN = 64
"""Of the inputs of steps: what is known of the oldest is forgotten."""
_DIGEST_BYTES = 6
"""Sums over all ranks fit into 64 bits."""

InputForms = Mapping[tuple[int, int], frozenset[Any]]
"""By stage and slice, the forms of its inputs in all microbatches; slices that are equal count as one."""


@dataclass
class _Known:
    inputs: InputForms = field(default_factory=dict)
    forms: dict[int, Forms] = field(default_factory=dict)
    structures: dict[int, Structure] = field(default_factory=dict)
    modes: set[bool] = field(default_factory=set)
    """Whether trainings (true) and evaluations have run."""


class KnownShapes:
    """What earlier steps have found, of which a `Step` holds that of the current one."""

    def __init__(self, program: Program, step: Step, transport: Transport) -> None:
        self._step = step
        self._transport = transport
        self._roots = sorted({device for stage in program.stages if stage.is_first for device in stage.devices})
        self._n_ranks = program.n_devices
        self._always = dict(step.forms)
        self._current = _Known()
        self._by_key: dict[int, _Known] = {}
        self._digests: dict[frozenset[tuple[tuple[int, int], frozenset[Any]]], int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing has run yet."""
        return not self._current.modes

    def covers(self, trains: bool) -> bool:
        """Whether all that will flow is known."""
        return bool(self._current.modes & {trains, True})

    def differ(self, inputs: InputForms) -> bool:
        """Whether inputs of a stage and slice differ from each other, or from those that are known."""
        known = self._current.inputs
        return any(len(forms) > 1 or not forms <= known.get(key, forms) for key, forms in inputs.items())

    def choose(self, inputs: InputForms) -> None:
        """Takes what is known of a training with these inputs, perhaps nothing. All ranks call it."""
        key = self._agreed(self._digest(inputs))
        known = self._by_key.get(key)
        if known is None:
            if len(self._by_key) == MOST_KNOWN:
                del self._by_key[next(iter(self._by_key))]
            known = self._by_key[key] = _Known()
        if known is not self._current:
            self._keep()
            self._load(known)

    def learned(self, inputs: InputForms, trains: bool) -> None:
        """Notes that a step has found what flows."""
        self._current.modes.add(trains)
        self._current.inputs = {**self._current.inputs, **inputs}

    def forget(self) -> None:
        """Forgets everything. All ranks call it."""
        self._by_key.clear()
        self._load(_Known())

    def _keep(self) -> None:
        self._current.forms = dict(self._step.forms)
        self._current.structures = dict(self._step.structures)

    def _load(self, known: _Known) -> None:
        step = self._step
        step.forms.clear()
        step.forms.update({**known.forms, **self._always})
        step.structures.clear()
        step.structures.update(known.structures)
        self._current = known

    def _digest(self, inputs: InputForms) -> int:
        """The same number for the same forms in every process; 0 without inputs."""
        said = frozenset(inputs.items())
        found = self._digests.get(said)
        if found is None:
            if len(self._digests) == MOST_KNOWN:
                self._digests.clear()
            text = repr(sorted((key, sorted(map(str, forms))) for key, forms in said))
            digest = hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]
            found = self._digests[said] = int.from_bytes(digest, "little") if said else 0
        return found

    def _agreed(self, digest: int) -> int:
        """That of the only rank whose inputs all others wait for, which waits for nobody; or the sum over several."""
        if self._n_ranks == 1:
            return digest
        if len(self._roots) == 1:
            return self._transport.relay(digest, self._roots[0])
        total = torch.tensor([digest])
        dist.all_reduce(total, group=self._transport.control)
        return int(total)


def input_forms(
    given: Iterable[tuple[int, Sequence[Given | None]]], n_lengths: int
) -> dict[tuple[int, int], frozenset[Any]]:
    """The forms of the inputs of some stages, without those that have none; slices may have so many lengths in turn."""
    found = {}
    for stage, entries in given:
        for slice in range(n_lengths):
            forms = _distinct(entries[slice::n_lengths])
            if forms:
                found[stage, slice] = frozenset(forms)
    return found


def _distinct(entries: Sequence[Given | None]) -> list[Any]:
    forms: list[Any] = []
    before = None
    for one in entries:
        if one is not None and one is not before:  # Stages without inputs have the same nothing for all.
            form = one.forms()
            if form and form not in forms:
                forms.append(form)
        before = one
    return forms
