// Shared helpers: a browser, a guard, a host, and checks. Does not depend on any single page.
import { execFileSync, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { MODULES, CHROMIUM = "chromium" } = process.env;
// The library wants a path, not a name.
const browserPath = execFileSync("which", [CHROMIUM], { encoding: "utf8" }).trim();
export const EVERLINK = process.env.EVERLINK;
export const SCREENSHOTS = process.env.SCREENSHOTS;
export const scratch = mkdtempSync(join(tmpdir(), "everlink-browser-"));
const { chromium } = createRequire(join(MODULES, "package.json"))("playwright-core");

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let failed = 0;

export function check(what, isTrue, detail = "") {
  console.log((isTrue ? "ok    " : "FAILED ") + what + (detail === "" ? "" : " (" + detail + ")"));
  failed += isTrue ? 0 : 1;
}

export const finish = () => process.exit(failed ? 1 : 0);

export async function until(what, condition, ms = 20000) {
  const start = Date.now();
  for (;;) {
    if (await condition()) return;
    if (Date.now() - start > ms) { check(what, false, "not in time"); finish(); }
    await sleep(20);
  }
}

// Opens a browser, and notes every console error, exception, and request to another place.
export async function open(options = {}) {
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
  const context = await browser.newContext({ viewport: { width: 1320, height: 760 }, deviceScaleFactor: 1, ...options });
  const page = await context.newPage();
  const problems = [], urls = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) problems.push(message.text()); });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("dialog", (dialog) => { problems.push("dialog: " + dialog.message()); dialog.dismiss(); });
  page.on("request", (request) => urls.push(request.url()));
  return { browser, context, page, problems, urls };
}

export function shot(page, name) {
  return SCREENSHOTS ? page.screenshot({ path: join(SCREENSHOTS, name + ".png") }) : null;
}

// A guard in front of the demo server, and a host that calls it over HTTP. The server takes a moment to start: the page need not show a state that lasts for a few
// milliseconds.
export class Guard {
  constructor(options = []) {
    const words = ["guard", "--log", "json", "--remember", "off", "--listen", "http://127.0.0.1:0/mcp", "--status", "127.0.0.1:0", ...options, "--", "sh", "-c", 'sleep 0.2; exec "$0" demo-server', EVERLINK];
    this.process = spawn(EVERLINK, words, { stdio: ["ignore", "ignore", "pipe"] });
    this.log = [];
    createInterface({ input: this.process.stderr }).on("line", (line) => { try { this.log.push(JSON.parse(line)); } catch { /* the server's own output */ } });
  }

  async ready() {
    await until("the guard listens", () => this.log.some((entry) => entry.listening));
    this.status = this.log.find((entry) => entry.status).status;
    this.url = this.log.find((entry) => entry.listening).listening;
    const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "host", version: "1" } };
    const response = await this.post({ jsonrpc: "2.0", id: "hello", method: "initialize", params: hello });
    this.session = response.headers.get("mcp-session-id");
    await response.text();
    await this.post({ jsonrpc: "2.0", method: "notifications/initialized" });
    return this;
  }

  post(message) {
    const headers = { "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25" };
    if (this.session) headers["mcp-session-id"] = this.session;
    return fetch(this.url, { method: "POST", headers, body: JSON.stringify(message) });
  }

  // Calls a tool, and returns the text of the reply.
  async call(name, args) {
    this.count = (this.count || 0) + 1;
    const response = await this.post({ jsonrpc: "2.0", id: this.count, method: "tools/call", params: { name, arguments: args } });
    return response.text();
  }

  async pid() {
    const text = await this.call("pid", {});
    return Number(/"text":"(\d+)"/.exec(text)?.[1]);
  }

  end() {
    return new Promise((resolve) => { this.process.once("exit", resolve); this.process.kill("SIGTERM"); });
  }
}
