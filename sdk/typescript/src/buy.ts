// The buyer's side: what a server asks for is paid, once, within limits. The rules are those of the
// Go package client. fetch.ts, mcp.ts and ai.ts carry the payments.
import type { Toll } from "./client.js";
import { BusinessError } from "./error.js";
import type { Plan } from "./generated.js";
import * as x402 from "./x402.js";

/** What a payment is counted in: credits of plans, or base units of a token with 6 decimals. */
export type Unit = "credits" | "USDC" | "EURC";

/**
 * How a payment stands: "sent" is on its way, "paid" was settled, "refused" cost nothing, and
 * "unknown" may have been settled.
 */
export type PaymentState = "sent" | "paid" | "refused" | "unknown";

/** The record of one payment. It has no access token and no query of the URL. */
export interface PaymentRecord {
  readonly id: string;
  readonly at: Date;
  readonly host: string;
  readonly method: string;
  readonly path: string;
  /** Plan whose credits pay; empty for a payment of a wallet. */
  readonly planId: string;
  readonly unit: Unit;
  /** What it can cost. */
  readonly most: bigint;
  /** What a paid one did cost. */
  readonly spent: bigint;
  readonly state: PaymentState;
  readonly transaction: string;
  /** The permission of the access token, by which the service says what was burned. */
  readonly permissionHash: string;
}

/** What may be paid. What is not named may not be paid. */
export interface Limits {
  /**
   * Servers that may be paid: "agent.example.com", "127.0.0.1:8403". A name without a port is
   * reached by https alone.
   */
  hosts: readonly string[];
  /** Credits of one request, in 24 hours, and in all. */
  creditsPerCall?: bigint;
  creditsPerDay?: bigint;
  credits?: bigint;
  /** Base units of USDC and of EURC, each counted by itself: 1000000n is 1.00. */
  moneyPerCall?: bigint;
  moneyPerDay?: bigint;
  money?: bigint;
}

const notPaid = "BCK.X402.0030";

/** A payment is not within the limits. The message is safe to show. */
export class LimitReached extends BusinessError {
  constructor(message: string) {
    super({ code: notPaid, message, category: "business" });
  }
}

/**
 * A request asked for payment and did not get its answer. `payment` is there when a payment was
 * sent: whether the server took it is unknown, and it counts in full. Such a request is not
 * repeated, as the server may have done the work. `code` is "BCK.X402.0030" when nothing was paid,
 * "BCK.X402.0914" when the outcome is unknown.
 */
export class PaymentError extends BusinessError {
  declare readonly host: string;
  declare readonly payment: PaymentRecord | undefined;
  /** What the server asks for. */
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
        ? `a payment to ${host} was sent, and its outcome is not known: ${reason}`
        : `${host} asks for payment, and nothing was paid: ${reason}`,
    });
    Object.assign(this, more, { host });
  }
}

const dayMs = 86_400_000;

/** What a payment takes of the limits: what was spent, or could have been. */
const counts = (p: PaymentRecord): bigint =>
  p.state === "paid" ? p.spent : p.state === "refused" ? 0n : p.most;

/** Decides about payments, and keeps their records as long as the process lives. */
export class Budget {
  readonly limits: Limits;
  readonly #told: ((p: PaymentRecord) => void) | undefined;
  readonly #payments = new Map<string, PaymentRecord>();

  /** `onPayment` receives each record as it changes. */
  constructor(limits: Limits, o: { onPayment?: (p: PaymentRecord) => void } = {}) {
    this.limits = limits;
    this.#told = o.onPayment;
  }

  /** The records, the oldest first. */
  get payments(): readonly PaymentRecord[] {
    return [...this.#payments.values()];
  }

  /** What was, or could have been, spent, in credits or base units of a token. */
  spent(unit: Unit = "credits", since = 0): bigint {
    const some = this.payments.filter((p) => p.unit === unit && p.at.getTime() > since);
    return some.reduce((sum, p) => sum + counts(p), 0n);
  }

  /** Records a payment that is about to be made. Throws LimitReached. */
  take(p: PaymentRecord): void {
    const l = this.limits;
    if (!l.hosts.some((h) => h.toLowerCase() === p.host.toLowerCase())) {
      throw new LimitReached(`the host ${p.host} is not among those that may be paid`);
    }
    const credits = p.unit === "credits";
    const perCall = (credits ? l.creditsPerCall : l.moneyPerCall) ?? 0n;
    const most = `it asks for up to ${p.most} ${p.unit}`;
    if (p.most > perCall) throw new LimitReached(`${most}, and one request may cost ${perCall}`);
    const check = (limit: bigint | undefined, since: number, when: string) => {
      if (limit === undefined) return;
      const left = limit - this.spent(p.unit, since);
      if (p.most > left) {
        throw new LimitReached(`${most}, with ${left > 0n ? left : 0n} left of ${limit}${when}`);
      }
    };
    check((credits ? l.credits : l.money) ?? 0n, 0, "");
    check(credits ? l.creditsPerDay : l.moneyPerDay, p.at.getTime() - dayMs, " in 24 hours");
    this.#keep(p);
  }

  /** Records how a payment stands. */
  close(p: PaymentRecord): void {
    if (!this.#payments.has(p.id)) throw new Error(`no payment ${p.id} was taken`);
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

/** How requests are paid. With more than one way, they are tried in this order. */
export interface BuyOptions {
  /**
   * Client whose account pays with credits. Each request gets an access token of its own, which can
   * burn what that request may cost and is good at the agent that asks.
   */
  toll?: Toll;
  /** An access token that pays for its plan. A server that gets it can use all that it may burn. */
  token?: string;
  /** Pays entries of scheme "exact" in USDC and EURC. */
  wallet?: Wallet;
  /** What may be paid; default nothing. */
  limits?: Limits;
  /** In place of `limits`: shares limits and records with others. */
  budget?: Budget;
  /** Plans whose credits may be spent; default any. */
  plans?: readonly string[];
  /** Servers that may sell the plans named, where the records of their agents name no host. */
  hosts?: readonly string[];
  /** The one agent that is paid. */
  agent?: string;
  /** Lets an access token buy one more order when credits are short. It needs `plans`. */
  delegationId?: string;
}

/** A request that was answered with what it costs. */
export interface Bill {
  method: string;
  /** The address that was called. */
  url: string;
  /** What is recorded as its path. */
  path: string;
  challenge: x402.Challenge;
}

/** A payment that was made for a request. */
export interface Made {
  payment: PaymentRecord;
  /** The PaymentPayload. */
  payload: x402.Json;
  /** Whether a receipt of the whole amount is all there is to know. */
  credits: boolean;
}

/** An entry cannot be paid. The message is safe to show. */
class Unpayable extends Error {}

interface Quote {
  unit: Unit;
  planId: string;
  most: bigint;
  /** Makes the payload of the payment. */
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

/** Pays what servers ask for. */
export class Buyer {
  readonly budget: Budget;
  readonly #o: BuyOptions;
  readonly #terms = new Map<string, { plan: Plan; environment: string }>();
  readonly #agents = new Map<string, { here: boolean; elsewhere: string; until: number }>();

  /** Throws a TypeError for options that cannot be. */
  constructor(o: BuyOptions) {
    if (!o.toll && !o.token && !o.wallet) {
      throw new TypeError("pass toll, token or wallet: one has to pay");
    }
    if (o.delegationId && !o.plans?.length) {
      throw new TypeError("a delegation buys credits of plans that are named: pass plans");
    }
    this.#o = o;
    this.budget = o.budget ?? new Budget(o.limits ?? { hosts: [] });
  }

  /**
   * Chooses an entry, reserves what it costs and makes the payment. Throws a PaymentError: then
   * nothing has left.
   */
  async pay(bill: Bill): Promise<Made> {
    const { challenge } = bill;
    const host = hostOf(bill.url);
    const resource = x402.object(challenge.resource)?.url;
    if (typeof resource === "string" && !sameServer(bill.url, resource)) {
      const reason = `it asks payment for ${resource.slice(0, 200)}, which is not at ${host}`;
      throw new PaymentError(host, `${reason}: call that address itself if you trust it`, {
        challenge,
      });
    }
    const reasons: string[] = [];
    for (const entry of challenge.accepts.slice(0, maxEntries)) {
      let payment: PaymentRecord | undefined;
      try {
        const e = x402.object(entry);
        if (!e) throw new Unpayable("an entry is not an object");
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
    const reason = reasons.join("; ") || "it names no way to pay";
    throw new PaymentError(host, reason, { challenge });
  }

  async #quote(called: string, e: x402.Json, challenge: x402.Challenge): Promise<Quote> {
    const { toll, token, wallet } = this.#o;
    if (e.scheme === "exact") {
      if (!wallet) throw new Unpayable("the scheme exact is paid by a wallet, and there is none");
      if (x402.object(challenge.extensions)?.["sign-in-with-x"]) {
        throw new Unpayable("the server takes a sign-in of the wallet in place of a payment");
      }
      return quoteExact(e, wallet);
    }
    const extra = x402.object(e.extra);
    const planId = extra?.planId ?? e.planId;
    if (typeof planId !== "string" || !/^\d{1,78}$/.test(planId)) {
      throw new Unpayable(`the scheme '${show(e.scheme)}' is not paid: the entry names no plan`);
    }
    if (this.#o.plans?.length && !this.#o.plans.includes(planId)) {
      throw new Unpayable(`it asks for credits of plan ${planId}, which is not to be spent`);
    }
    if (token) {
      const taken = x402.decodeToken(token);
      const its = x402.object(taken.claims.authorization)?.planId ?? taken.claims.planId;
      if (its === planId) {
        const most = amountOf(e);
        if (most === undefined) throw new Unpayable("the entry names no amount");
        return {
          unit: "credits",
          planId,
          most,
          pay: async () => ({ payload: creditsPayload(token) }),
        };
      }
      if (!toll) {
        throw new Unpayable(`the access token is for plan ${String(its)}, and not for ${planId}`);
      }
    }
    if (!toll) throw new Unpayable("it asks for credits, and there is no client to pay them");
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
      throw new Unpayable(`plan ${planId} is of scheme ${scheme} on ${network}`);
    }
    const agent = named ?? this.#o.agent ?? "";
    if (typeof agent !== "string" || !/^\d{0,78}$/.test(agent)) {
      throw new Unpayable("the entry names an agent that is none");
    }
    await this.#checkAgent(toll, called, planId, agent);
    let most = amountOf(e) ?? plan.registry.credits.maxAmount ?? 0n;
    const time = plan.accessLimit === "time";
    if (time) most = 0n;
    // An access token without a limit may burn all there is.
    else if (most === 0n) throw new Unpayable(`it asks for 0 credits of plan ${planId}`);
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
   * Refuses an entry whose agent is not registered at the server that asks: that server could have
   * copied what another one asks for, and would spend the payment there.
   */
  async #checkAgent(toll: Toll, called: string, planId: string, agent: string): Promise<void> {
    const { agent: only, plans, hosts } = this.#o;
    if (only && agent !== only) {
      throw new Unpayable(`it asks payment for agent ${agent}, and only ${only} is to be paid`);
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
        `${whose} is registered at ${known.elsewhere}, and has no endpoint at ${host}`,
      );
    }
    if (plans?.length && hosts?.some((h) => h.toLowerCase() === host)) return;
    throw new Unpayable(
      `nothing says that ${whose} is served at ${host}: no endpoint on record has a host; ` +
        "name the plan and the host if you know that it is",
    );
  }

  /**
   * Reads out of a receipt how a payment ended, and records it. What is not sure to be unspent
   * counts as spent: a receipt that says less than the whole is checked with the service.
   */
  async finish(made: Made, receipt: x402.Json | undefined, ok: boolean): Promise<PaymentRecord> {
    let p: PaymentRecord = { ...made.payment, state: "unknown" };
    // A stream is settled when it ends. To ask now would end its access token.
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

  /** Records a paid request without an answer, and returns the error that says so. */
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

  /** Revokes the token and asks what it has burned; undefined while more can be. */
  async #burned(p: PaymentRecord): Promise<bigint | undefined> {
    const toll = this.#o.toll as Toll;
    try {
      await toll.tokens.revoke(p.permissionHash);
    } catch {
      // whether it is revoked now, the record says
    }
    try {
      const record = await toll.tokens.get(p.permissionHash);
      return record.closed ? record.usedCredits : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * Asks the service what became of payments that are sent or unknown, and records that. It ends
   * their access tokens: call it when no request is under way.
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
  if (!value) throw new Unpayable("the entry names no amount");
  const to = String(e.payTo);
  if (!/^0x[0-9a-f]{40}$/i.test(to) || /^0x0+$/.test(to)) {
    throw new Unpayable(`the receiver ${show(to)} is not an address`);
  }
  const { name, version, assetTransferMethod: method } = x402.object(e.extra) ?? {};
  if (method && method !== "eip3009") {
    throw new Unpayable(
      `it asks for a transfer by '${show(method)}', and wallets sign EIP-3009 here`,
    );
  }
  if (typeof name !== "string" || typeof version !== "string" || !name || !version) {
    throw new Unpayable("the entry does not name the EIP-712 domain of its token");
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

/** Returns the PaymentPayload that pays an entry: the server's words return as they came. */
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

/** Where the agents of an entry are registered. */
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

/** Returns scheme and host of an endpoint, which may hold patterns behind its host. */
function endpointServer(endpoint: string): string | undefined {
  const server = /^https?:\/\/[^/\\?#@]+/i.exec(endpoint)?.[0];
  return server && URL.canParse(server) ? server : undefined;
}

const portOf = (u: URL): string => u.port || (u.protocol === "https:" ? "443" : "80");

/** Names the other side as Limits do: the port is left out where it is that of https. */
export function hostOf(url: string): string {
  const u = new URL(url);
  const host = u.hostname.toLowerCase();
  return u.protocol === "https:" && portOf(u) === "443" ? host : `${host}:${portOf(u)}`;
}

/** Returns scheme, host and port as they are compared. Names of the loopback are one host. */
function originOf(url: string): string {
  const u = new URL(url);
  const loopback = /^(127\.0\.0\.1|\[::1\])$/.test(u.hostname);
  return `${u.protocol}//${loopback ? "localhost" : u.hostname.toLowerCase()}:${portOf(u)}`;
}

/** Reports whether a resource is at the server that was called. */
function sameServer(called: string, resource: string): boolean {
  if (!URL.canParse(resource, called)) return false;
  const u = new URL(resource, called);
  // The calls of MCP have logical addresses.
  if (u.protocol === "mcp:") return true;
  if (u.protocol === "http:" && called.startsWith("https:")) {
    // Behind a proxy that ends TLS many servers do not know better.
    return originOf(`https://${u.host.replace(/:80$/, "")}`) === originOf(called);
  }
  return originOf(u.href) === originOf(called);
}
