"""A host without a library, on stdio: it can write every number and every text that JSON can spell. See host.py."""

import re
import subprocess

import anyio
from host import INFO, Host, scenarios, target
from messages import Number, parsed, spelled


def written(value):
    """JSON in one line. A lone surrogate cannot be encoded, so it is escaped."""
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", spelled(value)).encode()


class Raw(Host):
    # Scenarios about features need a library to be of use; these are about values.
    can = ("tools", "errors", "progress", "custom-request", "custom-notification", "numbers", "overflow", "unicode", "surrogates", "shapes", "sizes-up", "sizes-down", "parallel")

    # Numbers stay as they are spelled in the file.
    read_json = staticmethod(parsed)

    def __init__(self, process):
        super().__init__()
        self.process, self.replies, self.number = process, {}, 0

    async def write(self, message):
        await self.process.stdin.send(written({"jsonrpc": "2.0"} | message) + b"\n")

    async def read(self):
        rest = b""
        async for chunk in self.process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                message = parsed(line)
                if "method" in message:
                    self.hear(message["method"])
                elif message.get("id") in self.replies:
                    self.replies.pop(message["id"]).set_result(message)

    async def request(self, method, params):
        self.number += 1
        number, reply = str(self.number), Reply()
        self.replies[number] = reply
        params = {} if params is None else {"params": params}
        await self.write({"id": Number(number), "method": method} | params)
        await reply.come.wait()
        return reply.message.get("result") or f"error {spelled(reply.message['error'])}"

    async def call(self, tool, arguments, meta, progress):
        params = {"name": tool} | ({} if arguments is None else {"arguments": arguments})
        meta = (meta or {}) | ({"progressToken": "tøken"} if progress else {})
        return await self.request("tools/call", params | ({"_meta": meta} if meta else {}))

    async def notify(self, method, params):
        await self.write({"method": method} | ({} if params is None else {"params": params}))


class Reply:
    def __init__(self):
        self.come = anyio.Event()

    def set_result(self, message):
        self.message = message
        self.come.set()


async def main():
    async with await anyio.open_process(target, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None) as process, anyio.create_task_group() as tasks:
        raw = Raw(process)
        raw.cannot = [one["name"] for one in scenarios() if one["name"] not in raw.can]
        tasks.start_soon(raw.read)
        capabilities = {"roots": {"listChanged": True}, "experimental": {"x-everlink-host": {"deep": []}}, "extensions": {"com.example/e": {}}}
        await raw.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": INFO | {"x-more": "kept"}})
        await raw.notify("notifications/initialized", None)
        await raw.play()
        tasks.cancel_scope.cancel()
        process.terminate()


anyio.run(main)
