/** Scheme of plans that are bought on a chain. Its networks are eip155:84532 (sandbox) and eip155:8453 (live). */
export const SCHEME_CRYPTO = "svc:erc4337";

/** Scheme of plans that are bought by card. Its networks are stripe:sandbox and stripe:live. */
export const SCHEME_CARD = "svc:card-delegation";

const MAX_CREDITS = 9_223_372_036_854_775_807n; // 2^63-1
const DECIMALS = 6; // for software that reckons in dollars: 1,000,000 credits are one
const RELEASE_TIMEOUT_MS = 10_000;

/** The asset of a scheme, with its prefix: credits. */
function creditsOf(scheme) {
  const [prefix, name] = scheme.split(":");
  if (!prefix || !name) {
    throw new TypeError(`a scheme has a prefix, as ${SCHEME_CRYPTO} has, and ${scheme} has none`);
  }
  return `${prefix}:credits`;
}

function decodeBase64(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(binary, (c) => c.charCodeAt(0)));
}

/** Takes an access token apart. What is wrong with one is told without any part of it. */
function readToken(token) {
  try {
    const text = token.trim();
    const signature = /^[\w-]+\.[\w-]+\.[\w-]+$/.test(text)
      ? text
      : JSON.parse(text.startsWith("{") ? text : decodeBase64(text)).payload.signature;
    return { signature, authorization: JSON.parse(decodeBase64(signature.split(".")[1])).authorization };
  } catch {
    throw new TypeError("this is no access token: it is neither a JWS nor a payment payload around one");
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
      throw new Error(`the access token is for plan ${paid}, and the server asks for plan ${asked}`);
    }
    // A fresh nonce each time: without one a standard server takes the access token for a single request.
    const random = crypto.getRandomValues(new Uint8Array(16));
    const nonce = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return { x402Version, payload: { signature, authorization, nonce } };
  }
}

/** Is paid with credits of a plan. Register it with an x402ResourceServer. */
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
      throw new Error(`a price is a whole number of credits, and no sum of money: ${amount} ${asset}`);
    }
    return { amount: `${amount}`, asset, extra };
  }

  getAssetDecimals(asset, _network) {
    return asset === this.#asset ? DECIMALS : undefined;
  }

  async enhancePaymentRequirements(requirements, supportedKind, _facilitatorExtensions) {
    const { planId, agentId } = { ...this.#plan, ...requirements.extra };
    if (!planId) {
      throw new Error("name the plan that pays: planId of the scheme, or extra.planId of the route");
    }
    // The plan stands in extra alone: clients that drop what they do not know would lose a member beside it, and then no
    // server of the standard finds its entry again.
    const extra = { version: supportedKind.extra?.version ?? "1", ...requirements.extra, planId };
    if (agentId) {
      extra.agentId = agentId;
    }
    return { ...requirements, payTo: requirements.payTo || "merchant", extra };
  }

  /** Gives the credits back that were set aside for work that failed. They would come back by themselves, later. */
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
      throw new Error(`the release of a payment was answered with ${response.status}`);
    }
  }
}

/** The settings of an HTTPFacilitatorClient for a service at this address, with the API key of the builder. */
export function facilitatorAt(url, apiKey) {
  const headers = { Authorization: `Bearer ${apiKey}` };
  return {
    url: `${url.replace(/\/+$/, "")}/api/v1/x402`,
    createAuthHeaders: async () => ({ verify: headers, settle: headers, release: headers }),
  };
}
