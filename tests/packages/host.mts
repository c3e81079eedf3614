// A host in TypeScript: the SDK's transport with guarded parameters keeps its connection when the server is killed during a call.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport, type StdioServerParameters } from "@modelcontextprotocol/sdk/client/stdio.js";
import { guarded, programPath } from "everlink";

const server: StdioServerParameters = { command: programPath(), args: ["demo-server"], stderr: "ignore" };
const params: StdioServerParameters = guarded(server);
const transport = new StdioClientTransport(params);
const client = new Client({ name: "host", version: "1.0.0" });
let closed = false;
client.onclose = () => {
  closed = true;
};

await client.connect(transport);
const guard = transport.pid;
for (let round = 0; round < 3; round += 1) {
  const pid = Number(await call("pid"));
  const lost = client.callTool({ name: "sleep", arguments: { ms: 60_000 } });
  setTimeout(() => process.kill(pid, "SIGKILL"), 100);
  const result = await lost;
  assert.equal(result.isError, true);
  assert.match(JSON.stringify(result.content), /may have run/);
  assert.notEqual(Number(await call("pid")), pid);
  assert.equal(await call("echo", { message: "still there" }), "still there");
}
assert.equal(transport.pid, guard);
assert.equal(closed, false);
await client.close();
console.log("ok: a host in TypeScript keeps its connection while the server is killed");

async function call(name: string, args: Record<string, unknown> = {}): Promise<string> {
  const { content } = await client.callTool({ name, arguments: args });
  const [first] = content as [{ type: "text"; text: string }];
  return first.text;
}
