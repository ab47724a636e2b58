"""Any schedule in torchtitan: its own places of stages, and its own order of tasks.

torchtitan places stages by the name of one of PyTorch's schedules, in turn or as a V. `install` puts a schedule of
`pipec` in the place of those, for all models whose pipelines torchtitan builds::

    import pipec.torchtitan

    pipec.torchtitan.install("std:v_half", devices=4, microbatches=8)

Tried with torchtitan 0.3.0. PyTorch's runtime executes the schedule, so it must be one that `pipec build --emit
torch-csv` writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command import Target
from .compiler import build, compile
from .errors import StageError, UnsupportedError
from .program import Program

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .command import Options

_REPLACED = ("_get_pipeline_metadata", "_get_pp_rank_to_stage_indices_mapping", "_build_pipeline_schedule")


def install(target: Target, **options: Unpack[Options]) -> Program:
    """Lets torchtitan build the pipelines of this process with a schedule. Call it on every rank before the trainer is
    made.

    Args:
        target: A schedule or pipeline, or a table of PyTorch as `.csv`.
        **options: `devices` as `pipeline_parallel_degree`, `microbatches` as `local_batch_size` by
            `pipeline_parallel_microbatch_size`, and the others of `pipec.Options`.

    Returns:
        The program: `stages_on(rank)` has the stages of a rank.

    Raises:
        CompileError: The compiler rejects the target, or PyTorch cannot run it.
        UnsupportedError: torchtitan is missing, or has other functions than the version that this was written for.
    """
    try:
        pipeline_parallel = import_module("torchtitan.distributed.pipeline_parallel")
    except ImportError as error:
        raise UnsupportedError(f"torchtitan cannot be imported: {error}") from error
    missing = [name for name in _REPLACED if not hasattr(pipeline_parallel, name)]
    if missing:
        raise UnsupportedError(f"this torchtitan has no `{missing[0]}`: pipec.torchtitan was written for 0.3.0")
    program = compile(target, **options)
    for name, function in zip(_REPLACED, _functions(pipeline_parallel, program, build(target, "torch-csv", **options))):
        setattr(pipeline_parallel, name, function)
    return program


def _functions(module: Any, program: Program, table: str) -> Sequence[Callable[..., Any]]:
    """What stands in for the functions of torchtitan, in the order of their names."""
    original = module._get_pipeline_metadata

    def metadata(parallel_dims: Any, parallelism: Any, model_config: Any) -> tuple[int, int, int, int]:
        _, n_layers, before, behind = original(parallel_dims, _without_cut(parallelism), model_config)
        return program.n_stages, n_layers, before, behind

    def stages(pp_rank: int, pp_degree: int, pp_schedule: str, num_stages: int) -> tuple[int, ...]:
        if (pp_degree, num_stages) != (program.n_devices, program.n_stages):
            raise StageError(
                f"`{program.name}` is for {program.n_devices} ranks and {program.n_stages} stages, but torchtitan has "
                f"{pp_degree} ranks (pipeline_parallel_degree) and {num_stages} stages (module_fqns_per_model_part)"
            )
        return tuple(program.stages_on(pp_rank))

    def schedule(
        *,
        parallelism: Any,
        local_batch_size: int,
        stages: Sequence[Any],
        loss_fn: Callable[..., Any],
        backward_requires_autograd: bool = True,
    ) -> Any:
        n_microbatches, rest = divmod(local_batch_size, parallelism.pipeline_parallel_microbatch_size)
        if rest != 0 or n_microbatches != program.n_microbatches:
            raise StageError(
                f"`{program.name}` has {program.n_microbatches} microbatches, but local_batch_size {local_batch_size} and "
                f"pipeline_parallel_microbatch_size {parallelism.pipeline_parallel_microbatch_size} make "
                f"{local_batch_size / parallelism.pipeline_parallel_microbatch_size:g}"
            )

        def loss(*arguments: Any, **named: Any) -> Any:
            value, _ = loss_fn(*arguments, **named)
            return value

        made = module._PipelineScheduleRuntime(
            list(stages),
            n_microbatches=n_microbatches,
            loss_fn=loss,
            scale_grads=False,
            backward_requires_autograd=backward_requires_autograd,
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{program.name}.csv"
            path.write_text(table, encoding="utf-8")
            made._load_csv(str(path), format="compute_only")
        return made

    return metadata, stages, schedule


def _without_cut(parallelism: Any) -> Any:
    """A configuration whose numbers of stages torchtitan does not compare with a schedule of its own."""
    return replace(parallelism, pipeline_parallel_schedule="Interleaved1F1B", pipeline_parallel_layers_per_stage=None)
