// Moves paid requests over the requests and responses of node:http, which Express and Fastify use.
import { HoldEnded, type Lines, type Payment, type Reply, Sale, type Shop } from "./sale.js";
import { remember } from "./web.js";

type Headers = Record<string, string | string[] | number | undefined>;

/** The members of http.IncomingMessage that are used. */
export interface NodeRequest {
  method?: string | undefined;
  url?: string | undefined;
  headers: Record<string, string | string[] | undefined>;
  rawHeaders: string[];
  complete: boolean;
  destroy(error?: Error): unknown;
  push(chunk: unknown, encoding?: string): boolean;
}

/** The members of http.ServerResponse that are used. */
export interface NodeResponse {
  statusCode: number;
  statusMessage: string;
  readonly headersSent: boolean;
  readonly writableEnded: boolean;
  readonly destroyed: boolean;
  getHeaders(): Headers;
  setHeader(name: string, value: string | number | readonly string[]): unknown;
  removeHeader(name: string): void;
  writeHead(status: number, ...rest: never[]): unknown;
  write(chunk: unknown, ...rest: never[]): boolean;
  end(...rest: never[]): unknown;
  flushHeaders(): void;
  once(event: "close", listener: () => void): unknown;
  destroy(error?: Error): unknown;
}

type Callback = (error?: Error | null) => void;

/** Sends an answer in place of the handler's. */
export function send(res: NodeResponse, r: Reply): void {
  replaceHeaders(res, r.headers);
  res.statusCode = r.status;
  const end = res.end as (chunk?: Uint8Array) => unknown;
  if (r.body.length) end.call(res, r.body);
  else end.call(res);
}

function replaceHeaders(res: NodeResponse, lines: Lines, keep?: Headers): void {
  for (const name of Object.keys(keep ?? {})) res.removeHeader(name);
  const all = new Map<string, string[]>();
  for (const [name, value] of lines) all.set(name, [...(all.get(name) ?? []), value]);
  for (const [name, values] of all) {
    res.setHeader(name, values.length === 1 ? (values[0] as string) : values);
  }
}

const linesOf = (headers: Headers): Lines =>
  Object.entries(headers).flatMap(([name, v]) =>
    v === undefined
      ? []
      : [v].flat().map((one): [string, string] => [name.toLowerCase(), String(one)]),
  );

/**
 * Pays for a request. Returns the answer of one that is not paid; "gone" when its caller has gone;
 * otherwise the response is kept back from now on, and the handler may run. `others` are further
 * objects by which a handler knows the request.
 */
export async function open(
  shop: Shop,
  req: NodeRequest,
  res: NodeResponse,
  path: string,
  ...others: object[]
): Promise<Reply | "gone" | undefined> {
  const [before, ...query] = path.split("?");
  const headers: Lines = [];
  for (let i = 0; i + 1 < req.rawHeaders.length; i += 2) {
    const name = (req.rawHeaders[i] as string).toLowerCase();
    if (!isPseudo(name)) headers.push([name, req.rawHeaders[i + 1] as string]);
  }
  const at = { method: req.method ?? "GET", path: before ?? "/", query: query.join("?"), headers };
  const sale = new Sale(shop, at);
  let gone = res.destroyed;
  res.once("close", () => (gone = true));
  const refused = await sale.pay();
  if (refused) return refused;
  if (gone) {
    await sale.release();
    return "gone";
  }
  strip(req, sale.request.headers);
  remember(sale.payment as Payment, req, ...others);
  new Capture(sale, req, res);
  return undefined;
}

/** Reports whether HTTP/2 has this in place of a request line. */
const isPseudo = (name: string): boolean => name.startsWith(":");

/** Leaves the handler the headers that it may see. */
function strip(req: NodeRequest, kept: Lines): void {
  const names = new Set(kept.map(([n]) => n));
  for (const name of Object.keys(req.headers)) {
    if (!names.has(name) && !isPseudo(name)) delete req.headers[name];
  }
  for (const [name, value] of kept) if (name === "cookie") req.headers.cookie = value;
  req.rawHeaders.splice(0, req.rawHeaders.length, ...kept.flat());
}

const captured = [
  "writeHead",
  "write",
  "end",
  "flushHeaders",
  "headersSent",
  "writableEnded",
] as const;

/** Keeps back what a handler writes, until it is settled or streams. */
class Capture {
  readonly #sale: Sale;
  readonly #req: NodeRequest;
  readonly #res: NodeResponse;
  /** What others had put on the response, such as a compression. */
  readonly #own: [string, PropertyDescriptor | undefined][];
  #parts: Uint8Array[] = [];
  #size = 0;
  #begun = false;
  #ended = false;
  #streaming = false;
  /** Nothing that the handler does counts any more. */
  #over = false;
  #gone = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #answer: Reply | undefined;

  constructor(sale: Sale, req: NodeRequest, res: NodeResponse) {
    this.#sale = sale;
    this.#req = req;
    this.#res = res;
    this.#own = captured.map((n) => [n, Object.getOwnPropertyDescriptor(res, n)]);
    this.#bound();
    this.#capture();
    res.once("close", () => this.#left());
  }

  #set(name: string, d: PropertyDescriptor): void {
    Object.defineProperty(this.#res, name, { configurable: true, enumerable: true, ...d });
  }

  #capture(): void {
    const method = (f: unknown) => ({ value: f, writable: true });
    this.#set("writeHead", method((...a: [number, ...unknown[]]) => this.#writeHead(...a)));
    this.#set("write", method((...a: unknown[]) => this.#write(...a)));
    this.#set("end", method((...a: unknown[]) => this.#end(...a)));
    this.#set("flushHeaders", method(() => this.#flush()));
    this.#set("headersSent", { get: () => this.#begun });
    this.#set("writableEnded", { get: () => this.#ended });
  }

  /** Gives the response back as it was. */
  #restore(): void {
    for (const [name, d] of this.#own) {
      if (d) Object.defineProperty(this.#res, name, d);
      else delete (this.#res as unknown as Record<string, unknown>)[name];
    }
  }

  /** Refuses a body beyond its bound. */
  #bound(): void {
    const push = this.#req.push;
    const max = this.#sale.shop.maxBody;
    let size = 0;
    this.#req.push = (chunk, encoding) => {
      size += (chunk as { length?: number } | null)?.length ?? 0;
      if (size <= max || this.#over) return push.call(this.#req, chunk, encoding);
      this.#over = true;
      void this.#sale.tooLong().then((reply) => {
        this.#restore();
        replaceHeaders(this.#res, [], this.#res.getHeaders());
        send(this.#res, reply);
        // What the caller still sends is not read.
        setTimeout(
          () => this.#req.destroy(new RangeError(`the body is longer than ${max} bytes`)),
          50,
        );
      });
      return false;
    };
  }

  #writeHead(status: number, ...rest: unknown[]): NodeResponse {
    if (this.#begun) return this.#res;
    const res = this.#res;
    res.statusCode = status;
    if (typeof rest[0] === "string") res.statusMessage = rest.shift() as string;
    const given = rest[0];
    if (Array.isArray(given)) {
      const flat = given.flat() as string[];
      for (let i = 0; i + 1 < flat.length; i += 2)
        res.setHeader(flat[i] as string, flat[i + 1] as string);
    } else {
      for (const [name, v] of Object.entries((given ?? {}) as Headers)) {
        if (v !== undefined) res.setHeader(name, v);
      }
    }
    this.#begin();
    return res;
  }

  /** Notes status and headers, which cannot change from now on. */
  #begin(): Reply {
    this.#begun = true;
    const { statusCode: status } = this.#res;
    this.#answer ??= { status, headers: linesOf(this.#res.getHeaders()), body: new Uint8Array() };
    return this.#answer;
  }

  #flush(): void {
    if (this.#over || this.#streaming) return;
    if (this.#sale.streams(this.#begin().headers)) this.#stream();
  }

  #write(...args: unknown[]): boolean {
    const { chunk, done } = read(args);
    if (this.#over || this.#ended) {
      done?.();
      return false;
    }
    const a = this.#begin();
    if (chunk && !this.#streaming) {
      this.#parts.push(chunk);
      this.#size += chunk.length;
      if (this.#sale.streams(a.headers) || this.#size > this.#sale.shop.maxBuffer) this.#stream();
      if (done) queueMicrotask(done);
      return true;
    }
    return chunk ? this.#pass(chunk, done) : true;
  }

  #end(...args: unknown[]): NodeResponse {
    const { chunk, done } = read(args);
    if (this.#over || this.#ended) {
      done?.();
      return this.#res;
    }
    const a = this.#begin();
    if (this.#streaming) {
      if (chunk) this.#pass(chunk);
      this.#ended = true;
      void this.#endStream(a, done);
      return this.#res;
    }
    if (chunk) {
      this.#parts.push(chunk);
      this.#size += chunk.length;
    }
    this.#ended = true;
    void this.#decide(a, done);
    return this.#res;
  }

  async #decide(a: Reply, done: Callback | undefined): Promise<void> {
    clearTimeout(this.#timer);
    this.#over = true;
    a.body = Buffer.concat(this.#parts);
    this.#parts = [];
    const reply = await this.#sale.finish(a, this.#gone);
    this.#restore();
    if (!reply || this.#res.destroyed) {
      done?.();
      return;
    }
    if (!this.#sale.isHead && reply.status !== 204 && reply.status !== 304) {
      reply.headers = reply.headers.filter(
        ([n]) => n !== "content-length" && n !== "transfer-encoding",
      );
      reply.headers.push(["content-length", String(reply.body.length)]);
    }
    if (reply.status !== a.status) this.#res.statusMessage = "";
    replaceHeaders(this.#res, [], this.#res.getHeaders());
    if (done) this.#res.once("close", done as () => void);
    send(this.#res, reply);
  }

  /** Lets the answer leave part by part, on the strength of the hold. */
  #stream(): void {
    const res = this.#res;
    const a = this.#begin();
    if (this.#gone || this.#sale.left <= 0) return this.#drop();
    this.#streaming = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#cut(), this.#sale.left);
    this.#restore();
    replaceHeaders(res, this.#sale.streamHeaders(a), res.getHeaders());
    (res.writeHead as (status: number) => unknown).call(res, a.status);
    res.flushHeaders();
    this.#capture();
    const parts = this.#parts;
    this.#parts = [];
    this.#size = 0;
    for (const part of parts) this.#pass(part);
  }

  #original<K extends "write" | "end">(name: K): NodeResponse[K] {
    const own = this.#own.find(([n]) => n === name)?.[1]?.value as NodeResponse[K] | undefined;
    return own ?? (Object.getPrototypeOf(this.#res) as NodeResponse)[name];
  }

  #pass(chunk: Uint8Array, done?: Callback): boolean {
    if (this.#sale.left <= 0) this.#cut();
    if (this.#over) return false;
    this.#size += chunk.length;
    const write = this.#original("write") as (c: Uint8Array, d?: Callback) => boolean;
    return write.call(this.#res, chunk, done);
  }

  async #endStream(a: Reply, done: Callback | undefined): Promise<void> {
    clearTimeout(this.#timer);
    this.#over = true;
    await this.#sale.endStream(a, this.#size, true);
    this.#restore();
    (this.#res.end as (d?: Callback) => unknown).call(this.#res, done);
  }

  /** Cuts a stream whose hold ended: only a broken connection tells the client so. */
  #cut(): void {
    if (this.#over) return;
    this.#over = true;
    void this.#sale.endStream(this.#begin(), this.#size, this.#size > 0);
    this.#restore();
    this.#res.destroy(new HoldEnded());
  }

  /** Gives the hold back: nothing of the answer leaves. */
  #drop(): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#timer);
    void this.#sale.release();
    this.#restore();
    this.#res.destroy();
  }

  /** The caller has gone, or the handler broke the connection. */
  #left(): void {
    this.#gone = true;
    if (this.#over) return;
    if (this.#streaming) {
      this.#over = true;
      clearTimeout(this.#timer);
      const owed = this.#size > 0 || this.#sale.settlesGone;
      void this.#sale.endStream(this.#begin(), this.#size, owed);
      return;
    }
    if (!this.#sale.settlesGone || !this.#req.complete) return this.#drop();
    // What callers who left keep running is bounded by the hold.
    this.#timer = setTimeout(() => this.#drop(), this.#sale.left);
  }
}

/** Reads the arguments of write and end. */
function read(args: unknown[]): { chunk: Uint8Array | undefined; done: Callback | undefined } {
  const done = args.find((a) => typeof a === "function") as Callback | undefined;
  const [first, second] = args;
  if (first === undefined || first === null || typeof first === "function") {
    return { chunk: undefined, done };
  }
  if (typeof first === "string") {
    const encoding = typeof second === "string" ? (second as BufferEncoding) : "utf8";
    return { chunk: Buffer.from(first, encoding), done };
  }
  return { chunk: first as Uint8Array, done };
}
