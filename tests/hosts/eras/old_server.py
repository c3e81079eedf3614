"""A server of the SDK 1.1.3, which speaks 2024-11-05 alone: [FILE] as in tools.py."""

import anyio
import tools
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool

server = Server("old")


@server.list_tools()
async def list_tools():
    return [Tool(name=name, description=name, inputSchema=schema) for name, schema in tools.SCHEMAS.items()]


@server.call_tool()
async def call_tool(name, arguments):
    context = server.request_context
    token = context.meta and context.meta.progressToken

    async def progress(number, total):
        if token is not None:
            await context.session.send_progress_notification(token, number, total)

    return [TextContent(type="text", text=await tools.run(name, arguments, progress))]


async def main():
    tools.die_once()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
