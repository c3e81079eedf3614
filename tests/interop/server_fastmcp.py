"""A server of the SDK 1.30.0, of its class FastMCP: stdio, or sse PORT, or streamable-http PORT."""

import os
import sys

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from pydantic import AnyUrl, BaseModel

NOTE = "interop://note"

transport, *port = sys.argv[1:]
server = FastMCP("interop", log_level="ERROR", port=int(port[0]) if port else 0)
inside = server._mcp_server
watched = set()
cancelled = 0


class Person(BaseModel):
    name: str


@server.resource(NOTE)
def note() -> str:
    return "a note"


@inside.subscribe_resource()
async def subscribe(uri):
    watched.add(str(uri))


@inside.unsubscribe_resource()
async def unsubscribe(uri):
    watched.discard(str(uri))


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("What is your name?", Person)
    return f"Hello, {answer.data.name}"


@server.tool()
async def echo(message: str) -> str:
    return f"Echo: {message}"


@server.tool()
async def fail() -> str:
    raise ValueError("this never works")


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(pid, name="grown")
    await ctx.session.send_tool_list_changed()
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
    if NOTE in watched:
        await ctx.session.send_resource_updated(AnyUrl(NOTE))
    return "touched"


def options(make=inside.create_initialization_options):
    """What the SDK never says by itself."""
    made = make(NotificationOptions(tools_changed=True))
    made.capabilities.resources.subscribe = True
    return made


inside.create_initialization_options = options
server.run(transport)
