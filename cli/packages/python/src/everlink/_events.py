"""Events of a guard: what they are, and an async iterator over them. Does not know how they arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The last event of a connection. Its context has ended.
END = "end"

#: How many events wait for a reader. When there are more, the oldest are dropped.
_LIMIT = 1024


@dataclass(frozen=True)
class Event:
    """Something that happened to the connection between the guard and its server."""

    kind: str
    """The name of the event. It stays the same between versions, while the text may be reworded.

    Kinds that a host may want to show: `opening`, `ready`, `ended` (the server is gone), `waiting` (for the next attempt), `parked` (attempts are rare now), `slow`
    (the server takes long to start), `silent`, `call_lost` (a call got no reply), `sign_in` (`details["sign_in"]` is the page to open). Two come from this package:
    `guard_ended` if the guard itself was killed, and `end`, the last one. Others may be added.
    """

    text: str
    """The event in words, for people."""

    state: str
    """The state of the connection to the server after this event: `idle`, `opening`, `handshaking`, `ready`, `draining`, `closing`, `waiting`, `parked` or `closed`."""

    seconds: float | None = None
    """When it happened, in seconds since the guard started. `None` if the guard did not say."""

    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The other members of the guard's log entry, such as `method` and `mayHaveRun` of a lost call."""


OnEvent = Callable[[Event], None]


class Events:
    """The events of one connection, as an async iterator. Pass it as `on_event`.

    >>> events = everlink.Events()
    >>> async with everlink.stdio_client(server, on_event=events) as (read, write):
    ...     events.state    # "ready", "waiting", ...

    Iterate in another task of the same event loop. The iteration ends when the connection is closed. If nobody iterates, only the last 1,024 events are kept.
    """

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque(maxlen=_LIMIT)
        self._last: Event | None = None
        self._wake: Callable[[], object] | None = None

    def __call__(self, event: Event) -> None:
        """Takes an event from the connection."""
        self._waiting.append(event)
        self._last = event
        if self._wake is not None:
            self._wake()

    @property
    def last(self) -> Event | None:
        """The newest event, whether or not it was read by an iteration."""
        return self._last

    @property
    def state(self) -> str:
        """The state of the connection to the server; see `Event.state`. It may be a moment older than the messages, which come another way."""
        return "idle" if self._last is None else self._last.state

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        import anyio

        while not self._waiting:
            if self._last is not None and self._last.kind == END:
                raise StopAsyncIteration
            changed = anyio.Event()
            self._wake = changed.set
            await changed.wait()
        return self._waiting.popleft()
