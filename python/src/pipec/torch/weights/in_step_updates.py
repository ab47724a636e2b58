"""Which programs update weights inside a step, so that nobody else may."""

from __future__ import annotations

from ...instruction import Instruction
from ...instructions import CollStart, CopyStart, Fill, GatherStart, Run
from ...program import Program


def in_step_update(program: Program) -> str | None:
    """The first instruction that needs an optimizer inside the list of a step, as a text; without one, it can be called
    behind the step.
    """
    for number, device in enumerate(program.devices):
        fills = (one for one in device.setup if isinstance(one, Fill))
        state = {one.buffer for one in fills if program.values[one.value].kind in ("parameters", "optimizer_state")}
        for instruction in device.step:
            if _is_inside(program, instruction, state):
                return f"d{number} `{program.text(instruction)}`"
    return None


def _is_inside(program: Program, instruction: Instruction, state: set[int]) -> bool:
    if isinstance(instruction, Run):
        return program.n_steps > 1 and program.execs[instruction.exec].kind == "Update"
    if isinstance(instruction, CollStart):
        return instruction.collective != "all_reduce"
    if isinstance(instruction, CopyStart):
        return instruction.source in state or instruction.buffer in state
    return isinstance(instruction, GatherStart)
