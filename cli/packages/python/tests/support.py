"""What the tests share: the SDK under one name for each thing, processes with a mark, and a demo server whose calls can be watched."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters

#: Nothing takes as long as this unless it hangs.
DEADLINE = 60
#: Within this time, all processes of a connection must be gone.
GONE = 5

SDK = metadata.version("mcp")
MAJOR = int(SDK.split(".")[0])
BACKENDS = ["asyncio", "trio"] if MAJOR >= 2 else ["asyncio"]

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup as BaseExceptionGroup
else:
    BaseExceptionGroup = BaseExceptionGroup

if MAJOR >= 2:
    from mcp import MCPError as SdkError
else:
    from mcp import McpError as SdkError  # noqa: F401


class Place:
    """The directory of a test, and its processes."""

    VARIABLE = "EVERLINK_TEST_MARK"

    def __init__(self, directory: Path, program: str) -> None:
        self.directory, self.program = directory, program
        self.mark = uuid.uuid4().hex
        self.diary = directory / "diary"

    def server(self, *arguments: str, **more: Any) -> StdioServerParameters:
        """A demo server that writes down the calls that it runs."""
        args = ["demo-server", "--diary", str(self.diary), *arguments]
        return StdioServerParameters(command=self.program, args=args, env={self.VARIABLE: self.mark}, **more)

    def runs(self, number: int) -> int:
        """How often servers have begun to run the call with this number."""
        return self.diary.read_text().split().count(str(number)) if self.diary.exists() else 0

    def processes(self) -> dict[int, str]:
        """The processes with the mark, and their command lines. Zombies of this process count, too."""
        found = {}
        for directory in Path("/proc").iterdir():
            if not directory.name.isdigit() or int(directory.name) == os.getpid():
                continue
            try:
                environment = (directory / "environ").read_bytes()
                words = (directory / "cmdline").read_bytes()
                stat = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            is_zombie_of_us = stat[0] == "Z" and int(stat[1]) == os.getpid()
            if is_zombie_of_us or f"{self.VARIABLE}={self.mark}".encode() in environment.split(b"\0"):
                found[int(directory.name)] = words.replace(b"\0", b" ").decode(errors="replace").strip() or stat[0]
        return found

    def guard(self) -> int:
        """The process id of the guard."""
        # A process that the guard is starting has the same command line for a moment.
        [pid] = [pid for pid, words in self.processes().items() if " guard " in words and parent(pid) == os.getpid()]
        return pid

    def server_of(self, guard: int) -> int | None:
        """The process id of the server of a guard."""
        for pid, words in self.processes().items():
            if " demo-server " in words and " guard " not in words and parent(pid) == guard:
                return pid
        return None

    def wait_until_gone(self) -> dict[int, str]:
        """Waits until no process has the mark. Returns those that are left."""
        end = time.monotonic() + GONE
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.01)
        return left

    def kill_all(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class HttpServer:
    """A server over HTTP as a process that can be killed and started again at the same port."""

    def __init__(self, place: Place, transport: str) -> None:
        self.transport, self.port = transport, free_port()
        path = {"sse": "sse", "streamable-http": "mcp"}[transport]
        self.url = f"http://127.0.0.1:{self.port}/{path}"
        self._log = place.directory / "http.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = Path(__file__).with_name("http_server.py")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, script, self.transport, str(self.port)], stderr=log, stdout=log)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(self._log.read_text())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> HttpServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run(backend: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs an async function on an event loop of its own, not longer than the deadline."""

    async def limited() -> Any:
        with anyio.fail_after(DEADLINE):
            return await function(*arguments)

    return anyio.run(limited, backend=backend)


async def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        await anyio.sleep(0.01)


async def call(session: ClientSession, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Whether a call went well, and its text."""
    result: Any = await session.call_tool(tool, arguments)
    is_error = result.is_error if MAJOR >= 2 else result.isError
    return not is_error, " ".join(part.text for part in result.content)


async def echo(session: ClientSession, message: str = "hello") -> None:
    assert await call(session, "echo", message=message) == (True, message)


async def pid_of_server(session: ClientSession) -> int:
    is_good, text = await call(session, "pid")
    assert is_good, text
    return int(text)
