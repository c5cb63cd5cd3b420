/** Scheme of plans bought on a chain. Its networks are `eip155:84532` (sandbox) and `eip155:8453` (live). */
export declare const SCHEME_CRYPTO: "svc:erc4337";

/** Scheme of plans bought by card. Its networks are `stripe:sandbox` and `stripe:live`. */
export declare const SCHEME_CARD: "svc:card-delegation";

type Network = `${string}:${string}`;

/** An entry of `accepts` in a 402. */
export interface Requirements {
  scheme: string;
  network: Network;
  asset: string;
  /** Credits, as a decimal whole number. */
  amount: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Record<string, unknown>;
}

/**
 * An access token of a plan, as a JWS or in its x402 form, or a function that returns an access token for the
 * requirements of a server. The function is called for every payment, so cache the access token until it expires.
 */
export type Token = string | ((requirements: Requirements) => string | Promise<string>);

export interface ClientOptions {
  /** Default: `SCHEME_CRYPTO`. A service with another prefix has, for example, `acme:erc4337`. */
  scheme?: string;
}

/** Pays with the access token of a plan: register it with an `x402Client`. */
export declare class ClientScheme {
  /** Throws a `TypeError` for a scheme without a prefix. */
  constructor(token: Token, options?: ClientOptions);
  readonly scheme: string;
  /** Credits count as an asset with 6 decimals, so the usual limit of $1 per payment allows 1,000,000 credits. */
  findDefaultAsset(asset: string, network: Network): { asset: string; decimals: number; symbol: string } | undefined;
  /**
   * Creates a payment with a new nonce. It rejects a malformed access token, and an access token of another plan than
   * the server requires, before anything is sent.
   */
  createPaymentPayload(
    x402Version: number,
    requirements: Requirements,
  ): Promise<{ x402Version: number; payload: Record<string, unknown> }>;
}

/** The settings of `HTTPFacilitatorClient`, plus `release`. */
export interface Facilitator {
  /** Ends with `/api/v1/x402`. */
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
  /** Releases credits when a handler fails. Without it, they are released when their hold ends. */
  facilitator?: Facilitator;
  /** The plan whose credits pay. `extra.planId` of a route takes precedence. */
  planId?: string;
  /** The agent that serves the requests. `extra.agentId` of a route takes precedence. */
  agentId?: string;
  /** Default: `SCHEME_CRYPTO`. */
  scheme?: string;
}

type Price = string | number | { asset: string; amount: string; extra?: Record<string, unknown> };

/** Accepts payment with credits of a plan: register it with an `x402ResourceServer`. */
export declare class ServerScheme {
  /** Throws a `TypeError` for a scheme without a prefix. */
  constructor(options: ServerOptions);
  readonly scheme: string;
  readonly defaultAssetTransferMethod: string;
  readonly paymentFlows: Readonly<Record<string, { supported: "authorization"[]; default: "authorization" }>>;
  readonly schemeHooks: {
    /** Releases credits. It rejects if the facilitator does not do so within 10 s. */
    onVerifiedPaymentCanceled(context: { paymentPayload: any; requirements: any }): Promise<void>;
  };
  /** A price is a whole number of credits, such as `5` or `"5"`, at most 2^63-1 (as a string above 2^53-1). It rejects everything else. */
  parsePrice(price: Price, network: Network): Promise<{ asset: string; amount: string; extra?: Record<string, unknown> }>;
  getAssetDecimals(asset: string, network: Network): number | undefined;
  /** Adds plan, agent, and version to `extra`, and `merchant` for an empty `payTo`. It rejects a route without a plan. */
  enhancePaymentRequirements(
    requirements: Requirements,
    supportedKind: { x402Version: number; scheme: string; network: Network; extra?: Record<string, unknown> },
    facilitatorExtensions: string[],
  ): Promise<Requirements>;
}

/** Returns the settings of an `HTTPFacilitatorClient` for the service at `url`, without `/api/v1`, with the API key of the builder. */
export declare function facilitatorAt(url: string, apiKey: string): Required<Facilitator>;
