"""What layers cost: sums are those of the model, and the compiler reads them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import split_models
import torch
from test_split import pictures, scores, seeded, tokens
from torch import Tensor, nn

import pipec
from pipec import StageError
from pipec.torch import LayerCost, Profile, profile, split

N_LAYERS = 10


@pytest.fixture(scope="module")
def llama() -> nn.Module:
    return seeded(split_models.Llama)


@pytest.fixture(scope="module")
def measured(llama: nn.Module) -> Profile:
    return profile(llama, tokens(), repeats=3, loss=lambda output: scores(output).square().sum())


def test_layers_have_the_bytes_of_the_model(llama: nn.Module, measured: Profile) -> None:
    names = [one.name for one in measured.layers]
    assert names == ["model.embed_tokens", *(f"model.layers.{number}" for number in range(8)), "model.norm, lm_head"]
    table = split_models.SYMBOLS * split_models.WIDTH * 8
    all_weights = sum(one.numel() * one.element_size() for one in llama.parameters())
    assert measured.total.parameter_bytes == all_weights + table  # It is both in the first layer and in the last one.
    states = 2 * split_models.LENGTH * split_models.WIDTH * 8
    assert {one.output_bytes for one in measured.layers[:-1]} == {states}
    assert measured.layers[-1].output_bytes == 2 * split_models.LENGTH * split_models.SYMBOLS * 8
    assert all(one.of(kind) > 0 for one in measured.layers[1:] for kind in ("F", "B", "W", "BW", "R"))
    assert len({one.activation_bytes for one in measured.layers[1:8]}) == 1
    assert measured.layers[3].activation_bytes > states


def test_a_layer_keeps_what_autograd_saves() -> None:
    """A product keeps its input, a tanh what it returns; what flows out counts for the next layer."""
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 2), nn.Tanh())).double()
    first, last = profile(model, torch.randn(3, 4, dtype=torch.float64), by="blocks", repeats=1).layers
    assert (first.activation_bytes, last.activation_bytes) == (3 * 4 * 8, 3 * 8 * 8)
    assert (first.parameter_bytes, last.parameter_bytes) == ((4 * 8 + 8) * 8, (8 * 2 + 2) * 8)
    assert (first.flops, last.flops) == (2 * 3 * 4 * 8, 2 * 3 * 8 * 2)


def test_stages_hold_what_their_layers_hold(llama: nn.Module, measured: Profile) -> None:
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    cut = split(llama, program, tokens(), layers=[2, 3, 3, 2], costs=measured)
    whole = profile(cut, tokens(), repeats=1, loss=lambda output: scores(output).square().sum())
    assert cut.profile is not None
    positions = 2 * split_models.LENGTH * split_models.WIDTH * 8  # Cosines and sines, which a stage makes once.
    for stage, layers, n_more in zip(whole.layers, cut.profile.layers, (0, 2, 2, 0)):
        assert stage.name == layers.name
        assert stage.activation_bytes == layers.activation_bytes - n_more * positions
        assert stage.parameter_bytes == layers.parameter_bytes
        assert stage.output_bytes == layers.output_bytes
        assert stage.flops == layers.flops
    assert cut.profile.total.forward == pytest.approx(measured.total.forward)


def test_nothing_of_the_model_changes() -> None:
    model = seeded(split_models.ResNet)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()
    profile(model, pictures(), repeats=1)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is not None and torch.equal(one.grad, torch.ones_like(one)) for one in model.parameters())


def costs_of(seconds: list[float], activation: int = 100, weights: int = 1000) -> Profile:
    """Layers whose whole backward takes twice their forward."""
    return Profile(
        tuple(
            LayerCost(name, one, one, one, 2 * one, activation, weights, 10, 0)
            for name, one in zip(
                ["model.embed_tokens", *(f"model.layers.{number}" for number in range(8)), "model.norm, lm_head"],
                seconds,
            )
        )
    )


def test_the_compiler_reads_them(tmp_path: Path) -> None:
    program = pipec.compile("std:1f1b", devices=4, microbatches=8)
    stages = costs_of([1e-3, *[2e-3] * 8, 5e-3]).merged([3, 3, 2, 2])
    stages.save(tmp_path / "x.profile.json", target="llama", transfer=1e-4)
    by_profile = pipec.check("std:1f1b", devices=4, microbatches=8, profile=tmp_path / "x.profile.json").require()
    by_cost = pipec.check("std:1f1b", devices=4, microbatches=8, cost=f"{stages.cost(program)},comm=100").require()
    assert by_profile.makespan is not None and by_cost.makespan is not None
    assert by_profile.makespan == pytest.approx(by_cost.makespan / 1e3)  # In milliseconds, and in microseconds.
    assert stages.cost(program).startswith("F[0]=5000.000000,BW[0]=10000.000000,F[1]=6000.000000,")
    assert not by_cost.diagnostics
    assert Profile.load(tmp_path / "x.profile.json") == stages == pickle.loads(pickle.dumps(stages))
    assert json.loads((tmp_path / "x.profile.json").read_text())["target"] == "llama"
    units = pipec.check("std:1f1b", devices=4, microbatches=8, activation=stages.activation(program)).require()
    assert units.per_device[0].peak_activation == pytest.approx(4 * 300 / 250)


def test_cuts_follow_the_costs(llama: nn.Module) -> None:
    """A head as long as four blocks leaves the last device fewer of them."""
    costs = costs_of([0.5e-3, *[1e-3] * 8, 4e-3])
    cut = split(llama, pipec.compile("std:1f1b", devices=4, microbatches=8), tokens(), costs=costs)
    assert [len(one) for one in cut.layers] == [4, 3, 2, 1]
    cut = split(llama, pipec.compile("std:v_half", devices=2, microbatches=8), tokens(), costs=costs)
    assert cut.profile is not None
    seconds = [one.forward for one in cut.profile.layers]
    assert seconds[0] + seconds[3] == pytest.approx(6.5e-3) and seconds[1] + seconds[2] == pytest.approx(6e-3)
    assert "F       BW" in str(cut)


def test_cuts_fit_into_the_memory(llama: nn.Module) -> None:
    """1F1B on two devices holds two microbatches on the first one, and one on the last."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=8)
    costs = costs_of([1e-3] * N_LAYERS, activation=1000, weights=100)
    assert [len(one) for one in split(llama, program, tokens(), costs=costs).layers] == [5, 5]
    cut = split(llama, program, tokens(), costs=costs, memory=10_000)
    assert [len(one) for one in cut.layers] == [4, 6]
    with pytest.raises(StageError) as caught:
        split(llama, program, tokens(), costs=costs, memory=5_000)
    assert str(caught.value) == (
        "no cut into 2 stages was found that fits into 4.88 KiB on each device: with balanced times, d0 needs "
        "11.7 KiB, and holds 2 "
        "microbatches at once. Give more memory or devices, recompute, or take a schedule that holds fewer microbatches"
    )


def test_tables() -> None:
    found = costs_of([1.5e-6, *[1.25e-3] * 8, 2.0])
    lines = str(found).splitlines()
    assert lines[:3] == [
        "layer                      F        B        W       BW  activations   weights  output",
        "model.embed_tokens   1.50 us  1.50 us  1.50 us  3.00 us        100 B    1000 B    10 B",
        "model.layers.0       1.25 ms  1.25 ms  1.25 ms  2.50 ms        100 B    1000 B    10 B",
    ]
    assert lines[-1] == "all                   2.01 s   2.01 s   2.01 s   4.02 s       1000 B  9.77 KiB    10 B"
    assert '<tr><td style="text-align:left">model.layers.0</td>' in found._repr_html_()


def test_bad_input_is_explained(llama: nn.Module, tmp_path: Path) -> None:
    program = pipec.compile("std:1f1b", devices=4, microbatches=8)
    costs = costs_of([1e-3] * N_LAYERS)
    with pytest.raises(StageError, match=r"profile of 10 layers, but `1f1b` has 4 stages: take `Split.profile`"):
        costs.cost(program)
    with pytest.raises(StageError, match=r"\[5, 4\] are 9 layers, but 10 were measured"):
        costs.merged([5, 4])
    with pytest.raises(StageError, match=r"`costs=` are of 10 layers, .* but here there are 4"):
        split(llama, program, tokens(), costs=costs, at=[f"model.layers.{number}" for number in (2, 4, 6)])
    with pytest.raises(StageError, match="`repeats` is 0"):
        profile(llama, tokens(), repeats=0)
    (tmp_path / "x.json").write_text('{"schema": "pipec.profile/1"}')
    with pytest.raises(StageError, match=r"no profile that `Profile.save` wrote: KeyError: 'layers'"):
        Profile.load(tmp_path / "x.json")


def test_frozen_layers_have_no_backward() -> None:
    model = seeded(split_models.Llama)
    model.get_submodule("model.embed_tokens").requires_grad_(False)
    model.get_submodule("model.layers.0").requires_grad_(False)

    def loss(output: object) -> Tensor:
        return scores(output).sum()

    found = profile(model, tokens(), repeats=1, loss=loss)
    assert found.layers[1].activation_bytes == 0
    assert found.layers[2].backward_weight > 0
