// The code that all hosts for Node share: it runs the scenarios of scenarios.json one after the other, like host.py. Each host script defines how its
// SDK performs a step.
//
//     HOST_SCRIPT MODULES WHOLE|QUICK ERA stdio COMMAND...
//     HOST_SCRIPT MODULES WHOLE|QUICK ERA http URL

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, size, era, transport, ...target] = process.argv.slice(2);
export { era, target, transport };
export const require = createRequire(`${modules}/`);

/** How long an expected notification may take, in milliseconds. A scenario that waits in vain goes on without it. */
const PATIENCE = 3_000;
/** No step takes longer, whatever it waits for; with the largest messages, ten times as long. */
const STEP_LIMIT = 8_000;

// What a host says when it is asked.
export const ANSWERS = {
  "roots/list": { roots: [{ uri: "file:///home/ada", name: "home" }, { uri: "file:///tmp/%C3%BC" }] },
  "sampling/createMessage": { role: "assistant", content: { type: "text", text: "Ada 𝄞" }, model: "test-model", stopReason: "endTurn" },
  "elicitation/create": { action: "accept", content: { name: "Ada", age: 36 } },
};
export const INFO = { name: "transparent-host", title: "Gastgeber", version: "3.2.1", websiteUrl: "https://example.com/host" };
export const CAPABILITIES = {
  roots: { listChanged: true },
  sampling: {},
  elicitation: {},
  experimental: { "x-everlink-host": { deep: [1, null] } },
  extensions: { "com.example/host-extension": { level: 4 } },
};

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const within = (promise, ms) => {
  let timer;
  const late = new Promise((_, fail) => (timer = setTimeout(fail, ms, new Error("it hangs"))));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

const heard = new Map();
export const hear = (method) => void heard.set(method, (heard.get(method) ?? 0) + 1);

let failed = false;

async function expect(method, count, patience) {
  const end = Date.now() + patience;
  while ((heard.get(method) ?? 0) < count && Date.now() < end) await sleep(10);
  return `${Math.min(heard.get(method) ?? 0, count)} of ${count} ${method}`;
}

/** `host` has `request(method, params, options)`, `notify(method, params)`, and where its era has that, `listen(filter)`. */
export async function play(host) {
  const call = (name, given, options, meta) =>
    host.request("tools/call", { name, ...(given && { arguments: given }), ...(meta && { _meta: meta }) }, options);

  async function step(step) {
    // Nothing is to come if a step has failed, and a modern host hears of nothing that it did not listen for.
    if (step.expect) return expect(step.expect, step.count ?? 1, failed || host.listen ? 300 : PATIENCE);
    if (step.listen) {
      if (!host.listen) return "not of this era";
      const subscription = await host.listen(step.listen);
      for (const inner of step.steps) await perform(inner);
      const kinds = ["tools/list_changed", "resources/list_changed", "prompts/list_changed", "resources/updated"];
      const outcome = await Promise.all(kinds.map((kind) => expect(`notifications/${kind}`, 1, PATIENCE)));
      await subscription.close();
      return outcome;
    }
    if (step.task) return asTask(step.task);
    if (step.parallel) {
      await Promise.all(Array.from({ length: step.parallel }, (_, number) => call(step.call, { number })));
      return "all answered";
    }
    if (step.cancel) return cancelled(step);
    if (step.fill) return call(step.call, { text: "x".repeat(step.fill) });
    if (step.call) {
      // Which reports this SDK hands to the application depends on timing, so they are not told.
      return call(step.call, step.arguments, step.progress && { onprogress: () => {} }, step.meta);
    }
    if (step.request) return host.request(step.request, step.params);
    return host.notify(step.notify, step.params);
  }

  async function asTask(name) {
    const made = await host.request("tools/call", { name, arguments: {}, task: { ttl: 60000 } });
    const wanted = { taskId: made.task?.taskId ?? "no such task" };
    // The result comes when the task is done, so what is asked after it does not depend on timing.
    await host.request("tasks/result", wanted);
    await host.request("tasks/get", wanted);
    await host.request("tasks/list");
    // The notification that the task is complete may follow the replies.
    await sleep(500);
  }

  async function cancelled(step) {
    const gone = new AbortController();
    let begin;
    const begun = new Promise((done) => (begin = done));
    const answer = call(step.call, step.arguments, { onprogress: begin, signal: gone.signal }).catch((error) => `${error}`);
    await Promise.race([begun, sleep(3_000)]);
    gone.abort(step.cancel);
    await sleep(500);
    return answer;
  }

  async function perform(one, limit = STEP_LIMIT) {
    try {
      const outcome = (await within(step(one), limit)) ?? null;
      failed ||= Boolean(outcome?.isError);
      return outcome;
    } catch (error) {
      failed = true;
      // Some errors quote the response, with its id.
      return `${error}`.replace(/"id":\d+/, '"id":…').slice(0, 300);
    }
  }

  const scenarios = JSON.parse(readFileSync(new URL("scenarios.json", import.meta.url), "utf8"));
  for (const { name, steps, whole } of scenarios) {
    if (whole && size !== "WHOLE") continue;
    heard.clear();
    failed = false;
    await within(call("mark", { scenario: name }), STEP_LIMIT);
    const outcomes = [];
    for (const one of steps) outcomes.push(await perform(one, whole ? 10 * STEP_LIMIT : STEP_LIMIT));
    // Messages on other streams may arrive after the reply.
    if (transport === "http") await sleep(150);
    console.log(JSON.stringify({ scenario: name, outcomes: shortened(outcomes) }));
  }
  await call("mark", { scenario: "end" });
}

/** Replaces long texts by their lengths, so that a line of output stays readable. */
function shortened(value) {
  if (typeof value === "string") return value.length > 300 ? `${value.length} characters` : value;
  if (Array.isArray(value)) return value.map(shortened);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, shortened(each)]));
  return value;
}
