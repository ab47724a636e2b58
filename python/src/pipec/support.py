"""What can run: programs that ask for more than modules over torch.distributed can do are refused, with the reason."""

from __future__ import annotations

from .errors import UnsupportedError
from .instructions import CollStart, CopyStart, GatherStart, Instruction, Run
from .program import Program


def require_supported(program: Program) -> None:
    """Accepts a program whose every instruction a `Runner` can carry out.

    Raises:
        UnsupportedError: It cannot; the text has each reason once, with the first instruction that shows it.
    """
    reasons: list[str] = []
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for number, device in enumerate(program.devices):
        for instruction in device.step:
            reason = _reason(instruction)
            if reason is not None:
                found.setdefault(reason, f"d{number} `{program.text(instruction)}`")
                counts[reason] = counts.get(reason, 0) + 1
    for reason, where in found.items():
        others = f" (and {counts[reason] - 1:,} more)" if counts[reason] > 1 else ""
        reasons.append(f"{where}{others}: {reason}")
    if reasons:
        raise UnsupportedError(
            "\n".join([f"`{program.name}` cannot run with modules:", *(f"- {one}" for one in reasons)])
        )


def _reason(instruction: Instruction) -> str | None:
    if isinstance(instruction, CopyStart):
        return (
            "the optimizer and autograd own the memory of a module, so nothing is offloaded; compile without `offload`"
        )
    return None


def updates_inside(program: Program) -> str | None:
    """The first instruction that needs an optimizer inside the list of a step, as a text; without one, it can be called behind the step."""
    for number, device in enumerate(program.devices):
        for instruction in device.step:
            shares = isinstance(instruction, CollStart) and instruction.collective != "all_reduce"
            updates = isinstance(instruction, Run) and program.execs[instruction.exec].kind == "Update"
            if shares or isinstance(instruction, (CopyStart, GatherStart)) or (updates and program.n_steps > 1):
                return f"d{number} `{program.text(instruction)}`"
    return None
