"""`split` cuts a model into the stages of a program."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import StageError
from ...program import Program
from .chain import Chain, Layer, span
from .costs import Profile, size_text, time_text
from .cut import balanced, forward_costs
from .layers import layers_of, too_few
from .materialise import example_for, is_on_meta, materialise, on_device_of
from .stage_modules import shared_weights, stage_module, unused_weights
from .trace import as_before, example_of


@dataclass(frozen=True)
class Split:
    """A model cut into the stages of a program."""

    program: Program
    stages: tuple[nn.Module, ...]
    """The modules of all stages; their weights are those of the model, under its names."""
    layers: tuple[tuple[str, ...], ...]
    """The names of the layers of each stage."""
    tied: Mapping[str, str]
    """Weights that several stages have, for `Runner(.., tied=)`."""
    unused: tuple[str, ...]
    """Weights that no stage has, because the forward does not read them."""
    profile: Profile | None
    """The costs of the stages, if those of layers were given."""
    device: torch.device
    """Where stages of a model on `meta` will be."""

    def on(self, rank: int) -> dict[int, nn.Module]:
        """The stages of a rank, for `Runner`."""
        return {stage: self.stages[stage] for stage in self.program.stages_on(rank)}

    def materialise(
        self,
        rank: int,
        *,
        state: Mapping[str, Any] | None = None,
        init: Callable[[nn.Module], Any] | None = None,
    ) -> dict[int, nn.Module]:
        """The stages of a rank, for `Runner`, where the model is on `meta`: they get memory on `device`, and the stages
        of other ranks none.

        Args:
            rank: The rank.
            state: The weights and saved buffers by their names in the model, such as
                `torch.load("model.pt", mmap=True)`; it may have more.
            init: Called before that with the module of each stage, to fill weights, and buffers that are in no state.
                Without both, weights have any numbers, until `runner.load_state_dict`.

        Raises:
            StageError: Something is missing in the state, or there are buffers that are in none, and no `init`.
        """
        stages = self.on(rank)
        materialise(stages, self.device, state, init)
        return stages

    @property
    def names(self) -> dict[int, str]:
        """For `Runner(.., names=)`: the stages' weights have the names of the model already."""
        return dict.fromkeys(range(len(self.stages)), "")

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(
                f"{cell:>{width}}" if column != 2 else f"{cell:<{width}}"
                for column, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        )

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(one)}</td>" for one in row) + "</tr>" for row in rows)
        return (
            f"<table><thead><tr>{''.join(f'<th>{one}</th>' for one in head)}</tr></thead><tbody>{lines}</tbody></table>"
        )

    def _rows(self) -> list[list[str]]:
        rows = [["stage", "device", "layers", "weights", *(["F", "BW"] if self.profile else [])]]
        for number, (module, names) in enumerate(zip(self.stages, self.layers)):
            weights = sum(one.numel() * one.element_size() for one in module.parameters())
            devices = ",".join(f"d{one}" for one in self.program.stages[number].devices)
            row = [
                f"s{number}",
                devices,
                span(names),
                size_text(weights),
            ]
            if self.profile:
                cost = self.profile.layers[number]
                row += [time_text(cost.forward), time_text(cost.backward)]
            rows.append(row)
        return rows


def split(
    model: nn.Module,
    program: Program,
    example: Any,
    *,
    at: Sequence[str] | None = None,
    by: str | None = None,
    layers: Sequence[int] | None = None,
    costs: Profile | None = None,
    memory: float | None = None,
    optimizer_states: float = 2.0,
    also: Sequence[Any] = (),
    device: torch.device | str = "cpu",
) -> Split:
    """Cuts a model into the stages that a program has, which together compute what the model computes.

    The forward may be any that `torch.export` can trace between its modules; the modules themselves stay as they are,
    and are shared with the model. What the code behind a cut reads crosses it: also skips, masks, and inputs. The
    stages are for microbatches of the shapes of the examples, and for the mode (`train` or `eval`) that the code
    between modules has seen::

        program = pipec.compile("std:v_half", devices=4, microbatches=8)
        cut = pipec.torch.split(model, program, ids[:2])
        runner = pipec.Runner(program, cut.on(rank), loss_fn, tied=cut.tied, names=cut.names)

    Args:
        model: The model, which is on any device; all ranks have the same. On `meta` it costs no memory, and
            `cut.materialise(rank, ..)` then gives each rank what its stages need.
        program: Says how many stages there are, on which devices.
        example: One microbatch of inputs: a tensor, a tuple of arguments, or a dict of them by name.
        at: Names of modules before which the model may be cut, such as `["layers.4", "layers.8"]`. Without it, these
            are the blocks of its lists, or else of the traced forward every place that
            one value crosses.
        by: `"blocks"` or `"export"`, to have the one or the other of these.
        layers: How many layers each stage has, where layers are what is between the places to cut.
        costs: What the layers cost, from `profile` with the same `at` and `by`; the same on all ranks. Without it they
            count by the operations of their forward.
        memory: The bytes that each device has for weights, gradients, the optimizer's state and activations; needs
            `costs`.
        optimizer_states: How many numbers the optimizer keeps for each weight: 2 with Adam.
        also: More examples, of other shapes that stages will get, such as those of an evaluation.
        device: Where the stages of a model on `meta` will be, when they are materialised.

    Raises:
        StageError: The model does not run on the example or cannot be traced, a name is that of no module, there are
            fewer layers than stages, no cut fits into the memory, the stages compute something else, or those of the
            program are no chain.
    """
    _require_chain(program)
    example, also = example_for(model, example), [example_for(model, one) for one in also]
    with on_device_of(model):
        chain, found = layers_of(model, example, at, by)
        _require_enough(program, chain, found, at, by)
        counts = None if layers is None else _given(layers, program.n_stages, found)
        if costs is not None:
            _require_costs_of(costs, found)
        if counts is None:
            flops = None if costs is not None else forward_costs(chain, found, *example_of(example))
            counts = balanced(program, found, costs, flops, memory, optimizer_states)
        traced = [(chain, found), *((_layers_again(model, one, at, by, found)) for one in also)]
        if is_on_meta(model):
            for of_shape, _ in traced:
                _require_no_numbers(of_shape)
        ends = list(accumulate(counts))
        parts = [found[end - count : end] for count, end in zip(counts, ends)]
        stages = tuple(
            stage_module(
                [(of_shape, ours[end - count].begin, ours[end - 1].end) for of_shape, ours in traced],
                torch.device(device) if is_on_meta(model) else None,
            )
            for count, end in zip(counts, ends)
        )
        if not is_on_meta(model):
            for (of_shape, _), one in zip(traced, [example, *also]):
                _require_equal(of_shape, stages, *example_of(one))
    for module in stages:  # Ranks compare it: with different cuts they would learn another model, without an error.
        vars(module)["cut_of_model"] = f"before {', '.join(f'`{part[0].name}`' for part in parts[1:])}"
    return Split(
        program,
        stages,
        tuple(tuple(one.name for one in part) for part in parts),
        shared_weights(stages),
        unused_weights(model, stages),
        None if costs is None else costs.merged(counts),
        torch.device(device),
    )


def _require_enough(
    program: Program, chain: Chain, found: Sequence[Layer], at: Sequence[str] | None, by: str | None
) -> None:
    if len(found) < program.n_stages:
        raise StageError(
            f"`{program.name}` has {program.n_stages} stages, but the model can be cut into {len(found)} layers: "
            f"{', '.join(f'`{one.name}`' for one in found)}. {too_few(chain, found, at, by)}"
        )


def _layers_again(
    model: nn.Module, example: Any, at: Sequence[str] | None, by: str | None, layers: Sequence[Layer]
) -> tuple[Chain, list[Layer]]:
    """The traced forward and its layers for another example."""
    chain, found = layers_of(model, example, at, by)
    before, now = [one.name for one in layers], [one.name for one in found]
    if before != now:
        raise StageError(
            f"for one of `also=` the model has other layers, {span(now)} ({len(now)}), than for the example, "
            f"{span(before)} ({len(before)})"
        )
    return chain, found


def _require_no_numbers(chain: Chain) -> None:
    """Checks that the forward of a model on `meta` makes no tensors of numbers, which would be lost there."""
    model = chain.traced.model
    own = {id(one) for one in (*model.parameters(), *model.buffers())}
    made = [
        name
        for name, one in chain.traced.attributes.items()
        if isinstance(one, Tensor) and id(one) not in own and any(_reads(node, name) for node in chain.nodes)
    ]
    if made:
        raise StageError(
            f"the forward of `{type(model).__name__}` makes a tensor of numbers between its modules (`{made[0]}`), "
            "which have no place on the device `meta`: make it a buffer, or split the model on another device"
        )


def _reads(node: Any, name: str) -> bool:
    return any(one.op == "get_attr" and one.target == name for one in node.all_input_nodes)


def _require_chain(program: Program) -> None:
    """Checks that each stage of a program reads the one before it, and whole microbatches."""
    if program.n_slices > 1:
        raise StageError(
            f"`{program.name}` cuts microbatches along their sequence, and a model does not say what its "
            "layers carry from slice to "
            "slice: write its stages by hand"
        )
    for stage in program.stages[1:]:
        read = [program.values[one.value].stage for one in stage.reads]
        if read != [stage.index - 1]:
            of = ", ".join(f"s{one}" for one in read) or "no other stage"
            raise StageError(
                f"in `{program.name}` s{stage.index} reads {of}: `split` makes chains, where each stage reads "
                "the one before it"
            )


def _given(layers: Sequence[int], n_stages: int, found: Sequence[Layer]) -> tuple[int, ...]:
    counts = tuple(layers)
    if len(counts) != n_stages or sum(counts) != len(found) or min(counts) < 1:
        raise StageError(
            f"`layers=` is {list(counts)}: expected {n_stages} numbers from 1 on, whose sum is the number of "
            f"layers, {len(found)}: "
            f"{', '.join(f'`{one.name}`' for one in found)}"
        )
    return counts


def _require_costs_of(costs: Profile, found: Sequence[Layer]) -> None:
    measured, here = [one.name for one in costs.layers], [one.name for one in found]
    if measured != here:
        raise StageError(
            f"`costs=` are of {len(measured)} layers, {measured[0]} to {measured[-1]}, but here there are "
            f"{len(here)}, {here[0]} to {here[-1]}: "
            "call `profile` with the same `at=` and `by=`"
        )


def _require_equal(chain: Chain, stages: Sequence[nn.Module], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Runs the stages on the example, and compares.

    Raises:
        StageError: They return something else than the model.
    """
    model = chain.traced.model
    with as_before(model), torch.no_grad():
        for module in stages:
            outputs = module(*args, **kwargs)
            args, kwargs = (outputs if isinstance(outputs, tuple) else (outputs,)), {}
    expected, got = pytree.tree_leaves(chain.traced.output), pytree.tree_leaves(outputs)
    for one, other in zip(expected, got):
        if isinstance(one, Tensor) and not _is_close(one, other):
            difference = (one.double() - other.double()).abs().max().item()
            raise StageError(
                f"on the example the stages return other numbers than the model, by up to {difference:.3g}: "
                "the forward of "
                f"`{type(model).__name__}` depends on more than its inputs and weights"
            )


def _is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), rtol=1e-3, atol=1e-4, equal_nan=True
    )
