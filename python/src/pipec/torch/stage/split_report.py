"""How much of a stage's backward a schedule with `B` and `W` can put off."""

from __future__ import annotations

from dataclasses import dataclass

from .split_backward import Split

_FULL = 2.0
"""What a whole backward costs, in units of a forward, where nothing else is said."""


@dataclass(frozen=True)
class SplitReport:
    """What the halves of one stage's backward did in the last step."""

    stage: int
    later: float
    """The part of the weights, by numbers, whose gradients `W` computes; `B` computes the others."""
    opaque: tuple[str, ...]
    """What makes it so: nodes of the graph that compute all of their gradients whenever they run."""
    seconds: tuple[float, float] | None
    """How long `B` and `W` took for a microbatch, on average; on CPUs only, where tasks end when they return."""

    @property
    def share(self) -> float | None:
        """The part of the backward that `W` takes, by time; a half is what schedules are made for."""
        if self.seconds is None or sum(self.seconds) == 0:
            return None
        return self.seconds[1] / sum(self.seconds)

    @property
    def cost(self) -> str | None:
        """The same as costs for the compiler, with which `pipec.check` tells what a schedule is worth."""
        if self.share is None:
            return None
        later = round(_FULL * self.share, 2)
        return f"B[{self.stage}] = {_FULL - later:.2f}, W[{self.stage}] = {later:.2f}"

    def __str__(self) -> str:
        head = f"stage {self.stage}: gradients of {self.later:.0%} of the weights wait for `W`"
        if self.opaque:
            head += f", the others are computed in `B` (because of {', '.join(self.opaque)})"
        if self.seconds is None or self.share is None:
            return head
        first, second = self.seconds
        return f"{head}; `B` takes {1e3 * first:.3g} ms and `W` {1e3 * second:.3g} ms, {self.share:.0%} of both"


def split_report(stage: int, splits: list[Split], seconds: list[tuple[float, float]] | None) -> SplitReport:
    """Makes the report of a stage from the graphs that were split, and what its halves took."""
    later, whole = sum(one.n_later for one in splits), sum(one.n_whole for one in splits)
    opaque = tuple(dict.fromkeys(name for one in splits for name in one.opaque))
    mean = None
    if seconds:
        mean = (sum(one for one, _ in seconds) / len(seconds), sum(other for _, other in seconds) / len(seconds))
    return SplitReport(stage, later / (later + whole) if later + whole else 1.0, opaque, mean)
