// The entry @tollhq/toll/mcp.
import { type Budget, type BuyOptions, Buyer } from "./buy.js";
import { consoleLog, deprecated } from "./core.js";
import { shopOf } from "./paid.js";
import {
  type Amount, type Fault, inBounds, Keeper, type PaidOptions, type Payment, plain, type Reply,
  Sale, type Settled, type Shop, type Terms, whole,
} from "./sale.js";
import { remember } from "./web.js";
import * as x402 from "./x402.js";

export { Budget, hostOf, LimitReached, PaymentError } from "./buy.js";
export type {
  BuyOptions, Limits, PaymentRecord, PaymentState, TransferData, Unit, Wallet,
} from "./buy.js";
export { paymentOf } from "./paid.js";
export type { Amount, CallerGone, Payment } from "./sale.js";

const paymentKey = "x402/payment";
const receiptKey = "x402/payment-response";
const maxPayment = 64 << 10;
const maxNotices = 1000;

/** A finished call, for a function that prices it. */
export interface CallWork {
  readonly name: string;
  /** Logical address of the item, such as mcp://weather/tools/forecast. */
  readonly url: string;
  readonly args: unknown;
  readonly result: ItemResult;
  readonly payment: Payment;
}

/** Price of an item. */
export interface ItemPrice {
  /**
   * Credits per call, default 1; 0 is free. A function prices the result, capped at the held
   * credits.
   */
  credits?: Amount | ((work: CallWork) => Amount | Promise<Amount>);
  /** Credits to hold if credits is a function. Default: the maximum of the plan. */
  maxCredits?: Amount;
  /** Minimum credits to verify, default 1. */
  maxAmount?: Amount;
  /**
   * "propagate" reports a failed settlement as JSON-RPC error -32002; by default, it is in band.
   */
  onRedeemError?: "ignore" | "propagate";
  /**
   * The outputSchema of the registered tool. McpServer validates a result after its callback has
   * returned, so pass the schema here too: a result that does not match it is free.
   */
  outputSchema?: object;
  plan?: string;
  agent?: string;
}

/** Settings of a selling server. */
export interface SellOptions extends Omit<
  PaidOptions,
  | "credits"
  | "maxCredits"
  | "stream"
  | "maxBuffer"
  | "maxBody"
  | "tokenHeaders"
  | "publicUrl"
  | "expiredStatus"
  | "mimeType"
> {
  /** Server name in the logical addresses of its items, default mcp-server. */
  serverName?: string;
}

/** The members of a result that are used. */
export interface ItemResult {
  isError?: boolean | undefined;
  _meta?: Record<string, unknown> | undefined;
  [member: string]: unknown;
}

/** The members of RequestHandlerExtra that are used. */
interface Extra {
  signal: AbortSignal;
  _meta?: Record<string, unknown> | undefined;
  requestInfo?: { headers: Record<string, string | string[] | undefined> };
  sendNotification?: (n: { method: string; params?: Record<string, unknown> }) => Promise<void>;
}

type Handler<A extends unknown[], R extends ItemResult> = (...args: A) => R | Promise<R>;
type Kind = "tools" | "resources" | "prompts";

/** Puts prices on the items of one server of the official SDK. */
export interface McpSeller {
  /** Returns the callback of a tool with its price. */
  tool<A extends unknown[], R extends ItemResult>(
    name: string,
    price: ItemPrice,
    handler: Handler<A, R>,
  ): (...args: A) => Promise<R>;
  /** Returns the callback of a resource, whose name is its URI. */
  resource<A extends unknown[], R extends ItemResult>(
    uri: string,
    price: ItemPrice,
    handler: Handler<A, R>,
  ): (...args: A) => Promise<R>;
  /** Returns the callback of a prompt. */
  prompt<A extends unknown[], R extends ItemResult>(
    name: string,
    price: ItemPrice,
    handler: Handler<A, R>,
  ): (...args: A) => Promise<R>;
}

/**
 * Puts prices on tools, resources, and prompts of an McpServer of the official SDK.
 *
 *     const sell = seller({ plan, agent, serverName: "weather" });
 *     const forecast = async ({ city }) => ({ content: [{ type: "text", text: `${city}: sun` }] });
 *     server.registerTool("forecast", { inputSchema: { city: z.string() } },
 *       sell.tool("forecast", { credits: 3 }, forecast));
 *
 * The payment of a call is `params._meta["x402/payment"]`. It is verified with a hold, the callback
 * runs without seeing it, and its result is sent with the receipt in `_meta` after the settlement.
 * A call is free if its callback throws, if its result has isError, or if the SDK rejects the
 * result (see outputSchema). A refusal is in band: a result with isError and the PaymentRequired,
 * or JSON-RPC error -32003 for resources and prompts.
 *
 * Notifications that the callback sends with its `extra` wait for the settlement; progress without
 * a message is sent immediately. If the caller cancels, tools finish and are settled; resources and
 * prompts stop and are free. `callerGone` changes this.
 */
export function seller(options: SellOptions): McpSeller {
  const { serverName = "mcp-server", ...rest } = options;
  const of = (kind: Kind) => {
    return <A extends unknown[], R extends ItemResult>(
      name: string,
      p: ItemPrice,
      handler: Handler<A, R>,
    ) => {
      const { credits = 1, maxCredits, maxAmount = 1, onRedeemError, outputSchema, ...more } = p;
      const fixed = typeof credits === "function" ? {} : { credits };
      const shop = shopOf({ ...rest, ...more, ...fixed });
      const encoded = kind === "resources" ? name : encodeURIComponent(name);
      const item: Item = {
        kind,
        name,
        credits,
        maxCredits,
        maxAmount: whole(maxAmount),
        propagate: onRedeemError === "propagate",
        outputSchema,
        url: `mcp://${serverName}/${kind}/${encoded}`,
      };
      return async (...args: A): Promise<R> => {
        const call = new Call(shop, item, args);
        return (await call.run((inner) => handler(...(inner as A)))) as R;
      };
    };
  };
  return { tool: of("tools"), resource: of("resources"), prompt: of("prompts") };
}

interface Item {
  kind: Kind;
  name: string;
  url: string;
  credits: Amount | ((work: CallWork) => Amount | Promise<Amount>);
  maxCredits: Amount | undefined;
  maxAmount: bigint;
  propagate: boolean;
  outputSchema: object | undefined;
}

/** A zod schema, in any release that the SDK supports. */
interface Schema {
  safeParse(value: unknown): { success: boolean };
}

/** Reports whether the SDK accepts a result, because it validates results of callbacks. */
async function isSent(item: Item, result: ItemResult): Promise<boolean> {
  let types: Record<string, unknown>;
  try {
    types = await import("@modelcontextprotocol/sdk/types.js");
  } catch {
    return true; // a server of another library has other rules
  }
  const names = {
    tools: "CallToolResultSchema",
    resources: "ReadResourceResultSchema",
    prompts: "GetPromptResultSchema",
  };
  const shape = types[names[item.kind]] as Schema | undefined;
  if (shape && !shape.safeParse(result).success) return false;
  const { outputSchema } = item;
  if (!outputSchema) return true;
  const given = result.structuredContent as Record<string, unknown> | undefined;
  if (!given) return false;
  if ("safeParseAsync" in outputSchema) {
    const whole = outputSchema as { safeParseAsync: (v: unknown) => Promise<{ success: boolean }> };
    return (await whole.safeParseAsync(given)).success;
  }
  // A raw shape has a schema for each member.
  return Object.entries(outputSchema as Record<string, Schema>).every(
    ([name, schema]) => schema.safeParse(given[name]).success,
  );
}

/** An error that servers of the SDK send with this code and data. */
class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;
  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** One paid call. */
class Call extends Sale {
  readonly #item: Item;
  readonly #args: unknown[];
  readonly #extra: Extra;
  #problem = { error: "", message: "" };
  #result: ItemResult = {};

  constructor(shop: Shop, item: Item, args: unknown[]) {
    const extra = args.at(-1) as Extra;
    const sent = Object.entries(extra.requestInfo?.headers ?? {});
    const headers = sent.map(([n, v]): [string, string] => [
      n.toLowerCase(),
      [v ?? ""].flat().join(", "),
    ]);
    super(shop, { method: "POST", path: "/", query: "", headers });
    this.#item = item;
    this.#args = args;
    this.#extra = extra;
  }

  protected override check(): Fault | undefined {
    return undefined; // the server has its own limits
  }

  /** Reads the payment of the message, else the bearer token. */
  protected override take(): Fault | undefined {
    const given = this.#extra._meta?.[paymentKey];
    if (typeof given === "string" && given.length <= x402.maxToken) this.token = given;
    else if (x402.object(given)) {
      const text = JSON.stringify(given);
      if (text.length <= maxPayment) this.token = text;
    }
    const bearer = x402.bearer(this.all("authorization")[0] ?? "");
    if (!this.token && x402.isAccessToken(bearer)) {
      this.token = bearer;
      const log = this.shop.o.log ?? consoleLog;
      deprecated(
        "An MCP call sends an access token as its bearer token, which is deprecated: " +
          "send the access token in _meta.",
        log,
      );
    }
    return undefined;
  }

  protected override resource(): string {
    return this.#item.url;
  }

  protected override isForUs(): boolean {
    return true; // the service compares the logical address
  }

  protected override most(): bigint | undefined {
    const { credits, maxCredits, maxAmount } = this.#item;
    const given = typeof credits === "function" ? maxCredits : credits;
    if (given === undefined) return undefined;
    const most = whole(given);
    return most > maxAmount ? most : maxAmount;
  }

  override get settlesGone(): boolean {
    const rule = this.shop.o.callerGone ?? "byMethod";
    return rule === "byMethod" ? this.#item.kind === "tools" : rule === "settle";
  }

  protected override refuse(reason: string, f: Fault, failed?: x402.Json): Reply {
    const error = failed ? "settlement failed" : "payment required";
    return this.#say(reason ? `${error}: ${reason}` : error, f.message);
  }

  protected override error(f: Fault): Reply {
    const pending = f.code === "BCK.X402.0914";
    return this.#say(pending ? "settlement pending" : "plans unavailable", f.message);
  }

  #say(error: string, message: string): Reply {
    this.#problem = { error, message };
    return { status: 402, headers: [], body: new Uint8Array() };
  }

  protected override async amount(): Promise<bigint> {
    const terms = this.terms as Terms;
    const payment = this.payment as Payment;
    const { credits, name, url } = this.#item;
    if (typeof credits !== "function") return inBounds(terms, whole(credits));
    const args = this.#args.length > 1 ? this.#args[0] : undefined;
    const given = await credits({ name, url, args, result: this.#result, payment });
    const amount = inBounds(terms, whole(given));
    return amount < payment.held ? amount : payment.held;
  }

  /** Returns the refusal in band, or throws it as an error. */
  #refused(): ItemResult {
    const { error, message } = this.#problem;
    const settling = error.startsWith("settlement");
    if (settling && this.#item.propagate) {
      throw new RpcError(-32002, `Failed to redeem credits: ${plain(message)}`);
    }
    const empty = {
      x402Version: 2,
      resource: { url: this.#item.url },
      accepts: [],
      extensions: {},
    };
    const asks = { ...(this.required ?? empty), error: plain(error) };
    if (this.#item.kind !== "tools") {
      throw new RpcError(
        -32003,
        this.token ? "Payment required." : "Authorization required.",
        asks,
      );
    }
    return {
      isError: true,
      structuredContent: asks,
      content: [{ type: "text", text: JSON.stringify(asks) }],
    };
  }

  async run(handler: (args: unknown[]) => ItemResult | Promise<ItemResult>): Promise<ItemResult> {
    const free = this.#item.credits === 0 || this.#item.credits === 0n;
    if (free) {
      this.take();
    } else if (await this.pay()) return this.#refused();
    const { signal } = this.#extra;
    if (signal.aborted) {
      await this.release();
      signal.throwIfAborted();
    }
    const stop = new AbortController();
    const notices = new Notices(this.#extra);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const keeper = free ? undefined : new Keeper(this, () => !signal.aborted);
    const left = new Promise<"left">((resolve) => {
      const end = () => {
        stop.abort(signal.reason);
        resolve("left");
      };
      const leave = () => {
        if (!this.settlesGone || free) end();
        else timer = setTimeout(end, this.left);
      };
      signal.addEventListener("abort", leave, { once: true });
    });
    try {
      const work = Promise.resolve().then(() => handler(this.#inner(stop.signal, notices)));
      const result = await Promise.race([work, left]);
      if (result === "left") {
        work.catch(() => undefined);
        throw signal.reason;
      }
      this.#result = result;
    } catch (e) {
      notices.drop();
      await this.release();
      throw e;
    } finally {
      clearTimeout(timer);
      keeper?.stop();
    }
    return this.#finish(free, notices);
  }

  /** The arguments of the handler, without the payment. */
  #inner(signal: AbortSignal, notices: Notices): unknown[] {
    const { _meta, requestInfo } = this.#extra;
    const kept = { ..._meta };
    delete kept[paymentKey];
    const extra = { ...this.#extra, signal, sendNotification: notices.send };
    if (_meta) extra._meta = kept;
    if (requestInfo) {
      const names = new Set(this.request.headers.map(([n]) => n));
      const own = Object.entries(requestInfo.headers).filter(([n, v]) => {
        return names.has(n.toLowerCase()) && !(this.token && String(v).includes(this.token));
      });
      extra.requestInfo = { ...requestInfo, headers: Object.fromEntries(own) };
    }
    if (this.payment) remember(this.payment, extra);
    return [...this.#args.slice(0, -1), extra];
  }

  async #finish(free: boolean, notices: Notices): Promise<ItemResult> {
    const result = this.#result;
    const gone = this.#extra.signal.aborted;
    const sent = result?.isError !== true && (await isSent(this.#item, result));
    if (!sent || (gone && !this.settlesGone)) {
      notices.drop();
      await this.release();
      return result;
    }
    const meta = { ...result._meta };
    delete meta[receiptKey];
    let credits: x402.Json = { success: true, creditsRedeemed: "0" };
    let amount = 0n;
    try {
      if (!free) amount = await this.amount();
    } catch (e) {
      notices.drop();
      await this.release();
      this.shop.log("warn", `Computing the price of a result failed: ${String(e)} (${this.about})`);
      throw new RpcError(-32603, "An unexpected error occurred.");
    }
    if (amount === 0n) await this.release();
    else {
      const s: Settled = await this.settle(amount);
      if (!s.receipt.success) {
        notices.drop();
        if (s.known) await this.release();
        this.notSettled(s);
        return this.#refused();
      }
      meta[receiptKey] = s.raw;
      credits = {
        success: true,
        txHash: s.receipt.transaction,
        creditsRedeemed: String(s.receipt.creditsRedeemed ?? amount),
        remainingBalance: String(s.receipt.remainingBalance ?? 0n),
        planId: this.payment?.planId,
        subscriberAddress: this.payment?.payer,
      };
    }
    await notices.flush();
    const word = this.shop.toll.namespace.word;
    return { ...result, _meta: { ...meta, [`${word}/credits`]: credits } };
  }
}

type Notice = { method: string; params?: Record<string, unknown> };

/** Keeps back notifications of a paid call until its settlement. */
class Notices {
  readonly #out: ((n: Notice) => Promise<void>) | undefined;
  #kept: Notice[] | undefined = [];

  constructor(extra: Extra) {
    this.#out = extra.sendNotification;
  }

  readonly send = async (n: Notice): Promise<void> => {
    const numbers = n.method === "notifications/progress" && !n.params?.message;
    if (numbers) return this.#out?.(n);
    if (this.#kept && this.#kept.length >= maxNotices) {
      throw new RangeError(
        `a paid call can send at most ${maxNotices} notifications before its result`,
      );
    }
    this.#kept?.push(n);
  };

  drop(): void {
    this.#kept = undefined;
  }

  async flush(): Promise<void> {
    const kept = this.#kept ?? [];
    this.#kept = undefined;
    for (const n of kept) await this.#out?.(n);
  }
}

/** The members of a Client of the official SDK that pay. */
export interface McpLikeClient {
  callTool(
    params: { name: string; _meta?: Record<string, unknown> },
    ...rest: never[]
  ): Promise<unknown>;
  readResource(
    params: { uri: string; _meta?: Record<string, unknown> },
    ...rest: never[]
  ): Promise<unknown>;
  getPrompt(
    params: { name: string; _meta?: Record<string, unknown> },
    ...rest: never[]
  ): Promise<unknown>;
}

type Params = { name?: string; uri?: string; _meta?: Record<string, unknown> };
type Method = (params: Params, ...rest: unknown[]) => Promise<unknown>;
const methods: Record<string, string> = {
  callTool: "tools/call",
  readResource: "resources/read",
  getPrompt: "prompts/get",
};

/**
 * Returns an MCP client whose callTool, readResource, and getPrompt pay, once and within limits.
 * `url` is the address of the server, whose host must be in `limits.hosts`. Errors: PaymentError if
 * nothing could be paid, or if a paid call got no response.
 *
 *     const paying = payingClient(client, {
 *       url: "https://weather.example.com/mcp", toll: new Toll(),
 *       limits: { hosts: ["weather.example.com"], creditsPerCall: 5n, credits: 100n },
 *     });
 *     await paying.callTool({ name: "forecast", arguments: { city: "Oslo" } });
 */
export function payingClient<C extends McpLikeClient>(
  client: C,
  o: BuyOptions & { url: string },
): C & { readonly budget: Budget } {
  const buyer = new Buyer(o);
  return new Proxy(client as C & { readonly budget: Budget }, {
    get(target, name) {
      if (name === "budget") return buyer.budget;
      const value: unknown = Reflect.get(target, name, target);
      const method = methods[String(name)];
      if (typeof value !== "function") return value;
      const call = value.bind(target) as Method;
      return method
        ? (params: Params, ...rest: unknown[]) => pay(buyer, o.url, method, call, params, rest)
        : call;
    },
  });
}

/** Returns the PaymentRequired of an outcome, or undefined. */
function challengeIn(
  outcome: { result: unknown } | { error: unknown },
): x402.Challenge | undefined {
  if ("error" in outcome) {
    const e = outcome.error as { code?: unknown; data?: unknown } | undefined;
    return e?.code === -32003 ? x402.challengeOf(e.data) : undefined;
  }
  const r = x402.object(outcome.result);
  return r?.isError === true ? x402.challengeOf(r.structuredContent) : undefined;
}

async function pay(
  buyer: Buyer,
  url: string,
  method: string,
  call: Method,
  params: Params,
  rest: unknown[],
): Promise<unknown> {
  if (params._meta?.[paymentKey] !== undefined) return call(params, ...rest);
  const first = await call(params, ...rest).then(
    (result) => ({ result }),
    (error: unknown) => ({ error }),
  );
  const challenge = challengeIn(first);
  if (!challenge) {
    if ("error" in first) throw first.error;
    return first.result;
  }
  const path = `${method}/${params.name ?? params.uri ?? ""}`;
  const made = await buyer.pay({ method: "POST", url, path, challenge });
  const paid = { ...params, _meta: { ...params._meta, [paymentKey]: made.payload } };
  let result: x402.Json;
  try {
    result = x402.object(await call(paid, ...rest)) ?? {};
  } catch (error) {
    if (!challengeIn({ error })) throw buyer.lost(made, error);
    await buyer.finish(made, undefined, false);
    throw error;
  }
  const receipt = x402.object(x402.object(result._meta)?.[receiptKey]);
  await buyer.finish(made, receipt, result.isError !== true);
  return result;
}
