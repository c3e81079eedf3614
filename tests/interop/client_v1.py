"""A client of the SDK 1.x: see meeting.py."""

from contextlib import asynccontextmanager

import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from meeting import NAME, NOTE, Visit, meet, program, transport, url
from pydantic import AnyUrl

TRANSPORTS = {
    "stdio": lambda: stdio_client(StdioServerParameters(command=program, args=["stdio"])),
    "http": lambda: streamable_http_client(url),
    "sse": lambda: sse_client(url),
}


class Session(Visit):
    async def begin(self, session):
        self.session = session
        self.met = await session.initialize()

    @property
    def version(self):
        return self.met.protocolVersion

    async def names(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, tool, given, progress=None):
        async def note(number, total, message):
            if progress:
                progress(number)

        self.newest = self.session._request_id
        result = await self.session.call_tool(tool, given, progress_callback=note)
        return result.isError, result.content[0].text

    async def cancel(self):
        params = types.CancelledNotificationParams(requestId=self.newest, reason="enough")
        notification = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(notification))

    async def watch(self):
        await self.session.subscribe_resource(AnyUrl(NOTE))

    async def answer(self, context, params):
        return types.ElicitResult(action="accept", content={"name": NAME})

    async def hear(self, message):
        match message:
            case types.ServerNotification(root=types.ResourceUpdatedNotification(params=params)):
                if str(params.uri) == NOTE:
                    self.touched.set()
            case types.ServerNotification(root=types.ToolListChangedNotification()):
                self.grown.set()


@asynccontextmanager
async def connect():
    visit = Session()
    async with TRANSPORTS[transport]() as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=visit.answer, message_handler=visit.hear) as session:
            await visit.begin(session)
            yield visit


meet(connect)
