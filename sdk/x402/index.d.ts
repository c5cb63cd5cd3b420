/** Scheme of plans that are bought on a chain. Its networks are `eip155:84532` (sandbox) and `eip155:8453` (live). */
export declare const SCHEME_CRYPTO: "svc:erc4337";

/** Scheme of plans that are bought by card. Its networks are `stripe:sandbox` and `stripe:live`. */
export declare const SCHEME_CARD: "svc:card-delegation";

type Network = `${string}:${string}`;

/** An entry of `accepts` in a 402. */
export interface Requirements {
  scheme: string;
  network: Network;
  asset: string;
  /** Credits, a decimal whole number. */
  amount: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Record<string, unknown>;
}

/**
 * An access token of a plan, as a JWS or in its x402 rendering, or a function that gets one for what a server asks. The
 * function is called for every payment; keep the access token and get another one when it expires.
 */
export type Token = string | ((requirements: Requirements) => string | Promise<string>);

export interface ClientOptions {
  /** `SCHEME_CRYPTO` unless said otherwise; a service with another prefix has for example `acme:erc4337`. */
  scheme?: string;
}

/** Pays with the access token of a plan: register it with an `x402Client`. */
export declare class ClientScheme {
  /** It throws a `TypeError` for a scheme without a prefix. */
  constructor(token: Token, options?: ClientOptions);
  readonly scheme: string;
  /** Credits count as an asset with 6 decimals, so the usual limit of $1 a payment is one of 1,000,000 credits. */
  findDefaultAsset(asset: string, network: Network): { asset: string; decimals: number; symbol: string } | undefined;
  /**
   * Makes a payment with a fresh nonce. It rejects what is no access token, and one of another plan than the server asks
   * for, before it leaves the program.
   */
  createPaymentPayload(
    x402Version: number,
    requirements: Requirements,
  ): Promise<{ x402Version: number; payload: Record<string, unknown> }>;
}

/** What `HTTPFacilitatorClient` takes, and `release` beside `settle`. */
export interface Facilitator {
  /** With `/api/v1/x402` at its end. */
  url: string;
  createAuthHeaders?: () => Promise<{
    verify?: Record<string, string>;
    settle?: Record<string, string>;
    release?: Record<string, string>;
    supported?: Record<string, string>;
    bazaar?: Record<string, string>;
  }>;
}

export interface ServerOptions {
  /** Where credits are given back when a handler fails. Without it they come back by themselves, when their hold ends. */
  facilitator?: Facilitator;
  /** The plan whose credits pay; `extra.planId` of a route wins. */
  planId?: string;
  /** The agent that answers; `extra.agentId` of a route wins. */
  agentId?: string;
  /** `SCHEME_CRYPTO` unless said otherwise. */
  scheme?: string;
}

type Price = string | number | { asset: string; amount: string; extra?: Record<string, unknown> };

/** Is paid with credits of a plan: register it with an `x402ResourceServer`. */
export declare class ServerScheme {
  /** It throws a `TypeError` for a scheme without a prefix. */
  constructor(options: ServerOptions);
  readonly scheme: string;
  readonly defaultAssetTransferMethod: string;
  readonly paymentFlows: Readonly<Record<string, { supported: "authorization"[]; default: "authorization" }>>;
  readonly schemeHooks: {
    /** Gives credits back. It rejects when the facilitator does not do so within 10 s. */
    onVerifiedPaymentCanceled(context: { paymentPayload: any; requirements: any }): Promise<void>;
  };
  /** A price is a whole number of credits, such as `5` or `"5"`, at most 2^63-1 (as text above 2^53-1); it rejects everything else. */
  parsePrice(price: Price, network: Network): Promise<{ asset: string; amount: string; extra?: Record<string, unknown> }>;
  getAssetDecimals(asset: string, network: Network): number | undefined;
  /** Adds plan, agent and version to `extra`, and `merchant` for an empty `payTo`. It rejects a route without a plan. */
  enhancePaymentRequirements(
    requirements: Requirements,
    supportedKind: { x402Version: number; scheme: string; network: Network; extra?: Record<string, unknown> },
    facilitatorExtensions: string[],
  ): Promise<Requirements>;
}

/** The settings of an `HTTPFacilitatorClient` for the service at this address, without `/api/v1`, with the API key of the builder. */
export declare function facilitatorAt(url: string, apiKey: string): Required<Facilitator>;
