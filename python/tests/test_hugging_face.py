"""Models of Hugging Face, where transformers is installed (`.ci/full` does so): small ones with random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pipec
from pipec.torch import profile, split

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


def llama(**options: Any) -> nn.Module:
    """A small Llama."""
    config = transformers.LlamaConfig(**SIZES, num_hidden_layers=8, num_key_value_heads=2, **options)
    made: nn.Module = transformers.LlamaForCausalLM(config)
    return made.double()


def gpt2() -> nn.Module:
    """A small GPT-2, with dropout."""
    config = transformers.GPT2Config(vocab_size=100, n_embd=64, n_layer=8, n_head=4)
    made: nn.Module = transformers.GPT2LMHeadModel(config)
    return made.double()


def tokens() -> Tensor:
    """Tokens of two rows."""
    return torch.randint(100, (2, 12), generator=torch.Generator().manual_seed(3))


def padded() -> dict[str, Tensor]:
    """The same, where the second row is shorter."""
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, :4] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (llama, lambda: {"input_ids": tokens()}, {}),
    "llama, tied": (lambda: llama(tie_word_embeddings=True), lambda: {"input_ids": tokens()}, {}),
    "llama with a mask": (llama, padded, {}),
    "llama by export": (llama, lambda: {"input_ids": tokens()}, {"by": "export"}),
    "gpt2": (gpt2, lambda: {"input_ids": tokens()}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_stages_compute_what_the_model_computes(case: str) -> None:
    make, example, options = CASES[case]
    torch.manual_seed(5)
    model, given = make(), example()
    cut = split(model, pipec.compile("std:v_half", devices=2, microbatches=4), given, **options)
    found: list[tuple[type, Tensor, dict[str, Tensor]]] = []
    for _ in range(2):
        torch.manual_seed(1)
        model.zero_grad()
        if not found:
            output = model(**given, use_cache=False)
        else:
            output = cut.stages[0](**given)
            for module in cut.stages[1:]:
                output = module(*output) if isinstance(output, tuple) else module(output)
        output.logits.square().sum().backward()
        found.append((type(output), output.logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}))
    (kind, logits, expected), (other_kind, other_logits, gradients) = found
    assert kind is other_kind
    torch.testing.assert_close(other_logits, logits, rtol=1e-10, atol=1e-10)
    for name, one in expected.items():
        torch.testing.assert_close(gradients[name], one, rtol=1e-10, atol=1e-10, msg=name)
    assert {name for module in cut.stages for name in module.state_dict()} == set(model.state_dict())


def test_blocks_are_found_and_tied_weights() -> None:
    program = pipec.compile("std:v_half", devices=2, microbatches=4)
    cut = split(gpt2(), program, tokens())
    assert cut.layers[1] == ("transformer.h.2", "transformer.h.3")
    assert cut.tied == {"3.lm_head.weight": "0.transformer.wte.weight"}
    both = split(llama(), program, tokens()).stages[0](tokens())
    assert isinstance(both, Tensor)  # Positions are made by each stage.


def test_layers_are_measured() -> None:
    found = profile(llama(), tokens(), repeats=1)
    assert [one.name for one in found.layers][:2] == ["model.embed_tokens", "model.layers.0"]
    assert found.layers[1].flops == found.layers[8].flops > 0
