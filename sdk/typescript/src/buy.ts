// The buyer's side: pays for requests, each once and within limits, by the same rules as the Go
// package client. fetch.ts, mcp.ts, and ai.ts carry the payments.
import type { Toll } from "./client.js";
import { BusinessError } from "./error.js";
import type { Plan } from "./generated.js";
import * as x402 from "./x402.js";

/** Unit of a payment: credits of plans, or base units of a token with 6 decimals. */
export type Unit = "credits" | "USDC" | "EURC";

/**
 * State of a payment: "sent" is on its way, "paid" was settled, "refused" cost nothing, because the
 * payment was refused or the request failed, and
 * "unknown" may have been settled.
 */
export type PaymentState = "sent" | "paid" | "refused" | "unknown";

/** The record of one payment, without the access token and without the query of the URL. */
export interface PaymentRecord {
  readonly id: string;
  readonly at: Date;
  readonly host: string;
  readonly method: string;
  readonly path: string;
  /** Plan whose credits pay; empty for a payment from a wallet. */
  readonly planId: string;
  readonly unit: Unit;
  /** Most that the payment can cost, in `unit`. */
  readonly most: bigint;
  /** Cost of a paid request, in `unit`. */
  readonly spent: bigint;
  readonly state: PaymentState;
  readonly transaction: string;
  /** The permission of the access token, with which the service reports the burned credits. */
  readonly permissionHash: string;
}

/** Limits on payments. Anything not listed is not paid. */
export interface Limits {
  /**
   * Servers that may be paid: "agent.example.com", "127.0.0.1:8403". A name without a port allows
   * only https.
   */
  hosts: readonly string[];
  /** Most credits for one request, in 24 hours, and in total. */
  creditsPerCall?: bigint;
  creditsPerDay?: bigint;
  credits?: bigint;
  /** Most base units of USDC and of EURC, counted separately: 1000000n is 1.00. */
  moneyPerCall?: bigint;
  moneyPerDay?: bigint;
  money?: bigint;
}

const notPaid = "BCK.X402.0030";

/** A payment exceeds the limits. The message is safe to show. */
export class LimitReached extends BusinessError {
  constructor(message: string) {
    super({ code: notPaid, message, category: "business" });
  }
}

/**
 * A request required payment and got no response. `payment` is set if a payment was sent: whether
 * the server accepted it is unknown, and it counts in full. Such a request is not repeated, because
 * the server may have done the work. `code` is "BCK.X402.0030" when nothing was paid,
 * "BCK.X402.0914" when the outcome is unknown. With no credits left, `payingFetch` throws no
 * error: it returns the 402 response of the server.
 */
export class PaymentError extends BusinessError {
  declare readonly host: string;
  declare readonly payment: PaymentRecord | undefined;
  /** The payment that the server requires. */
  declare readonly challenge: x402.Challenge | undefined;
  constructor(
    host: string,
    reason: string,
    more: { payment?: PaymentRecord; challenge?: x402.Challenge } = {},
  ) {
    super({
      code: more.payment ? "BCK.X402.0914" : notPaid,
      status: more.payment ? 0 : 402,
      category: "business",
      message: more.payment
        ? `a payment to ${host} was sent, but its outcome is unknown: ${reason}`
        : `${host} requires payment, but nothing was paid: ${reason}`,
    });
    Object.assign(this, more, { host });
  }
}

const dayMs = 86_400_000;

/** Amount that a payment uses of the limits: the amount spent, or the most it could have spent. */
const counts = (p: PaymentRecord): bigint =>
  p.state === "paid" ? p.spent : p.state === "refused" ? 0n : p.most;

/** Approves payments, and keeps their records in memory. */
export class Budget {
  readonly limits: Limits;
  readonly #told: ((p: PaymentRecord) => void) | undefined;
  readonly #payments = new Map<string, PaymentRecord>();

  /** `onPayment` receives each record whenever it changes. */
  constructor(limits: Limits, o: { onPayment?: (p: PaymentRecord) => void } = {}) {
    this.limits = limits;
    this.#told = o.onPayment;
  }

  /** The records, oldest first. */
  get payments(): readonly PaymentRecord[] {
    return [...this.#payments.values()];
  }

  /** Amount spent, or possibly spent, in credits or base units of a token. */
  spent(unit: Unit = "credits", since = 0): bigint {
    const some = this.payments.filter((p) => p.unit === unit && p.at.getTime() > since);
    return some.reduce((sum, p) => sum + counts(p), 0n);
  }

  /** Records a payment before it is sent. Throws LimitReached. */
  take(p: PaymentRecord): void {
    const l = this.limits;
    if (!l.hosts.some((h) => h.toLowerCase() === p.host.toLowerCase())) {
      throw new LimitReached(`the host ${p.host} is not in the list of allowed hosts`);
    }
    const credits = p.unit === "credits";
    const perCall = (credits ? l.creditsPerCall : l.moneyPerCall) ?? 0n;
    const most = `the request costs up to ${p.most} ${p.unit}`;
    if (p.most > perCall) {
      throw new LimitReached(`${most}, but the limit for one request is ${perCall}`);
    }
    const check = (limit: bigint | undefined, since: number, when: string) => {
      if (limit === undefined) return;
      const left = limit - this.spent(p.unit, since);
      if (p.most > left) {
        const remaining = left > 0n ? left : 0n;
        throw new LimitReached(`${most}, but only ${remaining} of ${limit} remain${when}`);
      }
    };
    check((credits ? l.credits : l.money) ?? 0n, 0, "");
    const perDay = credits ? l.creditsPerDay : l.moneyPerDay;
    check(perDay, p.at.getTime() - dayMs, " (limit per 24 hours)");
    this.#keep(p);
  }

  /** Updates the record of a payment. */
  close(p: PaymentRecord): void {
    if (!this.#payments.has(p.id)) throw new Error(`the payment ${p.id} is unknown`);
    this.#keep(p);
  }

  #keep(p: PaymentRecord): void {
    this.#payments.set(p.id, p);
    this.#told?.(p);
  }
}

/** The data that a wallet signs: TransferWithAuthorization of EIP-3009. */
export interface TransferData {
  domain: { name: string; version: string; chainId: number; verifyingContract: `0x${string}` };
  types: { TransferWithAuthorization: { name: string; type: string }[] };
  primaryType: "TransferWithAuthorization";
  message: {
    from: `0x${string}`;
    to: `0x${string}`;
    value: bigint;
    validAfter: bigint;
    validBefore: bigint;
    nonce: `0x${string}`;
  };
}

/** An account that signs, such as a local account of viem. Its key stays with it. */
export interface Wallet {
  readonly address: string;
  signTypedData(data: TransferData): Promise<string>;
}

/** Ways to pay for requests. If several are set, they are tried in this order. */
export interface BuyOptions {
  /**
   * Client of the workspace that pays with credits. Each request gets a separate access token,
   * which can burn at most the cost of that request and is valid only for the agent that is called.
   */
  toll?: Toll;
  /** An access token that pays for its plan. A server that receives it can use its whole limit. */
  token?: string;
  /** Pays entries of scheme "exact" in USDC and EURC. */
  wallet?: Wallet;
  /** Limits on payments. Default: nothing may be paid. */
  limits?: Limits;
  /** Replaces `limits`, to share limits and records with other buyers. */
  budget?: Budget;
  /** Plans whose credits may be spent; default any. */
  plans?: readonly string[];
  /** Servers that may sell the listed plans although the records of their agents have no host. */
  hosts?: readonly string[];
  /** The only agent to pay. */
  agent?: string;
  /** Lets an access token buy one more order when credits are short. It needs `plans`. */
  delegationId?: string;
}

/** A request whose response requires payment. */
export interface Bill {
  method: string;
  /** The address that was called. */
  url: string;
  /** Path for the record of the payment. */
  path: string;
  challenge: x402.Challenge;
}

/** A payment for a request. */
export interface Made {
  payment: PaymentRecord;
  /** The PaymentPayload. */
  payload: x402.Json;
  /** Whether the payment is in credits. */
  credits: boolean;
}

/** An entry cannot be paid. The message is safe to show. */
class Unpayable extends Error {}

interface Quote {
  unit: Unit;
  planId: string;
  most: bigint;
  /** Creates the payload of the payment. */
  pay(): Promise<{ payload: x402.Json; permissionHash?: string }>;
}

const tokenLifeSecs = 300;
const believedMs = 60_000;
const maxBelieved = 256;
const maxAgents = 100;
const maxEntries = 16;

/** Tokens with 6 decimals, by network and address in lower case. */
const tokens: Record<string, Record<string, Unit>> = {
  "eip155:84532": {
    "0x036cbd53842c5426634e7929541ec2318f3dcf7e": "USDC",
    "0x808456652fdb597867f38412077a9182bf77359f": "EURC",
  },
  "eip155:8453": {
    "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913": "USDC",
    "0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42": "EURC",
  },
};

/** Pays the requests of servers. */
export class Buyer {
  readonly budget: Budget;
  readonly #o: BuyOptions;
  readonly #terms = new Map<string, { plan: Plan; environment: string }>();
  readonly #agents = new Map<string, { here: boolean; elsewhere: string; until: number }>();

  /** Throws a TypeError for invalid options. */
  constructor(o: BuyOptions) {
    if (!o.toll && !o.token && !o.wallet) {
      throw new TypeError("pass toll, token, or wallet: a buyer needs a way to pay");
    }
    if (o.delegationId && !o.plans?.length) {
      throw new TypeError(
        "delegationId requires plans: list the plans that the delegation can buy",
      );
    }
    this.#o = o;
    this.budget = o.budget ?? new Budget(o.limits ?? { hosts: [] });
  }

  /**
   * Chooses an entry, reserves its cost, and creates the payment. If it throws a PaymentError,
   * nothing was sent.
   */
  async pay(bill: Bill): Promise<Made> {
    const { challenge } = bill;
    const host = hostOf(bill.url);
    const resource = x402.object(challenge.resource)?.url;
    if (typeof resource === "string" && !sameServer(bill.url, resource)) {
      const shown = resource.slice(0, 200);
      const reason = `the server requires payment for ${shown}, which is not at ${host}`;
      throw new PaymentError(host, `${reason}: if you trust that URL, call it directly`, {
        challenge,
      });
    }
    const reasons: string[] = [];
    for (const entry of challenge.accepts.slice(0, maxEntries)) {
      let payment: PaymentRecord | undefined;
      try {
        const e = x402.object(entry);
        if (!e) throw new Unpayable("a payment option is not a JSON object");
        const q = await this.#quote(bill.url, e, challenge);
        const record: PaymentRecord = {
          id: `pay_${hex(16)}`, at: new Date(), host, method: bill.method, path: bill.path,
          planId: q.planId, unit: q.unit, most: q.most, spent: 0n, state: "sent",
          transaction: "", permissionHash: "",
        };
        this.budget.take(record);
        payment = record;
        const { payload, permissionHash = "" } = await q.pay();
        payment = { ...record, permissionHash };
        this.budget.close(payment);
        const out = answer(challenge, e, payload, payment.id);
        return { payment, payload: out, credits: q.unit === "credits" };
      } catch (e) {
        if (payment) this.budget.close({ ...payment, state: "refused" });
        reasons.push(e instanceof Error ? e.message : String(e));
      }
    }
    const reason = reasons.join("; ") || "the response offers no way to pay";
    throw new PaymentError(host, reason, { challenge });
  }

  async #quote(called: string, e: x402.Json, challenge: x402.Challenge): Promise<Quote> {
    const { toll, token, wallet } = this.#o;
    if (e.scheme === "exact") {
      if (!wallet) {
        throw new Unpayable("the scheme exact requires a wallet, but no wallet is configured");
      }
      if (x402.object(challenge.extensions)?.["sign-in-with-x"]) {
        throw new Unpayable(
          "the server requires a wallet sign-in (sign-in-with-x), " +
            "which this client does not support",
        );
      }
      return quoteExact(e, wallet);
    }
    const extra = x402.object(e.extra);
    const planId = extra?.planId ?? e.planId;
    if (typeof planId !== "string" || !/^\d{1,78}$/.test(planId)) {
      throw new Unpayable(
        `the scheme '${show(e.scheme)}' is not supported: the payment option has no plan id`,
      );
    }
    if (this.#o.plans?.length && !this.#o.plans.includes(planId)) {
      throw new Unpayable(
        `the server requires credits of plan ${planId}, which is not in the list of allowed plans`,
      );
    }
    if (token) {
      const taken = x402.decodeToken(token);
      const its = x402.object(taken.claims.authorization)?.planId ?? taken.claims.planId;
      if (its === planId) {
        const most = amountOf(e);
        if (most === undefined) throw new Unpayable("the payment option has no amount");
        return {
          unit: "credits",
          planId,
          most,
          pay: async () => ({ payload: creditsPayload(token) }),
        };
      }
      if (!toll) {
        throw new Unpayable(
          `the access token is for plan ${String(its)}, but the server requires plan ${planId}`,
        );
      }
    }
    if (!toll) {
      throw new Unpayable("no client is configured to pay with credits");
    }
    return this.#quoteCredits(toll, called, e, planId, extra?.agentId);
  }

  async #quoteCredits(
    toll: Toll,
    called: string,
    e: x402.Json,
    planId: string,
    named: unknown,
  ): Promise<Quote> {
    const { plan, environment } = await this.#read(toll, planId);
    const card = plan.registry.price.isCrypto === false;
    const scheme = `${toll.namespace.scheme}:${card ? "card-delegation" : "erc4337"}`;
    const chain = environment === "live" ? "eip155:8453" : "eip155:84532";
    const network = card ? `stripe:${environment}` : chain;
    if (e.scheme !== scheme || (e.network !== network && e.network !== network.split(":")[0])) {
      throw new Unpayable(
        `the payment option does not match plan ${planId}, ` +
          `which uses scheme ${scheme} on ${network}`,
      );
    }
    const agent = named ?? this.#o.agent ?? "";
    if (typeof agent !== "string" || !/^\d{0,78}$/.test(agent)) {
      throw new Unpayable("the payment option has an invalid agent id");
    }
    await this.#checkAgent(toll, called, planId, agent);
    let most = amountOf(e) ?? plan.registry.credits.maxAmount ?? 0n;
    const time = plan.accessLimit === "time";
    if (time) most = 0n;
    // An access token without a limit may burn all credits.
    else if (most === 0n) {
      throw new Unpayable(`the payment option costs 0 credits of plan ${planId}`);
    }
    const pay = async () => {
      const t = await toll.tokens.create({
        planId,
        expiresInSecs: tokenLifeSecs,
        ...(most > 0n && { redemptionLimit: most }),
        ...(agent && { agentId: agent }),
        ...(this.#o.delegationId && {
          delegationConfig: { delegationId: this.#o.delegationId },
          orderLimit: 1,
        }),
      });
      return { payload: creditsPayload(t.accessToken), permissionHash: t.permissionHash };
    };
    return { unit: "credits", planId, most, pay };
  }

  async #read(toll: Toll, planId: string): Promise<{ plan: Plan; environment: string }> {
    let terms = this.#terms.get(planId);
    if (!terms) {
      const [plan, { environment }] = await Promise.all([toll.plans.get(planId), toll.meta.info()]);
      if (this.#terms.size >= 1000) this.#terms.clear();
      this.#terms.set(planId, (terms = { plan, environment }));
    }
    return terms;
  }

  /**
   * Rejects an entry whose agent is not registered at the called server: that server could have
   * copied the entry of another server, and would spend the payment there.
   */
  async #checkAgent(toll: Toll, called: string, planId: string, agent: string): Promise<void> {
    const { agent: only, plans, hosts } = this.#o;
    if (only && agent !== only) {
      throw new Unpayable(
        `the server requires payment for agent ${agent}, ` +
          `but this client may pay only agent ${only}`,
      );
    }
    const key = [originOf(called), planId, agent].join();
    let known = this.#agents.get(key);
    if (!known || Date.now() > known.until) {
      known = {
        ...(await registered(toll, called, planId, agent)),
        until: Date.now() + believedMs,
      };
      if (this.#agents.size >= maxBelieved) this.#agents.clear();
      this.#agents.set(key, known);
    }
    if (known.here) return;
    const whose = agent ? `agent ${agent}` : `an agent of plan ${planId}`;
    const host = hostOf(called);
    if (known.elsewhere) {
      throw new Unpayable(
        `${whose} is registered at ${known.elsewhere} and has no endpoint at ${host}`,
      );
    }
    if (plans?.length && hosts?.some((h) => h.toLowerCase() === host)) return;
    throw new Unpayable(
      `cannot verify that ${whose} is served at ${host}: no registered endpoint has a host; ` +
        "if you trust this server, add its plan to plans and its host to hosts",
    );
  }

  /**
   * Reads the outcome of a payment from its receipt, and records it. Credits count as spent unless
   * they are known to be unspent: a receipt for less than the whole amount is checked with the
   * service.
   */
  async finish(made: Made, receipt: x402.Json | undefined, ok: boolean): Promise<PaymentRecord> {
    let p: PaymentRecord = { ...made.payment, state: "unknown" };
    // A stream is settled when it ends. Checking now would revoke its access token.
    if (receipt || !ok) {
      const success = receipt?.success === true;
      const { transaction } = receipt ?? {};
      if (typeof transaction === "string") p = { ...p, transaction };
      const all = success && String(receipt?.creditsRedeemed) === String(p.most);
      const burned = all || !p.permissionHash ? undefined : await this.#burned(p);
      if (burned !== undefined) {
        p = { ...p, state: burned === 0n && !success ? "refused" : "paid", spent: burned };
      } else if (success) p = { ...p, state: "paid", spent: p.most };
    }
    this.budget.close(p);
    return p;
  }

  /** Records a paid request that got no response, and returns its error. */
  lost(made: Made, reason: unknown): PaymentError {
    const payment: PaymentRecord = { ...made.payment, state: "unknown" };
    this.budget.close(payment);
    return new PaymentError(
      payment.host,
      reason instanceof Error ? reason.message : String(reason),
      {
        payment,
      },
    );
  }

  /** Revokes the token and returns the credits that it burned; undefined while it can burn more. */
  async #burned(p: PaymentRecord): Promise<bigint | undefined> {
    const toll = this.#o.toll as Toll;
    try {
      await toll.tokens.revoke(p.permissionHash);
    } catch {
      // the record shows whether it is revoked
    }
    try {
      const record = await toll.tokens.get(p.permissionHash);
      return record.closed ? record.usedCredits : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * Reads the outcome of sent and unknown payments from the service, and records it. It revokes
   * their access tokens: call it while no request is running.
   */
  async check(): Promise<void> {
    for (const p of this.budget.payments) {
      const open =
        (p.state === "sent" || p.state === "unknown") && p.permissionHash && this.#o.toll;
      const burned = open ? await this.#burned(p) : undefined;
      if (burned === undefined) continue;
      this.budget.close({ ...p, state: burned ? "paid" : "refused", spent: burned });
    }
  }
}

const show = (v: unknown): string => String(v).slice(0, 40);

function amountOf(e: x402.Json): bigint | undefined {
  if (e.amount === undefined || e.amount === "") return undefined;
  if (typeof e.amount !== "string" || !/^\d{1,78}$/.test(e.amount)) {
    throw new Unpayable(`the amount '${show(e.amount)}' is not a whole number`);
  }
  return BigInt(e.amount);
}

function creditsPayload(token: string): x402.Json {
  const { jws, claims } = x402.decodeToken(token);
  const { authorization } = claims;
  return {
    signature: jws,
    ...(x402.object(authorization) && { authorization }),
    nonce: hex(16),
  };
}

/** Reads an entry of scheme exact. */
function quoteExact(e: x402.Json, wallet: Wallet): Quote {
  const network = String(e.network);
  const unit = tokens[network]?.[String(e.asset).toLowerCase()];
  if (!unit) {
    throw new Unpayable(`the token ${show(e.asset)} on ${show(network)} is neither USDC nor EURC`);
  }
  const value = amountOf(e);
  if (!value) throw new Unpayable("the payment option has no amount");
  const to = String(e.payTo);
  if (!/^0x[0-9a-f]{40}$/i.test(to) || /^0x0+$/.test(to)) {
    throw new Unpayable(`the receiver ${show(to)} is not a valid address`);
  }
  const { name, version, assetTransferMethod: method } = x402.object(e.extra) ?? {};
  if (method && method !== "eip3009") {
    throw new Unpayable(
      `the transfer method '${show(method)}' is not supported, only EIP-3009`,
    );
  }
  if (typeof name !== "string" || typeof version !== "string" || !name || !version) {
    throw new Unpayable("the payment option has no EIP-712 domain for its token");
  }
  const pay = async () => {
    const now = BigInt(Math.floor(Date.now() / 1000));
    const life = Math.min(Math.max(Number(e.maxTimeoutSeconds) || 0, 60), 3600);
    const message = {
      from: wallet.address as `0x${string}`,
      to: to as `0x${string}`,
      value,
      // For chains whose clock is behind.
      validAfter: now - 600n,
      validBefore: now + BigInt(Math.floor(life)),
      nonce: `0x${hex(32)}` as const,
    };
    const signature = await wallet.signTypedData({
      domain: {
        name,
        version,
        chainId: Number(network.slice("eip155:".length)),
        verifyingContract: String(e.asset) as `0x${string}`,
      },
      types: {
        TransferWithAuthorization: [
          { name: "from", type: "address" },
          { name: "to", type: "address" },
          { name: "value", type: "uint256" },
          { name: "validAfter", type: "uint256" },
          { name: "validBefore", type: "uint256" },
          { name: "nonce", type: "bytes32" },
        ],
      },
      primaryType: "TransferWithAuthorization",
      message,
    });
    const texts = Object.entries(message).map(([n, v]) => [n, String(v)]);
    return { payload: { signature, authorization: Object.fromEntries(texts) as x402.Json } };
  };
  return { unit, planId: "", most: value, pay };
}

/**
 * Returns the PaymentPayload for an entry. Resource, entry, and extensions are echoed unchanged.
 */
function answer(
  challenge: x402.Challenge,
  entry: x402.Json,
  payload: x402.Json,
  id: string,
): x402.Json {
  const extensions = { ...x402.object(challenge.extensions) };
  const ours = x402.object(extensions[x402.identifier]);
  const info = x402.object(ours?.info);
  if (info) extensions[x402.identifier] = { ...ours, info: { ...info, id } };
  const { resource } = challenge;
  return {
    x402Version: 2,
    ...(resource ? { resource } : {}),
    accepted: entry,
    payload,
    extensions,
  };
}

function hex(bytes: number): string {
  const random = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(random, (b) => b.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns whether the agents of an entry are registered at the called server, or at another host.
 */
async function registered(
  toll: Toll,
  called: string,
  planId: string,
  agent: string,
): Promise<{ here: boolean; elsewhere: string }> {
  const agents = agent
    ? [await toll.agents.get(agent)]
    : await toll.plans.agents(planId, { sortOrder: "asc" }).all(maxAgents);
  const servers = agents
    .flatMap((a) => a.endpoints.flatMap((e) => Object.values(e)))
    .map(endpointServer)
    .filter((s) => s !== undefined);
  const here = servers.some((s) => originOf(s) === originOf(called));
  return { here, elsewhere: servers[0] ? hostOf(servers[0]) : "" };
}

/** Returns scheme and host of an endpoint, whose path may contain patterns. */
function endpointServer(endpoint: string): string | undefined {
  const server = /^https?:\/\/[^/\\?#@]+/i.exec(endpoint)?.[0];
  return server && URL.canParse(server) ? server : undefined;
}

const portOf = (u: URL): string => u.port || (u.protocol === "https:" ? "443" : "80");

/** Returns the host of a URL as in Limits.hosts: without the port if it is the default of https. */
export function hostOf(url: string): string {
  const u = new URL(url);
  const host = u.hostname.toLowerCase();
  return u.protocol === "https:" && portOf(u) === "443" ? host : `${host}:${portOf(u)}`;
}

/** Returns scheme, host, and port for comparison. All loopback names count as the same host. */
function originOf(url: string): string {
  const u = new URL(url);
  const loopback = /^(127\.0\.0\.1|\[::1\])$/.test(u.hostname);
  return `${u.protocol}//${loopback ? "localhost" : u.hostname.toLowerCase()}:${portOf(u)}`;
}

/** Reports whether a resource is at the server that was called. */
function sameServer(called: string, resource: string): boolean {
  if (!URL.canParse(resource, called)) return false;
  const u = new URL(resource, called);
  // Calls over MCP have logical addresses.
  if (u.protocol === "mcp:") return true;
  if (u.protocol === "http:" && called.startsWith("https:")) {
    // A server behind a proxy that terminates TLS often reports http.
    return originOf(`https://${u.host.replace(/:80$/, "")}`) === originOf(called);
  }
  return originOf(u.href) === originOf(called);
}
