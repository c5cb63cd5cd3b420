import {
  Core,
  sleep,
  type Answer,
  type CallOptions,
  type List,
  type ListOptions,
  type Namespace,
  type Query,
  type Repeat,
  type TollOptions,
  TollPromise,
} from "./core.js";
import {
  codes,
  ConflictError,
  errorOf,
  SettlementPendingError,
  TollError,
  ConnectionError,
} from "./errors.js";
import type * as g from "./generated.js";
import { convert, parse } from "./json.js";
import { verifyWebhook, type VerifyOptions } from "./webhooks.js";

class Resource {
  /** @internal */
  protected readonly core: Core;
  constructor(core: Core) {
    this.core = core;
  }
}

/** Which records of a list, by time. */
export interface TimeRange {
  /** From this moment on. */
  since?: Date | string;
  /** Before this moment. */
  until?: Date | string;
}

const listed = (q: object | undefined): Query & ListOptions => ({ ...q }) as Query & ListOptions;

/** Agents: paid services with their endpoints. */
export class Agents extends Resource {
  /** Registers an agent for plans of the caller. */
  register(agent: g.AgentInput, o?: CallOptions): TollPromise<g.AgentRegistered> {
    return this.core.op("registerAgent", [], o, { body: agent });
  }
  /** Registers an agent and a plan for it: both or nothing. */
  registerWithPlan(both: g.AgentPlanInput, o?: CallOptions): TollPromise<g.AgentAndPlanRegistered> {
    return this.core.op("registerAgentWithPlan", [], o, { body: both });
  }
  /** Reads an agent. Needs no key. Errors: NotFoundError. */
  get(agentId: string, o?: CallOptions): TollPromise<g.Agent> {
    return this.core.op("readAgent", [agentId], o);
  }
  /** The caller's agents, the newest first. */
  list(q?: ListOptions, o?: CallOptions): List<g.Agent> {
    return this.core.list("listAgents", [], listed(q), o);
  }
  /** Changes what is named; a list replaces the stored one. */
  update(agentId: string, change: g.AgentUpdate, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("updateAgent", [agentId], o, { body: change });
  }
  /** Reads the agent and changes it; starts over when somebody else changed it, at most 8 times. */
  edit<T>(
    agentId: string,
    change: (agent: g.Agent, o: CallOptions) => Promise<T>,
    o?: CallOptions,
  ): Promise<T> {
    return edit(() => this.get(agentId, o), change, o);
  }
  /** Adds endpoints to those that the agent has. */
  addEndpoints(agentId: string, add: g.EndpointsInput, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("addEndpoints", [agentId], o, { body: add, repeat: "safe" });
  }
  /** Lists the agent, or unlists it: verify is then refused, and open holds still settle. */
  setListed(agentId: string, on: boolean, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("setAgentListed", [agentId, String(on)], o);
  }
  /** Lets a plan pay for the agent. The caller owns both. */
  attachPlan(agentId: string, planId: string, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("attachPlan", [agentId, planId], o, { repeat: "safe" });
  }
  /** Ends that a plan pays for the agent. Errors: AuthError when it is not attached. */
  detachPlan(agentId: string, planId: string, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("detachPlan", [agentId, planId], o);
  }
  /** The plans that pay for an agent. Needs no key. */
  plans(agentId: string, q?: ListOptions, o?: CallOptions): List<g.Plan> {
    return this.core.list("listPlansOfAgent", [agentId], listed(q), o);
  }
  /** Records a part of the work for a request. It burns nothing. */
  recordSubTask(task: g.SubTaskInput, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("recordSubTask", [], o, { body: task });
  }
  /** The recorded parts of a request. */
  subTasks(agentRequestId: string, q?: ListOptions, o?: CallOptions): List<g.SubTask> {
    return this.core.list("listSubTasks", [], { ...listed(q), agentRequestId }, o);
  }
  /** What verify would answer, for a request that nobody makes. It stores nothing. */
  startSimulation(input: g.SimulationInput, o?: CallOptions): TollPromise<g.Simulation> {
    return this.core.op("startSimulation", [], o, { body: input });
  }
  /** The credits that the settlement of such a request would burn. */
  finishSimulation(input: g.SimulationEnd, o?: CallOptions): TollPromise<g.SimulationResult> {
    return this.core.op("finishSimulation", [], o, { body: input });
  }
}

/** Plans: what is bought. Price and credits never change after the registration. */
export class Plans extends Resource {
  /** Registers a plan. `price` and `credit` build its price and its credits. */
  register(plan: g.PlanInput, o?: CallOptions): TollPromise<g.PlanRegistered> {
    return this.core.op("registerPlan", [], o, { body: plan });
  }
  /** Reads a plan. Needs no key. Errors: NotFoundError. */
  get(planId: string, o?: CallOptions): TollPromise<g.Plan> {
    return this.core.op("readPlan", [planId], o);
  }
  /** The caller's plans, the newest first. */
  list(q?: ListOptions, o?: CallOptions): List<g.Plan> {
    return this.core.list("listPlans", [], listed(q), o);
  }
  /** Changes what is named. Errors: ConflictError for price or credits. */
  update(planId: string, change: g.PlanUpdate, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("updatePlan", [planId], o, { body: change });
  }
  /** Reads the plan and changes it; starts over when somebody else changed it, at most 8 times. */
  edit<T>(
    planId: string,
    change: (plan: g.Plan, o: CallOptions) => Promise<T>,
    o?: CallOptions,
  ): Promise<T> {
    return edit(() => this.get(planId, o), change, o);
  }
  /** Lists the plan, or unlists it: no new orders, and credits that exist keep working. */
  setListed(planId: string, on: boolean, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("setPlanListed", [planId, String(on)], o);
  }
  /** The agents that a plan pays for. Needs no key. */
  agents(planId: string, q?: ListOptions, o?: CallOptions): List<g.Agent> {
    return this.core.list("listAgentsOfPlan", [planId], listed(q), o);
  }
  /** What each subscriber has of a plan of the caller. */
  subscribers(planId: string, q?: ListOptions, o?: CallOptions): List<g.Balance> {
    return this.core.list("listSubscribers", [planId], listed(q), o);
  }
  /**
   * Buys the plan for the caller. An order that is still open has no credits yet: `orders.wait`.
   */
  order(planId: string, input: g.OrderInput = {}, o?: CallOptions): TollPromise<g.Order> {
    return this.core.op("orderPlan", [planId], o, { body: input });
  }
  /** Makes an order of a fiat plan and the page on which a person pays it. */
  checkout(planId: string, input: g.CheckoutInput = {}, o?: CallOptions): TollPromise<g.Checkout> {
    return this.core.op("openCheckout", [planId], o, { body: input });
  }
}

/** Which orders. */
export interface OrderQuery extends ListOptions, TimeRange {
  /** "seller" lists orders of the caller's plans; default: those that the caller made. */
  role?: "seller" | "buyer";
  planId?: string;
  subscriber?: string;
}

/** Which requests: those that ended in a range of at most 90 days. */
export interface RequestQuery extends ListOptions, TimeRange {
  role?: "seller" | "buyer";
  planId?: string;
  agentId?: string;
  /** As seller, with `planId`. */
  subscriber?: string;
  /** Default the first three. */
  status?: "settled" | "released" | "lapsed" | "held";
}

/** Which sums, and of what: hours and days are in UTC. */
export interface SumQuery extends ListOptions, TimeRange {
  /** What a row is of, as the operation names it: "hour", "day", "plan", … */
  by?: string;
  planId?: string;
}

/** Orders: purchases of plans. */
export class Orders extends Resource {
  /** What was paid for orders of the caller's plans, summed by currency. */
  revenue(q?: SumQuery, o?: CallOptions): List<g.Revenue> {
    return this.core.list("listRevenue", [], listed(q), o);
  }
  /** An order of the caller, or of a plan of the caller. Errors: NotFoundError. */
  get(orderId: string, o?: CallOptions): TollPromise<g.Order> {
    return this.core.op("readOrder", [orderId], o);
  }
  /** Orders, the newest first. */
  list(q?: OrderQuery, o?: CallOptions): List<g.Order> {
    return this.core.list("listOrders", [], listed(q), o);
  }
  /** Asks for an order until its credits are there or it has failed. Bound it with `signal`. */
  async wait(orderId: string, o?: CallOptions): Promise<g.Order> {
    for (let ms = 100; ; ms = Math.min(2 * ms, 2000)) {
      const order = await this.get(orderId, o);
      if (["confirmed", "final", "failed"].includes(order.status)) return order;
      await sleep(ms, o?.signal);
    }
  }
  /** Gives the money of a card payment back: cents of the order's currency, without them all. */
  refund(orderId: string, amountCents?: bigint, o?: CallOptions): TollPromise<g.Order> {
    const body: g.RefundInput = amountCents === undefined ? {} : { amountCents };
    return this.core.op("refundOrder", [orderId], o, { body });
  }
}

/** Credits of the caller and of subscribers. */
export class Credits extends Resource {
  /** What the caller, or an address, has of a plan. */
  balance(planId: string, address?: string, o?: CallOptions): TollPromise<g.Balance> {
    return address
      ? this.core.op("readBalanceOf", [planId, address], o)
      : this.core.op("readBalance", [planId], o);
  }
  /** What the caller has of each plan. */
  holdings(q?: ListOptions, o?: CallOptions): List<g.Balance> {
    return this.core.list("listHoldings", [], listed(q), o);
  }
  /** What was settled of the caller's plans, or with role "buyer" what the caller used, summed. */
  usage(
    q?: SumQuery & { role?: "seller" | "buyer"; agentId?: string; subscriber?: string },
    o?: CallOptions,
  ): List<g.Usage> {
    return this.core.list("listUsage", [], listed(q), o);
  }
  /** Takes free credits that no payment stands behind from a holder of the caller's own plan. */
  takeBack(
    planId: string,
    amount: bigint,
    holder: string,
    o?: CallOptions,
  ): TollPromise<g.ActResult> {
    return this.core.op("takeBackCredits", [], o, {
      body: { planId, amount, holderAddress: holder },
    });
  }
  /** Grants credits of the caller's own plan; with `secs` they end after so many seconds. */
  mint(
    planId: string,
    receiver: string,
    amount: bigint,
    secs?: bigint,
    o?: CallOptions,
  ): TollPromise<g.ActResult> {
    if (secs === undefined) {
      return this.core.op("mintCredits", [], o, {
        body: { planId, amount, creditsReceiver: receiver },
      });
    }
    const body = {
      planId,
      creditsAmount: amount,
      creditsReceiver: receiver,
      creditsDuration: secs,
    };
    return this.core.op("mintExpirableCredits", [], o, { body });
  }
  /** The proof that a burn is in the mirror on the chain. */
  proof(transaction: string, o?: CallOptions): TollPromise<g.BurnProof> {
    return this.core.op("readProof", [transaction], o);
  }
}

const deprecatedToken = [
  "spendingLimitCents",
  "durationSecs",
  "providerPaymentMethodId",
  "cardId",
  "maxTransactions",
];

/** Access tokens and the permissions behind them. */
export class Tokens extends Resource {
  /**
   * Makes a permission and its access token, which is shown here only. A spending limit, duration
   * or payment method in `delegationConfig` is deprecated: make a delegation and name its id.
   */
  create(input: g.PermissionRequest, o?: CallOptions): TollPromise<g.AccessToken> {
    const config = (input.delegationConfig ?? {}) as Record<string, unknown>;
    if (deprecatedToken.some((name) => config[name] !== undefined)) {
      this.core.deprecated(
        "Spending limit, duration or payment method in tokens.create is deprecated: " +
          "use delegations.create and name delegationId.",
      );
    }
    return this.core.op("createPermission", [], o, { body: input });
  }
  /** A permission with its last 100 settlements. Errors: NotFoundError. */
  get(permissionHash: string, o?: CallOptions): TollPromise<g.Permission> {
    return this.core.op("readPermission", [permissionHash], o);
  }
  /** The caller's permissions. `status` is Active, Revoked, Expired or Exhausted. */
  list(
    q?: ListOptions & { planId?: string; status?: string },
    o?: CallOptions,
  ): List<g.Permission> {
    return this.core.list("listPermissions", [], listed(q), o);
  }
  /** Ends an access token. Open holds of it still settle. */
  revoke(permissionHash: string, o?: CallOptions): TollPromise<g.PermissionRevoked> {
    return this.core.op("revokePermission", [permissionHash], o);
  }
}

/** Delegations: limits on the money that access tokens may spend. */
export class Delegations extends Resource {
  /** Makes a delegation, whose limit is in cents. */
  create(input: g.DelegationInput, o?: CallOptions): TollPromise<g.DelegationCreated> {
    return this.core.op("createDelegation", [], o, { body: input });
  }
  /** A delegation of the caller. Errors: NotFoundError. */
  get(delegationId: string, o?: CallOptions): TollPromise<g.Delegation> {
    return this.core.op("readDelegation", [delegationId], o);
  }
  /** The caller's delegations; `accessible` keeps those that this key can spend now. */
  list(q?: ListOptions & { accessible?: boolean }, o?: CallOptions): List<g.Delegation> {
    return this.core.list("listDelegations", [], listed(q), o);
  }
  /** Hands in what the owner of an account signed. */
  sign(
    delegationId: string,
    signature: g.DelegationSignature,
    o?: CallOptions,
  ): TollPromise<g.Delegation> {
    return this.core.op("signDelegation", [delegationId], o, { body: signature, repeat: "safe" });
  }
  /** Ends a delegation and the permissions that use it. */
  revoke(delegationId: string, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("revokeDelegation", [delegationId], o, { repeat: "safe" });
  }
  /** Lets a delegation pay again that was frozen after declined charges or a dispute. */
  unfreeze(delegationId: string, o?: CallOptions): TollPromise<g.Delegation> {
    return this.core.op("unfreezeDelegation", [delegationId], o, { repeat: "safe" });
  }
  /** What a delegation paid, or was to pay. */
  transactions(
    delegationId: string,
    q?: ListOptions,
    o?: CallOptions,
  ): List<g.DelegationTransaction> {
    return this.core.list("listDelegationTransactions", [delegationId], listed(q), o);
  }
}

/** Cards and the wallet of the caller. */
export class PaymentMethods extends Resource {
  /** The cards and then the wallet. `provider` is "stripe" or "erc4337". */
  list(
    q?: { accessible?: boolean; provider?: string },
    o?: CallOptions,
  ): TollPromise<g.PaymentMethod[]> {
    return this.core.op("listPaymentMethods", [], o, { query: { ...q } });
  }
  /** Changes the alias, at most 100 characters, and the keys that may use it. */
  update(id: string, change: g.PaymentMethodChange, o?: CallOptions): TollPromise<g.PaymentMethod> {
    return this.core.op("updatePaymentMethod", [id], o, { body: change });
  }
  /** Revokes a card and the delegations on it. */
  remove(id: string, o?: CallOptions): TollPromise<g.PaymentMethodRemoved> {
    return this.core.op("deletePaymentMethod", [id], o);
  }
}

/** A verdict of verify: a refusal is a value, not an error. */
export type Verdict = g.VerifyResponse & { code?: string };
/** The answer of a settle that was carried out or refused. */
export type Receipt = g.SettleResponse;

const aboutTheCall = ["", "rate_limited", "unauthorized_server"];

const byId = <T>(input: T | string): T | { agentRequestId: string } =>
  typeof input === "string" ? { agentRequestId: input } : input;

/** Verify, settle, release and renew: what a seller calls. */
export class Payments extends Resource {
  /**
   * Asks whether a request is payable; with `hold` the credits are set aside. A refusal is a
   * verdict with isValid false. Errors: those of the call, such as a key that is not the plan
   * owner's.
   */
  verify(input: g.VerifyRequest | g.StockRequest, o?: CallOptions): TollPromise<Verdict> {
    const spec = "x402AccessToken" in input ? input : undefined;
    // A hold whose answer was lost is in flight, and a repeat would be refused for that.
    const repeat: Repeat = !spec
      ? "refused"
      : !spec.hold
        ? "safe"
        : spec.agentRequestId
          ? "refused"
          : "never";
    return new TollPromise(
      this.#judged<Verdict>(
        "/api/v1/x402/verify",
        input,
        "VerifyResponse",
        repeat,
        o,
        (b, status) => {
          const reason = String(b.invalidReason ?? "");
          if (status === 503 || aboutTheCall.includes(reason)) return undefined;
          return { ...b, isValid: false, invalidMessage: b.invalidMessage ?? b.message };
        },
      ),
    );
  }

  /**
   * Burns credits, once for each agentRequestId. A refusal is a receipt with success false. When
   * the outcome is not known the error is a SettlementPendingError: repeat the call with the same
   * id.
   */
  settle(input: g.SettleRequest | g.StockRequest, o?: CallOptions): TollPromise<Receipt> {
    const spec = "x402AccessToken" in input ? input : undefined;
    const id = spec?.agentRequestId;
    // The repeat of a stock body is a duplicate unless a verify opened the request.
    const repeat: Repeat = !spec ? "refused" : id ? "safe" : "never";
    const pending = (cause: unknown) =>
      new SettlementPendingError(
        {
          code: codes.settlementPending,
          message: "The outcome of the settlement is not known yet.",
          hint:
            "Repeat the call with the same agentRequestId, or read payments.get(agentRequestId).",
          status: 503,
          category: "integration",
          retryable: true,
          cause,
        },
        id,
      );
    const run = this.#judged<Receipt>(
      "/api/v1/x402/settle",
      input,
      "SettleResponse",
      repeat,
      o,
      (b, status) => {
        const reason = String(b.errorReason ?? "");
        if (reason === "settlement_pending") throw pending(undefined);
        if (aboutTheCall.includes(reason) || status === 503) return undefined;
        return { ...b, success: false, errorMessage: b.errorMessage ?? b.message };
      },
    ).catch((e: unknown) => {
      const lost = e instanceof ConnectionError || (e instanceof TollError && e.status >= 500);
      throw lost && !(e instanceof SettlementPendingError) ? pending(e) : e;
    });
    return new TollPromise(run);
  }

  /** Gives a hold back without a burn. A repeat gets the same answer. */
  release(
    input: g.ReleaseRequest | g.StockRequest | string,
    o?: CallOptions,
  ): TollPromise<g.ReleaseResponse> {
    return this.core.op("release", [], o, { body: byId(input), repeat: "safe" });
  }

  /**
   * Moves the end of an open hold to `holdSecs` (1 to 900, default 60) from now, at most to 24
   * hours after it began. A repeat is harmless.
   */
  renew(input: g.RenewRequest | string, o?: CallOptions): TollPromise<g.RenewResponse> {
    return this.core.op("renew", [], o, { body: byId(input), repeat: "safe" });
  }

  /** The outcome of a request; its plan's owner and its subscriber may read it. */
  get(agentRequestId: string, o?: CallOptions): TollPromise<g.Settlement> {
    return this.core.op("readSettlement", [agentRequestId], o);
  }
  /** The outcome of the request whose receipt names this transaction. */
  findByTransaction(transaction: string, o?: CallOptions): TollPromise<g.Settlement> {
    return this.core.op("findSettlement", [], o, { query: { transaction } });
  }
  /** The payments that the service takes. Needs no key. */
  supported(o?: CallOptions): TollPromise<g.Supported> {
    return this.core.op("supported", [], o);
  }
  /** What can be paid for through the service. */
  resources(q: Query = {}, o?: CallOptions): TollPromise<g.Catalogue> {
    return this.core.op("listResources", [], o, { query: q });
  }
  /** What can be paid for and has all the words, at most 16, in its names or URL. */
  searchResources(query: string, q: Query = {}, o?: CallOptions): TollPromise<g.FoundResources> {
    return this.core.op("searchResources", [], o, { query: { ...q, query } });
  }
  /** Signs what a server of the caller asks for, so that clients can prove it later. */
  signOffers(input: g.OffersRequest, o?: CallOptions): TollPromise<g.OffersResponse> {
    return this.core.op("signOffers", [], o, { body: input, repeat: "safe" });
  }

  /**
   * Requests of the caller's plans, or with role "buyer" of the caller, that have ended, with their
   * receipts.
   */
  requests(q?: RequestQuery, o?: CallOptions): List<g.Settlement> {
    return this.core.list("listRequests", [], listed(q), o);
  }
  /** One request with the states that it took. */
  request(agentRequestId: string, o?: CallOptions): TollPromise<g.RequestRecord> {
    return this.core.op("readRequest", [agentRequestId], o);
  }
  /** How often verify and settle of the caller's plans were refused. */
  refusals(q?: SumQuery & { agentId?: string }, o?: CallOptions): List<g.Refusals> {
    return this.core.list("listRefusals", [], listed(q), o);
  }

  async #judged<T>(
    path: string,
    body: unknown,
    shape: string,
    repeat: Repeat,
    o: CallOptions | undefined,
    refusal: (body: Record<string, unknown>, status: number) => Record<string, unknown> | undefined,
  ): Promise<Answer<T>> {
    const a = await this.core.send({ method: "POST", path, body, repeat }, o);
    const b = (a.raw ?? {}) as Record<string, unknown>;
    const status = a.response.status;
    if (status === 200) {
      if (b.success === false && b.errorReason === "settlement_pending") refusal(b, status);
      return { ...a, data: convert(b, shape) as T };
    }
    const verdict = [400, 402, 403, 404, 409, 429, 503].includes(status)
      ? refusal(b, status)
      : undefined;
    if (!verdict) throw errorOf(status, a.response.headers, a.raw);
    return { ...a, data: convert(verdict, shape) as T };
  }
}

/** Events: what happened to what the caller has. */
export class Events extends Resource {
  /** Events about the account of the caller. */
  list(q?: ListOptions & TimeRange & { type?: g.EventFilter }, o?: CallOptions): List<g.Event> {
    return this.core.list("listEvents", [], listed(q), o);
  }
  /**
   * Events as they happen, each once and in order, from after `lastEventId`, else from now on. A
   * connection that breaks is made again and continues where it broke. End it with `break` or
   * `signal`. Errors: a refusal of the service.
   */
  async *stream(
    q: { lastEventId?: string; type?: g.EventFilter } = {},
    o: CallOptions = {},
  ): AsyncGenerator<g.Event, void, undefined> {
    let last = q.lastEventId;
    for (let attempt = 0; ; attempt++) {
      const silent = new AbortController();
      const signal = o.signal ? AbortSignal.any([o.signal, silent.signal]) : silent.signal;
      let wait = Math.random() * Math.min(5000, 200 * 2 ** Math.min(attempt, 8));
      try {
        const headers = last ? { ...o.headers, "last-event-id": last } : { ...o.headers };
        const call = {
          method: "GET",
          path: "/api/v1/events/stream",
          repeat: "safe" as const,
          query: { type: q.type },
        };
        const response = await this.core.open(call, { ...o, headers, signal });
        for await (const m of messages(response, () => silent.abort())) {
          attempt = 0;
          yield parse(m.data) as g.Event;
          last = m.id || last;
        }
      } catch (e) {
        if (o.signal?.aborted) return;
        const passing = e instanceof TollError && [0, 429, 502, 503, 504].includes(e.status);
        if (e instanceof TollError && !passing) throw e;
        if (e instanceof SyntaxError) throw e;
        if (e instanceof TollError && e.retryAfterSecs) wait = e.retryAfterSecs * 1000;
      } finally {
        silent.abort();
      }
      try {
        await sleep(wait, o.signal);
      } catch {
        return;
      }
    }
  }
}

const maxEvent = 4 << 20;
const maxSilence = 120_000;

/** Reads server-sent events. `silent` ends the connection after two minutes without a byte. */
async function* messages(
  response: Response,
  silent: () => void,
): AsyncGenerator<{ id: string; data: string }, void, undefined> {
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let text = "";
  let id = "";
  let data: string[] = [];
  try {
    for (;;) {
      const timer = setTimeout(silent, maxSilence);
      const part = await reader.read().finally(() => clearTimeout(timer));
      if (part.done) return;
      text += decoder.decode(part.value, { stream: true });
      if (text.length > maxEvent) throw new SyntaxError("an event is longer than 4 MiB");
      for (let end: number; (end = text.indexOf("\n")) >= 0; ) {
        const line = text.slice(0, end).replace(/\r$/, "");
        text = text.slice(end + 1);
        const [name, value] = [
          line.split(":", 1)[0],
          line.slice(line.indexOf(":") + 1).replace(/^ /, ""),
        ];
        if (line === "") {
          if (data.length) yield { id, data: data.join("\n") };
          data = [];
        } else if (name === "data") data.push(value);
        else if (name === "id") id = value;
      }
    }
  } finally {
    // Not awaited: half of a body that somebody cloned is only cancelled with the other half.
    reader.cancel().catch(() => undefined);
  }
}

/** Webhooks: events sent to a URL of yours. */
export class Webhooks extends Resource {
  /** The answer is the only place where the secret is. */
  create(input: g.WebhookInput, o?: CallOptions): TollPromise<g.WebhookSecret> {
    return this.core.op("createWebhook", [], o, { body: input });
  }
  /** Reads a webhook, without its secret. Errors: NotFoundError. */
  get(id: string, o?: CallOptions): TollPromise<g.Webhook> {
    return this.core.op("readWebhook", [id], o);
  }
  /** The caller's webhooks. */
  list(q?: ListOptions & { status?: string }, o?: CallOptions): List<g.Webhook> {
    return this.core.list("listWebhooks", [], listed(q), o);
  }
  /** Changes URL, types, description, or status: "paused" or "active". */
  update(id: string, change: g.WebhookChange, o?: CallOptions): TollPromise<g.Webhook> {
    return this.core.op("updateWebhook", [id], o, { body: change });
  }
  /** Ends a webhook; what is on its way to it is not sent any more. */
  delete(id: string, o?: CallOptions): TollPromise<g.WebhookDeleted> {
    return this.core.op("deleteWebhook", [id], o);
  }
  /** Gives a new secret. For 24 hours deliveries are signed with both. */
  rotate(id: string, o?: CallOptions): TollPromise<g.WebhookSecret> {
    return this.core.op("rotateWebhook", [id], o);
  }
  /** Sends a test event. */
  test(id: string, o?: CallOptions): TollPromise<g.WebhookDelivery> {
    return this.core.op("testWebhook", [id], o);
  }
  /** What was sent to a webhook, or is to be. */
  deliveries(
    id: string,
    q?: ListOptions & { status?: string },
    o?: CallOptions,
  ): List<g.WebhookDelivery> {
    return this.core.list("listDeliveries", [id], listed(q), o);
  }
  /** Sends a delivery once more. */
  resend(id: string, deliveryId: string, o?: CallOptions): TollPromise<g.WebhookDelivery> {
    return this.core.op("resendDelivery", [id, deliveryId], o);
  }
  /** Checks a delivery, see verifyWebhook. */
  verify(
    body: string | Uint8Array,
    headers: Headers | Record<string, string | string[] | undefined>,
    secrets: string | readonly string[],
    o: VerifyOptions = {},
  ): Promise<g.Event> {
    return verifyWebhook(body, headers, secrets, { namespace: this.core.namespace, ...o });
  }
}

/** API keys. */
export class Keys extends Resource {
  /** The answer is the only place where the key is. */
  create(input: g.KeyInput = {}, o?: CallOptions): TollPromise<g.APIKey> {
    return this.core.op("createKey", [], o, { body: input });
  }
  /** The record of a key, without its text. Errors: NotFoundError. */
  get(id: string, o?: CallOptions): TollPromise<g.APIKey> {
    return this.core.op("readKey", [id], o);
  }
  /** The last 200 calls of a key that the answering process of the service knows. */
  recentCalls(id: string, o?: CallOptions): TollPromise<g.RecentCalls> {
    return this.core.op("readKeyCalls", [id], o);
  }
  /** The caller's keys, without their texts. */
  list(q?: ListOptions, o?: CallOptions): List<g.APIKey> {
    return this.core.list("listKeys", [], listed(q), o);
  }
  /** Changes the name or the pinned API version of a key. */
  update(id: string, change: g.KeyChange, o?: CallOptions): TollPromise<g.APIKey> {
    return this.core.op("updateKey", [id], o, { body: change });
  }
  /** Makes a key in the place of another one, which works for `overlapSecs` more. */
  rotate(id: string, input: g.RotateInput, o?: CallOptions): TollPromise<g.KeyRotated> {
    return this.core.op("rotateKey", [id], o, { body: input });
  }
  /** Ends a key and what it made; with `keep` the caller's key becomes the parent of that. */
  revoke(id: string, keep = false, o?: CallOptions): TollPromise<g.KeyRevoked> {
    return this.core.op("revokeKey", [id], o, keep ? { query: { keep } } : {});
  }
}

/** The wallet that the service keeps for the caller. */
export class Wallet extends Resource {
  /** Address and balances, none while the chain cannot be read. */
  get(o?: CallOptions): TollPromise<g.Wallet> {
    return this.core.op("readWallet", [], o);
  }
  /** Returns the private key, once. Whoever has it can spend what is in the wallet. */
  export(o?: CallOptions): TollPromise<g.WalletKey> {
    return this.core.op("exportWallet", [], o);
  }
}

/** Aids of a sandbox. */
export class Sandbox extends Resource {
  /** The time of the sandbox. */
  clock(o?: CallOptions): TollPromise<g.Clock> {
    return this.core.op("readClock", [], o);
  }
  /** Moves the time of the sandbox forward, in seconds. Needs the key of an operator. */
  advanceClock(advanceSecs: number, o?: CallOptions): TollPromise<g.Clock> {
    return this.core.op("advanceClock", [], o, { body: { advanceSecs } });
  }
  /** Fills an account with money of the embedded chain. */
  faucet(input: g.FaucetInput = {}, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("useFaucet", [], o, { body: input });
  }
}

/** What the service says about itself. */
export class Meta extends Resource {
  /** Release, environment, network and addresses. Needs no key. */
  info(o?: CallOptions): TollPromise<g.Info> {
    return this.core.op("readInfo", [], o);
  }
  /** Whether the process lives. Needs no key. */
  health(o?: CallOptions): TollPromise<g.Health> {
    return this.core.op("readHealth", [], o);
  }
  /** not_ready is an answer, not an error. */
  ready(o?: CallOptions): TollPromise<g.Readiness> {
    const run = this.core.send({ method: "GET", path: "/ready", repeat: "never" }, o).then((a) => {
      const body = a.raw as g.Readiness | undefined;
      if (!body?.status) throw errorOf(a.response.status, a.response.headers, a.raw);
      return { ...a, data: body };
    });
    return new TollPromise(run);
  }
  /** The API versions, and the one that this client gets. */
  versions(o?: CallOptions): TollPromise<g.Versions> {
    return this.core.op("readVersions", [], o);
  }
  /** Records of the caller whose id or name begins with a text, 20 of each type. */
  search(q: string, type?: string, o?: CallOptions): TollPromise<g.SearchResults> {
    return this.core.op("search", [], o, { query: { q, type } });
  }
  /** What was done in the workspace, by whom and from where. */
  auditLog(q?: ListOptions & TimeRange & { act?: string }, o?: CallOptions): List<g.Act> {
    return this.core.list("listAuditLog", [], listed(q), o);
  }
  /** The workspaces of a person; that of an API key is the only one. */
  organizations(q?: ListOptions, o?: CallOptions): List<g.Organization> {
    return this.core.list("listOrganizations", [], listed(q), o);
  }
}

/**
 * The session of a person, who signs in with a password. A client with its token as `apiKey` and a
 * `workspace` calls as this person:
 *
 *     const { token, organizations } = await new Toll().session.signIn("alice", password);
 *     const toll = new Toll({ apiKey: token, workspace: organizations[0].id });
 */
export class Sessions extends Resource {
  /** Makes a person with a workspace of their own; an invitation's link joins its workspace too. */
  signUp(person: g.SignUpInput, o?: CallOptions): TollPromise<g.SignedIn> {
    return this.core.op("signUp", [], o, { body: person });
  }
  /** Signs in. `token` is in this answer only. */
  signIn(login: string, password: string, o?: CallOptions): TollPromise<g.SignedIn> {
    return this.core.op("signIn", [], o, { body: { login, password } });
  }
  /** The session of the client, its person and their workspaces. */
  get(o?: CallOptions): TollPromise<g.SignedIn> {
    return this.core.op("readSession", [], o);
  }
  /** Proves the password once more: for ten minutes the session may change who has access. */
  prove(password: string, o?: CallOptions): TollPromise<g.Session> {
    return this.core.op("proveSession", [], o, { body: { password } });
  }
  /** Ends the session of the client. */
  signOut(o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("signOut", [], o);
  }
  /** Where the person is signed in. */
  list(q?: ListOptions, o?: CallOptions): List<g.Session> {
    return this.core.list("listSessions", [], listed(q), o);
  }
  /** Ends one session of the person. */
  end(sessionId: string, o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("endSession", [sessionId], o);
  }
  /** How the person signs in. */
  credentials(q?: ListOptions, o?: CallOptions): List<g.Credential> {
    return this.core.list("listCredentials", [], listed(q), o);
  }
  /** Removes a credential, never the last one; all other sessions of the person end. */
  removeCredential(credentialId: string, o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("removeCredential", [credentialId], o);
  }
  /** Makes ten recovery codes in place of those from before. They are in this answer only. */
  renewRecoveryCodes(o?: CallOptions): TollPromise<g.RecoveryCodes> {
    return this.core.op("renewRecoveryCodes", [], o);
  }
}

/** People of the workspace. The calls take the session of a person, not an API key. */
export class Members extends Resource {
  /** The members of the workspace. */
  list(q?: ListOptions, o?: CallOptions): List<g.Member> {
    return this.core.list("listMembers", [], listed(q), o);
  }
  /** Gives a member a role. */
  setRole(userId: string, role: g.RoleInput["role"], o?: CallOptions): TollPromise<g.Member> {
    return this.core.op("setRole", [userId], o, { body: { role } });
  }
  /**
   * Limits what a developer has the workspace pay in a calendar month (UTC), in cents of dollars
   * and euros alike. null takes the limit away.
   */
  setSpendLimit(userId: string, cents: bigint | null, o?: CallOptions): TollPromise<g.Member> {
    return this.core.op("setRole", [userId], o, { body: { spendLimitCents: cents } });
  }
  /** Removes a member, or with "me" leaves. With `keep`, keys and consents go to the caller. */
  remove(userId: string, keep = false, o?: CallOptions): TollPromise<g.Removed> {
    return this.core.op("removeMember", [userId], o, { query: keep ? { keep } : {} });
  }
  /** The workspace of the call, with its address and the time of its creation. */
  workspace(workspace: string, o?: CallOptions): TollPromise<g.WorkspaceRecord> {
    return this.core.op("readWorkspace", [workspace], o);
  }
  /** Names the workspace of the call for its members; "" takes the name away. */
  renameWorkspace(workspace: string, name: string, o?: CallOptions): TollPromise<g.Organization> {
    return this.core.op("renameWorkspace", [workspace], o, { body: { name } });
  }
  /** Deletes the workspace of the call: its members, keys and consents end. Records stay. */
  deleteWorkspace(workspace: string, o?: CallOptions): TollPromise<g.WorkspaceDeleted> {
    return this.core.op("deleteWorkspace", [workspace], o);
  }
  /** Where a member is signed in. */
  sessions(userId: string, q?: ListOptions, o?: CallOptions): List<g.Session> {
    return this.core.list("listMemberSessions", [userId], listed(q), o);
  }
  /** Ends all sessions of a member, who can sign in again. */
  endSessions(userId: string, o?: CallOptions): TollPromise<g.EndedSessions> {
    return this.core.op("endMemberSessions", [userId], o);
  }
  /** Makes a link with which one person joins. It is in this answer only. */
  invite(invitation: g.InvitationInput, o?: CallOptions): TollPromise<g.Invitation> {
    return this.core.op("createInvitation", [], o, { body: invitation });
  }
  /** The open invitations, without their links. */
  invitations(q?: ListOptions, o?: CallOptions): List<g.Invitation> {
    return this.core.list("listInvitations", [], listed(q), o);
  }
  /** Ends an open invitation. */
  revokeInvitation(id: string, o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("revokeInvitation", [id], o);
  }
  /** Joins the workspace of an invitation, by its link. */
  accept(link: string, o?: CallOptions): TollPromise<g.Organization> {
    return this.core.op("acceptInvitation", [], o, { body: { link } });
  }
}

/**
 * A client of one service with one API key. It sends nothing until a method is called, and is safe
 * to share.
 *
 *     const toll = new Toll();                        // TOLL_URL and TOLL_API_KEY
 *     const { planId } = await toll.plans.register({
 *       name: "100 calls", priceConfig: price.free(), creditsConfig: credit.fixed(100n),
 *     });
 */
export class Toll {
  readonly agents: Agents;
  readonly plans: Plans;
  readonly orders: Orders;
  readonly credits: Credits;
  readonly tokens: Tokens;
  readonly delegations: Delegations;
  readonly paymentMethods: PaymentMethods;
  readonly payments: Payments;
  readonly events: Events;
  readonly webhooks: Webhooks;
  readonly keys: Keys;
  readonly wallet: Wallet;
  readonly sandbox: Sandbox;
  readonly meta: Meta;
  readonly session: Sessions;
  readonly members: Members;
  /** Address of the service, without /api/v1. */
  readonly url: string;
  /** Words of the brand on the wire. */
  readonly namespace: Namespace;
  readonly #core: Core;

  constructor(o: TollOptions = {}) {
    const core = new Core(o);
    this.#core = core;
    this.url = core.base;
    this.namespace = core.namespace;
    this.agents = new Agents(core);
    this.plans = new Plans(core);
    this.orders = new Orders(core);
    this.credits = new Credits(core);
    this.tokens = new Tokens(core);
    this.delegations = new Delegations(core);
    this.paymentMethods = new PaymentMethods(core);
    this.payments = new Payments(core);
    this.events = new Events(core);
    this.webhooks = new Webhooks(core);
    this.keys = new Keys(core);
    this.wallet = new Wallet(core);
    this.sandbox = new Sandbox(core);
    this.meta = new Meta(core);
    this.session = new Sessions(core);
    this.members = new Members(core);
  }

  /**
   * Calls an operation that has no method here. `path` begins with "/", `body` is sent as JSON. A
   * GET is repeated when that is safe, others only with an idempotencyKey.
   */
  request<T = unknown>(
    method: string,
    path: string,
    o: CallOptions & { query?: Query; body?: unknown; rawBody?: string } = {},
  ): TollPromise<T> {
    const { query, body, rawBody, ...rest } = o;
    const repeat = method === "GET" || method === "HEAD" || o.idempotencyKey ? "safe" : "never";
    return this.#core.promise<T>({ method, path, query, body, rawBody, repeat }, rest);
  }
}

const maxEdits = 8;

async function edit<R extends { version: number }, T>(
  read: () => PromiseLike<R>,
  change: (record: R, o: CallOptions) => Promise<T>,
  o: CallOptions | undefined,
): Promise<T> {
  for (let n = 1; ; n++) {
    const record = await read();
    try {
      return await change(record, { ...o, ifMatch: record.version });
    } catch (e) {
      const changed = e instanceof ConflictError && e.code === codes.recordChanged;
      if (!changed || n === maxEdits) throw e;
      await sleep(Math.random() * Math.min(1000, 10 * 2 ** n), o?.signal);
    }
  }
}
