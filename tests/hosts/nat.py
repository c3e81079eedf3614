"""nvidia-nat-mcp: an `MCPStdioClient`, and its tools as the agents of NeMo call them."""

import sys

import common

common.change_import(
    "nat.plugins.mcp.client.client_base",
    "from mcp.client.stdio import stdio_client",
    "from everlink import stdio_client",
)
# Where this script is: it has the name of the package.
sys.path.pop(0)
from nat.plugins.mcp.client.client_base import MCPStdioClient


class Nat(common.Host):
    async def connect(self, command: list[str]) -> None:
        self.client = await MCPStdioClient(command[0], command[1:]).__aenter__()

    async def tools(self) -> list[str]:
        return list(await self.client.get_tools())

    async def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        told = await (await self.client.get_tool(tool)).acall(arguments)
        return not told.startswith("MCPToolClient tool call failed"), told

    def connection(self) -> dict:
        client = self.client
        return {"session": client._session, "task": client._lifecycle_task, "is_connected": client.is_connected}

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


if __name__ == "__main__":
    common.main(Nat)
