"""A low-level server of the SDK 1.1.3 to 1.8.1, on its standard streams."""

import os

import anyio
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.types import Resource, SamplingMessage, TextContent, Tool
from pydantic import AnyUrl

NOTE = "interop://note"

server = Server("interop")
tools = ["ask", "echo", "fail", "grow", "noted", "pid", "progress", "slow", "touch"]
watched = set()
cancelled = 0


@server.list_tools()
async def list_tools():
    return [Tool(name=name, description=name, inputSchema={"type": "object"}) for name in tools]


@server.list_resources()
async def list_resources():
    return [Resource(uri=AnyUrl(NOTE), name="note")]


@server.subscribe_resource()
async def subscribe(uri):
    watched.add(str(uri))


@server.call_tool()
async def call_tool(name, arguments):
    return [TextContent(type="text", text=await run(name, arguments))]


async def run(name, arguments):
    global cancelled
    context = server.request_context
    session = context.session

    async def progress(number):
        if context.meta and context.meta.progressToken is not None:
            await session.send_progress_notification(context.meta.progressToken, number, 3)

    match name:
        case "ask":
            question = SamplingMessage(role="user", content=TextContent(type="text", text="What is your name?"))
            answer = await session.create_message([question], max_tokens=10)
            return f"Hello, {answer.content.text}"
        case "echo":
            return f"Echo: {arguments['message']}"
        case "grow":
            tools.append("grown")
            await session.send_tool_list_changed()
            return "grown"
        case "noted":
            return f"cancelled: {cancelled}"
        case "pid":
            return str(os.getpid())
        case "progress":
            for number in range(1, 4):
                await progress(number)
            return "three steps"
        case "slow":
            await progress(1)
            try:
                await anyio.sleep(60)
            except anyio.get_cancelled_exc_class():
                cancelled += 1
                raise
            return "slept"
        case "touch":
            if NOTE in watched:
                await session.send_resource_updated(AnyUrl(NOTE))
            return "touched"
    raise ValueError("this never works")


async def main():
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    # The SDK never says so by itself.
    options.capabilities.resources.subscribe = True
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


anyio.run(main)
