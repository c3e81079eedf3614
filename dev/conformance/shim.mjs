// Adds `globSync` to `fs`. The suite imports it, but Node has it only since version 22.
import { join } from 'node:path';
import { register } from 'node:module';
import * as fs from 'node:fs';

export * from 'node:fs';
export { default } from 'node:fs';

/** Supports only what the suite needs: path components in which one `*` matches anything. */
export function globSync(pattern, { cwd = '.' } = {}) {
  let found = [''];
  for (const part of pattern.split('/')) {
    const [head, tail] = part.split('*');
    const names = (at) => fs.readdirSync(join(cwd, at)).filter((name) => name.startsWith(head) && name.endsWith(tail));
    found = found.flatMap((at) => (tail === undefined ? [part] : names(at)).map((name) => join(at, name)));
  }
  return found.filter((path) => fs.existsSync(join(cwd, path)));
}

if (!('globSync' in fs)) {
  const hook = `export const resolve = (name, context, next) =>
    name === 'fs' ? { url: ${JSON.stringify(import.meta.url)}, shortCircuit: true } : next(name, context);`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`);
}
