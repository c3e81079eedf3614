"""A server of the SDK 2.3.0, of its class MCPServer, for both eras: stdio, or streamable-http PORT."""

import os
import sys
from typing import Annotated

import anyio
import mcp_types as types
from mcp.server import MCPServer, NotificationOptions
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

NOTE = "interop://note"

transport, *port = sys.argv[1:]
server = MCPServer("interop", log_level="ERROR")
inside = server._lowlevel_server
watched = set()
cancelled = 0


class Person(BaseModel):
    name: str


async def whoever() -> Elicit[Person]:
    return Elicit("What is your name?", Person)


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


@server.resource(NOTE)
def note() -> str:
    return "a note"


@server.tool()
async def ask(person: Annotated[Person, Resolve(whoever)]) -> str:
    return f"Hello, {person.name}"


@server.tool()
async def echo(message: str) -> str:
    return f"Echo: {message}"


@server.tool()
async def fail() -> str:
    raise ToolError("this never works")


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(pid, name="grown")
    await (ctx.notify_tools_changed() if is_modern(ctx) else ctx.session.send_tool_list_changed())
    return "grown"


@server.tool()
async def noted() -> str:
    return f"cancelled: {cancelled}"


@server.tool()
async def pid() -> str:
    return str(os.getpid())


@server.tool()
async def progress(ctx: Context) -> str:
    for number in range(1, 4):
        await ctx.report_progress(number, 3)
    return "three steps"


@server.tool()
async def slow(ctx: Context) -> str:
    global cancelled
    await ctx.report_progress(1)
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        raise
    return "slept"


@server.tool()
async def touch(ctx: Context) -> str:
    if is_modern(ctx):
        await ctx.notify_resource_updated(NOTE)
    elif NOTE in watched:
        await ctx.session.send_resource_updated(NOTE)
    return "touched"


async def subscribe(ctx, params):
    watched.add(str(params.uri))
    return types.EmptyResult()


def options(make=inside.create_initialization_options):
    """What the SDK does not say to legacy clients by itself."""
    return make(NotificationOptions(tools_changed=True))


inside.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
inside.create_initialization_options = options
server.run(transport, **({"port": int(port[0])} if port else {}))
