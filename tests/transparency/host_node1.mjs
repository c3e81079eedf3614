// A host on the TypeScript SDK 1.x: see host.mjs.

import { ANSWERS, CAPABILITIES, INFO, hear, play, require, target, transport } from "./host.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const client = new Client(INFO, { capabilities: CAPABILITIES });
const SCHEMAS = {
  "roots/list": types.ListRootsRequestSchema,
  "sampling/createMessage": types.CreateMessageRequestSchema,
  "elicitation/create": types.ElicitRequestSchema,
};
for (const [method, answer] of Object.entries(ANSWERS)) client.setRequestHandler(SCHEMAS[method], async () => answer);
client.fallbackNotificationHandler = async ({ method }) => hear(method);

const [command, ...args] = target;
await client.connect(transport === "stdio" ? new StdioClientTransport({ command, args, stderr: "inherit" }) : new StreamableHTTPClientTransport(new URL(command)));
await play({
  request: (method, params, options) => client.request({ method, params }, types.ResultSchema, options),
  notify: (method, params) => client.notification({ method, params }),
});
await client.close();
process.exit();
