"""A host without a library, on stdio: it can write every number and every text that JSON can spell. See host.py."""

import re
import subprocess

import anyio
from host import ELICITED, INFO, ROOTS, SAMPLE, Host, target
from messages import Number, parsed, spelled


ANSWERS = {"roots/list": {"roots": ROOTS}, "sampling/createMessage": SAMPLE, "elicitation/create": ELICITED, "ping": {}}


def written(value):
    """JSON in one line. A lone surrogate cannot be encoded, so it is escaped."""
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", spelled(value)).encode()


class Raw(Host):
    cannot = ("listen", "tasks")
    # Numbers stay as they are spelled in the file.
    read_json = staticmethod(parsed)

    def __init__(self, process):
        super().__init__()
        self.process, self.replies, self.number = process, {}, 0

    async def write(self, message):
        await self.process.stdin.send(written({"jsonrpc": "2.0"} | message) + b"\n")

    async def read(self):
        parts = []
        async for chunk in self.process.stdout:
            *ends, begin = chunk.split(b"\n")
            for end in ends:
                message = parsed(b"".join([*parts, end]))
                parts = []
                if "id" in message and "method" in message:
                    await self.write({"id": message["id"], "result": ANSWERS.get(message["method"], {"x-unknown": Number("1.0")})})
                elif "method" in message:
                    self.hear(message["method"])
                elif message.get("id") in self.replies:
                    self.replies.pop(message["id"]).set_result(message)
            parts.append(begin)

    async def request(self, method, params):
        self.number += 1
        number, reply = str(self.number), Reply()
        self.replies[number] = reply
        params = {} if params is None else {"params": params}
        await self.write({"id": Number(number), "method": method} | params)
        await reply.come.wait()
        return reply.message["result"] if "result" in reply.message else f"error {spelled(reply.message['error'])}"

    async def call(self, tool, arguments, meta, progress):
        params = {"name": tool} | ({} if arguments is None else {"arguments": arguments})
        meta = (meta or {}) | ({"progressToken": "tøken"} if progress else {})
        return await self.request("tools/call", params | ({"_meta": meta} if meta else {}))

    async def cancel_call(self, tool, arguments, reason):
        """Cancels a request that has been answered already, which the other end must ignore."""
        await self.call(tool, arguments, None, True)
        await self.notify("notifications/cancelled", {"requestId": Number(str(self.number)), "reason": reason, "x-unknown": None})

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
        tasks.start_soon(raw.read)
        capabilities = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}, "experimental": {"x-everlink-host": {"deep": []}}, "extensions": {"com.example/e": {}}}
        await raw.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": INFO | {"x-more": "kept"}})
        await raw.notify("notifications/initialized", None)
        await raw.play()
        tasks.cancel_scope.cancel()
        process.terminate()


anyio.run(main)
