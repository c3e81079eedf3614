"""A host on the Python SDK 1.x: see host.py."""

from contextlib import asynccontextmanager

import anyio
from host import ELICITED, INFO, ROOTS, SAMPLE, Host, target, transport
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.message import SessionMessage


class Python1(Host):
    # Its transport ends when it is to write a lone surrogate.
    cannot = ("surrogates",)

    async def hear_message(self, message):
        if isinstance(message, types.ServerNotification):
            self.hear(message.root.method)

    async def roots(self, context):
        return types.ListRootsResult.model_validate({"roots": ROOTS})

    async def sample(self, context, params):
        return types.CreateMessageResult.model_validate(SAMPLE)

    async def elicit(self, context, params):
        return types.ElicitResult.model_validate(ELICITED)

    async def send(self, request, progress=None):
        async def report(number, total, message):
            progress([number, total, message])

        result = await self.session.send_request(
            types.ClientRequest.model_construct(root=request), types.Result, progress_callback=report if progress else None
        )
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def call(self, tool, arguments, meta, progress):
        params = types.CallToolRequestParams.model_validate({"name": tool, "arguments": arguments, "_meta": meta})
        return await self.send(types.CallToolRequest(method="tools/call", params=params), progress)

    async def request(self, method, params):
        return await self.send(types.JSONRPCRequest.model_construct(method=method, params=params))

    async def notify(self, method, params):
        message = types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        await self.session._write_stream.send(SessionMessage(types.JSONRPCMessage(message)))

    async def cancel_call(self, tool, arguments, reason):
        """This SDK has no verb for it, so the notification is written by hand."""
        number, begun, answer = self.session._request_id, anyio.Event(), []

        async def run():
            try:
                answer.append(await self.call(tool, arguments, None, lambda report: begun.set()))
            except Exception as error:
                answer.append(f"{type(error).__name__}: {error}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.move_on_after(3):
                await begun.wait()
            await self.notify("notifications/cancelled", {"requestId": number, "reason": reason})
            # A reply may still come, or may not.
            await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        return answer


@asynccontextmanager
async def connect():
    if transport == "stdio":
        async with stdio_client(StdioServerParameters(command=target[0], args=target[1:])) as streams:
            yield streams
    else:
        async with streamablehttp_client(target[0]) as (read, write, _):
            yield read, write


async def main():
    host = Python1()
    async with connect() as (read, write):
        session = ClientSession(
            read,
            write,
            sampling_callback=host.sample,
            elicitation_callback=host.elicit,
            list_roots_callback=host.roots,
            message_handler=host.hear_message,
            client_info=types.Implementation.model_validate(INFO),
        )
        async with session:
            host.session = session
            await session.initialize()
            await host.play()


anyio.run(main)
