import { fromBase64 } from "./base64.js";
import { BusinessError, type ErrorParts, TollError } from "./error.js";
import type { PaymentRequired } from "./generated.js";

export { BusinessError, type ErrorParts, TollError } from "./error.js";

/** The request is malformed or violates a rule of the API. */
export class ValidationError extends TollError {
  constructor(p: ErrorParts) {
    super({ category: "validation", ...p });
  }
}
/** The key is missing, unknown, or expired, or it lacks a right. */
export class AuthError extends TollError {}
/** The record does not exist, or it belongs to another workspace. */
export class NotFoundError extends BusinessError {}
/** The call conflicts with an earlier call, or with a change of the record. */
export class ConflictError extends BusinessError {}
/** Too many calls; wait `retryAfterSecs` before a retry. */
export class RateLimitError extends TollError {}
/** The chain or the card processor failed. */
export class IntegrationError extends TollError {}
/** The service failed. */
export class InternalError extends TollError {}
/** The service did not respond. Whether the call was carried out is unknown. */
export class ConnectionError extends TollError {}
/** One attempt took longer than `timeoutMs`. Whether the call was carried out is unknown. */
export class TimeoutError extends ConnectionError {}

/** The request requires payment. */
export class PaymentRequiredError extends BusinessError {
  /** The payment requirements; undefined if the response had none. */
  declare readonly requirements: PaymentRequired | undefined;
  constructor(p: ErrorParts, requirements?: PaymentRequired) {
    super(p);
    this.requirements = requirements;
  }
}

/**
 * The outcome of a settlement is not known yet. It may have succeeded: repeat the call with the
 * same id, or read `payments.get(agentRequestId)`.
 */
export class SettlementPendingError extends TollError {
  declare readonly agentRequestId: string | undefined;
  constructor(p: ErrorParts, agentRequestId?: string) {
    super(p);
    this.agentRequestId = agentRequestId;
  }
}

export const codes = {
  badRequest: "BCK.HTTP.400",
  notAuthenticated: "BCK.AUTH.0002",
  unavailable: "BCK.HTTP.503",
  internal: "BCK.HTTP.500",
  paymentRequired: "BCK.X402.0030",
  idempotencyRunning: "BCK.COMMON.0902",
  settlementPending: "BCK.X402.0914",
  recordChanged: "BCK.PROTOCOL.0910",
} as const;

const text = (v: unknown): string | undefined => (typeof v === "string" && v ? v : undefined);

/** Returns the typed error of a response other than 2xx. */
export function errorOf(status: number, headers: Headers, body: unknown, hint?: string): TollError {
  const b = (typeof body === "object" && body ? body : {}) as Record<string, unknown>;
  const known = text(b.code);
  const retryAfter = Number(headers.get("retry-after"));
  const p: ErrorParts = {
    code: known ?? `BCK.HTTP.${status}`,
    message:
      text(b.message) ??
      `The service responded with status ${status} but without an error object.`,
    status,
    retryable: typeof b.retryable === "boolean" ? b.retryable : status === 429 || status >= 502,
    raw: body,
  };
  const optional = {
    category: text(b.category),
    hint: hint ?? text(b.hint),
    details: text(b.details),
    docsUrl: text(b.docsUrl),
    correlationId: text(b.correlationId) ?? headers.get("x-correlation-id") ?? undefined,
  };
  for (const [k, v] of Object.entries(optional)) if (v) Object.assign(p, { [k]: v });
  if (Number.isInteger(retryAfter) && retryAfter > 0) {
    p.retryAfterSecs = Math.min(retryAfter, 86400);
  }
  try {
    if (text(b.params)) p.params = JSON.parse(b.params as string) as Record<string, unknown>;
  } catch {
    // params are optional details
  }
  if (known === codes.settlementPending || b.errorReason === "settlement_pending") {
    const extra = b.extra as Record<string, unknown> | undefined;
    return new SettlementPendingError(p, text(extra?.agentRequestId));
  }
  if (status === 402) {
    return new PaymentRequiredError(p, requirementsOf(headers.get("payment-required"), b));
  }
  if (status === 404) return new NotFoundError(p);
  if (status === 409 || status === 412) return new ConflictError(p);
  if (status === 429) return new RateLimitError(p);
  if (status === 401 || status === 403 || p.category === "auth") return new AuthError(p);
  if (p.category === "integration") return new IntegrationError(p);
  if (p.category === "business") return new BusinessError(p);
  if (p.category === "validation" || (status >= 400 && status < 500)) return new ValidationError(p);
  return new InternalError(p);
}

/** Reads the payment requirements of a 402 from the header payment-required, or else the body. */
export function requirementsOf(header: string | null, body: unknown): PaymentRequired | undefined {
  const good = (v: unknown) =>
    Array.isArray((v as PaymentRequired | undefined)?.accepts) ? (v as PaymentRequired) : undefined;
  try {
    if (header) return good(JSON.parse(fromBase64(header)));
  } catch {
    // fall back to the body
  }
  return good(body);
}
