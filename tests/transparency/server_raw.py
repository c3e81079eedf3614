"""A server without a library, on stdio: it can write every number and every text that JSON can spell. It declares tools alone, and serves everything."""

import re
import sys
from pathlib import Path

from messages import Number, parsed, spelled

OFFER = parsed(Path(__file__).with_name("offer.json").read_text())
ZERO = Number("0")


def write(message):
    # A lone surrogate cannot be encoded, so it is escaped.
    line = re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", spelled({"jsonrpc": "2.0"} | message))
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def text(words):
    return {"result": {"content": [{"type": "text", "text": words}], "x-unknown": [Number("1.50"), None]}}


def reply(method, params):
    match method:
        case "initialize":
            capabilities = {"tools": {}, "experimental": OFFER["experimental"], "extensions": OFFER["extensions"], "x-unknown": {}}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": OFFER["info"] | {"x-more": "kept"}}
            return {"result": result | {"instructions": OFFER["instructions"], "x-unknown": Number("1E2")}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": OFFER["tools"], "x-unknown": ZERO}}
        case "tools/call":
            return call(params["name"], params.get("arguments", {}), params.get("_meta", {}))
        case "x-everlink/ask":
            return {"result": {"given": params["a"], "number": Number("-0.0")}}
        case "resources/list":
            return {"result": {"resources": OFFER["resources"]}}
        case "resources/templates/list":
            return {"result": {"resourceTemplates": OFFER["templates"]}}
        case "resources/read" if params["uri"] in OFFER["contents"]:
            return {"result": {"contents": [OFFER["contents"][params["uri"]]]}}
        case "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel":
            return {"result": {"x-unknown": ZERO}}
        case "prompts/list":
            return {"result": {"prompts": OFFER["prompts"]}}
        case "prompts/get":
            return {"result": {"messages": [], "x-unknown": params}}
        case "completion/complete":
            return {"result": {"completion": {"values": ["Ada"], "total": Number("1.0")}, "x-unknown": params["argument"]}}
    return {"error": {"code": Number("-32601"), "message": "Method not found", "data": method}}


def call(name, arguments, meta):
    match name:
        case "mark":
            return text("marked")
        case "echo":
            return {"result": {"content": [], "structuredContent": arguments}}
        case "big":
            return text("x" * int(arguments["size"]))
        case "length":
            return text(str(len(arguments["text"])))
        case "error":
            return {"error": OFFER["acts"]["error"]["error"] | {"x-unknown": ZERO}}
        case name if name in OFFER["acts"]:
            return act(OFFER["acts"][name], meta)
    return {"error": {"code": Number("-32602"), "message": f"Unknown tool: {name}"}}


def act(what, meta):
    answers = []
    for step in what.get("steps", []):
        match step:
            case {"progress": report} if "progressToken" in meta:
                report |= {"x-unknown": Number("1e0"), "_meta": {"com.example/p": Number("1.0")}}
                write({"method": "notifications/progress", "params": {"progressToken": meta["progressToken"]} | report})
            case {"notify": method}:
                write({"method": method} | ({"params": step["params"]} if "params" in step else {}))
            case {"ask": method}:
                answers.append(ask(method, step))
    return {"result": what.get("result", {"content": [], "structuredContent": {"answers": answers}})}


def ask(method, step):
    write({"id": f"question: {method}", "method": method} | ({"params": step["params"]} if "params" in step else {}))
    for line in sys.stdin.buffer:
        message = parsed(line)
        if "method" not in message and message.get("id") == f"question: {method}":
            return {name: message[name] for name in ("result", "error") if name in message}
        serve(message)


def serve(message):
    if "id" in message and "method" in message:
        write({"id": message["id"]} | reply(message["method"], message.get("params", {})))


for line in sys.stdin.buffer:
    serve(parsed(line))
