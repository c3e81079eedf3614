"""Cancels the host at each of its awaits: in a connection that is being opened, used and closed. Nothing may be left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from support import GONE, Place, call, echo, until

import everlink

#: How many moments are chosen.
STEPS = 40

Cancel = Callable[[], object]


class AtAwait:
    """Runs a coroutine, and cancels it when it awaits for the numbered time. Further cancellations follow at the later awaits."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], cancel: Cancel, numbers: set[int]) -> None:
        self.coroutine, self.cancel, self.numbers = coroutine, cancel, numbers
        self.awaits = 0

    def __await__(self) -> Generator[Any, Any, None]:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                future = self.coroutine.send(value) if error is None else self.coroutine.throw(error)
            except StopIteration:
                return
            self.awaits += 1
            if self.awaits in self.numbers:
                # The event loop delivers it to the await that begins now.
                self.cancel()
            value = error = None
            try:
                value = yield future
            except BaseException as thrown:
                error = thrown


async def use(place: Place, on_event: everlink.Events | None = None) -> None:
    async with everlink.stdio_client(place.server(), on_event=on_event) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await echo(session)


async def cancelled_scope(place: Place, numbers: set[int], host: Callable[[Place], Coroutine[Any, Any, None]]) -> int:
    """Cancels by a scope of anyio. Returns the number of awaits."""
    with anyio.CancelScope() as scope:
        step = AtAwait(host(place), scope.cancel, numbers)
        await step
    return step.awaits


async def cancelled_task(place: Place, numbers: set[int], host: Callable[[Place], Coroutine[Any, Any, None]]) -> int:
    """Cancels by `asyncio.Task.cancel`, which no shield of anyio stops."""
    awaits = 0

    async def main() -> None:
        nonlocal awaits
        task = asyncio.current_task()
        assert task is not None
        step = AtAwait(host(place), task.cancel, numbers)
        try:
            await step
        finally:
            awaits = step.awaits

    await asyncio.gather(asyncio.create_task(main()), return_exceptions=True)
    return awaits


WAYS = [
    pytest.param(cancelled_scope, (0,), id="scope"),
    pytest.param(cancelled_task, (0,), id="task"),
    pytest.param(cancelled_task, (0, 1), id="task, again at the next await"),
    pytest.param(cancelled_task, (0, 3, 4, 9), id="task, again and again"),
]


@pytest.mark.parametrize("with_events", [False, True], ids=["without events", "with events"])
@pytest.mark.parametrize(("way", "offsets"), WAYS)
def test_nothing_is_left_whatever_await_is_cancelled(
    place: Place, backend: str, way: Any, offsets: tuple[int, ...], with_events: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if way is cancelled_task and backend != "asyncio":
        pytest.skip("trio has no such cancellation")

    async def host(place: Place) -> None:
        await use(place, everlink.Events() if with_events else None)

    threads = threading.active_count()
    number, cancelled = 0, 0
    while True:
        number += 1
        with caplog.at_level(logging.WARNING):
            # An event loop of its own for each: `anyio.run` cancels what is left, and asyncio complains.
            awaits = anyio.run(checked, way, place, {number + offset for offset in offsets}, host, backend=backend)
        gc.collect()
        left = place.wait_until_gone()
        assert not left, f"await {number}: {left}"
        if awaits < number:
            break
        cancelled += 1
    assert cancelled > 10, "the connection has more awaits than that"
    assert not caplog.records
    if backend == "asyncio":
        # A thread waits for each process on some versions of Python. Trio keeps idle threads.
        end = time.monotonic() + GONE
        while threading.active_count() > threads:
            assert time.monotonic() < end, threading.enumerate()
            time.sleep(0.01)


@pytest.mark.parametrize("with_events", [False, True], ids=["without events", "with events"])
@pytest.mark.parametrize("way", ["scope", "task", "task twice"])
def test_nothing_is_left_whatever_moment_is_chosen(place: Place, backend: str, way: str, with_events: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The awaits of the host do not show how far the other tasks of the transport are. So the time is swept, too."""
    if way != "scope" and backend != "asyncio":
        pytest.skip("trio has no such cancellation")

    async def main(seconds: float) -> bool:
        events = everlink.Events() if with_events else None
        if way == "scope":
            with anyio.move_on_after(seconds) as scope:
                await use(place, events)
            return scope.cancelled_caught
        task = asyncio.create_task(use(place, events))
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        if way == "task twice":
            await asyncio.sleep(0.001)
            task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    outcomes = []
    for step in range(STEPS):
        # A usual run takes 50 ms. The steps are dense where it begins, and reach far beyond its end.
        seconds = 0.0005 * step + 0.0001 * step * step
        with caplog.at_level(logging.WARNING):
            outcomes.append(anyio.run(main, seconds, backend=backend))
        gc.collect()
        left = place.wait_until_gone()
        assert not left, f"after {seconds} s: {left}"
    assert outcomes[1], "the first ones are cancelled"
    assert not caplog.records


async def checked(way: Any, place: Place, numbers: set[int], host: Any) -> int:
    """Runs the way, and checks that no task stays."""
    awaits = await way(place, numbers, host)
    if is_asyncio():
        # Callbacks of tasks that have ended may still be due.
        for _ in range(3):
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert not tasks, tasks
    return int(awaits)


def is_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


@pytest.mark.parametrize("way", [cancelled_scope, cancelled_task])
def test_host_cancelled_during_a_long_call_ends_soon(place: Place, backend: str, way: Any) -> None:
    if way is cancelled_task and backend != "asyncio":
        pytest.skip("trio has no such cancellation")

    async def main() -> None:
        with anyio.move_on_after(60) as limit:
            async with anyio.create_task_group() as tasks:

                async def host() -> None:
                    async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
                        await session.initialize()
                        await call(session, "sleep", ms=60_000, number=1)

                if way is cancelled_scope:
                    tasks.start_soon(host)
                    await until(lambda: place.runs(1) == 1, "the server has the call")
                    tasks.cancel_scope.cancel()
                else:
                    task = asyncio.create_task(host())
                    await until(lambda: place.runs(1) == 1, "the server has the call")
                    task.cancel()
                    # The session of the SDK swallows the cancellation with anyio 4.5 on Python 3.11, also with the SDK's own transport.
                    await asyncio.wait([task])
        assert not limit.cancelled_caught

    anyio.run(main, backend=backend)
    assert not place.wait_until_gone()


def test_task_that_is_cancelled_stays_cancelled(place: Place) -> None:
    """A cleanup that swallows a cancellation would let the host go on."""

    async def main() -> None:
        async def host() -> None:
            async with everlink.stdio_client(place.server()):
                await anyio.sleep(60)
            pytest.fail("the host goes on")

        task = asyncio.create_task(host())
        await until(lambda: place.processes(), "the guard has started")
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
