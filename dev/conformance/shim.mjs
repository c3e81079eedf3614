// The suite imports `globSync` from `fs`, which Node has since 22. On an older one, its `fs` is this module, which has it.
import { join } from 'node:path';
import { register } from 'node:module';
import * as fs from 'node:fs';

export * from 'node:fs';
export { default } from 'node:fs';

/** Only what the suite needs: parts of a path, in which one `*` stands for anything. */
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
