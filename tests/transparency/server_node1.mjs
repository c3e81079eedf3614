// A low-level server on the TypeScript SDK 1.x, with the tools, resources and prompts of offer.json.
//
//     server_node1.mjs MODULES stdio
//     server_node1.mjs MODULES http PORT

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { CAPABILITIES, OFFER, REPLIES, answered } from "./offer.mjs";

const [modules, transport, port] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Server } = require("@modelcontextprotocol/sdk/server/index.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

// This SDK registers a handler by the schema of its request, not by the name of the method.
const SCHEMAS = {
  "tools/list": types.ListToolsRequestSchema,
  "tools/call": types.CallToolRequestSchema,
  "resources/list": types.ListResourcesRequestSchema,
  "resources/templates/list": types.ListResourceTemplatesRequestSchema,
  "resources/read": types.ReadResourceRequestSchema,
  "resources/subscribe": types.SubscribeRequestSchema,
  "resources/unsubscribe": types.UnsubscribeRequestSchema,
  "prompts/list": types.ListPromptsRequestSchema,
  "prompts/get": types.GetPromptRequestSchema,
  "completion/complete": types.CompleteRequestSchema,
};

function build() {
  const server = new Server(OFFER.info, { capabilities: CAPABILITIES, instructions: OFFER.instructions });
  for (const [method, reply] of Object.entries(REPLIES)) {
    server.setRequestHandler(SCHEMAS[method], async ({ params }, extra) => reply(params, speech(extra)));
  }
  return server;
}

// The operations of a request that the replies in offer.mjs use, in terms of this SDK.
const speech = (extra) => ({
  meta: extra._meta,
  signal: extra.signal,
  notify: (method, params) => extra.sendNotification({ method, params }),
  progress: (progressToken, report) => extra.sendNotification({ method: "notifications/progress", params: { progressToken, ...report } }),
  ask: (method, params) => answered(extra.sendRequest({ method, params }, types.ResultSchema)),
});

if (transport === "stdio") {
  await build().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  const http = createServer(async (incoming, outgoing) => {
    const id = incoming.headers["mcp-session-id"];
    if (id && !sessions.has(id)) return outgoing.writeHead(404).end("no such session");
    if (id) return sessions.get(id).handleRequest(incoming, outgoing);
    const onsessioninitialized = (id) => void sessions.set(id, made);
    const made = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await build().connect(made);
    await made.handleRequest(incoming, outgoing);
  });
  http.listen(Number(port), "127.0.0.1");
}
