"""Reading programs, calling the compiler, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipec
from pipec.instruction import read_instruction
from pipec.instructions import RecvStart, Run, SendStart, Wait
from pipec.torch.weights.in_step_updates import in_step_update

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def tiny() -> dict[str, Any]:
    """A stage on a device, written by hand."""
    return {
        "schema": "pipec.program/1",
        "program": {
            "name": "tiny",
            "n_stages": 1,
            "n_microbatches": 1,
            "n_steps": 1,
            "lags": [],
            "values": [{"name": "saved", "kind": "saved_for_weight", "stage": 0, "bytes": 64, "tensors": []}],
            "execs": [
                {"kind": "Forward", "stage": 0, "operands": [{"value": 0, "access": "write"}]},
                {"kind": "Backward", "stage": 0, "operands": [{"value": 0, "access": "read"}]},
            ],
            "devices": [
                {
                    "peak": 64,
                    "buffers": [{"bytes": 64, "offset": 0}],
                    "operands": [0, 0],
                    "n_tokens": 0,
                    "step": [
                        {"alloc": {"buffer": 0}},
                        {"run": {"exec": 0, "microbatch": 0, "operands": {"start": 0, "len": 1}}},
                        {"run": {"exec": 1, "microbatch": 0, "operands": {"start": 1, "len": 1}}},
                        {"free": {"buffer": 0}},
                    ],
                }
            ],
        },
    }


def test_a_program_that_clips_gradients_is_refused() -> None:
    program = tiny()
    program["program"]["values"].append(
        {"name": "gradient_norm", "kind": "gradient_norm", "stage": 0, "bytes": 2048, "tensors": []}
    )
    with pytest.raises(pipec.ProgramError, match="leave `clip_norm` out of the pipeline"):
        pipec.loads(json.dumps(program))


def test_a_program_by_hand() -> None:
    program = pipec.loads(json.dumps(tiny()))
    assert (program.name, program.n_devices, program.n_stages, program.n_microbatches) == ("tiny", 1, 1, 1)
    assert program.devices[0].step[1] == Run(0, 0, (0,))
    assert [program.text(one) for one in program.devices[0].step] == [
        "alloc %0",
        "run @F.s0 m0 (%0)",
        "run @BW.s0 m0 (%0)",
        "free %0",
    ]
    (stage,) = program.stages
    assert stage.is_first and stage.is_last and stage.kinds == {"F", "BW"} and not stage.recomputes


def broken(change: Any) -> str:
    whole = tiny()
    change(whole)
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(schema="pipec.program/2"), r"the schema is `pipec.program/2`, expected `pipec.program/1`"),
        (lambda p: p.pop("schema"), "expected an object with `schema`"),
        (lambda p: p["program"].pop("execs"), "'execs' is missing"),
        (lambda p: p["program"]["execs"][0].update(kind="Sideways"), "the kind of task `Sideways` is unknown"),
        (lambda p: p["program"]["devices"][0]["step"].append({"jump": {}}), "the instruction `jump` is unknown"),
        (lambda p: p["program"]["devices"][0]["step"].append({"free": {"buffer": 7}}), "d0 `free %7`: buffer 7, but"),
        (lambda p: p["program"]["devices"][0]["operands"].pop(), r"operands 1..2 of a run, but the device has 1"),
        (lambda p: p["program"]["execs"][0]["operands"].pop(), "1 buffers for 0 operands"),
    ],
)
def test_what_is_no_program_is_told_so(change: Any, message: str) -> None:
    with pytest.raises(pipec.ProgramError, match=message):
        pipec.loads(broken(change))


def test_text_that_is_not_json() -> None:
    with pytest.raises(pipec.ProgramError, match="not JSON: "):
        pipec.loads("program tiny stages 1")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(tiny()))
    assert pipec.load(path) == pipec.loads(json.dumps(tiny()))
    path.write_text("{}")
    with pytest.raises(pipec.ProgramError, match=r"x\.json: not a program"):
        pipec.load(path)


def test_every_instruction_has_its_text() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"alloc": {"buffer": 1}}, "alloc %1"),
        ({"free": {"buffer": 1}}, "free %1"),
        ({"fill": {"buffer": 1, "value": 2, "with": "zero"}}, "fill %1 = v2 zero"),
        ({"load": {"buffer": 1, "value": 2, "microbatch": 3}}, "load %1 = v2 m3"),
        ({"run": {"exec": 1, "microbatch": 3, "operands": {"start": 1, "len": 2}}}, "run @1 m3 (%8, %9)"),
        ({"emit": {"buffer": 1}}, "emit %1"),
        ({"send.start": {"buffer": 1, "to": 2, "class": "gradient", "token": 4}}, "send.start %1 to d2 gradient -> !4"),
        (
            {"recv.start": {"buffer": 1, "value": 2, "microbatch": 3, "from": 0, "class": "activation", "token": 4}},
            "recv.start %1 = v2 m3 from d0 activation -> !4",
        ),
        (
            {"coll.start": {"buffer": 1, "collective": "all_reduce", "group": 0, "token": 4}},
            "coll.start %1 all_reduce g0 -> !4",
        ),
        ({"gather.start": {"buffer": 1, "share": 2, "group": 0, "token": 4}}, "gather.start %1 = %2 g0 -> !4"),
        ({"copy.start": {"buffer": 1, "from": 2, "direction": "h2d", "token": 4}}, "copy.start %1 = %2 h2d -> !4"),
        ({"lane.start": {"lane": 0, "count": 3, "token": 4}}, "lane.start l0 3 -> !4"),
        ({"wait": {"token": 4}}, "wait !4"),
    ]
    for entry, text in cases:
        assert str(read_instruction(entry, [7, 8, 9])) == text
    table = (ROOT / "docs" / "ir.md").read_text().split("| instruction | what it does |\n")[1].split("\n\n")[0]
    words = {line.split("`")[1].split()[0] for line in table.splitlines()[1:]}
    assert words == {next(iter(entry)) for entry, _ in cases}


def test_compiling_says_who_reads_whom() -> None:
    program = pipec.compile("std:v_half", devices=4, microbatches=8)
    assert (program.n_devices, program.n_stages, program.n_microbatches) == (4, 8, 8)
    assert [program.stages_on(device) for device in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    for stage in program.stages:
        assert [program.values[one.value].name for one in stage.reads] == (
            [] if stage.is_first else [f"activation.s{stage.index - 1}"]
        )
        assert program.microbatches(stage.index, stage.devices[0]) == tuple(range(8))


def test_compiling_a_model_with_skips() -> None:
    program = pipec.compile(EXAMPLES / "unet.pipe")
    names = {stage.index: [program.values[one.value].name for one in stage.reads] for stage in program.stages}
    assert names[1] == ["activation.s0.2", "activation.s0.1"]
    assert names[2] == ["activation.s1", "activation.s0.0"]
    assert [len(stage.writes) for stage in program.stages] == [3, 1, 1, 0]


def test_replicas_and_settings() -> None:
    program = pipec.compile("std:dp_1f1b", devices=4, microbatches=4, settings={"replicas": 2})
    assert program.stages[0].devices == (0, 2)
    assert program.microbatches(0, 0) == (0, 2) and program.microbatches(0, 2) == (1, 3)
    recomputed = pipec.compile("std:1f1b", devices=2, microbatches=2, recompute="0")
    assert [stage.recomputes for stage in recomputed.stages] == [True, False]


def test_a_transfer_has_two_sides() -> None:
    program = pipec.compile("std:1f1b", devices=2, microbatches=2)
    sends = [one for one in program.devices[0].step if isinstance(one, SendStart)]
    receives = [one for one in program.devices[1].step if isinstance(one, RecvStart) and one.kind == "activation"]
    assert len(sends) == len(receives) == 2
    assert any(isinstance(one, Wait) for one in program.devices[0].step)


def test_what_the_compiler_says_is_the_error() -> None:
    with pytest.raises(pipec.CompileError, match="the standard library has no schedule `nosuch`"):
        pipec.compile("std:nosuch")
    with pytest.raises(pipec.CompileError, match="grouped_interleaved"):
        pipec.compile("std:grouped_interleaved", devices=4, microbatches=6)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIPEC", str(tmp_path / "nothing"))
    with pytest.raises(pipec.CompileError, match="which is no program that can be run"):
        pipec.compile("std:1f1b")


@pytest.mark.parametrize(
    ("target", "options", "instruction"),
    [
        (EXAMPLES / "offload.pipe", {}, "copy.start"),
        (EXAMPLES / "zero.pipe", {}, "reduce_scatter"),
        (EXAMPLES / "zero.pipe", {"zero": 3}, "gather.start"),
        ("std:cyclic_dp", {"devices": 2, "microbatches": 2}, "run @U.s"),
    ],
)
def test_programs_that_update_inside_a_step(target: Any, options: dict[str, Any], instruction: str) -> None:
    assert instruction in (in_step_update(pipec.compile(target, **options)) or "")


def test_other_programs_leave_the_update_to_the_user() -> None:
    assert in_step_update(pipec.compile("std:dp_1f1b", devices=4, microbatches=4)) is None
    assert in_step_update(pipec.compile(EXAMPLES / "offload_activations.pipe")) is None


def test_all_standard_schedules_are_read() -> None:
    names = "gpipe 1f1b eager_1f1b interleaved_1f1b looped_bfs grouped_interleaved 1f1b_v hanayo chimera dualpipe"
    names += " dualpipe_v dp_1f1b zb_h1 zb_h2 zb_v v_min v_half v_zb v_flex seq_1f1b cyclic_dp interleaved_zb"
    for name in names.split():
        program = pipec.compile(f"std:{name}", devices=4, microbatches=8)
        assert {device for stage in program.stages for device in stage.devices} == set(range(4))


def test_stages_that_read_earlier_microbatches_are_refused() -> None:
    found = pipec.compile(EXAMPLES / "decode.pipe")
    with pytest.raises(pipec.ProgramError, match="s0 reads another microbatch"):
        _ = found.stages
