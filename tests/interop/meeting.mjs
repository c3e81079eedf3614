// What clients of every SDK for Node do with our server, step by step. Knows no SDK.
//
// A script makes a `connect` of its SDK and hands it to `meet`. Its arguments are MODULES TRANSPORT ERA STEPS PROGRAM [PORT]: where the SDK is
// installed, stdio, http or sse, legacy or automatic, the steps, our server, and where it is to listen. Each step is told by a line of JSON.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { connect as dial } from "node:net";

export const NOTE = "interop://note";
/** Nothing here should take as long as that, in milliseconds. Where it does, something hangs. */
const DEADLINE = 30_000;
/** How long a call may take whose server is dead: not every transport notices. */
export const PATIENCE = 2_000;

const [modules, transport, era, steps, program, port] = process.argv.slice(2);
export const asked = { transport, era, program };
export const require = createRequire(`${modules}/`);
export const url = new URL(`http://127.0.0.1:${port ?? 0}${transport === "sse" ? "/sse" : "/mcp"}`);
/** Whoever is asked is called Ada. */
export const answer = { action: "accept", content: { name: "Ada" } };

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const within = (promise, ms = DEADLINE) => {
  let timer;
  const late = new Promise((_, fail) => (timer = setTimeout(fail, ms, new Error("it hangs"))));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};
const expect = (isSo, otherwise) => {
  if (!isSo) throw new Error(otherwise);
};

/** Something that happens once, and can be waited for. */
export function signal() {
  const made = {};
  made.come = new Promise((done) => (made.raise = done));
  return made;
}

/** Our server over HTTP, in a process of its own. */
class Listener {
  async start() {
    this.process = spawn(program, ["http", port], { stdio: ["ignore", "ignore", "inherit"] });
    while (!(await this.listens())) await sleep(20);
  }

  listens() {
    return new Promise((tell) => {
      const socket = dial(Number(port), "127.0.0.1");
      socket.on("connect", () => (socket.destroy(), tell(true)));
      socket.on("error", () => tell(false));
    });
  }

  async kill() {
    const gone = new Promise((done) => this.process.on("exit", done));
    this.process.kill("SIGKILL");
    await gone;
  }
}

/**
 * Goes through the steps. `connect` gives a visit: its `version`, `names()` of the tools, `call(tool, arguments, { onprogress, signal })` for
 * `{ failed, text }`, `watch()` of the note, `touched` and `grown` as signals, and `close()`.
 */
export async function meet(connect) {
  const listener = transport === "stdio" ? null : new Listener();
  await listener?.start();
  let visit;

  const good = async (tool, says, given = {}) => {
    const { failed, text } = await visit.call(tool, given);
    expect(!failed && text.includes(says), text);
  };
  /** A call that takes long: when it has begun, and what becomes of it. */
  const slow = (options = {}) => {
    const begun = signal();
    const outcome = visit.call("slow", {}, { ...options, onprogress: begun.raise });
    outcome.catch(() => {});
    return { begun: begun.come, outcome };
  };
  const failure = (promise) => promise.then(() => Promise.reject(new Error("it has a result")), String);

  const all = {
    async handshake() {
      visit = await connect();
    },
    async list() {
      expect((await visit.names()).includes("echo"), "`echo` is not in the list");
    },
    call: () => good("echo", "Echo: hello", { message: "hello" }),
    async error() {
      const { failed, text } = await visit.call("fail", {});
      expect(failed && text.includes("this never works"), text);
    },
    async progress() {
      const reports = [];
      const { text } = await visit.call("progress", {}, { onprogress: ({ progress }) => reports.push(progress) });
      expect(text.includes("three steps") && String(reports) === "1,2,3", `${text}: ${reports}`);
    },
    async cancel() {
      const stop = new AbortController();
      const { begun, outcome } = slow({ signal: stop.signal });
      await begun;
      stop.abort("enough");
      await failure(outcome);
      while (!(await visit.call("noted", {})).text.includes("cancelled: 1")) await sleep(20);
    },
    ask: () => good("ask", "Hello, Ada"),
    async watch() {
      await visit.watch();
      await good("touch", "touched");
      await visit.touched.come;
    },
    async news() {
      await good("grow", "grown");
      await visit.grown.come;
      expect((await visit.names()).includes("grown"), "`grown` is not in the list");
    },
    /** The server dies under a call: the client says so, and a new connection works. */
    async kill() {
      const pid = Number((await visit.call("pid", {})).text);
      const { begun, outcome } = slow({ timeout: PATIENCE });
      await begun;
      if (listener) await listener.kill();
      else process.kill(pid, "SIGKILL");
      const told = await failure(outcome);
      await visit.close().catch(() => {});
      await listener?.start();
      visit = await connect();
      await all.call();
      return told;
    },
  };

  for (const step of steps.split(",")) {
    let ok = true;
    const note = await within(all[step]()).catch((error) => ((ok = false), String(error)));
    console.log(JSON.stringify({ step, ok, note: note ?? "", version: visit?.version }));
  }
  await within(visit.close()).catch(() => {});
  listener?.process.kill("SIGKILL");
  process.exit(0);
}
