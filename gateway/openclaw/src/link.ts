// The connection to the core: says hello, notices a restart of the core, forwards calls.
import registry from "./registry.json" with { type: "json" };
import type { Api } from "./host.js";
import { redact } from "./guard.js";
import { Core, Failure, updateNeeded, type CoreError } from "./core.js";

const helloTimeout = 10_000;
const seenFor = 1_000; // how long an answer of the core proves that it knows this plugin
const checkEvery = 15_000;
const longestPause = 15_000;

/** Link forwards calls to the core and keeps the core informed about this plugin. */
export class Link {
  readonly core: Core;
  readonly #api: Api;
  readonly #guards: { write: boolean; run: boolean };
  #instance: unknown; // of the core that knows this plugin; undefined: none does
  #seen = 0; // when the core had this instance last, in ms
  #mismatch = false;
  #refreshing: Promise<void> | undefined; // which concurrent calls share
  #timer: NodeJS.Timeout | undefined;
  #pause = 500;
  #stopped = false;
  #logged = "";

  constructor(api: Api, core: Core, guards: { write: boolean; run: boolean }) {
    this.#api = api;
    this.core = core;
    this.#guards = guards;
  }

  /** start says hello until the core answers, and again whenever the core was restarted. */
  start(): void {
    this.#stopped = false;
    this.#plan(0);
  }

  /** stop ends that. A plugin that was replaced must not say hello with its old configuration. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /**
   * call posts to a control path of a core that knows this plugin. It throws a Failure as Core.post
   * does, and on every call while plugin and core have different tools.
   */
  async call(path: string, body: object, timeout: number, signal?: AbortSignal) {
    await this.ready();
    try {
      return await this.core.post(path, body, timeout, signal);
    } catch (error) {
      if (error instanceof Failure && error.code === "core_unreachable") this.#instance = undefined;
      throw error;
    }
  }

  /** ready says hello if the core does not know this plugin. Only a full load says hello. */
  async ready(): Promise<void> {
    if (this.#api.registrationMode !== "full" || this.#stopped) return;
    if (this.#instance === undefined || Date.now() - this.#seen > seenFor) {
      this.#refreshing ??= this.#refresh().finally(() => (this.#refreshing = undefined));
      await this.#refreshing;
    }
    if (this.#mismatch) throw new Failure(updateNeeded);
  }

  async #refresh(): Promise<void> {
    const before = this.#instance;
    this.#instance = undefined;
    const health = await this.core.health(helloTimeout);
    const instance = health["instance"] ?? true;
    const updated = this.#mismatch && health["registry"] === registry.hash;
    if (instance !== before || updated) await this.#sayHello();
    this.#instance = instance;
    this.#seen = Date.now();
  }

  async #sayHello(): Promise<void> {
    let answer: Record<string, unknown>;
    try {
      answer = await this.core.post(
        "hello",
        {
          plugin: registry.plugin.id,
          pluginVersion: registry.plugin.version,
          host: "openclaw",
          hostVersion: this.#api.runtime?.version ?? "unknown",
          registry: registry.hash,
          guards: this.#guards,
          config: this.#api.pluginConfig ?? {}, // may hold a key: it is not kept
        },
        helloTimeout,
      );
    } catch (error) {
      if (!(error instanceof Failure) || error.code !== updateNeeded.code) throw error;
      this.#mismatch = true;
      this.#log(new Failure(updateNeeded).message);
      return;
    }
    this.#mismatch = false;
    const warnings = answer["warnings"];
    for (const warning of Array.isArray(warnings) ? warnings : []) this.#api.logger.warn(describe(warning));
  }

  #plan(pause: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => void this.#check(), pause);
    this.#timer.unref();
  }

  async #check(): Promise<void> {
    this.#seen = 0;
    try {
      await this.ready();
      this.#pause = 500;
      this.#logged = "";
      this.#plan(checkEvery);
    } catch (error) {
      const failure = error as Failure;
      this.#log(failure.message);
      this.#pause = Math.min(this.#pause * 2, longestPause);
      this.#plan(this.#pause);
    }
  }

  /** log writes a line once while nothing changes. */
  #log(line: string): void {
    if (line !== this.#logged && !this.#stopped) this.#api.logger.warn(line);
    this.#logged = line;
  }
}

function describe(warning: unknown): string {
  const text = typeof warning === "string" ? warning : (warning as CoreError | null)?.message;
  return redact(text ?? "The core sent a warning without a message.");
}
