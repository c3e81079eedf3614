"""A low-level server on the Python SDK 2.x, for both eras: `stdio`, or `http PORT`. It offers what stands in offer.json."""

import json
import sys
import warnings
from pathlib import Path

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

warnings.simplefilter("ignore")
OFFER = json.loads(Path(__file__).with_name("offer.json").read_text())
INFO, PAGE = OFFER["info"], OFFER["page"]
MODERN = "2026-07-28"

bus = InMemorySubscriptionBus()
# Modern clients hear of changes on streams of their own.
EVENTS = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
    "notifications/resources/updated": ResourceUpdated(uri="test://note"),
}


class Raw(types.Request):
    method: str
    params: dict | None = None


class RawNotification(types.Notification):
    method: str
    params: dict | None = None


async def list_tools(context, params):
    cursor = params.cursor if params else None
    if cursor not in (None, "page-2"):
        raise MCPError(-32602, f"Unknown cursor: {cursor}")
    page = OFFER["tools"][PAGE:] if cursor else OFFER["tools"][:PAGE]
    return types.ListToolsResult.model_validate({"tools": page} | ({} if cursor else {"nextCursor": "page-2"}))


async def list_resources(context, params):
    return types.ListResourcesResult.model_validate({"resources": OFFER["resources"]})


async def list_templates(context, params):
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": OFFER["templates"]})


async def read_resource(context, params):
    uri = str(params.uri)
    if uri.startswith("test://user/"):
        content = {"uri": uri, "mimeType": "application/json", "text": json.dumps({"name": uri.rpartition("/")[2]})}
    elif uri in OFFER["contents"]:
        content = OFFER["contents"][uri]
    else:
        raise MCPError(-32002, "Resource not found", {"uri": uri})
    return types.ReadResourceResult.model_validate({"contents": [content]})


async def nothing(context, params):
    return types.EmptyResult()


async def list_prompts(context, params):
    return types.ListPromptsResult.model_validate({"prompts": OFFER["prompts"]})


async def get_prompt(context, params):
    if params.name != "greet":
        raise MCPError(-32602, f"Unknown prompt: {params.name}")
    text = f"Greet {(params.arguments or {}).get('who')}"
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return types.GetPromptResult.model_validate({"description": "A greeting", "messages": [message], "_meta": {"com.example/got": 1}})


async def complete(context, params):
    values = [f"{params.argument.value}da", params.ref.type, str(params.context)]
    return types.CompleteResult.model_validate({"completion": {"values": values, "total": 3, "hasMore": False}})


async def call_tool(context, params):
    arguments = params.arguments or {}
    match params.name:
        case "mark":
            return text("marked")
        case "echo":
            # The SDK keeps the keys of the protocol itself in there, too.
            meta = {key: value for key, value in (context.meta or {}).items() if key.startswith("com.example")}
            result = {"content": [], "structuredContent": arguments, "_meta": {"com.example/seen": meta}}
            return types.CallToolResult.model_validate(result)
        case "big":
            return text("x" * arguments["size"])
        case "length":
            return text(str(len(arguments["text"])))
        case name if name in OFFER["acts"]:
            return await act(context, params, OFFER["acts"][name])
    raise MCPError(-32602, f"Unknown tool: {params.name}")


def text(words):
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])


async def act(context, params, what):
    answers = []
    is_modern = context.protocol_version >= MODERN
    for step in what.get("steps", []):
        match step:
            case {"notify": method} if is_modern and method in EVENTS:
                await bus.publish(EVENTS[method])
            case {"notify": "notifications/message", "params": message} if is_modern:
                await context.session.send_log_message(**message)
            case {"notify": method}:
                await context.session.send_notification(RawNotification(method=method, params=step.get("params")), context.request_id)
            case {"progress": report}:
                await context.session.report_progress(**report)
            case {"sleep": seconds}:
                await anyio.sleep(seconds)
            case {"ask": method} if is_modern and method in ASKABLE:
                if not params.input_responses:
                    question = {"method": method} | ({"params": step["params"]} if "params" in step else {})
                    return types.InputRequiredResult.model_validate({"inputRequests": {"the-question": question}, "requestState": "st@te 𝄞"})
                answer = params.input_responses["the-question"]
                answers.append([answer.model_dump(by_alias=True, mode="json", exclude_none=True), params.request_state])
            case {"ask": method}:
                answers.append(await ask(context, method, step.get("params")))
    if "error" in what:
        raise MCPError(**what["error"])
    if "result" in what:
        return types.CallToolResult.model_validate(what["result"])
    return text(json.dumps(answers))


ASKABLE = ("sampling/createMessage", "elicitation/create", "roots/list")


async def ask(context, method, params):
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        answer = await context.session.send_request(Raw(method=method, params=params), types.Result, metadata=metadata)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    except MCPError as failure:
        return failure.error.model_dump(mode="json", exclude_none=True)
    except Exception as failure:
        return f"{type(failure).__name__}"


server = Server(
    INFO["name"],
    version=INFO["version"],
    title=INFO["title"],
    instructions=OFFER["instructions"],
    website_url=INFO["websiteUrl"],
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=nothing,
    on_unsubscribe_resource=nothing,
    on_subscriptions_listen=ListenHandler(bus),
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=nothing,
)
server.extensions = OFFER["extensions"]


async def main():
    if sys.argv[1] == "stdio":
        options = server.create_initialization_options(NotificationOptions(), OFFER["experimental"])
        async with stdio_server() as (read, write):
            await server.run(read, write, options)
    else:
        import uvicorn

        app = server.streamable_http_app(max_request_body_size=100_000_000)
        await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")).serve()


anyio.run(main)
