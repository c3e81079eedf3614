"""livekit-agents: an `MCPServerStdio` in an `MCPToolset`, whose tools are executed as an agent executes them."""

import json
import sys

import common

common.change_import(
    "livekit.agents.llm.mcp",
    "from mcp import ClientSession, stdio_client",
    "from mcp import ClientSession; from everlink import stdio_client",
)
# Where this script is: it has the name of the package.
sys.path.pop(0)
from livekit.agents.llm import FunctionToolCall, ToolContext
from livekit.agents.llm.mcp import MCPServerStdio, MCPToolset
from livekit.agents.llm.utils import execute_function_call


class Livekit(common.Host):
    # By default it waits for 5 s only, for whatever it asks.
    options = {"client_session_timeout_seconds": common.DEADLINE}

    async def connect(self, command: list[str]) -> None:
        self.server = MCPServerStdio(command[0], command[1:], **self.options)
        self.toolset = MCPToolset(id="demo", mcp_server=self.server)
        await self.toolset.setup()
        self.context = ToolContext([self.toolset])

    async def tools(self) -> list[str]:
        return list(self.context.function_tools)

    async def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        call = FunctionToolCall(name=tool, arguments=json.dumps(arguments), call_id="1")
        result = await execute_function_call(call, self.context)
        output = result.fnc_call_out
        return not output.is_error, output.output

    def connection(self) -> dict:
        server = self.server
        return {"session": server._client, "task": server._client_task, "initialized": server.initialized}

    async def close(self) -> None:
        await self.toolset.aclose()


if __name__ == "__main__":
    common.main(Livekit)
