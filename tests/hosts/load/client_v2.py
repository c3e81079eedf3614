"""A host of the Python SDK 2.x under load: COMMAND... is what it takes for its server."""

import sys
from contextlib import asynccontextmanager

import anyio
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_types import JSONRPCError, JSONRPCResponse

from lanes import DEADLINE, drive, tapped, tell


def heard(message):
    return {"heard": message.id} if isinstance(message, JSONRPCResponse | JSONRPCError) else {}


@asynccontextmanager
async def guarded():
    guard = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(guard) as (read, write), tapped(read, heard) as read:
        yield read, write


async def main():
    async with Client(guarded()) as client:

        async def call(tool, message):
            try:
                result = await client.call_tool(tool, {"message": message}, DEADLINE)
            except MCPError as error:
                return {"code": error.code, "text": error.message}
            return {"failed": bool(result.is_error), "text": result.content[0].text}

        names = [tool.name for tool in (await client.list_tools()).tools]
        tell(connected=f"{client.server_info.name}, {client.protocol_version}")
        await drive(call, names)


anyio.run(main)
