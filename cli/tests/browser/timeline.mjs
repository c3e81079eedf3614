// Tests the timeline of a recording in a browser: 100,000 steps, every kind of interaction, and a hostile recording.
import { spawn, execFileSync } from "node:child_process";
import { createInterface } from "node:readline";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EVERLINK, check, finish, open, scratch, shot } from "./support.mjs";

// A guard at standard streams that records. Sends the calls with at most `window` unanswered ones.
async function record(file, options, calls, window = 64) {
  const guard = spawn(EVERLINK, ["guard", "--log", "off", "--remember", "off", "--record", file, ...options, "--", EVERLINK, "demo-server"], { stdio: ["pipe", "pipe", "ignore"] });
  const send = (message) => guard.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
  let sent = 0, open = 0;
  await new Promise((resolve) => {
    const more = () => {
      while (open < window && sent < calls.length) { open++; const [name, args] = calls[sent]; send({ id: ++sent, method: "tools/call", params: { name, arguments: args } }); }
      if (!open) resolve();
    };
    createInterface({ input: guard.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      if (message.id === 0) { send({ method: "notifications/initialized" }); more(); } else if (message.id && !message.method) { open--; more(); }
    });
    send({ id: 0, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "host", version: "1" } } });
  });
  guard.stdin.end();
  await new Promise((resolve) => guard.once("exit", resolve));
}

function timeline(recording, expected = 0) {
  const page = recording + ".html";
  try { execFileSync(EVERLINK, ["replay", recording, "--html", page], { stdio: "ignore" }); } catch (error) { if (error.status !== expected) throw error; }
  return page;
}

async function visit(file, options) {
  const browser = await open({ viewport: { width: 1440, height: 900 }, ...options });
  const start = Date.now();
  await browser.page.goto("file://" + file);
  await browser.page.waitForFunction(() => document.querySelectorAll(".row").length > 0);
  await browser.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  return { ...browser, ms: Date.now() - start };
}
const others = (urls, file) => urls.filter((url) => url !== "file://" + file);

// 100,000 steps.
const large = join(scratch, "large.jsonl");
await record(large, [], Array.from({ length: 25000 }, (_, n) => ["echo", { message: "this is message " + n }]));
const largePage = timeline(large);
{
  const { browser, page, ms, problems, urls } = await visit(largePage, { colorScheme: "light" });
  const count = Number((await page.textContent("#facts")).split(" ")[0].replaceAll(",", ""));
  check("the recording has 100,000 steps", count >= 100000, count + " steps, " + (statSync(largePage).size / 1e6).toFixed(1) + " MB");
  check("100,000 steps are shown within 2 s", ms < 2000, ms + " ms");
  const frames = await page.evaluate(async () => {
    const list = document.getElementById("list"), times = [];
    let last = performance.now();
    for (let n = 0; n < 120; n++) {
      list.scrollTop += 1800;
      await new Promise((resolve) => requestAnimationFrame(resolve));
      times.push(performance.now() - last);
      last = performance.now();
    }
    return times.sort((a, b) => a - b);
  });
  check("scrolling the list is smooth", frames[113] < 50, "frame p50 " + frames[60].toFixed(1) + " ms, p95 " + frames[113].toFixed(1) + " ms");
  const zooms = await page.evaluate(async () => {
    const times = [];
    for (let n = 0; n < 60; n++) {
      const start = performance.now();
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: n < 30 ? "+" : "-", bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(resolve));
      times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b);
  });
  check("zooming is smooth", zooms[56] < 120, "frame p50 " + zooms[30].toFixed(1) + " ms, p95 " + zooms[56].toFixed(1) + " ms");
  await page.fill("#find", "message 24999");
  await page.waitForFunction(() => document.querySelectorAll(".row").length < 10);
  check("a search finds the four messages of one call", (await page.locator(".row").count()) === 4);
  check("no console error with 100,000 steps", problems.length === 0, problems.join("; "));
  check("no request", others(urls, largePage).length === 0, others(urls, largePage).join(" "));
  await browser.close();
}

// All kinds of outcomes, and every interaction.
const mixed = join(scratch, "crash.jsonl");
const ways = ["kill", "exit", "garbage", "half-line"];
await record(mixed, [], Array.from({ length: 120 }, (_, n) => n % 29 === 28 ? ["die", { how: ways[(n / 29) % 4 | 0] }] : n % 11 === 3 ? ["fail", { message: "no" }] : n % 13 === 5 ? ["nothing", {}] : n % 3 ? ["sleep", { ms: 2 + (n * 7) % 30 }] : ["echo", { message: "hello " + n }]), 5);
const mixedPage = timeline(mixed);
{
  const { browser, page, problems } = await visit(mixedPage, { colorScheme: "light" });
  await shot(page, "timeline-light");
  await page.emulateMedia({ colorScheme: "dark" });
  const failed = await page.evaluate(() => { const index = rows.findIndex((row) => row[3] >= 0 && calls[row[3]][4] === 4); choose(index, true); return index; });
  check("a failed call says why", (await page.textContent("#about")).includes("the server ended"), "step " + failed);
  await page.click("#one");
  check("one call can be shown alone", (await page.locator("#kinds .only").count()) === 1);
  await shot(page, "timeline-dark");
  const before = await page.textContent("#what");
  await page.keyboard.press("ArrowDown");
  check("an arrow key goes to the next step", (await page.textContent("#what")) !== before || (await page.textContent("#about")).includes("Step"));
  await page.keyboard.press("Escape");
  check("all calls are back", (await page.locator("#kinds .only").count()) === 0);
  const range = await page.textContent("#range");
  await page.keyboard.press("0");
  await page.hover("#canvas", { position: { x: 700, y: 250 } });
  await page.mouse.wheel(0, -400);
  await page.waitForTimeout(100);
  check("the wheel zooms", (await page.textContent("#range")) !== range);
  await page.click("#kinds button:has-text('messages')");
  check("a kind can be hidden", (await page.locator(".row.k0, .row.k3").count()) === 0);
  check("no console error", problems.length === 0, problems.join("; "));
  await browser.close();
}

// A hostile recording: it runs no script, whatever the texts are.
const hostile = join(scratch, "hostile.jsonl");
const attacks = ["</script><script>window.owned=1;alert(1)</script>", "<img src=x onerror='window.owned=2;alert(2)'>", "<!--<script>", "]]>", "<svg onload=alert(3)>", "javascript:alert(4)", "\u0000\u001b[2J\u2028\u2029\u202e", "x".repeat(10_000_000)];
await record(hostile, [], attacks.flatMap((text) => [["echo", { message: text }], [text.slice(0, 2000), {}]]), 1);
writeFileSync(hostile, readFileSync(hostile, "utf8").replace('{"key"', "<script>window.owned=3</script>\n{\"key\""));
const hostilePage = timeline(hostile, 4);
{
  const { browser, page, ms, problems, urls } = await visit(hostilePage);
  for (let n = 0; n < 60; n++) await page.keyboard.press("ArrowDown");
  await page.evaluate(() => { for (let index = 0; index < rows.length; index++) choose(index); });
  check("a hostile recording runs no script", (await page.evaluate(() => window.owned)) === undefined && problems.length === 0, problems.join("; "));
  check("it adds no element", (await page.locator("main img, main svg, main script, header script").count()) === 0 && (await page.locator("script").count()) === 1);
  check("it opens within 2 s", ms < 2000, ms + " ms, " + (statSync(hostilePage).size / 1e6).toFixed(2) + " MB");
  check("the broken line is reported", (await page.textContent("#notes")).includes("is not a line of a recording"));
  check("no request from a hostile recording", others(urls, hostilePage).length === 0, others(urls, hostilePage).join(" "));
  // The policy stops a script even if the text had become markup.
  const blocked = await page.evaluate(() => { try { const script = document.createElement("script"); script.textContent = "window.owned = 4"; document.body.append(script); } catch { /* refused */ } return window.owned; });
  check("the policy stops a script without its nonce", blocked === undefined);
  await browser.close();
}
finish();
