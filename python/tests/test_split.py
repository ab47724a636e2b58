"""Models that are cut into stages compute what they computed whole: in one process, and on ranks of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import split_models
import torch
from cluster import Cluster, needs_groups_within_a_group
from scenes import EXAMPLES
from split_models import LENGTH, SYMBOLS, WIDTH
from torch import Tensor, nn

import pipec
from pipec import StageError
from pipec.torch import Split, split

Make = Callable[[], nn.Module]


def seeded(make: Make, seed: int = 5) -> nn.Module:
    """A model in double precision, the same wherever it is made."""
    torch.manual_seed(seed)
    return make().double()


def tokens(rows: int = 2) -> Tensor:
    """Tokens of some rows."""
    return torch.randint(SYMBOLS, (rows, LENGTH), generator=torch.Generator().manual_seed(3))


def pictures(rows: int = 2) -> Tensor:
    """Small pictures."""
    return torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def vectors(rows: int = 2) -> Tensor:
    """Rows of numbers."""
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def scores(output: Any) -> Tensor:
    """What a model returns, as one tensor."""
    found: Tensor = output["logits"] if isinstance(output, dict) else output
    return found


def through(cut: Split, example: Any) -> Any:
    """What the stages return, one behind the other."""
    flowing: Any = cut.stages[0](**example) if isinstance(example, dict) else cut.stages[0](example)
    for module in cut.stages[1:]:
        flowing = module(*flowing) if isinstance(flowing, tuple) else module(flowing)
    return flowing


def gradients(model: nn.Module, run: Callable[[], Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a run, and the gradients of the model."""
    model.zero_grad()
    torch.manual_seed(1)
    loss = scores(run()).square().sum()
    loss.backward()
    return loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def require_equal(model: nn.Module, cut: Split, example: Any) -> None:
    """Compares losses, gradients and names."""
    loss, expected = gradients(model, lambda: model(**example) if isinstance(example, dict) else model(example))
    other, found = gradients(model, lambda: through(cut, example))
    torch.testing.assert_close(other, loss, rtol=1e-10, atol=1e-10)
    assert found.keys() == expected.keys() == dict(model.named_parameters()).keys()
    for name, one in expected.items():
        torch.testing.assert_close(found[name], one, rtol=1e-10, atol=1e-10, msg=name)
    states = [dict(module.state_dict()) for module in cut.stages]
    assert {name for state in states for name in state} == set(model.state_dict())
    assert cut.unused == ()


CASES: dict[str, tuple[Make, Callable[[], Any], str, dict[str, Any]]] = {
    "blocks": (split_models.Llama, tokens, "std:v_half", {}),
    "names": (split_models.Llama, tokens, "std:1f1b", {"at": ["model.layers.3"]}),
    "export": (split_models.Llama, tokens, "std:v_half", {"by": "export"}),
    "a mask that depends on inputs": (
        split_models.Llama,
        lambda: {"input_ids": tokens(), "attention_mask": (tokens() > 1).long()},
        "std:v_half",
        {},
    ),
    "skips inside of blocks": (split_models.ResNet, pictures, "std:v_half", {}),
    "skips inside of blocks, by export": (split_models.ResNet, pictures, "std:v_half", {"by": "export"}),
    "names in lists": (split_models.ResNet, pictures, "std:1f1b", {"at": ["layer2.1"]}),
    "changes in place": (split_models.InPlace, vectors, "std:v_half", {}),
    "changes in place behind a cut": (split_models.InPlace, vectors, "std:1f1b", {"at": ["relu"]}),
    "changes in place, by export": (split_models.InPlace, vectors, "std:1f1b", {"by": "export", "layers": [1, 2]}),
    "a skip over the cut": (split_models.Skipping, vectors, "std:1f1b", {"at": ["right"]}),
}


@pytest.mark.parametrize("case", CASES)
def test_stages_compute_what_the_model_computes(case: str) -> None:
    make, example, target, options = CASES[case]
    model = seeded(make)
    cut = split(model, pipec.compile(target, devices=2, microbatches=4), example(), **options)
    require_equal(model, cut, example())


def test_blocks_are_found_and_stay_whole() -> None:
    model = seeded(split_models.Llama)
    assert isinstance(model, split_models.Llama)
    cut = split(model, pipec.compile("std:v_half", devices=2, microbatches=4), tokens(), layers=[2, 3, 3, 2])
    assert cut.layers == (
        ("model.embed_tokens", "model.layers.0"),
        ("model.layers.1", "model.layers.2", "model.layers.3"),
        ("model.layers.4", "model.layers.5", "model.layers.6"),
        ("model.layers.7", "model.norm, lm_head"),
    )
    assert cut.stages[1].get_submodule("model.layers.2") is model.model.layers[2]
    assert cut.tied == {"3.lm_head.weight": "0.model.embed_tokens.weight"}
    assert cut.names == {0: "", 1: "", 2: "", 3: ""}
    assert cut.on(0).keys() == {0, 3}
    assert model.config.use_cache
    assert str(cut).splitlines()[1:3] == [
        "   s0      d0  model.embed_tokens, model.layers.0  21.9 KiB",
        "   s1      d1  model.layers.1 .. model.layers.3    60.8 KiB",
    ]
    assert "<td>model.layers.1 .. model.layers.3</td>" in cut._repr_html_()


def test_positions_and_masks_are_made_where_they_are_read() -> None:
    """Only the states go from stage to stage; the inputs' mask goes with them where it is given."""
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    model = seeded(split_models.Llama)
    assert isinstance(split(model, program, tokens()).stages[0](tokens()), Tensor)
    both = {"input_ids": tokens(), "attention_mask": torch.ones_like(tokens())}
    flowing = split(model, program, both).stages[0](**both)
    assert [one.dtype for one in flowing] == [torch.bool, torch.float64]


def test_nothing_of_the_model_changes() -> None:
    model = seeded(split_models.ResNet)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()
    split(model, pipec.compile("std:v_half", devices=2, microbatches=4), pictures())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert type(model.get_submodule("layer1.0")) is split_models.Residual


# On ranks of a pipeline.

N_MICROBATCHES = 4
PIPELINES: dict[str, tuple[Make, Callable[[int], Tensor], dict[str, Any]]] = {
    "llama": (split_models.Llama, tokens, {}),
    "untied": (lambda: split_models.Llama(ties=False), tokens, {"by": "export"}),
    "skip": (split_models.Skipping, vectors, {"at": ["right"]}),
    "resnet": (split_models.ResNet, pictures, {}),
    "in place": (split_models.InPlace, vectors, {}),
}


def loss_of(output: Any, targets: Tensor) -> Tensor:
    """Cross entropy of the last axis."""
    last = scores(output)
    return nn.functional.cross_entropy(last.flatten(0, -2), targets.flatten())


def batch(name: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a step."""
    inputs = PIPELINES[name][1](2 * N_MICROBATCHES)
    shape = inputs.shape if inputs.dtype == torch.int64 else inputs.shape[:1]
    return inputs, torch.randint(5, shape, generator=torch.Generator().manual_seed(4))


def learn(rank: int, group: Any, name: str, target: str) -> tuple[list[float], dict[str, Any]]:
    """Splits a model on each rank and learns for some steps: losses, and the weights under the model's names."""
    make, example, options = PIPELINES[name]
    program = pipec.compile(target, devices=2, microbatches=N_MICROBATCHES)
    cut = split(seeded(make), program, example(2), **options)
    runner = pipec.Runner(program, cut.on(rank), loss_of, group=group, tied=cut.tied, names=cut.names)
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        losses.append(runner.mean_loss(runner.step(*batch(name))))
        optimizer.step()
        optimizer.zero_grad()
    return losses, {key: one.numpy() for key, one in runner.state_dict().items()}


def learn_alone(name: str) -> tuple[list[float], dict[str, Tensor]]:
    """The same without a pipeline."""
    model = seeded(PIPELINES[name][0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, targets = batch(name)
    losses = []
    for _ in range(3):
        total = 0.0
        for rows, goals in zip(inputs.chunk(N_MICROBATCHES), targets.chunk(N_MICROBATCHES)):
            loss = loss_of(model(rows), goals) / N_MICROBATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        optimizer.step()
        optimizer.zero_grad()
    return losses, dict(model.state_dict())


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("llama", "std:1f1b"),
        ("llama", "std:v_half"),
        ("llama", "std:zb_h1"),
        ("untied", "std:v_half"),
        ("skip", "std:zb_h1"),
        ("resnet", "std:v_half"),
        ("in place", "std:zb_h1"),
    ],
)
def test_ranks_learn_what_one_process_learns(cluster: Cluster, name: str, target: str) -> None:
    # V-Half has both ends of the model on one device, where its tied weights are one.
    needs_groups_within_a_group(name == "llama" and target != "std:v_half")
    losses, expected = learn_alone(name)
    answers = cluster.run(learn, 2, name, target)
    found = {key: torch.from_numpy(one) for _, state in answers for key, one in state.items()}
    for own, _ in answers:
        assert own == pytest.approx(losses, rel=1e-10)
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        torch.testing.assert_close(found[key], one, rtol=1e-10, atol=1e-10, msg=key)


def other_cut(rank: int, group: Any) -> str:
    """What is said where ranks have cut the model differently."""
    program = pipec.compile("std:1f1b", devices=2, microbatches=N_MICROBATCHES)
    cut = split(seeded(split_models.Skipping), program, vectors(), at=["left", "right"], layers=[1 + rank, 2 - rank])
    try:
        pipec.Runner(program, cut.on(rank), loss_of, group=group, tied=cut.tied, names=cut.names)
    except StageError as error:
        return str(error)
    return "nothing"


def test_ranks_have_the_same_cut(cluster: Cluster) -> None:
    assert (
        cluster.run(other_cut, 2)
        == [
            "ranks make their runners with different settings: the cut of the model is before `left` on rank "
            "0, before `right, last` on rank 1"
        ]
        * 2
    )


# What does not fit.


class Looks(nn.Module):
    """Takes another path where numbers are large."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if x.sum() > 0 else block(-x)
        return x


class Twice(nn.Module):
    """Calls a module twice, and another one never."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.spare = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.right(torch.tanh(self.left(torch.tanh(self.left(x)))))
        return found


class Opaque(nn.Module):
    """Hands on what is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.note = Notes()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.right(self.note(self.left(x)).value)
        return found


class Note:
    """No tensor."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Notes(nn.Module):
    def forward(self, x: Tensor) -> Note:
        return Note(x)


class Counts(nn.Module):
    """Returns something else each time."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.calls = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1.0
        found: Tensor = self.right(self.left(x) * self.calls)
        return found


def said(model: nn.Module, example: Any, target: str = "std:v_half", **options: Any) -> str:
    """What is said of a model that cannot be split."""
    with pytest.raises(StageError) as caught:
        split(model.double(), pipec.compile(target, devices=2, microbatches=4), example, **options)
    return str(caught.value)


def test_bad_input_is_explained() -> None:
    llama = split_models.Llama(n_layers=4)
    assert said(llama, tokens(), at=["model.layers.7"]) == (
        "there is no module `model.layers.7`: `model.layers` has `0`, `1`, `2`, `3`"
    )
    assert said(llama, tokens(), at=["model.norm", "model.norm"]) == "`at=` names `model.norm` twice: each place once"
    assert said(llama, tokens(), at=["model.layers.1", "model.layers.2"]) == (
        "`v_half` has 4 stages, but the model can be cut into 3 layers: `model.embed_tokens, model.layers.0`, "
        "`model.layers.1`, "
        "`model.layers.2 .. lm_head`. Name more modules, or compile the program for fewer stages"
    )
    assert said(split_models.Llama(n_layers=2), tokens(), "std:v_half", layers=[1, 1, 1, 2]) == (
        "`layers=` is [1, 1, 1, 2]: expected 4 numbers from 1 on, whose sum is the number of layers, 4: "
        "`model.embed_tokens`, "
        "`model.layers.0`, `model.layers.1`, `model.norm, lm_head`"
    )
    assert said(llama, {"input_ids": tokens(), "words": tokens()}) == (
        "the example does not fit `Llama.forward`: got an unexpected keyword argument 'words'"
    )
    assert said(llama, tokens().double()).startswith(
        "the model does not run on the example, float64[2, 6]: RuntimeError: Expected tensor for argument #1 'indices'"
    )
    assert said(llama, tokens(), by="layers") == '`by` is \'layers\', expected "blocks" or "export"'
    assert said(llama, tokens(), by="blocks", at=["lm_head"]).startswith(
        "`at=` names the places to cut, and `by=` asks"
    )
    assert said(llama, tokens(), memory=1e6) == (
        "`memory=` needs `costs=`, which has the bytes of the layers: profile(model, example)"
    )
    assert said(split_models.Skipping(), vectors(), by="blocks") == (
        "`Skipping` has no list of several modules of one class: name the modules to cut at with `at=`"
    )


def test_models_that_cannot_be_split_are_explained() -> None:
    skipping = said(split_models.Skipping(), vectors(), by="export")
    assert (
        "the model can be cut into 3 layers: `first`, `left, right`, `last`. Inside `left, right` several" in skipping
    )
    assert skipping.endswith("name modules to cut at with `at=`, and they cross the cut together")
    looks = said(Looks(), vectors())
    assert looks.startswith("torch.export cannot trace what the forward of `Looks` does between its modules: ")
    assert said(Opaque(), vectors(), "std:1f1b", at=["note"]) == (
        "the model cannot be cut at `note`, which returns a `Note`: only tensors, numbers and texts go from "
        "stage to stage"
    )
    assert "numbers than the model, by up to" in said(Counts(), vectors(), "std:1f1b", at=["right"])
    model = seeded(Opaque)
    cut = split(model, pipec.compile("std:1f1b", devices=2, microbatches=4), vectors(), at=["right"])
    require_equal(model, cut, vectors())


def test_programs_that_are_no_chains_are_refused() -> None:
    with pytest.raises(StageError) as caught:
        split(seeded(split_models.Llama), pipec.compile("std:seq_1f1b", devices=2, microbatches=4), tokens())
    assert str(caught.value) == (
        "`seq_1f1b` cuts microbatches along their sequence, and a model does not say what its layers carry "
        "from slice to slice: "
        "write its stages by hand"
    )
    with pytest.raises(StageError) as caught:
        split(seeded(split_models.Llama), pipec.compile(EXAMPLES / "unet.pipe", devices=2, microbatches=4), tokens())
    assert "reads s" in str(caught.value) and str(caught.value).endswith(
        "`split` makes chains, where each stage reads the one before it"
    )


def test_modules_that_are_not_called_once() -> None:
    assert said(Twice(), vectors(), "std:1f1b", at=["left"]) == (
        "the forward calls `left` 2 times, so it cannot begin a stage"
    )
    assert said(Twice(), vectors(), "std:1f1b", at=["spare"]) == (
        "the forward does not call `spare` on the example, so it cannot begin a stage"
    )
    cut = split(
        seeded(Twice), pipec.compile("std:1f1b", devices=2, microbatches=4), vectors(), layers=[1, 1], at=["right"]
    )
    assert cut.unused == ("spare.weight", "spare.bias")


def test_a_module_in_two_stages_is_tied() -> None:
    model = seeded(Twice)
    cut = split(model, pipec.compile("std:v_half", devices=1, microbatches=2), vectors(), by="export", layers=[1, 2])
    assert cut.tied == {"1.left.weight": "0.left.weight", "1.left.bias": "0.left.bias"}
    _, expected = gradients(model, lambda: model(vectors()))
    _, found = gradients(model, lambda: through(cut, vectors()))
    assert expected.keys() == found.keys() and all(torch.equal(one, found[name]) for name, one in expected.items())


def test_other_shapes_than_those_of_the_example_are_refused() -> None:
    cut = split(seeded(split_models.Llama), pipec.compile("std:1f1b", devices=2, microbatches=4), tokens(2))
    with pytest.raises(StageError) as caught:
        cut.stages[0](tokens(3))
    assert str(caught.value) == (
        "`input_ids` is [3, 6], but the model was split for [2, 6]: give `split` a microbatch of this shape as "
        "example, or in `also=`"
    )
