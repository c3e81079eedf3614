"""The tools that the servers of both eras have. Knows no SDK."""

import os
import signal
import sys
from pathlib import Path

SCHEMAS = {
    "add": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    "count": {"type": "object"},
    "die": {"type": "object"},
    "fail": {"type": "object"},
    "where": {"type": "object"},
}


async def run(name, arguments, progress):
    """The text of the result; raises what is to be told as a failure of the tool."""
    match name:
        case "add":
            return str(arguments["a"] + arguments["b"])
        case "count":
            for number in range(1, 4):
                await progress(number, 3)
            return "counted"
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "where":
            return str(os.getpid())
        case "fail":
            raise ValueError("this never works")
    raise ValueError(f"there is no tool {name}")


def die_once():
    """The first process that is given a file as its argument dies of what it reads first, as one that is killed while it starts."""
    if len(sys.argv) > 1 and not Path(sys.argv[1]).exists():
        Path(sys.argv[1]).touch()
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
