"""What `test_runner.py` runs on the processes of the cluster; every function is called on each rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import torch
import torch.distributed as dist
from torch import Tensor, nn

import pipec
from pipec import Program, Runner

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def runner_of(program: Program, rank: int, group: Any, modules: dict[int, nn.Module], **options: Any) -> Runner:
    """A runner with the stages of this rank."""
    mine = {stage: modules[stage] for stage in program.stages_on(rank)}
    return Runner(program, mine, options.pop("loss_fn", models.loss), group=group, **options)


def chain(target: str, rank: int, group: Any, recompute: str | None = None, **options: Any) -> tuple[Program, Runner]:
    """A chain on two devices with four microbatches."""
    program = pipec.compile(target, devices=2, microbatches=4, recompute=recompute)
    return program, runner_of(program, rank, group, models.chain(program), **options)


def numbers(losses: list[Tensor]) -> list[float]:
    """Losses as numbers."""
    return [one.item() for one in losses]


def expected_mean() -> float:
    """The mean loss that `evaluation` finds with V-Half."""
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    ((*losses,), *_), _ = models.reference(program, models.chain(program), [3])
    return sum(losses) / len(losses)


def evaluation(rank: int, group: Any, target: str, recompute: str | None = None) -> tuple[Any, ...]:
    """The losses of an evaluation before and after a step, and those of the step."""
    program, runner = chain(target, rank, group, recompute)
    inputs, targets = models.batch(program, 3)
    before = numbers(runner.evaluate(inputs, targets))
    gradients = sum(one.grad is not None for one in runner.parameters())
    losses = runner.step(inputs, targets)
    after = numbers(runner.evaluate(inputs, targets))
    trained = numbers(runner.step(inputs, targets))
    return gradients, before, numbers(losses), after, trained, runner.mean_loss(losses)


def prediction(rank: int, group: Any) -> list[list[int]]:
    """The shapes of what the last stage returns."""
    program, runner = chain("std:1f1b", rank, group)
    return [list(one.shape) for one in runner.predict(models.batch(program, 3)[0])]


def inputs_of_all_kinds(rank: int, group: Any) -> list[list[float]]:
    """The losses of the same batch, given in several ways."""
    program, runner = chain("std:1f1b", rank, group)
    inputs, targets = models.batch(program, 3)
    rows, goals = list(inputs.split(models.ROWS)), list(targets.split(models.ROWS))
    found = [
        runner.step(inputs, targets),
        runner.step((inputs,), (targets,)),
        runner.step(rows, goals),
        runner.step([(one,) for one in rows], [(one,) for one in goals]),
        runner.step({0: inputs}, targets),
        runner.step(inputs if rank == 0 else None, targets if rank == 1 else None),
    ]
    return [numbers(one) for one in found]


class _Scaled(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


def inputs_in_the_middle(rank: int, group: Any) -> list[float]:
    """The outputs of a stage that has a factor of its own."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=2)
    runner = runner_of(program, rank, group, {0: nn.Identity(), 1: _Scaled()}, device="cpu")
    x, scale = torch.full((2, 1), 6.0), torch.tensor([[2.0], [4.0]])
    return [one.item() for one in runner.predict({0: x, 1: scale})]


class _WithLoss(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return models.loss(self.inner(x), targets)


def loss_in_the_module(rank: int, group: Any) -> list[list[float]]:
    """The losses with a loss function, and with a module that takes targets."""
    program, runner = chain("std:1f1b", rank, group)
    modules = models.chain(program)
    modules[1] = _WithLoss(modules[1])
    other = runner_of(program, rank, group, modules, loss_fn=None)
    inputs, targets = models.batch(program, 3)
    return [numbers(one.step(inputs, targets)) for one in (runner, other)]


def frozen(rank: int, group: Any) -> tuple[int, int]:
    """How many weights have gradients, and how many there are, where the first stage is frozen."""
    program = pipec.compile("std:zb_h1", devices=2, microbatches=4)
    modules = models.chain(program)
    modules[0].requires_grad_(False)
    runner = runner_of(program, rank, group, modules)
    runner.step(*models.batch(program, 3))
    own = list(runner.parameters())
    return sum(one.grad is not None for one in own), len(own)


class _Repeating(models.First):
    """Returns its rows several times."""

    times = 1

    def forward(self, symbols: Tensor) -> Tensor:
        return super().forward(symbols).repeat(self.times, 1)


def other_shapes(rank: int, group: Any) -> list[str]:
    """What is said of a module that returns more rows than before."""
    program = pipec.compile("std:interleaved_1f1b", devices=1, microbatches=2, settings={"chunks": 2})
    modules = {**models.chain(program), 0: (repeating := _Repeating())}
    runner = runner_of(program, rank, group, modules)
    inputs, targets = models.batch(program, 3)
    runner.step(inputs, targets)
    repeating.times = 2
    said = []
    for _ in range(2):
        try:
            runner.step(inputs, targets.repeat_interleave(2))
        except pipec.StageError as error:
            said += [str(error), *getattr(error, "__notes__", [])]
    return said


def reset(rank: int, group: Any) -> tuple[int, list[int]]:
    """The rows of outputs after a module has changed."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=4)
    modules = {**models.chain(program), 0: (repeating := _Repeating())}
    runner = runner_of(program, rank, group, modules)
    inputs, targets = models.batch(program, 3)
    runner.step(inputs, targets)
    repeating.times = 2
    runner.reset()
    runner.step(inputs, targets.repeat_interleave(2))
    return rank, [len(one) for one in runner.predict(inputs)][:2]


def synchronised(rank: int, group: Any) -> float:
    """The sum of the weights of replicas that were made differently."""
    program = pipec.compile("std:dp_1f1b", devices=4, microbatches=4, settings={"replicas": 4})
    torch.manual_seed(rank)
    runner = Runner(program, {0: models.Only()}, models.loss, group=group)
    return sum(one.double().sum().item() for one in runner.parameters())


def tied_and_trained(rank: int, group: Any, path: str) -> list[float]:
    """The sums of a table that two devices hold, after some updates."""
    source = Path(path).read_text().replace("schedule v_half", "schedule 1f1b")
    here = Path(path).with_name(f".tied-{rank}.pipe")
    here.write_text(source)
    try:
        program = pipec.compile(here, devices=4)
    finally:
        here.unlink()
    torch.manual_seed(rank)
    modules = models.tied(program)
    torch.nn.init.normal_(modules[3].get_parameter("weight"))
    runner = runner_of(program, rank, group, modules, tied={"3.weight": "0.table.weight"})
    optimizer = torch.optim.AdamW(runner.parameters(), lr=0.1)
    found = []
    for seed in range(3):
        runner.step(*models.batch(program, seed))
        optimizer.step()
        optimizer.zero_grad()
        found += [one.double().sum().item() for name, one in runner.named_parameters() if name == "0.table.weight"]
    return found


class _Words(nn.Module):
    def forward(self, x: Tensor) -> str:
        return "words"


class _Rows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def mistake(rank: int, group: dist.ProcessGroup, name: str) -> str | None:
    """What is said of a mistake; `None` on ranks that make none."""
    try:
        _MISTAKES[name](rank, group)
    except pipec.PipecError as error:
        return str(error)
    return None


def _alone(rank: int, modules: dict[int, nn.Module], **options: Any) -> Runner | None:
    """A runner on this rank alone, with all stages on it."""
    program = pipec.compile("std:gpipe", devices=1, microbatches=2)
    if rank > 0:
        return None
    return Runner(program, modules, options.pop("loss_fn", models.loss), group=_own(), **options)


def _own() -> dist.ProcessGroup:
    group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    return group


def _step(rank: int, inputs: Any, targets: Any, **options: Any) -> None:
    runner = _alone(rank, {0: options.pop("module", models.Only())}, **options)
    if runner is not None:
        runner.step(inputs, targets)


def _pair(rank: int, group: Any, given: list[int]) -> None:
    program = pipec.compile("std:1f1b", devices=2, microbatches=2)
    Runner(program, {stage: nn.Identity() for stage in (given if rank == 0 else [1])}, models.loss, group=group)


def _tied(rank: int, group: Any, target: str, ties: dict[str, str]) -> None:
    program = pipec.compile(target, devices=2, microbatches=2)
    runner_of(program, rank, group, models.chain(program), tied=ties)


def _differing(rank: int, group: Any) -> None:
    program = pipec.compile("std:dp_1f1b", devices=4, microbatches=4, settings={"replicas": 4})
    module = models.Only()
    module.requires_grad_(rank == 0)
    Runner(program, {0: module}, models.loss, group=group)


def _two_stages(rank: int, first: nn.Module) -> None:
    program = pipec.compile("std:interleaved_1f1b", devices=1, microbatches=1, settings={"chunks": 2})
    if rank == 0:
        runner = Runner(program, {0: first, 1: models.Last()}, models.loss, group=_own())
        runner.step(torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))


def _skips(rank: int, group: Any) -> None:
    program = pipec.compile(EXAMPLES / "unet.pipe", devices=2, microbatches=1)
    runner = runner_of(program, rank, group, {**models.graph(program), 0: models.First()})
    try:
        if rank == 0:
            runner.step(torch.zeros(1, dtype=torch.int64))
        else:  # Which takes part in what ranks agree on, and in no transfer.
            runner._shapes.choose({})
    finally:
        dist.barrier(group)


_ROWS = torch.zeros(4, dtype=torch.int64)

_MISTAKES: dict[str, Callable[[int, Any], None]] = {
    "too_many_stages": lambda rank, group: _pair(rank, group, [0, 1]),
    "too_few_stages": lambda rank, group: _pair(rank, group, []),
    "wrong_world": lambda rank, _: _pair(0, _own(), [0]),
    "no_inputs": lambda rank, _: _step(rank, None, _ROWS),
    "no_targets_at_all": lambda rank, _: _step(rank, _ROWS, None),
    "no_targets_for_a_module": lambda rank, _: _step(rank, _ROWS, None, loss_fn=nn.CrossEntropyLoss()),
    "too_few_targets": lambda rank, _: _step(rank, _ROWS, _ROWS[:2]),
    "no_targets": lambda rank, _: _step(rank, _ROWS, [None, None]),
    "uneven_batch": lambda rank, _: _step(rank, torch.zeros(7), _ROWS),
    "wrong_list": lambda rank, _: _step(rank, [_ROWS] * 3, _ROWS),
    "not_a_tensor": lambda rank, _: _step(rank, ["a", "b"], _ROWS),
    "unknown_stage": lambda rank, _: _step(rank, {9: _ROWS}, _ROWS),
    "loss_with_rows": lambda rank, _: _step(rank, _ROWS, _ROWS, loss_fn=lambda output, targets: output[:, 0]),
    "output_of_words": lambda rank, _: _two_stages(rank, _Words()),
    "cuda_on_gloo": lambda rank, _: _step(rank, _ROWS, _ROWS, device="cuda:0"),
    "tie_unsaid": lambda rank, group: _tied(rank, group, str(EXAMPLES / "tied.pipe"), {}),
    "tie_misspelt": lambda rank, group: _tied(rank, group, "std:1f1b", {"1.haed.weight": "0.table.weight"}),
    "tie_malformed": lambda rank, group: _tied(rank, group, "std:1f1b", {"head": "0.table.weight"}),
    "tie_of_other_shape": lambda rank, group: _tied(rank, group, "std:v_half", {"3.head.bias": "0.table.weight"}),
    "replicas_that_differ": lambda rank, group: _differing(rank, group),
    "too_few_values": _skips,
}


def mistakes_of_one_rank(rank: int, group: Any) -> list[str]:
    """What is said of an evaluation whose batch is wrong on one rank, and the losses of one that is right behind it."""
    program, runner = chain("std:1f1b", rank, group)
    inputs, targets = models.batch(program, 3)
    first = rank == 0
    cases: list[tuple[Any, Any]] = [
        (inputs[:7] if first else None, targets),
        (None, targets),
        (inputs, None if rank == 1 else targets),
        (inputs, targets[:7] if rank == 1 else None),
        ({9: inputs} if first else inputs, targets),
        (inputs if first else None, ["words"] if rank == 1 else None),
    ]
    said = []
    for given, goals in cases:
        try:
            runner.evaluate(given, goals)
        except pipec.StageError as error:
            said.append(str(error))
    assert len(runner.evaluate(inputs, targets)) == (0 if first else 4)
    assert len(runner.step(inputs, targets)) == (0 if first else 4)
    return said


class _OutputAlone(nn.Module):
    def forward(self, output: Tensor) -> Tensor:
        return output.square().mean()


def losses_without_targets(rank: int, group: Any) -> list[int]:
    """How many losses there are where these need no targets."""
    found = []
    for loss_fn in (lambda output: output.mean(), _OutputAlone(), lambda output, weight=2.0: weight * output.mean()):
        program, runner = chain("std:1f1b", rank, group, loss_fn=loss_fn)
        found.append(len(runner.step(models.batch(program, 3)[0])))
    return found


def evaluation_of_shares(rank: int, group: Any, text: str) -> tuple[list[float], list[float]]:
    """The losses of a step, which are those of the weights before it, and of an evaluation before it."""
    program = pipec.loads(text)
    runner = runner_of(program, rank, group, models.chain(program), optimizer=models.adam)
    inputs, targets = models.batch(program, 3)
    before = numbers(runner.evaluate(inputs, targets))
    return before, numbers(runner.step(inputs, targets))


def slices(rank: int, group: Any, text: str) -> tuple[list[float], list[float]]:
    """The losses of an evaluation, and of the step behind it."""
    program = pipec.loads(text)
    runner = runner_of(program, rank, group, models.sequences(program))
    inputs, targets = models.batch(program, 3)
    return numbers(runner.evaluate(inputs, targets)), numbers(runner.step(inputs, targets))


def slices_of_several_lengths(
    rank: int, group: Any, text: str
) -> tuple[list[list[float]], float, bool, dict[str, Any]]:
    """The losses of two steps and of an evaluation behind them, the mean of these, whether their transfers were
    announced again, and the gradients of both steps; in numbers of 64 bits.
    """
    program = pipec.loads(text)
    modules = {stage: module.double() for stage, module in models.sequences(program).items()}
    runner = runner_of(program, rank, group, modules)
    losses = [numbers(runner.step(*models.batch(program, seed))) for seed in (1, 2)]
    evaluated = runner.evaluate(*models.batch(program, 2))
    gradients = {name: one.numpy() for name, one in models.gradients(runner.stages).items()}
    return [*losses, numbers(evaluated)], runner.mean_loss(evaluated), runner._step.is_free, gradients


def gradients_of_sums(rank: int, group: Any, text: str) -> list[dict[str, Any]]:
    """The gradients of a step whose losses are means over slices, and of steps whose losses are sums over them: with
    weights, and added up.
    """
    program = pipec.loads(text)
    inputs, targets = models.batch(program, 1)
    part = 1 / targets.numel()
    found = []
    for loss_fn, weights, scale in [
        (models.loss, None, 1.0),
        (models.loss_sum, part, 1.0),
        (models.loss_sum, None, part),
    ]:
        modules = models.sequences(program)
        runner = runner_of(program, rank, group, modules, loss_fn=loss_fn, average=scale == 1)
        runner.step(inputs, targets, weights=weights)
        found.append({name: (one * scale).numpy() for name, one in models.gradients(runner.stages).items()})
    return found


def mistake_in_slices(rank: int, group: Any, scene: str, text: str) -> None:
    """Inputs that have no second axis or one of another length, or a module that does not say what it carries."""
    program = pipec.loads(text)
    if scene == "slices_of_another_length":
        runner_of(program, rank, group, models.chain(program)).step(torch.zeros(4, 30, dtype=torch.int64))
        return
    if scene == "slices_of_vectors":
        runner_of(program, rank, group, models.chain(program)).step(torch.zeros(4, dtype=torch.int64))
        return

    class Forgetful(models.First):
        def forward(self, symbols: Tensor, carried: Any = ()) -> Tensor:
            return super().forward(symbols)

    runner_of(program, rank, group, {0: Forgetful()}).step(*models.batch(program, 1))


def waiting_after_a_step(rank: int, group: Any, text: str) -> tuple[int, list[float]]:
    """How many stages keep something of a microbatch when a step is over, and the losses of the step."""
    program = pipec.loads(text)
    runner = runner_of(program, rank, group, models.chain(program))
    losses = numbers(runner.step(*models.batch(program, 3)))
    return sum(one.is_waiting for one in runner._machine.stages.values()), losses
