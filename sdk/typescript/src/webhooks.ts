import { defaultNamespace, type Namespace } from "./core.js";
import { codes, AuthError, ValidationError } from "./errors.js";
import type { Event } from "./generated.js";
import { parse } from "./json.js";

/** Settings of a signature check. */
export interface VerifyOptions {
  /**
   * Most difference between the time of a delivery and now, in seconds, in both directions. Default
   * 300.
   */
  toleranceSecs?: number;
  /** Current time in milliseconds since 1970, for tests. */
  now?: number;
  namespace?: Namespace;
}

type HeaderSource = Headers | Record<string, string | string[] | undefined>;

/**
 * Verifies the signature of a delivery and returns its event. `body` is the raw body, not parsed
 * JSON. `secrets` are the current secret and, for a day after a rotation, the previous secret. The
 * same event may arrive more than once, with the same id.
 *
 * A delivery that has only the headers of Standard Webhooks is also accepted (`webhook-id`,
 * `webhook-timestamp`, `webhook-signature` with `v1,` and base64): its key is the base64 after
 * `whsec_`.
 *
 * Errors: AuthError for a wrong signature or time, ValidationError for a body without an event.
 */
export async function verifyWebhook(
  body: string | Uint8Array,
  headers: HeaderSource,
  secrets: string | readonly string[],
  o: VerifyOptions = {},
): Promise<Event> {
  const own = `${(o.namespace ?? defaultNamespace).header}-webhook-`.toLowerCase();
  const isOwn = header(headers, `${own}id`) !== "";
  const prefix = isOwn ? own : "webhook-";
  const id = header(headers, `${prefix}id`);
  const sent = header(headers, `${prefix}timestamp`);
  const refuse = (message: string): never => {
    throw new AuthError({ code: "BCK.AUTH.0003", status: 403, category: "auth", message });
  };
  if (!id || !/^\d{1,12}$/.test(sent)) refuse("This is not a signed webhook delivery.");
  const age = Math.abs((o.now ?? Date.now()) / 1000 - Number(sent));
  if (age > (o.toleranceSecs ?? 300)) {
    refuse("The webhook timestamp is outside the allowed window.");
  }
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  if (bytes.byteLength > 1 << 20) refuse("The body of the delivery is longer than 1 MiB.");
  const head = new TextEncoder().encode(`${id}.${sent}.`);
  const text = new Uint8Array(head.length + bytes.length);
  text.set(head);
  text.set(bytes, head.length);
  const given = header(headers, `${prefix}signature`).split(/[,\s]+/, 32);
  let good = false;
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const raw = isOwn ? new TextEncoder().encode(secret) : standardKey(secret);
    if (!raw?.length) continue;
    const hmac = { name: "HMAC", hash: "SHA-256" };
    const key = await crypto.subtle.importKey("raw", raw, hmac, false, ["sign"]);
    const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, text));
    const want = isOwn
      ? `v1=${[...mac].map((b) => b.toString(16).padStart(2, "0")).join("")}`
      : btoa(String.fromCharCode(...mac));
    given.forEach((s, i) => {
      if ((isOwn || given[i - 1] === "v1") && same(s, want)) good = true;
    });
  }
  if (!good) refuse("The webhook signature is invalid.");
  let event: unknown;
  try {
    event = parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    // below
  }
  if (
    typeof (event as Event | undefined)?.id !== "string" ||
    typeof (event as Event).type !== "string"
  ) {
    throw new ValidationError({
      code: codes.badRequest,
      message: "The body of the delivery is not an event.",
    });
  }
  return event as Event;
}

/** Compares two texts in constant time. */
function same(a: string, b: string): boolean {
  let differs = a.length ^ b.length;
  for (let i = 0; i < b.length; i++) differs |= a.charCodeAt(i) ^ b.charCodeAt(i);
  return differs === 0;
}

/** Returns the key of a Standard Webhooks secret: the base64 after whsec_. */
function standardKey(secret: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(secret.replace("whsec_", "")), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function header(from: HeaderSource, name: string): string {
  if (from instanceof Headers) return from.get(name) ?? "";
  for (const [n, v] of Object.entries(from)) {
    if (n.toLowerCase() === name) return Array.isArray(v) ? v.join(",") : (v ?? "");
  }
  return "";
}
