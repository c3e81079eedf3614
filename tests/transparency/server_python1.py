"""A low-level server on the Python SDK 1.x: `stdio`, or `http PORT`. It offers what stands in offer.json."""

import json
import sys
from pathlib import Path

import anyio
from mcp import types
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import McpError

OFFER = json.loads(Path(__file__).with_name("offer.json").read_text())
INFO, PAGE = OFFER["info"], OFFER["page"]

server = Server(INFO["name"], INFO["version"], OFFER["instructions"], INFO["websiteUrl"])


def serves(request_type):
    def register(function):
        async def handler(request):
            result = await function(request.params)
            return types.ServerResult.model_construct(root=result)

        server.request_handlers[request_type] = handler

    return register


def error(code, message, data=None):
    return McpError(types.ErrorData(code=code, message=message, data=data))


@serves(types.ListToolsRequest)
async def list_tools(params):
    cursor = params.cursor if params else None
    if cursor not in (None, "page-2"):
        raise error(-32602, f"Unknown cursor: {cursor}")
    page = OFFER["tools"][PAGE:] if cursor else OFFER["tools"][:PAGE]
    tools = [types.Tool.model_validate(tool) for tool in page]
    return types.ListToolsResult(tools=tools, nextCursor=None if cursor else "page-2")


@serves(types.ListResourcesRequest)
async def list_resources(params):
    return types.ListResourcesResult.model_validate({"resources": OFFER["resources"]})


@serves(types.ListResourceTemplatesRequest)
async def list_templates(params):
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": OFFER["templates"]})


@serves(types.ReadResourceRequest)
async def read_resource(params):
    uri = str(params.uri)
    if uri.startswith("test://user/"):
        content = {"uri": uri, "mimeType": "application/json", "text": json.dumps({"name": uri.rpartition("/")[2]})}
    elif uri in OFFER["contents"]:
        content = OFFER["contents"][uri]
    else:
        raise error(-32002, "Resource not found", {"uri": uri})
    return types.ReadResourceResult.model_validate({"contents": [content]})


@serves(types.SubscribeRequest)
async def subscribe(params):
    return types.EmptyResult()


@serves(types.UnsubscribeRequest)
async def unsubscribe(params):
    return types.EmptyResult()


@serves(types.ListPromptsRequest)
async def list_prompts(params):
    return types.ListPromptsResult.model_validate({"prompts": OFFER["prompts"]})


@serves(types.GetPromptRequest)
async def get_prompt(params):
    if params.name != "greet":
        raise error(-32602, f"Unknown prompt: {params.name}")
    text = f"Greet {(params.arguments or {}).get('who')}"
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return types.GetPromptResult.model_validate({"description": "A greeting", "messages": [message], "_meta": {"com.example/got": 1}})


@serves(types.CompleteRequest)
async def complete(params):
    values = [f"{params.argument.value}da", params.ref.type, str(params.context)]
    return types.CompleteResult.model_validate({"completion": {"values": values, "total": 3, "hasMore": False}})


@serves(types.SetLevelRequest)
async def set_level(params):
    return types.EmptyResult()


@serves(types.CallToolRequest)
async def call_tool(params):
    context, arguments = server.request_context, params.arguments or {}
    if context.experimental.is_task:
        return await context.experimental.run_task(as_task)
    match params.name:
        case "mark":
            return text("marked")
        case "echo":
            meta = context.meta.model_dump(by_alias=True, exclude={"progressToken"}) if context.meta else {}
            result = {"content": [], "structuredContent": arguments, "_meta": {"com.example/seen": meta}}
            return types.CallToolResult.model_validate(result)
        case "big":
            return text("x" * arguments["size"])
        case "length":
            return text(str(len(arguments["text"])))
        case name if name in OFFER["acts"]:
            return await act(context, OFFER["acts"][name])
    raise error(-32602, f"Unknown tool: {params.name}")


async def as_task(task):
    await task.update_status("half done")
    return types.CallToolResult.model_validate(OFFER["acts"]["plain"]["result"])


def text(words):
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])


async def act(context, what):
    answers = []
    for step in what.get("steps", []):
        match step:
            case {"notify": method}:
                notification = types.JSONRPCNotification.model_construct(method=method, params=step.get("params"))
                notification = types.ServerNotification.model_construct(root=notification)
                await context.session.send_notification(notification, context.request_id)
            case {"progress": report} if context.meta and context.meta.progressToken is not None:
                await context.session.send_progress_notification(context.meta.progressToken, **report, related_request_id=str(context.request_id))
            case {"sleep": seconds}:
                await anyio.sleep(seconds)
            case {"ask": method}:
                answers.append(await ask(context, method, step.get("params")))
    if "error" in what:
        raise error(**what["error"])
    if "result" in what:
        return types.CallToolResult.model_validate(what["result"])
    return text(json.dumps(answers))


async def ask(context, method, params):
    from mcp.shared.message import ServerMessageMetadata

    question = types.JSONRPCRequest.model_construct(method=method, params=params)
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        request = types.ServerRequest.model_construct(root=question)
        answer = await context.session.send_request(request, types.Result, metadata=metadata)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    except McpError as failure:
        return failure.error.model_dump(mode="json", exclude_none=True)


server.experimental.enable_tasks()


async def main():
    if sys.argv[1] == "stdio":
        options = server.create_initialization_options(NotificationOptions(), OFFER["experimental"])
        async with stdio_server() as (read, write):
            await server.run(read, write, options)
    else:
        await serve_http(int(sys.argv[2]))


async def serve_http(port):
    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.routing import Mount

    manager = StreamableHTTPSessionManager(server)
    app = Starlette(routes=[Mount("/", manager.handle_request)])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error")
    async with manager.run():
        await uvicorn.Server(config).serve()


anyio.run(main)
