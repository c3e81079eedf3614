"""A client of the SDK 2.x, of either era: see meeting.py."""

from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from meeting import NAME, NOTE, Visit, era, meet, program, transport, url


class Session(Visit):
    def __init__(self, tasks):
        super().__init__()
        self.tasks = tasks

    @property
    def version(self):
        return self.client.protocol_version

    async def names(self):
        return [tool.name for tool in (await self.client.list_tools(cache_mode="bypass")).tools]

    async def call(self, tool, given, progress=None):
        async def note(number, total, message):
            if progress:
                progress(number)

        result = await self.client.call_tool(tool, given, progress_callback=note)
        return bool(result.is_error), result.content[0].text

    async def watch(self):
        if era == "legacy":
            await self.client.subscribe_resource(NOTE)
        else:
            # A modern client hears of nothing that it did not ask for, lists included.
            await self.tasks.start(self.listen)

    async def listen(self, task_status):
        async with self.client.listen(tools_list_changed=True, resource_subscriptions=[NOTE]) as news:
            task_status.started()
            async for event in news:
                self.note(event)

    def note(self, event):
        match event:
            case ResourceUpdated(uri=uri) if str(uri) == NOTE:
                self.touched.set()
            case ToolsListChanged():
                self.grown.set()

    async def answer(self, context, params):
        return types.ElicitResult(action="accept", content={"name": NAME})

    async def hear(self, message):
        match message:
            case types.ResourceUpdatedNotification(params=params) if str(params.uri) == NOTE:
                self.touched.set()
            case types.ToolListChangedNotification():
                self.grown.set()


@asynccontextmanager
async def connect():
    server = stdio_client(StdioServerParameters(command=program, args=["stdio"])) if transport == "stdio" else url
    mode = "legacy" if era == "legacy" else "auto"
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        visit = Session(tasks)
        client = Client(server, mode=mode, elicitation_callback=visit.answer, message_handler=visit.hear)
        visit.client = await stack.enter_async_context(client)
        yield visit
        tasks.cancel_scope.cancel()


meet(connect)
