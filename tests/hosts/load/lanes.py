"""What hosts under load have in common, whatever their SDK: calls kept in flight, and what is told of them as lines of JSON.

It judges nothing, and knows no SDK.
"""

import json
import sys
from contextlib import asynccontextmanager

import anyio

LANES = 16
DEADLINE = 90


def tell(**fact):
    print(json.dumps(fact), flush=True)


@asynccontextmanager
async def tapped(read, heard):
    """The same stream, with a note of every response on it, of which `heard` gives the id, and of its end if that comes too early."""
    into, out = anyio.create_memory_object_stream(0)
    leaving = False

    async def copy():
        try:
            async with into:
                async for item in read:
                    if isinstance(item, Exception):
                        tell(garbage=str(item))
                    else:
                        tell(**heard(item.message))
                    await into.send(item)
        finally:
            # An SDK may notice first that it cannot write, and cancel all that reads.
            if not leaving:
                tell(closed="the guard says no more")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(copy)
        yield out
        leaving = True
        tasks.cancel_scope.cancel()


async def drive(call, names):
    """Keeps calls in flight until a line comes in, then calls once more until there is a result, and waits for another line.

    `call` takes a tool and a message; it gives what is to be told of the answer.
    """
    tools = sorted({"echo", "note"} & set(names))
    over = anyio.Event()

    async def ask(tool, token):
        tell(asked=token, tool=tool)
        answer = await call(tool, token)
        tell(answered=token, **answer)
        return answer.get("failed") is False

    async def keep_asking(lane):
        count = 0
        while not over.is_set():
            count += 1
            if not await ask(tools[count % len(tools)], f"{lane}-{count}"):
                await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        for lane in range(LANES):
            tasks.start_soon(keep_asking, lane)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        over.set()
    attempt = 1
    while attempt < 60 and not await ask("echo", f"last-{attempt}"):
        attempt += 1
        await anyio.sleep(1)
    tell(done=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
