// Checks the installed npm package: shim.mjs PROJECT VERSION. Runs the script `everlink` of the project, signals it, and takes its platform package away.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const project = resolve(process.argv[2]);
const version = process.argv[3];
const shim = join(project, "node_modules/everlink/bin/everlink.js");
const platform = `@everlink/cli-${process.platform}-${process.arch}`;
const require = createRequire(join(project, "index.js"));
const onWindows = process.platform === "win32";

const checks = {
  "npx runs the program": () => {
    const printed = execFileSync("npx", ["--offline", "everlink", "--version"], { cwd: project, encoding: "utf8", shell: onWindows });
    assert.equal(printed.trim(), `everlink ${version}`);
  },

  "the exit status is that of the program": () => {
    assert.equal(spawnSync(process.execPath, [shim, "guard"]).status, 2);
  },

  "signals end the program": async () => {
    for (const signal of onWindows ? [] : ["SIGINT", "SIGTERM", "SIGHUP"]) {
      const { shimProcess, program } = await startGuard();
      shimProcess.kill(signal);
      const [code, killedBy] = await once(shimProcess, "exit");
      assert.deepEqual([code, killedBy], [0, null], signal);
      assert.ok(await isGone(program), `${signal} left the program behind`);
    }
  },

  "the signal that ends the program is visible": async () => {
    for (const signal of onWindows ? [] : ["SIGKILL", "SIGABRT"]) {
      const { shimProcess, program } = await startGuard();
      process.kill(program, signal);
      const [, killedBy] = await once(shimProcess, "exit");
      assert.equal(killedBy, signal);
    }
  },

  "the end of input ends the program": async () => {
    const { shimProcess, program } = await startGuard();
    shimProcess.stdin.end();
    const [code] = await once(shimProcess, "exit");
    assert.equal(code, 0);
    assert.ok(await isGone(program));
  },

  "a missing platform package is named": () => {
    const directory = mkdtempSync(join(tmpdir(), "everlink-"));
    try {
      cpSync(join(project, "node_modules/everlink"), join(directory, "everlink"), { recursive: true });
      const { status, stderr } = spawnSync(process.execPath, [join(directory, "everlink/bin/everlink.js")], { encoding: "utf8" });
      assert.equal(status, 4);
      assert.match(stderr, new RegExp(`^everlink: the package ${platform}, .*npm install ${platform}@${version}\n$`));
    } finally {
      rmSync(directory, { recursive: true });
    }
  },

  "a system without a program is named": () => {
    const script = "Object.defineProperty(process, 'platform', { value: 'plan9' }); require('everlink').programPath()";
    const { stderr } = spawnSync(process.execPath, ["-e", script], { cwd: project, encoding: "utf8" });
    assert.match(stderr, /there is no program for plan9-\w+, only for .*linux-x64.* `cargo install everlink-cli`/);
  },

  "another program can be chosen": () => {
    const run = (chosen) => spawnSync(process.execPath, [shim, "--version"], { encoding: "utf8", env: { ...process.env, EVERLINK_PROGRAM: chosen } });
    assert.equal(run(process.execPath).stdout.trim(), process.version);
    const { status, stderr } = run("/nowhere");
    assert.equal(status, 4);
    assert.match(stderr, /^everlink: EVERLINK_PROGRAM is "\/nowhere", which is not an executable file/);
  },

  "parameters are guarded": async () => {
    const { guarded, programPath } = require("everlink");
    const module = await import(require.resolve("everlink").replace("index.js", "index.mjs"));
    assert.equal(module.guarded, guarded);
    const command = programPath();
    const params = { command: "server", args: ["--own"], env: { KEY: "value" }, cwd: "/srv" };
    assert.deepEqual(guarded(params, ["--log", "json"]), {
      command,
      args: ["guard", "--log", "json", "--", "server", "--own"],
      env: { KEY: "value" },
      cwd: "/srv",
    });
    assert.deepEqual(params.args, ["--own"], "the parameters of the caller changed");
    assert.deepEqual(guarded({ command: "server" }).args, ["guard", "--", "server"]);
    assert.deepEqual(guarded({ url: new URL("https://example.com/mcp") }), {
      command,
      args: ["guard", "--url", "https://example.com/mcp"],
    });
    const headers = { Authorization: "Bearer secret", "X-Key": "1" };
    const withHeaders = {
      command,
      args: ["guard", "--header-env", "EVERLINK_HEADER_1", "--header-env", "EVERLINK_HEADER_2", "--log", "json", "--url", "https://example.com/mcp"],
      env: { KEY: "value", EVERLINK_HEADER_1: "Authorization: Bearer secret", EVERLINK_HEADER_2: "X-Key: 1" },
    };
    for (const given of [headers, Object.entries(headers)]) {
      const remote = { url: "https://example.com/mcp", headers: given, env: { KEY: "value" } };
      assert.deepEqual(guarded(remote, ["--log", "json"]), withHeaders);
    }
    const invalid = [{ "X Key": "secret" }, { "X-Key": "secret\nX-Other: 1" }];
    for (const given of invalid) {
      assert.throws(() => guarded({ url: "https://example.com", headers: given }), (error) => error instanceof TypeError && !error.message.includes("secret"));
    }
    assert.deepEqual(guarded(guarded({ command: "server" })), guarded({ command: "server" }));
    const npx = { command: "npx", args: ["-y", "everlink@0.1.0", "guard", "--", "server"] };
    assert.deepEqual(guarded(npx, ["--drain", "5"]).args, ["-y", "everlink@0.1.0", "guard", "--drain", "5", "--", "server"]);
    assert.equal(guarded({ command: "server", args: ["--", "everlink", "guard"] }).command, command);
    assert.throws(() => guarded({}), /either a `command` or a `url`/);
    assert.throws(() => guarded({ command: "server", url: "https://example.com" }), TypeError);
  },
};

for (const [name, check] of Object.entries(checks)) {
  const alarm = setTimeout(() => assert.fail(`not within 30 s: ${name}`), 30_000);
  await check();
  clearTimeout(alarm);
  console.log(`ok: ${name}`);
}

// A guard behind the script, after it has answered its host.
async function startGuard() {
  const { programPath } = require("everlink");
  const shimProcess = spawn(process.execPath, [shim, "guard", "--", programPath(), "demo-server"], { stdio: ["pipe", "pipe", "ignore"] });
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "check", version: "1" } };
  shimProcess.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params })}\n`);
  await once(shimProcess.stdout, "data");
  // A Node that can replace itself has no child.
  const program = typeof process.execve === "function" && !onWindows ? shimProcess.pid : childOf(shimProcess.pid);
  return { shimProcess, program };
}

function childOf(parent) {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" }).trim().split("\n");
  const pairs = lines.map((line) => line.trim().split(/\s+/).map(Number));
  const children = pairs.filter(([, ppid]) => ppid === parent).map(([pid]) => pid);
  assert.equal(children.length, 1, "the script has one child");
  return children[0];
}

async function isGone(pid) {
  for (let round = 0; round < 50; round += 1) {
    try {
      process.kill(pid, 0);
    } catch {
      return true;
    }
    await sleep(100);
  }
  return false;
}
