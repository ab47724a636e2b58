"""What `check`, `search`, `tune` and `plot` return, where the compiler is found, and that none of it needs PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import pipec
from pipec.reports import tune_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
STUCK = """schedule stuck {
  stages D
  place s on s
  order d { repeat M { BW[d] F[d] } }
}
"""


def test_check_says_what_the_command_line_says() -> None:
    found = pipec.check("std:v_half", devices=4, microbatches=8, cost="F=1,B=1,W=1")
    assert (found.ok, found.devices, found.stages, found.tasks) == (True, 4, 8, 192)
    assert (found.makespan, found.lower_bound, found.gap, found.peak_activation) == (53.0, 53.0, 0.0, 3.0)
    assert [one.device for one in found.per_device] == [0, 1, 2, 3]
    assert found.json["schema"] == "pipec.check/1" and found.require() is found
    assert str(found).splitlines() == [
        "v_half: accepted, 4 devices, 8 stages, 8 microbatches",
        "  makespan 53, lower bound 53, mean bubble 9.4%, peak activation 3 units",
    ]


def test_a_rejected_source_has_diagnostics_with_their_place() -> None:
    found = pipec.check(pipec.Source(STUCK))
    assert not found.ok and found.makespan is None
    first = found.diagnostics[0]
    assert first.severity == "error" and first.code and first.line is not None and first.line > 1
    assert f"[{first.code}]" in str(found)
    with pytest.raises(pipec.CompileError, match=first.code):
        found.require()


UNKNOWN_WORD = "schedule mine {\n stages D\n plaze s on s\n"


def test_what_cannot_be_drawn_is_shown_as_diagnostics() -> None:
    found = pipec.check(pipec.Source(UNKNOWN_WORD), devices=2)
    for shown in (found._repr_html_(), pipec.plot(pipec.Source(UNKNOWN_WORD), devices=2)._repr_html_()):
        assert shown.startswith("<pre") and "font-family: monospace" in shown
        assert "unknown keyword `plaze`" in shown and "&lt;stdin&gt;:3:2" in shown and "<stdin>" not in shown
    wrong = pipec.plot("std:1f1b", cost="X")
    assert "invalid value `X` for `cost=`" in wrong._repr_html_()
    assert "<iframe" in pipec.check("std:1f1b", memory=1)._repr_html_()


def test_what_is_required_is_told_as_by_compile() -> None:
    source = pipec.Source(UNKNOWN_WORD)
    with pytest.raises(pipec.CompileError) as of_compile:
        pipec.compile(source, devices=2)
    with pytest.raises(pipec.CompileError) as of_check:
        pipec.check(source, devices=2).require()
    assert str(of_check.value) == str(of_compile.value) and "3 │  plaze s on s" in str(of_check.value)
    with pytest.raises(pipec.CompileError, match="run backward tasks on d0 earlier"):
        pipec.check("std:1f1b", memory=1).require()


def test_results_are_short_texts() -> None:
    assert repr(pipec.compile("std:1f1b")) == "Program(1f1b: 4 devices, 4 stages, 8 microbatches, 512 instructions)"
    found = pipec.check("std:1f1b")
    assert repr(found) == ("Check(1f1b: accepted, 4 devices, 4 stages, 8 microbatches, 512 instructions, makespan 33)")
    assert repr(pipec.check(pipec.Source(STUCK))).startswith("Check(stuck: rejected, 1 diagnostic)")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cost": "X"}, "error: invalid value `X` for `cost=`: `X`: expected name=number"),
        ({"devices": -2}, "error: invalid value `-2` for `devices=`: expected a whole number"),
        ({"zero": 7}, "error: invalid value `7` for `zero=`: expected 0, 1, 2 or 3"),
    ],
)
def test_wrong_options_are_told_in_words_of_python(options: Any, said: str) -> None:
    with pytest.raises(pipec.CompileError) as error:
        pipec.check("std:1f1b", **options)
    assert str(error.value).startswith(said) and "--" not in str(error.value) and "sage" not in str(error.value)


def test_tune_needs_a_cluster() -> None:
    with pytest.raises(TypeError, match=r'`tune` needs `cluster=`: .* such as `cluster="cluster.toml"`'):
        pipec.tune("std:1f1b")
    found = tune_of({"ok": False, "target": "mine.pipe"})
    assert not found.ok and repr(found) == "Tune(mine.pipe: nothing fits)"
    assert str(found) == "nothing that was tried for mine.pipe fits"
    assert found._repr_html_().startswith("<pre")
    with pytest.raises(pipec.CompileError):
        found.as_source()


def test_wrong_use_is_an_error() -> None:
    with pytest.raises(pipec.CompileError, match=r"nowhere\.pipe: No such file"):
        pipec.check("nowhere.pipe")
    with pytest.raises(pipec.CompileError, match="no schedule `v_haf`"):
        pipec.check("std:v_haf")
    with pytest.raises(TypeError, match="there is no option `device`; there are activation, cluster, cost, devices"):
        pipec.check("std:v_half", device=4)  # type: ignore[call-arg]


def test_what_a_search_finds_is_a_target(tmp_path: Path) -> None:
    found = pipec.search("std:1f1b", devices=2, microbatches=3, cost="F=1,B=1,W=1", rounds=1)
    assert found.ok and found.makespan == 10.0 and found.proved_optimal and found.seconds is not None
    again = pipec.check(found.as_source(), cost="F=1,B=1,W=1")
    assert again.makespan == found.makespan
    assert pipec.compile(found.as_source()).n_microbatches == 3
    found.save(tmp_path / "found.pipe")
    assert pipec.check(tmp_path / "found.pipe", devices=2, microbatches=3).ok
    assert "<svg" in found.picture.svg


def test_tune_lists_candidates(tmp_path: Path) -> None:
    found = pipec.tune(
        EXAMPLES / "llama3_70b.pipe",
        cluster=EXAMPLES / "cluster.toml",
        settings={"tensor": 4, "devices": 4, "zero": 1},
        schedules=["1f1b", "v_half"],
        best=2,
    )
    assert found.ok and found.complete and len(found.best) == 2
    first, second = found.best
    assert first.schedule in ("1f1b", "v_half") and (first.tensor, first.devices) == (4, 4)
    assert first.step <= second.step and first.peak_bytes > 0
    assert found.columns["step"] == [first.step, second.step]
    assert found._repr_html_().count("<tr>") == 3
    assert repr(found).endswith(
        f"2 candidates, the first {first.schedule} on 4 devices, 128 microbatches, {first.step:.6g} ms)"
    )
    head, *rows = str(found).splitlines()
    assert head.split()[:3] == ["step", "MFU", "mean"] and len(rows) == 2
    assert rows[0].endswith(f"{first.schedule}, zero 1, sequence parallel")
    program = pipec.compile(found.as_source())
    assert (program.n_devices, program.n_microbatches) == (4, 128)
    assert pipec.check(found.as_source()).schedule == first.schedule
    found.save(tmp_path / "best.pipe")
    assert "llama3_70b" in (tmp_path / "best.pipe").read_text()


def test_an_order_that_tune_has_found_is_a_target() -> None:
    source = """// Found by `pipec tune`
pipeline mine {
    model "sizes.json"(
        sequence = 8,
        rows = 1
    )
    devices 2 memory 80GiB
    microbatches 3
    schedule found
    offload optimizer
}

schedule found {
    stages D
    place s on s
    block every 3 { F[s] at s  BW[s] at D + 2 * (D - 1 - s) }
}
"""
    found = tune_of({"ok": True, "target": "mine.pipe", "source": source})
    program = pipec.compile(found.as_source())
    assert (program.n_devices, program.n_stages, program.n_microbatches) == (2, 2, 3)


def test_pictures_are_pages_and_figures(tmp_path: Path) -> None:
    drawn = pipec.plot("std:1f1b", devices=2, microbatches=2)
    assert drawn.svg.startswith("<svg") and "<html" in drawn.page
    frame = drawn._repr_html_()
    assert frame.startswith('<iframe srcdoc="') and "<script" not in frame and "&lt;script" in frame
    drawn.save(tmp_path / "figure.pdf", for_="paper", width="85mm", title="none")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(pipec.CompileError, match=r"\.svg"):
        drawn.save(tmp_path / "figure.png")
    assert "<svg" in pipec.check(pipec.Source(STUCK)).picture.svg


def test_the_compiler_is_found_beside_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = tmp_path / "pipec"
    installed.write_text("#!/bin/sh\necho installed\n")
    installed.chmod(0o755)
    paths = sysconfig.get_path

    def path(name: str, scheme: str = "posix_prefix") -> str:
        return str(tmp_path) if name == "scripts" else paths(name, scheme)

    monkeypatch.delenv("PIPEC")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sysconfig, "get_path", path)
    assert pipec.find_compiler() == str(installed)
    installed.chmod(0o644)
    with pytest.raises(pipec.CompileError, match="pip install pipec"):
        pipec.find_compiler()


def test_nothing_but_the_runner_needs_pytorch() -> None:
    program = """
import sys
sys.modules["torch"] = None
import pipec
assert pipec.check("std:1f1b", devices=2, microbatches=2).ok
assert pipec.compile("std:1f1b", devices=2, microbatches=2).n_devices == 2
try:
    pipec.Runner
except ImportError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == '`pipec.Runner` needs PyTorch 2.7 or later: pip install "pipec[torch]"\n'


def test_the_module_is_the_program() -> None:
    ended = subprocess.run([sys.executable, "-m", "pipec", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("pipec ")
    failed = subprocess.run(
        [sys.executable, "-m", "pipec", "check", "nowhere"], capture_output=True, env=os.environ, check=False
    )
    assert failed.returncode == 2
