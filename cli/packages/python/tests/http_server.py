"""A server of the installed SDK over HTTP: TRANSPORT PORT."""

import os
import sys
from importlib import metadata
from typing import Any

transport, port = sys.argv[1], int(sys.argv[2])
if metadata.version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP

    server: Any = FastMCP("demo", host="127.0.0.1", port=port)
    options: dict[str, Any] = {}
else:
    from mcp.server import MCPServer

    server = MCPServer("demo")
    options = {"host": "127.0.0.1", "port": port}


@server.tool()
async def echo(message: str) -> str:
    return message


@server.tool()
async def pid() -> str:
    return str(os.getpid())


server.run(transport, **options)
