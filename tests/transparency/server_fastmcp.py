"""A server on FastMCP: `stdio`, or `http PORT`. It offers the tools of offer.json as functions, as its users write them."""

import json
import sys
from pathlib import Path

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

OFFER = json.loads(Path(__file__).with_name("offer.json").read_text())
INFO = OFFER["info"]

server = FastMCP(INFO["name"], instructions=OFFER["instructions"], version=INFO["version"], website_url=INFO["websiteUrl"])


@server.tool
def mark(scenario: str) -> str:
    return "marked"


@server.tool(title="Plain", annotations={"readOnlyHint": True}, meta={"com.example/weight": 2})
def plain() -> str:
    return "plain"


@server.tool
def echo(
    large: int = 0,
    larger: int = 0,
    whole: float = 0,
    minus: float = 0,
    tiny: float = 0,
    huge: float = 0,
    exponent: float = 0,
    third: float = 0,
    beyond: float | None = 0,
    number: int = 0,
) -> dict:
    return dict(locals())


@server.tool
def typed(number: int) -> dict[str, int]:
    return {"number": number}


@server.tool
def fail() -> str:
    raise ToolError("this never works")


@server.tool
async def log(ctx: Context) -> str:
    await ctx.debug("a debug line", logger_name="suite")
    await ctx.info("an info line", extra={"nested": [1, 2.5]})
    await ctx.error("an error line")
    return "logged"


@server.tool
async def progress(ctx: Context) -> str:
    for step in OFFER["acts"]["progress"]["steps"]:
        await ctx.report_progress(**step["progress"])
    return "three reports"


@server.tool
async def slow(ctx: Context) -> str:
    await ctx.report_progress(1)
    await anyio.sleep(20)
    return "slept"


@server.tool
async def elicit(ctx: Context) -> str:
    return str(await ctx.elicit("Your name?", response_type=str))


@server.tool
async def lists(ctx: Context) -> str:
    import mcp_types

    for kind in (mcp_types.ToolListChangedNotification, mcp_types.ResourceListChangedNotification, mcp_types.PromptListChangedNotification):
        await ctx.send_notification(kind())
    return "told"


@server.tool
def big(size: int) -> str:
    return "x" * size


@server.tool
def length(text: str) -> int:
    return len(text)


@server.resource("test://note", mime_type="text/plain", title="A note", annotations={"audience": ["user"], "priority": 0.5})
def note() -> str:
    return "a note"


@server.resource("test://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\x00\x01\x02\xff"


@server.resource("test://user/{name}", mime_type="application/json")
def user(name: str) -> dict:
    return {"name": name}


@server.prompt(title="Greeting")
def greet(who: str, how: str = "") -> str:
    return f"Greet {who}"


if sys.argv[1] == "stdio":
    server.run(show_banner=False)
else:
    server.run("http", host="127.0.0.1", port=int(sys.argv[2]), path="/mcp", show_banner=False, log_level="error")
