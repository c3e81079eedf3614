/** A server that is started with a command, such as `StdioServerParameters` of the TypeScript SDK. */
export interface CommandParameters {
  command: string;
  args?: readonly string[];
}

/** A server over HTTP. */
export interface UrlParameters {
  url: string | URL;
  /** Headers for every request. They go into `env`, because other users can see the arguments of a process. */
  headers?: Record<string, string> | Iterable<readonly [string, string]>;
}

/** The parameters of a guard: those of its server with another command. All other fields, such as `env` and `cwd`, are kept. */
export type Guarded<Parameters> = Omit<Parameters, "command" | "args" | "url" | (Parameters extends UrlParameters ? "headers" : never)> & {
  command: string;
  args: string[];
} & (Parameters extends UrlParameters ? { env?: Record<string, string> } : unknown);

/**
 * Puts `everlink guard` before a server: the connection to the guard stays open when the server dies. A server that is guarded already gets no second
 * guard, only the options.
 *
 * @param params the server: a `command` with its `args`, or a `url`
 * @param options options of the guard, for example `["--log", "json"]`; `everlink help guard` lists them
 * @returns parameters for `StdioClientTransport`
 * @throws if the program for this system is not installed; the text says what to do
 */
export function guarded<Parameters extends CommandParameters | UrlParameters>(
  params: Parameters,
  options?: readonly string[],
): Guarded<Parameters>;

/**
 * The path of the program `everlink` for this system. The environment variable `EVERLINK_PROGRAM` takes precedence.
 *
 * @throws if it is not installed; the text says what to do
 */
export function programPath(): string;
