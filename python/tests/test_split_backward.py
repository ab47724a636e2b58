"""The halves of a backward together are the whole, bit for bit, and the first one leaves the weights alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cluster import ALL
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

import pipec
from pipec.torch.stage.split_backward import Splitter
from pipec.torch.stage.split_report import split_report

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


class OutputInside(nn.Module):
    """Outputs that do not depend on the input, one of which is computed from the other."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.alone = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner = torch.tanh(self.alone(self.alone.weight[0]))
        return self.mix(x), torch.tanh(self.mix(inner)) * inner, inner


class Product(torch.autograd.Function):
    """Input times weight; counts its backwards."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor) -> tuple[Tensor, Tensor]:
        Product.calls += 1
        (gradient,), (x, weight) = arriving, ctx.saved_tensors
        return gradient @ weight.T, x.flatten(0, -2).T @ gradient.flatten(0, -2)


class Opaque(nn.Module):
    """A custom function between layers; with `shares` one of them has the same weight."""

    def __init__(self, shares: bool = False) -> None:
        super().__init__()
        self.before, self.behind = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.weight = self.behind.weight if shares else nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = Product.apply(torch.tanh(self.before(x)), self.weight)
        found: Tensor = self.behind(product)
        return found


class Checkpointed(nn.Module):
    """Layers that run once more in the backward, between others."""

    def __init__(self, use_reentrant: bool = False) -> None:
        super().__init__()
        self.before, self.behind, self.inner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), Attention()
        self.use_reentrant = use_reentrant
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.behind(checkpoint(self._run, self.before(x), use_reentrant=self.use_reentrant))
        return found

    def _run(self, x: Tensor) -> Any:
        self.calls += 1
        return self.inner(x)


class Hooked(Opaque):
    """A weight whose gradients are doubled on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.weight.register_hook(lambda gradient: gradient * 2)


CASES: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(Attention(), nn.Tanh(), Attention()),
    "shared": Shared,
    "several outputs": SeveralOutputs,
    "an output inside another one": OutputInside,
    "nothing to learn": nn.Identity,
    "convolution": lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Conv1d(5, 5, 3, padding=1), nn.PReLU()),
    "recurrent": lambda: nn.Sequential(nn.GRU(WIDTH, WIDTH), First()),
    "custom function": Opaque,
    "custom function with a shared weight": lambda: Opaque(shares=True),
    "checkpoint": Checkpointed,
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


def halves(splitter: Splitter, module: nn.Module, n_times: int) -> None:
    """Runs some microbatches, all first halves before all second ones."""
    waiting = []
    for _ in range(n_times):
        x = torch.randn(2, 5, WIDTH).requires_grad_()
        output = module(x)
        waiting.append(splitter.input_half([get_gradient_edge(output)], [torch.ones_like(output)], [x])[1])
    for deferred in waiting:
        deferred.run()


def test_a_custom_function_runs_its_backward_once() -> None:
    Product.calls = 0
    splitter = Splitter()
    halves(splitter, Opaque(), 4)
    assert Product.calls == 4
    (split,) = splitter.splits
    assert (split.n_whole, split.n_later) == (WIDTH**2, 2 * (WIDTH**2 + WIDTH))
    assert split.opaque == ("ProductBackward",)


def test_a_checkpointed_block_runs_once_more_and_not_twice() -> None:
    module = Checkpointed()
    splitter = Splitter()
    halves(splitter, module, 4)
    assert module.calls == 8
    assert splitter.splits[0].opaque == ("checkpointed block",)


def test_a_checkpoint_that_calls_autograd_itself_is_refused() -> None:
    with pytest.raises(pipec.StageError, match="say use_reentrant=False"):
        halves(Splitter(), Checkpointed(use_reentrant=True), 1)


def test_a_hook_of_a_weight_sees_each_gradient_once() -> None:
    torch.manual_seed(1)
    hooked = Hooked()
    plain = copy.deepcopy(hooked)
    plain.weight._backward_hooks = None
    for module in (hooked, plain):
        torch.manual_seed(2)
        halves(Splitter(), module, 2)
    assert torch.equal(_gradient(hooked.weight), 2 * _gradient(plain.weight))


def test_a_report_says_what_waits() -> None:
    splitter = Splitter()
    halves(splitter, Opaque(), 2)
    report = split_report(3, splitter.splits, [(0.003, 0.001), (0.003, 0.001)])
    assert str(report) == (
        "stage 3: gradients of 69% of the weights wait for `W`, the others are computed in `B` (because of "
        "ProductBackward); "
        "`B` takes 3 ms and `W` 1 ms, 25% of both"
    )
    assert report.cost == "B[3] = 1.50, W[3] = 0.50"
    assert split_report(0, [], None).cost is None


class Counting:
    """A compiler of graphs that counts what it compiles, and what runs."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.runs: list[str] = []

    def backend(self) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=self._compiler("forward"), bw_compiler=self._compiler("backward"))

    def _compiler(self, kind: str) -> Callable[..., Any]:
        from torch._functorch._aot_autograd.utils import make_boxed_func

        def compile(graph: Any, _: Any) -> Any:
            self.compiled.append(kind)

            def run(*arguments: Any) -> Any:
                self.runs.append(kind)
                return graph(*arguments)

            return make_boxed_func(run)

        return compile


@pytest.mark.parametrize("is_whole", [pytest.param(True, marks=ALL), False])
def test_compiled_graphs_run_once_and_are_compiled_once(is_whole: bool) -> None:
    counting = Counting()
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Attention(), nn.Linear(WIDTH, WIDTH))
    plain = copy.deepcopy(module)
    compiled = module if is_whole else module[1]
    compiled.compile(backend=counting.backend(), dynamic=True)
    splitter = Splitter()
    for n_rows in (2, 3):
        for _ in range(4):
            x = torch.randn(n_rows, 5, WIDTH).requires_grad_()
            y = x.detach().clone().requires_grad_()
            output = module(x)
            plain(y).sum().backward()
            (found,), deferred = splitter.input_half([get_gradient_edge(output)], [torch.ones_like(output)], [x])
            deferred.run()
            torch.testing.assert_close(found, _gradient(y))
    for one, other in zip(module.parameters(), plain.parameters()):
        torch.testing.assert_close(_gradient(one), _gradient(other))
    assert sorted(counting.compiled) == ["backward", "forward"]
    assert sorted(counting.runs) == ["backward"] * 8 + ["forward"] * 8
    assert splitter.splits[0].opaque == ("CompiledFunctionBackward",)


def test_weights_whose_gradients_come_late_have_none_before() -> None:
    module = Opaque()
    x = torch.randn(2, WIDTH, requires_grad=True)
    output = module(x)
    _, deferred = Splitter().input_half([get_gradient_edge(output)], [torch.ones_like(output)], [x])
    assert all(one.grad is None for one in module.parameters())
    deferred.run()
    assert all(one.grad is not None for one in module.parameters())
