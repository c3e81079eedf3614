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
  const server = url === undefined ? ["--", command, ...args] : ["--url", String(url)];
  return { ...rest, command: programPath(), args: ["guard", ...options, ...server] };
}

// Where the word `guard` is in the arguments of a command that is a guard already, however it is started. -1 for other commands.
function guardAt(command, args) {
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  const names = [command, ...own];
  return own.findIndex((word, position) => word === "guard" && /(^|[/\\])everlink([.\-_@=:][^/\\]*)?$/i.test(names[position]));
}

module.exports = { guarded, programPath };
