"""`python -m pipec` is the `pipec` program."""

import os
import subprocess
import sys

from .binary import find_compiler
from .errors import CompileError


def main() -> int:
    """Runs the program with the arguments of this process; returns its exit code, or on Unix becomes it."""
    try:
        command = [find_compiler(), *sys.argv[1:]]
    except CompileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if sys.platform == "win32":
        return subprocess.run(command, check=False).returncode
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
