"""The transports: same shape as those of the SDK, and a session that survives its servers."""

from __future__ import annotations

import inspect
import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import mcp.client.sse
import mcp.client.stdio
import mcp.client.streamable_http
import pytest
from mcp import ClientSession
from support import MAJOR, BaseExceptionGroup, HttpServer, Place, SdkError, call, echo, pid_of_server, run, until

import everlink
from everlink._sdk import load_sdk

URL = "http://127.0.0.1:1/mcp"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (everlink.stdio_client, mcp.client.stdio.stdio_client),
        (everlink.sse_client, mcp.client.sse.sse_client),
        (everlink.streamable_http_client, mcp.client.streamable_http.streamable_http_client),
        (everlink.streamablehttp_client, getattr(mcp.client.streamable_http, "streamablehttp_client", None)),
    ],
)
def test_each_call_of_the_sdk_function_is_a_call_of_ours(ours: Any, theirs: Any) -> None:
    if theirs is None:
        pytest.skip("this SDK has no such function")
    own = list(inspect.signature(ours).parameters.values())
    for position, parameter in enumerate(inspect.signature(theirs).parameters.values()):
        same = next((it for it in own if it.name == parameter.name), None)
        assert same is not None and same.kind == parameter.kind, parameter
        assert (same.default is same.empty) == (parameter.default is parameter.empty), parameter
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            assert own[position].name == parameter.name


async def die_during_a_call(session: ClientSession, place: Place, number: int) -> None:
    """Kills the server in the middle of a call. That call fails, and the next one works."""
    server = await pid_of_server(session)
    outcome: list[tuple[bool, str]] = []

    async def sleep() -> None:
        outcome.append(await call(session, "sleep", ms=60_000, number=number))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await until(lambda: place.runs(number) == 1, "the server has the call")
        os.kill(server, signal.SIGKILL)
    [(is_good, text)] = outcome
    assert not is_good
    for part in ["`sleep`", "SIGKILL", "may have run"]:
        assert part in text
    await echo(session)
    assert await pid_of_server(session) != server
    assert place.runs(number) == 1


def test_server_killed_during_calls_fails_those_calls_only(place: Place, backend: str) -> None:
    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            for number in range(1, 6):
                await die_during_a_call(session, place, number)

    run(backend, main)


@pytest.mark.skipif(MAJOR < 2, reason="SDK 1.x has no Client")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_client_of_the_sdk_takes_the_transport(place: Place, backend: str, mode: str) -> None:
    from mcp import Client

    async def main() -> None:
        async with Client(everlink.stdio_client(place.server()), mode=mode) as client:
            session = client.session
            for number in range(1, 3):
                await die_during_a_call(client, place, number)  # type: ignore[arg-type]
            assert client.session is session

    run(backend, main)


def test_server_killed_between_calls_is_not_noticed(place: Place, backend: str) -> None:
    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            server = await pid_of_server(session)
            for _ in range(4):
                os.kill(server, signal.SIGKILL)
                await until(lambda: place.server_of(place.guard()) not in (None, server), "the guard has another server")
                await echo(session)
                server = await pid_of_server(session)

    run(backend, main)


@pytest.mark.parametrize("has_file", [True, False], ids=["file", "text stream"])
@pytest.mark.parametrize("has_events", [True, False], ids=["with events", "without events"])
def test_errlog_gets_the_log_of_the_guard_and_the_stderr_of_the_server(place: Place, backend: str, has_file: bool, has_events: bool) -> None:
    script = f"echo 'schon wärmer' >&2; exec '{place.program}' demo-server"
    server = mcp.StdioServerParameters(command="sh", args=["-c", script], env={place.VARIABLE: place.mark})
    path = place.directory / "errlog"

    async def main(errlog: Any) -> None:
        events = everlink.Events() if has_events else None
        async with everlink.stdio_client(server, errlog, on_event=events) as (read, write), ClientSession(read, write) as session:
            await session.initialize()

    if has_file:
        with path.open("w") as errlog:
            run(backend, main, errlog)
        written = path.read_text()
    else:
        memory = io.StringIO()
        run(backend, main, memory)
        written = memory.getvalue()
    lines = written.splitlines()
    assert "schon wärmer" in lines
    assert any(line.endswith("server: connection 1 is ready: everlink-demo 0.1.0 speaks 2025-11-25") for line in lines), written
    assert lines[-1].endswith("server: closed")


def test_events_tell_how_the_connection_breaks_and_heals(place: Place, backend: str) -> None:
    events = everlink.Events()
    seen: list[everlink.Event] = []

    async def main() -> None:
        async def watch() -> None:
            async for event in events:
                seen.append(event)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            assert events.state == "idle"
            async with everlink.stdio_client(place.server(), on_event=events) as (read, write), ClientSession(read, write) as session:
                await session.initialize()
                await until(lambda: events.state == "ready", "the log says so")
                await die_during_a_call(session, place, 1)
        # The iteration ends by itself with the connection.
        assert events.state == "closed"

    run(backend, main)
    kinds = [event.kind for event in seen]
    expected = ["opening", "handshaking", "ready", "closing", "call_lost", "ended", "waiting", "opening", "handshaking", "ready", "host_closed", "closed", "end"]
    rest = iter(kinds)
    assert all(kind in rest for kind in expected), kinds
    assert kinds[-1] == "end"
    assert {"other", ""}.isdisjoint(kinds)
    [lost] = [event for event in seen if event.kind == "call_lost"]
    assert lost.details["method"] == "tools/call" and lost.details["mayHaveRun"] is True
    assert "SIGKILL" in lost.text
    states = [event.state for event in seen]
    assert states[0] == "idle" and states[-1] == "closed" and "waiting" in states
    assert all(event.seconds is not None for event in seen[:-1])


def test_callback_that_raises_does_not_end_the_connection(place: Place, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    def on_event(event: everlink.Event) -> None:
        raise RuntimeError(f"sorry about {event.kind}")

    async def main() -> None:
        async with everlink.stdio_client(place.server(), on_event=on_event) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await echo(session)

    run(backend, main)
    assert "sorry about ready" in caplog.text


def test_option_log_and_on_event_exclude_each_other(place: Place) -> None:
    with pytest.raises(ValueError, match="leave out the option --log"):
        everlink.stdio_client(place.server(), on_event=print, guard_options=["--log", "off"])
    with pytest.raises(ValueError, match="leave out the option --log"):
        everlink.sse_client(URL, on_event=print, guard_options=["--log=off"])
    with pytest.raises(ValueError, match="leave out the option --log"):
        everlink.stdio_client(everlink.guarded(place.server(), guard_options=["--log", "json"]), on_event=print)
    # An option of the server is none of the guard.
    everlink.stdio_client(place.server("--log"), on_event=print)
    everlink.stdio_client(everlink.guarded(place.server("--log")), on_event=print)


def test_command_that_is_guarded_already_gets_no_second_guard(place: Place, backend: str) -> None:
    server = everlink.guarded(place.server(), guard_options=["--stable-after", "0"])
    events = everlink.Events()

    async def main() -> None:
        async with everlink.stdio_client(server, on_event=events) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await until(lambda: events.state == "ready", "the log says so")
            assert sum(" guard " in words and " demo-server " in words for words in place.processes().values()) == 1

    run(backend, main)


def test_large_messages_pass_in_both_directions(place: Place, backend: str) -> None:
    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await echo(session, "ä\n" * 2_000_000)

    run(backend, main)


def test_many_calls_at_once_are_answered(place: Place, backend: str) -> None:
    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(echo, session, f"message {number}")

    run(backend, main)


def test_last_message_of_the_host_reaches_the_server(place: Place, backend: str) -> None:
    """`send` returns before the message is written. It must not be lost if the connection is closed at once."""

    async def main(number: int) -> None:
        params = {"name": "echo", "arguments": {"message": "x" * 1_000_000, "number": number}}
        request = {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": params}
        message: Any = load_sdk().decode(json.dumps(request).encode())
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await write.send(message)

    for number in range(1, 4):
        run(backend, main, number)
        assert place.runs(number) == 1


def test_exception_of_the_host_ends_the_connection_and_arrives(place: Place, backend: str) -> None:
    class Mine(Exception):
        pass

    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            raise Mine

    with pytest.raises(BaseException) as caught:
        run(backend, main)
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    assert type(error) is Mine


def test_command_that_does_not_exist_fails_initialize_with_the_reason(place: Place, backend: str) -> None:
    server = mcp.StdioServerParameters(command="no-such-server", env={place.VARIABLE: place.mark})

    async def main() -> None:
        async with everlink.stdio_client(server) as (read, write), ClientSession(read, write) as session:
            with pytest.raises(SdkError, match="no-such-server"):
                await session.initialize()

    run(backend, main)


def test_directory_that_does_not_exist_is_an_error_of_the_system(place: Place, backend: str) -> None:
    async def main() -> None:
        async with everlink.stdio_client(place.server(cwd=place.directory / "missing")):
            pytest.fail("a guard was started")

    with pytest.raises(FileNotFoundError):
        run(backend, main)


def test_other_encodings_are_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="UTF-8 only"):
        everlink.stdio_client(place.server(encoding="latin-1"))


def test_server_sees_the_environment_that_the_sdk_gives(place: Place, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "sesame")

    async def main() -> None:
        async with everlink.stdio_client(place.server()) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            variables = Path(f"/proc/{await pid_of_server(session)}/environ").read_bytes().split(b"\0")
            names = {variable.partition(b"=")[0].decode() for variable in variables if variable}
            assert names == {*mcp.client.stdio.get_default_environment(), place.VARIABLE}

    run(backend, main)


def http_clients() -> list[Any]:
    """Each function for HTTP, the transport of the server, and how many things it yields."""
    three = 2 if MAJOR >= 2 else 3
    return [
        pytest.param(everlink.streamable_http_client, "streamable-http", three, id="streamable_http_client"),
        pytest.param(everlink.streamablehttp_client, "streamable-http", three, id="streamablehttp_client"),
        pytest.param(everlink.sse_client, "sse", 2, id="sse_client"),
    ]


@pytest.mark.parametrize(("client", "transport", "yields"), http_clients())
def test_http_server_can_be_killed_and_started_again(place: Place, backend: str, client: Any, transport: str, yields: int) -> None:
    async def main(server: HttpServer) -> None:
        async with client(server.url) as streams:
            assert len(streams) == yields
            if yields == 3:
                assert streams[2]() is None
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                first = await pid_of_server(session)
                server.kill()
                await anyio.to_thread.run_sync(server.start)
                # The guard notices the loss of the session with the next call, which did not run and is repeated.
                await echo(session)
                assert await pid_of_server(session) != first

    with HttpServer(place, transport) as server:
        run(backend, main, server)


@pytest.mark.parametrize(
    ("client", "argument", "value"),
    [
        (everlink.streamable_http_client, "http_client", object()),
        (everlink.streamable_http_client, "terminate_on_close", False),
        (everlink.streamablehttp_client, "auth", object()),
        (everlink.streamablehttp_client, "httpx_client_factory", lambda **_: None),
        (everlink.streamablehttp_client, "terminate_on_close", False),
        (everlink.sse_client, "auth", object()),
        (everlink.sse_client, "httpx_client_factory", lambda **_: None),
        (everlink.sse_client, "on_session_created", print),
    ],
)
def test_argument_that_a_guard_cannot_honour_is_refused_with_advice(client: Any, argument: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"cannot honour {argument}=.*: (pass|leave)"):
        client(URL, **{argument: value})


def test_arguments_of_the_sdk_that_mean_nothing_special_are_accepted() -> None:
    from mcp.shared._httpx_utils import create_mcp_http_client

    everlink.sse_client(URL, {}, 5, 300, create_mcp_http_client, None, None)
    everlink.streamablehttp_client(URL, None, 30, 300, True, create_mcp_http_client, None)
    everlink.streamable_http_client(URL, http_client=None, terminate_on_close=True, max_sse_event_size=None)


class Recorder(BaseHTTPRequestHandler):
    """A small server over HTTP that writes down the headers of each request."""

    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "recorder", "version": "1"}}
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
        if message["method"] == "initialize":
            reply["result"] = result
        elif message["method"] == "ping":
            reply["result"] = {}
        else:
            reply["error"] = {"code": -32601, "message": "no such method"}
        self.answer(202 if "id" not in message else 200, b"" if "id" not in message else json.dumps(reply).encode())

    def do_GET(self) -> None:
        self.answer(405, b"")

    do_DELETE = do_GET

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def recorder() -> Iterator[tuple[str, list[dict[str, str]]]]:
    handler = type("Handler", (Recorder,), {"seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", handler.seen  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("client", [everlink.streamable_http_client, everlink.streamablehttp_client, everlink.sse_client])
def test_headers_reach_the_server_and_no_command_line(place: Place, backend: str, client: Any) -> None:
    headers = {"Authorization": "Bearer sesame-1", "X-Key": "sesame-2: with a colon"}

    async def main(url: str) -> None:
        async with client(url, headers=headers) as streams, ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            found = place.processes()
            assert any(" guard " in words for words in found.values()), found
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    try:
                        words = (process / "cmdline").read_bytes()
                    except OSError:
                        continue
                    assert b"sesame" not in words

    with recorder() as (url, seen):
        run(backend, main, url)
    assert seen
    for request in seen:
        assert (request["authorization"], request["x-key"]) == ("Bearer sesame-1", "sesame-2: with a colon")
