"""The Python of whole pages and scripts runs as it is shown, on four ranks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import split_models
import torch
import torch.distributed as dist
from cluster import ALL, Cluster
from torch import Tensor, nn

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "python_split.md"
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


@ALL
def test_the_page_about_splitting(cluster: Cluster, tmp_path: Path) -> None:
    assert len(blocks()) == 8
    answers = cluster.run(run_page, 4, str(tmp_path))
    for one in answers:
        assert len(one["plain"]) == len(one["pipelined"]) == N_STEPS
        torch.testing.assert_close(one["plain"], one["pipelined"], rtol=1e-10, atol=1e-10)
        assert all(makespan > 0 for makespan in one["makespans"])
        assert one["layers"] == answers[0]["layers"]
        assert one["table"].split() == ["stage", "device", "layers", "weights", "F", "BW"]


def script() -> str:
    """The complete script on the page about Python, with fewer steps."""
    page = (DOCS / "python.md").read_text()
    block = page.split("## A complete script\n")[1].split("```python\n")[1].split("```")[0]
    sizes = "N_STEPS, SAVE_EVERY, FOLDER = 1000, 100, "
    assert sizes in block
    return block.replace(sizes, "N_STEPS, SAVE_EVERY, FOLDER = 6, 2, ")


def rows_of(seed: int) -> tuple[Tensor, Tensor]:
    """A batch: symbols, and those that follow them."""
    draws = torch.Generator().manual_seed(seed)
    drawn = torch.randint(split_models.SYMBOLS, (16, split_models.LENGTH + 1), generator=draws)
    return drawn[:, :-1], drawn[:, 1:]


def run_script(rank: int, group: Any, folder: str, ends_at: int) -> list[tuple[Any, ...]]:
    """Runs the script up to a step that has no batch, and returns what it prints."""
    os.chdir(folder)
    printed: list[tuple[Any, ...]] = []

    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        if step == ends_at:
            raise InterruptedError
        return rows_of(step)

    names: dict[str, Any] = {
        "build_model": build_model,
        "example": rows_of(0)[0][:2],
        "batch_of": batch_of,
        "held_out": rows_of(99),
        "print": lambda *words: printed.append(words),
    }
    with mock.patch.object(dist, "init_process_group", lambda backend: None), suppress(InterruptedError):
        exec(compile(script(), "python.md", "exec"), names)
    return printed


def learned_alone() -> list[tuple[Any, ...]]:
    """What the script should print, by a loop in one process."""
    model = build_model()
    printed: list[tuple[Any, ...]] = []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)

    def loss_of(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    for step in range(6):
        loss = loss_of(rows_of(step))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        printed.append((step, loss.item(), norm.item()))
        if step % 2 == 1:
            printed.append(("held out", loss_of(rows_of(99)).item()))
    return printed


@ALL
def test_the_complete_script_goes_on_from_its_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    expected = learned_alone()
    # The first run ends behind step 4, whose checkpoint is that of step 3.
    began, *silent = cluster.run(run_script, 4, str(tmp_path), 5)
    went_on, *_ = cluster.run(run_script, 4, str(tmp_path), -1)
    assert silent == [[]] * 3
    for found, wanted in ((began, expected[:7]), (went_on, expected[6:])):
        assert [one[0] for one in found] == [one[0] for one in wanted]
        for one, other in zip(found, wanted):
            assert one[1:] == pytest.approx(other[1:], rel=1e-8)
