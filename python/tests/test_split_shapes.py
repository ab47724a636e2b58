"""Stages of `split` for microbatches of several shapes, and stages of models that have shapes and no numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import scenes
import split_models
import torch
from cluster import ALL, Cluster, needs_groups_within_a_group
from split_models import LENGTH, SYMBOLS, WIDTH
from test_split import Make, gradients, loss_of, pictures, require_equal, seeded, tokens
from torch import Tensor, nn

import pipec
from pipec import Program, StageError
from pipec.torch import Split, profile, split

N_MICROBATCHES = 4
SHAPES = ((2, LENGTH), (3, LENGTH), (1, LENGTH - 2))
"""Of microbatches: rows and length."""


def chain_of(target: str = "std:v_half") -> Program:
    """A program of two devices."""
    return pipec.compile(target, devices=2, microbatches=N_MICROBATCHES)


def words(shape: tuple[int, int], n_microbatches: int = 1) -> Tensor:
    """Tokens of a step."""
    numbers = torch.Generator().manual_seed(7)
    return torch.randint(SYMBOLS, (shape[0] * n_microbatches, shape[1]), generator=numbers)


# Several shapes.


@pytest.mark.parametrize("by", ["blocks", pytest.param("export", marks=ALL)])
def test_stages_of_several_shapes_compute_what_the_model_computes(by: str) -> None:
    model = seeded(split_models.Llama)
    first, *others = map(words, SHAPES)
    cut = split(model, chain_of(), first, also=others, by=by)
    for one in (first, *others):
        require_equal(model, cut, one)


def test_arguments_may_be_left_out_in_some() -> None:
    model = seeded(split_models.Llama)
    both = {"input_ids": tokens(), "attention_mask": (tokens() > 1).long()}
    cut = split(model, chain_of(), both, also=[{"input_ids": tokens()}])
    require_equal(model, cut, both)
    require_equal(model, cut, {"input_ids": tokens()})


def test_pictures_of_several_sizes() -> None:
    model = seeded(split_models.ResNet)
    large = torch.randn(3, 3, 12, 12, dtype=torch.float64)
    cut = split(model, chain_of(), pictures(), also=[large], by="export")
    for one in (pictures(), large):
        require_equal(model, cut, one)


def steps(rank: int, group: Any, target: str) -> tuple[list[list[float]], list[float]]:
    """Evaluations of other shapes around steps, and steps of other shapes: the losses of both."""
    program = chain_of(target)
    first, *others = map(words, SHAPES)
    cut = split(seeded(split_models.Llama), program, first, also=others)
    runner = pipec.Runner(program, cut.on(rank), loss_of, group=group, tied=cut.tied, names=cut.names)
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1)
    evaluated, trained = [], []
    for shape in (SHAPES[0], SHAPES[2], SHAPES[0]):
        batch = words(shape, N_MICROBATCHES)
        trained.append(runner.mean_loss(runner.step(batch, batch)))
        optimizer.step()
        optimizer.zero_grad()
        mixed = [words(one) for one in SHAPES]
        evaluated.append(scenes.numbers(runner.evaluate(mixed, mixed)))
    return evaluated, trained


@pytest.mark.parametrize("target", ["std:v_half", pytest.param("std:zb_h1", marks=ALL)])
def test_ranks_learn_and_evaluate_with_other_shapes(cluster: Cluster, target: str) -> None:
    needs_groups_within_a_group(target != "std:v_half")
    model = seeded(split_models.Llama)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    evaluated, trained = [], []
    for shape in (SHAPES[0], SHAPES[2], SHAPES[0]):
        parts = words(shape, N_MICROBATCHES).chunk(N_MICROBATCHES)
        losses = [loss_of(model(one), one) / N_MICROBATCHES for one in parts]
        for loss in losses:
            loss.backward()
        trained.append(sum(one.item() for one in losses))
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            evaluated.append([loss_of(model(words(one)), words(one)).item() for one in SHAPES])
    for (found, mean), n_losses in zip(cluster.run(steps, 2, target), [0, 3] if target == "std:zb_h1" else [3, 0]):
        assert mean == pytest.approx(trained, rel=1e-10)
        assert [len(one) for one in found] == [n_losses] * 3
        if n_losses:
            assert found == [pytest.approx(one, rel=1e-10) for one in evaluated]


class Scaled(nn.Module):
    """Takes a number with its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        found: Tensor = self.right(self.left(x) * scale)
        return found


class Shaped(nn.Module):
    """Calls other modules where there are few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.middle, self.right = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.left(x)
        found: Tensor = self.right(self.middle(x) if len(x) > 2 else x)
        return found


def refused(model: nn.Module, example: Any, **options: Any) -> str:
    """What is said of a model that cannot be split on two stages."""
    with pytest.raises(StageError) as caught:
        split(model, chain_of("std:1f1b"), example, **options)
    return str(caught.value)


def test_shapes_that_do_not_fit_are_named() -> None:
    rows = partial(torch.ones, dtype=torch.float32)
    cut = split(seeded(split_models.Llama), chain_of("std:1f1b"), words(SHAPES[0]), also=[words(SHAPES[1])])
    with pytest.raises(StageError) as caught:
        cut.stages[0](words((4, LENGTH)))
    assert str(caught.value) == (
        "`input_ids` is [4, 6], but the model was split for [2, 6] or [3, 6]: give `split` a microbatch of this shape "
        "as example, or in `also=`"
    )
    example = {"x": rows(2, WIDTH), "scale": 1.0}
    assert refused(Scaled(), example, also=[{"x": rows(2, WIDTH), "scale": 2.0}], by="export") == (
        "for two examples a stage of `Scaled` gets the same shapes, `x` [2, 16], and computes different things: give "
        "one of them"
    )
    assert refused(Shaped(), rows(3, WIDTH), also=[rows(2, WIDTH)], by="export") == (
        "for one of `also=` the model has other layers, left, right (2), than for the example, left .. right (3)"
    )


# On `meta`.


def on_meta(make: Make) -> nn.Module:
    """A model in double precision, without numbers."""
    with torch.device("meta"):
        return make().double()


def fill_frequencies(module: nn.Module) -> None:
    """Fills the buffer of positions, which is in no state."""
    for part in module.modules():
        if isinstance(part, split_models.Rotary):
            part.frequencies.copy_(split_models.Rotary().double().frequencies)
    for name, one in module.named_buffers():
        if name.endswith("frequencies"):
            one.copy_(split_models.Rotary().double().frequencies)


MODELS: dict[str, tuple[Make, Any]] = {
    "llama": (split_models.Llama, tokens),
    "resnet": (split_models.ResNet, pictures),
    "skipping": (split_models.InPlace, lambda: torch.ones(2, WIDTH, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", MODELS)
def test_stages_from_meta_compute_what_the_model_computes(name: str) -> None:
    make, example = MODELS[name]
    model, whole = on_meta(make), seeded(make)
    cut: Split = split(model, chain_of(), example())
    before = {key: one.clone() for key, one in whole.state_dict().items()}
    for rank in range(2):
        made = cut.materialise(rank, state=before, init=fill_frequencies)
        assert not any(one.is_meta for module in made.values() for one in (*module.parameters(), *module.buffers()))
        if rank == 0:
            assert all(one.is_meta for stage in cut.program.stages_on(1) for one in cut.stages[stage].parameters())
    _, expected = gradients(whole, lambda: whole(example()))
    flowing: Any = (example(),)
    for module in cut.stages:
        module.zero_grad()
        flowing = module(*flowing)
        flowing = flowing if isinstance(flowing, tuple) else (flowing,)
    torch.manual_seed(1)
    output = flowing[0]
    (output["logits"] if isinstance(output, dict) else output).square().sum().backward()
    found: dict[str, Tensor] = {}
    for module in cut.stages:
        for key, one in module.named_parameters():
            assert one.grad is not None, key
            found[key] = found[key] + one.grad if key in found else one.grad
    # The head of a Llama is its table, which two devices have: each has a part of the gradient.
    tied = {"model.embed_tokens.weight": "lm_head.weight"}
    for key, gradient in expected.items():
        other = found.get(tied.get(key, ""))
        got = found[key] if other is None or other is found[key] else found[key] + other
        torch.testing.assert_close(got, gradient, rtol=1e-10, atol=1e-10, msg=key)


def learn_from_meta(rank: int, group: Any, state: dict[str, Any]) -> list[float]:
    """The losses of some steps of a model that no rank has had as a whole."""
    program = chain_of("std:1f1b")
    cut = split(on_meta(split_models.Llama), program, tokens())
    made = cut.materialise(
        rank, state={key: torch.from_numpy(one) for key, one in state.items()}, init=fill_frequencies
    )
    runner = pipec.Runner(program, made, loss_of, group=group, tied=cut.tied, names=cut.names)
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1)
    losses = []
    for _ in range(2):
        batch = tokens(2 * N_MICROBATCHES)
        losses.append(runner.mean_loss(runner.step(batch, batch)))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def test_ranks_learn_what_one_process_learns(cluster: Cluster) -> None:
    needs_groups_within_a_group()
    model = seeded(split_models.Llama)
    state = {key: one.numpy().copy() for key, one in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for _ in range(2):
        losses = [loss_of(model(one), one) / N_MICROBATCHES for one in tokens(2 * N_MICROBATCHES).chunk(N_MICROBATCHES)]
        for loss in losses:
            loss.backward()
        expected.append(sum(one.item() for one in losses))
        optimizer.step()
        optimizer.zero_grad()
    for found in cluster.run(learn_from_meta, 2, state):
        assert found == pytest.approx(expected, rel=1e-10)


class WithNumbers(nn.Module):
    """Makes a tensor of numbers between its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.right(self.left(x) * torch.tensor([0.5, 2.0] * (WIDTH // 2), dtype=x.dtype))
        return found


def unprepared(rank: int, group: Any) -> str:
    """What is said of stages that are still on `meta`."""
    program = chain_of("std:1f1b")
    try:
        cut = split(on_meta(split_models.Llama), program, tokens())
        pipec.Runner(program, cut.on(rank), loss_of, group=group, tied=cut.tied)
    except StageError as error:
        return str(error)
    return ""


def test_what_is_missing_on_meta_is_named(cluster: Cluster) -> None:
    cut = split(on_meta(split_models.Llama), chain_of("std:1f1b"), tokens())
    with pytest.raises(StageError) as caught:
        cut.materialise(0, state={})
    assert str(caught.value) == (
        "stage 0 has buffers that are in no state, so that nobody fills them: `model.rotary_emb.frequencies`. Give "
        "`init=`, a function that fills them in a module"
    )
    cut = split(on_meta(split_models.ResNet), chain_of("std:1f1b"), pictures())
    with pytest.raises(StageError) as caught:
        cut.materialise(0, state={"conv1.weight": torch.zeros(4, 3, 3, 3)})
    assert str(caught.value).startswith("`conv1.bias` of stage 0 and ")
    assert refused(on_meta(WithNumbers), torch.ones(2, WIDTH, dtype=torch.float64), by="export").startswith(
        "the forward of `WithNumbers` makes a tensor of numbers between its modules (`"
    )
    with pytest.raises(StageError) as caught:
        profile(on_meta(split_models.ResNet), pictures())
    assert "on the device `meta`, where nothing takes time" in str(caught.value)
    for rank, said in enumerate(cluster.run(unprepared, 2)):
        assert said.startswith(f"the modules of rank {rank} are on the device `meta`, without numbers")
