// A server of the TypeScript SDK 2.x, for both eras: MODULES, then stdio, or http PORT.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { Readable } from "node:stream";

const [modules, transport, port] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { McpServer, WebStandardStreamableHTTPServerTransport, createMcpHandler, fromJsonSchema, inputRequired, acceptedContent, isLegacyRequest } =
  require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");

const NOTE = "interop://note";
const told = { cancelled: 0, grown: false };
// Over HTTP every modern request has a server of its own; news goes out where the streams are.
let notify = null;

const text = (text) => ({ content: [{ type: "text", text }] });

const person = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

const report = async (context, progress) => {
  const progressToken = context.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  await context.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 3 } });
};

function build({ era }) {
  const capabilities = { tools: { listChanged: true }, resources: { subscribe: true } };
  const server = new McpServer({ name: "interop", version: "1.0" }, { capabilities });
  const isApart = notify !== null && era === "modern";
  const tool = (name, run, properties = {}) =>
    server.registerTool(name, { inputSchema: fromJsonSchema({ type: "object", properties }) }, run);
  const grow = () => tool("grown", async () => text("grown"));

  tool("ask", async (_, context) => {
    const answer = acceptedContent(context.mcpReq.inputResponses, "person");
    if (answer) return text(`Hello, ${answer.name}`);
    const message = "What is your name?";
    return inputRequired({ inputRequests: { person: inputRequired.elicit({ message, requestedSchema: person }) } });
  });
  tool("echo", async ({ message }) => text(`Echo: ${message}`), { message: { type: "string" } });
  tool("fail", async () => {
    throw new Error("this never works");
  });
  tool("grow", async () => {
    told.grown = true;
    if (isApart) notify.toolsChanged();
    else grow();
    return text("grown");
  });
  tool("noted", async () => text(`cancelled: ${told.cancelled}`));
  tool("pid", async () => text(String(process.pid)));
  tool("progress", async (_, context) => {
    for (const step of [1, 2, 3]) await report(context, step);
    return text("three steps");
  });
  tool("slow", async (_, context) => {
    await report(context, 1);
    await new Promise((done) => {
      const end = setTimeout(done, 60_000);
      context.mcpReq.signal.addEventListener("abort", () => {
        told.cancelled += 1;
        clearTimeout(end);
        done();
      });
    });
    return text("slept");
  });
  tool("touch", async () => {
    if (isApart) notify.resourceUpdated(NOTE);
    else await server.server.sendResourceUpdated({ uri: NOTE });
    return text("touched");
  });
  if (told.grown) grow();
  server.registerResource("note", NOTE, {}, async () => ({ contents: [{ uri: NOTE, text: "a note" }] }));
  // The SDK leaves it to the application who has subscribed; there is one client here.
  server.server.setRequestHandler("resources/subscribe", async () => ({}));
  server.server.setRequestHandler("resources/unsubscribe", async () => ({}));
  return server;
}

/** Legacy clients in sessions, which the handler of the SDK leaves to the application. */
function legacySessions() {
  const sessions = new Map();
  return async (request) => {
    const id = request.headers.get("mcp-session-id");
    if (id && !sessions.has(id)) return new Response("no such session", { status: 404 });
    if (id) return sessions.get(id).handleRequest(request);
    const onsessioninitialized = (id) => void sessions.set(id, transport);
    const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await build({ era: "legacy" }).connect(transport);
    return transport.handleRequest(request);
  };
}

/** Requests and responses of Node as those of the web. */
async function serveHttp(port) {
  const modern = createMcpHandler(build, { legacy: "reject" });
  notify = modern.notify;
  const legacy = legacySessions();
  const answer = async (request) => ((await isLegacyRequest(request)) ? legacy(request) : modern.fetch(request));
  const server = createServer(async (incoming, outgoing) => {
    const gone = new AbortController();
    outgoing.on("close", () => gone.abort());
    const { method, headers } = incoming;
    const body = ["GET", "DELETE"].includes(method) ? undefined : Readable.toWeb(incoming);
    const url = new URL(incoming.url, `http://127.0.0.1:${port}`);
    const request = new Request(url, { method, headers, body, duplex: "half", signal: gone.signal });
    const response = await answer(request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    if (!response.body) return outgoing.end();
    const out = Readable.fromWeb(response.body);
    // Whoever went away is told to whoever still writes.
    outgoing.on("close", () => out.destroy());
    out.on("error", () => outgoing.destroy());
    out.pipe(outgoing);
  });
  server.listen(port, "127.0.0.1");
}

if (transport === "stdio") serveStdio(build);
else await serveHttp(Number(port));
