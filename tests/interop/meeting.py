"""What clients of every SDK for Python do with our server, step by step. Knows no SDK.

A script makes a `connect` of its SDK and hands it to `meet`. Its arguments are TRANSPORT ERA STEPS PROGRAM [PORT]: stdio, http or sse, legacy or
automatic, the steps, our server, and where it is to listen. Each step is told by a line of JSON.
"""

import json
import os
import signal
import socket
import subprocess
import sys

import anyio

NOTE = "interop://note"
# Nothing here should take as long as that. Where it does, something hangs.
DEADLINE = 30
# How long a call is waited for whose server is dead: not every transport notices.
PATIENCE = 2

transport, era, steps, program, *port = sys.argv[1:]
url = f"http://127.0.0.1:{port[0] if port else 0}{'/sse' if transport == 'sse' else '/mcp'}"
# Whoever is asked is called so.
NAME = "Ada"


class Visit:
    """A connection, as a script makes it. `touched` and `grown` are set when the server says so."""

    # How this client can be asked for a name.
    by = "elicitation"

    def __init__(self):
        self.touched, self.grown = anyio.Event(), anyio.Event()

    @property
    def version(self) -> str:
        raise NotImplementedError

    async def names(self) -> list[str]:
        raise NotImplementedError

    async def call(self, tool, given, progress=None) -> tuple[bool, str]:
        """Whether it failed, and its text; `progress` is told how far it is."""
        raise NotImplementedError

    async def cancel(self) -> None:
        """Tells the server that the newest call is not wanted any more, where the SDK does not do so for a call that is dropped."""

    async def watch(self) -> None:
        raise NotImplementedError


class Listener:
    """Our server over HTTP, in a process of its own."""

    def __init__(self):
        self.start()

    def start(self):
        self.process = subprocess.Popen([program, "http", *port], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    async def listens(self):
        while True:
            try:
                return socket.create_connection(("127.0.0.1", int(port[0]))).close()
            except OSError:
                await anyio.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Meeting:
    def __init__(self, listener):
        self.listener = listener
        self.visit = None
        self.has_killed = False

    async def good(self, tool, says, **given):
        failed, text = await self.visit.call(tool, given)
        expect(not failed and says in text, text)

    async def list(self):
        expect("echo" in await self.visit.names(), "`echo` is not in the list")

    async def call(self):
        await self.good("echo", "Echo: hello", message="hello")

    async def error(self):
        failed, text = await self.visit.call("fail", {})
        expect(failed and "this never works" in text, text)

    async def progress(self):
        reports = []
        _, text = await self.visit.call("progress", {}, reports.append)
        expect("three steps" in text and reports == [1, 2, 3], f"{text}: {reports}")

    async def slow(self, while_it_runs):
        """A call that takes long, what is done when it has begun, and what the client says of it. It is dropped when nobody waits any more."""
        begun, told = anyio.Event(), []

        async def run():
            try:
                told.append(f"it has a result: {await self.visit.call('slow', {}, lambda _: begun.set())}")
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await begun.wait()
            await while_it_runs()
            tasks.cancel_scope.cancel()
        expect(not any("it has a result" in text for text in told), told)
        return told[0] if told else "the client says nothing"

    async def cancel(self):
        await self.slow(self.visit.cancel)
        while "cancelled: 1" not in (await self.visit.call("noted", {}))[1]:
            await anyio.sleep(0.02)

    async def ask(self):
        await self.good("ask", f"Hello, {NAME}", by=self.visit.by)

    async def watch(self):
        await self.visit.watch()
        await self.good("touch", "touched")
        await self.visit.touched.wait()

    async def news(self):
        await self.good("grow", "grown")
        await self.visit.grown.wait()
        expect("grown" in await self.visit.names(), "`grown` is not in the list")

    async def kill(self):
        """The server dies under a call. That a new connection works is shown by whoever makes it."""
        pid = int((await self.visit.call("pid", {}))[1])

        async def die():
            self.has_killed = True
            if self.listener:
                self.listener.kill()
            else:
                os.kill(pid, signal.SIGKILL)
            await anyio.sleep(PATIENCE)

        return await self.slow(die)


def expect(is_so, otherwise):
    if not is_so:
        raise AssertionError(otherwise)


def tell(step, ok, note="", version=None):
    print(json.dumps({"step": step, "ok": ok, "note": note, "version": version}), flush=True)


async def attempt(step, run):
    """Tells how a step went, unless more is to come; gives what it said of itself if all is well."""
    try:
        with anyio.fail_after(DEADLINE):
            note = await run() or ""
    except Exception as error:
        return tell(step, False, f"{type(error).__name__}: {error}")
    if step != "kill":
        tell(step, True, note)
    return note


async def visit_once(meeting, connect):
    told = None
    async with connect() as meeting.visit:
        for step in steps.split(","):
            if step == "handshake":
                tell(step, True, version=meeting.visit.version)
            else:
                told = await attempt(step, getattr(meeting, step))
    return told


async def visit_all(connect):
    listener = None if transport == "stdio" else Listener()
    meeting = Meeting(listener)
    try:
        if listener:
            await listener.listens()
        told = []
        try:
            told.append(await visit_once(meeting, connect))
        except* Exception as group:
            # What is left of a connection to a dead server may fail, after all its steps were told.
            if not meeting.has_killed:
                raise
            told.append(str(group.exceptions[0]))
        if meeting.has_killed and told[-1] is not None:
            if listener:
                listener.start()
                await listener.listens()

            async def again():
                async with connect() as meeting.visit:
                    await meeting.call()

            if await attempt("kill", again) is not None:
                tell("kill", True, told[-1])
    finally:
        if listener:
            listener.kill()


def meet(connect):
    """Goes through the steps. `connect` is a context manager of a `Visit`."""
    anyio.run(visit_all, connect)
