"""Three steps of Muon on some of the models of make.py, in double precision: FAMILY/muon.safetensors.

Matrices of the blocks follow `torch.optim.Muon`, each expert's for itself; all other parameters follow
`torch.optim.AdamW`. Both have the same learning rate and weight decay.
"""

import contextlib

import numpy as np
import torch
from safetensors.torch import save_file

import make

FAMILIES = ("gpt2", "llama3", "mixtral")
RATE, DECAY = 1e-3, 0.1

# How near to a tie a choice of experts may be: comparisons are in double precision only.
MARGIN = 1e-6


@contextlib.contextmanager
def orthogonal_in_double():
    """`torch.optim.Muon` rounds to bfloat16 while it makes matrices orthogonal: here it does not."""
    rounded = torch.bfloat16
    torch.bfloat16 = torch.float64
    try:
        yield
    finally:
        torch.bfloat16 = rounded


def matrices(parameters):
    """Of each parameter that is in a block and has several axes: its matrices, which share its memory."""
    found = {}
    for name, parameter in parameters.items():
        if ".h." not in name and ".layers." not in name or parameter.dim() < 2:
            continue
        parts = list(parameter.data) if parameter.dim() == 3 else [parameter.data]
        if name.endswith("gate_up_proj"):
            parts = [half for part in parts for half in part.chunk(2)]
        found[name] = [torch.nn.Parameter(part) for part in parts]
    return found


def gradients_of(parameter, name):
    """The gradients of these matrices, in the same order."""
    parts = list(parameter.grad) if parameter.dim() == 3 else [parameter.grad]
    return [half for part in parts for half in part.chunk(2)] if name.endswith("gate_up_proj") else parts


def main(family):
    seed, make_config = make.FAMILIES[family]
    random = np.random.default_rng(seed)
    shape = (make.STEPS, make.MICROBATCHES, make.ROWS, make.SEQUENCE)
    tokens = torch.from_numpy(random.integers(0, make.VOCABULARY, shape, dtype=np.int32))
    targets = torch.from_numpy(random.integers(0, make.VOCABULARY, shape, dtype=np.int32))
    with make.in_double():
        model = make.build(make_config)
        make.fill(model, random)
    parameters = dict(model.named_parameters())
    whole = matrices(parameters)
    muon = torch.optim.Muon(
        [matrix for parts in whole.values() for matrix in parts],
        lr=RATE,
        weight_decay=DECAY,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(
        [parameter for name, parameter in parameters.items() if name not in whole],
        lr=RATE,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=DECAY,
        foreach=False,
    )
    losses, margins = [], []
    with make.in_double(), make.watched_choices(margins), make.OnlyDouble(), orthogonal_in_double():
        for step in range(make.STEPS):
            loss, _ = make.step_gradient(model, tokens[step], targets[step])
            losses.append(loss)
            for name, parts in whole.items():
                for matrix, gradient in zip(parts, gradients_of(parameters[name], name), strict=True):
                    matrix.grad = gradient
            muon.step()
            adamw.step()
    assert min(margins, default=1.0) > MARGIN, f"{family}: a choice of experts is near a tie: {min(margins)}"
    expected = {"losses": torch.tensor(losses, dtype=make.DOUBLE)}
    expected |= {f"weight.{name}": value for name, value in make.saved_layout(model, model.state_dict()).items()}
    assert all(value.dtype == make.DOUBLE for value in expected.values())
    save_file({name: value.contiguous() for name, value in expected.items()}, make.FOLDER / family / "muon.safetensors")
    print(family, losses, len(whole), "parameters are matrices")


if __name__ == "__main__":
    for each in FAMILIES:
        main(each)
