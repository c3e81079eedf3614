#!/usr/bin/env node
// Runs the program `everlink` of the platform package, and ends as it ends. Must not read or write the standard streams: they belong to the program.
"use strict";

const { spawn } = require("node:child_process");
const { accessSync, constants: access } = require("node:fs");
const { constants: system } = require("node:os");
const { isatty } = require("node:tty");
const { programPath } = require("../index.js");

// The exit status of the program if it cannot do what it was told.
const FAILED = 4;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

let program;
try {
  program = programPath();
  // `execve` aborts this process if it fails, so the likely reasons are checked before.
  accessSync(program, access.X_OK);
} catch (error) {
  fail(error);
}
const words = process.argv.slice(2);
replaceThisProcess();
runAsChild();

// Node 22.15 and later can replace itself: then no second process waits, and signals reach the program directly.
function replaceThisProcess() {
  if (process.platform === "win32" || typeof process.execve !== "function") {
    return;
  }
  try {
    process.execve(program, [program, ...words], process.env);
  } catch {
    // Not in a worker, and not on every system.
  }
}

function runAsChild() {
  // Handlers are installed first: a signal that arrives during the start is forwarded after it.
  for (const signal of SIGNALS) {
    process.on(signal, forward);
  }
  const child = spawn(program, words, { stdio: "inherit" });
  child.on("error", fail);
  child.on("exit", (code, signal) => {
    if (signal === null) {
      process.exit(code);
    }
    // The parent must see the signal that ended the program.
    for (const handled of SIGNALS) {
      process.removeListener(handled, forward);
    }
    process.kill(process.pid, signal);
    // Node ignores some signals, and Windows has few. A shell would report this status.
    setTimeout(() => process.exit(128 + (system.signals[signal] ?? 0)), 100);
  });

  function forward(signal) {
    // A terminal sends Ctrl-C to both processes, and a second one would end the program at once. On Windows, `kill` gives a process no time.
    const sentToBoth = signal === "SIGINT" && [0, 1, 2].some((stream) => isatty(stream));
    if (!sentToBoth && process.platform !== "win32") {
      child.kill(signal);
    }
  }
}

function fail(error) {
  process.stderr.write(`everlink: ${error.message}\n`);
  process.exit(FAILED);
}
