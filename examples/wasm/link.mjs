// The driver: connects the link in WebAssembly to a child process. It decides nothing: every retry, timeout and kill comes from the link.

import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { constants } from "node:os";

const now = () => performance.now();

export class Link {
  #wasm;
  #command;
  #child = null;
  #timer = null;
  #calls = new Map();
  #closed = deferred();
  #onEvent;

  // Connects to a server that the command starts. `onEvent` gets lines for people.
  static async connect(file, command, onEvent = () => {}) {
    const { instance } = await WebAssembly.instantiate(await readFile(file), {});
    return new Link(instance.exports, command, onEvent);
  }

  constructor(wasm, command, onEvent) {
    this.#wasm = wasm;
    this.#command = command;
    this.#onEvent = onEvent;
    wasm.connect(now(), Math.random());
    this.#drive();
  }

  // Returns a promise of the result. It is rejected with a text that says what happened.
  call(method, params) {
    this.#pass(`${method}\n${params === undefined ? "" : JSON.stringify(params)}`);
    const call = this.#wasm.call(now());
    if (call < 0) return Promise.reject(new Error("the call is not accepted"));
    const outcome = deferred();
    this.#calls.set(call, outcome);
    this.#drive();
    return outcome.promise;
  }

  // Ends the server, and resolves when nothing is left of it.
  close() {
    this.#wasm.shutdown(now());
    this.#drive();
    return this.#closed.promise;
  }

  // The bytes of WebAssembly's memory.
  get memoryBytes() {
    return this.#wasm.memory.buffer.byteLength;
  }

  // Carries out every output, and sleeps until the deadline. Runs after every input and every call.
  #drive() {
    const wasm = this.#wasm;
    for (let kind = wasm.poll(); kind !== 0; kind = wasm.poll()) this.#carryOut(kind);
    // While the link does not want input, the bytes stay in the pipe, and the server blocks.
    if (this.#child) wasm.wants_input() ? this.#child.stdout.resume() : this.#child.stdout.pause();
    clearTimeout(this.#timer);
    const wait = wasm.timeout() - now();
    if (wasm.is_closed()) this.#closed.resolve();
    else if (Number.isFinite(wait)) {
      // A timer of Node has at most 2^31 - 1 ms. To wake up early is harmless.
      const wake = () => (wasm.handle_timeout(now()), this.#drive());
      this.#timer = setTimeout(wake, Math.min(Math.max(Math.ceil(wait), 0), 2 ** 31 - 1));
    }
  }

  #carryOut(kind) {
    switch (kind) {
      case 1: return this.#open(this.#wasm.epoch());
      case 2: return this.#write(this.#wasm.epoch());
      case 3: return this.#child.stdin.end();
      case 4: return signal(this.#child, "SIGTERM");
      case 5: return signal(this.#child, "SIGKILL");
      case 6: return this.#release();
      case 7: return this.#done(JSON.parse(this.#text()));
      case 8: return this.#onEvent(this.#text());
    }
  }

  #open(epoch) {
    const wasm = this.#wasm;
    // With its own process group, so that a signal reaches its descendants.
    const child = spawn(this.#command[0], this.#command.slice(1), { detached: true });
    this.#child = child;
    const report = (act) => (...args) => (act(...args), this.#drive());
    child.once("spawn", report(() => wasm.opened(now(), epoch, true)));
    child.once("error", report(() => wasm.opened(now(), epoch, false)));
    for (const [stream, isError] of [[child.stdout, false], [child.stderr, true]]) {
      stream.on("data", report((bytes) => (this.#pass(bytes), wasm.received(now(), epoch, isError))));
      stream.on("error", () => {});
    }
    child.stdout.once("end", report(() => wasm.ended(now(), epoch)));
    child.stdin.on("error", report(() => wasm.write_failed(now(), epoch)));
    // After the bytes that have already arrived.
    child.once("exit", (status, name) => setImmediate(report(() => {
      wasm.exited(now(), epoch, status ?? 0, name ? constants.signals[name] : 0);
    })));
  }

  #write(epoch) {
    const bytes = this.#bytes();
    this.#child.stdin.write(bytes, (error) => {
      if (error) return; // the `error` of the stream reports it
      this.#wasm.sent(now(), epoch, bytes.length);
      this.#drive();
    });
  }

  #release() {
    for (const stream of this.#child.stdio) stream.destroy();
    this.#child = null;
  }

  #done({ call, result, error, failure }) {
    const outcome = this.#calls.get(call);
    this.#calls.delete(call);
    if (result) outcome.resolve(result);
    else outcome.reject(new Error(error ?? failure));
  }

  // Copies bytes to the link. The memory can move whenever WebAssembly allocates, so its address is never kept.
  #pass(data) {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    const at = this.#wasm.input(bytes.length);
    new Uint8Array(this.#wasm.memory.buffer, at, bytes.length).set(bytes);
  }

  // A copy of the output of the link.
  #bytes() {
    const { memory, output, output_len } = this.#wasm;
    return Buffer.from(new Uint8Array(memory.buffer, output(), output_len()));
  }

  #text() {
    return this.#bytes().toString();
  }
}

function deferred() {
  let resolve, reject;
  const promise = new Promise((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
}

function signal(child, name) {
  try {
    process.kill(-child.pid, name);
  } catch {
    // The group is gone.
  }
}
