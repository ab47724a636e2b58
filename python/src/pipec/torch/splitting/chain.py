"""A traced forward as a chain of layers: where it can be cut, and which values then go from one side to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from ...errors import StageError
from .trace import Traced, flat_tensors


@dataclass(frozen=True)
class Layer:
    """The nodes `begin..end` of a chain, and a name for them: the modules that they call."""

    name: str
    begin: int
    end: int


class Chain:
    """The nodes of a traced forward in their order. A cut at `p` is before the node `p`.

    What depends on no input and no weight (a causal mask, positions) is computed again by each stage that reads it;
    all other values that are read behind a cut cross it.
    """

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        all_nodes = list(traced.graph.nodes)
        self.inputs = [one for one in all_nodes if one.op == "placeholder"]
        self.output = all_nodes[-1]
        self.constants = self._find_constants(all_nodes)
        computing = ("call_function", "call_method", "call_module")
        self.nodes: list[fx.Node] = [one for one in all_nodes if one.op in computing and one not in self.constants]
        self._position = {node: number for number, node in enumerate(self.nodes)}
        self._position.update((one, -1) for one in self.inputs)
        self._position[self.output] = len(self.nodes)

    def crossing(self, cut: int) -> list[fx.Node]:
        """The values that are made before a cut and read behind it, in the order in which they are made."""
        return [one for one in (*self.inputs, *self.nodes[:cut]) if self._position[one] < cut <= self._last_use[one]]

    def changed_in(self, begin: int, end: int) -> set[fx.Node]:
        """The values that some nodes change in place, with what these are views of."""
        return {changed for node in self.nodes[begin:end] for changed in _changed_by(node)}

    def at_modules(self, names: Sequence[str], closes: bool) -> list[int]:
        """The cuts before the first calls of some modules, and with `closes` also behind the last one.

        Raises:
            StageError: The forward does not call one of them, or calls it several times.
        """
        cuts = []
        for name in names:
            calls = [number for number, node in enumerate(self.nodes) if _is_call_in(node, name)]
            if not calls:
                raise StageError(f"the forward does not call `{name}` on the example, so it cannot begin a stage")
            if self.nodes[calls[0]].target == name and len(calls) > 1:
                raise StageError(f"the forward calls `{name}` {len(calls)} times, so it cannot begin a stage")
            cuts.append(calls[0])
        if closes:
            end = max(cuts) + 1
            while end < len(self.nodes) and _unpacks(self.nodes[end]):
                end += 1
            cuts.append(end)
        return sorted({one for one in cuts if 0 < one < len(self.nodes)})

    def at_single_values(self) -> list[int]:
        """The cuts that one computed value crosses: between them the forward is a chain."""
        return [cut for cut in range(1, len(self.nodes)) if not _unpacks(self.nodes[cut]) and self._is_single(cut)]

    def is_constant(self, module: str) -> bool:
        """Whether all that a module computes is the same for all inputs."""
        return not any(path == module or path.startswith(f"{module}.") for node in self.nodes for path in _paths(node))

    def layers(self, cuts: Sequence[int]) -> list[Layer]:
        """The layers between some cuts; those that call no module belong to the next one, or else to the last."""
        found: list[Layer] = []
        begin = 0
        for end in [*cuts, len(self.nodes)]:
            if name := self._name(begin, end):
                found.append(Layer(name, begin, end))
                begin = end
        if not found:
            return [Layer(type(self.traced.model).__name__, 0, len(self.nodes))]
        found[-1] = Layer(found[-1].name, found[-1].begin, len(self.nodes))
        return found

    def describe(self, value: fx.Node) -> str:
        """A value, as an error names it."""
        if value.op == "placeholder":
            return f"input `{value.target}`"
        node = value
        while _unpacks(node) and isinstance(node.args[0], fx.Node):
            node = node.args[0]
        paths = _paths(node)
        where = node.target if node.op == "call_module" else (paths[-1] if paths else "")
        return f"`{node.name}`" + (f" of `{where}`" if where and where != node.name else "")

    @cached_property
    def _last_use(self) -> dict[fx.Node, int]:
        uses = {one: [self._position[user] for user in one.users if user in self._position] for one in self._position}
        return {one: max(positions, default=-1) for one, positions in uses.items()}

    def _is_single(self, cut: int) -> bool:
        made = [one for one in self.crossing(cut) if one.op != "placeholder"]
        return len(made) == 1 and not _has_parts(made[0])

    def _name(self, begin: int, end: int) -> str:
        """The modules that some nodes call, or else use weights of."""
        called = [str(one.target) for one in self.nodes[begin:end] if one.op == "call_module"]
        used = [str(arg.target) for one in self.nodes[begin:end] for arg in one.all_input_nodes if arg.op == "get_attr"]
        names = list(dict.fromkeys(called or used))
        return span(names) if names else ""

    def _find_constants(self, nodes: Sequence[fx.Node]) -> set[fx.Node]:
        """The nodes that depend on no input and no weight and draw nothing, but for what is changed in place."""
        excluded: set[fx.Node] = set()
        while True:
            found: set[fx.Node] = set()
            for node in nodes:
                if node.op == "get_attr":
                    if self._is_fixed(str(node.target)):
                        found.add(node)
                elif node.op == "call_function" and node not in excluded and _is_pure(node):
                    if all(one in found for one in node.all_input_nodes):
                        found.add(node)
            changed = {one for node in nodes for one in _changed_by(node) if one in found and one.op != "get_attr"}
            if not changed:
                return {one for one in found if one.op != "get_attr"}
            excluded |= changed

    def _is_fixed(self, name: str) -> bool:
        """Whether an attribute is no weight and no buffer that is saved."""
        value = self.traced.attributes[name]
        return not isinstance(value, torch.nn.Parameter) and name not in self._saved

    @cached_property
    def _saved(self) -> set[str]:
        return set(self.traced.model.state_dict())


def span(names: Sequence[str]) -> str:
    """Several layers as one: the first and the last, or both of two."""
    if len(names) == 2 and not any(" .. " in one or ", " in one for one in names):
        return ", ".join(names)
    first, last = names[0].split(" .. ")[0].split(", ")[0], names[-1].split(" .. ")[-1].split(", ")[-1]
    return first if first == last else f"{first} .. {last}"


def _paths(node: fx.Node) -> list[str]:
    """The modules in whose forward an operator is, the innermost last."""
    return [str(path) for path, _ in node.meta.get("nn_module_stack", {}).values()]


def _is_call_in(node: fx.Node, name: str) -> bool:
    target = str(node.target)
    return node.op == "call_module" and (target == name or target.startswith(f"{name}."))


def _unpacks(node: fx.Node) -> bool:
    """Whether a node only takes a tensor out of what a module has returned."""
    return node.op == "call_function" and (
        node.target is flat_tensors or getattr(node.target, "__name__", "") == "getitem"
    )


def _has_parts(node: fx.Node) -> bool:
    """Whether a value is several tensors."""
    return any(_unpacks(user) for user in node.users)


def _is_pure(node: fx.Node) -> bool:
    """Whether an operator changes nothing and draws no random numbers."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
    return isinstance(target, torch._ops.HigherOrderOperator) or _unpacks(node)


def _changed_by(node: fx.Node) -> Iterator[fx.Node]:
    """The values that a node changes in place, with what they are views of."""
    for value in node.meta.get("changed", ()):
        yield from _with_bases(value)
    target: Any = node.target
    if not (isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable):
        return
    for argument, value in zip(target._schema.arguments, node.args):
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, fx.Node):
            yield from _with_bases(value)


def _with_bases(value: fx.Node) -> Iterator[fx.Node]:
    while True:
        yield value
        target: Any = value.target
        base = value.args[0] if value.args else None
        if not isinstance(target, torch._ops.OpOverload) or not isinstance(base, fx.Node):
            return
        if not any(one.alias_info is not None for one in target._schema.returns):
            return
        value = base
