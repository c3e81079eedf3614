"""A client of the SDK 1.1.3, which speaks 2024-11-05 alone: see meeting.py."""

from contextlib import asynccontextmanager

import anyio
import mcp.types as types
from mcp import ClientSession, StdioServerParameters, stdio_client
from meeting import NAME, NOTE, Visit, meet, program
from pydantic import AnyUrl, FileUrl


class Session(Visit):
    by = "roots"

    async def begin(self, session):
        self.session = session
        self.progress = {}
        self.met = await session.initialize()

    @property
    def version(self):
        return self.met.protocolVersion

    async def names(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, tool, given, progress=None):
        # This SDK has no callback for progress; a host of its time asks for it by hand.
        token = self.session._request_id
        self.progress[token] = progress
        params = types.CallToolRequestParams(name=tool, arguments=given, _meta={"progressToken": token})
        request = types.ClientRequest(types.CallToolRequest(method="tools/call", params=params))
        result = await self.session.send_request(request, types.CallToolResult)
        return result.isError, result.content[0].text

    async def watch(self):
        await self.session.subscribe_resource(AnyUrl(NOTE))

    async def listen(self, session):
        async for message in session.incoming_messages:
            match message:
                case types.ServerNotification(root=types.ProgressNotification(params=params)):
                    if self.progress.get(params.progressToken):
                        self.progress[params.progressToken](params.progress)
                case types.ServerNotification(root=types.ResourceUpdatedNotification()):
                    self.touched.set()
                case types.ServerNotification(root=types.ToolListChangedNotification()):
                    self.grown.set()
                case responder if hasattr(responder, "respond"):
                    root = types.Root(uri=FileUrl("file:///home/ada"), name=NAME)
                    await responder.respond(types.ClientResult(types.ListRootsResult(roots=[root])))


@asynccontextmanager
async def connect():
    visit = Session()
    async with stdio_client(StdioServerParameters(command=program, args=["stdio"])) as (read, write):
        async with ClientSession(read, write) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(visit.listen, session)
            await visit.begin(session)
            yield visit
            tasks.cancel_scope.cancel()


meet(connect)
