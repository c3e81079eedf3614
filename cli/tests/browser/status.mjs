// Tests the status page in a browser: a real guard, a real kill, a restart, and 200 servers.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Guard, check, finish, open, scratch, shot, sleep, until } from "./support.mjs";

const tokenFile = join(scratch, "token");
const guard = await new Guard(["--status-token", tokenFile]).ready();
const { browser, page, problems, urls } = await open({ colorScheme: "light" });
await page.goto(guard.status);
await page.waitForSelector("tbody .state");
const state = () => page.textContent("tbody .state");
const epoch = async () => Number(await page.textContent("tbody td.number"));

// Traffic with a secret in it, so that there is something to see and something to hide.
let isBusy = true;
const traffic = (async () => {
  for (let n = 0; isBusy; n++) {
    await Promise.all([guard.call("echo", { message: "SECRET-PAYLOAD" }), guard.call("sleep", { ms: 1 + (n * 7) % 23 })]).catch(() => {});
    await sleep(60 + 50 * Math.sin(n / 15));
  }
})();
await until("the server is ready", async () => (await state()) === "ready");
check("the page shows the server's name", (await page.textContent("tbody strong")) === "everlink-demo");

// A real kill, three times: the state leaves ready and comes back.
for (let round = 1; round <= 3; round++) {
  const before = await epoch();
  const seen = page.evaluate(() => new Promise((resolve) => {
    const cell = document.querySelector("tbody .state"), states = new Set();
    const observer = new MutationObserver(() => {
      states.add(cell.textContent);
      if (cell.textContent === "ready" && states.size > 1) { observer.disconnect(); resolve([...states]); }
    });
    observer.observe(cell, { childList: true, characterData: true, subtree: true });
  }));
  process.kill(await guard.pid(), "SIGKILL");
  const states = await Promise.race([seen, sleep(10000).then(() => [])]);
  check("a kill changes the state, round " + round, states.length > 1 && (await epoch()) > before, states.join(", "));
  await sleep(1500);
}
check("the failures are listed", (await page.locator(".failures li .kind").count()) > 0);
await sleep(Number(process.env.FILL_MS || 3000));

// A restart needs the token.
const before = await epoch();
await page.click(".restart");
await page.fill("#ask-token", "wrong-wrong-wrong-wrong");
await page.click("#ask-yes");
await until("a wrong token is refused", async () => (await page.textContent("#ask-error")).includes("token"));
check("a wrong token restarts nothing", (await epoch()) === before);
await shot(page, "status-restart");
// The browser reports the refused request; this is the only error so far.
check("only the refusal is an error", problems.length === 1 && problems[0].includes("401"), problems.join("; "));
problems.length = 0;
await page.fill("#ask-token", readFileSync(tokenFile, "utf8").trim());
await page.keyboard.press("Enter");
await until("the restart makes a new epoch", async () => (await epoch()) > before && (await state()) === "ready");
check("the dialog is closed", !(await page.locator("#ask").isVisible()));
const text = await page.content();
check("no payload, token or path is on the page", !/SECRET|demo-server|\/tmp/.test(text) && !text.includes(readFileSync(tokenFile, "utf8").trim()));
await shot(page, "status-light");
await page.emulateMedia({ colorScheme: "dark" });
await shot(page, "status-dark");

// With the keyboard only.
await page.keyboard.press("/");
check("the slash key leads to the search field", await page.evaluate(() => document.activeElement.id === "find"));
await page.keyboard.type("no such server");
check("a filter without a match says so", await page.locator("#empty").isVisible());
await page.keyboard.press("Escape");
const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, input, svg[role=img]")].filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label"))).length);
check("every control and plot has a name", unnamed === 0, unnamed);
check("no console error", problems.length === 0, problems.join("; "));
const origin = new URL(guard.status).origin;
check("no request to another host", urls.every((url) => url.startsWith(origin) || url.startsWith("data:")), urls.filter((url) => !url.startsWith(origin)).join(" "));
isBusy = false;
await traffic;
await guard.end();
await until("the page says that the guard is gone", async () => (await page.getAttribute("#link", "class")) === "lost");
await browser.close();

// 200 servers: the same page, with a stream of its own.
const second = await new Guard().ready();
const html = await (await fetch(second.status, { headers: { accept: "text/html" } })).text();
check("without a token, there is no restart", (await fetch(second.status + "servers/1/restart", { method: "POST" })).status === 403);
await second.end();
const states = ["ready", "ready", "ready", "ready", "ready", "ready", "ready", "waiting", "handshaking", "parked"];
const wave = (n, at) => Math.max(0, 20 + 15 * Math.sin((at + n * 9) / 11) + ((at * n) % 7));
const server = (n, at, isWhole) => {
  const state = states[(n * 7) % 10], isUp = state === "ready";
  const sample = (i) => isUp ? [wave(n, i), 2 + (n % 5) + Math.sin(i / 5), 8 + (n % 9) + 3 * Math.sin(i / 3), n % 4] : [0, null, null, 0];
  const entry = { id: n, name: ["files", "search", "browser", "github", "postgres", "mail", "calendar"][n % 7] + "-" + n, version: "1." + (n % 9), protocol: n % 3 ? "2025-11-25" : "2026-07-28", state, silent: n % 37 === 0, since: n * 11, uptime: isUp ? n * 311 : null, epoch: 1 + n % 6,
    failures: state === "waiting" ? 1 + n % 4 : state === "parked" ? 5 : 0, budget: 5, next_attempt: isUp || state === "handshaking" ? null : (n * 3) % 60, in_flight: isUp ? n % 4 : 0, sessions: 1, calls: n * 1000, settled: n * 1000, lost: n % 3, restarts: n % 6, transport: "process",
    recent: [{ ago: 30 + n, kind: "server", text: "the server ended (connection 1, after 12.101 s, signal 9 (SIGKILL); 0 faults)" }], samples: at, sample: sample(at) };
  if (isWhole) entry.history = Array.from({ length: 120 }, (_, i) => sample(at - 119 + i));
  return entry;
};
const everything = (at, isWhole) => JSON.stringify({ everlink: "0.1.0", pid: 1, running: 4000, restart: true, servers: Array.from({ length: 200 }, (_, n) => server(n + 1, at, isWhole)) });
const fake = createServer((request, response) => {
  if (request.url !== "/events") return response.writeHead(200, { "content-type": "text/html" }).end(html);
  response.writeHead(200, { "content-type": "text/event-stream" });
  let at = 1000;
  response.write("event: snapshot\ndata: " + everything(at, true) + "\n\n");
  const timer = setInterval(() => response.write("event: update\ndata: " + everything(++at, false) + "\n\n"), 1000);
  response.on("close", () => clearInterval(timer));
}).listen(0, "127.0.0.1");
await new Promise((resolve) => fake.once("listening", resolve));
const many = await open({ colorScheme: "light" });
await many.page.goto("http://127.0.0.1:" + fake.address().port + "/", { waitUntil: "commit" });
await many.page.waitForFunction(() => document.querySelectorAll("tbody").length === 200);
const ms = await many.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - performance.getEntriesByType("navigation")[0].responseStart)))));
check("200 servers are shown within 1 s", ms < 1000, Math.round(ms) + " ms after the first byte of the page");
await shot(many.page, "status-200");
const long = many.page.evaluate(() => new Promise((resolve) => { let most = 0; new PerformanceObserver((list) => { for (const entry of list.getEntries()) most = Math.max(most, entry.duration); }).observe({ type: "longtask" }); setTimeout(() => resolve(most), 4000); }));
check("an update of 200 servers blocks the page for less than 200 ms", (await long) < 200, Math.round(await long) + " ms");
await many.page.click("#counts button[data-state=parked]");
check("a state filters the list", (await many.page.locator("tbody:not([hidden])").count()) === 20, await many.page.locator("tbody:not([hidden])").count());
check("no console error with 200 servers", many.problems.length === 0, many.problems.join("; "));
await many.browser.close();
fake.close();
fake.closeAllConnections();
finish();
