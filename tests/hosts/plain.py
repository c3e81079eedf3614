"""A plain client of the Python SDK 1.x: a `ClientSession` over `stdio_client`, with no limit in time of its own."""

import asyncio

from mcp import ClientSession, StdioServerParameters, stdio_client

import common


class Plain(common.Host):
    async def connect(self, command: list[str]) -> None:
        self.ready, self.over = asyncio.Future(), asyncio.Event()
        # The SDK wants to be closed in the task that opened it.
        self.task = asyncio.create_task(self.hold(command))
        await asyncio.wait([self.ready, self.task], return_when=asyncio.FIRST_COMPLETED)
        if not self.ready.done():
            await self.task
        self.session = self.ready.result()

    async def hold(self, command: list[str]) -> None:
        parameters = StdioServerParameters(command=command[0], args=command[1:])
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            self.ready.set_result(session)
            await self.over.wait()

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, tool: str, arguments: dict) -> tuple[bool, str]:
        result = await self.session.call_tool(tool, arguments)
        return not result.isError, " ".join(getattr(part, "text", "") for part in result.content)

    def connection(self) -> dict:
        return {"session": self.session, "task": self.task}

    async def close(self) -> None:
        self.over.set()
        await asyncio.gather(self.task, return_exceptions=True)
        # `connect` has raised an error before that.
        if self.ready.done():
            self.task.result()


if __name__ == "__main__":
    common.main(Plain)
