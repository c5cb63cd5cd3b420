// Moves paid requests over Web Request and Response.
import {
  HoldEnded, Keeper, type Lines, type Payment, type Reply, Sale, type Shop, Tail,
} from "./sale.js";

const payments = new WeakMap<object, Payment>();

/** Stores the payment of a request under each object that represents it for the handler. */
export function remember(payment: Payment, ...requests: object[]): void {
  for (const r of requests) payments.set(r, payment);
}

/**
 * Returns the payment of the request that a paid handler received: a Request, or the request object
 * of Express or Fastify. Throws an Error for an unpaid request.
 */
export function paymentOf(request: object): Payment {
  const payment = payments.get(request);
  if (!payment) {
    throw new Error("this request has no payment: its handler is not wrapped in paid()");
  }
  return payment;
}

const gone = (): Response => new Response(null, { status: 499 });

function responseOf(r: Reply, like?: Response): Response {
  const body = r.status === 204 || r.status === 304 || r.body.length === 0 ? null : r.body;
  // Servers set the length of a known body, and some would send it twice.
  const lines = body ? r.headers.filter(([n]) => n !== "content-length") : r.headers;
  const init: ResponseInit = { status: r.status, headers: headersOf(lines) };
  if (like?.statusText) init.statusText = like.statusText;
  return new Response(body as BodyInit | null, init);
}

function headersOf(lines: Lines): Headers {
  const h = new Headers();
  for (const [name, value] of lines) h.append(name, value);
  return h;
}

/** The body of a request, and errors that occurred while it was read. */
interface Upload {
  stream: ReadableStream<Uint8Array> | null;
  tooLong: boolean;
  broken: boolean;
}

/** Passes on a body of at most max bytes. */
function bounded(body: ReadableStream<Uint8Array> | null, max: number): Upload {
  const out: Upload = { stream: null, tooLong: false, broken: false };
  if (!body) return out;
  const reader = body.getReader();
  let size = 0;
  out.stream = new ReadableStream<Uint8Array>(
    {
      async pull(c) {
        let part: ReadableStreamReadResult<Uint8Array>;
        try {
          part = await reader.read();
        } catch (e) {
          out.broken = true;
          throw e;
        }
        if (part.done) return c.close();
        size += part.value.byteLength;
        out.tooLong = size > max;
        if (out.tooLong) {
          reader.cancel().catch(() => undefined);
          throw new RangeError(`the body is longer than ${max} bytes`);
        }
        c.enqueue(part.value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
  return out;
}

/**
 * Creates the request for the handler, with the stripped headers, the bounded body, and its signal.
 */
export type Renew<R extends Request> = (request: R, init: RequestInit) => R;

const renew = <R extends Request>(request: R, init: RequestInit): R =>
  new Request(request, init) as R;

/**
 * Sells one response. `run` calls the handler with a request without payment headers. Errors of the
 * handler are thrown after its hold is released.
 */
export async function sell<R extends Request>(
  shop: Shop,
  request: R,
  run: (inner: R) => Response | Promise<Response>,
  make: Renew<R> = renew,
): Promise<Response> {
  const url = new URL(request.url);
  const sale = new Sale(shop, {
    method: request.method,
    path: url.pathname,
    query: url.search.slice(1),
    headers: [...request.headers],
  });
  // Some servers do not report a disconnect that happened before the signal was read.
  const { signal } = request;
  // A disconnect does not stop the verification, so that no hold is lost.
  const refused = await sale.pay();
  if (refused) return responseOf(refused);
  if (signal.aborted) {
    await sale.release();
    return gone();
  }
  return new Exchange(sale, request, make).answer(run);
}

/** One paid request and its response. */
class Exchange<R extends Request> {
  readonly #sale: Sale;
  readonly #request: R;
  readonly #upload: Upload;
  readonly #make: Renew<R>;
  /** Stops the work of the handler. */
  readonly #stop = new AbortController();
  readonly #left: Promise<"left">;
  readonly #keeper: Keeper;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #size = 0;

  constructor(sale: Sale, request: R, make: Renew<R>) {
    this.#sale = sale;
    this.#request = request;
    this.#make = make;
    this.#keeper = new Keeper(sale, () => !this.#gone);
    const body = request.bodyUsed ? null : (request.body as ReadableStream<Uint8Array> | null);
    this.#upload = bounded(body, sale.shop.maxBody);
    // Resolves when work for a disconnected caller must stop.
    this.#left = new Promise((resolve) => {
      const end = () => {
        this.#stop.abort(new DOMException("The caller has disconnected.", "AbortError"));
        resolve("left");
      };
      const leave = () => {
        if (!sale.settlesGone || this.#upload.broken || sale.left === Infinity) end();
        else this.#timer = setTimeout(end, sale.left);
      };
      if (request.signal.aborted) leave();
      else request.signal.addEventListener("abort", leave, { once: true });
    });
  }

  /** Stops the timers of the hold and of a disconnected caller. */
  #rest(): void {
    clearTimeout(this.#timer);
    this.#keeper.stop();
  }

  get #gone(): boolean {
    return this.#request.signal.aborted;
  }

  async answer(run: (inner: R) => Response | Promise<Response>): Promise<Response> {
    const { stream } = this.#upload;
    const init: RequestInit & { duplex?: "half" } = {
      headers: headersOf(this.#sale.request.headers),
      signal: this.#stop.signal,
    };
    if (stream) Object.assign(init, { body: stream, duplex: "half" });
    const inner = this.#make(this.#request, init);
    remember(this.#sale.payment as Payment, inner);
    const work = Promise.resolve().then(() => run(inner));
    try {
      const response = await Promise.race([work, this.#left]);
      if (response === "left") {
        work.then((r) => r.body?.cancel()).catch(() => undefined);
        return await this.#free(gone());
      }
      if (this.#upload.tooLong || (this.#gone && this.#upload.broken)) {
        response.body?.cancel().catch(() => undefined);
        return await this.#cutShort();
      }
      return await this.#deliver(response, linesOf(response.headers));
    } catch (e) {
      this.#rest();
      if (this.#upload.tooLong || this.#gone) return this.#cutShort();
      await this.#sale.release();
      throw e;
    }
  }

  /**
   * Returns the response of a request whose body was too long, or whose caller has disconnected.
   */
  async #cutShort(): Promise<Response> {
    this.#rest();
    if (this.#upload.tooLong) return responseOf(await this.#sale.tooLong());
    return this.#free(gone());
  }

  async #free(response: Response): Promise<Response> {
    this.#rest();
    await this.#sale.release();
    return response;
  }

  /** Keeps a response back until it is settled, or streams it. */
  async #deliver(response: Response, headers: Lines): Promise<Response> {
    const reader = response.body?.getReader();
    const parts: Uint8Array[] = [];
    const a: Reply = { status: response.status, headers, body: new Uint8Array() };
    const streams = this.#sale.streams(headers);
    // Headers alone are not a response to pay for.
    if (reader && streams && !this.#sale.isPriced) {
      return this.#stream(response, a, reader, parts);
    }
    if (reader) {
      for (;;) {
        const part = await Promise.race([reader.read(), this.#left]);
        if (part === "left") {
          reader.cancel().catch(() => undefined);
          return this.#free(gone());
        }
        if (part.done) break;
        parts.push(part.value);
        this.#size += part.value.byteLength;
        if ((streams && this.#size > 0) || this.#size > this.#sale.shop.maxBuffer) {
          return this.#stream(response, a, reader, parts);
        }
      }
    }
    this.#rest();
    a.body = joined(parts, this.#size);
    const reply = await this.#sale.finish(a, this.#gone);
    return reply ? responseOf(reply, response) : gone();
  }

  /** Streams a response, and settles it at its end if its price is not known before. */
  async #stream(
    response: Response,
    a: Reply,
    reader: ReadableStreamDefaultReader<Uint8Array>,
    parts: Uint8Array[],
  ): Promise<Response> {
    if (this.#gone) {
      reader.cancel().catch(() => undefined);
      return this.#free(gone());
    }
    const sale = this.#sale;
    const begun = await sale.begin(a);
    if (begun.refusal) {
      reader.cancel().catch(() => undefined);
      this.#rest();
      return responseOf(begun.refusal);
    }
    const tail = new Tail(begun.headers);
    this.#size = 0;
    let over = false;
    let ended: Promise<void> | undefined;
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
    const finish = (owed: boolean): Promise<void> => {
      over = true;
      this.#rest();
      ended ??= sale.endStream(a, this.#size, owed);
      const work = ended;
      sale.shop.tell(() => sale.shop.o.waitUntil?.(work));
      return work;
    };
    const stop = () => {
      this.#stop.abort(new DOMException("The caller has disconnected.", "AbortError"));
      reader.cancel().catch(() => undefined);
    };
    // The response is incomplete, which only a broken connection shows to the client.
    const cut = (why: unknown, owed = this.#size > 0) => {
      if (over) return;
      stop();
      const last = why instanceof HoldEnded ? tail.end : undefined;
      if (last) controller?.enqueue(last);
      // An error discards chunks that the client has not read.
      setTimeout(() => controller?.error(why), last ? 100 : 0);
      void finish(owed);
    };
    const leave = () =>
      cut(new Error("the caller has disconnected"), this.#size > 0 || sale.settlesGone);
    this.#keeper.deliver(() => cut(new HoldEnded()));
    // Servers report a disconnect by the signal, by a canceled body, or by both.
    this.#request.signal.addEventListener("abort", leave, { once: true });
    const body = new ReadableStream<Uint8Array>(
      {
        start: (c) => {
          controller = c;
        },
        pull: async (c) => {
          let value: Uint8Array | undefined;
          try {
            value = parts.shift() ?? (await reader.read()).value;
          } catch (e) {
            return cut(e);
          }
          if (over) return;
          if (value === undefined) {
            await finish(true);
            return c.close();
          }
          if (sale.left <= 0) return cut(new HoldEnded());
          this.#size += value.byteLength;
          tail.add(value);
          c.enqueue(value);
        },
        cancel: async () => {
          if (!over) stop();
          await finish(this.#size > 0 || sale.settlesGone);
        },
      },
      { highWaterMark: 0 },
    );
    const init: ResponseInit = {
      status: a.status,
      statusText: response.statusText,
      headers: headersOf(begun.headers),
    };
    return new Response(body, init);
  }
}

const linesOf = (h: Headers): Lines => [...h].map(([n, v]) => [n.toLowerCase(), v]);

function joined(parts: Uint8Array[], size: number): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const out = new Uint8Array(size);
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.byteLength;
  }
  return out;
}
