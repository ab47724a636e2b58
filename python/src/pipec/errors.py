"""What goes wrong: every error of this package is a `PipecError`."""

from __future__ import annotations


class PipecError(Exception):
    """The base of all errors that this package raises on purpose."""


class CompileError(PipecError):
    """The compiler is missing, or rejected its target; the text is what it said."""


class ProgramError(PipecError):
    """A text that is not a program in the form `pipec.program/1`."""


class UnsupportedError(PipecError):
    """A program that is sound, but not for what it is to run with: ties that it does not know, or this version of
    torch; the text says what to do.
    """


class StageError(PipecError):
    """Modules, inputs or outputs that do not fit the program."""
