"""A host of the Python SDK 1.x under load: COMMAND... is what it takes for its server."""

import sys
from datetime import timedelta

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
from mcp.types import JSONRPCError, JSONRPCResponse

from lanes import DEADLINE, drive, tapped, tell


def heard(message):
    return {"heard": message.root.id} if isinstance(message.root, JSONRPCResponse | JSONRPCError) else {}


async def main():
    guard = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(guard) as (read, write), tapped(read, heard) as read, ClientSession(read, write) as session:

        async def call(tool, message):
            try:
                result = await session.call_tool(tool, {"message": message}, timedelta(seconds=DEADLINE))
            except McpError as error:
                return {"code": error.error.code, "text": error.error.message}
            return {"failed": bool(result.isError), "text": result.content[0].text}

        met = await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        tell(connected=f"{met.serverInfo.name}, {met.protocolVersion}")
        await drive(call, names)


anyio.run(main)
