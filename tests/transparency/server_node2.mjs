// A server on the TypeScript SDK 2.x, for both eras: MODULES, then stdio, or http PORT. It offers what stands in offer.json.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { Readable } from "node:stream";
import { CAPABILITIES, OFFER, REPLIES, answered } from "./offer.mjs";

const [modules, transport, port] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { McpServer, WebStandardStreamableHTTPServerTransport, createMcpHandler, isLegacyRequest } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");

const ASKABLE = ["sampling/createMessage", "elicitation/create", "roots/list"];
// A schema that takes everything.
const anything = { "~standard": { version: 1, vendor: "any", validate: (value) => ({ value }) } };
// Over HTTP every modern request has a server of its own; changes go out where the streams are.
let handler = null;

function build({ era }) {
  const capabilities = { ...CAPABILITIES, tools: { listChanged: true }, resources: { subscribe: true, listChanged: true } };
  const server = new McpServer(OFFER.info, { capabilities, instructions: OFFER.instructions });
  for (const [method, reply] of Object.entries(REPLIES)) {
    server.server.setRequestHandler(method, async ({ params }, context) => reply(params, speech(server, era, context)));
  }
  return server;
}

function speech(server, era, { mcpReq }) {
  const isModern = era === "modern";
  return {
    meta: mcpReq._meta,
    signal: mcpReq.signal,
    async notify(method, params) {
      if (!isModern) return mcpReq.notify({ method, params });
      if (handler && method.endsWith("/list_changed")) return handler.notify[`${method.split("/")[1]}Changed`]();
      if (handler && method.endsWith("/updated")) return handler.notify.resourceUpdated(params.uri);
      if (method === "notifications/message") return mcpReq.log(params.level, params.data, params.logger);
      if (method.endsWith("/list_changed") || method.endsWith("/updated")) return server.server.notification({ method, params });
      return mcpReq.notify({ method, params });
    },
    progress: (progressToken, report) => mcpReq.notify({ method: "notifications/progress", params: { progressToken, ...report } }),
    async ask(method, params) {
      if (!isModern || !ASKABLE.includes(method)) return answered(mcpReq.send({ method, params }, anything));
      const answer = mcpReq.inputResponses?.["the-question"];
      if (answer) return { answer: [answer, mcpReq.requestState()] };
      return { instead: { resultType: "input_required", inputRequests: { "the-question": { method, params } }, requestState: "st@te 𝄞" } };
    },
  };
}

/** Legacy clients in sessions, which the handler of the SDK leaves to the application. */
function legacySessions() {
  const sessions = new Map();
  return async (request) => {
    const id = request.headers.get("mcp-session-id");
    if (id && !sessions.has(id)) return new Response("no such session", { status: 404 });
    if (id) return sessions.get(id).handleRequest(request);
    const onsessioninitialized = (id) => void sessions.set(id, made);
    const made = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await build({ era: "legacy" }).connect(made);
    return made.handleRequest(request);
  };
}

async function serveHttp() {
  handler = createMcpHandler(build, { legacy: "reject" });
  const legacy = legacySessions();
  const server = createServer(async (incoming, outgoing) => {
    const gone = new AbortController();
    outgoing.on("close", () => gone.abort());
    const { method, headers } = incoming;
    const body = ["GET", "DELETE"].includes(method) ? undefined : Readable.toWeb(incoming);
    const url = new URL(incoming.url, `http://127.0.0.1:${port}`);
    const request = new Request(url, { method, headers, body, duplex: "half", signal: gone.signal });
    const response = await ((await isLegacyRequest(request)) ? legacy(request) : handler.fetch(request));
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    if (!response.body) return outgoing.end();
    const out = Readable.fromWeb(response.body);
    outgoing.on("close", () => out.destroy());
    out.on("error", () => outgoing.destroy());
    out.pipe(outgoing);
  });
  server.listen(Number(port), "127.0.0.1");
}

if (transport === "stdio") serveStdio(build);
else await serveHttp();
