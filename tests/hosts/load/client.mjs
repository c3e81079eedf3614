// A host of the TypeScript SDK under load: MODULES COMMAND... are the directory where the SDK is installed, and what it takes for its server.
//
// It keeps calls in flight until a line comes in, and tells as lines of JSON what it asks and what it hears. It judges nothing.

import { createRequire } from "node:module";
import { createInterface } from "node:readline/promises";

const [modules, command, ...args] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

const LANES = 16;
const DEADLINE = 90_000;

const tell = (fact) => console.log(JSON.stringify(fact));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const transport = new StdioClientTransport({ command, args });
transport.onmessage = (message) => {
  if (!("method" in message)) tell({ heard: message.id });
};
const client = new Client({ name: "load", version: "1.0" });
let over = false;
client.onclose = () => tell({ closed: "the guard says no more" });
client.onerror = (error) => tell({ garbage: String(error) });

await client.connect(transport);
const names = (await client.listTools()).tools.map((tool) => tool.name);
const tools = ["echo", "note"].filter((name) => names.includes(name));
tell({ connected: `${client.getServerVersion().name}` });

const lanes = Array.from({ length: LANES }, (_, lane) => keepAsking(lane));
await lines.next();
over = true;
await Promise.all(lanes);
for (let attempt = 1; attempt < 60 && !(await ask("echo", `last-${attempt}`)); attempt += 1) await sleep(1000);
tell({ done: true });
await lines.next();
client.onclose = undefined;
await client.close();

async function keepAsking(lane) {
  for (let count = 1; !over; count += 1) {
    if (!(await ask(tools[count % tools.length], `${lane}-${count}`))) await sleep(50);
  }
}

/** One call; whether it had a result. */
async function ask(tool, token) {
  tell({ asked: token, tool });
  try {
    const result = await client.callTool({ name: tool, arguments: { message: token } }, undefined, { timeout: DEADLINE });
    const failed = result.isError ?? false;
    tell({ answered: token, failed, text: result.content[0].text });
    return !failed;
  } catch (error) {
    tell({ answered: token, code: error.code, text: error.message });
    return false;
  }
}
