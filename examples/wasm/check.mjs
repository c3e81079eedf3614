// Checks the link against a real server: `node check.mjs FILE.wasm`. Kills the server during calls, and expects that the next call works.

import assert from "node:assert/strict";
import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Link } from "./link.mjs";

const KILLS = 20;
const file = process.argv[2];
const server = fileURLToPath(new URL("server.mjs", import.meta.url));
const call = (link, name, args) => link.call("tools/call", { name, arguments: args });

// A promise that never settles would end Node with a hint that is hard to read.
setTimeout(() => { throw new Error("no end within 60 s"); }, 60_000).unref();

const link = await Link.connect(file, [process.execPath, server]);
const { tools } = await link.call("tools/list");
assert.deepEqual(tools.map((tool) => tool.name), ["echo", "sleep"]);

let { pid } = (await call(link, "echo", { text: "hello" })).structuredContent;
let slowest = 0;
let failure;
for (let kill = 0; kill < KILLS; kill++) {
  const lost = call(link, "sleep", { ms: 30_000 });
  await sleep(200); // a busy machine needs some time to start on the call
  const start = performance.now();
  process.kill(pid, "SIGKILL");
  failure = await lost.then(() => assert.fail("the call has an answer"), (error) => error.message);
  assert.match(failure, /the server ended before it replied; it had been sent and may have run.*SIGKILL.*sleeping/s);
  const next = (await call(link, "echo", { text: "again" })).structuredContent;
  slowest = Math.max(slowest, performance.now() - start);
  assert.equal(next.text, "again");
  assert.notEqual(next.pid, pid);
  pid = next.pid;
}

// Larger than a pipe and than the write window: the bytes go in many pieces, both ways.
const long = "é".repeat(1_000_000);
assert.equal((await call(link, "echo", { text: long })).structuredContent.text, long);
const many = Array.from({ length: 200 }, (_, number) => call(link, "echo", { text: `${number}` }));
const texts = (await Promise.all(many)).map((result) => result.structuredContent.text);
assert.deepEqual(texts, texts.map((_, number) => `${number}`));

await assert.rejects(link.call("no/such/method"), /is not served here/);
await link.close();
assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });

// A command that does not exist fails the call, with a reason.
const broken = await Link.connect(file, ["./no-such-command"]);
await assert.rejects(broken.call("tools/list"));
await broken.close();

const { size } = await stat(file);
console.log(`wasm: ${size} bytes; ${link.memoryBytes} bytes of memory after a message of 2 MB`);
console.log(`wasm: ${KILLS} kills in the middle of a call; the slowest took ${Math.round(slowest)} ms from the kill to the next result`);
console.log(`wasm: the caller read: ${failure}`);
