"""Where a model is cut: so that the slowest device of a program is as quick as possible, and each has enough memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import StageError
from ...program import Program
from .balance import Balanced, Loads, Room, balance
from .chain import Chain, Layer
from .costs import Profile, size_text
from .measure import forward_flops
from .occupancy import held_at_once, runs_of
from .stage_modules import stage_module
from .trace import as_before


def balanced(
    program: Program,
    found: Sequence[Layer],
    costs: Profile | None,
    flops: Sequence[float] | None,
    memory: float | None,
    optimizer_states: float,
) -> tuple[int, ...]:
    """The cut with the quickest slowest device."""
    rows = [_row(program.stages[stage].kinds, costs, flops) for stage in range(program.n_stages)]
    loads = Loads(rows, runs_of(program))
    if memory is None:
        best = balance(loads)
        assert best is not None, "without a limit, every cut will do"
        return best.counts
    if costs is None:
        raise StageError("`memory=` needs `costs=`, which has the bytes of the layers: profile(model, example)")
    room = Room(
        memory,
        held_at_once(program),
        [float(one.activation_bytes) for one in costs.layers],
        [one.parameter_bytes * (2 + optimizer_states) for one in costs.layers],
    )
    best = balance(loads, room)
    if best is None:
        raise _too_large(program, loads, room)
    return best.counts


def _too_large(program: Program, loads: Loads, room: Room) -> StageError:
    best: Balanced | None = balance(loads)
    assert best is not None, "without a limit, every cut will do"
    needed = room.needed(best.counts)
    device = needed.index(max(needed))
    held = max(sum(one.values()) for one in room.held[device])
    return StageError(
        f"no cut into {program.n_stages} stages was found that fits into {size_text(room.limit)} on each "
        "device: with balanced times, "
        f"d{device} needs {size_text(needed[device])}, and holds {held:g} microbatches at once. Give more "
        "memory or devices, recompute, "
        "or take a schedule that holds fewer microbatches"
    )


def _row(kinds: frozenset[str], costs: Profile | None, flops: Sequence[float] | None) -> list[float]:
    """What each layer takes in a stage that runs these kinds of tasks."""
    if costs is None:
        assert flops is not None, "one of both is given"
        return list(flops)
    return [sum(one.of(kind) for kind in sorted(kinds - {"U"})) for one in costs.layers]


def forward_costs(chain: Chain, layers: Sequence[Layer], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[float]:
    """The operations of each layer, and something for those without."""
    modules = [stage_module([(chain, one.begin, one.end)]) for one in layers]
    with as_before(chain.traced.model):
        found, _ = forward_flops(modules, args, kwargs)
    least = max(sum(found) / 1000, 1.0)
    return [max(float(one), least) for one in found]
