"""A server of the SDK 2.x from which all is taken that is not 2026-07-28: [FILE] as in tools.py.

A request without the version in its `_meta` is refused: `initialize` with -32022 and the versions that there are, others with -32602.
"""

import anyio
import mcp_types as types
import tools
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

VERSION = "2026-07-28"


async def list_tools(context, params):
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema=schema) for name, schema in tools.SCHEMAS.items()]
    )


async def call_tool(context, params):
    failed = False
    try:
        text = await tools.run(params.name, params.arguments, context.session.report_progress)
    except ValueError as error:
        text, failed = str(error), True
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=failed)


def refusal(message):
    """What is wrong with a message of another era, if it is one and a request."""
    if not isinstance(message, types.JSONRPCRequest):
        return None
    meta = (message.params or {}).get("_meta") or {}
    if "io.modelcontextprotocol/protocolVersion" in meta:
        return None
    if message.method == "initialize":
        requested = message.params.get("protocolVersion")
        return types.ErrorData(
            code=-32022, message="Unsupported protocol version", data={"supported": [VERSION], "requested": requested}
        )
    return types.ErrorData(code=-32602, message="there is no protocol version in _meta")


async def main():
    tools.die_once()
    server = Server("modern", version="1.0", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        into, sifted = anyio.create_memory_object_stream(0)

        async def sift():
            async with into:
                async for item in read:
                    error = None if isinstance(item, Exception) else refusal(item.message)
                    if error:
                        answer = types.JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)
                        await write.send(SessionMessage(answer))
                    else:
                        await into.send(item)

        tasks.start_soon(sift)
        await server.run(sifted, write, server.create_initialization_options())


anyio.run(main)
