/** Scheme of plans bought on a chain. Its networks are eip155:84532 (sandbox) and eip155:8453 (live). */
export const SCHEME_CRYPTO = "svc:erc4337";

/** Scheme of plans bought by card. Its networks are stripe:sandbox and stripe:live. */
export const SCHEME_CARD = "svc:card-delegation";

const MAX_CREDITS = 9_223_372_036_854_775_807n; // 2^63-1
const DECIMALS = 6; // for software that calculates in dollars: 1,000,000 credits count as one dollar
const RELEASE_TIMEOUT_MS = 10_000;

/** The asset of a scheme, with its prefix: credits. */
function creditsOf(scheme) {
  const [prefix, name] = scheme.split(":");
  if (!prefix || !name) {
    throw new TypeError(`a scheme must have a prefix, such as ${SCHEME_CRYPTO}; got ${scheme}`);
  }
  return `${prefix}:credits`;
}

function decodeBase64(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(binary, (c) => c.charCodeAt(0)));
}

/** Decodes an access token. Its error messages contain no part of the token. */
function readToken(token) {
  try {
    const text = token.trim();
    const signature = /^[\w-]+\.[\w-]+\.[\w-]+$/.test(text)
      ? text
      : JSON.parse(text.startsWith("{") ? text : decodeBase64(text)).payload.signature;
    return { signature, authorization: JSON.parse(decodeBase64(signature.split(".")[1])).authorization };
  } catch {
    throw new TypeError("the access token is malformed: it must be a JWS, or a payment payload that contains a JWS");
  }
}

/** Pays with the access token of a plan. Register it with an x402Client. */
export class ClientScheme {
  #token;
  #asset;

  constructor(token, { scheme = SCHEME_CRYPTO } = {}) {
    this.scheme = scheme;
    this.#token = token;
    this.#asset = creditsOf(scheme);
  }

  findDefaultAsset(asset, _network) {
    return asset === this.#asset ? { asset, decimals: DECIMALS, symbol: "credits" } : undefined;
  }

  async createPaymentPayload(x402Version, requirements) {
    const token = this.#token;
    const { signature, authorization } = readToken(typeof token === "function" ? await token(requirements) : token);
    const asked = requirements.extra?.planId ?? requirements.planId;
    const paid = authorization?.planId;
    if (asked && paid && asked !== paid) {
      throw new Error(`the access token is for plan ${paid}, but the server requires plan ${asked}`);
    }
    // A new nonce each time: without it, a standard server accepts the access token for only one request.
    const random = crypto.getRandomValues(new Uint8Array(16));
    const nonce = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return { x402Version, payload: { signature, authorization, nonce } };
  }
}

/** Accepts payment with credits of a plan. Register it with an x402ResourceServer. */
export class ServerScheme {
  #facilitator;
  #plan;
  #asset;

  defaultAssetTransferMethod = "default";
  paymentFlows = { default: { supported: ["authorization"], default: "authorization" } };
  schemeHooks = { onVerifiedPaymentCanceled: (context) => this.#release(context) };

  constructor({ facilitator, planId, agentId, scheme = SCHEME_CRYPTO }) {
    this.scheme = scheme;
    this.#facilitator = facilitator;
    this.#plan = { planId, agentId };
    this.#asset = creditsOf(scheme);
  }

  async parsePrice(price, _network) {
    const { amount, asset, extra } = typeof price === "object" ? price : { amount: price, asset: this.#asset };
    const exact = typeof amount !== "number" || Number.isSafeInteger(amount);
    if (asset !== this.#asset || !exact || !/^(0|[1-9]\d{0,18})$/.test(`${amount}`) || BigInt(amount) > MAX_CREDITS) {
      throw new Error(`a price must be a whole number of credits, not an amount of money; got ${amount} ${asset}`);
    }
    return { amount: `${amount}`, asset, extra };
  }

  getAssetDecimals(asset, _network) {
    return asset === this.#asset ? DECIMALS : undefined;
  }

  async enhancePaymentRequirements(requirements, supportedKind, _facilitatorExtensions) {
    const { planId, agentId } = { ...this.#plan, ...requirements.extra };
    if (!planId) {
      throw new Error("the plan id is missing: set planId of the scheme, or extra.planId of the route");
    }
    // The plan is only in extra. Clients that remove unknown members would lose it elsewhere, and then standard servers
    // could not match the entry.
    const extra = { version: supportedKind.extra?.version ?? "1", ...requirements.extra, planId };
    if (agentId) {
      extra.agentId = agentId;
    }
    return { ...requirements, payTo: requirements.payTo || "merchant", extra };
  }

  /** Releases the credits held for failed work. Without this call, they are released when the hold ends. */
  async #release({ paymentPayload, requirements }) {
    const { url, createAuthHeaders } = this.#facilitator ?? {};
    if (!url) {
      return;
    }
    const auth = await createAuthHeaders?.();
    const response = await fetch(`${url.replace(/\/+$/, "")}/release`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(auth?.release ?? auth?.settle) },
      body: JSON.stringify({ x402Version: paymentPayload.x402Version, paymentPayload, paymentRequirements: requirements }),
      signal: AbortSignal.timeout(RELEASE_TIMEOUT_MS),
    });
    if (!response.ok) {
      throw new Error(`the release of a payment failed with status ${response.status}`);
    }
  }
}

/** Returns the settings of an HTTPFacilitatorClient for a service, with the API key of the builder. */
export function facilitatorAt(url, apiKey) {
  const headers = { Authorization: `Bearer ${apiKey}` };
  return {
    url: `${url.replace(/\/+$/, "")}/api/v1/x402`,
    createAuthHeaders: async () => ({ verify: headers, settle: headers, release: headers }),
  };
}
