"""The server of the comparison, on the Python SDK 1.x: SERVER --mark MARK --pids FILE [--delay SECONDS]. Its tools misbehave on purpose.

Synchronous tools block the only thread of such a server: it answers no ping meanwhile. That is how most Python servers are written.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--mark", required=True, help="by which the processes of one trial are found")
parser.add_argument("--pids", required=True, help="where each server writes its process id when it starts")
parser.add_argument("--runs", required=True, help="where `note` writes a line whenever it runs")
parser.add_argument("--delay", type=float, default=0, help="how many seconds the start takes")
args = parser.parse_args()

time.sleep(args.delay)

from mcp.server.fastmcp import FastMCP

server = FastMCP("comparison", log_level="WARNING")


@server.tool()
def echo(message: str) -> str:
    """Returns the message."""
    return message


@server.tool()
async def note(seconds: float) -> str:
    """Writes down that it runs, then waits; the server answers others meanwhile."""
    with open(args.runs, "a") as runs:
        runs.write("ran\n")
    await asyncio.sleep(seconds)
    return "noted"


@server.tool()
def compute(seconds: float) -> str:
    """Keeps the processor and the only thread busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "computed"


@server.tool()
def block(seconds: float) -> str:
    """Blocks the only thread without using the processor."""
    time.sleep(seconds)
    return "waited"


@server.tool()
def stop() -> str:
    """Stops the process, as a debugger or a frozen container would."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return "continued"


with open(args.pids, "a") as pids:
    pids.write(f"{os.getpid()}\n")
# A helper of its own, as browsers and language servers are: it ends only if somebody ends it.
subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)", args.mark],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
server.run()
