"""The calls of autograd's engine do what torch's public functions do, with and without the private one behind these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from pipec.torch.stage import engine


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


@pytest.fixture(params=["private", "public"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    assert engine._run is not None, "this torch has the private call"
    if request.param == "public":
        monkeypatch.setattr(engine, "_run", None)
    yield request.param


def leaves() -> tuple[Tensor, Tensor]:
    return torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 5.0], requires_grad=True)


def test_backward_adds_to_all_leaves(way: str) -> None:
    x, weight = leaves()
    gradient = torch.tensor([1.0, 10.0])
    for _ in range(2):
        engine.backward([engine.edge_of(x * weight)], [gradient])
    assert x.grad is not None and x.grad.tolist() == [6.0, 100.0]
    assert weight.grad is not None and weight.grad.tolist() == [2.0, 40.0]


def test_backward_adds_to_some_leaves_and_keeps_the_graph(way: str) -> None:
    x, weight = leaves()
    output = x * weight
    engine.backward([output], [torch.ones(2)], [weight], keeps_graph=True)
    assert x.grad is None
    engine.backward([output], [torch.ones(2)], [weight])
    assert x.grad is None and weight.grad is not None and weight.grad.tolist() == [2.0, 4.0]
    with pytest.raises(RuntimeError, match="second time"):
        engine.backward([output], [torch.ones(2)])


def test_gradients_arrive_at_leaves_and_edges(way: str) -> None:
    x, weight = leaves()
    apart = torch.ones(2, requires_grad=True)
    inner = x * weight
    found = engine.gradients_of([x, engine.edge_of(inner), apart], [inner * 2], [torch.ones(2)], False)
    assert [None if one is None else one.tolist() for one in found] == [[6.0, 10.0], [2.0, 2.0], None]
    assert x.grad is None and weight.grad is None


def test_a_gradient_of_another_shape_is_refused(way: str) -> None:
    x, weight = leaves()
    with pytest.raises(RuntimeError, match="shape"):
        engine.backward([engine.edge_of(x * weight)], [torch.ones(3)])


def test_edges_are_those_of_torch() -> None:
    x, weight = leaves()
    first, second = (x * weight).unbind()
    for one in (x, first, second):
        assert engine.edge_of(one)[:2] == get_gradient_edge(one)[:2]


def test_the_edge_of_a_function_in_python_holds_its_graph() -> None:
    x, _ = leaves()
    edge = engine.edge_of(Doubled.apply(x))
    engine.backward([edge], [torch.ones(2)])
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
