import {
  codes,
  ConnectionError,
  errorOf,
  TimeoutError,
  TollError,
  ValidationError,
} from "./errors.js";
import { apiVersion, operations, type Operation } from "./generated.js";
import { convert, parse, stringify } from "./json.js";

/** The release of this package. */
export const release = "1.1.0";

/** Brand names on the wire. */
export interface Namespace {
  /** Prefix of schemes and reasons, "svc". */
  scheme: string;
  /** Prefix of headers, "Service". */
  header: string;
  /** Word in paths and `_meta` keys, "service". */
  word: string;
}

export const defaultNamespace: Namespace = { scheme: "svc", header: "Service", word: "service" };

/** A log entry. It never contains a key, an access token, or a body. */
export interface LogEntry {
  level: "debug" | "info" | "warn";
  message: string;
  method?: string;
  path?: string;
  status?: number;
  attempt?: number;
  waitMs?: number;
}

/** Settings of a client. Creating a client sends nothing. */
export interface TollOptions {
  /** API key with its prefix. Default: TOLL_API_KEY. `null` means no key. */
  apiKey?: string | null | undefined;
  /**
   * Address of the service, with or without /api/v1. Default: TOLL_URL, else http://127.0.0.1:8402.
   */
  url?: string;
  /** API version to request, for example "1.0". `null` uses the version of the API key. */
  version?: string | null;
  /** Timeout of one attempt in milliseconds, default 45,000. 0 means no timeout. */
  timeoutMs?: number;
  /** Most retries of a call that is safe to repeat, 0 to 3, default 3. */
  maxRetries?: number;
  /** Longest wait before a retry in milliseconds, including Retry-After, default 5,000. */
  maxRetryWaitMs?: number;
  /** Replaces the global fetch. */
  fetch?: typeof globalThis.fetch;
  /** Additional headers of every call. */
  headers?: Record<string, string>;
  /** Workspace of every call, required if the key is a session token. */
  workspace?: string;
  namespace?: Namespace;
  /** Receives log entries. Default: the console, from the level in TOLL_LOG on. */
  log?: (entry: LogEntry) => void;
}

/** Settings of one call. */
export interface CallOptions {
  /** Cancels the call, which then throws the reason. */
  signal?: AbortSignal;
  timeoutMs?: number;
  /**
   * 1 to 255 visible ASCII characters. For 24 hours, a repeat with the same key, even from another
   * process, returns the same response.
   */
  idempotencyKey?: string;
  /** Version that the record must have. Otherwise, the call throws a ConflictError. */
  ifMatch?: number;
  /** Additional headers; `null` removes a header. */
  headers?: Record<string, string | null>;
  version?: string | null;
  maxRetries?: number;
}

/** Query of a call, without undefined values. */
export type Query = Record<string, string | number | boolean | bigint | Date | undefined>;

/** A complete response. */
export interface Answer<T> {
  data: T;
  response: Response;
  /** The body as sent. */
  text: string;
  /** The body as parsed JSON, before credits and money are converted to bigints. */
  raw: unknown;
  /** Id of the call in the logs of the service. */
  requestId: string | undefined;
  /** API version that was applied, and its source: header, apiKey, or fallback. */
  version: string | undefined;
  versionResolvedFrom: string | undefined;
  /** Whether this is the stored response of an earlier call. */
  replayed: boolean;
}

/** A promise of the data of a response. `withResponse()` returns the complete response. */
export class TollPromise<T> extends Promise<T> {
  readonly #answer: Promise<Answer<T>>;
  constructor(answer: Promise<Answer<T>>) {
    super((resolve) => resolve(undefined as T));
    this.#answer = answer;
  }
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }
  /** The complete response: status, headers, request id, API version, and the body as sent. */
  withResponse(): Promise<Answer<T>> {
    return this.#answer;
  }
  #data(): Promise<T> {
    return this.#answer.then((a) => a.data);
  }
  override then<A = T, B = never>(
    ok?: ((value: T) => A | PromiseLike<A>) | null,
    bad?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#data().then(ok, bad);
  }
  override catch<B = never>(
    bad?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<T | B> {
    return this.#data().catch(bad);
  }
  override finally(end?: (() => void) | null): Promise<T> {
    return this.#data().finally(end);
  }
}

/**
 * When a call may be retried: "safe" always, because a retry does nothing twice; "refused" only
 * after a response which means that nothing was done; "never" only after 408, because nothing
 * arrived.
 */
export type Repeat = "safe" | "refused" | "never";

/** One call of the API. */
export interface Call {
  method: string;
  /** Path on the service, with escaped segments. */
  path: string;
  query?: Query | undefined;
  body?: unknown;
  /** A body that is sent unchanged, instead of `body`. */
  rawBody?: string | undefined;
  repeat: Repeat;
  /** Whether the call sends an Idempotency-Key, generated if the caller passes no key. */
  creates?: boolean;
  shape?: string | 0 | undefined;
}

const maxAnswer = 16 << 20;

/** One page of a list. */
export interface Page<T> {
  items: T[];
  /** Continues the list as `cursor`; undefined on the last page. */
  nextCursor: string | undefined;
  /** Total number of records. */
  total: number;
}

/** Page size, position, and order of a list. */
export interface ListOptions<Sort extends string = "created"> {
  /** Records per page, 1 to 100, default 100. */
  pageSize?: number;
  cursor?: string;
  /** Default: the first of these values. */
  sortBy?: Sort;
  /** Default: desc, newest first. */
  sortOrder?: "asc" | "desc";
}

/** A list, read page by page: `for await (const plan of toll.plans.list())`. */
export class List<T> implements AsyncIterable<T> {
  readonly #page: (cursor?: string) => Promise<Page<T>>;
  constructor(page: (cursor?: string) => Promise<Page<T>>) {
    this.#page = page;
  }
  /** Reads one page; without a cursor, the first page. */
  page(cursor?: string): Promise<Page<T>> {
    return this.#page(cursor);
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    const seen = new Set<string>();
    for (let cursor: string | undefined; ; ) {
      const page = await this.#page(cursor);
      yield* page.items;
      cursor = page.nextCursor;
      if (!cursor) return;
      if (seen.has(cursor)) {
        throw new TollError({
          code: codes.internal,
          message: "The service returned the same page of a list again.",
        });
      }
      seen.add(cursor);
    }
  }
  /** Reads all records, at most `limit`. */
  async all(limit = Infinity): Promise<T[]> {
    const out: T[] = [];
    for await (const item of this) {
      if (out.length >= limit) break;
      out.push(item);
    }
    return out;
  }
}

const env = (name: string): string | undefined =>
  (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name] ||
  undefined;

const levels = { debug: 0, info: 1, warn: 2 };

/** Writes a log entry to the console, if its level is at least TOLL_LOG. */
export function consoleLog(entry: LogEntry): void {
  const least = levels[env("TOLL_LOG") as keyof typeof levels] ?? levels.warn;
  if (levels[entry.level] >= least) console.error("toll", JSON.stringify(entry));
}

const deprecations = new Set<string>();

/** Logs a warning about a deprecated form, once per process. */
export function deprecated(message: string, log: (entry: LogEntry) => void): void {
  if (deprecations.has(message) || deprecations.size >= 100) return;
  deprecations.add(message);
  log({ level: "warn", message });
}

/** Sends calls, for the methods of Toll. */
export class Core {
  readonly namespace: Namespace;
  readonly base: string;
  readonly #o: TollOptions;
  readonly #key: string | undefined;

  constructor(o: TollOptions) {
    this.#o = o;
    this.namespace = o.namespace ?? defaultNamespace;
    this.#key =
      o.apiKey === null ? undefined : (o.apiKey ?? env("TOLL_API_KEY"))?.trim() || undefined;
    this.base = baseOf(o.url ?? env("TOLL_URL") ?? "http://127.0.0.1:8402");
  }

  get hasKey(): boolean {
    return this.#key !== undefined;
  }

  log(entry: LogEntry): void {
    (this.#o.log ?? consoleLog)(entry);
  }

  /** Logs a warning about a deprecated form, once per process. */
  deprecated(message: string): void {
    deprecated(message, (entry) => this.log(entry));
  }

  /** Sends an operation of the API. `path` has the parameters of its path, in order. */
  op<T>(
    id: keyof typeof operations,
    path: readonly string[],
    o: CallOptions | undefined,
    more: { query?: Query | undefined; body?: unknown; repeat?: Repeat } = {},
  ): TollPromise<T> {
    const [method, template, shape, , creates] = operations[id] as Operation;
    let i = 0;
    const repeat: Repeat =
      more.repeat ??
      (creates || method === "GET" || method === "PUT" || method === "PATCH"
        ? "safe"
        : method === "DELETE"
          ? "refused"
          : "never");
    return this.promise<T>(
      {
        method,
        path: (template[0] === "/" ? "" : "/api/v1/") +
          template.replace(/\{\}/g, () => encodeURIComponent(path[i++] ?? "")),
        query: more.query,
        body: more.body,
        repeat: o?.ifMatch && repeat === "safe" && method !== "GET" ? "refused" : repeat,
        creates: creates === 1,
        shape,
      },
      o,
    );
  }

  list<T>(
    id: keyof typeof operations,
    path: readonly string[],
    query: Query,
    o: CallOptions | undefined,
  ): List<T> {
    const member = (operations[id] as Operation)[3] as string;
    return new List<T>(async (cursor) => {
      const q: Query = { pageSize: 100, ...query };
      if (cursor) q.cursor = cursor;
      const body = await this.op<Record<string, unknown>>(id, path, o, { query: q });
      if (!Array.isArray(body[member])) {
        throw new TollError({
          code: codes.internal,
          message: "The service sent a list that cannot be read.",
        });
      }
      const next = body.nextCursor;
      return {
        items: body[member] as T[],
        nextCursor: typeof next === "string" && next ? next : undefined,
        total: Number(body.total),
      };
    });
  }

  promise<T>(call: Call, o: CallOptions | undefined): TollPromise<T> {
    return new TollPromise<T>(this.answer<T>(call, o));
  }

  /** Sends a call and returns its response. Throws a TollError for a response other than 2xx. */
  async answer<T>(call: Call, o: CallOptions = {}): Promise<Answer<T>> {
    const a = await this.send(call, o);
    if (!a.response.ok) {
      const noKey = a.response.status === 401 && !this.#key;
      throw errorOf(a.response.status, a.response.headers, a.raw, noKey ? needKey : undefined);
    }
    if (a.response.headers.get("deprecation") === "true") {
      this.deprecated(`The request ${call.method} ${call.path} uses a deprecated form.`);
    }
    return { ...a, data: convert(a.raw, call.shape) as T };
  }

  /** Sends a call, retries it, and returns its response, whatever the status. */
  async send(call: Call, o: CallOptions = {}): Promise<Answer<unknown>> {
    const headers = this.#headers(call, o);
    const limit = Math.min(Math.max(o.maxRetries ?? this.#o.maxRetries ?? 3, 0), 3);
    const body = call.rawBody ?? (call.body === undefined ? undefined : stringify(call.body));
    for (let attempt = 0; ; attempt++) {
      let a: Answer<unknown> | undefined;
      let failure: unknown;
      try {
        a = await this.#once(call, o, headers, body);
      } catch (e) {
        failure = e;
        if (!(e instanceof ConnectionError)) throw e;
      }
      const wait =
        attempt < limit ? this.#wait(call, attempt, a, headers.has("idempotency-key")) : undefined;
      if (wait === undefined) {
        if (a) return a;
        throw failure;
      }
      this.log({
        level: "info",
        message: "retrying a call",
        method: call.method,
        path: call.path,
        attempt: attempt + 1,
        status: a?.response.status ?? 0,
        waitMs: wait,
      });
      await sleep(wait, o.signal);
    }
  }

  /** Returns the wait before a retry in milliseconds; undefined means no retry. */
  #wait(
    call: Call,
    attempt: number,
    a: Answer<unknown> | undefined,
    keyed: boolean,
  ): number | undefined {
    const max = this.#o.maxRetryWaitMs ?? 5000;
    // Full jitter, so that concurrent clients of a recovered service do not call at the same
    // moment.
    const wait = Math.random() * Math.min(max, 200 * 4 ** attempt) + 20;
    const status = a?.response.status;
    if (status === 408) return wait;
    if (call.repeat === "never") return undefined;
    if (status === undefined) return call.repeat === "safe" ? wait : undefined;
    if (status === 502 || status === 504) return call.repeat === "safe" ? wait : undefined;
    if (status === 429 || status === 503) {
      const asked = Number(a?.response.headers.get("retry-after")) * 1000;
      if (!(asked > 0)) return wait;
      return asked > max ? undefined : asked;
    }
    const running = (a?.raw as { code?: string } | undefined)?.code === codes.idempotencyRunning;
    return status === 409 && keyed && running ? wait : undefined;
  }

  #headers(call: Call, o: CallOptions): Headers {
    const h = new Headers({ accept: "application/json", ...this.#o.headers });
    if (call.body !== undefined || call.rawBody !== undefined) {
      h.set("content-type", "application/json");
    }
    if (this.#key) h.set("authorization", `Bearer ${this.#key}`);
    if (this.#o.workspace) h.set("x-current-org-id", this.#o.workspace);
    const version = o.version === undefined ? this.#o.version : o.version;
    if (version !== null) h.set(`${this.namespace.header}-version`, version ?? apiVersion);
    if (call.creates || o.idempotencyKey) {
      h.set("idempotency-key", o.idempotencyKey ?? crypto.randomUUID());
    }
    if (o.ifMatch) h.set("if-match", String(o.ifMatch));
    // Browsers set their own user agent and reject this header.
    if (!("document" in globalThis)) h.set("user-agent", `toll-typescript/${release}`);
    for (const [name, value] of Object.entries(o.headers ?? {})) {
      if (value === null) h.delete(name);
      else h.set(name, value);
    }
    return h;
  }

  urlOf(call: Call): string {
    const q = new URLSearchParams();
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined) {
        q.set(name, value instanceof Date ? value.toISOString() : String(value));
      }
    }
    const text = q.toString();
    return this.base + call.path + (text && (call.path.includes("?") ? "&" : "?") + text);
  }

  async #once(
    call: Call,
    o: CallOptions,
    headers: Headers,
    body: string | undefined,
  ): Promise<Answer<unknown>> {
    o.signal?.throwIfAborted();
    const ms = o.timeoutMs ?? this.#o.timeoutMs ?? 45_000;
    const timer = ms > 0 ? AbortSignal.timeout(ms) : undefined;
    const signals = [timer, o.signal].filter((s) => s !== undefined);
    try {
      const init: RequestInit = { method: call.method, headers, redirect: "manual" };
      if (body !== undefined) init.body = body;
      if (signals.length) init.signal = AbortSignal.any(signals);
      const response = await this.fetch(this.urlOf(call), init);
      const text = await readText(response, maxAnswer);
      return {
        ...about(response, this.namespace),
        data: undefined,
        text,
        raw: readBody(response, text),
      };
    } catch (e) {
      if (o.signal?.aborted) throw o.signal.reason;
      if (e instanceof TollError) throw e;
      const parts = { code: codes.unavailable, retryable: true, cause: e };
      if (timer?.aborted) {
        throw new TimeoutError({
          ...parts,
          message: `The service did not respond within ${ms} ms.`,
        });
      }
      throw new ConnectionError({
        ...parts,
        message: `The service at ${this.base} did not respond.`,
      });
    }
  }

  fetch(url: string, init: RequestInit): Promise<Response> {
    return (this.#o.fetch ?? globalThis.fetch)(url, init);
  }

  /** Opens a stream of server-sent events and returns its response. */
  async open(call: Call, o: CallOptions): Promise<Response> {
    const headers = this.#headers(call, {
      ...o,
      headers: { accept: "text/event-stream", ...o.headers },
    });
    const init: RequestInit = { method: call.method, headers, redirect: "manual" };
    if (o.signal) init.signal = o.signal;
    let response: Response;
    try {
      response = await this.fetch(this.urlOf(call), init);
    } catch (e) {
      if (o.signal?.aborted) throw o.signal.reason;
      throw new ConnectionError({
        code: codes.unavailable,
        message: `The service at ${this.base} did not respond.`,
        cause: e,
      });
    }
    if (response.ok) return response;
    throw errorOf(
      response.status,
      response.headers,
      readBody(response, await readText(response, 1 << 20)),
    );
  }
}

const needKey =
  "An API key is required: pass apiKey, or set TOLL_API_KEY. Create a key on the page API keys.";

function about(response: Response, n: Namespace): Omit<Answer<unknown>, "data" | "text" | "raw"> {
  const h = (name: string) => response.headers.get(name) ?? undefined;
  return {
    response,
    requestId: h("x-correlation-id"),
    version: h(`${n.header}-version`),
    versionResolvedFrom: h(`${n.header}-version-resolved-from`),
    replayed: h("idempotency-replayed") === "true",
  };
}

function readBody(response: Response, text: string): unknown {
  if (!text) return undefined;
  try {
    return parse(text);
  } catch (cause) {
    const json = response.headers.get("content-type")?.includes("json") ?? false;
    if (!json || !response.ok) return undefined; // a page of a proxy, or a document
    throw new TollError({
      code: codes.internal,
      message: "The service sent a response that cannot be read.",
      status: 502,
      cause,
    });
  }
}

/** Reads a body of at most `max` bytes as text. */
export async function readText(from: Response | Request, max: number): Promise<string> {
  if (!from.body) return "";
  const reader = (from.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let out = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return out + decoder.decode();
    size += value.byteLength;
    if (size > max) {
      await reader.cancel();
      throw new ConnectionError({
        code: codes.unavailable,
        message: `The response is longer than ${max} bytes.`,
      });
    }
    out += decoder.decode(value, { stream: true });
  }
}

/** Waits. Throws the reason of the signal if it aborts first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

function baseOf(address: string): string {
  let u: URL | undefined;
  try {
    u = new URL(address.trim());
  } catch {
    // the message does not repeat the address, which may contain a password
  }
  if (!u || !/^https?:$/.test(u.protocol) || u.username || u.password || u.search || u.hash) {
    throw new ValidationError({
      code: codes.badRequest,
      message: "url must be an absolute http or https URL without user, query, or fragment.",
    });
  }
  return u.origin + u.pathname.replace(/\/+$/, "").replace(/\/api\/v1$/, "");
}
