"""A server of the SDK 2.x with a diary: SERVER DIARY. It writes down every call before it runs it."""

import asyncio
import sys

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

diary = open(sys.argv[1], "a", buffering=1)
server = MCPServer("diarist", log_level="WARNING")


async def run(tool: str, message: str) -> str:
    diary.write(f"{tool} {message}\n")
    await asyncio.sleep(0.02)
    return f"Echo: {message}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def echo(message: str) -> str:
    """May be repeated."""
    return await run("echo", message)


@server.tool()
async def note(message: str) -> str:
    """Must not be repeated."""
    return await run("note", message)


server.run()
