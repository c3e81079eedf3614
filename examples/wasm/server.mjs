// A small MCP server on its standard streams, without dependencies. `echo` returns its text and the process id; `sleep` takes some time.

import { createInterface } from "node:readline";

const text = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const tools = [
  { name: "echo", inputSchema: text },
  { name: "sleep", inputSchema: { type: "object", properties: { ms: { type: "integer" } }, required: ["ms"] } },
];

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const result = (text) => ({ content: [{ type: "text", text }], structuredContent: { text, pid: process.pid } });

function serve({ id, method, params }) {
  const reply = (result) => say({ id, result });
  if (id === undefined) return;
  if (method === "initialize") {
    const serverInfo = { name: "wasm-peer", version: "1.0" };
    reply({ protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo });
  } else if (method === "ping") reply({});
  else if (method === "tools/list") reply({ tools });
  else if (method === "tools/call" && params.name === "echo") reply(result(params.arguments.text));
  else if (method === "tools/call" && params.name === "sleep") {
    console.error("sleeping");
    setTimeout(() => reply(result("rested")), params.arguments.ms);
  } else say({ id, error: { code: -32601, message: `${method} is not served here` } });
}

createInterface({ input: process.stdin })
  .on("line", (line) => serve(JSON.parse(line)))
  .on("close", () => process.exit(0));
