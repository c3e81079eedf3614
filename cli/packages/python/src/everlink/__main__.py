"""Runs the program: `python -m everlink ARGUMENTS`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from ._program import ProgramNotFoundError, find_program


def main() -> int:
    """Runs the program with the arguments of this process. Does not return on POSIX, where the program replaces this process."""
    try:
        command = [find_program(), *sys.argv[1:]]
    except ProgramNotFoundError as error:
        print(f"everlink: {error}", file=sys.stderr)
        return 4
    if sys.platform != "win32":
        os.execv(command[0], command)
    # Windows cannot replace a process. Ctrl-C and Ctrl-Break also reach the program, which decides when it ends.
    for name in ("SIGINT", "SIGBREAK"):
        signal.signal(getattr(signal, name), lambda *_: None)
    with subprocess.Popen(command) as process:
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
