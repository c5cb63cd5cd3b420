// Moves paid requests over the requests and responses of node:http, which Express and Fastify use.
import {
  HoldEnded, Keeper, type Lines, type Payment, type Reply, Sale, type Shop, stripAnswer, Tail,
} from "./sale.js";
import { remember } from "./web.js";

type Headers = Record<string, string | string[] | number | undefined>;

/** The members of http.IncomingMessage that are used. */
export interface NodeRequest {
  method?: string | undefined;
  url?: string | undefined;
  headers: Record<string, string | string[] | undefined>;
  rawHeaders: string[];
  complete: boolean;
  readonly readableLength: number;
  destroy(error?: Error): unknown;
  push(chunk: unknown, encoding?: string): boolean;
  listenerCount(event: string): number;
  on(event: "newListener", listener: (event: string) => void): unknown;
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
  emit(event: "drain"): unknown;
  destroy(error?: Error): unknown;
}

type Callback = (error?: Error | null) => void;

/** Sends a response in place of the handler's response. */
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
 * Verifies the payment of a request. Returns the response of an unpaid request, "gone" if the
 * caller has disconnected, or otherwise the Capture that keeps the response back while the handler
 * runs. `others` are further objects that represent the request for the handler.
 */
export async function open(
  shop: Shop,
  req: NodeRequest,
  res: NodeResponse,
  path: string,
  ...others: object[]
): Promise<Reply | "gone" | Capture> {
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
  try {
    strip(req, sale.request.headers);
    remember(sale.payment as Payment, req, ...others);
    return new Capture(sale, req, res);
  } catch (e) {
    await sale.release();
    throw e;
  }
}

/** Reports whether a name is an HTTP/2 pseudo-header. */
const isPseudo = (name: string): boolean => name.startsWith(":");

/** Removes the headers that the handler must not see. */
function strip(req: NodeRequest, kept: Lines): void {
  const names = new Set(kept.map(([n]) => n));
  for (const name of Object.keys(req.headers)) {
    if (!names.has(name) && !isPseudo(name)) delete req.headers[name];
  }
  for (const [name, value] of kept) if (name === "cookie") req.headers.cookie = value;
  req.rawHeaders.splice(0, req.rawHeaders.length, ...kept.flat());
  if ("headersDistinct" in req) {
    // Node would read as many raw headers as the caller sent.
    const distinct: Record<string, string[]> = Object.create(null);
    for (const [name, value] of kept) (distinct[name] ??= []).push(value);
    Object.defineProperty(req, "headersDistinct", { configurable: true, value: distinct });
  }
}

/** Methods of an HTTP/2 stream that send data. */
const senders = new Set<string | symbol>([
  "additionalHeaders", "end", "pushStream", "respond", "respondWithFD", "respondWithFile",
  "sendTrailers", "write",
]);

/** Returns an HTTP/2 stream without the methods that could send an unpaid response. */
const guarded = (stream: object): object =>
  new Proxy(stream, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (!senders.has(name)) return value.bind(target);
      return () => {
        throw new Error(`a paid handler must not call ${String(name)} of an HTTP/2 stream`);
      };
    },
  });

/** The members of a response that are replaced for a paid handler, if they exist. */
const captured = [
  "writeHead", "write", "end", "flushHeaders", "addTrailers", "setTrailer", "headersSent",
  "writableEnded", "writeEarlyHints", "writeContinue", "writeProcessing", "writeInformation",
  "createPushResponse", "stream",
] as const;

/** Keeps back the response of a handler until it is settled or streamed. */
export class Capture {
  readonly #sale: Sale;
  readonly #req: NodeRequest;
  readonly #res: NodeResponse;
  /** Members that other middleware set on the response, such as compression. */
  readonly #own: [string, PropertyDescriptor | undefined][];
  #parts: Uint8Array[] = [];
  #size = 0;
  #begun = false;
  #ended = false;
  /** The stream is being started, which may include a settlement. */
  #opening = false;
  #streaming = false;
  /** Error that prevents a stream from starting. */
  #broken: Error | undefined;
  /** The callback of end, if end was called while the stream was being started. */
  #done: Callback | undefined;
  /** The handler can no longer change the response. */
  #over = false;
  #gone = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #answer: Reply | undefined;
  #trailers: Lines = [];
  #tail: Tail | undefined;
  readonly #keeper: Keeper;

  constructor(sale: Sale, req: NodeRequest, res: NodeResponse) {
    this.#sale = sale;
    this.#req = req;
    this.#res = res;
    this.#keeper = new Keeper(sale, () => !this.#gone);
    this.#own = captured
      .filter((n) => n in res)
      .map((n) => [n, Object.getOwnPropertyDescriptor(res, n)]);
    this.#bound();
    this.#capture();
    const { stream } = req as { stream?: object };
    if (stream) {
      Object.defineProperty(req, "stream", { configurable: true, value: guarded(stream) });
    }
    res.once("close", () => this.#left());
  }

  #capture(): void {
    const method = (f: unknown): PropertyDescriptor => ({ value: f, writable: true });
    const informs = method((...a: unknown[]) => {
      for (const f of a) if (typeof f === "function") queueMicrotask(() => f());
      return false;
    });
    const stream = (this.#res as { stream?: object }).stream;
    const members: Record<(typeof captured)[number], PropertyDescriptor> = {
      writeHead: method((...a: [number, ...unknown[]]) => this.#writeHead(...a)),
      write: method((...a: unknown[]) => this.#write(...a)),
      end: method((...a: unknown[]) => this.#end(...a)),
      flushHeaders: method(() => this.#flush()),
      addTrailers: method((given: Given) => this.#trailers.push(...trailerLines(given))),
      setTrailer: method((name: string, v: string) => this.#trailers.push([name.toLowerCase(), v])),
      headersSent: { get: () => this.#begun },
      writableEnded: { get: () => this.#ended },
      // Informational responses are part of the paid response, and are dropped.
      writeEarlyHints: informs,
      writeContinue: informs,
      writeProcessing: informs,
      writeInformation: informs,
      createPushResponse: method((_: unknown, done: (error: Error) => void) =>
        done(new Error("a paid handler must not use HTTP/2 server push")),
      ),
      stream: { value: stream && guarded(stream) },
    };
    for (const [name] of this.#own) {
      const member = members[name as (typeof captured)[number]];
      Object.defineProperty(this.#res, name, { configurable: true, enumerable: true, ...member });
    }
  }

  /** Restores the original members of the response. */
  #restore(): void {
    for (const [name, d] of this.#own) {
      if (d) Object.defineProperty(this.#res, name, d);
      else delete (this.#res as unknown as Record<string, unknown>)[name];
    }
  }

  /** Ignores the handler from now on. */
  #stop(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#keeper.stop();
  }

  /** Runs work in the background. An error ends the request, not the process. */
  #detach(work: () => Promise<void>): void {
    work().catch((e: unknown) => this.fail(e));
  }

  /**
   * Ends a request whose response cannot be sent: with a free 500 if nothing was sent, or otherwise
   * by cutting off the stream.
   */
  fail(e: unknown): void {
    const { shop } = this.#sale;
    shop.log("warn", `A response could not be sent: ${String(e)} (${this.#sale.about})`);
    if (this.#streaming || this.#opening) {
      return this.#cut(new Error("the response could not be sent"));
    }
    this.#stop();
    this.#answerInPlace(this.#sale.failed()).catch(() => this.#res.destroy());
  }

  /** Sends a response in place of the handler's response. */
  async #answerInPlace(made: Promise<Reply>): Promise<void> {
    const reply = await made;
    this.#restore();
    if (this.#res.destroyed) return;
    if (this.#res.headersSent) {
      this.#res.destroy();
      return;
    }
    this.#res.statusMessage = "";
    replaceHeaders(this.#res, [], this.#res.getHeaders());
    send(this.#res, reply);
  }

  /** Rejects a request body longer than maxBody. */
  #bound(): void {
    const push = this.#req.push;
    const max = this.#sale.shop.maxBody;
    let size = this.#req.readableLength; // received during the verification
    this.#req.push = (chunk, encoding) => {
      size += (chunk as { length?: number } | null)?.length ?? 0;
      if (size <= max || this.#over) return push.call(this.#req, chunk, encoding);
      const why = new RangeError(`the body is longer than ${max} bytes`);
      if (this.#streaming || this.#opening) {
        this.#cut(why);
        return false;
      }
      this.#stop();
      this.#detach(async () => {
        await this.#answerInPlace(this.#sale.tooLong());
        // The rest of the body is not read.
        setTimeout(() => this.#req.destroy(why), 50);
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

  /** Records status and headers, which are final from now on. */
  #begin(): Reply {
    this.#begun = true;
    const { statusCode: status } = this.#res;
    this.#answer ??= { status, headers: linesOf(this.#res.getHeaders()), body: new Uint8Array() };
    return this.#answer;
  }

  #flush(): void {
    if (this.#over || this.#streaming || this.#opening) return;
    // Headers alone are not a response to pay for.
    if (this.#sale.streams(this.#begin().headers) && !this.#sale.isPriced) this.#open();
  }

  #write(...args: unknown[]): boolean {
    const { chunk, done, bad } = read(args);
    if (this.#over || this.#ended) {
      done?.();
      return false;
    }
    if (bad) {
      this.fail(bad);
      return false;
    }
    const a = this.#begin();
    if (chunk && !this.#streaming) {
      this.#parts.push(chunk);
      this.#size += chunk.length;
      const streams = this.#sale.streams(a.headers) && this.#size > 0;
      if (!this.#opening && (streams || this.#size > this.#sale.shop.maxBuffer)) this.#open();
      if (done) queueMicrotask(done);
      return !this.#opening || this.#size < maxAhead;
    }
    return chunk ? this.#pass(chunk, done) : true;
  }

  #end(...args: unknown[]): NodeResponse {
    const { chunk, done, bad } = read(args);
    if (this.#over || this.#ended) {
      done?.();
      return this.#res;
    }
    if (bad) {
      this.fail(bad);
      return this.#res;
    }
    const a = this.#begin();
    if (this.#streaming) {
      if (chunk) this.#pass(chunk);
      this.#ended = true;
      if (!this.#over) this.#detach(() => this.#endStream(a, done));
      return this.#res;
    }
    if (chunk) {
      this.#parts.push(chunk);
      this.#size += chunk.length;
    }
    this.#ended = true;
    if (this.#opening) this.#done = done;
    else this.#detach(() => this.#decide(a, done));
    return this.#res;
  }

  async #decide(a: Reply, done: Callback | undefined): Promise<void> {
    this.#stop();
    a.body = Buffer.concat(this.#parts);
    this.#parts = [];
    const reply = await this.#sale.finish(a, this.#gone);
    this.#restore();
    if (!reply || this.#res.destroyed) {
      done?.();
      return;
    }
    const handlers = reply.status === a.status;
    if (!handlers) this.#res.statusMessage = "";
    if (!this.#sale.isHead && reply.status !== 204 && reply.status !== 304) {
      reply.headers = reply.headers.filter(
        ([n]) => n !== "content-length" && n !== "transfer-encoding",
      );
      reply.headers.push(["content-length", String(reply.body.length)]);
    }
    this.#frame(reply, handlers);
    replaceHeaders(this.#res, [], this.#res.getHeaders());
    if (done) this.#res.once("close", done as () => void);
    send(this.#res, reply);
  }

  /** Frames a response so that it can have trailers, and sets them if it is complete. */
  #frame(reply: Reply, handlers: boolean, whole = true): void {
    const announced = reply.headers.some(([n]) => n === "trailer");
    const chunked = (this.#res as { useChunkedEncodingByDefault?: boolean })
      .useChunkedEncodingByDefault;
    const bare = this.#sale.isHead || reply.status === 204 || reply.status === 304;
    if (!handlers || bare || chunked === false) {
      reply.headers = reply.headers.filter(([n]) => n !== "trailer");
      return;
    }
    if (announced) reply.headers = reply.headers.filter(([n]) => n !== "content-length");
    if (whole) this.#putTrailers();
  }

  #putTrailers(): void {
    const add = (this.#res as { addTrailers?: (given: Lines) => void }).addTrailers;
    const kept = stripAnswer(this.#trailers);
    this.#trailers = [];
    if (kept.length) add?.call(this.#res, Object.fromEntries(kept) as never);
  }

  /** Starts to stream the response. */
  #open(): void {
    if (this.#gone || this.#sale.left <= 0) return this.#drop();
    this.#opening = true;
    this.#detach(() => this.#stream());
  }

  async #stream(): Promise<void> {
    const res = this.#res;
    const a = this.#begin();
    const { headers, refusal } = await this.#sale.begin(a);
    this.#opening = false;
    if (this.#over) return;
    if (refusal) {
      this.#stop();
      return this.#answerInPlace(Promise.resolve(refusal));
    }
    this.#streaming = true;
    const waits = this.#size >= maxAhead;
    const parts = this.#parts;
    this.#parts = [];
    this.#size = 0;
    if (this.#gone) return this.#settleStream(this.#sale.settlesGone);
    if (this.#broken) return this.#cut(this.#broken);
    const begun: Reply = { ...a, headers };
    this.#frame(begun, true, false);
    this.#tail = new Tail(begun.headers);
    this.#restore();
    replaceHeaders(res, begun.headers, res.getHeaders());
    (res.writeHead as (status: number) => unknown).call(res, a.status);
    res.flushHeaders();
    this.#capture();
    this.#keeper.deliver(() => this.#cut());
    let flows = true;
    for (const part of parts) flows = this.#pass(part);
    if (this.#ended && !this.#over) return this.#endStream(a, this.#done);
    if (waits && flows && !this.#over) res.emit("drain");
  }

  #original<K extends "write" | "end">(name: K): NodeResponse[K] {
    const own = this.#own.find(([n]) => n === name)?.[1]?.value as NodeResponse[K] | undefined;
    return own ?? (Object.getPrototypeOf(this.#res) as NodeResponse)[name];
  }

  #pass(chunk: Uint8Array, done?: Callback): boolean {
    if (this.#sale.left <= 0) this.#cut();
    if (this.#over) return false;
    this.#size += chunk.length;
    this.#tail?.add(chunk);
    const write = this.#original("write") as (c: Uint8Array, d?: Callback) => boolean;
    return write.call(this.#res, chunk, done);
  }

  async #endStream(a: Reply, done: Callback | undefined): Promise<void> {
    this.#stop();
    await this.#sale.endStream(a, this.#size, true);
    this.#restore();
    this.#putTrailers();
    (this.#res.end as (d?: Callback) => unknown).call(this.#res, done);
  }

  /**
   * Cuts off a stream by breaking the connection, after an error event if the hold has ended.
   */
  #cut(why: Error = new HoldEnded()): void {
    if (this.#opening) {
      this.#broken ??= why;
      return;
    }
    if (!this.#over) this.#settleStream(this.#size > 0);
    this.#restore();
    const last = why instanceof HoldEnded && !stalls(this.#res) ? this.#tail?.end : undefined;
    if (!last) {
      this.#res.destroy(why);
      return;
    }
    const destroy = () => void this.#res.destroy(why);
    (this.#res.write as (c: Uint8Array, d: Callback) => unknown)(last, destroy);
    setTimeout(destroy, 1000);
  }

  #settleStream(owed: boolean): void {
    this.#stop();
    this.#detach(() => this.#sale.endStream(this.#begin(), this.#size, owed));
  }

  /** Releases the hold without sending a response. */
  #drop(): void {
    if (this.#over) return;
    this.#stop();
    this.#detach(() => this.#sale.release());
    this.#restore();
    this.#res.destroy();
  }

  /** Handles a closed connection, by the caller or by the handler. */
  #left(): void {
    this.#gone = true;
    if (this.#over || this.#opening) return;
    if (this.#streaming) {
      return this.#settleStream(this.#size > 0 || this.#sale.settlesGone);
    }
    if (!this.#sale.settlesGone) return this.#drop();
    const req = this.#req;
    if (!req.complete) {
      // A handler that reads the body sees its error, and responses to partial requests are free.
      const reads = ["data", "readable"];
      if (reads.some((n) => req.listenerCount(n) > 0)) return this.#drop();
      req.on("newListener", (n) => reads.includes(n) && this.#drop());
    }
    // Work for disconnected callers may run until the hold ends.
    this.#timer = setTimeout(() => this.#drop(), this.#sale.left);
  }
}

/** Bytes that a handler may write ahead while its stream is being started. */
const maxAhead = 1 << 16;

/** Reports whether the client has stopped reading the response. */
const stalls = (res: NodeResponse): boolean =>
  (res as { writableNeedDrain?: boolean }).writableNeedDrain === true;

type Given = Headers | Lines;

const trailerLines = (given: Given): Lines =>
  (Array.isArray(given) ? given : Object.entries(given)).flatMap(([name, v]) =>
    v === undefined ? [] : [[name.toLowerCase(), String(v)] as [string, string]],
  );

/** Reads the arguments of write and end. `bad` is the error of an invalid chunk. */
function read(args: unknown[]): {
  chunk: Uint8Array | undefined;
  done: Callback | undefined;
  bad?: TypeError;
} {
  const done = args.find((a) => typeof a === "function") as Callback | undefined;
  const [first, second] = args;
  if (first === undefined || first === null || typeof first === "function") {
    return { chunk: undefined, done };
  }
  if (typeof first === "string") {
    const encoding = typeof second === "string" ? (second as BufferEncoding) : "utf8";
    if (!Buffer.isEncoding(encoding)) {
      return { chunk: undefined, done, bad: new TypeError(`unknown encoding: ${encoding}`) };
    }
    return { chunk: Buffer.from(first, encoding), done };
  }
  if (first instanceof Uint8Array) return { chunk: first, done };
  const bad = new TypeError(`a chunk must be a string or a Uint8Array; got ${typeof first}`);
  return { chunk: undefined, done, bad };
}
