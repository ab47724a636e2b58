"""torchtitan's own pipeline builder, on CPUs: with V-Half by `pipec.torchtitan` a model learns what it learns with
torchtitan's 1F1B.

The model is a small one with the names of torchtitan's: its own need attention that CPUs have no backward for.

torchrun --nproc-per-node 4 .ci/titan_losses.py
"""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import pipeline_parallel

import pipec.torchtitan

RANKS, MICROBATCHES, ROWS, SEQUENCE, STEPS = 4, 8, 2, 16, 3
WORDS, HIDDEN, LAYERS = 64, 32, 14


class Layer(nn.Module):
    """A residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.down = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, sequence, hidden]`, as it came."""
        return x + self.down(F.silu(self.up(self.norm(x))))


class Model(nn.Module):
    """Parts that another stage has are `None` or missing, as torchtitan splits models."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleDict({str(layer): Layer() for layer in range(LAYERS)})
        self.norm = nn.RMSNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens or hidden states in, hidden states or logits out."""
        h = tokens if self.tok_embeddings is None else self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h)
        return h if self.lm_head is None else self.lm_head(self.norm(h))


def loss(output: Tensor, labels: Tensor, **_: object) -> tuple[Tensor, None]:
    """Like torchtitan's loss: the mean over the tokens of a step, and no further metrics."""
    value = F.cross_entropy(output.flatten(0, 1).float(), labels.flatten(), reduction="sum")
    return value / (MICROBATCHES * ROWS * SEQUENCE), None


def train(mesh: object, **parallelism: object) -> list[float]:
    """The losses of a few steps, on all ranks, with settings beside `1F1B`."""
    torch.manual_seed(1)
    made, parts, is_first, is_last = pipeline_parallel.pipeline_llm(
        Model(),
        parallel_dims=SimpleNamespace(pp=RANKS, get_mesh=lambda name: mesh),
        training=TrainingConfig(local_batch_size=MICROBATCHES * ROWS, seq_len=SEQUENCE),
        parallelism=ParallelismConfig(
            **{"pipeline_parallel_degree": RANKS, **parallelism, "pipeline_parallel_microbatch_size": ROWS}
        ),
        compile_config=CompileConfig(),
        ac_config=None,
        dump_folder="",
        device=torch.device("cpu"),
        model_config=SimpleNamespace(layers=range(LAYERS)),
        parallelize_fn=lambda module, **_: module,
        loss_fn=loss,
    )
    optimizer = torch.optim.SGD([weight for part in parts for weight in part.parameters()], lr=0.5)
    found = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(0, WORDS, (MICROBATCHES, ROWS, SEQUENCE + 1), generator=generator)
        losses: list[Tensor] = []
        made.step(
            arg_mbs=[(one[:, :-1],) for one in tokens] if is_first else None,
            target_mbs=[one[:, 1:] for one in tokens] if is_last else None,
            losses=losses if is_last else None,
            return_outputs=False,
        )
        optimizer.step()
        optimizer.zero_grad()
        total = torch.stack(losses).sum() if is_last else torch.zeros(())
        dist.all_reduce(total)
        found.append(total.item())
    return found


def main() -> None:
    """Compares the two, and says so."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("pp",))
    expected = train(mesh)

    def compare(how: str, found: list[float]) -> None:
        worst = max(abs(one - other) / one for one, other in zip(expected, found))
        assert worst < 1e-5, (how, expected, found)
        if dist.get_rank() == 0:
            print(f"torchtitan with {how}: {STEPS} losses differ by at most {worst:.0e} of those with its own 1F1B")

    # What `--emit torchtitan` and `--emit torch-csv` write, with torchtitan as it is.
    for target in ("std:v_half", "std:zb_h1"):
        settings: dict[str, dict[str, object]] = {}
        exec(pipec.build(target, "torchtitan", devices=RANKS, microbatches=MICROBATCHES), settings)
        table = Path(tempfile.gettempdir()) / f"{dist.get_rank()}.{os.getpid()}.csv"
        table.write_text(pipec.build(target, "torch-csv", devices=RANKS, microbatches=MICROBATCHES))
        found = train(mesh, **{**settings["PARALLELISM"], "pipeline_parallel_schedule_csv": str(table)})
        table.unlink()
        compare(f"the table of {target}", found)
    # Placements that it has no name for as well.
    for target, more in (("std:v_half", {}), ("std:interleaved_1f1b", {}), ("std:hanayo", {"waves": 2})):
        pipec.torchtitan.install(target, devices=RANKS, microbatches=MICROBATCHES, settings=more)
        compare(f"{target} by pipec.torchtitan", train(mesh))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
