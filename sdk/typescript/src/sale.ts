// The seller's side of a paid request, for every transport: verify with a hold, settle, release. It
// follows the same rules as the Go package paid. web.ts and node.ts move the bytes.
import { challengeError } from "./challenge.js";
import { toBase64, trimEnd } from "./base64.js";
import type { Toll, Verdict } from "./client.js";
import { consoleLog, sleep, type LogEntry } from "./core.js";
import { codes, TollError } from "./errors.js";
import type * as g from "./generated.js";
import * as x402 from "./x402.js";

/** Credits of a price: a bigint, or a whole number that a JavaScript number holds exactly. */
export type Amount = bigint | number;

/** Whether to charge a caller who disconnects before the response. */
export type CallerGone = "byMethod" | "settle" | "release";

/** A request, for functions that price it. */
export interface Asked {
  readonly method: string;
  /** Path as sent, percent-encoded. */
  readonly path: string;
  /** Query without "?". */
  readonly query: string;
  /** Headers without payments and access tokens. */
  readonly headers: Headers;
}

/** A request and the response of its handler, for functions that price it. */
export interface Work extends Asked {
  readonly status: number;
  readonly answer: Headers;
  /** The complete response body; undefined if it was streamed. */
  readonly body: Uint8Array | undefined;
  /** Size of the response body in bytes. */
  readonly size: number;
  readonly payment: Payment;
}

/** The payment for a request, as its handler sees it, without the access token. */
export interface Payment {
  readonly payer: string;
  readonly planId: string;
  readonly agentId: string | undefined;
  readonly agentRequestId: string;
  /** The most that the request can cost, in credits. */
  readonly held: bigint;
}

/** A delivered but unsettled stream. */
export interface Unsettled {
  readonly agentRequestId: string;
  readonly planId: string;
  readonly payer: string;
  readonly credits: bigint;
  /** Delivered bytes. */
  readonly size: number;
  readonly attempts: number;
  /** The errorReason of the last attempt. */
  readonly reason: string;
  /** Whether retries have ended: the settlement was refused, or it failed for 24 hours. */
  readonly final: boolean;
}

/** Price of a request. */
export interface Price {
  /**
   * Credits per request, default 1. A function prices the response; its result is capped at the
   * held credits.
   */
  credits?: Amount | ((work: Work) => Amount | Promise<Amount>);
  /** Credits to hold if credits is a function. Default: the maximum of the plan. */
  maxCredits?: Amount | ((request: Asked) => Amount);
  /** Streams every response. By default, only event streams and long responses are streamed. */
  stream?: boolean;
  description?: string;
  mimeType?: string;
}

/** Options of a paid handler. */
export interface PaidOptions extends Price {
  /** Plan whose credits pay. */
  plan: string;
  /** Agent that serves the requests. */
  agent?: string;
  /**
   * Client with an API key of the plan's owner; without a key, a TypeError is thrown. Default: a
   * client with TOLL_API_KEY and TOLL_URL.
   */
  toll?: Toll;
  /**
   * Absolute public address of this server, such as "https://agent.example.com". It is never taken
   * from a request.
   */
  publicUrl?: string;
  /**
   * Duration of a hold in seconds, 1 to 900, default 60. It is renewed at half of its duration
   * while the caller waits, for at most 24 hours.
   */
  holdSecs?: number;
  /** Most bytes of a response kept in memory until its settlement, default 8 MiB. */
  maxBuffer?: number;
  /** Most bytes of a request body, default 10 MiB. */
  maxBody?: number;
  /** Timeout of one call to the service in milliseconds, default 30,000. */
  timeoutMs?: number;
  /** Status for an expired or revoked access token, default 402. */
  expiredStatus?: 401 | 402;
  /** Headers that may carry the access token, default payment-signature. */
  tokenHeaders?: readonly string[];
  /**
   * If the caller disconnects, "settle" finishes the work and settles a 2xx response; "release"
   * stops the work and charges nothing. Default "byMethod": "release" for GET, HEAD, and OPTIONS,
   * "settle" for other methods.
   */
  callerGone?: CallerGone;
  /** Called after each settlement, whatever its outcome. */
  onSettled?: (receipt: g.SettleResponse) => void;
  /** Called for delivered but unsettled streams. */
  onUnsettled?: (stream: Unsettled) => void;
  /** Keeps a Worker alive for work after the response: `ctx.waitUntil`. */
  waitUntil?: (work: Promise<unknown>) => void;
  /** Receives log entries about problems, never with an access token. Default: the console. */
  log?: (entry: LogEntry) => void;
}

export type Lines = [name: string, value: string][];

/** A response: an error in place of the handler's response, or the settled response. */
export interface Reply {
  status: number;
  headers: Lines;
  body: Uint8Array;
}

/** A request as the server read it. Header names are in lower case. */
export interface Incoming {
  method: string;
  path: string;
  query: string;
  headers: Lines;
}

/** An error response of the middleware. */
export interface Fault {
  status: number;
  code: string;
  message: string;
  category?: string;
  hint?: string;
  retryable?: boolean;
  retryAfter?: number | undefined;
  params?: Record<string, unknown>;
}

/** The response was cut off because its hold has expired. */
export class HoldEnded extends Error {
  constructor() {
    super("the response was cut off because its hold has expired");
    this.name = "HoldEnded";
  }
}

const maxHoldSecs = 900;
/** Longest time from the start of a hold for which the service renews it. */
const maxHoldLifeMs = 86_400_000;
/** Shortest pause between two attempts to renew a hold. */
const renewPauseMs = 1000;
const tries = 3;
const maxUrl = 8 << 10;
const maxHeaders = 16 << 10;
const maxLines = 200;
const maxRequired = 6 << 10;
const maxText = 300;
const termsLifeMs = 300_000;
const maxTerms = 1000;
const pending = "settlement_pending";
const unavailable = "The payment service cannot be reached. No credits were burned.";
const otherToken =
  "Create an access token for this resource, or without a resource.";

const paymentHeaders = new Set([
  "payment-signature", "payment-required", "payment-response", "x-payment", "x-payment-response",
  "settlement-overrides", "extension-responses",
]);
/** Headers that override path or method, and conditions, because a 304 would be free. */
const otherHeaders = new Set([
  "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url",
  "x-original-uri", "upgrade", "http2-settings", "if-none-match", "if-modified-since",
]);
const cacheHeaders = new Set(["surrogate-control", "edge-control", "x-accel-expires"]);
/** Reasons that mean that the payer needs more credits or a higher limit. */
const shortfalls = new Set([
  "insufficient_funds", "redemption_limit_reached", "order_limit_reached", "plan_expired",
  "delegation_exhausted", "delegation_insufficient", "delegation_expired", "delegation_revoked",
  "delegation_not_found",
]);
/** What the payer can do about a limit of the access token, by error code. */
const betterToken: Record<string, string | undefined> = {
  "BCK.X402.0901": "Create an access token with a higher redemptionLimit",
  "BCK.X402.0902": "Create an access token with a higher orderLimit",
};
const identifierInfo = { required: false };
const extensions = {
  [x402.identifier]: {
    info: identifierInfo,
    schema: {
      type: "object",
      properties: {
        required: { type: "boolean" },
        id: { type: "string", minLength: 16, maxLength: 128, pattern: "^[a-zA-Z0-9_-]+$" },
      },
      required: ["required"],
    },
  },
};

/** Terms of a plan that a payment request needs. */
export interface Terms {
  planId: string;
  scheme: string;
  network: string;
  payTo: string;
  least: bigint;
  most: bigint;
  isTime: boolean;
  /** Address of the API. */
  service: string;
  /** Address where a wallet can buy the plan; empty if it cannot. */
  orderUrl: string;
}

export const inBounds = (t: Terms, credits: bigint): bigint => {
  if (credits === 0n || t.most === 0n || t.isTime) return credits;
  return credits < t.least ? t.least : credits > t.most ? t.most : credits;
};

/** The page of the service that sells the plan, or empty. */
const pageOf = ({ service, planId }: Terms): string =>
  service.endsWith("/api/v1") ? `${service.slice(0, -"/api/v1".length)}/p/${planId}` : "";

/** Cached terms of plans, by client. */
const known = new WeakMap<Toll, Map<string, { terms: Terms; until: number }>>();

/** Reads the terms of a plan, or returns cached terms while the service is unavailable. */
export async function termsOf(toll: Toll, planId: string, timeoutMs: number): Promise<Terms> {
  let plans = known.get(toll);
  if (!plans) known.set(toll, (plans = new Map()));
  const old = plans.get(planId);
  if (old && performance.now() < old.until) return old.terms;
  try {
    const o = { timeoutMs, maxRetries: 0 };
    const [plan, info] = await Promise.all([toll.plans.get(planId, o), toll.meta.info(o)]);
    const terms = makeTerms(plan, info, toll);
    if (plans.size >= maxTerms) plans.clear();
    plans.set(planId, { terms, until: performance.now() + termsLifeMs });
    return terms;
  } catch (e) {
    if (old && e instanceof TollError && e.status !== 404) return old.terms;
    throw e;
  }
}

/** Clears the cached terms of a client, for tests. */
export const forgetTerms = (toll: Toll): boolean => known.delete(toll);

function makeTerms(plan: g.Plan, info: g.Info, toll: Toll): Terms {
  const { price, credits } = plan.registry;
  const prefix = toll.namespace.scheme;
  let { network } = info;
  if (price.isCrypto === false) network = `stripe:${info.environment}`;
  else if (network.startsWith("stripe")) {
    network = info.environment === "live" ? "eip155:8453" : "eip155:84532";
  }
  const service = trimEnd(info.apiBase, "/");
  const sold =
    price.isCrypto !== false &&
    price.receivers.length === 1 &&
    ["USDC", "EURC"].includes(price.currency ?? "") &&
    plan.isListed &&
    !plan.metadata.plan.isTrialPlan &&
    /^(0x0*)?$/.test(price.templateAddress ?? "");
  return {
    planId: plan.planId,
    scheme: `${prefix}:${price.isCrypto === false ? "card-delegation" : "erc4337"}`,
    network,
    payTo: price.receivers[0] ?? plan.owner,
    least: credits.minAmount ?? 0n,
    most: credits.maxAmount ?? 0n,
    isTime: plan.accessLimit === "time",
    service,
    orderUrl: sold ? `${service}/x402/plans/${plan.planId}/order` : "",
  };
}

/** The settings of a route, checked and with their defaults. */
export class Shop {
  readonly o: PaidOptions;
  readonly tokenHeaders: readonly string[];
  readonly publicUrl: string | undefined;
  readonly holdSecs: number;
  readonly maxBuffer: number;
  readonly maxBody: number;
  readonly timeoutMs: number;
  readonly #makeToll: () => Toll;
  readonly #said = new Set<string>();

  /** Throws a TypeError for invalid settings. */
  constructor(o: PaidOptions, makeToll: () => Toll) {
    const bad = (message: string): never => {
      throw new TypeError(message);
    };
    this.o = o;
    this.#makeToll = makeToll;
    if (o.toll && o.toll.hasKey === false) {
      bad("TOLL_API_KEY is not set. Payments need an API key of the plan's owner.");
    }
    if (!/^\d{1,78}$/.test(o.plan ?? "")) bad(`plan must be the id of a plan; got '${o.plan}'`);
    if (typeof o.credits !== "function") whole(o.credits ?? 1);
    if (o.maxCredits !== undefined && typeof o.maxCredits !== "function") whole(o.maxCredits);
    this.holdSecs = o.holdSecs ?? 60;
    if (!(Number.isInteger(this.holdSecs) && this.holdSecs >= 1 && this.holdSecs <= maxHoldSecs)) {
      bad(`holdSecs must be a whole number from 1 to ${maxHoldSecs}; got ${o.holdSecs}`);
    }
    if (!["byMethod", "settle", "release"].includes(o.callerGone ?? "byMethod")) {
      bad(`callerGone must be byMethod, settle, or release; got '${o.callerGone}'`);
    }
    if (![401, 402].includes(o.expiredStatus ?? 402)) {
      bad(`expiredStatus must be 402 or 401; got ${o.expiredStatus}`);
    }
    if (o.publicUrl !== undefined) {
      const u = URL.canParse(o.publicUrl) ? new URL(o.publicUrl) : undefined;
      if (!u || !/^https?:$/.test(u.protocol) || u.username || u.search || u.hash) {
        bad(`publicUrl must be an absolute http or https URL without query; got '${o.publicUrl}'`);
      }
    }
    this.publicUrl = o.publicUrl && trimEnd(o.publicUrl, "/");
    this.tokenHeaders = (o.tokenHeaders ?? [x402.signature]).map((h) => h.toLowerCase());
    this.maxBuffer = o.maxBuffer ?? 8 << 20;
    this.maxBody = o.maxBody ?? 10 << 20;
    this.timeoutMs = o.timeoutMs ?? 30_000;
  }

  get toll(): Toll {
    return this.o.toll ?? this.#makeToll();
  }

  log(level: LogEntry["level"], message: string): void {
    this.tell(() => (this.o.log ?? consoleLog)({ level, message }));
  }

  /** Calls a callback of the builder, and logs its errors. */
  tell(call: () => void): void {
    try {
      call();
    } catch (e) {
      consoleLog({ level: "warn", message: `A callback failed: ${String(e)}` });
    }
  }

  /** Logs a warning once. */
  once(message: string): void {
    if (this.#said.has(message) || this.#said.size >= 1000) return;
    this.#said.add(message);
    this.log("warn", message);
  }
}

/** The sale of one request, independent of the transport. */
export class Sale {
  readonly shop: Shop;
  readonly request: Incoming;
  readonly correlation: string;
  payment: Payment | undefined;
  /** Access token, payment requirements, and terms, as passed to verify and settle. */
  protected token = "";
  protected required: g.PaymentRequired | undefined;
  protected terms: Terms | undefined;
  #v1 = false;
  #ends = 0;
  #attempts = 0;
  #settled = false;
  #released = false;

  constructor(shop: Shop, request: Incoming) {
    this.shop = shop;
    this.request = { ...request, path: request.path || "/" };
    this.correlation = correlationOf(request.headers);
  }

  protected all(name: string): string[] {
    return this.request.headers.filter(([n]) => n === name).map(([, v]) => v);
  }

  /** Rejects requests that a paid handler must not receive. */
  protected check(): Fault | undefined {
    const { path, query, headers, method } = this.request;
    if (path.length + query.length + 1 > maxUrl) return fault(414, "The URL is too long.");
    const size = headers.reduce((n, [name, value]) => n + name.length + value.length + 4, 0);
    if (size > maxHeaders || headers.length > maxLines) {
      return fault(431, "The headers are too large.");
    }
    if (!cleanPath(path)) return fault(400, "The path is malformed.");
    if (/^(CONNECT|TRACE)$/i.test(method)) {
      return fault(405, "This path does not support this method.");
    }
    const offers = this.all("upgrade").join(",").split(",");
    if (offers.some((o) => o.trim() && o.trim().toLowerCase() !== "h2c")) {
      return fault(405, "Paid routes do not support protocol upgrades.");
    }
    if (this.all("transfer-encoding").length && this.all("content-length").length) {
      return fault(400, "Send Content-Length or Transfer-Encoding, not both.");
    }
    return Number(this.all("content-length")[0]) > this.shop.maxBody ? this.#tooLarge() : undefined;
  }

  #tooLarge(): Fault {
    const hint = `Send at most ${this.shop.maxBody} bytes.`;
    return { ...fault(413, "The body is too large."), hint };
  }

  /** Reads the one access token of the request. */
  protected take(): Fault | undefined {
    for (const name of this.shop.tokenHeaders) {
      const values = this.all(name);
      if (values.length > 1) return fault(400, `The header ${name} must be sent only once.`);
      let v = (values[0] ?? "").trim();
      if (shared.has(dashed(name))) {
        if (name === "authorization") v = x402.bearer(v);
        if (!x402.isAccessToken(v)) continue;
      }
      if (!v) continue;
      if (v.length > x402.maxToken) return fault(431, "The access token is longer than 8 KiB.");
      if (this.token && v !== this.token && !sameToken(this.token, v)) {
        return fault(400, "The request contains two different access tokens.");
      }
      this.token ||= v;
    }
    this.#v1 = this.all("x-payment").length > 0;
    if (this.#v1 && this.token) {
      return fault(400, "The request contains payments of two protocol versions.");
    }
    if (this.token && (carries(this.request.path, "/") || carries(this.request.query))) {
      const hint = `Send the access token in the header ${x402.signature}.`;
      const message = "The URL contains an access token. URLs are logged, so revoke the token.";
      return { ...fault(400, message), hint };
    }
    return undefined;
  }

  /** Returns the headers without payments, access tokens, and overrides. */
  #stripped(): Lines {
    const out: Lines = [];
    for (const [name, sent] of this.request.headers) {
      const n = dashed(name);
      if (paymentHeaders.has(n) || otherHeaders.has(n)) continue;
      if (!shared.has(n) && this.shop.tokenHeaders.some((h) => dashed(h) === n)) continue;
      let value = sent;
      if (carries(value)) {
        if (n !== "cookie") continue;
        value = value.split(";").map((c) => c.trim()).filter((c) => !carries(c)).join("; ");
        if (!value) continue;
      }
      out.push([name, value]);
    }
    return out;
  }

  /** The request, for functions that price it. */
  get #asked(): Asked {
    const { method, path, query, headers } = this.request;
    return { method, path, query, headers: new Headers(headers) };
  }

  /** Verifies the payment with a hold. Returns the response for an unpaid request. */
  async pay(): Promise<Reply | undefined> {
    const { shop } = this;
    const f = this.check() ?? this.take();
    this.request.headers = this.#stripped();
    if (f) return this.error(f);
    let terms: Terms;
    try {
      terms = this.terms = await termsOf(shop.toll, shop.o.plan, shop.timeoutMs);
    } catch (e) {
      return this.#unavailable("reading the terms of the plan", e);
    }
    const most = this.most();
    const asked = most === undefined ? undefined : inBounds(terms, most);
    if (most !== asked) {
      shop.once(
        `The price of a route is ${most} credits, but plan ${terms.planId} allows ` +
          `${terms.least} to ${terms.most} credits per request. ` +
          `Requests now cost ${asked} credits.`,
      );
    }
    this.required = this.#require(terms, asked);
    if (this.#v1) {
      const f = { status: 402, code: "BCK.X402.0915", message: "x402Version must be 2." };
      return this.refuse("invalid_x402_version", f);
    }
    if (!this.token) {
      const page = pageOf(terms);
      const hint =
        `${page && `Buy the plan at ${page}. `}Create an access token with POST ` +
        `${terms.service}/x402/permissions and send it in ${shop.tokenHeaders.join(" or ")}.`;
      return this.refuse("", { ...refusal("A payment is required."), hint });
    }
    return this.#readToken() ?? (await this.#open(asked));
  }

  /** Most credits of the call; undefined means the maximum of the plan. */
  protected most(): bigint | undefined {
    const { credits, maxCredits } = this.shop.o;
    if (typeof credits !== "function") return whole(credits ?? 1);
    if (maxCredits === undefined) return undefined;
    return whole(typeof maxCredits === "function" ? maxCredits(this.#asked) : maxCredits);
  }

  #require(terms: Terms, asked: bigint | undefined): g.PaymentRequired {
    const { o, holdSecs, toll } = this.shop;
    const method = this.request.method.toUpperCase();
    const planUrl = `${terms.service}/protocol/plans/${terms.planId}`;
    const extra: g.RequirementsExtra = { version: "1", planId: terms.planId };
    if (o.agent) extra.agentId = o.agent;
    Object.assign(extra, {
      httpVerb: method === "HEAD" ? "GET" : method,
      planUrl,
      orderUrl: terms.orderUrl || `${planUrl}/order`,
    });
    if (terms.service.endsWith("/api/v1")) {
      extra.signInUrl = `${terms.service.slice(0, -"/api/v1".length)}/sign-in`;
    }
    const resource: g.Resource = { url: this.resource() };
    if (o.description) resource.description = o.description;
    if (o.mimeType) resource.mimeType = o.mimeType;
    const entry: g.Requirements = {
      scheme: terms.scheme,
      network: terms.network,
      amount: String(terms.isTime ? 0n : (asked ?? terms.most)),
      asset: `${toll.namespace.scheme}:credits`,
      payTo: terms.payTo,
      maxTimeoutSeconds: holdSecs,
      planId: terms.planId,
      extra,
    };
    return { x402Version: 2, resource, accepts: [entry], extensions: {} };
  }

  /** Host and forwarding headers are never used, because callers control them. */
  protected resource(): string {
    const { path, query } = this.request;
    if (this.shop.publicUrl === undefined) {
      this.shop.once(
        "publicUrl is not set: 402 responses contain only a path, which clients cannot call, and " +
          "access tokens for a single resource are rejected.",
      );
      return path;
    }
    return this.shop.publicUrl + path + (query && `?${query}`);
  }

  #readToken(): Reply | undefined {
    let token: x402.Token;
    try {
      token = x402.decodeToken(this.token);
    } catch (e) {
      const { code, message } = e as x402.Undecodable;
      const reason = code === "BCK.X402.0915" ? "invalid_x402_version" : "invalid_payload";
      return this.refuse(reason, { status: 402, code, message });
    }
    const theirs = token.extensions[x402.identifier];
    if (theirs !== undefined) {
      const info = x402.object(x402.object(theirs)?.info);
      if (info?.required !== identifierInfo.required) {
        const message =
          `The payment must repeat the extension ${x402.identifier} exactly as the server sent it.`;
        return this.refuse("extension_echo_mismatch", {
          status: 402,
          code: "BCK.X402.0012",
          message,
        });
      }
    }
    if (!this.isForUs(token)) {
      const message = "The access token is for another resource.";
      const f = { ...refusal(message), code: "BCK.PROTOCOL.0031", hint: otherToken };
      return this.refuse(this.#reason("resource_mismatch"), f);
    }
    return undefined;
  }

  #reason(what: string): string {
    return `invalid_${this.shop.toll.namespace.scheme}_${what}`;
  }

  /** Reports whether the token is valid for this resource, or for any resource (RFC 8707). */
  protected isForUs(token: x402.Token): boolean {
    const { aud, iss } = token.claims;
    const audience = typeof aud === "string" ? [aud] : aud;
    if (!Array.isArray(audience) || !audience.every((a) => typeof a === "string")) return true;
    const others = (audience as string[]).filter((a) => a !== `${iss}/x402`);
    if (others.length === 0) return true;
    if (others.length === audience.length) return false;
    const base = this.shop.publicUrl;
    if (base === undefined) return false;
    const segments = cleanPath(this.request.path) ?? [];
    const here = [base, ...segments.map(encodeURIComponent)].join("/");
    return others.some((a) => above(base, a) && above(a, here));
  }

  async #open(asked: bigint | undefined): Promise<Reply | undefined> {
    const { shop } = this;
    const body: g.VerifyRequest = {
      paymentRequired: this.required as g.PaymentRequired,
      x402AccessToken: this.token,
      hold: true,
      holdSecs: shop.holdSecs,
    };
    if (asked !== undefined) body.maxAmount = asked;
    // The service decides when the hold ends. Counting from before the call, our end is never
    // later.
    this.#ends = performance.now() + shop.holdSecs * 1000;
    let v: Verdict;
    try {
      v = await shop.toll.payments.verify(body, { timeoutMs: shop.timeoutMs, maxRetries: 0 });
    } catch (e) {
      return this.#unavailable("verify", e);
    }
    if (!v.isValid) return this.#refused(v);
    const held = v.extra?.heldAmount ?? v.amount ?? 0n;
    const payment = {
      payer: v.payer ?? "",
      planId: shop.o.plan,
      agentId: v.agentId ?? shop.o.agent,
      agentRequestId: v.agentRequestId ?? "",
      held,
    };
    this.payment = payment;
    if (!payment.agentRequestId || (v.extra?.heldAmount === undefined && held > 0n)) {
      await this.release();
      this.payment = undefined;
      const e = new Error("the service verified a payment, but returned no request id or no hold");
      return this.#unavailable("verify", e);
    }
    return undefined;
  }

  #refused(v: Verdict): Reply {
    const reason = v.invalidReason ?? "";
    const code = v.code ?? codes.paymentRequired;
    const message = plain(v.invalidMessage ?? "") || "A payment is required.";
    const f = { code, message, category: "business" };
    if (reason === "settle_conflict" || reason === "payment_identifier_conflict") {
      return this.error({ ...f, status: 409 });
    }
    if (reason === "too_many_holds" || reason === "rate_limited") {
      return this.error({ ...f, status: 429, retryable: true });
    }
    if (reason === pending) {
      return this.error({ ...f, status: 503, category: "integration", retryable: true });
    }
    const ours = ["unauthorized_server", "unexpected_verify_error"].includes(reason);
    if (ours || code === "BCK.X402.0001" || code === "BCK.X402.0002") {
      return this.#unavailable("verify", new Error(message));
    }
    const page = v.extra?.checkoutUrl;
    return this.refuse(reason, {
      ...f,
      status: 402,
      category: code === "BCK.X402.0005" ? "auth" : "business",
      params: page && isPage(page) ? { checkoutUrl: page } : {},
    });
  }

  /** Returns an error response. */
  protected error(f: Fault, more: object = {}, lines: Lines = []): Reply {
    const body: Record<string, unknown> = {
      ...more,
      code: f.code,
      message: f.message,
      httpStatus: f.status,
      category: f.category ?? "validation",
      retryable: f.retryable ?? false,
      correlationId: this.correlation,
    };
    if (f.hint) body.hint = f.hint;
    if (f.params && Object.keys(f.params).length) body.params = JSON.stringify(f.params);
    const text = new TextEncoder().encode(JSON.stringify(body));
    const headers: Lines = [
      ["content-type", "application/json"],
      ["content-length", String(text.length)],
      ["cache-control", "no-store"],
      ["x-content-type-options", "nosniff"],
      ["x-correlation-id", this.correlation],
      ...lines,
    ];
    if (f.status === 405) headers.push(["allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"]);
    const wait = f.retryAfter ?? (f.status === 429 || f.status === 503 ? 5 : 0);
    if (wait) headers.push(["retry-after", String(wait)]);
    return { status: f.status, headers, body: this.isHead ? new Uint8Array() : text };
  }

  get isHead(): boolean {
    return this.request.method.toUpperCase() === "HEAD";
  }

  /**
   * Returns a 402 with the price, the reason of the refusal, and the receipt of a failed
   * settlement.
   */
  protected refuse(reason: string, f: Fault, failed?: x402.Json): Reply {
    const terms = this.terms as Terms;
    const lacks = shortfalls.has(reason);
    const info: Record<string, unknown> = { ...f.params };
    if (lacks && terms.orderUrl) info.orderUrl = terms.orderUrl;
    const all: Record<string, unknown> = { ...extensions };
    if (Object.keys(info).length) {
      const name = `${this.shop.toll.namespace.scheme}-plan`;
      all[name] = { info: { ...info, planId: terms.planId } };
    }
    const order = lacks ? `Order the plan ${terms.planId}` : "Get another access token";
    const page = pageOf(terms);
    const at = page && ` at ${page}`;
    const advice = f.code === "BCK.PROTOCOL.0031"
      ? "Call an endpoint of the agent. Its seller can add this one."
      : `${betterToken[f.code] ?? order}${at}, then repeat the request.`;
    const hint = f.hint || advice;
    const challenge = {
      ...(this.required as g.PaymentRequired),
      error: challengeError(reason ? `${reason}: ${plain(f.message)}` : "Payment required", hint),
      extensions: all,
    };
    const lines: Lines = [[x402.required, requiredHeader(challenge)]];
    if (failed) lines.push([x402.receipt, x402.encode(failed)]);
    const ended = ["payload_expired", "payload_revoked", "payload_signature"];
    let status = 402;
    if (this.shop.o.expiredStatus === 401 && ended.some((e) => this.#reason(e) === reason)) {
      status = 401;
      lines.push(["www-authenticate", 'Bearer error="invalid_token"']);
    }
    return this.error({ ...f, status, hint }, challenge, lines);
  }

  /** Returns the response after a failed call to the service, which is not the caller's fault. */
  #unavailable(what: string, e: unknown): Reply {
    const t = e instanceof TollError ? e : undefined;
    const retry = { retryable: true, retryAfter: t?.retryAfterSecs };
    if (t?.status === 429) {
      const f = fault(429, "Too many requests.");
      return this.error({ ...f, category: "business", ...retry });
    }
    this.shop.log("warn", `A call to the service failed: ${what}: ${String(e)} (${this.about})`);
    if (t?.code === codes.settlementPending) return this.#pending(retry);
    return this.error({ ...fault(503, unavailable), category: "internal", ...retry });
  }

  #pending(more: Partial<Fault> = {}, lines: Lines = []): Reply {
    const f = {
      status: 503,
      code: codes.settlementPending,
      message: "The outcome of the payment is not known yet. Repeat the request.",
      category: "integration",
      retryable: true,
      ...more,
    };
    return this.error(f, {}, lines);
  }

  /** The ids of the request, for log lines. */
  get about(): string {
    return `agentRequestId ${this.payment?.agentRequestId}, correlationId ${this.correlation}`;
  }

  /** Milliseconds until the hold ends; Infinity after the settlement or release. */
  get left(): number {
    if (this.#settled || this.#released) return Infinity;
    return Math.max(0, this.#ends - performance.now());
  }

  /** Whether the price is known before the response, so that a stream is settled first. */
  get isPriced(): boolean {
    return typeof this.shop.o.credits !== "function";
  }

  /** Tries once to renew the hold. Returns the milliseconds until the next check. */
  async renew(): Promise<number> {
    const { shop } = this;
    const agentRequestId = (this.payment as Payment).agentRequestId;
    const asked = performance.now();
    try {
      const timeoutMs = Math.ceil(Math.min(shop.timeoutMs, this.left)) || 1;
      const body = { agentRequestId, holdSecs: shop.holdSecs };
      const renewed = await shop.toll.payments.renew(body, { timeoutMs, maxRetries: 0 });
      if (renewed.agentRequestId !== agentRequestId) {
        throw new Error("the response is for another request");
      }
      this.#ends = asked + shop.holdSecs * 1000;
      return this.left / 2;
    } catch (e) {
      shop.log("warn", `A hold was not renewed: ${String(e)} (${this.about})`);
      const t = e instanceof TollError ? e : undefined;
      const status = t?.status ?? 0;
      const final = status >= 400 && status < 500 && status !== 408 && status !== 429;
      if (final) return this.left;
      const pause = Math.max(this.left / 4, renewPauseMs, (t?.retryAfterSecs ?? 0) * 1000);
      return Math.min(this.left, pause);
    }
  }

  /** Whether successful work is settled even if the caller has disconnected. */
  get settlesGone(): boolean {
    const rule = this.shop.o.callerGone ?? "byMethod";
    if (rule !== "byMethod") return rule === "settle";
    return !/^(GET|HEAD|OPTIONS)$/i.test(this.request.method);
  }

  /** Whether a response with these headers is streamed. */
  streams(headers: Lines): boolean {
    return this.shop.o.stream === true || isEvents(headers);
  }

  /** Releases the hold and returns a 500, for a response that cannot be sent. */
  async failed(): Promise<Reply> {
    await this.release();
    return this.error({ ...fault(500, "An unexpected error occurred."), category: "internal" });
  }

  /** Releases the hold and returns a 413, for a body longer than maxBody. */
  async tooLong(): Promise<Reply> {
    await this.release();
    const reply = this.error(this.#tooLarge());
    reply.headers.push(["connection", "close"]);
    return reply;
  }

  /** Returns the price of a response, capped at the held credits. Throws errors of credits(). */
  protected async amount(a: Reply, size: number, streamed: boolean): Promise<bigint> {
    const terms = this.terms as Terms;
    const payment = this.payment as Payment;
    const { credits } = this.shop.o;
    if (typeof credits !== "function") return inBounds(terms, whole(credits ?? 1));
    const work: Work = {
      ...this.#asked,
      status: a.status,
      answer: new Headers(a.headers),
      body: streamed ? undefined : a.body,
      size,
      payment,
    };
    const given = inBounds(terms, whole(await credits(work)));
    return given < payment.held ? given : payment.held;
  }

  /**
   * Settles a complete response before it is sent. Returns the response to send, or undefined if
   * the caller has disconnected and nothing is charged.
   */
  async finish(a: Reply, gone: boolean): Promise<Reply | undefined> {
    const headers = stripAnswer(a.headers);
    if (!isSuccess(a)) {
      await this.release();
      return { ...a, headers: keepPrivate(headers) };
    }
    if (gone && !this.settlesGone) {
      await this.release();
      return undefined;
    }
    const said = headers.find(([n]) => n === "content-length")?.[1];
    let problem = "";
    let amount = 0n;
    if (said !== undefined && !this.isHead && a.status !== 204 && Number(said) !== a.body.length) {
      problem = `The handler declared ${said} bytes but sent ${a.body.length}`;
    } else {
      try {
        amount = await this.amount({ ...a, headers }, a.body.length, false);
      } catch (e) {
        problem = `Computing the price of a response failed: ${String(e)}`;
      }
    }
    if (problem) {
      this.shop.log("warn", `${problem} (${this.about})`);
      return this.failed();
    }
    const s = await this.settle(amount);
    if (s.receipt.success) return { ...a, headers: this.paidHeaders(headers, s.header) };
    if (s.known) await this.release();
    return this.notSettled(s);
  }

  /**
   * Begins a stream and returns its headers. A known price is settled first, and a response other
   * than 2xx is free, so neither needs the hold any longer. `refusal` is the response in place of
   * an unpaid stream.
   */
  async begin(a: Reply): Promise<{ headers: Lines; refusal?: Reply }> {
    let headers = stripAnswer(a.headers);
    if (isEvents(headers)) {
      // Proxies such as nginx buffer responses by default.
      headers = headers.filter(([n]) => n !== "x-accel-buffering");
      headers.push(["x-accel-buffering", "no"]);
    }
    if (!isSuccess(a)) {
      await this.release();
      return { headers: keepPrivate(headers) };
    }
    if (!this.isPriced) return { headers: this.paidHeaders(headers) };
    const s = await this.settle(await this.amount(a, 0, true));
    if (s.receipt.success) return { headers: this.paidHeaders(headers, s.header) };
    if (s.known) await this.release();
    return { headers, refusal: this.notSettled(s) };
  }

  /**
   * Settles a stream at its end, or after an abort if a part was delivered. A settlement that fails
   * now is retried in the queue.
   */
  async endStream(a: Reply, size: number, owed: boolean): Promise<void> {
    if (this.#settled) return;
    if (!isSuccess(a) || !owed) return this.release();
    let amount: bigint;
    try {
      amount = await this.amount(a, size, true);
    } catch (e) {
      // Delivered content must be paid for, and the payer agreed to the held credits.
      amount = (this.payment as Payment).held;
      const problem = "Computing the price of a stream failed, so the held credits are charged";
      this.shop.log("warn", `${problem}: ${String(e)} (${this.about})`);
    }
    const s = await this.settle(amount, 1);
    if (s.receipt.success) return;
    const late = unsettled.add(this, amount, size, s);
    this.shop.tell(() => this.shop.o.waitUntil?.(late));
  }

  /** Burns the amount under the id of the request, at most once. */
  async settle(amount: bigint, most = tries): Promise<Settled> {
    const { shop } = this;
    const payment = this.payment as Payment;
    const body: g.SettleRequest = {
      paymentRequired: this.required as g.PaymentRequired,
      x402AccessToken: this.token,
      maxAmount: amount,
      agentRequestId: payment.agentRequestId,
    };
    for (let n = 0; n < most; n++) {
      this.#attempts++;
      let wait = 0;
      try {
        const o = { timeoutMs: shop.timeoutMs, maxRetries: 0 };
        const a = await shop.toll.payments.settle(body, o).withResponse();
        const s = a.data;
        const named = s.extra?.agentRequestId;
        if (
          (s.success && !s.transaction && amount > 0n) ||
          (named && named !== payment.agentRequestId)
        ) {
          throw new Error("the response is for another settlement");
        }
        const raw: x402.Json = { ...s, ...x402.object(a.raw), success: s.success };
        const exact = s.success && a.text.length <= maxRequired;
        return this.#tell({
          receipt: s,
          known: true,
          raw,
          header: exact ? toBase64(a.text) : header(raw),
        });
      } catch (e) {
        shop.log(
          "warn",
          `The outcome of a settlement is not known yet: ${String(e)} (${this.about})`,
        );
        const status = e instanceof TollError ? e.status : 0;
        if (status >= 400 && status < 500 && status !== 408 && status !== 429) break;
        if (e instanceof TollError) wait = (e.retryAfterSecs ?? 0) * 1000;
      }
      if (n + 1 < most) {
        await sleep(Math.min(Math.max(Math.random() * 200 * 4 ** n + 20, wait), 2000));
      }
    }
    const receipt = {
      success: false,
      errorReason: pending,
      errorMessage: "The outcome of the settlement is not known yet.",
      code: codes.settlementPending,
      transaction: "",
      network: this.required?.accepts[0]?.network ?? "",
      payer: payment.payer,
      extra: { agentRequestId: payment.agentRequestId },
    };
    return this.#tell({ receipt, known: false, raw: receipt, header: header(receipt) });
  }

  #tell(s: Settled): Settled {
    const { success, errorReason } = s.receipt;
    this.#settled ||= success;
    if (!success) this.shop.log("warn", `A settlement failed: ${errorReason} (${this.about})`);
    this.shop.tell(() => this.shop.o.onSettled?.(s.receipt));
    return s;
  }

  /** Number of settlement attempts. */
  get attempts(): number {
    return this.#attempts;
  }

  /** Releases the hold. If that fails, the hold lapses at its end. */
  async release(): Promise<void> {
    const id = this.payment?.agentRequestId;
    if (!id || this.#settled || this.#released) return;
    this.#released = true;
    const timeoutMs = Math.min(this.shop.timeoutMs, 10_000);
    try {
      await this.shop.toll.payments.release(id, { timeoutMs, maxRetries: 1 });
    } catch (e) {
      const message = `A hold was not released and will expire: ${String(e)} (${this.about})`;
      this.shop.log("warn", message);
    }
  }

  /** Returns the response for unsettled work, without any of its content. */
  protected notSettled(s: Settled): Reply {
    if (!s.known) return this.#pending({}, [[x402.receipt, s.header]]);
    const message = plain(s.receipt.errorMessage ?? "") || "The settlement was refused.";
    const reason = s.receipt.errorReason ?? "";
    if (reason === "unauthorized_server") return this.#unavailable("settle", new Error(message));
    const code = s.receipt.code ?? codes.paymentRequired;
    return this.refuse(reason, { ...refusal(message), code }, shown(s.raw));
  }

  /** Returns the headers of a paid response: private to caches, with the receipt or request id. */
  protected paidHeaders(headers: Lines, receiptHeader?: string): Lines {
    const out = keepPrivate(headers);
    const id = this.payment?.agentRequestId ?? "";
    const idHeader = `${this.shop.toll.namespace.header}-Request-Id`.toLowerCase();
    out.push(receiptHeader ? [x402.receipt, receiptHeader] : [idHeader, id]);
    if (out.some(([n]) => n === "access-control-allow-origin")) {
      out.push(["access-control-expose-headers", `${x402.required}, ${x402.receipt}, ${idHeader}`]);
    }
    return out;
  }
}

/** Renews the hold of a sale at half of its duration, and cuts off the stream when it ends. */
export class Keeper {
  readonly #sale: Sale;
  readonly #isHere: () => boolean;
  readonly #last: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #cut: (() => void) | undefined;
  #done = false;

  /** Renews while isHere reports that the caller is connected, until stop. */
  constructor(sale: Sale, isHere: () => boolean) {
    this.#sale = sale;
    this.#isHere = isHere;
    this.#last = performance.now() + maxHoldLifeMs - sale.shop.holdSecs * 1000;
    this.#look(sale.left / 2);
  }

  /** Sets the function to call when the hold ends. */
  deliver(cut: () => void): void {
    this.#cut = cut;
  }

  stop(): void {
    this.#done = true;
    clearTimeout(this.#timer);
  }

  #look(ms: number): void {
    this.#timer = setTimeout(() => void this.#tick(), ms);
  }

  async #tick(): Promise<void> {
    let next = this.#sale.left;
    if (next === Infinity) return;
    if (next <= 0) return this.#cut?.();
    if (this.#isHere() && performance.now() < this.#last) next = await this.#sale.renew();
    if (!this.#done) this.#look(next);
  }
}

/** The last event of an event stream that is cut off. */
const endOfHold = new TextEncoder().encode(
  'event: error\ndata: {"message":"The hold for this stream has expired."}\n\n',
);

/** Tracks the bytes of an event stream, to append an event if it is cut off. */
export class Tail {
  readonly #isOpen: boolean;
  #tail = "";

  constructor(headers: Lines) {
    const names = headers.map(([n]) => n);
    const plain = !names.includes("content-encoding") && !names.includes("content-length");
    this.#isOpen = isEvents(headers) && plain;
  }

  add(part: Uint8Array): void {
    if (!this.#isOpen) return;
    this.#tail = (this.#tail + String.fromCharCode(...part.subarray(-3))).slice(-3);
  }

  /** The last event, if the stream is between two events; otherwise undefined. */
  get end(): Uint8Array | undefined {
    return /\n\r?\n$/.test(this.#tail) ? endOfHold : undefined;
  }
}

/** The outcome of a settlement. If it is unknown, the settlement may still succeed. */
export interface Settled {
  receipt: g.SettleResponse;
  known: boolean;
  raw: x402.Json;
  /** The value of payment-response. */
  header: string;
}

const receiptMembers = [
  "success", "errorReason", "errorMessage", "code", "transaction", "network", "payer",
  "creditsRedeemed", "remainingBalance", "amount", "extra",
];
const shown = (raw: x402.Json): x402.Json =>
  Object.fromEntries(Object.entries(raw).filter(([n]) => receiptMembers.includes(n)));
const header = (raw: object): string => x402.encode(shown(raw as x402.Json));

const fault = (status: number, message: string): Fault => ({
  status,
  code: `BCK.HTTP.${status}`,
  message,
});
const refusal = (message: string): Fault => ({
  status: 402,
  code: codes.paymentRequired,
  message,
  category: "business",
});

/** Returns credits as a bigint. Throws a TypeError unless they are a whole number of 0 or more. */
export function whole(credits: Amount): bigint {
  const exact = typeof credits === "bigint" || Number.isSafeInteger(credits);
  if (!exact || credits < 0) {
    throw new TypeError(`credits must be a whole number of 0 or more; got ${String(credits)}`);
  }
  return BigInt(credits);
}

/** Returns the segments of a path, or undefined if routers could interpret it in another way. */
export function cleanPath(raw: string): string[] | undefined {
  if (!raw.startsWith("/") || /%2f|%5c|\\/i.test(raw)) return undefined;
  let path: string;
  try {
    path = decodeURIComponent(raw);
  } catch {
    return undefined;
  }
  if (/[\x00-\x1f\x7f]/.test(path)) return undefined;
  const out: string[] = [];
  for (const s of path.split("/")) {
    if (s === "..") out.pop();
    else if (s && s !== ".") out.push(s);
  }
  return out;
}

/** Returns an untrusted text as one line, without invisible characters. */
export function plain(text: string): string {
  return text
    .slice(0, 16 * maxText)
    .replace(/[\p{Cf}\p{Cs}\p{Co}\p{Cn}]/gu, "")
    .replace(/[\s\p{Cc}\p{Zl}\p{Zp}]+/gu, " ")
    .trim()
    .slice(0, maxText);
}

/** Headers that may carry credentials other than payments, and are kept. */
const shared: ReadonlySet<string> = new Set(["authorization", "x-api-key"]);

/** Returns the request id of the caller if it is harmless, otherwise a new id. */
function correlationOf(headers: Lines): string {
  for (const name of ["x-correlation-id", "x-request-id"]) {
    const v = headers.find(([n]) => n === name)?.[1];
    if (v && /^[!-~]{1,128}$/.test(v)) return v;
  }
  return crypto.randomUUID();
}

/** Returns a header name as CGI-like layers compare it. */
const dashed = (name: string): string => name.toLowerCase().replaceAll("_", "-");

/** Reports whether a text is the address of a page, in visible ASCII. */
const isPage = (text: string): boolean => /^https?:\/\/[!-~]{1,2040}$/.test(text);

function sameToken(a: string, b: string): boolean {
  try {
    const [x, y] = [x402.decodeToken(a), x402.decodeToken(b)];
    return x.jws === y.jws && (x.nonce === y.nonce || !x.nonce || !y.nonce);
  } catch {
    return false;
  }
}

/** Reports whether a text contains an access token, between separators of lists and queries. */
function carries(text: string, more = ""): boolean {
  if (text.length < x402.minToken) return false;
  return text.split(/[ \t,;?&="'\n]/).some((part) =>
    (more ? part.split(more) : [part]).some((p) => {
      if (p.length < x402.minToken) return false;
      try {
        return x402.isAccessToken(trimEnd(decodeURIComponent(p), "="));
      } catch {
        return x402.isAccessToken(p);
      }
    }),
  );
}

/** Reports whether upper is the same URL as lower, or an ancestor of it on the same server. */
function above(upper: string, lower: string): boolean {
  if (!URL.canParse(upper) || !URL.canParse(lower) || /#/.test(upper + lower)) return false;
  const [a, b] = [new URL(upper), new URL(lower)];
  // A path that parsing changes could be read in two ways.
  if (!/^https?:$/.test(a.protocol) || a.origin !== b.origin) return false;
  if (/\/(\.|%2e|\/)/i.test(upper.slice(upper.indexOf("//") + 2))) return false;
  const path = trimEnd(a.pathname, "/");
  return trimEnd(b.pathname, "/") === path || b.pathname.startsWith(`${path}/`);
}

/** Encodes payment-required. Proxies reject long headers, so parts are removed until it fits. */
function requiredHeader(challenge: g.PaymentRequired): string {
  let value = x402.encode(challenge);
  if (value.length <= maxRequired) return value;
  const short = { ...challenge, resource: { ...challenge.resource } };
  const cuts = [
    () => (short.resource.url = short.resource.url.split("?")[0] ?? ""),
    () => (short.error = "Payment required"),
    () => (short.resource.description = ""),
    () => (short.resource.url = ""),
    () => (short.extensions = {}),
  ];
  for (const cut of cuts) {
    cut();
    value = x402.encode(short);
    if (value.length <= maxRequired) break;
  }
  return value;
}

const isSuccess = (a: Reply): boolean => a.status >= 200 && a.status <= 299;

/** Reports whether a response is an event stream. */
function isEvents(headers: Lines): boolean {
  const type = headers.find(([n]) => n === "content-type")?.[1] ?? "";
  return type.split(";")[0]?.trim().toLowerCase() === "text/event-stream";
}

/** Returns the headers of a handler without the headers that only the middleware may set. */
export const stripAnswer = (headers: Lines): Lines =>
  headers.filter(([n]) => !paymentHeaders.has(dashed(n)));

/** Keeps a paid response out of shared caches, whatever the handler allowed. */
function keepPrivate(headers: Lines): Lines {
  const directives = ["private"];
  const vary: string[] = [];
  const out: Lines = [];
  for (const [name, value] of headers) {
    if (name === "cache-control") {
      for (const d of value.split(",").map((v) => v.trim())) {
        const word = d.split("=")[0]?.trim().toLowerCase() ?? "";
        const shared = ["", "public", "s-maxage", "proxy-revalidate", "private"];
        if (!shared.includes(word)) directives.push(d);
      }
    } else if (name === "vary") {
      vary.push(...value.split(",").map((v) => v.trim()).filter(Boolean));
    } else if (!name.endsWith("cdn-cache-control") && !cacheHeaders.has(name)) {
      out.push([name, value]);
    }
  }
  const names = vary.map((v) => v.toLowerCase());
  if (!names.includes("*")) {
    vary.push(...[x402.signature, "authorization"].filter((n) => !names.includes(n)));
  }
  return [...out, ["cache-control", directives.join(", ")], ["vary", vary.join(", ")]];
}

const maxUnsettled = 10_000;
const unsettledLifeMs = 86_400_000;

/** Settles streams that were delivered while the service was unavailable, each under its id. */
class Queue {
  #waiting = 0;
  #draining = false;
  readonly #wake = new Set<() => void>();

  get size(): number {
    return this.#waiting;
  }

  /** Retries the settlement of a stream. A known refusal is only reported. */
  async add(sale: Sale, credits: bigint, size: number, s: Settled): Promise<void> {
    const full = this.#waiting >= maxUnsettled;
    const report = (now: Settled, final: boolean, reason = now.receipt.errorReason ?? "") => {
      const { agentRequestId, planId, payer } = sale.payment as Payment;
      const attempts = sale.attempts;
      const u = { agentRequestId, planId, payer, credits, size, attempts, reason, final };
      sale.shop.log("warn", `A delivered stream is not settled: ${reason} (${sale.about})`);
      sale.shop.tell(() => sale.shop.o.onUnsettled?.(u));
    };
    if (full) report(s, true, "the queue of unsettled streams is full");
    else report(s, s.known);
    if (s.known || full) return;
    this.#waiting++;
    try {
      const began = performance.now();
      let now = s;
      for (let delay = 1000; performance.now() - began < unsettledLifeMs; ) {
        await this.#pause(this.#draining ? 100 : delay);
        now = await sale.settle(credits, 1);
        if (now.receipt.success) return;
        if (now.known) break;
        delay = Math.min(2 * delay, 60_000);
      }
      report(now, true);
    } finally {
      this.#waiting--;
    }
  }

  async drain(timeoutMs: number): Promise<boolean> {
    const end = performance.now() + timeoutMs;
    this.#draining = true;
    for (const wake of this.#wake) wake();
    try {
      while (this.#waiting > 0 && performance.now() < end) await sleep(20);
      return this.#waiting === 0;
    } finally {
      this.#draining = false;
    }
  }

  /** Waits, without keeping the program alive. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#wake.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      (timer as { unref?: () => void }).unref?.();
      this.#wake.add(wake);
    });
  }
}

const unsettled = new Queue();

/** Number of delivered streams that wait for their settlement in this process. */
export const unsettledStreams = (): number => unsettled.size;

/**
 * Settles waiting streams without the usual pauses. Returns false if some remain after timeoutMs.
 * Call it before the program ends, because unsettled streams are lost then.
 */
export const drain = (timeoutMs: number): Promise<boolean> => unsettled.drain(timeoutMs);
