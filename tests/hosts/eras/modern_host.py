"""A host that only speaks 2026-07-28, of the SDK 2.x, before a guard: PROGRAM SERVER..., over stdio and over HTTP."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager

import anyio
from checks import check, everything
from mcp import Client, MCPError, StdioServerParameters, stdio_client

VERSION = "2026-07-28"


@asynccontextmanager
async def tapped(transport, sent):
    """The same transport, with a note of all that is sent."""
    async with transport as (read, write), anyio.create_task_group() as tasks:
        into, out = anyio.create_memory_object_stream(0)

        async def copy():
            async for item in out:
                sent.append(item.message)
                await write.send(item)

        tasks.start_soon(copy)
        yield read, into
        tasks.cancel_scope.cancel()


async def is_refused(server):
    """Whether the server by itself is of no use to this host; if not, the rest would show nothing."""
    command = StdioServerParameters(command=server[0], args=server[1:])
    with open(os.devnull, "w") as nowhere:
        async with Client(stdio_client(command, nowhere), mode=VERSION, read_timeout_seconds=5) as client:
            try:
                await client.list_tools()
            except MCPError:
                return True
    return False


async def visit(name, where):
    async with Client(where, mode=VERSION) as client:

        async def list_tools():
            return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

        async def call(tool, **arguments):
            progress = []

            async def note(number, total, message):
                progress.append(number)

            result = await client.call_tool(tool, arguments, progress_callback=note)
            return bool(result.is_error), result.content[0].text, progress

        await everything(list_tools, call)
    print(f"{name}: a host that only speaks {VERSION} gets all that it asks for")


async def over_stdio(name, program, server):
    sent = []
    guard = StdioServerParameters(command=program, args=["guard", "--log", "off", "--", *server])
    await visit(name, tapped(stdio_client(guard), sent))
    for message in sent:
        meta = (getattr(message, "params", None) or {}).get("_meta", {})
        if hasattr(message, "id"):
            check(f"the version in {message.method}", meta.get("io.modelcontextprotocol/protocolVersion"), VERSION)
        check("a handshake of the host", message.method in ("initialize", "notifications/initialized"), False)


async def over_http(program, server):
    command = [program, "guard", "--log", "json", "--listen", "http://127.0.0.1:0/mcp", "--", *server]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as guard:
        try:
            url = next(json.loads(line)["listening"] for line in guard.stderr if "listening" in line)
            await visit("HTTP", url)
        finally:
            guard.terminate()
            guard.communicate()


async def main():
    program, *server = sys.argv[1:]
    with anyio.fail_after(120), tempfile.TemporaryDirectory() as directory:
        check("the server refuses the host by itself", await is_refused(server), True)
        await over_stdio("stdio", program, server)
        await over_stdio("stdio, with a server killed as it starts", program, [*server, f"{directory}/died"])
        await over_http(program, server)


anyio.run(main)
