// Finds the program `everlink`, and puts it before the command of a server. Must not start a process.
"use strict";

const { accessSync, constants } = require("node:fs");
const { dirname, join } = require("node:path");
const { optionalDependencies = {}, version } = require("./package.json");

function programPath() {
  const chosen = process.env.EVERLINK_PROGRAM;
  if (chosen) {
    try {
      accessSync(chosen, constants.X_OK);
    } catch {
      throw new Error(`EVERLINK_PROGRAM is ${JSON.stringify(chosen)}, which is not an executable file: correct or unset this environment variable`);
    }
    return chosen;
  }
  const wanted = `@everlink/cli-${process.platform}-${process.arch}`;
  const known = Object.keys(optionalDependencies);
  if (!known.includes(wanted)) {
    const platforms = known.map((name) => name.replace("@everlink/cli-", "")).join(", ");
    throw new Error(
      `there is no program for ${process.platform}-${process.arch}, only for ${platforms}. ` +
        "`cargo install everlink-cli` builds it from source.",
    );
  }
  let manifest;
  try {
    manifest = require.resolve(`${wanted}/package.json`);
  } catch {
    throw new Error(
      `the package ${wanted}, which contains the program for this system, is not installed. ` +
        "Package managers leave it out with `--omit=optional` or `--no-optional`, and if node_modules or a lock file comes from another system. " +
        `Install again without that, or run: npm install ${wanted}@${version}`,
    );
  }
  return join(dirname(manifest), "bin", process.platform === "win32" ? "everlink.exe" : "everlink");
}

function guarded(params, options = []) {
  const { url, command, args = [], ...rest } = params;
  if ((typeof command === "string") === (url !== undefined)) {
    throw new TypeError("guarded needs either a `command` or a `url`");
  }
  const present = url === undefined ? guardAt(command, args) : -1;
  if (present >= 0) {
    return { ...rest, command, args: [...args.slice(0, present + 1), ...options, ...args.slice(present + 1)] };
  }
  if (url === undefined) {
    return { ...rest, command: programPath(), args: ["guard", ...options, "--", command, ...args] };
  }
  const { headers, ...others } = rest;
  const variables = headerVariables(headers);
  const names = Object.keys(variables);
  const env = names.length > 0 ? { env: { ...others.env, ...variables } } : {};
  const headerOptions = names.flatMap((name) => ["--header-env", name]);
  return { ...others, ...env, command: programPath(), args: ["guard", ...headerOptions, ...options, "--url", String(url)] };
}

// The environment variables that hold the headers: other users can see the arguments of a process.
function headerVariables(headers = {}) {
  const isIterable = typeof headers[Symbol.iterator] === "function";
  const fields = isIterable ? [...headers] : Object.entries(headers);
  const variables = fields.map(([name, value], index) => {
    if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name)) {
      throw new TypeError(`${JSON.stringify(name)} is not a name of an HTTP header`);
    }
    if (/[\r\n\0]/.test(value)) {
      // The value is not quoted: it may be a secret.
      throw new TypeError(`the value of the header ${JSON.stringify(name)} has a line break or a NUL`);
    }
    return [`EVERLINK_HEADER_${index + 1}`, `${name}: ${value}`];
  });
  return Object.fromEntries(variables);
}

// Where the word `guard` is in the arguments of a command that is a guard already, however it is started. -1 for other commands.
function guardAt(command, args) {
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  const names = [command, ...own];
  return own.findIndex((word, position) => word === "guard" && /(^|[/\\])everlink([.\-_@=:][^/\\]*)?$/i.test(names[position]));
}

module.exports = { guarded, programPath };
