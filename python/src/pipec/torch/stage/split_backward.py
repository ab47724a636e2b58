"""The two halves of a backward pass: gradients of the inputs first, those of the weights later.

The autograd graph of a stage has a path from its outputs to its inputs. Along it some nodes also lead to weights: the
*junctions*. The first half computes the gradients of the inputs, and captures what arrives at each junction. The second
half starts there, and computes nothing but the gradients of weights. Junctions that lead to a common weight form a
group, and are run together.

A node that computes all of its gradients whenever it runs (a custom function, a compiled graph, a block that is
checkpointed) would do so in both halves. The first half then computes the gradients of such a group's weights as well,
and the second only adds them.

Which nodes are junctions is found once for each form of the graph, and known again by the names and edges of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from . import engine
from .engine import Root
from .opaque import is_compiled, why_whole, without_donation

Gradients = Sequence[Tensor | None]

_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True)
class _Group:
    """Junctions that share weights: their edges, the position of each edge among what was captured, and the weights,
    all by number of node.
    """

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    captured: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True)
class _Plan:
    """How a graph is split: the edges that the first half captures, the roots that do not lead to inputs, and groups.

    `whole` are the weights whose gradients the first half computes, `opaque` the nodes that are why.
    """

    edges: tuple[tuple[int, int], ...]
    side_roots: tuple[int, ...]
    groups: tuple[_Group, ...]
    whole: tuple[int, ...]
    opaque: tuple[str, ...]
    n_later: int
    n_whole: int
    is_compiled: bool


@dataclass(frozen=True)
class _Ready:
    """A group with the nodes of one graph, and what arrived there; at a root that is only what comes from outside."""

    nodes: tuple[Node, ...]
    junctions: frozenset[Node]
    edges: tuple[GradientEdge, ...]
    gradients: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]


Kept = list[tuple[Node, Tensor]]
"""Gradients of weights that the first half has computed, with the nodes that add them."""


class Deferred:
    """What the second half has yet to do for one microbatch."""

    __slots__ = ("_groups", "_is_compiled", "_kept")

    def __init__(self, groups: Sequence[_Ready], kept: Kept, is_compiled: bool) -> None:
        self._groups = groups
        self._kept = kept
        self._is_compiled = is_compiled

    def run(self) -> None:
        """Adds the gradients of the weights to their `grad`; once."""
        groups, self._groups = self._groups, ()
        for group in groups:
            shares = len(group.nodes) > 1
            hooks = [node.register_prehook(hook) for node, hook in _clamps(group)] if shares else []
            try:
                with without_donation(shares and self._is_compiled):
                    engine.backward(group.edges, group.gradients, group.weights, keeps_graph=shares)
            finally:
                for hook in hooks:
                    hook.remove()
        if self._kept:
            _add(self._kept)
            self._kept = []


def _add(kept: Kept) -> None:
    """Adds gradients to those of weights. A hook of a weight has seen its gradient already, when that was computed."""
    plain = [(leaf, gradient) for leaf, gradient in kept if not _variable(leaf)._backward_hooks]
    for leaf, gradient in kept:
        weight = _variable(leaf)
        if weight._backward_hooks:
            weight.grad = gradient.clone() if weight.grad is None else weight.grad + gradient
    if plain:
        edges = [GradientEdge(leaf, 0) for leaf, _ in plain]
        engine.backward(edges, [gradient for _, gradient in plain])


@dataclass(frozen=True)
class Split:
    """How the backward of one graph is split: the numbers of weights by half, and what makes the first half compute
    theirs.
    """

    n_later: int
    n_whole: int
    opaque: tuple[str, ...]


def _clamps(group: _Ready) -> list[tuple[Node, Callable[..., Any]]]:
    """Hooks that keep what flows from one junction to another from being counted twice. Roots have none: what flows
    there from other starts is yet to be added.
    """
    arrived: dict[Node, dict[int, Tensor]] = {node: {} for node in group.junctions}
    for edge, gradient in zip(group.edges, group.gradients):
        if edge.node in group.junctions:
            arrived[edge.node][edge.output_nr] = gradient

    def clamp(captured: dict[int, Tensor]) -> Callable[..., Any]:
        return lambda flowing: tuple(captured.get(number, one) for number, one in enumerate(flowing))

    return [(node, clamp(captured)) for node, captured in arrived.items()]


class Splitter:
    """Splits the backward passes of one stage; it remembers the forms of graphs that it has seen."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def input_half(
        self, roots: Sequence[Root], gradients: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor | None], Deferred]:
        """Computes the gradients of the inputs.

        Args:
            roots: Outputs of the stage, or their edges; each needs a gradient.
            gradients: Theirs.
            inputs: Leaves that need gradients, of which the outputs were computed.

        Returns:
            The gradient of each input, `None` where no output depends on it, and what is left to do for the weights.
        """
        if not roots:
            return [None] * len(inputs), Deferred((), [], False)
        tops = [one if isinstance(one, GradientEdge) else engine.edge_of(one) for one in roots]
        graph = _Graph(tops, inputs)
        plan = self._plans.get(graph.form)
        if plan is None:
            plan = self._plans[graph.form] = graph.plan()
        edges = [GradientEdge(graph.nodes[node], number) for node, number in plan.edges]
        weights = [_variable(graph.nodes[node]) for node in plan.whole]
        wanted: list[Root] = [*inputs, *edges, *weights]
        found: Sequence[Tensor | None] = ()
        if wanted:
            keeps = bool(plan.groups)
            with without_donation(keeps and plan.is_compiled):
                found = engine.gradients_of(wanted, tops, gradients, keeps)
        end = len(inputs) + len(edges)
        arrived = [*found[len(inputs) : end], *(gradients[root] for root in plan.side_roots)]
        edges += [tops[root] for root in plan.side_roots]
        pairs = zip((graph.nodes[node] for node in plan.whole), found[end:])
        kept = [(leaf, gradient) for leaf, gradient in pairs if gradient is not None]
        return list(found[: len(inputs)]), Deferred(graph.ready(plan, edges, arrived), kept, plan.is_compiled)

    @property
    def splits(self) -> list[Split]:
        """How the graphs were split that have been seen."""
        return [Split(one.n_later, one.n_whole, one.opaque) for one in self._plans.values()]


class _Graph:
    """The nodes behind some outputs, numbered in the order in which they are found from the outputs on."""

    def __init__(self, tops: Sequence[GradientEdge], inputs: Sequence[Tensor]) -> None:
        leaves = {id(one): position for position, one in enumerate(inputs)}
        numbers: dict[Node, int] = {}
        self.nodes: list[Node] = []
        self.children: list[tuple[tuple[int, int], ...]] = []
        self.tops = [self._number(numbers, top.node) for top in tops]
        self.top_edges = [(node, top.output_nr) for node, top in zip(self.tops, tops)]
        self.leaves: list[int | None] = []
        form: list[Any] = [tuple(self.top_edges)]
        for node in self.nodes:
            name = node.name()
            if name == _LEAF:
                variable = _variable(node)
                position = leaves.get(id(variable))
                self.leaves.append(-1 if position is None else position)
                self.children.append(())
                form.append(id(variable) if position is None else -1 - position)
                continue
            self.leaves.append(None)
            edges = tuple(
                (self._number(numbers, child), number) for child, number in node.next_functions if child is not None
            )
            self.children.append(edges)
            form.append((name, len(node.next_functions), edges))
        self.form = tuple(form)

    def _number(self, numbers: dict[Node, int], node: Node) -> int:
        number = numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def plan(self) -> _Plan:
        """Finds junctions and groups."""
        to_input, weights = self._reach()
        used: dict[int, set[int]] = {}
        for node, number in [*self.top_edges, *(edge for edges in self.children for edge in edges)]:
            used.setdefault(node, set()).add(number)
        starts: list[_Start] = []
        opaque: dict[int, str] = {}
        for node in range(len(self.nodes)):
            sides = [child for child, _ in self.children[node] if not to_input[child]]
            reached = frozenset().union(*(weights[child] for child in sides))
            if to_input[node] and reached:
                starts.append(_Start(node, tuple((node, number) for number in sorted(used[node])), None, reached))
                why = why_whole(self.nodes[node], (self.nodes[one] for one in self._below(sides)))
                if why is not None:
                    opaque[node] = why
        for root, node in enumerate(self.tops):
            if not to_input[node] and weights[node]:
                starts.append(_Start(node, (), root, weights[node]))
        later: list[list[_Start]] = []
        whole: set[int] = set()
        for group in _grouped(starts):
            if any(start.node in opaque for start in group):
                whole.update(*(start.weights for start in group))
            else:
                later.append(group)
        n_later = {weight for group in later for start in group for weight in start.weights}
        return _Plan(
            *_numbered(later, self.top_edges),
            tuple(sorted(whole)),
            tuple(dict.fromkeys(opaque.values())),
            sum(_variable(self.nodes[weight]).numel() for weight in n_later),
            sum(_variable(self.nodes[weight]).numel() for weight in whole),
            any(is_compiled(node) for node in self.nodes),
        )

    def _below(self, nodes: Sequence[int]) -> set[int]:
        """These nodes and all behind them."""
        found: set[int] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack += [child for child, _ in self.children[node]]
        return found

    def _reach(self) -> tuple[list[bool], list[frozenset[int]]]:
        """By node: whether it leads to an input, and to which weights."""
        to_input = [False] * len(self.nodes)
        weights: list[frozenset[int]] = [frozenset()] * len(self.nodes)
        for node in self._children_first():
            leaf = self.leaves[node]
            if leaf is not None:
                to_input[node] = leaf >= 0
                weights[node] = frozenset() if leaf >= 0 else frozenset([node])
                continue
            below = [child for child, _ in self.children[node]]
            to_input[node] = any(to_input[child] for child in below)
            weights[node] = frozenset().union(*(weights[child] for child in below))
        return to_input, weights

    def _children_first(self) -> list[int]:
        order: list[int] = []
        state = [0] * len(self.nodes)
        stack = list(range(len(self.nodes)))
        while stack:
            node = stack[-1]
            if state[node] == 0:
                state[node] = 1
                stack += [child for child, _ in self.children[node] if state[child] == 0]
                continue
            stack.pop()
            if state[node] == 1:
                state[node] = 2
                order.append(node)
        return order

    def ready(self, plan: _Plan, edges: Sequence[GradientEdge], arrived: Gradients) -> list[_Ready]:
        """The groups of a plan with what arrived; those where nothing did have nothing to do."""
        groups = []
        for group in plan.groups:
            here = [(edges[position], arrived[position]) for position in group.captured]
            there = [(edge, gradient) for edge, gradient in here if gradient is not None]
            if there:
                groups.append(
                    _Ready(
                        tuple(self.nodes[node] for node in group.nodes),
                        frozenset(edges[position].node for position in group.captured if position < len(plan.edges)),
                        tuple(edge for edge, _ in there),
                        tuple(gradient for _, gradient in there),
                        tuple(_variable(self.nodes[node]) for node in group.weights),
                    )
                )
        return groups


def _variable(leaf: Node) -> Tensor:
    return cast("Tensor", cast("Any", leaf).variable)


@dataclass(frozen=True)
class _Start:
    """Where the second half may begin: a junction with the edges by which gradients arrive, or a root that does not
    lead to inputs.
    """

    node: int
    edges: tuple[tuple[int, int], ...]
    root: int | None
    weights: frozenset[int]


def _grouped(starts: Sequence[_Start]) -> list[list[_Start]]:
    """Groups of starts that share weights."""
    groups: list[tuple[list[_Start], set[int]]] = []
    for start in starts:
        members, weights = [start], set(start.weights)
        apart = []
        for group in groups:
            if group[1].isdisjoint(start.weights):
                apart.append(group)
            else:
                members, weights = group[0] + members, group[1] | weights
        groups = [*apart, (members, weights)]
    return [members for members, _ in groups]


def _numbered(
    groups: Sequence[Sequence[_Start]], tops: Sequence[tuple[int, int]]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...], tuple[_Group, ...]]:
    """The edges to capture, the roots that do not lead to inputs, and the groups, with the positions of theirs among
    both.

    The large groups come first, because they run through nodes of others.
    """
    captured = [edge for group in groups for start in group for edge in start.edges]
    roots = [start.root for group in groups for start in group if start.root is not None]
    every = [*captured, *(tops[root] for root in roots)]
    positions = {edge: position for position, edge in enumerate(captured)}
    of_root = {root: len(captured) + position for position, root in enumerate(roots)}
    made = []
    for group in groups:
        here = [positions[edge] for start in group for edge in start.edges]
        here += [of_root[start.root] for start in group if start.root is not None]
        made.append(
            _Group(
                tuple(dict.fromkeys(start.node for start in group)),
                tuple(every[position] for position in here),
                tuple(here),
                tuple(sorted({weight for start in group for weight in start.weights})),
            )
        )
    ordered = sorted(made, key=lambda group: len(group.nodes) == 1)
    return tuple(captured), tuple(roots), tuple(ordered)
