"""The forward of a model as a graph: calls of whole modules, and the operators between them, as `torch.export` finds
them.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ...errors import StageError
from ..stage.structures import take_apart
from .opaque_calls import OPERATOR, Call, Unfit, exported, record

IGNORED = ("_guards_fn", "_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range")
"""Checks of the exporter, which stages do without."""


@dataclass(frozen=True)
class Traced:
    """The forward of a model on an example.

    `graph` has a placeholder for each argument, by its name, `call_module` for modules that stayed whole, operators,
    and an output node with all tensors that the model returns.
    """

    model: nn.Module
    graph: fx.Graph
    attributes: Mapping[str, Any]
    """What `get_attr` and `call_module` name."""
    result: Any
    """The structure of what the model returns around its tensors (a `TreeSpec`), `None` for one tensor."""
    output: Any
    """What the model returned for the example."""
    shapes: Mapping[str, torch.Size]
    """Of the arguments that are tensors."""


def flat_tensors(value: Any) -> tuple[Tensor, ...]:
    """All tensors in what a module returns."""
    return take_apart(value)[0]


def example_of(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One microbatch of inputs as arguments: a tensor, a tuple of arguments, or a dict of them by name."""
    if isinstance(example, dict):
        return (), example
    return (tuple(example), {}) if isinstance(example, (tuple, list)) else ((example,), {})


def trace(model: nn.Module, example: Any, leaves: Sequence[str], places: Sequence[str]) -> Traced:
    """Traces the forward.

    Args:
        model: The model, on any device.
        example: One microbatch of its inputs.
        leaves: Modules that stay whole.
        places: Those of them that have to.

    Raises:
        StageError: The model does not run on the example, or cannot be exported.
    """
    args, kwargs = _in_order(model, *example_of(example))
    with as_before(model), _without_cache(model):
        leaves, calls, output = _recorded(model, leaves, places, args, kwargs)
        with exported(model, leaves, calls), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = torch.export.export(model, args, kwargs, strict=False)
            except StageError:
                raise
            except Exception as error:
                raise StageError(
                    f"torch.export cannot trace what the forward of `{type(model).__name__}` does between its modules: "
                    f"{type(error).__name__}: {error}"
                ) from error
            module = program.module()
    return _converted(model, module, program.call_spec.out_spec, calls, args, kwargs, output)


@contextmanager
def as_before(model: nn.Module) -> Iterator[None]:
    """Inside, forwards draw the same random numbers each time; behind it, buffers and random numbers are as before."""
    devices = {one.device for one in model.parameters() if one.device.type == "cuda"}
    kept = {name: one.detach().clone() for name, one in model.named_buffers()}
    with torch.random.fork_rng(devices=sorted(one.index for one in devices)):
        torch.manual_seed(0)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, one in model.named_buffers():
                    if name in kept and one.shape == kept[name].shape:
                        one.copy_(kept[name])


@contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Inside, a model of Hugging Face keeps no keys and values for a text that goes on."""
    found = (getattr(module, "config", None) for module in model.modules())
    changed: dict[int, Any] = {id(one): one for one in found if getattr(one, "use_cache", False)}
    for one in changed.values():
        one.use_cache = False
    try:
        yield
    finally:
        for one in changed.values():
            one.use_cache = True


def _in_order(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name in the order of the signature, as the exporter has them.

    Raises:
        StageError: The forward has no such arguments.
    """
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise StageError(f"the example does not fit `{type(model).__name__}.forward`: {error}") from None
    order = [name for name in bound.arguments if name in kwargs]
    return args, {name: kwargs[name] for name in [*order, *(one for one in kwargs if one not in order)]}


def _recorded(
    model: nn.Module, leaves: Sequence[str], places: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[str], list[Call], Any]:
    """The calls on the example; modules that cannot be single calls, and need not, are left out."""
    kept = list(leaves)
    while True:
        torch.manual_seed(0)
        try:
            return kept, *record(model, kept, args, kwargs)
        except Unfit as unfit:
            name, why = unfit.args
            if name in places:
                raise StageError(
                    f"the model cannot be cut at `{name}`, which {why}: only tensors, numbers and texts go "
                    "from stage to stage"
                ) from None
            kept.remove(name)


def _names_of_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The arguments of the forward, by name."""
    signature = inspect.signature(model.forward)
    kinds = [one for one in signature.parameters.values() if one.kind.name.startswith("POSITIONAL")]
    names = [one.name for one in kinds[: len(args)]]
    names += [f"argument_{number}" for number in range(len(names), len(args))]
    return [*zip(names, args), *kwargs.items()]


def _converted(
    model: nn.Module,
    module: fx.GraphModule,
    result: Any,
    calls: Sequence[Call],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> Traced:
    graph = fx.Graph()
    attributes: dict[str, Any] = {}
    values: dict[fx.Node, Any] = {}
    given = _inputs(graph, _names_of_inputs(model, args, kwargs))
    flattened: dict[fx.Node, tuple[fx.Node, bool]] = {}
    known: dict[fx.Node, bool] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif any(one in str(node.target) for one in IGNORED):
            continue
        elif node.op == "call_function" and node.target is OPERATOR:
            call = calls[node.args[0]]
            flattened[node] = _call(
                graph, call, [values[one] for one in node.args[1]], lambda one: not _depends_on_input(one, known)
            )
            attributes[call.module] = model.get_submodule(call.module)
        elif node.op == "call_function" and node.args and node.args[0] in flattened:
            source, is_tensor = flattened[node.args[0]]
            values[node] = source if is_tensor else graph.call_function(node.target, (source, node.args[1]))
            values[node].meta["val"] = node.meta.get("val")
        elif node.op == "output":
            found = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
            graph.output(tuple(values[one] if isinstance(one, fx.Node) else one for one in found))
        else:
            values[node] = graph.node_copy(node, lambda one: values[one])
            if node.op in ("get_attr", "call_module"):
                attributes[str(node.target)] = _attribute(model, module, str(node.target))
    shapes = {name: one.shape for name, one in _names_of_inputs(model, args, kwargs) if isinstance(one, Tensor)}
    is_one_tensor = isinstance(output, Tensor)
    return Traced(model, graph, attributes, None if is_one_tensor else result, output, shapes)


def _inputs(graph: fx.Graph, named: Sequence[tuple[str, Any]]) -> Iterator[Any]:
    """Makes the placeholders; then one value for each leaf of the arguments, as the exporter counts them."""
    found: list[Any] = []
    made = []
    for name, value in named:
        leaves = pytree.tree_leaves(value)
        has_tensor = any(isinstance(one, Tensor) for one in leaves)
        node = graph.placeholder(name) if has_tensor else graph.placeholder(name, default_value=value)
        made.append((node, value, leaves))
    for node, value, leaves in made:
        if isinstance(value, Tensor):
            found.append(node)
            continue
        flat = (
            graph.call_function(pytree.tree_leaves, (node,)) if any(isinstance(one, Tensor) for one in leaves) else None
        )
        found += [
            graph.call_function(operator.getitem, (flat, number)) if isinstance(one, Tensor) else one
            for number, one in enumerate(leaves)
        ]
    return iter(found)


def _call(graph: fx.Graph, call: Call, tensors: Sequence[Any], is_fixed: Callable[[Any], bool]) -> tuple[fx.Node, bool]:
    """A call of a module: the node of its tensors, and whether that is the only one."""
    args, kwargs = call.of(tensors, is_fixed)
    try:
        node = graph.call_module(call.module, args, kwargs)
    except Exception as error:
        raise StageError(
            f"`{call.module}` gets more around its tensors than tuples, lists and dicts: {error}"
        ) from None
    node.meta["changed"] = [one for place, one in zip(call.places, tensors) if place in call.changed]
    if call.result is None and len(call.forms) == 1:
        return node, True
    return (node, False) if call.result is None else (graph.call_function(flat_tensors, (node,)), False)


def _depends_on_input(node: fx.Node, known: dict[fx.Node, bool]) -> bool:
    """Whether an argument of the forward has to do with a value; what is known is remembered."""
    stack = [node]
    while stack:
        one = stack[-1]
        unknown = [source for source in one.all_input_nodes if source not in known]
        if unknown and one not in known:
            stack += unknown
            continue
        known[one] = one.op == "placeholder" or any(known[source] for source in one.all_input_nodes)
        stack.pop()
    return known[node]


def _attribute(model: nn.Module, module: nn.Module, target: str) -> Any:
    """A weight or buffer of the model, or what the exporter has added."""
    for holder in (model, module):
        found: Any = holder
        for part in target.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    raise StageError(f"the exported graph reads `{target}`, which is neither a weight nor a buffer")
