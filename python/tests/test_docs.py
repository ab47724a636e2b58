"""The Python on the page about splitting runs as it is shown, on four ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import split_models
import torch
import torch.distributed as dist
from cluster import Cluster
from torch import Tensor, nn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python_split.md"
N_STEPS = 3


class Scores(nn.Module):
    """A model that returns a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.model = split_models.Decoder(8)
        self.lm_head = nn.Linear(split_models.WIDTH, split_models.SYMBOLS)

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.lm_head(self.model(input_ids))
        return found


def build_model() -> Scores:
    """The same on all ranks."""
    torch.manual_seed(5)
    return Scores().double()


def fill_buffers(module: nn.Module) -> None:
    """Fills the frequencies of positions, which are in no state."""
    for name, one in module.named_buffers():
        if name.endswith("frequencies"):
            one.copy_(split_models.Rotary().double().frequencies)


def blocks() -> list[str]:
    """The blocks of Python on the page."""
    return [one.split("```")[0] for one in PAGE.read_text().split("```python\n")[1:]]


def run_page(rank: int, group: Any, folder: str) -> dict[str, Any]:
    """Runs the blocks one after the other, and returns what was printed and some of what they have made."""
    own = Path(folder) / str(rank)
    own.mkdir()
    os.chdir(own)
    draws = torch.Generator().manual_seed(3)
    drawn = [
        torch.randint(split_models.SYMBOLS, (16, split_models.LENGTH + 1), generator=draws) for _ in range(N_STEPS)
    ]
    batches = [(one[:, :-1], one[:, 1:]) for one in drawn]
    torch.save(build_model().state_dict(), "model.pt")
    printed: list[Any] = []
    names: dict[str, Any] = {
        "build_model": build_model,
        "batches": batches,
        "example": batches[0][0][:2],
        "fill_buffers": fill_buffers,
        "print": printed.append,
    }
    with mock.patch.object(dist, "init_process_group", lambda backend: None):
        for block in blocks():
            exec(compile(block, PAGE.name, "exec"), names)
            if "cut" not in names:
                names["plain"] = printed[:]
    return {
        "plain": names["plain"],
        "pipelined": printed[N_STEPS : 2 * N_STEPS],
        "makespans": [printed[2 * N_STEPS + 1], names["found"].makespan],
        "layers": names["cut"].layers,
        "table": str(names["cut"]).splitlines()[0],
    }


def test_the_page_about_splitting(cluster: Cluster, tmp_path: Path) -> None:
    assert len(blocks()) == 8
    answers = cluster.run(run_page, 4, str(tmp_path))
    for one in answers:
        assert len(one["plain"]) == len(one["pipelined"]) == N_STEPS
        torch.testing.assert_close(one["plain"], one["pipelined"], rtol=1e-10, atol=1e-10)
        assert all(makespan > 0 for makespan in one["makespans"])
        assert one["layers"] == answers[0]["layers"]
        assert one["table"].split() == ["stage", "device", "layers", "weights", "F", "BW"]
