"""A host that only speaks 2024-11-05, of the SDK 1.1.3, before a guard: PROGRAM SERVER..., twice, since the first server may die as it starts."""

import sys
import tempfile

import anyio
import mcp.types as types
from checks import check, everything
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client


async def is_refused(server):
    """Whether the server by itself is of no use to this host; if not, the rest would show nothing."""
    async with stdio_client(StdioServerParameters(command=server[0], args=server[1:])) as (read, write):
        async with ClientSession(read, write) as session:
            try:
                await session.initialize()
            except McpError:
                return True
    return False


async def visit(name, program, server):
    guard = StdioServerParameters(command=program, args=["guard", "--log", "off", "--", *server])
    async with stdio_client(guard) as (read, write), ClientSession(read, write) as session, anyio.create_task_group() as tasks:
        progress = []

        async def listen():
            async for message in session.incoming_messages:
                match message:
                    case types.ServerNotification(root=types.ProgressNotification(params=params)):
                        progress.append(params.progress)
                    case Exception():
                        sys.exit(f"WRONG: a message that the host does not understand: {message}")

        async def list_tools():
            return [tool.name for tool in (await session.list_tools()).tools]

        async def call(tool, **arguments):
            progress.clear()
            # This SDK has no callback for progress; a host of its time asks for it by hand.
            params = types.CallToolRequestParams(name=tool, arguments=arguments, _meta={"progressToken": "here"})
            request = types.ClientRequest(types.CallToolRequest(method="tools/call", params=params))
            result = await session.send_request(request, types.CallToolResult)
            return result.isError, result.content[0].text, list(progress)

        tasks.start_soon(listen)
        met = await session.initialize()
        check("the version", met.protocolVersion, "2024-11-05")
        await everything(list_tools, call)
        await session.send_ping()
        tasks.cancel_scope.cancel()
    print(f"{name}: a host that only speaks 2024-11-05 gets all that it asks for")


async def main():
    program, *server = sys.argv[1:]
    with anyio.fail_after(120), tempfile.TemporaryDirectory() as directory:
        check("the server refuses the host by itself", await is_refused(server), True)
        await visit("stdio", program, server)
        await visit("stdio, with a server killed as it starts", program, [*server, f"{directory}/died"])


anyio.run(main)
