"""Small stages for tests, and what they learn in one process without any pipeline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pipec import Program

WIDTH = 8
SYMBOLS = 11
ROWS = 2

Make = Callable[[Program], dict[int, nn.Module]]


class First(nn.Module):
    """Symbols to vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(SYMBOLS, WIDTH)

    def forward(self, symbols: Tensor) -> Tensor:
        found: Tensor = torch.tanh(self.table(symbols))
        return found


class Middle(nn.Module):
    """A block with a residual, a norm and two products, so that halves of its backward differ."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return found


class Last(nn.Module):
    """Vectors to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x)
        return found


class Only(nn.Sequential):
    """The whole model in a stage."""

    def __init__(self) -> None:
        super().__init__(First(), Last())


class Several(nn.Module):
    """Joins what flows in, and hands on as many values as are asked for, all different."""

    def __init__(self, reads: int, writes: int) -> None:
        super().__init__()
        self.mix = nn.Linear(max(reads, 1) * WIDTH, WIDTH)
        self.out = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(writes)])
        self.table = nn.Embedding(SYMBOLS, WIDTH) if reads == 0 else None

    def forward(self, *flowing: Tensor) -> Any:
        found = flowing if self.table is None else (self.table(flowing[0]),)
        mixed = torch.tanh(self.mix(torch.cat(found, -1)))
        values = [out(mixed) for out in self.out]
        return values[0] if len(values) == 1 else tuple(values)


class TiedLast(nn.Module):
    """Vectors to scores, by the table that made the vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.weight = nn.Parameter(torch.empty(SYMBOLS, WIDTH))
        nn.init.normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.norm(x), self.weight)


class Attention(nn.Module):
    """Causal attention before the block: a slice looks at itself and at all slices before it, whose keys and values it
    gets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.block = Middle()

    def forward(self, x: Tensor, carried: list[tuple[Tensor, ...]]) -> Any:
        query, key, value = self.mix(x).chunk(3, -1)
        keys = torch.cat([*(one[0] for one in carried), key], 1)
        values = torch.cat([*(one[1] for one in carried), value], 1)
        before = keys.shape[1] - x.shape[1]
        is_later = torch.ones(x.shape[1], keys.shape[1]).triu(before + 1).bool()
        scores = (query @ keys.transpose(1, 2)).masked_fill(is_later, float("-inf"))
        return self.block(x + scores.softmax(-1) @ values), (key, value)


class AttentionLast(nn.Module):
    """The same in the last stage, where the loss is."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.last = Attention(), Last()

    def forward(self, x: Tensor, carried: list[tuple[Tensor, ...]]) -> Any:
        mixed, own = self.mix(x, carried)
        return self.last(mixed), own


class Noisy(Middle):
    """Draws random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.3)


class Normed(Middle):
    """Has statistics of what it has seen, and a buffer that its next output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics = nn.BatchNorm1d(WIDTH)
        self.register_buffer("last", torch.zeros(WIDTH))

    last: Tensor

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = super().forward(self.statistics(x)) + self.last
        if self.training:
            self.last = found.detach().mean(0)
        return found


class Pairs(nn.Module):
    """Two tensors and an index flow as one value: only the tensors have gradients."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.is_first = is_first
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Embedding(SYMBOLS, WIDTH)

    def forward(self, *flowing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.is_first:
            (symbols,) = flowing
            return torch.tanh(self.right(symbols)), symbols, self.left(self.right(symbols))
        a, symbols, b = flowing
        return torch.tanh(self.left(b)) + a, symbols, self.right(symbols) * b


class PairsLast(nn.Module):
    """Uses the first of them alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, a: Tensor, symbols: Tensor, b: Tensor) -> Tensor:
        found: Tensor = self.head(a)
        return found


def _seeded(make: Callable[[], nn.Module], stage: int) -> nn.Module:
    torch.manual_seed(100 + stage)
    return make()


def _per_stage(
    program: Program, middle: Callable[[], nn.Module], last: Callable[[], nn.Module]
) -> dict[int, nn.Module]:
    makers: list[Callable[[], nn.Module]] = [First, *[middle] * (program.n_stages - 2), last]
    return {stage: _seeded(make, stage) for stage, make in enumerate(makers[-program.n_stages :])}


def chain(program: Program) -> dict[int, nn.Module]:
    """A chain of stages."""
    return {0: _seeded(Only, 0)} if program.n_stages == 1 else _per_stage(program, Middle, Last)


def noisy(program: Program) -> dict[int, nn.Module]:
    """A chain that draws random numbers."""
    return _per_stage(program, Noisy, Last)


def normed(program: Program) -> dict[int, nn.Module]:
    """A chain with statistics."""
    return _per_stage(program, Normed, Last)


def sequences(program: Program) -> dict[int, nn.Module]:
    """A chain with attention; the first stage carries nothing."""
    return _per_stage(program, Attention, AttentionLast)


def tied(program: Program) -> dict[int, nn.Module]:
    """A chain whose last stage has the table of the first one."""
    return _per_stage(program, Middle, TiedLast)


def pairs(program: Program) -> dict[int, nn.Module]:
    """Several tensors flow along each edge."""
    last = program.n_stages - 1
    stages = {stage: _seeded(partial(Pairs, stage == 0), stage) for stage in range(last)}
    return {**stages, last: _seeded(PairsLast, last)}


def graph(program: Program) -> dict[int, nn.Module]:
    """Whatever edges the program has."""
    found: dict[int, nn.Module] = {}
    for stage in program.stages:
        n_reads, n_writes = len(stage.reads), len(stage.writes)
        found[stage.index] = _seeded(partial(Several, n_reads, n_writes) if n_writes else Last, stage.index)
    return found


def tie(modules: dict[int, nn.Module], tied: dict[str, str]) -> None:
    """Makes one tensor of weights that are tied."""
    for name, owner in tied.items():
        stage, _, rest = name.partition(".")
        owning, _, table = owner.partition(".")
        setattr(modules[int(stage)], rest, modules[int(owning)].get_parameter(table))


def loss(output: Tensor, targets: Tensor) -> Tensor:
    """The mean over a microbatch, or a slice of it."""
    return nn.functional.cross_entropy(output.flatten(0, -2), targets.flatten())


def loss_sum(output: Tensor, targets: Tensor) -> Tensor:
    """The sum over a microbatch, or a slice of it."""
    return nn.functional.cross_entropy(output.flatten(0, -2), targets.flatten(), reduction="sum")


def batch(program: Program, seed: int) -> tuple[Tensor, Tensor]:
    """Symbols and targets of a step."""
    numbers = torch.Generator().manual_seed(seed)
    rows = program.n_microbatches // program.n_slices * ROWS
    length = 2 * (sum(program.slice_shares) or program.n_slices)
    shape = (2, rows) if program.n_slices == 1 else (2, rows, length)
    drawn = torch.randint(SYMBOLS, shape, generator=numbers)
    return drawn[0], drawn[1]


def _as_it_is(seed: Tensor) -> Tensor:
    return seed


def reference(
    program: Program, modules: dict[int, nn.Module], seeds: list[int], scale: Callable[[Tensor], Tensor] = _as_it_is
) -> tuple[list[list[float]], dict[str, Tensor]]:
    """Losses of every step, and the gradients of all of them, of one process that takes one microbatch after the
    other.
    """
    losses = []
    for seed in seeds:
        inputs, targets = batch(program, seed)
        of_step = []
        for microbatch, target in zip(inputs.split(ROWS), targets.split(ROWS)):
            values: dict[int, Any] = {}
            for stage in program.stages:
                flowing = [values[read.value] for read in stage.reads]
                splat = [one for value in flowing for one in (value if isinstance(value, tuple) else (value,))]
                output = whole(modules[stage.index], splat or [microbatch])
                several = output if len(stage.writes) > 1 else (output,)
                values.update({write.value: one for write, one in zip(stage.writes, several)})
            result = loss(output, target)
            result.backward(scale(torch.tensor(program.n_slices / program.n_microbatches)))
            of_step.append(result.item())
        losses.append(of_step)
    return losses, gradients(modules)


def whole(module: nn.Module, arguments: list[Any]) -> Any:
    """What a module makes of whole sequences."""
    return module(*arguments, carried=[])[0] if isinstance(module, (Attention, AttentionLast)) else module(*arguments)


def gradients(modules: dict[int, nn.Module]) -> dict[str, Tensor]:
    """By stage and name."""
    found = {}
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                found[f"{stage}.{name}"] = parameter.grad.clone()
    return found


def learnt(
    program: Program, modules: dict[int, nn.Module], seeds: list[int], make: Callable[..., torch.optim.Optimizer]
) -> tuple[list[list[float]], dict[str, Tensor]]:
    """Losses of every step, and the weights behind the last one, of one process that updates after each."""
    optimizer = make({id(one): one for module in modules.values() for one in module.parameters()}.values())
    losses = []
    for seed in seeds:
        (of_step,), _ = reference(program, modules, [seed])
        losses.append(of_step)
        optimizer.step()
        optimizer.zero_grad()
    return losses, weights(modules)


def stale(
    program: Program, modules: dict[int, nn.Module], seeds: list[int], make: Callable[..., torch.optim.Optimizer]
) -> tuple[list[list[float]], dict[str, Tensor]]:
    """What one process learns that keeps all versions of all weights, and takes for each microbatch those that the
    program's lags say.
    """
    optimizers = {stage: make(list(module.named_parameters())) for stage, module in modules.items()}
    history = {stage: [_copy(module)] for stage, module in modules.items()}
    per_step = program.n_microbatches // program.n_steps
    losses = []
    for seed in seeds:
        inputs, targets = (one.split(ROWS) for one in batch(program, seed))
        of_window = []
        for step in range(program.n_steps):
            sums: dict[str, Tensor] = {}
            for number in range(per_step):
                taken = {}
                for stage in modules:
                    lag = program.lags[stage][number] if program.lags else 0
                    version = history[stage][max(len(history[stage]) - 1 - lag, 0)]
                    taken[stage] = {name: one.clone().requires_grad_() for name, one in version.items()}
                x = inputs[step * per_step + number]
                for stage, module in modules.items():
                    x = torch.func.functional_call(module, taken[stage], (x,))
                result = loss(x, targets[step * per_step + number])
                result.backward(torch.tensor(1 / per_step))
                of_window.append(result.item())
                for stage, version in taken.items():
                    for name, one in version.items():
                        before, key = sums.get(f"{stage}.{name}"), f"{stage}.{name}"
                        assert one.grad is not None
                        sums[key] = one.grad if before is None else before + one.grad
            for stage, module in modules.items():
                for name, parameter in module.named_parameters():
                    parameter.grad = sums[f"{stage}.{name}"]
                optimizers[stage].step()
                history[stage].append(_copy(module))
        losses.append(of_window)
    return losses, weights(modules)


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in module.named_parameters()}


def weights(modules: dict[int, nn.Module]) -> dict[str, Tensor]:
    """By stage and name, as they are now."""
    return {
        f"{stage}.{name}": one.detach().clone()
        for stage, module in modules.items()
        for name, one in module.named_parameters()
    }


def adam(named: Any) -> torch.optim.Optimizer:
    """Adam with decay of weights."""
    return torch.optim.AdamW(named, lr=0.01, weight_decay=0.1)


def momentum(named: Any) -> torch.optim.Optimizer:
    """Gradient descent with momentum."""
    return torch.optim.SGD(named, lr=0.1, momentum=0.9)
