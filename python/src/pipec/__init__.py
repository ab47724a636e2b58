"""Runs pipeline-parallel programs that `pipec` compiled and proved, with your own `nn.Module` stages, over `torch.distributed`.

`compile` or `load` gives a `Program`; a `Runner` executes it.
"""

from .compiler import compile, find_compiler
from .errors import CompileError, PipecError, ProgramError, StageError, UnsupportedError
from .program import Program, Stage, load, loads
from .runner import Runner

__all__ = [
    "CompileError",
    "PipecError",
    "Program",
    "ProgramError",
    "Runner",
    "Stage",
    "StageError",
    "UnsupportedError",
    "compile",
    "find_compiler",
    "load",
    "loads",
]
