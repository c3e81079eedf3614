// Compiled only: the types for CommonJS, and the mistakes that they must refuse.
import { guarded, programPath, type Guarded } from "everlink";

const path: string = programPath();
const local = guarded({ command: path, args: ["a"] as const, env: { KEY: "value" }, cwd: "/" }, ["--log", "json"]);
const words: string[] = local.args;
const value: string = local.env.KEY;
const remote: { command: string; args: string[] } = guarded({ url: "https://example.com/mcp" });
const named: Guarded<{ url: URL; label: number }> = guarded({ url: new URL("https://example.com"), label: 1 });
const label: number = named.label;

// @ts-expect-error: a server has a command or a URL
guarded({ args: ["a"] });
// @ts-expect-error: options are a list
guarded({ command: "server" }, "--log json");
// @ts-expect-error: the URL becomes an argument
remote.url;

export { label, local, value, words };
