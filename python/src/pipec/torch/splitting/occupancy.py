"""What a program does to the devices of stages: how many microbatches they run, and hold the activations of at once."""

from __future__ import annotations

from collections.abc import Mapping

from ...instructions import Run
from ...program import Program


def runs_of(program: Program) -> list[dict[int, float]]:
    """By stage and device, the part of the microbatches that it runs."""
    whole = program.n_microbatches
    return [
        {device: len(program.microbatches(stage.index, device)) / whole for device in stage.devices}
        for stage in program.stages
    ]


def held_at_once(program: Program) -> list[list[dict[int, float]]]:
    """By device, the moments that may need the most memory: how many microbatches of each stage it then holds the
    activations of, from their forward (or `R`) to the end of their backward. A slice counts as its part. Moments that
    hold no more of any stage than another one are left out.
    """
    found = []
    for number, device in enumerate(program.devices):
        held = {stage: 0.0 for stage in program.stages_on(number)}
        moments = [dict(held)]
        for instruction in device.step:
            if not isinstance(instruction, Run):
                continue
            exec = program.execs[instruction.exec]
            stage = program.stages[exec.stage]
            part = program.relative_length(instruction.microbatch) / program.n_slices
            if program.saves(exec):
                held[stage.index] += part
                moments.append(dict(held))
            elif exec.kind in ("Backward", "BackwardWeight"):
                held[stage.index] -= part
            elif exec.kind == "BackwardInput" and "W" not in stage.kinds:
                held[stage.index] -= part
        found.append(_fullest(moments))
    return found


def _fullest(moments: list[dict[int, float]]) -> list[dict[int, float]]:
    """Those that no other one holds at least as much as, of every stage."""
    distinct = list({tuple(one.values()): one for one in moments}.values())
    return [one for one in distinct if not any(other is not one and _covers(other, one) for other in distinct)]


def _covers(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    return all(one[stage] >= other[stage] for stage in other)
