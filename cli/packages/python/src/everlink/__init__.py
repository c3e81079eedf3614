"""MCP connections that do not break, for hosts that use the Python SDK `mcp`.

`stdio_client`, `streamable_http_client` and `sse_client` replace the functions of the same names in the SDK. They put the program `everlink guard` between the host
and the server. `guarded` does the same for hosts that only take parameters. Importing this package needs nothing but the standard library.
"""

from ._clients import sse_client, stdio_client, streamable_http_client, streamablehttp_client
from ._events import Event, Events
from ._parameters import guarded
from ._program import ProgramNotFoundError, find_program

__all__ = [
    "Event",
    "Events",
    "ProgramNotFoundError",
    "find_program",
    "guarded",
    "sse_client",
    "stdio_client",
    "streamable_http_client",
    "streamablehttp_client",
]
