// What every server for Node shares: the replies to requests, from offer.json. A server script says how its SDK sends and asks.

import { readFileSync } from "node:fs";

export const OFFER = JSON.parse(readFileSync(new URL("offer.json", import.meta.url), "utf8"));

export const CAPABILITIES = {
  tools: {},
  resources: { subscribe: true },
  prompts: { listChanged: true },
  logging: {},
  completions: {},
  experimental: OFFER.experimental,
  extensions: OFFER.extensions,
};

export const text = (text) => ({ content: [{ type: "text", text }] });

export function failure({ code, message, data }) {
  return Object.assign(new Error(message), { code, data });
}

/** The reply to each method. `speak` is how a request talks back: `notify`, `progress`, `ask`, `signal`, `meta`. */
export const REPLIES = {
  "tools/list": ({ cursor } = {}) => {
    if (cursor && cursor !== "page-2") throw failure({ code: -32602, message: `Unknown cursor: ${cursor}` });
    if (cursor) return { tools: OFFER.tools.slice(OFFER.page) };
    return { tools: OFFER.tools.slice(0, OFFER.page), nextCursor: "page-2" };
  },
  "tools/call": async ({ name, arguments: given = {} }, speak) => {
    if (name === "mark") return text("marked");
    if (name === "echo") {
      const seen = Object.fromEntries(Object.entries(speak.meta ?? {}).filter(([key]) => key.startsWith("com.example")));
      return { content: [], structuredContent: given, _meta: { "com.example/seen": seen } };
    }
    if (name === "big") return text("x".repeat(given.size));
    if (name === "length") return text(String(given.text.length));
    if (OFFER.acts[name]) return act(OFFER.acts[name], speak);
    throw failure({ code: -32602, message: `Unknown tool: ${name}` });
  },
  "resources/list": () => ({ resources: OFFER.resources }),
  "resources/templates/list": () => ({ resourceTemplates: OFFER.templates }),
  "resources/read": ({ uri }) => {
    const name = uri.match(/^test:\/\/user\/(.*)/)?.[1];
    if (name) return { contents: [{ uri, mimeType: "application/json", text: JSON.stringify({ name }) }] };
    if (OFFER.contents[uri]) return { contents: [OFFER.contents[uri]] };
    throw failure({ code: -32002, message: "Resource not found", data: { uri } });
  },
  "resources/subscribe": () => ({}),
  "resources/unsubscribe": () => ({}),
  "prompts/list": () => ({ prompts: OFFER.prompts }),
  "prompts/get": ({ name, arguments: given }) => {
    if (name !== "greet") throw failure({ code: -32602, message: `Unknown prompt: ${name}` });
    const content = { type: "text", text: `Greet ${given?.who}` };
    return { description: "A greeting", messages: [{ role: "user", content }], _meta: { "com.example/got": 1 } };
  },
  "completion/complete": ({ argument, ref, context }) => ({
    completion: { values: [`${argument.value}da`, ref.type, JSON.stringify(context ?? null)], total: 3, hasMore: false },
  }),
};

async function act({ steps = [], result, error }, speak) {
  const answers = [];
  for (const step of steps) {
    if (step.notify) await speak.notify(step.notify, step.params);
    if (step.progress && speak.meta?.progressToken !== undefined) await speak.progress(speak.meta.progressToken, step.progress);
    if (step.sleep) await slept(step.sleep, speak.signal);
    if (step.ask) {
      const asked = await speak.ask(step.ask, step.params);
      if (asked.instead) return asked.instead;
      answers.push(asked.answer);
    }
  }
  if (error) throw failure(error);
  return result ?? text(JSON.stringify(answers));
}

function slept(seconds, signal) {
  return new Promise((done) => {
    const end = setTimeout(done, seconds * 1000);
    signal.addEventListener("abort", () => {
      clearTimeout(end);
      done();
    });
  });
}

/** What an answer looks like in a result, and an error. */
export async function answered(promise) {
  try {
    return { answer: await promise };
  } catch (error) {
    return { answer: { code: error.code, message: error.message, data: error.data } };
  }
}
