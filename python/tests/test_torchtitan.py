"""`pipec.torchtitan` with a stand-in for torchtitan; `.ci/full` runs the real one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

import pipec
import pipec.torchtitan


@dataclass
class Parallelism:
    """What torchtitan has in its configuration."""

    pipeline_parallel_microbatch_size: int = 1
    pipeline_parallel_schedule: str = "1F1B"
    pipeline_parallel_layers_per_stage: int | None = 3


class Runtime:
    """PyTorch's runtime, which only keeps what it is given."""

    def __init__(self, stages: list[Any], **settings: Any) -> None:
        self.settings = settings
        self.table = ""

    def _load_csv(self, path: str, format: str) -> None:
        assert format == "compute_only"
        with open(path, encoding="utf-8") as file:
            self.table = file.read()


@pytest.fixture
def titan(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torchtitan's module of pipelines, as far as it is used."""
    module: Any = ModuleType("torchtitan.distributed.pipeline_parallel")
    module._PipelineScheduleRuntime = Runtime
    module._get_pipeline_metadata = lambda dims, parallelism, model: (
        (8, 30, 1, 1) if parallelism.pipeline_parallel_layers_per_stage is None else None
    )
    module._get_pp_rank_to_stage_indices_mapping = module._build_pipeline_schedule = None
    for name in ("torchtitan", "torchtitan.distributed"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_places_and_order_are_those_of_the_schedule(titan: Any) -> None:
    program = pipec.torchtitan.install("std:hanayo", devices=4, microbatches=8, settings={"waves": 2})
    assert titan._get_pipeline_metadata(None, Parallelism(), None) == (16, 30, 1, 1)
    places = [titan._get_pp_rank_to_stage_indices_mapping(rank, 4, "1F1B", 16) for rank in range(4)]
    assert places == [tuple(program.stages_on(rank)) for rank in range(4)]
    assert sorted(stage for stages in places for stage in stages) == list(range(16))
    made = titan._build_pipeline_schedule(
        parallelism=Parallelism(), local_batch_size=8, stages=[], loss_fn=lambda output, labels: (output + labels, None)
    )
    assert made.table == pipec.build("std:hanayo", "torch-csv", devices=4, microbatches=8, settings={"waves": 2})
    assert made.settings["n_microbatches"] == 8 and made.settings["scale_grads"] is False
    assert made.settings["loss_fn"](1, 2) == 3


def test_other_numbers_of_ranks_and_microbatches_are_refused(titan: Any) -> None:
    pipec.torchtitan.install("std:v_half", devices=4, microbatches=8)
    with pytest.raises(pipec.StageError, match="for 4 ranks and 8 stages, but torchtitan has 2 ranks"):
        titan._get_pp_rank_to_stage_indices_mapping(0, 2, "1F1B", 8)
    with pytest.raises(pipec.StageError, match="has 8 microbatches, but local_batch_size 6 and"):
        titan._build_pipeline_schedule(parallelism=Parallelism(), local_batch_size=6, stages=[], loss_fn=None)


def test_what_cannot_be_installed_is_told(titan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pipec.CompileError, match="PyTorch places every stage on one rank"):
        pipec.torchtitan.install("std:chimera", devices=4, microbatches=8)
    del titan._build_pipeline_schedule
    with pytest.raises(pipec.UnsupportedError, match="this torchtitan has no `_build_pipeline_schedule`"):
        pipec.torchtitan.install("std:v_half", devices=4, microbatches=8)
    monkeypatch.setitem(sys.modules, "torchtitan.distributed.pipeline_parallel", None)
    with pytest.raises(pipec.UnsupportedError, match="torchtitan cannot be imported"):
        pipec.torchtitan.install("std:v_half", devices=4, microbatches=8)
