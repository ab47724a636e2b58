"""Makes the reference figures in this folder with Hugging Face transformers. README.md says what they are.

Made with Python 3.11.7 and these packages from PyPI, on one thread of an x86-64 processor:

    pip install torch==2.14.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6

Run as `python make.py` in this folder, or as `python make.py gpt2 gemma` for some families. It overwrites one folder
for each family, and stops at the first check that fails.
"""

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

FOLDER = Path(__file__).resolve().parent
STEPS, MICROBATCHES, ROWS, SEQUENCE = 3, 4, 2, 8
LAYERS, VOCABULARY = 6, 40
SPREAD = 0.2
MARGIN = 1e-4
SINGLE, DOUBLE = torch.float32, torch.float64
LOW_PRECISION = {torch.float32, torch.float16, torch.bfloat16, torch.complex64}


def config(kind, **changes):
    """A tiny configuration of the class `kind`: what all families share, and then `changes`."""
    shared = {
        "hidden_size": 16,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "initializer_range": SPREAD,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "use_cache": False,
    }
    if kind is not transformers.GPT2Config:
        shared["intermediate_size"] = 24
    return kind(**(shared | changes))


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def yarn(theta, **more):
    scaled = {"rope_type": "yarn", "rope_theta": theta, "factor": 4.0, "original_max_position_embeddings": 16}
    return scaled | more


def deepseek_v2(**changes):
    return config(
        transformers.DeepseekV2Config,
        kv_lora_rank=8,
        qk_nope_head_dim=4,
        qk_rope_head_dim=4,
        v_head_dim=4,
        first_k_dense_replace=1,
        moe_intermediate_size=12,
        num_experts_per_tok=2,
        n_shared_experts=1,
        rms_norm_eps=1e-5,
        **changes,
    )


def deepseek_v3(**changes):
    shared = {
        "num_key_value_heads": 4,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4,
        "v_head_dim": 4,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 12,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 2,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "num_mtp_layers": 0,
        "rms_norm_eps": 1e-5,
    }
    return config(transformers.DeepseekV3Config, **(shared | changes))


# For each family: the seed of its tokens and weights, then its configuration.
FAMILIES = {
    "gpt2": (
        1,
        lambda: config(transformers.GPT2Config, n_inner=24, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    ),
    "llama2": (
        2,
        lambda: config(transformers.LlamaConfig, num_key_value_heads=4, rms_norm_eps=1e-5),
    ),
    "llama3": (
        3,
        lambda: config(
            transformers.LlamaConfig,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        ),
    ),
    "mistral": (
        4,
        lambda: config(transformers.MistralConfig, num_key_value_heads=2, rms_norm_eps=1e-5, sliding_window=None),
    ),
    "mistral_window": (
        5,
        lambda: config(transformers.MistralConfig, num_key_value_heads=2, rms_norm_eps=1e-5, sliding_window=3),
    ),
    "qwen2": (
        6,
        lambda: config(
            transformers.Qwen2Config,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
    ),
    "qwen3": (
        7,
        lambda: config(transformers.Qwen3Config, num_key_value_heads=2, head_dim=8, rope_parameters=rope(1000000.0)),
    ),
    "qwen2_window": (
        31,
        lambda: config(
            transformers.Qwen2Config,
            num_key_value_heads=2,
            use_sliding_window=True,
            sliding_window=3,
            max_window_layers=2,
            rope_parameters=rope(1000000.0),
        ),
    ),
    "qwen3_window": (
        32,
        lambda: config(
            transformers.Qwen3Config,
            num_key_value_heads=2,
            head_dim=8,
            use_sliding_window=True,
            sliding_window=2,
            layer_types=["full_attention", "sliding_attention"] * 3,
            rope_parameters=rope(1000000.0),
        ),
    ),
    "gemma": (
        8,
        lambda: config(transformers.GemmaConfig, num_key_value_heads=1, head_dim=8),
    ),
    "mixtral": (
        109,
        lambda: config(
            transformers.MixtralConfig,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            rms_norm_eps=1e-5,
            rope_parameters=rope(1000000.0),
        ),
    ),
    "qwen3_moe": (
        45,
        lambda: config(
            transformers.Qwen3MoeConfig,
            num_key_value_heads=2,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            moe_intermediate_size=12,
            decoder_sparse_step=1,
            rope_parameters=rope(1000000.0),
        ),
    ),
    "qwen2_moe": (
        125,
        lambda: config(
            transformers.Qwen2MoeConfig,
            num_key_value_heads=2,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=12,
            shared_expert_intermediate_size=24,
            decoder_sparse_step=1,
            rope_parameters=rope(1000000.0),
        ),
    ),
    "deepseek_v2": (57, lambda: deepseek_v2(q_lora_rank=None, n_routed_experts=4, topk_method="greedy")),
    "deepseek_v2_groups": (
        85,
        lambda: deepseek_v2(
            q_lora_rank=8,
            n_routed_experts=6,
            n_group=3,
            topk_group=2,
            topk_method="group_limited_greedy",
            routed_scaling_factor=1.5,
        ),
    ),
    "deepseek_v3": (13, deepseek_v3),
    "qwen3_yarn": (
        71,
        lambda: config(
            transformers.Qwen3Config,
            num_key_value_heads=2,
            head_dim=8,
            rope_parameters=yarn(1000.0, beta_fast=2.0, beta_slow=0.1),
        ),
    ),
    "deepseek_v3_yarn": (
        21,
        lambda: deepseek_v3(
            rope_parameters=yarn(10000.0, mscale=1.0, mscale_all_dim=0.8, beta_fast=32.0, beta_slow=1.0)
        ),
    ),
}


@contextlib.contextmanager
def in_double():
    """Inside, every cast to single precision that a model asks for is a cast to double precision.

    The models name their casts as `torch.float32`, `torch.float` or `.float()` at the time of the call, so other
    values under those names reach all of them: norms, softmax, rotary angles, routers and their buffers.
    """
    torch.float32 = torch.float = DOUBLE
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(DOUBLE)
    try:
        yield
    finally:
        torch.set_default_dtype(SINGLE)
        del torch.Tensor.float
        torch.float32 = torch.float = SINGLE


class OnlyDouble(TorchDispatchMode):
    """Stops at the first operation, forward or backward, that makes a tensor of less than double precision."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(value, torch.Tensor):
                assert value.dtype not in LOW_PRECISION, f"{function} made a tensor of {value.dtype}"
                self.count += value.dtype == DOUBLE
        return result


@contextlib.contextmanager
def watched_choices(margins):
    """Inside, each top-k choice appends to `margins` how far the last chosen score is above the first one left."""
    of_module, of_tensor = torch.topk, torch.Tensor.topk

    def topk(scores, k, dim=-1, largest=True, sorted=True):
        assert dim in (-1, scores.dim() - 1) and largest
        if k < scores.shape[-1]:
            ordered = scores.detach().sort(dim=-1, descending=True).values
            margins.append((ordered[..., k - 1] - ordered[..., k]).min().item())
        return of_module(scores, k, dim=dim, largest=largest, sorted=sorted)

    torch.topk = torch.Tensor.topk = topk
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = of_module, of_tensor


def build(make_config):
    """A model in the precision that is the default now, without dropout, with the plainest arithmetic."""
    made = make_config()
    made._attn_implementation = "eager"
    made._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(
        made, attn_implementation="eager", experts_implementation="eager"
    )
    assert model.config._attn_implementation == "eager"
    assert model.config._experts_implementation == "eager"
    return model.eval()


def fill(model, random):
    """Sets all weights of `model` to random values that single precision holds exactly."""
    gemma = model.config.model_type == "gemma"
    tensors = dict(model.named_parameters())
    tensors |= {name: b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")}
    with torch.no_grad():
        for name, tensor in tensors.items():
            values = random.standard_normal(tuple(tensor.shape))
            part = name.split(".")[-2]
            gain = tensor.dim() == 1 and name.endswith(".weight")
            assert gain == (name.endswith(".weight") and ("norm" in part or part.startswith("ln_"))), name
            if gain:
                values = 0.1 * values + (0.0 if gemma else 1.0)
            elif name.endswith("bias"):
                values = 0.1 * values
            else:
                values = SPREAD * values
            tensor.copy_(torch.from_numpy(values.astype(np.float32).astype(np.float64)))


def saved_layout(model, state):
    """The tensors of `state`, named and laid out as save_pretrained writes the weights of `model`."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=dict(state))
        assert [path.name for path in Path(folder).glob("*.safetensors")] == ["model.safetensors"]
        return load_file(f"{folder}/model.safetensors")


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1).long())


def losses_and_logits(model, tokens, targets):
    """The losses and logits of the microbatches of one step."""
    for inputs, wanted in zip(tokens, targets, strict=True):
        logits = model(input_ids=inputs.long(), use_cache=False).logits
        yield cross_entropy(logits, wanted), logits


def step_loss(model, tokens, targets):
    with torch.no_grad():
        return sum(loss.item() for loss, _ in losses_and_logits(model, tokens, targets)) / MICROBATCHES


def step_gradient(model, tokens, targets):
    """The loss and the logits of one step; leaves its gradients in the parameters."""
    model.zero_grad(set_to_none=True)
    total, all_logits = 0.0, []
    for loss, logits in losses_and_logits(model, tokens, targets):
        (loss / MICROBATCHES).backward()
        total += loss.item() / MICROBATCHES
        all_logits.append(logits.detach().clone())
    return total, torch.stack(all_logits)


def difference_error(model, tokens, targets, random):
    """How far the gradients are, relatively, from differences of the loss along random directions: the worst."""
    parameters = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    worst = 0.0
    for _ in range(3):
        direction = [torch.from_numpy(random.standard_normal(tuple(p.shape))) for p in parameters]
        length = sum(d.square().sum().item() for d in direction) ** 0.5
        direction = [d / length for d in direction]
        slope = sum((p.grad * d).sum().item() for p, d in zip(parameters, direction, strict=True))

        def loss_at(distance, direction=direction):
            with torch.no_grad():
                for p, s, d in zip(parameters, start, direction, strict=True):
                    p.copy_(s + distance * d)
            return step_loss(model, tokens, targets)

        # The difference quotient of sixth order. The distance is so small that no choice of experts changes.
        h = 5e-4
        near, middle, far = (loss_at(n * h) - loss_at(-n * h) for n in (1, 2, 3))
        measured = (45 * near - 9 * middle + far) / (60 * h)
        worst = max(worst, abs(measured - slope) / abs(slope))
    with torch.no_grad():
        for p, s in zip(parameters, start, strict=True):
            p.copy_(s)
    return worst


def relative(found, wanted):
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def make(family):
    seed, make_config = FAMILIES[family]
    random = np.random.default_rng(seed)
    shape = (STEPS, MICROBATCHES, ROWS, SEQUENCE)
    tokens = torch.from_numpy(random.integers(0, VOCABULARY, shape, dtype=np.int32))
    targets = torch.from_numpy(random.integers(0, VOCABULARY, shape, dtype=np.int32))

    with in_double():
        model = build(make_config)
        fill(model, random)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        assert tensor.dtype == DOUBLE, name
    initial_state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    parameters = dict(model.named_parameters())

    # What is on the hub: the configuration and the weights in single precision.
    folder = FOLDER / family
    folder.mkdir(exist_ok=True)
    single = build(make_config)
    single.load_state_dict(initial_state)
    assert all(tensor.dtype == SINGLE for tensor in single.state_dict().values())
    with tempfile.TemporaryDirectory() as temporary:
        single.save_pretrained(temporary)
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(f"{temporary}/{name}", folder / name)
    saved = load_file(folder / "model.safetensors")

    # Three steps, all in double precision. The gradients of the first are kept.
    expected = {"tokens": tokens, "targets": targets}
    losses, margins = [], []
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False
    )
    with in_double(), watched_choices(margins), OnlyDouble() as only_double:
        for step in range(STEPS):
            loss, logits = step_gradient(model, tokens[step], targets[step])
            losses.append(loss)
            if step == 0:
                expected["logits"] = logits
                gradients = {name: p.grad.detach().clone() for name, p in parameters.items()}
            optimizer.step()
    assert only_double.count > 1000
    expected["losses"] = torch.tensor(losses, dtype=DOUBLE)
    mixture = any(".experts." in name for name in saved)
    assert bool(margins) == mixture
    assert min(margins, default=1.0) > MARGIN, f"{family}: a choice of experts is near a tie: {min(margins)}"

    saved_gradients = saved_layout(model, gradients)
    saved_weights = saved_layout(model, model.state_dict())
    not_trained = {name for name in saved if name.endswith("e_score_correction_bias")}
    assert set(saved_weights) == set(saved) and set(saved_gradients) == set(saved) - not_trained
    for name, tensor in saved.items():
        assert tensor.dtype == SINGLE and tensor.shape == saved_weights[name].shape
        assert name in not_trained or tensor.shape == saved_gradients[name].shape
        assert name not in not_trained or torch.equal(tensor.double(), saved_weights[name])
    assert all(value.dtype == DOUBLE for value in [*saved_gradients.values(), *saved_weights.values()])
    expected |= {f"gradient.{name}": value for name, value in saved_gradients.items()}
    expected |= {f"weight.{name}": value for name, value in saved_weights.items()}
    save_file({name: value.contiguous() for name, value in expected.items()}, folder / "expected.safetensors")

    # The gradients agree with differences of the loss, which they would not if anything were in single precision.
    model.load_state_dict(initial_state)
    with in_double():
        again, _ = step_gradient(model, tokens[0], targets[0])
        assert again == losses[0]
        error = difference_error(model, tokens[0], targets[0], random)
    assert error < 1e-9, f"{family}: the gradients are off by {error} relative to differences of the loss"

    # The first step once more from the saved files, as transformers does it by itself in single precision.
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=SINGLE,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    assert not any(report.values()), report
    assert all(torch.equal(tensor, single.state_dict()[name]) for name, tensor in loaded.state_dict().items())
    loss, logits = step_gradient(loaded.eval(), tokens[0], targets[0])
    off_logits = relative(logits, expected["logits"])
    off_loss = abs(loss - losses[0]) / losses[0]
    found = dict(loaded.named_parameters())
    off_gradient = relative(
        torch.cat([found[name].grad.flatten() for name in gradients]),
        torch.cat([value.flatten() for value in gradients.values()]),
    )
    assert logits.dtype == SINGLE and 1e-9 < off_logits < 1e-5 and off_loss < 1e-5 and off_gradient < 1e-4

    unused = sum(not value.any() for name, value in saved_gradients.items() if ".experts." in name)
    print(
        f"{family:15} seed {seed:3}  losses {' '.join(f'{loss:.6f}' for loss in losses)}"
        f"  spread of logits {expected['logits'].std().item():.2f}"
        f"  differences {error:.0e}  single: logits {off_logits:.0e} loss {off_loss:.0e} gradient {off_gradient:.0e}"
        + (f"  margin {min(margins):.1e}  expert tensors without gradient {unused}" if mixture else "")
        + f"  {sum(path.stat().st_size for path in folder.iterdir()):,} bytes"
    )


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}")
    begun = time.monotonic()
    for family in sys.argv[1:] or FAMILIES:
        make(family)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
