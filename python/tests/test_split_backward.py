"""The halves of a backward together are the whole, bit for bit, and the first one leaves the weights alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from pipec.torch.stage.split_backward import Splitter

WIDTH = 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        found: Tensor = x + nn.functional.gelu(self.out(nn.functional.scaled_dot_product_attention(q, k, v)))
        return found


class Shared(nn.Module):
    """A weight that is used at both ends of the path, and one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.between = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.beside = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.tanh(self.between(torch.tanh(self.twice(x))))
        found: Tensor = self.twice(inside) + self.beside * self.beside.sum()
        return found


class SeveralOutputs(nn.Module):
    """One output that does not depend on the input, and a node with several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.alone = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.mix(x).unbind(0)
        return torch.stack([a * b, b + self.alone]), self.alone * 2


CASES: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(Attention(), nn.Tanh(), Attention()),
    "shared": Shared,
    "several outputs": SeveralOutputs,
    "nothing to learn": nn.Identity,
    "convolution": lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Conv1d(5, 5, 3, padding=1), nn.PReLU()),
    "recurrent": lambda: nn.Sequential(nn.GRU(WIDTH, WIDTH), First()),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
}


class First(nn.Module):
    def forward(self, found: Any) -> Any:
        return found[0]


def tensors(output: Any) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


@pytest.mark.parametrize("name", CASES)
def test_the_halves_are_the_whole(name: str) -> None:
    torch.manual_seed(1)
    halves = CASES[name]()
    whole = copy.deepcopy(halves)
    splitter = Splitter()
    for step in range(3):
        x = torch.randn(2, 5, WIDTH).requires_grad_()
        y = x.detach().clone().requires_grad_()
        outputs = tensors(halves(x))
        gradients = [torch.randn_like(one) for one in outputs]
        before = [None if one.grad is None else one.grad.clone() for one in halves.parameters()]
        (found,), deferred = splitter.input_half([get_gradient_edge(one) for one in outputs], gradients, [x])
        for parameter, old in zip(halves.parameters(), before):
            assert parameter.grad is None if old is None else torch.equal(_gradient(parameter), old)
        deferred.run()
        torch.autograd.backward(tensors(whole(y)), gradients)
        assert found is not None and torch.equal(found, _gradient(y)), step
        for (which, one), other in zip(halves.named_parameters(), whole.parameters()):
            assert torch.equal(_gradient(one), _gradient(other)), which
    assert len(splitter._plans) == 1, "equal graphs are analysed once"


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


def test_without_inputs_all_is_left_for_the_second_half() -> None:
    module = nn.Embedding(4, WIDTH)
    output = module(torch.tensor([1, 3, 3]))
    found, deferred = Splitter().input_half([get_gradient_edge(output)], [torch.ones_like(output)], [])
    assert found == [] and module.weight.grad is None
    deferred.run()
    assert _gradient(module.weight).sum(1).tolist() == [0, WIDTH, 0, 2 * WIDTH]


def test_another_graph_is_another_plan() -> None:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    splitter = Splitter()
    for module in (first, second, first):
        x = torch.ones(1, WIDTH, requires_grad=True)
        _, deferred = splitter.input_half([get_gradient_edge(module(x))], [torch.ones(1, WIDTH)], [x])
        deferred.run()
    assert len(splitter._plans) == 2
    assert _gradient(first.bias)[0] == 2 and _gradient(second.bias)[0] == 1


def test_a_frozen_weight_is_noticed() -> None:
    module = nn.Linear(WIDTH, WIDTH)
    splitter = Splitter()
    for trained in (True, False, True):
        module.weight.requires_grad_(trained)
        x = torch.ones(1, WIDTH, requires_grad=True)
        _, deferred = splitter.input_half([get_gradient_edge(module(x))], [torch.ones(1, WIDTH)], [x])
        deferred.run()
    assert _gradient(module.weight)[0, 0] == 2 and _gradient(module.bias)[0] == 3


def test_an_input_that_nothing_depends_on_has_no_gradient() -> None:
    x, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    output = x * 2
    (found, none), deferred = Splitter().input_half([get_gradient_edge(output)], [torch.ones(3)], [x, unused])
    assert none is None and found is not None and found.tolist() == [2, 2, 2]
    deferred.run()


def test_without_roots_there_is_nothing_to_do() -> None:
    found, deferred = Splitter().input_half([], [], [torch.ones(3, requires_grad=True)])
    assert found == [None]
    deferred.run()
