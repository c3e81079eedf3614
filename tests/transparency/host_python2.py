"""A host on the Python SDK 2.x, of either era: see host.py."""

import warnings

import anyio
import mcp_types as types
from host import ELICITED, INFO, ROOTS, SAMPLE, Host, era, target, transport
from mcp import Client, StdioServerParameters, stdio_client

warnings.simplefilter("ignore")


class Raw(types.Request):
    method: str
    params: dict | None = None


class RawNotification(types.Notification):
    method: str
    params: dict | None = None


class Python2(Host):
    # Its transport ends when it is to write a lone surrogate.
    cannot = ("surrogates",)

    async def hear_message(self, message):
        if method := getattr(message, "method", None):
            self.hear(method)

    async def roots(self, context):
        return types.ListRootsResult.model_validate({"roots": ROOTS})

    async def sample(self, context, params):
        return types.CreateMessageResult.model_validate(SAMPLE)

    async def elicit(self, context, params):
        return types.ElicitResult.model_validate(ELICITED)

    async def call(self, tool, arguments, meta, progress):
        async def report(number, total, message):
            progress([number, total, message])

        result = await self.client.call_tool(tool, arguments, progress_callback=report if progress else None, meta=meta)
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def request(self, method, params):
        result = await self.client.session.send_request(Raw(method=method, params=params), types.Result)
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def notify(self, method, params):
        await self.client.session.send_notification(RawNotification(method=method, params=params))

    async def cancel_call(self, tool, arguments, reason):
        """This SDK cancels a request when its caller is cancelled. The reason is its own."""
        begun = anyio.Event()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.call, tool, arguments, None, lambda report: begun.set())
            with anyio.move_on_after(3):
                await begun.wait()
            tasks.cancel_scope.cancel()
        await anyio.sleep(0.5)

    async def listen(self, wanted, steps):
        if not self.is_modern:
            return "not of this era"
        names = {
            "tools_list_changed": wanted["toolsListChanged"],
            "prompts_list_changed": wanted["promptsListChanged"],
            "resources_list_changed": wanted["resourcesListChanged"],
            "resource_subscriptions": wanted["resourceSubscriptions"],
        }
        async with self.client.listen(**names) as stream:
            events = []

            async def collect():
                async for event in stream:
                    events.append(type(event).__name__)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect)
                for step in steps:
                    await self.step(step)
                with anyio.move_on_after(3):
                    while len(events) < 4:
                        await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        return sorted(events)


async def main():
    host = Python2()
    server = stdio_client(StdioServerParameters(command=target[0], args=target[1:])) if transport == "stdio" else target[0]
    client = Client(
        server,
        mode="legacy" if era == "legacy" else "auto",
        cache=None,
        sampling_callback=host.sample,
        elicitation_callback=host.elicit,
        list_roots_callback=host.roots,
        message_handler=host.hear_message,
        client_info=types.Implementation.model_validate(INFO),
    )
    async with client:
        host.client, host.is_modern = client, client.protocol_version >= "2026"
        await host.play()


anyio.run(main)
