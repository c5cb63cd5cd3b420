// The core as a child process of the host (startCore).
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { redact } from "./guard.js";
import type { Logger } from "./host.js";

const stopTimeout = 10_000;
const restartPause = 5_000;

// Variables of the host that the core gets. The others may be secrets of the host.
const passed = /^(PATH|HOME|TMPDIR|TZ|LANG|LC_.*|SSL_CERT_.*|(HTTPS?|NO|ALL)_PROXY|TOLL_.*|SystemRoot|USERPROFILE|TEMP)$/i;

/**
 * sharedToken returns the core token of this process for a core. The host registers the plugin more
 * than once, also for agent runs, and starts the services of one of these instances.
 */
function sharedToken(url: URL): string {
  const store = globalThis as { [tokens]?: Map<string, string> };
  const known = (store[tokens] ??= new Map());
  const token = known.get(url.origin) ?? randomBytes(32).toString("base64url");
  known.set(url.origin, token);
  return token;
}

const tokens = Symbol.for("@tollhq/openclaw core tokens");

/** CoreProcess runs the core while the host runs and restarts it when it ends by itself. */
export class CoreProcess {
  /** token is the core token, which the core gets through its environment. */
  readonly token: string;
  readonly #binary: string;
  readonly #listen: string;
  readonly #config: string;
  readonly #log: Logger;
  #child: ChildProcess | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = true;

  /** config is the configuration of the core, which it reads from its standard input. */
  constructor(binary: string, url: URL, config: object, log: Logger) {
    this.#config = JSON.stringify(config);
    this.#binary = binary;
    this.#listen = `${url.hostname}:${url.port || "80"}`;
    this.#log = log;
    this.token = sharedToken(url);
  }

  start(): void {
    this.#stopped = false;
    const child = spawn(this.#binary, ["gateway", "serve", "--listen", this.#listen, "--config", "-"], {
      env: { ...environment(), TOLL_GATEWAY_TOKEN: this.token },
      stdio: ["pipe", "pipe", "pipe"],
    });
    child.stdin.on("error", () => {}); // a core that ended before it read: #ended logs it
    child.stdin.end(this.#config);
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      if (stream) createInterface({ input: stream }).on("line", (line) => this.#log.info(`core: ${redact(line)}`));
    }
    child.on("error", (error) => this.#ended(child, error.message));
    child.on("exit", (code, signal) => this.#ended(child, `the process exited with ${signal ?? `code ${code}`}`));
  }

  #ended(child: ChildProcess, why: string): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    if (this.#stopped) return;
    this.#log.error(`The core is not running: ${why}. The plugin restarts it in ${restartPause / 1000} s.`);
    this.#timer = setTimeout(() => this.start(), restartPause);
    this.#timer.unref();
  }

  /** stop ends the core and waits for its end; after 10 s it kills it. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (!child) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    const kill = setTimeout(() => child.kill("SIGKILL"), stopTimeout);
    child.kill("SIGTERM");
    await gone;
    clearTimeout(kill);
  }
}

function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => passed.test(name)));
}
