"""Where the compiler is: the `pipec` program that the wheel brings, or another that the user names."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from .errors import CompileError

_NAME = "pipec.exe" if sys.platform == "win32" else "pipec"


def find_compiler() -> str:
    """The path of the `pipec` program.

    It is what the environment variable `PIPEC` names, or else the one that was installed with this package (whether or
    not its virtual environment is activated), or else the first on `PATH`.

    Raises:
        CompileError: There is none.
    """
    named = os.environ.get("PIPEC")
    if named:
        if not _runs(named):
            raise CompileError(f"the environment variable PIPEC names `{named}`, which is no program that can be run")
        return named
    installed = next((str(path) for path in _installed() if _runs(path)), None)
    found = installed or shutil.which(_NAME)
    if found is None:
        raise CompileError(
            "there is no `pipec` program beside this package or on PATH: install the wheel with `pip install pipec`, or build it with "
            "`cargo build --release` and let the environment variable PIPEC name target/release/pipec; a program that is compiled already "
            'needs none: `pipec.load("x.json")`'
        )
    return found


def _runs(path: str | Path) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _installed() -> Iterator[Path]:
    """Where pip puts programs of a package: of this environment, of the user, and beside a folder of `pip install
    --target`.
    """
    yield Path(sysconfig.get_path("scripts")) / _NAME
    yield Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))) / _NAME
    yield Path(__file__).parent.parent / "bin" / _NAME
