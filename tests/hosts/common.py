"""What the scripts have in common: a server that is killed under a host, and what must be true then. Knows no host.

A script makes a class of its host, with the code of the host itself, and hands it to `main`.
"""

import argparse
import asyncio
import importlib.machinery
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Nothing here should take as long as that. Where it does, something hangs.
DEADLINE = 60

# How long the call takes under which the server is killed, if it is not killed. A host that repeats it has its result before the deadline.
SLEEP = 20

# Whether the host gets its transport from the Python package `everlink`, by one changed import. Its configuration then has the bare server.
IS_DROP_IN = "--drop-in" in sys.argv

# A line of the guard's log in words: a time, a side, an event.
LOG_LINE = re.compile(r" *\d+\.\d{3} (?:server: |host: )?(.*)")


class Host:
    """What a script says of its host."""

    # Settings of the host that differ from its defaults.
    options: dict = {}
    # Where the standard error of the processes that it starts can be read, if not in that of this process.
    stderr: Path | None = None

    async def connect(self, command: list[str]) -> None:
        """Connects to the server that this command starts."""
        raise NotImplementedError

    async def tools(self) -> list[str]:
        """The names of the tools that the model is offered."""
        raise NotImplementedError

    async def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        """Whether a call went well, and what the model is told."""
        raise NotImplementedError

    def connection(self) -> dict:
        """All by which it can be seen that the host has connected again, or thinks that it should."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends the connection."""
        raise NotImplementedError


class Wrong(Exception):
    """Something is not as it must be, and there is no point in going on."""


class Trial:
    """One connection of a host, and the deaths of the server behind it."""

    def __init__(self, host: Host, everlink: str, directory: Path, options: list[str] | None):
        self.host = host
        self.diary = directory / "diary"
        self.stderr = host.stderr or directory / "stderr"
        self.guarded = options is not None
        server = [everlink, "demo-server", "--diary", str(self.diary)]
        guard = [everlink, "guard", "--log", "json", *(options or []), "--"]
        self.command = [*guard, *server] if self.guarded and not IS_DROP_IN else server
        self.deaths = 0
        self.wrongs: list[str] = []

    async def run(self, in_flight: int, idle: int) -> list[str]:
        """Lets the server die so often under a call, and so often between calls. What was wrong?"""
        try:
            await self.live(in_flight, idle)
        except Wrong as wrong:
            self.expect(False, str(wrong))
        return self.wrongs

    async def live(self, in_flight: int, idle: int) -> None:
        say(" ".join(["connect to", *(Path(part).name for part in self.command)]))
        await within(self.host.connect(self.command))
        try:
            await self.begin()
            for die in [self.die_in_flight] * in_flight + [self.die_idle] * idle:
                await die()
                await self.live_on()
        finally:
            await within(self.host.close())
        if self.guarded:
            await self.read_log()

    async def begin(self) -> None:
        tools = await within(self.host.tools())
        self.expect({"echo", "pid", "sleep"} <= set(tools), f"its tools: {', '.join(tools)}")
        await self.echo()
        self.server = await self.pid()
        self.guard = parent(self.server)
        self.connection = self.host.connection()

    async def die_in_flight(self) -> None:
        """Kills the server when it has begun to run a call."""
        self.deaths += 1
        number = self.deaths
        call = asyncio.create_task(self.call("sleep", {"ms": SLEEP * 1000, "number": number}))
        await until(lambda: self.runs(number) == 1, "the server has the call")
        say(f"kill -9 {self.server} while it runs `sleep`")
        os.kill(self.server, signal.SIGKILL)
        well, told = await call
        say(f"the model is told: {told}")
        self.expect(not well, "this is an error")
        for part in ["`sleep`", "SIGKILL", "may have run"]:
            self.expect(part in told, f"it says {part!r}")
        runs = self.runs(number)
        self.expect(runs == 1, f"the call was run once, and not again (runs: {runs})")

    async def die_idle(self) -> None:
        """Kills the server between two calls."""
        self.deaths += 1
        say(f"kill -9 {self.server} while it has nothing to do")
        os.kill(self.server, signal.SIGKILL)
        if self.guarded:
            await until(lambda: self.told(r"the server ended \(.*") == self.deaths, "the guard knows")
        else:
            await until(lambda: is_gone(self.server), "the server is gone")

    async def live_on(self) -> None:
        """After a death: the next call works, and the host has not noticed."""
        await self.echo()
        server = await self.pid()
        self.expect(server != self.server, f"there is another server: {server}")
        self.server = server
        if self.guarded:
            self.expect(parent(server) == self.guard, f"behind the same guard: {self.guard}")
        now = self.host.connection()
        changes = [f"{name}: {was!r}, now {now[name]!r}" for name, was in self.connection.items() if now[name] != was]
        self.expect(not changes, f"the host has the same connection: {'; '.join(changes) or ', '.join(now)}")

    async def echo(self) -> None:
        message = f"hello after {self.deaths} deaths"
        well, told = await self.call("echo", {"message": message})
        self.expect(well and message in told, f"`echo` works: {told}")

    async def pid(self) -> int:
        well, told = await self.call("pid", {})
        digits = "".join(filter(str.isdigit, told))
        if not (well and digits):
            raise Wrong(f"`pid` works: {told}")
        return int(digits)

    async def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        try:
            return await within(self.host.call(tool, arguments))
        except TimeoutError:
            return False, f"nothing within {DEADLINE} s"

    def runs(self, number: int) -> int:
        """How often servers have begun to run the call with this number."""
        return self.diary.read_text().split().count(str(number)) if self.diary.exists() else 0

    async def read_log(self) -> None:
        """What the guard says of it all, when it is over."""
        await until(lambda: self.told("closed") >= 2, "the guard has closed both sides")
        deaths, meetings = self.told(r"the server ended \(.*"), self.told(r".* connected and speaks .*")
        self.expect(deaths == self.deaths, f"the guard saw the server die {self.deaths} times (deaths: {deaths})")
        self.expect(meetings == 1, f"and a host that introduced itself once (meetings: {meetings})")

    def told(self, pattern: str) -> int:
        """How many events with such a text the guard has told."""
        text = self.stderr.read_text(errors="replace")
        # The last line may not be complete.
        lines = text[: text.rfind("\n") + 1].splitlines()
        events = [json.loads(line)["event"] for line in lines if line.startswith('{"event":')]
        events += [match[1] for match in map(LOG_LINE.fullmatch, lines) if match]
        return sum(re.fullmatch(pattern, event) is not None for event in events)

    def expect(self, is_so: bool, what: str) -> None:
        say(f"  {'yes' if is_so else 'NO'}: {what}")
        if not is_so:
            self.wrongs.append(what)


def main(host: type[Host]) -> None:
    """Runs the script: `HOST.py EVERLINK [--without-guard]`."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("everlink", help="the program `everlink`")
    parser.add_argument("--without-guard", action="store_true", help="show what happens without it, and fail")
    parser.add_argument("--drop-in", action="store_true", help="put it there by one changed import instead of the configuration")
    args = parser.parse_args()
    everlink = str(Path(args.everlink).resolve(strict=True))
    # As it is, and for a server that dies often: every life counts as a good one, so that the pauses stay short.
    trials = {"one death under a call, one between calls": ([], 1, 1), "ten deaths under calls": (["--stable-after", "0"], 10, 0)}
    if args.without_guard:
        trials = {"without a guard": (None, 1, 1)}
    if args.drop_in:
        os.environ["EVERLINK_PROGRAM"] = everlink
        trials = {"eight deaths": ([], 4, 4)}
    wrongs = []
    for name, (options, in_flight, idle) in trials.items():
        say(f"== {name}")
        with tempfile.TemporaryDirectory() as directory, stderr_to(Path(directory) / "stderr"):
            trial = Trial(host(), everlink, Path(directory), options)
            wrongs += asyncio.run(trial.run(in_flight, idle))
            if wrongs and trial.guarded:
                say(trial.stderr.read_text(errors="replace"))
    if wrongs:
        say(f"wrong: {len(wrongs)} times NO, first: {wrongs[0]}")
        sys.exit(1)
    say("ok: every death was a clear tool error, or nothing at all, the next call worked, and the host never connected again")


def change_import(module: str, line: str, changed: str) -> None:
    """With `--drop-in`, this line of a module is another one when the module is loaded. The installed file stays as it is."""
    if IS_DROP_IN:
        sys.path.append(str(Path(__file__).resolve().parents[2] / "cli/packages/python/src"))
        sys.meta_path.insert(0, ChangedModule(module, line, changed))


class ChangedModule(importlib.machinery.SourceFileLoader):
    """Finds and loads one module, with one changed line."""

    def __init__(self, module: str, line: str, changed: str):
        self.module, self.line, self.changed = module, line, changed

    def find_spec(self, name: str, path, target=None):
        if name != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        super().__init__(name, spec.origin)
        spec.loader = self
        return spec

    def get_code(self, name: str):
        lines = self.get_data(self.path).decode().splitlines()
        [number] = [number for number, line in enumerate(lines) if line.strip() == self.line]
        lines[number] = lines[number].replace(self.line, self.changed)
        say(f"{Path(self.path).name}:{number + 1}: `{self.line}` becomes `{self.changed}`")
        return compile("\n".join(lines) + "\n", self.path, "exec", dont_inherit=True)


class stderr_to:
    """Standard error goes to a file, also that of the processes that are started."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        self.before = os.dup(2)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 2)
        os.close(file)

    def __exit__(self, kind, *_) -> None:
        sys.stderr.flush()
        os.dup2(self.before, 2)
        os.close(self.before)
        if kind is not None:
            sys.stderr.write(self.path.read_text(errors="replace"))


async def within(coroutine):
    return await asyncio.wait_for(coroutine, DEADLINE)


async def until(condition, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise Wrong(f"{what} within {DEADLINE} s")
        await asyncio.sleep(0.01)


def parent(pid: int) -> int:
    return int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)]))


def is_gone(pid: int) -> bool:
    """Whether it runs no more, buried or not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return not state or state.startswith("Z")


def say(line: str) -> None:
    print(line, flush=True)
