"""The transport without processes: the log of a guard, requests that are cancelled, and event loops that cannot start a process."""

from __future__ import annotations

import json
from io import StringIO
from types import SimpleNamespace
from typing import Any

import anyio

from everlink import _transport
from everlink._events import Event
from everlink._transport import Launch, _Connection, _Log


class Chunks:
    """A pipe with these chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    async def receive(self) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop(0)


class PlainSdk:
    """Writes messages that are plain objects."""

    def encode(self, message: Any) -> bytes:
        return json.dumps(vars(message.message)).encode() + b"\n"


def read(log: _Log, *chunks: bytes) -> None:
    pipe: Any = Chunks(*chunks)

    async def main() -> None:
        await log.read(pipe, log.begin())

    anyio.run(main)


def test_log_without_a_stream_is_discarded_and_events_arrive() -> None:
    read(_Log(None, None), b"a line\n")
    events: list[Event] = []
    read(_Log(None, events.append), b'{"event":"ready","state":"ready"}\n', b'{"stderr":"a line"}\n')
    assert [event.text for event in events] == ["ready"]


def test_character_of_the_log_may_begin_in_one_chunk_and_end_in_the_next() -> None:
    errlog = StringIO()
    euro = "€".encode()
    read(_Log(errlog, None), b"1 " + euro[:1], euro[1:2], euro[2:] + b"\n" + euro[:2])
    assert errlog.getvalue() == "1 €\n\N{REPLACEMENT CHARACTER}"


def test_line_of_the_log_with_deep_json_is_text() -> None:
    errlog, events = StringIO(), list[Event]()
    deep = b"[" * 1_000_000
    read(_Log(errlog, events.append), deep + b'\n{"event":"ready"}\n')
    assert errlog.getvalue().startswith("[[[")
    assert len(events) == 1


def test_cancelled_request_is_forgotten_and_the_handshake_is_not() -> None:
    def message(method: str, id: int | None = None, **params: Any) -> Any:
        ids = {} if id is None else {"id": id}
        return SimpleNamespace(message=SimpleNamespace(method=method, params=params, **ids))

    async def main() -> None:
        sdk: Any = PlainSdk()
        connection = _Connection(Launch([], {}), sdk, StringIO(), None)
        connection._set_up(True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.write_messages)
            for number, method in [(1, "initialize"), (2, "tools/call"), (3, "tools/call")]:
                await connection.write.send(message(method, number))
            for number in (1, 3, 4):
                await connection.write.send(message("notifications/cancelled", requestId=number))
            await connection.write.send(message("notifications/cancelled"))
            connection.write.close()
        assert list(connection._pending) == [1, 2]
        await connection.dispose()

    anyio.run(main)


def test_event_loop_that_cannot_start_processes_is_named(monkeypatch: Any) -> None:
    async def open_process(*_: Any, **__: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(_transport.anyio, "open_process", open_process)

    async def main() -> str:
        sdk: Any = PlainSdk()
        connection = _Connection(Launch([], {}), sdk, StringIO(), None)
        try:
            await connection.start()
        except OSError as error:
            return str(error)
        finally:
            await connection.dispose()
        return "no error"

    assert "ProactorEventLoop" in anyio.run(main)
