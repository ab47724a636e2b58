"""Pipeline-parallel training: schedules that are proved before they run, and PyTorch stages that run them.

`check`, `search`, `tune`, `plot` and `compile` call the compiler, which the wheel brings. `compile` or `load` gives a
`Program`; a `Runner` executes it with your own `nn.Module` stages over `torch.distributed` (`pip install
"pipec[torch]"`; all else needs no PyTorch).
"""

from typing import TYPE_CHECKING, Any

from .binary import find_compiler
from .command import Options, Source, Target
from .compiler import build, check, compile, plot, search, tune
from .errors import CompileError, PipecError, ProgramError, StageError, UnsupportedError
from .picture import Picture
from .program import Program, Stage, load, loads
from .reports import Candidate, Check, DeviceReport, Diagnostic, Search, Tune

if TYPE_CHECKING:
    from .torch import Runner

__all__ = [
    "Candidate",
    "Check",
    "CompileError",
    "DeviceReport",
    "Diagnostic",
    "Options",
    "Picture",
    "PipecError",
    "Program",
    "ProgramError",
    "Runner",
    "Search",
    "Source",
    "Stage",
    "StageError",
    "Target",
    "Tune",
    "UnsupportedError",
    "build",
    "check",
    "compile",
    "find_compiler",
    "load",
    "loads",
    "plot",
    "search",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Loads PyTorch when `Runner` is asked for, and not before."""
    if name != "Runner":
        raise AttributeError(f"module `pipec` has no attribute `{name}`")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError('`pipec.Runner` needs PyTorch 2.7 or later: pip install "pipec[torch]"') from error
    from .torch import Runner

    return Runner
