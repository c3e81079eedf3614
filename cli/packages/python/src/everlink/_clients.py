"""The transports that replace those of the SDK. Each only says how its guard is started; `_transport` does the rest."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from ._parameters import guard_at, guarded, url_arguments
from ._program import find_program
from ._sdk import load_sdk

if TYPE_CHECKING:
    from datetime import timedelta

    from mcp import StdioServerParameters

    from ._events import OnEvent
    from ._transport import Launch, Streams

_MISSING: Final = object()


def stdio_client(
    server: StdioServerParameters,
    errlog: TextIO | None = sys.stderr,
    *,
    on_event: OnEvent | None = None,
    guard_options: Sequence[str] = (),
) -> AbstractAsyncContextManager[Streams]:
    """Like `mcp.stdio_client`, but the connection survives the server.

    Starts `everlink guard -- COMMAND`. When the server dies, calls in flight fail with a text that says why, and the next call finds a new server. The session stays.

    Args:
        server: The command of the server, its arguments, environment and directory.
        errlog: Where the standard error of the server and the log of the guard go. `None` discards them.
        on_event: Called with each `Event` of the connection, in the task of this transport. An `Events` makes an async iterator of it.
        guard_options: Options for `everlink guard`, such as `["--hang-timeout", "10"]`.

    Raises:
        ProgramNotFoundError: The program `everlink` is not installed.
        ImportError: The SDK `mcp` is not installed.
    """
    load_sdk()
    if server.encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        raise ValueError(f"the guard speaks UTF-8 only, as MCP demands: leave out encoding={server.encoding!r}")
    # Imported by name, because `mcp.client.stdio` is a package in 1.x and a module in 2.x.
    defaults: dict[str, str] = importlib.import_module("mcp.client.stdio").get_default_environment()
    present = server.args if guard_at(server.command, server.args) is not None else []
    options = [*_log_options(on_event, [*guard_options, *present]), *guard_options]
    server = guarded(server, guard_options=options)
    from ._transport import Launch, connect

    launch = Launch([server.command, *server.args], {**defaults, **(server.env or {})}, server.cwd)
    return connect(launch, errlog, on_event)


def streamable_http_client(
    url: str,
    *,
    http_client: Any = None,
    terminate_on_close: bool = True,
    max_sse_event_size: Any = _MISSING,
    headers: Mapping[str, str] | None = None,
    errlog: TextIO | None = sys.stderr,
    on_event: OnEvent | None = None,
    guard_options: Sequence[str] = (),
) -> AbstractAsyncContextManager[Any]:
    """Like `mcp.client.streamable_http.streamable_http_client`, but the connection survives the server and its sessions.

    Starts `everlink guard --url URL`, which makes the HTTP requests. Yields two streams, and with SDK 1.x also a function for the session id, which always returns
    `None`: the guard may change sessions at any time.

    Args:
        url: The URL of the server. Other users can see it in the list of processes, so put secrets into `headers`.
        http_client: Must be `None`, because the guard makes the requests. Pass `headers`, or sign in with `everlink login URL`.
        terminate_on_close: Must be true: the guard ends each session that it leaves.
        max_sse_event_size: The maximum length of a message in bytes. The guard's own default is 64 MiB. `None` means 1 GiB.
        headers: Header fields for every request. They are not visible in the list of processes.
        errlog: Where the log of the guard goes. `None` discards it.
        on_event: Called with each `Event` of the connection; see `stdio_client`.
        guard_options: Options for `everlink guard`, such as `["--oauth", "off"]`.
    """
    _refuse("http_client", http_client, None)
    _refuse("terminate_on_close", terminate_on_close, True)
    options = list(guard_options)
    if max_sse_event_size is not _MISSING:
        # The guard refuses limits below 4 KiB.
        options += ["--max-message", "1G" if max_sse_event_size is None else str(max(int(max_sse_event_size), 4096))]
    return _shaped(_launch(url, headers, options, on_event), errlog, on_event)


def streamablehttp_client(
    url: str,
    headers: dict[str, str] | None = None,
    timeout: float | timedelta = 30,
    sse_read_timeout: float | timedelta = 60 * 5,
    terminate_on_close: bool = True,
    httpx_client_factory: Any = None,
    auth: Any = None,
    *,
    errlog: TextIO | None = sys.stderr,
    on_event: OnEvent | None = None,
    guard_options: Sequence[str] = (),
) -> AbstractAsyncContextManager[Any]:
    """Like `mcp.client.streamable_http.streamablehttp_client` of SDK 1.x, with a connection that survives; see `streamable_http_client`.

    Args:
        url: The URL of the server.
        headers: Header fields for every request.
        timeout: Accepted and not used. The guard has its own limits for connections, and it tells slow servers from dead ones.
        sse_read_timeout: Accepted and not used, for the same reason. A limit for a call belongs to the session: `read_timeout_seconds`.
        terminate_on_close: Must be true.
        httpx_client_factory: Must not be given, because the guard makes the requests.
        auth: Must be `None`: pass `headers`, or sign in with `everlink login URL`.
        errlog: Where the log of the guard goes. `None` discards it.
        on_event: Called with each `Event` of the connection; see `stdio_client`.
        guard_options: Options for `everlink guard`.
    """
    _refuse("terminate_on_close", terminate_on_close, True)
    _refuse("httpx_client_factory", httpx_client_factory, None)
    _refuse("auth", auth, None)
    return _shaped(_launch(url, headers, guard_options, on_event), errlog, on_event)


def sse_client(
    url: str,
    headers: dict[str, Any] | None = None,
    timeout: float = 5,
    sse_read_timeout: float = 60 * 5,
    httpx_client_factory: Any = None,
    auth: Any = None,
    on_session_created: Callable[[str], None] | None = None,
    *,
    errlog: TextIO | None = sys.stderr,
    on_event: OnEvent | None = None,
    guard_options: Sequence[str] = (),
) -> AbstractAsyncContextManager[Streams]:
    """Like `mcp.client.sse.sse_client`, but the connection survives the server and its sessions.

    The guard finds out whether the server speaks HTTP+SSE (2024-11-05) or Streamable HTTP. Yields two streams.

    Args:
        url: The URL of the server's event stream.
        headers: Header fields for every request.
        timeout: Accepted and not used; see `streamablehttp_client`.
        sse_read_timeout: Accepted and not used.
        httpx_client_factory: Must not be given, because the guard makes the requests.
        auth: Must be `None`: pass `headers`, or sign in with `everlink login URL`.
        on_session_created: Must be `None`, because the guard may change sessions at any time. `on_event` reports that.
        errlog: Where the log of the guard goes. `None` discards it.
        on_event: Called with each `Event` of the connection; see `stdio_client`.
        guard_options: Options for `everlink guard`.
    """
    _refuse("httpx_client_factory", httpx_client_factory, None)
    _refuse("auth", auth, None)
    _refuse("on_session_created", on_session_created, None)
    launch = _launch(url, headers, guard_options, on_event)
    from ._transport import connect

    return connect(launch, errlog, on_event)


#: What to do instead of passing an argument that a guard cannot honour.
_ADVICE = {
    "auth": "pass headers={'Authorization': ...}, or sign in once with `everlink login URL`; the guard then renews the tokens",
    "http_client": "pass headers={...} instead; proxies and certificates come from the environment (HTTPS_PROXY, SSL_CERT_FILE)",
    "httpx_client_factory": "pass headers={...} instead; proxies and certificates come from the environment (HTTPS_PROXY, SSL_CERT_FILE)",
    "on_session_created": "leave it out; the guard may open a new session at any time, and on_event reports it",
    "terminate_on_close": "leave it out; the guard ends each session that it leaves",
}


def _refuse(name: str, value: object, allowed: object) -> None:
    if value is allowed:
        return
    if name == "httpx_client_factory" and getattr(value, "__name__", "") == "create_mcp_http_client":
        # The SDK's own default, which some hosts pass on.
        return
    raise TypeError(f"everlink cannot honour {name}=, because its guard makes the HTTP requests: {_ADVICE[name]}")


def _log_options(on_event: OnEvent | None, arguments: Sequence[str]) -> list[str]:
    """The options with which a guard writes events for `on_event`, in addition to these arguments."""
    if on_event is None:
        return []
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(option == "--log" or option.startswith("--log=") for option in own):
        raise ValueError("on_event reads the guard's log as JSON: leave out the option --log")
    return ["--log", "json"]


def _launch(url: str, headers: Mapping[str, Any] | None, guard_options: Sequence[str], on_event: OnEvent | None) -> Launch:
    load_sdk()
    options = [*_log_options(on_event, guard_options), *guard_options]
    arguments, variables = url_arguments(url, headers, options)
    from ._transport import Launch

    # The whole environment: it may name a proxy, certificates, and where tokens are.
    return Launch([find_program(), *arguments], {**os.environ, **variables})


@asynccontextmanager
async def _shaped(launch: Launch, errlog: TextIO | None, on_event: OnEvent | None) -> AsyncIterator[Any]:
    """The streams, as the installed SDK yields them for HTTP."""
    from ._transport import connect

    async with connect(launch, errlog, on_event) as streams:
        yield streams if load_sdk().major >= 2 else (*streams, _no_session_id)


def _no_session_id() -> str | None:
    return None
