"""Runs a guard as a child process, and joins it to the memory streams of a session. Decides nothing about servers: the guard does that.

If the guard itself is killed, pending requests fail and the next message starts another guard. The host's handshake is repeated to it, so the streams never end while
their context lives. All tasks belong to the task that entered the context. Every wait of the cleanup has a limit.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from ._events import END, Event, OnEvent
from ._sdk import Sdk, error_of, id_of, load_sdk, method_of

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

logger = logging.getLogger("everlink")

#: How long messages that the guard was not given yet may take to be written at the end.
_FLUSH_SECONDS = 0.5
#: How long the guard may take to end. It gives calls 1 s, and its server 2 s.
_CLOSE_SECONDS = 5.0
#: How long a killed guard may take to be gone.
_KILL_SECONDS = 2.0
#: How long the last lines of the guard's log may take to arrive.
_LOG_SECONDS = 0.5
#: The least time between the starts of two guards.
_RESTART_SECONDS = 1.0
#: How often it is checked whether a guard has ended.
_POLL_SECONDS = 0.01

#: The error code of requests that got no reply, as the guard itself uses it.
_INTERNAL_ERROR = -32603

_CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


@dataclass(frozen=True)
class Launch:
    """How a guard is started."""

    command: list[str]
    env: dict[str, str]
    cwd: str | Path | None = None


@asynccontextmanager
async def connect(launch: Launch, errlog: TextIO | None, on_event: OnEvent | None) -> AsyncIterator[Streams]:
    """Starts a guard, and yields the streams of a session with it.

    Raises:
        OSError: The guard cannot be started.
    """
    connection = _Connection(launch, load_sdk(), errlog, on_event)
    try:
        await connection.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.write_messages)
            tasks.start_soon(connection.run)
            try:
                yield connection.read, connection.write
            finally:
                await _undisturbed(connection.close)
                tasks.cancel_scope.cancel()
    finally:
        await _undisturbed(connection.dispose)


async def _undisturbed(step: Callable[[], Awaitable[None]]) -> None:
    """Runs a step to its end, however often this task is cancelled meanwhile. Then passes the cancellation on.

    A shield of anyio does not hold against `asyncio.Task.cancel`. So the step runs in a child task, which nobody else can cancel.
    """
    errors: list[Exception] = []

    async def run() -> None:
        with anyio.CancelScope(shield=True):
            try:
                await step()
            except Exception as error:
                # Not through the task group, which would wrap it in a group.
                errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
    if errors:
        raise errors[0]


@dataclass
class _Pending:
    """A request of the host without a reply."""

    method: str
    is_written: bool = False


class _Connection:
    """The two memory streams of a session, and the guard behind them, which may be replaced."""

    def __init__(self, launch: Launch, sdk: Sdk, errlog: TextIO | None, on_event: OnEvent | None) -> None:
        self._launch, self._sdk = launch, sdk
        self._log = _Log(errlog, on_event)
        self._to_host: MemoryObjectSendStream[SessionMessage | Exception]
        self.read: MemoryObjectReceiveStream[SessionMessage | Exception]
        self.write: MemoryObjectSendStream[SessionMessage]
        self._from_host: MemoryObjectReceiveStream[SessionMessage]
        # Without buffers, a slow reader slows the writer down.
        self._to_host, self.read = anyio.create_memory_object_stream(0)
        self.write, self._from_host = anyio.create_memory_object_stream(0)
        # `None` between two guards.
        self._process: Process | None = None
        self._started_at = 0.0
        self._handshake = _Handshake()
        self._pending: dict[str | int, _Pending] = {}
        self._is_closing = False
        # Whether messages of the host can be written to the guard.
        self._is_up = False
        # Whether a message of the host waits for a guard.
        self._is_wanted = False
        # How many guards could not be started, or refused the handshake.
        self._failed_starts = 0
        self._changed = _Signal()
        self._writer_done = anyio.Event()

    async def start(self) -> None:
        """Starts a guard."""
        await _undisturbed(self._open)

    async def _open(self) -> None:
        self._started_at = anyio.current_time()
        try:
            self._process = await anyio.open_process(
                self._launch.command,
                env=self._launch.env,
                cwd=self._launch.cwd,
                stderr=self._log.target,
                **_process_options(),
            )
        except NotImplementedError as error:
            raise OSError(
                "this event loop cannot start processes: on Windows, use asyncio.ProactorEventLoop, the default, in place of a SelectorEventLoop"
            ) from error

    async def run(self) -> None:
        """Reads from the guard. When it has ended and a message needs one, starts another."""
        while not self._is_closing:
            if self._process is not None:
                await self._serve(self._process)
                continue
            while not self._is_wanted:
                await self._changed.wait()
            self._is_wanted = False
            await anyio.sleep(max(0.0, self._started_at + _RESTART_SECONDS - anyio.current_time()))
            try:
                await self.start()
            except OSError as error:
                await self._start_failed(f"the program everlink cannot be started: {error}")

    async def _serve(self, process: Process) -> None:
        """Carries messages until the guard ends, and then answers the requests that are pending."""
        greeting = self._handshake.greeting()
        refusal: str | None = None
        async with anyio.create_task_group() as tasks:
            if process.stderr is not None:
                tasks.start_soon(self._log.read, process.stderr, self._log.begin())
            if greeting is None:
                self._set_up(True)
            else:
                await _send(process.stdin, greeting)
            refusal = await self._read_messages(process)
            if self._is_closing:
                # `close` waits for the guard, and the task group for the end of its log.
                return
            was_up = self._is_up
            self._set_up(False)
            if refusal is None:
                await _exit(process, _KILL_SECONDS)
            _kill(process)
            await self._log.finish()
            tasks.cancel_scope.cancel()
        await _undisturbed(self._dispose)
        why = f"the everlink guard {_ending(process)}"
        self._log.report(Event("guard_ended", f"{why}; the next message starts another one", "idle"))
        if was_up:
            # Requests that were not written wait for the next guard.
            await self._fail([id for id, request in self._pending.items() if request.is_written], f"{why} before it replied")
        else:
            await self._start_failed(refusal or why)

    def _set_up(self, is_up: bool) -> None:
        self._is_up = is_up
        self._changed.notify()

    async def _read_messages(self, process: Process) -> str | None:
        """Passes the messages of the guard to the host, until they end. Returns why the guard refused the handshake, if it did."""
        lines = _Lines(process.stdout)
        while (line := await lines.next()) is not None:
            item = self._sdk.decode(line)
            if isinstance(item, Exception):
                logger.error("the guard wrote a line that is no message: %s", type(item).__name__)
            elif method_of(item) is None and (id := id_of(item)) is not None:
                error = error_of(item)
                if self._handshake.is_repeated(id):
                    if error is not None:
                        return error
                    await _send(process.stdin, self._handshake.initialized)
                    self._set_up(True)
                    continue
                if self._pending.pop(id, None) is not None and error is not None:
                    self._handshake.refused(id)
            await self._deliver(item)
        return None

    async def _deliver(self, item: SessionMessage | Exception) -> None:
        # The session may have closed its end. The pipe is read all the same, so that the guard is never blocked.
        with suppress(*_CLOSED):
            await self._to_host.send(item)

    async def write_messages(self) -> None:
        """Writes the messages of the host to the guard."""
        try:
            async for message in self._from_host:
                id, method, line = id_of(message), method_of(message), self._sdk.encode(message)
                request = None
                if id is not None and method is not None:
                    request = self._pending[id] = _Pending(method)
                elif method == "notifications/cancelled":
                    self._cancel(line)
                # A message that no guard can be started for is dropped. If it is a request, the host was told so.
                if not await self._wait_for_guard():
                    continue
                if request is not None:
                    request.is_written = True
                self._handshake.note(id, method, line)
                if self._process is not None:
                    await _send(self._process.stdin, line)
        finally:
            self._writer_done.set()

    def _cancel(self, line: bytes) -> None:
        """Forgets the request that this notification cancels: it gets no reply. The handshake cannot be cancelled."""
        params = json.loads(line).get("params") or {}
        id = params.get("requestId")
        if not isinstance(id, (str, int)):
            return
        request = self._pending.get(id)
        if request is not None and request.method != "initialize":
            del self._pending[id]

    async def _wait_for_guard(self) -> bool:
        failed_starts = self._failed_starts
        while not self._is_up and self._failed_starts == failed_starts:
            if not self._is_wanted:
                self._is_wanted = True
                self._changed.notify()
            await self._changed.wait()
        return self._is_up

    async def _start_failed(self, why: str) -> None:
        self._failed_starts += 1
        self._changed.notify()
        await self._fail(list(self._pending), why)

    async def _fail(self, ids: list[str | int], why: str) -> None:
        """Answers requests with an error."""
        failed = [(id, self._pending.pop(id)) for id in ids]
        for id, request in failed:
            self._handshake.refused(id)
            fate, delivery = ("it had been sent and may have run", "unknown") if request.is_written else ("it was not sent", "not_sent")
            text = f"{request.method} failed: {why}; {fate}"
            error = {"code": _INTERNAL_ERROR, "message": text, "data": {"everlink/delivery": delivery}}
            await self._deliver(self._sdk.decode(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode()))

    async def close(self) -> None:
        """Ends the guard in order: its input ends, and it has some seconds to end its server."""
        self._is_closing = True
        # The reader goes on and discards. A guard that cannot write would not read what is still to be written.
        self.read.close()
        self.write.close()
        process = self._process
        if process is None or not self._is_up:
            return
        with anyio.move_on_after(_FLUSH_SECONDS):
            await self._writer_done.wait()
        if process.stdin is not None:
            with suppress(*_CLOSED):
                await process.stdin.aclose()
        await _exit(process, _CLOSE_SECONDS)
        _kill(process)
        await self._log.finish()

    async def dispose(self) -> None:
        """Ends what `close` has not ended, and closes the streams."""
        await self._dispose()
        for stream in (self.read, self.write, self._to_host, self._from_host):
            stream.close()
        self._log.report(Event(END, "the connection is closed", "closed"))

    async def _dispose(self) -> None:
        """Kills the guard if it has not ended, reaps it, and closes its pipes. The guard's own watcher process ends the server of a killed guard."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        await _exit(process, _KILL_SECONDS)
        # Bounded: it waits for a process that cannot be killed, and on some versions for the end of pipes that another process has inherited.
        with anyio.move_on_after(_LOG_SECONDS), suppress(*_CLOSED):
            await process.aclose()
        _close_transport(process)


class _Signal:
    """Wakes all that wait when something has changed."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Waits for the next `notify`."""
        await self._event.wait()


class _Handshake:
    """The host's handshake, which is repeated to another guard. Stateless (modern) hosts have none."""

    def __init__(self) -> None:
        self._id: str | int | None = None
        self._initialize: dict[str, Any] | None = None
        self.initialized: bytes | None = None
        """The line with the host's `notifications/initialized`."""
        self._repeats = 0

    def note(self, id: str | int | None, method: str | None, line: bytes) -> None:
        """Looks at a message of the host."""
        if method == "initialize":
            self._id, self._initialize, self.initialized = id, json.loads(line), None
        elif method == "notifications/initialized":
            self.initialized = line

    def refused(self, id: str | int) -> None:
        """The request with this id got an error."""
        if id == self._id:
            self._id, self._initialize = None, None

    def greeting(self) -> bytes | None:
        """The handshake for another guard, under an id that no host uses."""
        if self._initialize is None:
            return None
        self._repeats += 1
        return json.dumps({**self._initialize, "id": self._repeated_id()}).encode() + b"\n"

    def is_repeated(self, id: str | int | None) -> bool:
        """Whether this is the id of the last greeting."""
        return self._repeats > 0 and id == self._repeated_id()

    def _repeated_id(self) -> str:
        return f"everlink/repeated-{self._repeats}"


class _Log:
    """The log of the guard on its standard error: events for the host, and text for `errlog`."""

    def __init__(self, errlog: TextIO | None, on_event: OnEvent | None) -> None:
        self._errlog, self._on_event = errlog, on_event
        self._state = "idle"
        self._done: anyio.Event | None = None
        # Without a callback, the guard writes to `errlog` itself, if that is a file.
        self.target: int | TextIO = subprocess.PIPE if on_event is not None or errlog is None or not _is_file(errlog) else errlog

    def begin(self) -> anyio.Event:
        """Prepares to read the log of a guard. The event is for `read`."""
        self._done = anyio.Event()
        return self._done

    async def read(self, stream: ByteReceiveStream, done: anyio.Event) -> None:
        """Reads the log of a guard to its end."""
        try:
            if self._on_event is None:
                # Without lines, so that nothing has to be held for a server that never ends one.
                # A character may begin in one chunk and end in the next.
                decoder = getincrementaldecoder("utf-8")(errors="replace")
                with suppress(*_CLOSED):
                    while True:
                        self._print(decoder.decode(await stream.receive()))
                self._print(decoder.decode(b"", final=True))
            lines = _Lines(stream)
            while (line := await lines.next()) is not None:
                self._take(line)
        finally:
            done.set()

    async def finish(self) -> None:
        """Waits for the last lines of a guard that has ended."""
        if self._done is not None:
            with anyio.move_on_after(_LOG_SECONDS):
                await self._done.wait()

    def _take(self, line: bytes) -> None:
        entry: Any = None
        # A server may write JSON that is too deep.
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
        if isinstance(entry, dict) and "event" in entry:
            self._print(_as_text(entry) + "\n")
            self.report(self._event(entry))
        elif isinstance(entry, dict) and "stderr" in entry:
            self._print(f"{entry['stderr']}\n")
        else:
            self._print(line.decode(errors="replace") + "\n")

    def _event(self, entry: dict[str, Any]) -> Event:
        text, state, seconds = entry.pop("event"), entry.pop("state", None), entry.pop("seconds", None)
        kind = str(entry.pop("kind", "other"))
        return Event(kind, str(text), self._state if state is None else str(state), seconds, entry)

    def report(self, event: Event) -> None:
        """Passes an event to the host. An error of the host's callback must not end the connection."""
        self._state = event.state
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            logger.exception("on_event raised an exception")

    def _print(self, text: str) -> None:
        # A program without a console, such as pythonw, has no standard error.
        if self._errlog is None:
            return
        with suppress(OSError, ValueError):
            self._errlog.write(text)
            self._errlog.flush()


def _as_text(entry: dict[str, Any]) -> str:
    """Formats an entry as the guard does in its text log."""
    seconds, hint = entry.get("seconds"), entry.get("hint")
    at = f"{seconds:9.3f} " if isinstance(seconds, (int, float)) else ""
    # A lost call concerns both sides.
    side = "" if entry.get("kind") == "call_lost" else {"upstream": "server: ", "downstream": "host: "}.get(str(entry.get("side")), "")
    return f"{at}{side}{entry['event']}" + (f" ({hint})" if hint else "")


def _is_file(errlog: TextIO) -> bool:
    try:
        return errlog.fileno() >= 0
    except (AttributeError, OSError, UnsupportedOperation, ValueError):
        return False


class _Lines:
    """Reads lines from a pipe."""

    def __init__(self, stream: ByteReceiveStream | None) -> None:
        self._stream = stream
        self._ready: deque[bytes] = deque()
        # The beginning of a line, in pieces: joining them for each chunk would take quadratic time.
        self._parts: list[bytes] = []

    async def next(self) -> bytes | None:
        """The next line, without its newline. `None` at the end of the pipe; an unfinished line is left out."""
        while not self._ready:
            if self._stream is None:
                return None
            try:
                chunk = await self._stream.receive()
            except _CLOSED:
                return None
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                self._ready.append(b"".join([*self._parts, line]))
                self._parts.clear()
            if rest:
                self._parts.append(rest)
        return self._ready.popleft()


async def _send(stream: ByteSendStream | None, line: bytes | None) -> None:
    # A guard that has ended is noticed at the end of its output.
    with suppress(*_CLOSED):
        if stream is not None and line is not None:
            await stream.send(line)


async def _exit(process: Process, seconds: float) -> None:
    """Waits until a process has ended, but not longer than this.

    Polls, because `wait` also waits for the end of the pipes on some versions of Python.
    """
    end = anyio.current_time() + seconds
    while process.returncode is None and anyio.current_time() < end:
        await anyio.sleep(_POLL_SECONDS)


def _kill(process: Process) -> None:
    if process.returncode is None:
        with suppress(OSError):
            process.kill()


def _close_transport(process: Process) -> None:
    """Closes the pipes of an asyncio process without waiting.

    Older versions of anyio leave those open that another process has inherited, until the garbage collector warns about them.
    """
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    close: Callable[[], None] | None = getattr(transport, "close", None)
    if close is not None:
        with suppress(OSError):
            close()


def _ending(process: Process) -> str:
    code = process.returncode
    if code is None:
        return "closed its output"
    if code >= 0:
        return f"ended with exit status {code}" + ("; its log says why" if code else "")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


def _process_options() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NO_WINDOW}
    # Ctrl-C at a terminal is for the host, which decides when the connection ends.
    return {"start_new_session": True}
