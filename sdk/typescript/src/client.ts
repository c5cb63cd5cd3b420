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

/** A time range of records. */
export interface TimeRange {
  /** Start of the range, inclusive. */
  since?: Date | string;
  /** End of the range, exclusive. */
  until?: Date | string;
}

const listed = (q: object | undefined): Query => ({ ...q }) as Query;

/** Order of a list: by creation or by the last change. */
export type SortByTime = "created" | "updated";
/** Order of a list: by creation, by the last change, or by name. */
export type SortByName = SortByTime | "name";

/** Agents: paid services with their endpoints. */
export class Agents extends Resource {
  /** Registers an agent for plans of the caller. */
  register(agent: g.AgentInput, o?: CallOptions): TollPromise<g.AgentRegistered> {
    return this.core.op("registerAgent", [], o, { body: agent });
  }
  /** Registers an agent and a plan for it, atomically. */
  registerWithPlan(both: g.AgentPlanInput, o?: CallOptions): TollPromise<g.AgentAndPlanRegistered> {
    return this.core.op("registerAgentWithPlan", [], o, { body: both });
  }
  /** Reads an agent. Needs no key. Errors: NotFoundError. */
  get(agentId: string, o?: CallOptions): TollPromise<g.Agent> {
    return this.core.op("readAgent", [agentId], o);
  }
  /** The caller's agents, newest first. */
  list(q?: ListOptions<SortByName>, o?: CallOptions): List<g.Agent> {
    return this.core.list("listAgents", [], listed(q), o);
  }
  /** Changes the given members; a list replaces the stored list. */
  update(agentId: string, change: g.AgentUpdate, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("updateAgent", [agentId], o, { body: change });
  }
  /** Reads the agent and changes it. Retries up to 8 times if the agent changed in between. */
  edit<T>(
    agentId: string,
    change: (agent: g.Agent, o: CallOptions) => Promise<T>,
    o?: CallOptions,
  ): Promise<T> {
    return edit(() => this.get(agentId, o), change, o);
  }
  /** Adds endpoints to the agent. */
  addEndpoints(agentId: string, add: g.EndpointsInput, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("addEndpoints", [agentId], o, { body: add, repeat: "safe" });
  }
  /**
   * Lists or unlists the agent. For an unlisted agent verify is refused; open holds still settle.
   */
  setListed(agentId: string, on: boolean, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("setAgentListed", [agentId, String(on)], o);
  }
  /** Lets a plan pay for the agent. The caller owns both. */
  attachPlan(agentId: string, planId: string, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("attachPlan", [agentId, planId], o, { repeat: "safe" });
  }
  /** Detaches a plan from the agent. Errors: AuthError if it is not attached. */
  detachPlan(agentId: string, planId: string, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("detachPlan", [agentId, planId], o);
  }
  /** The plans that pay for an agent. Needs no key. */
  plans(agentId: string, q?: ListOptions<SortByName>, o?: CallOptions): List<g.Plan> {
    return this.core.list("listPlansOfAgent", [agentId], listed(q), o);
  }
  /** Records a part of the work for a request. It burns no credits. */
  recordSubTask(task: g.SubTaskInput, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("recordSubTask", [], o, { body: task });
  }
  /** The recorded parts of a request. */
  subTasks(agentRequestId: string, q?: ListOptions, o?: CallOptions): List<g.SubTask> {
    return this.core.list("listSubTasks", [], { ...listed(q), agentRequestId }, o);
  }
  /** Returns the response of verify for a simulated request. It stores nothing. */
  startSimulation(input: g.SimulationInput, o?: CallOptions): TollPromise<g.Simulation> {
    return this.core.op("startSimulation", [], o, { body: input });
  }
  /** Returns the credits that the settlement of a simulated request would burn. */
  finishSimulation(input: g.SimulationEnd, o?: CallOptions): TollPromise<g.SimulationResult> {
    return this.core.op("finishSimulation", [], o, { body: input });
  }
}

/** Plans that subscribers buy. Price and credits cannot change after registration. */
export class Plans extends Resource {
  /** Registers a plan. `price` and `credit` build its price and its credits. */
  register(plan: g.PlanInput, o?: CallOptions): TollPromise<g.PlanRegistered> {
    return this.core.op("registerPlan", [], o, { body: plan });
  }
  /** Reads a plan. Needs no key. Errors: NotFoundError. */
  get(planId: string, o?: CallOptions): TollPromise<g.Plan> {
    return this.core.op("readPlan", [planId], o);
  }
  /** The caller's plans, newest first. */
  list(q?: ListOptions<SortByName>, o?: CallOptions): List<g.Plan> {
    return this.core.list("listPlans", [], listed(q), o);
  }
  /** Changes the given members. Errors: ConflictError for price or credits. */
  update(planId: string, change: g.PlanUpdate, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("updatePlan", [planId], o, { body: change });
  }
  /** Reads the plan and changes it. Retries up to 8 times if the plan changed in between. */
  edit<T>(
    planId: string,
    change: (plan: g.Plan, o: CallOptions) => Promise<T>,
    o?: CallOptions,
  ): Promise<T> {
    return edit(() => this.get(planId, o), change, o);
  }
  /** Lists or unlists the plan. An unlisted plan cannot be ordered; existing credits stay valid. */
  setListed(planId: string, on: boolean, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("setPlanListed", [planId, String(on)], o);
  }
  /** The agents that a plan pays for. Needs no key. */
  agents(planId: string, q?: ListOptions<SortByName>, o?: CallOptions): List<g.Agent> {
    return this.core.list("listAgentsOfPlan", [planId], listed(q), o);
  }
  /** The balance of each subscriber of a plan of the caller. */
  subscribers(planId: string, q?: ListOptions<"subscriber">, o?: CallOptions): List<g.Balance> {
    return this.core.list("listSubscribers", [planId], listed(q), o);
  }
  /**
   * Buys the plan for the caller. An open order has no credits yet; wait with `orders.wait`.
   */
  order(planId: string, input: g.OrderInput = {}, o?: CallOptions): TollPromise<g.Order> {
    return this.core.op("orderPlan", [planId], o, { body: input });
  }
  /** Creates an order of a fiat plan, and the page on which a person pays for it. */
  checkout(planId: string, input: g.CheckoutInput = {}, o?: CallOptions): TollPromise<g.Checkout> {
    return this.core.op("openCheckout", [planId], o, { body: input });
  }
}

/** Filters for orders. */
export interface OrderQuery extends ListOptions, TimeRange {
  /**
   * "seller" lists orders of the caller's plans; by default, the caller's own orders are listed.
   */
  role?: "seller" | "buyer";
  planId?: string;
  subscriber?: string;
}

/** Filters for requests that ended within a time range of at most 90 days. */
export interface RequestQuery extends ListOptions<"ended">, TimeRange {
  role?: "seller" | "buyer";
  planId?: string;
  agentId?: string;
  /** Only for sellers, together with `planId`. */
  subscriber?: string;
  /** Default: settled, released, and lapsed. */
  status?: "settled" | "released" | "lapsed" | "held";
}

/** Filters for the catalog of resources. */
export interface ResourceFilter {
  type?: "http" | "mcp";
  /** Address that receives the payment. */
  payTo?: string;
  scheme?: string;
  /** Network of the payment, for example "eip155:84532". */
  network?: string;
  /** Name of an extension of the resource, for example "bazaar". */
  extensions?: string;
  /** Most resources in the response, 1 to 100, default 20. */
  limit?: number;
}

/** Filters and grouping for sums. Hours and days are in UTC. */
export interface SumQuery<By extends string = "hour" | "day" | "plan">
  extends ListOptions<"group">, TimeRange {
  /** Group by. Usage by subscriber requires `planId`. */
  by?: By;
  planId?: string;
}

/** Orders: purchases of plans. */
export class Orders extends Resource {
  /** Revenue from orders of the caller's plans, by currency. */
  revenue(q?: SumQuery, o?: CallOptions): List<g.Revenue> {
    return this.core.list("listRevenue", [], listed(q), o);
  }
  /** An order of the caller, or of a plan of the caller. Errors: NotFoundError. */
  get(orderId: string, o?: CallOptions): TollPromise<g.Order> {
    return this.core.op("readOrder", [orderId], o);
  }
  /** Orders, newest first. */
  list(q?: OrderQuery, o?: CallOptions): List<g.Order> {
    return this.core.list("listOrders", [], listed(q), o);
  }
  /** Polls an order until its credits are available or it has failed. Set a bound with `signal`. */
  async wait(orderId: string, o?: CallOptions): Promise<g.Order> {
    for (let ms = 100; ; ms = Math.min(2 * ms, 2000)) {
      const order = await this.get(orderId, o);
      if (["confirmed", "final", "failed"].includes(order.status)) return order;
      await sleep(ms, o?.signal);
    }
  }
  /**
   * Refunds a card payment, in cents of the order's currency. Default: the whole remaining amount.
   */
  refund(orderId: string, amountCents?: bigint, o?: CallOptions): TollPromise<g.Order> {
    const body: g.RefundInput = amountCents === undefined ? {} : { amountCents };
    return this.core.op("refundOrder", [orderId], o, { body });
  }
}

/** Credits of the caller and of subscribers. */
export class Credits extends Resource {
  /** The balance of the caller, or of an address, for a plan. */
  balance(planId: string, address?: string, o?: CallOptions): TollPromise<g.Balance> {
    return address
      ? this.core.op("readBalanceOf", [planId, address], o)
      : this.core.op("readBalance", [planId], o);
  }
  /** The balance of the caller for each plan. */
  holdings(q?: ListOptions<"plan">, o?: CallOptions): List<g.Balance> {
    return this.core.list("listHoldings", [], listed(q), o);
  }
  /** Sums of settlements for the caller's plans, or with role "buyer" by the caller. */
  usage(
    q?: SumQuery<"hour" | "day" | "plan" | "agent" | "subscriber"> & {
      role?: "seller" | "buyer";
      agentId?: string;
      subscriber?: string;
    },
    o?: CallOptions,
  ): List<g.Usage> {
    return this.core.list("listUsage", [], listed(q), o);
  }
  /** Takes back free credits of the caller's plan that were granted without a payment. */
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
  /** Grants credits of the caller's plan; with `secs`, they expire after this number of seconds. */
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
   * Creates a permission and its access token, which only this response contains. A spending limit,
   * duration, or payment method in `delegationConfig` is deprecated: create a delegation and pass
   * its id.
   */
  create(input: g.PermissionRequest, o?: CallOptions): TollPromise<g.AccessToken> {
    const config = (input.delegationConfig ?? {}) as Record<string, unknown>;
    if (deprecatedToken.some((name) => config[name] !== undefined)) {
      this.core.deprecated(
        "A spending limit, duration, or payment method in tokens.create is deprecated: " +
          "use delegations.create and pass delegationId.",
      );
    }
    return this.core.op("createPermission", [], o, { body: input });
  }
  /** A permission with its last 100 settlements. Errors: NotFoundError. */
  get(permissionHash: string, o?: CallOptions): TollPromise<g.Permission> {
    return this.core.op("readPermission", [permissionHash], o);
  }
  /** The caller's permissions. */
  list(
    q?: ListOptions & { planId?: string; status?: g.Permission["status"] },
    o?: CallOptions,
  ): List<g.Permission> {
    return this.core.list("listPermissions", [], listed(q), o);
  }
  /** Revokes an access token. Its open holds can still be settled. */
  revoke(permissionHash: string, o?: CallOptions): TollPromise<g.PermissionRevoked> {
    return this.core.op("revokePermission", [permissionHash], o);
  }
}

/** Delegations: limits on the money that access tokens may spend. */
export class Delegations extends Resource {
  /** Creates a delegation, whose limit is in cents. */
  create(input: g.DelegationInput, o?: CallOptions): TollPromise<g.DelegationCreated> {
    return this.core.op("createDelegation", [], o, { body: input });
  }
  /** A delegation of the caller. Errors: NotFoundError. */
  get(delegationId: string, o?: CallOptions): TollPromise<g.Delegation> {
    return this.core.op("readDelegation", [delegationId], o);
  }
  /** The caller's delegations; `accessible` returns only delegations that this key can use now. */
  list(
    q?: ListOptions<SortByTime> & { accessible?: boolean },
    o?: CallOptions,
  ): List<g.Delegation> {
    return this.core.list("listDelegations", [], listed(q), o);
  }
  /** Submits the signature of the owner of an external account. */
  sign(
    delegationId: string,
    signature: g.DelegationSignature,
    o?: CallOptions,
  ): TollPromise<g.Delegation> {
    return this.core.op("signDelegation", [delegationId], o, { body: signature, repeat: "safe" });
  }
  /** Revokes a delegation and the permissions that use it. */
  revoke(delegationId: string, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("revokeDelegation", [delegationId], o, { repeat: "safe" });
  }
  /** Unfreezes a delegation that was frozen after declined charges or a dispute. */
  unfreeze(delegationId: string, o?: CallOptions): TollPromise<g.Delegation> {
    return this.core.op("unfreezeDelegation", [delegationId], o, { repeat: "safe" });
  }
  /** The payments and attempted payments of a delegation. */
  transactions(
    delegationId: string,
    q?: ListOptions<SortByTime>,
    o?: CallOptions,
  ): List<g.DelegationTransaction> {
    return this.core.list("listDelegationTransactions", [delegationId], listed(q), o);
  }
}

/** Cards and the wallet of the caller. */
export class PaymentMethods extends Resource {
  /** The cards, followed by the wallet. `provider` is "stripe" or "erc4337". */
  list(
    q?: { accessible?: boolean; provider?: "stripe" | "erc4337" },
    o?: CallOptions,
  ): TollPromise<g.PaymentMethod[]> {
    return this.core.op("listPaymentMethods", [], o, { query: { ...q } });
  }
  /** Changes the alias, at most 100 characters, and the keys that may use it. */
  update(id: string, change: g.PaymentMethodChange, o?: CallOptions): TollPromise<g.PaymentMethod> {
    return this.core.op("updatePaymentMethod", [id], o, { body: change });
  }
  /** Revokes a card and its delegations. */
  remove(id: string, o?: CallOptions): TollPromise<g.PaymentMethodRemoved> {
    return this.core.op("deletePaymentMethod", [id], o);
  }
}

/** The verdict of verify. A refusal is a value, not an error. */
export type Verdict = g.VerifyResponse & { code?: string };
/** The response of a settle that was carried out or refused. */
export type Receipt = g.SettleResponse;

const aboutTheCall = ["", "rate_limited", "unauthorized_server"];

const byId = <T>(input: T | string): T | { agentRequestId: string } =>
  typeof input === "string" ? { agentRequestId: input } : input;

/**
 * Payments of requests: sellers verify, settle, release, and renew them; buyers find resources and
 * read outcomes with their receipts.
 */
export class Payments extends Resource {
  /**
   * Checks whether a request is payable; `hold` also reserves the credits. A refusal is a verdict
   * with isValid false. Errors: failures of the call itself, such as a key that does not own the
   * plan.
   */
  verify(input: g.VerifyRequest | g.StockRequest, o?: CallOptions): TollPromise<Verdict> {
    const spec = "x402AccessToken" in input ? input : undefined;
    // If the response was lost, the hold may be open, and a repeat would be refused.
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
   * Burns credits, once for each agentRequestId. A refusal is a receipt with success false. If the
   * outcome is unknown, it throws a SettlementPendingError: repeat the call with the same id.
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

  /** Releases a hold without burning credits. A repeat returns the same response. */
  release(
    input: g.ReleaseRequest | g.StockRequest | string,
    o?: CallOptions,
  ): TollPromise<g.ReleaseResponse> {
    return this.core.op("release", [], o, { body: byId(input), repeat: "safe" });
  }

  /**
   * Extends an open hold until `holdSecs` (1 to 900, default 60) from now, at most until 24 hours
   * after it began. A repeat is harmless.
   */
  renew(input: g.RenewRequest | string, o?: CallOptions): TollPromise<g.RenewResponse> {
    return this.core.op("renew", [], o, { body: byId(input), repeat: "safe" });
  }

  /** The outcome of a request, for the owner of its plan and for its subscriber. */
  get(agentRequestId: string, o?: CallOptions): TollPromise<g.Settlement> {
    return this.core.op("readSettlement", [agentRequestId], o);
  }
  /** The outcome of the request whose receipt has this transaction. */
  findByTransaction(transaction: string, o?: CallOptions): TollPromise<g.Settlement> {
    return this.core.op("findSettlement", [], o, { query: { transaction } });
  }
  /** The kinds of payments that the service accepts. Needs no key. */
  supported(o?: CallOptions): TollPromise<g.Supported> {
    return this.core.op("supported", [], o);
  }
  /**
   * The catalog: resources that can be paid for through the service. `offset` is the number of
   * resources to skip. Needs no key.
   */
  resources(
    q: ResourceFilter & { offset?: number } = {},
    o?: CallOptions,
  ): TollPromise<g.Catalogue> {
    return this.core.op("listResources", [], o, { query: { ...q } });
  }
  /**
   * The resources of the catalog whose agent, plans, or URL contain all words of the query, at most
   * 16. `cursor` is pagination.cursor of an earlier response. Needs no key.
   */
  searchResources(
    query: string,
    q: ResourceFilter & { cursor?: string } = {},
    o?: CallOptions,
  ): TollPromise<g.FoundResources> {
    return this.core.op("searchResources", [], o, { query: { ...q, query } });
  }
  /** Signs the payment requirements of a server of the caller, so that clients can prove them. */
  signOffers(input: g.OffersRequest, o?: CallOptions): TollPromise<g.OffersResponse> {
    return this.core.op("signOffers", [], o, { body: input, repeat: "safe" });
  }

  /**
   * Finished requests for the caller's plans, or with role "buyer" by the caller, with their
   * receipts.
   */
  requests(q?: RequestQuery, o?: CallOptions): List<g.Settlement> {
    return this.core.list("listRequests", [], listed(q), o);
  }
  /** One request with the history of its states. */
  request(agentRequestId: string, o?: CallOptions): TollPromise<g.RequestRecord> {
    return this.core.op("readRequest", [agentRequestId], o);
  }
  /** Counts of refused verify and settle calls for the caller's plans. */
  refusals(
    q?: SumQuery<"reason" | "hour" | "day" | "plan" | "agent"> & { agentId?: string },
    o?: CallOptions,
  ): List<g.Refusals> {
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

/** Events about the caller's records. */
export class Events extends Resource {
  /** Events of the workspace of the caller. */
  list(q?: ListOptions & TimeRange & { type?: g.EventFilter }, o?: CallOptions): List<g.Event> {
    return this.core.list("listEvents", [], listed(q), o);
  }
  /**
   * Streams events as they happen, each once and in order, after `lastEventId` or from now on. If
   * the connection breaks, it reconnects and resumes. Stop with `break` or `signal`. Errors: a
   * refusal of the service.
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

/** Reads server-sent events. It calls `silent` after two minutes without a byte. */
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
    // Not awaited: one half of a cloned body is canceled only together with the other half.
    reader.cancel().catch(() => undefined);
  }
}

/** Webhooks: events sent to a URL of yours. */
export class Webhooks extends Resource {
  /** Creates a webhook. Only this response contains the secret. */
  create(input: g.WebhookInput, o?: CallOptions): TollPromise<g.WebhookSecret> {
    return this.core.op("createWebhook", [], o, { body: input });
  }
  /** Reads a webhook, without its secret. Errors: NotFoundError. */
  get(id: string, o?: CallOptions): TollPromise<g.Webhook> {
    return this.core.op("readWebhook", [id], o);
  }
  /** The caller's webhooks. */
  list(
    q?: ListOptions<SortByTime> & { status?: g.Webhook["status"] },
    o?: CallOptions,
  ): List<g.Webhook> {
    return this.core.list("listWebhooks", [], listed(q), o);
  }
  /** Changes URL, types, description, or status: "paused" or "active". */
  update(id: string, change: g.WebhookChange, o?: CallOptions): TollPromise<g.Webhook> {
    return this.core.op("updateWebhook", [id], o, { body: change });
  }
  /** Deletes a webhook. Its pending deliveries are not sent. */
  delete(id: string, o?: CallOptions): TollPromise<g.WebhookDeleted> {
    return this.core.op("deleteWebhook", [id], o);
  }
  /** Rotates the secret. For 24 hours, deliveries are signed with both secrets. */
  rotate(id: string, o?: CallOptions): TollPromise<g.WebhookSecret> {
    return this.core.op("rotateWebhook", [id], o);
  }
  /** Sends a test event. */
  test(id: string, o?: CallOptions): TollPromise<g.WebhookDelivery> {
    return this.core.op("testWebhook", [id], o);
  }
  /** The sent and pending deliveries of a webhook. */
  deliveries(
    id: string,
    q?: ListOptions<SortByTime> & { status?: g.WebhookDelivery["status"] },
    o?: CallOptions,
  ): List<g.WebhookDelivery> {
    return this.core.list("listDeliveries", [id], listed(q), o);
  }
  /** Resends a delivery. */
  resend(id: string, deliveryId: string, o?: CallOptions): TollPromise<g.WebhookDelivery> {
    return this.core.op("resendDelivery", [id, deliveryId], o);
  }
  /** Verifies a delivery; see verifyWebhook. */
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
  /** Creates an API key. Only this response contains the key. */
  create(input: g.KeyInput = {}, o?: CallOptions): TollPromise<g.APIKey & { key: string }> {
    return this.core.op("createKey", [], o, { body: input });
  }
  /** The record of a key, without the key itself. Errors: NotFoundError. */
  get(id: string, o?: CallOptions): TollPromise<g.APIKey> {
    return this.core.op("readKey", [id], o);
  }
  /** The last 200 calls of a key, as recorded by the process that serves this call. */
  recentCalls(id: string, o?: CallOptions): TollPromise<g.RecentCalls> {
    return this.core.op("readKeyCalls", [id], o);
  }
  /** The caller's API keys, without the keys themselves. */
  list(q?: ListOptions<SortByName>, o?: CallOptions): List<g.APIKey> {
    return this.core.list("listKeys", [], listed(q), o);
  }
  /** Changes the name or the pinned API version of a key. */
  update(id: string, change: g.KeyChange, o?: CallOptions): TollPromise<g.APIKey> {
    return this.core.op("updateKey", [id], o, { body: change });
  }
  /** Creates a key that replaces another key, which stays valid for `overlapSecs`. */
  rotate(id: string, input: g.RotateInput, o?: CallOptions): TollPromise<g.KeyRotated> {
    return this.core.op("rotateKey", [id], o, { body: input });
  }
  /** Revokes a key and everything it created; `keep` moves its creations to the caller's key. */
  revoke(id: string, keep = false, o?: CallOptions): TollPromise<g.KeyRevoked> {
    return this.core.op("revokeKey", [id], o, keep ? { query: { keep } } : {});
  }
}

/** The wallet that the service keeps for the caller. */
export class Wallet extends Resource {
  /** Address and balances. The balances are missing while the chain cannot be read. */
  get(o?: CallOptions): TollPromise<g.Wallet> {
    return this.core.op("readWallet", [], o);
  }
  /** Returns the private key, once. Anyone with this key can spend the money in the wallet. */
  export(o?: CallOptions): TollPromise<g.WalletKey> {
    return this.core.op("exportWallet", [], o);
  }
}

/** Test helpers of a sandbox. */
export class Sandbox extends Resource {
  /** The time of the sandbox. */
  clock(o?: CallOptions): TollPromise<g.Clock> {
    return this.core.op("readClock", [], o);
  }
  /** Moves the time of the sandbox forward, in seconds. Needs the key of an operator. */
  advanceClock(advanceSecs: number, o?: CallOptions): TollPromise<g.Clock> {
    return this.core.op("advanceClock", [], o, { body: { advanceSecs } });
  }
  /** Adds money of the embedded chain to a wallet. */
  faucet(input: g.FaucetInput = {}, o?: CallOptions): TollPromise<g.ActResult> {
    return this.core.op("useFaucet", [], o, { body: input });
  }
}

/** Information about the service. */
export class Meta extends Resource {
  /** Release, environment, network, and addresses. Needs no key. */
  info(o?: CallOptions): TollPromise<g.Info> {
    return this.core.op("readInfo", [], o);
  }
  /** Whether the process is running. Needs no key. */
  health(o?: CallOptions): TollPromise<g.Health> {
    return this.core.op("readHealth", [], o);
  }
  /** Whether the service is ready. The status not_ready is a response, not an error. */
  ready(o?: CallOptions): TollPromise<g.Readiness> {
    const run = this.core.send({ method: "GET", path: "/ready", repeat: "never" }, o).then((a) => {
      const body = a.raw as g.Readiness | undefined;
      if (!body?.status) throw errorOf(a.response.status, a.response.headers, a.raw);
      return { ...a, data: body };
    });
    return new TollPromise(run);
  }
  /** The API versions, including the version used for this client. */
  versions(o?: CallOptions): TollPromise<g.Versions> {
    return this.core.op("readVersions", [], o);
  }
  /** Records of the caller whose id or name begins with a text, up to 20 of each type. */
  search(q: string, type?: g.SearchResult["type"], o?: CallOptions): TollPromise<g.SearchResults> {
    return this.core.op("search", [], o, { query: { q, type } });
  }
  /** The audit log of the workspace: each action with its author and source. */
  auditLog(q?: ListOptions & TimeRange & { act?: string }, o?: CallOptions): List<g.Act> {
    return this.core.list("listAuditLog", [], listed(q), o);
  }
  /** The workspaces of a person, or the workspace of an API key. */
  organizations(q?: ListOptions, o?: CallOptions): List<g.Organization> {
    return this.core.list("listOrganizations", [], listed(q), o);
  }
}

/**
 * The session of a person who signs in with a password. A client with the session token as `apiKey`
 * and a `workspace` acts as this person:
 *
 *     const anyone = new Toll({ apiKey: null });
 *     const { token, organizations } = await anyone.session.signIn("alice", password);
 *     const toll = new Toll({ apiKey: token, workspace: organizations[0].id });
 */
export class Sessions extends Resource {
  /**
   * Creates a person and a workspace. With an invitation link, the person also joins that
   * workspace.
   */
  signUp(person: g.SignUpInput, o?: CallOptions): TollPromise<g.SignedIn & { token: string }> {
    return this.core.op("signUp", [], o, { body: person });
  }
  /** Signs in. Only this response contains `token`. */
  signIn(
    login: string,
    password: string,
    o?: CallOptions,
  ): TollPromise<g.SignedIn & { token: string }> {
    return this.core.op("signIn", [], o, { body: { login, password } });
  }
  /** The session of the client, with its person and their workspaces. */
  get(o?: CallOptions): TollPromise<g.SignedIn> {
    return this.core.op("readSession", [], o);
  }
  /**
   * Confirms the password again. For ten minutes, the session may change access and credentials.
   */
  prove(password: string, o?: CallOptions): TollPromise<g.Session> {
    return this.core.op("proveSession", [], o, { body: { password } });
  }
  /** Ends the session of the client. */
  signOut(o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("signOut", [], o);
  }
  /** The sessions of the person. */
  list(q?: ListOptions, o?: CallOptions): List<g.Session> {
    return this.core.list("listSessions", [], listed(q), o);
  }
  /** Ends one session of the person. */
  end(sessionId: string, o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("endSession", [sessionId], o);
  }
  /** The credentials of the person. */
  credentials(q?: ListOptions, o?: CallOptions): List<g.Credential> {
    return this.core.list("listCredentials", [], listed(q), o);
  }
  /** Removes a credential, except the last credential. All other sessions of the person end. */
  removeCredential(credentialId: string, o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("removeCredential", [credentialId], o);
  }
  /**
   * Creates ten recovery codes that replace the earlier codes. Only this response contains them.
   */
  renewRecoveryCodes(o?: CallOptions): TollPromise<g.RecoveryCodes> {
    return this.core.op("renewRecoveryCodes", [], o);
  }
}

/** Members of the workspace. The calls need the session of a person, not an API key. */
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
   * Limits the amount that a developer can spend from the workspace in a calendar month (UTC), in
   * cents. Dollars and euros count alike. null removes the limit.
   */
  setSpendLimit(userId: string, cents: bigint | null, o?: CallOptions): TollPromise<g.Member> {
    return this.core.op("setRole", [userId], o, { body: { spendLimitCents: cents } });
  }
  /** Removes a member; "me" leaves the workspace. `keep` moves keys and consents to the caller. */
  remove(userId: string, keep = false, o?: CallOptions): TollPromise<g.Removed> {
    return this.core.op("removeMember", [userId], o, { query: keep ? { keep } : {} });
  }
  /** The workspace of the call, with its address and creation time. */
  workspace(workspace: string, o?: CallOptions): TollPromise<g.WorkspaceRecord> {
    return this.core.op("readWorkspace", [workspace], o);
  }
  /** Renames the workspace of the call; "" removes the name. */
  renameWorkspace(workspace: string, name: string, o?: CallOptions): TollPromise<g.Organization> {
    return this.core.op("renameWorkspace", [workspace], o, { body: { name } });
  }
  /** Deletes the workspace of the call with its members, keys, and consents. Records are kept. */
  deleteWorkspace(workspace: string, o?: CallOptions): TollPromise<g.WorkspaceDeleted> {
    return this.core.op("deleteWorkspace", [workspace], o);
  }
  /** The sessions of a member. */
  sessions(userId: string, q?: ListOptions, o?: CallOptions): List<g.Session> {
    return this.core.list("listMemberSessions", [userId], listed(q), o);
  }
  /** Ends all sessions of a member, who can sign in again. */
  endSessions(userId: string, o?: CallOptions): TollPromise<g.EndedSessions> {
    return this.core.op("endMemberSessions", [userId], o);
  }
  /** Creates a link with which one person can join. Only this response contains the link. */
  invite(invitation: g.InvitationInput, o?: CallOptions): TollPromise<g.Invitation> {
    return this.core.op("createInvitation", [], o, { body: invitation });
  }
  /** The open invitations, without their links. */
  invitations(q?: ListOptions, o?: CallOptions): List<g.Invitation> {
    return this.core.list("listInvitations", [], listed(q), o);
  }
  /** Revokes an open invitation. */
  revokeInvitation(id: string, o?: CallOptions): TollPromise<g.Done> {
    return this.core.op("revokeInvitation", [id], o);
  }
  /** Joins the workspace of an invitation link. */
  accept(link: string, o?: CallOptions): TollPromise<g.Organization> {
    return this.core.op("acceptInvitation", [], o, { body: { link } });
  }
}

/**
 * A client of one service with one API key. It sends nothing until a method is called, and it can
 * be shared.
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
  /** Brand names on the wire. */
  readonly namespace: Namespace;
  /** @internal Calls send an API key. */
  readonly hasKey: boolean;
  readonly #core: Core;

  constructor(o: TollOptions = {}) {
    const core = new Core(o);
    this.#core = core;
    this.url = core.base;
    this.namespace = core.namespace;
    this.hasKey = core.hasKey;
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
   * Calls an operation that has no method in this client. `path` begins with "/"; `body` is sent as
   * JSON. GET and HEAD are retried; other methods are retried only with an idempotencyKey.
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
