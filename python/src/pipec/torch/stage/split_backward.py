"""The two halves of a backward pass: gradients of the inputs first, those of the weights later.

The autograd graph of a stage has a path from its outputs to its inputs. Along it some nodes also lead to weights: the *junctions*. The first
half computes the gradients of the inputs, and captures what arrives at each junction. The second half starts there, and computes nothing but
the gradients of weights. Junctions that lead to a common weight form a group, and are run together.

Which nodes are junctions is found once for each form of the graph, and known again by the names and edges of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

Root = Tensor | GradientEdge
Gradients = Sequence[Tensor | None]

_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True)
class _Group:
    """Junctions that share weights: their edges, the position of each edge among what was captured, and the weights, all by number of node."""

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    captured: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True)
class _Plan:
    """How a graph is split: the edges that the first half captures, the roots that do not lead to inputs, and groups."""

    edges: tuple[tuple[int, int], ...]
    side_roots: tuple[int, ...]
    groups: tuple[_Group, ...]


@dataclass(frozen=True)
class _Ready:
    """A group with the nodes of one graph, and what arrived there."""

    nodes: tuple[Node, ...]
    edges: tuple[GradientEdge, ...]
    gradients: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]


class Deferred:
    """What the second half has yet to do for one microbatch."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Sequence[_Ready]) -> None:
        self._groups = groups

    def run(self) -> None:
        """Adds the gradients of the weights to their `grad`; once."""
        groups, self._groups = self._groups, ()
        for group in groups:
            shares = len(group.nodes) > 1
            hooks = [node.register_prehook(hook) for node, hook in _clamps(group)] if shares else []
            try:
                torch.autograd.backward(
                    cast("Sequence[Tensor]", group.edges), group.gradients, retain_graph=shares, inputs=group.weights
                )
            finally:
                for hook in hooks:
                    hook.remove()


def _clamps(group: _Ready) -> list[tuple[Node, Callable[..., Any]]]:
    """Hooks that keep what flows from one junction to another from being counted twice."""
    arrived: dict[Node, dict[int, Tensor]] = {node: {} for node in group.nodes}
    for edge, gradient in zip(group.edges, group.gradients):
        arrived[edge.node][edge.output_nr] = gradient

    def clamp(captured: dict[int, Tensor]) -> Callable[..., Any]:
        return lambda flowing: tuple(captured.get(number, one) for number, one in enumerate(flowing))

    return [(node, clamp(captured)) for node, captured in arrived.items()]


class Splitter:
    """Splits the backward passes of one stage; it remembers the forms of graphs that it has seen."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def input_half(
        self, roots: Sequence[Root], gradients: Gradients, inputs: Sequence[Tensor]
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
            return [None] * len(inputs), Deferred(())
        tops = [one if isinstance(one, GradientEdge) else torch.autograd.graph.get_gradient_edge(one) for one in roots]
        graph = _Graph(tops, inputs)
        plan = self._plans.get(graph.form)
        if plan is None:
            plan = self._plans[graph.form] = graph.plan()
        edges = [GradientEdge(graph.nodes[node], number) for node, number in plan.edges]
        wanted = [*inputs, *edges]
        found: Sequence[Tensor | None] = ()
        if wanted:
            found = torch.autograd.grad(
                cast("Sequence[Tensor]", tops), cast("Sequence[Tensor]", wanted), gradients, True, allow_unused=True
            )
        arrived = [*found[len(inputs) :], *(gradients[root] for root in plan.side_roots)]
        edges += [tops[root] for root in plan.side_roots]
        return list(found[: len(inputs)]), Deferred(graph.ready(plan, edges, arrived))


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
        edges: list[tuple[int, int]] = []
        starts: list[tuple[int, tuple[int, ...], frozenset[int]]] = []
        for node in range(len(self.nodes)):
            sides = [child for child, _ in self.children[node] if not to_input[child]]
            reached = frozenset().union(*(weights[child] for child in sides))
            if to_input[node] and reached:
                first = len(edges)
                edges += [(node, number) for number in sorted(used[node])]
                starts.append((node, tuple(range(first, len(edges))), reached))
        side_roots = tuple(root for root, node in enumerate(self.tops) if not to_input[node] and weights[node])
        for position, root in enumerate(side_roots):
            starts.append((self.tops[root], (len(edges) + position,), weights[self.tops[root]]))
        every = [*edges, *(self.top_edges[root] for root in side_roots)]
        return _Plan(tuple(edges), side_roots, _grouped(starts, every))

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
                        tuple(edge for edge, _ in there),
                        tuple(gradient for _, gradient in there),
                        tuple(_variable(self.nodes[node]) for node in group.weights),
                    )
                )
        return groups


def _variable(leaf: Node) -> Tensor:
    return cast("Tensor", cast("Any", leaf).variable)


def _grouped(
    starts: Sequence[tuple[int, tuple[int, ...], frozenset[int]]], edges: Sequence[tuple[int, int]]
) -> tuple[_Group, ...]:
    """Groups of starts that share weights; the large ones come first, because they run through nodes of others."""
    groups: list[tuple[list[int], list[int], set[int]]] = []
    for node, captured, weights in starts:
        joined: tuple[list[int], list[int], set[int]] = ([node], list(captured), set(weights))
        apart = []
        for group in groups:
            if group[2].isdisjoint(weights):
                apart.append(group)
            else:
                joined = (group[0] + joined[0], group[1] + joined[1], group[2] | joined[2])
        groups = [*apart, joined]
    made = [
        _Group(
            tuple(dict.fromkeys(nodes)),
            tuple(edges[position] for position in captured),
            tuple(captured),
            tuple(sorted(weights)),
        )
        for nodes, captured, weights in groups
    ]
    return tuple(sorted(made, key=lambda group: len(group.nodes) == 1))
