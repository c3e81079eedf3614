"""One cell of the comparison: HOST SCENARIO SERVER-COMMAND... measured once, printed as a line of JSON. Judges nothing.

`HOST` names a script of the folder above, with its host's own default settings. `{mark}`, `{pids}` and `{runs}` in the command become what `server.py` wants.
"""

import asyncio
import importlib.util
import json
import logging
import os
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path

HOSTS = Path(__file__).resolve().parent.parent
sys.path[0] = str(HOSTS)

# So long, one scenario waits for its host. What takes longer is reported as "never".
PATIENCE = 150
# The same after a kill: whoever comes back does so soon.
KILL_PATIENCE = 60
# How long after a kill between two calls the next call comes. One that is sent in the very moment of the death may have run, so it fails through the guard.
PAUSE = 0.2
# How long after the end processes may take to end by themselves.
AFTERMATH = 3


class Cell:
    """A host, its server, and what was measured."""

    def __init__(self, host, command: list[str], directory: Path):
        self.host = host
        self.mark = uuid.uuid4().hex
        self.pids, self.runs = directory / "pids", directory / "runs"
        names = {"{mark}": self.mark, "{pids}": str(self.pids), "{runs}": str(self.runs)}
        self.command = [names.get(word, word) for word in command]
        self.found = {}

    async def connect(self) -> None:
        """Connects, lists the tools, and calls one. Says how long that took and how it ended."""
        start = time.monotonic()
        try:
            await within(self.host.connect(self.command))
            tools = await within(self.host.tools())
            self.found["tools"] = len(tools)
            well, told = await self.call("echo", message="hello")
        except BaseException as error:  # some hosts raise groups, some cancel
            if isinstance(error, KeyboardInterrupt):
                raise
            well, told = False, describe(error)
        self.found["connect_s"] = time.monotonic() - start
        self.found["connected"] = well
        if not well:
            self.found["connect_error"] = told

    async def call(self, tool: str, **arguments) -> tuple[bool, str]:
        try:
            return await within(self.host.call(tool, arguments))
        except TimeoutError:
            return False, "never"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return False, describe(error)

    async def recover(self, since: float, patience: float = PATIENCE) -> None:
        """Calls once a second until a call goes well."""
        failed = 0
        while time.monotonic() < since + patience:
            well, told = await self.call("echo", message="again")
            if well:
                self.found["next_good_s"] = time.monotonic() - since
                break
            failed += 1
            self.found["later_error"] = told
            await asyncio.sleep(1)
        self.found["failed"] = self.found.get("failed", 0) + failed

    async def incident(self, tool: str, **arguments) -> float:
        """Makes one call that is in for trouble, and notes how it ended and when."""
        start = time.monotonic()
        well, told = await self.call(tool, **arguments)
        self.found |= {"first_call_s": time.monotonic() - start, "first_call_well": well, "first_call": told}
        self.found["failed"] = 0 if well else 1
        return start

    def server(self) -> int:
        return int(self.pids.read_text().split()[-1])

    def kill(self) -> None:
        os.kill(self.server(), signal.SIGKILL)

    def left(self) -> list[str]:
        """The processes that still carry the mark."""
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if self.mark in words:
                found.append(process.name)
        return found

    async def close(self) -> None:
        start = time.monotonic()
        try:
            await asyncio.wait_for(self.host.close(), 60)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.found["close_error"] = describe(error)
        self.found["close_s"] = time.monotonic() - start
        end = time.monotonic() + AFTERMATH
        while self.left() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        self.found["left"] = len(self.left())

    def clean(self) -> None:
        for pid in self.left():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass


async def kill_idle(cell: Cell) -> None:
    cell.kill()
    killed = time.monotonic()
    await asyncio.sleep(PAUSE)
    await cell.recover(killed, KILL_PATIENCE)


async def kill_busy(cell: Cell) -> None:
    call = asyncio.create_task(cell.incident("note", seconds=5))
    while not cell.runs.exists():
        await asyncio.sleep(0.01)
    killed = time.monotonic()
    cell.kill()
    await call
    cell.found["first_call_s"] = time.monotonic() - killed
    await cell.recover(killed, KILL_PATIENCE)
    cell.found["ran"] = cell.runs.read_text().count("ran")


async def kill_often(cell: Cell) -> None:
    """Eight kills, three seconds apart, under a host that calls all the time."""
    calls, failed, worst, killed = 0, 0, 0.0, None
    kills = [3 * n for n in range(1, 9)]
    kills_end = kills[-1]
    start = time.monotonic()
    dead = set()
    while (kills or killed is not None) and time.monotonic() < start + kills_end + KILL_PATIENCE:
        if kills and time.monotonic() - start >= kills[0]:
            kills.pop(0)
            if cell.server() not in dead:
                dead.add(cell.server())
                cell.kill()
                killed = killed or time.monotonic()
                await asyncio.sleep(PAUSE)
        well, told = await cell.call("echo", message="again")
        calls += 1
        if not well:
            failed += 1
            cell.found["later_error"] = told
        elif killed is not None:
            worst, killed = max(worst, time.monotonic() - killed), None
        await asyncio.sleep(0.3)
    cell.found |= {"calls": calls, "failed": failed, "kills": len(dead)}
    if killed is None:
        cell.found["next_good_s"] = worst


async def stopped(cell: Cell) -> None:
    await cell.recover(await cell.incident("stop"))


async def stuck(cell: Cell) -> None:
    await cell.recover(await cell.incident("block", seconds=100_000))


async def compute(cell: Cell) -> None:
    await busy(cell, "compute")


async def block(cell: Cell) -> None:
    await busy(cell, "block")


async def busy(cell: Cell, tool: str) -> None:
    server = cell.server()
    await cell.recover(await cell.incident(tool, seconds=70))
    cell.found["same_server"] = cell.server() == server


async def nothing(cell: Cell) -> None:
    """The start is what is measured."""


async def close_busy(cell: Cell) -> None:
    call = asyncio.create_task(cell.call("note", seconds=60))
    while not cell.runs.exists():
        await asyncio.sleep(0.01)
    await cell.close()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


SCENARIOS = {
    "killed while idle": kill_idle,
    "killed during a call": kill_busy,
    "eight kills, 3 s apart": kill_often,
    "stopped (SIGSTOP)": stopped,
    "blocked for ever": stuck,
    "computing for 70 s": compute,
    "blocked for 70 s": block,
    "mistyped command": nothing,
    "slow start (20 s)": nothing,
    "closed during a call": close_busy,
}


async def within(coroutine):
    return await asyncio.wait_for(coroutine, PATIENCE)


def describe(error: BaseException) -> str:
    leaves = [error]
    while leaves and isinstance(leaves[0], BaseExceptionGroup):
        leaves = list(leaves[0].exceptions) + leaves[1:]
    error = leaves[0]
    return f"{type(error).__name__}: {error}"


def load(name: str):
    """The host of this script. Under another name: some scripts are called like the package that they load."""
    spec = importlib.util.spec_from_file_location(f"host_{name}", HOSTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name.capitalize())()


async def measure(cell: Cell, scenario) -> None:
    await cell.connect()
    if cell.found["connected"]:
        await scenario(cell)
    if "close_s" not in cell.found:
        await cell.close()


def main() -> None:
    name, scenario, *command = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    host = load(name)
    host.options = {}
    with tempfile.TemporaryDirectory() as directory:
        cell = Cell(host, command, Path(directory))
        try:
            asyncio.run(measure(cell, SCENARIOS[scenario]))
        finally:
            cell.clean()
            # Some hosts leave threads behind that would keep this process.
            print(json.dumps(cell.found), flush=True)
            os._exit(0)


main()
