"""Deaths of the other two processes: the guard and the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from support import DEADLINE, MAJOR, Place, SdkError, call, echo, pid_of_server, run, until

import everlink

#: How often a host is killed.
ROUNDS = int(os.environ.get("EVERLINK_TEST_ROUNDS", "5"))


async def failure(session: ClientSession, place: Place, number: int, kill: Any) -> str:
    """Kills something while a call runs. Returns the text of the error."""
    texts: list[str] = []

    async def sleep() -> None:
        with pytest.raises(SdkError) as caught:
            await call(session, "sleep", ms=60_000, number=number)
        texts.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await until(lambda: place.runs(number) == 1, "the server has the call")
        kill()
    return texts[0]


async def kill_guard(place: Place) -> None:
    """Kills the guard between two calls, and waits until it and its server are gone."""
    os.kill(place.guard(), signal.SIGKILL)
    await until(lambda: not place.processes(), "the guard and its server are gone")
    # A message that is written before the event loop has seen the end would fail.
    await anyio.sleep(0.2)


@pytest.mark.parametrize("with_events", [False, True], ids=["without events", "with events"])
def test_killed_guard_is_replaced_behind_the_same_session(place: Place, backend: str, with_events: bool) -> None:
    events = everlink.Events() if with_events else None

    async def main() -> None:
        async with everlink.stdio_client(place.server(), on_event=events) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            for number in range(1, 4):
                guard = place.guard()
                text = await failure(session, place, number, lambda: os.kill(guard, signal.SIGKILL))
                for part in ["tools/call", "the everlink guard was killed by signal 9 (SIGKILL)", "may have run"]:
                    assert part in text
                await echo(session)
                assert place.guard() != guard
                assert place.runs(number) == 1
            # Between calls, it is not noticed at all.
            await kill_guard(place)
            await echo(session)

    run(backend, main)
    if events is not None:
        assert events.state == "closed"


@pytest.mark.skipif(MAJOR < 2, reason="SDK 1.x has no Client")
def test_killed_guard_of_a_stateless_host_is_replaced(place: Place, backend: str) -> None:
    from mcp import Client

    async def main() -> None:
        async with Client(everlink.stdio_client(place.server()), mode="2026-07-28") as client:
            await echo(client)  # type: ignore[arg-type]
            await kill_guard(place)
            await echo(client)  # type: ignore[arg-type]

    run(backend, main)


def test_guard_that_cannot_be_started_again_fails_each_call_until_it_can(place: Place, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = place.directory / "everlink"
    copy.symlink_to(place.program)
    monkeypatch.setenv("EVERLINK_PROGRAM", str(copy))

    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            copy.unlink()
            await kill_guard(place)
            for _ in range(2):
                with pytest.raises(SdkError, match="cannot be started.*it was not sent"):
                    await echo(session)
            copy.symlink_to(place.program)
            await echo(session)

    run(backend, main)


def test_guard_that_refuses_its_arguments_fails_initialize(place: Place, backend: str) -> None:
    async def main() -> None:
        options = ["--no-such-option"]
        async with everlink.stdio_client(place.server(), guard_options=options) as (read, write), ClientSession(read, write) as session:
            for _ in range(2):
                with pytest.raises(SdkError, match="exit status 2; its log says why"):
                    await session.initialize()

    run(backend, main)


def test_guard_that_was_asked_to_end_is_replaced(place: Place, backend: str) -> None:
    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            guard = place.guard()
            os.kill(guard, signal.SIGTERM)
            await until(lambda: guard not in place.processes(), "the guard has ended")
            await anyio.sleep(0.2)
            await echo(session)

    run(backend, main)


def test_process_that_inherits_the_pipes_does_not_keep_the_connection_open(place: Place, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = place.directory / "everlink"
    wrapper.write_text(f"#!/bin/sh\nsleep 300 & echo $! > '{place.directory}/sleeper'\nexec '{place.program}' \"$@\"\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("EVERLINK_PROGRAM", str(wrapper))

    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await echo(session)

    try:
        run(backend, main)
        assert len(place.processes()) == 1, "the guard and the server are gone"
    finally:
        os.kill(int((place.directory / "sleeper").read_text()), signal.SIGKILL)


HOST = """
import os, sys
import anyio
from mcp import ClientSession, StdioServerParameters
import everlink

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["demo-server", "--diary", sys.argv[2]], env={sys.argv[3]: sys.argv[4]})
    # A callback, so that the log passes through this process, too.
    on_event = everlink.Events() if sys.argv[5] == "events" else None
    async with everlink.stdio_client(server, on_event=on_event) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.call_tool("sleep", {"ms": 60_000, "number": 1})

anyio.run(main)
"""


@pytest.mark.parametrize("with_events", ["no events", "events"])
def test_killed_host_leaves_no_process(place: Place, with_events: str) -> None:
    for number in range(ROUNDS):
        place.diary.unlink(missing_ok=True)
        command = [sys.executable, "-c", HOST, place.program, str(place.diary), place.VARIABLE, place.mark, with_events]
        host = subprocess.Popen(command, env={**os.environ, place.VARIABLE: "the host itself"}, stderr=subprocess.DEVNULL)
        try:
            # At different moments: while the guard starts, while the server starts, and during a call.
            moment: Any = [lambda: place.processes(), lambda: len(place.processes()) >= 3, lambda: place.runs(1) == 1][number % 3]
            end = time.monotonic() + DEADLINE
            while not moment():
                assert host.poll() is None and time.monotonic() < end
                time.sleep(0.001)
        finally:
            host.kill()
            host.wait()
        left = place.wait_until_gone()
        assert not left, f"round {number}: {left}"


def test_interrupt_at_the_terminal_is_for_the_host_only(place: Place, backend: str) -> None:
    """A guard that ends with Ctrl-C would end the connection before the host decides that."""

    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            for pid in [place.guard(), await pid_of_server(session)]:
                assert Path(f"/proc/{pid}").exists()
                assert os.getpgid(pid) != os.getpgrp()

    run(backend, main)
