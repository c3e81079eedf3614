// A host on the TypeScript SDK 2.x, of either era: see host.mjs.

import { ANSWERS, CAPABILITIES, INFO, era, hear, play, require, target, transport } from "./host.mjs";

const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

// A schema that takes everything.
const anything = { "~standard": { version: 1, vendor: "any", validate: (value) => ({ value }) } };

const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode: era === "legacy" ? "legacy" : "auto" } });
for (const [method, answer] of Object.entries(ANSWERS)) client.setRequestHandler(method, async () => answer);
client.fallbackNotificationHandler = async ({ method }) => hear(method);

const [command, ...args] = target;
await client.connect(transport === "stdio" ? new StdioClientTransport({ command, args, stderr: "inherit" }) : new StreamableHTTPClientTransport(new URL(command)));
const isModern = client.getNegotiatedProtocolVersion() >= "2026";
await play({
  // Only by this verb does the SDK answer what a modern server wants to know first.
  request: (method, params, options) => (method === "tools/call" ? client.callTool(params, options) : client.request({ method, params }, anything, options)),
  notify: (method, params) => client.notification({ method, params }),
  ...(isModern && { listen: (filter) => client.listen(filter) }),
});
await client.close();
process.exit();
