"""hermes-agent: a server in its configuration, and its tools as the agent dispatches them."""

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path

# Its own home, where it writes down what servers say: before it is loaded.
home = tempfile.mkdtemp()
atexit.register(shutil.rmtree, home, ignore_errors=True)
os.environ["HERMES_HOME"] = home

import common

common.change_import("tools.mcp_tool", "from mcp.client.stdio import stdio_client", "from everlink import stdio_client")
from tools import mcp_tool
from tools.registry import registry

NAME = "demo"


class Hermes(common.Host):
    stderr = Path(home) / "logs" / "mcp-stderr.log"

    async def connect(self, command: list[str]) -> None:
        if self.stderr.exists():
            os.truncate(self.stderr, 0)
        config = {NAME: {"command": command[0], "args": command[1:]}}
        await asyncio.to_thread(mcp_tool.register_mcp_servers, config)
        self.server = mcp_tool._servers[NAME]

    async def tools(self) -> list[str]:
        prefix = mcp_tool.mcp_prefixed_tool_name(NAME, "")
        return [name.removeprefix(prefix) for name in self.server._registered_tool_names]

    async def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        name = mcp_tool.mcp_prefixed_tool_name(NAME, tool)
        answer = json.loads(await asyncio.to_thread(registry.dispatch, name, arguments))
        return "error" not in answer, answer.get("error") or answer["result"]

    def connection(self) -> dict:
        server = self.server
        return {
            "session": server.session,
            "task": server._task,
            "retries": server._reconnect_retries,
            "reconnect wished": server._reconnect_event.is_set(),
            "errors in a row": mcp_tool._server_error_counts.get(NAME, 0),
            "tools": list(server._registered_tool_names),
        }

    async def close(self) -> None:
        await asyncio.to_thread(mcp_tool.shutdown_mcp_servers)


if __name__ == "__main__":
    common.main(Hermes)
