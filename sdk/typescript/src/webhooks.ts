import { defaultNamespace, type Namespace } from "./core.js";
import { codes, AuthError, ValidationError } from "./errors.js";
import type { Event } from "./generated.js";
import { parse } from "./json.js";

/** Settings of a signature check. */
export interface VerifyOptions {
  /**
   * How far the time of a delivery may lie from now, in seconds, in both directions. Default 300.
   */
  toleranceSecs?: number;
  /** Now, in milliseconds since 1970. For tests. */
  now?: number;
  namespace?: Namespace;
}

type HeaderSource = Headers | Record<string, string | string[] | undefined>;

/**
 * Checks the signature of a delivery and returns its event. `body` is the body byte for byte, not
 * parsed JSON. `secrets` are the current secret and, for a day after a rotation, the one before.
 * The same event may come more than once, under the same id.
 *
 * A delivery with the headers of Standard Webhooks alone is taken too (`webhook-id`,
 * `webhook-timestamp`, `webhook-signature` with `v1,` and base64): there the key is the base64
 * behind `whsec_`.
 *
 * Errors: AuthError for a signature or a time that is not good, ValidationError for a body that is
 * not an event.
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
  if (!id || !/^\d{1,12}$/.test(sent)) refuse("The request is not a signed delivery.");
  const age = Math.abs((o.now ?? Date.now()) / 1000 - Number(sent));
  if (age > (o.toleranceSecs ?? 300)) {
    refuse("The webhook timestamp is outside the allowed window.");
  }
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  if (bytes.byteLength > 1 << 20) refuse("The body of a delivery is at most 1 MiB.");
  const head = new TextEncoder().encode(`${id}.${sent}.`);
  const text = new Uint8Array(head.length + bytes.length);
  text.set(head);
  text.set(bytes, head.length);
  const given = header(headers, `${prefix}signature`);
  const signatures = isOwn ? hexSignatures(given) : standardSignatures(given);
  let good = false;
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const raw = isOwn ? new TextEncoder().encode(secret) : standardKey(secret);
    if (!raw?.length) continue;
    const key = await crypto.subtle.importKey(
      "raw",
      raw,
      { name: "HMAC", hash: "SHA-256" },
      false,
      ["verify"],
    );
    for (const signature of signatures) {
      // verify compares in constant time
      if (await crypto.subtle.verify("HMAC", key, signature, text)) good = true;
    }
  }
  if (!good) refuse("The signature of the delivery is wrong.");
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

const maxSignatures = 16;

const hexSignatures = (given: string): Bytes[] =>
  given
    .split(/[,\s]+/)
    .filter((s) => /^v1=[0-9a-f]{64}$/i.test(s))
    .slice(0, maxSignatures)
    .map((s) => Uint8Array.from(s.slice(3).match(/../g) ?? [], (h) => parseInt(h, 16)));

/** Reads webhook-signature of Standard Webhooks: "v1,BASE64" between spaces or commas. */
const standardSignatures = (given: string): Bytes[] =>
  [...given.matchAll(/(?<![^\s,])v1,([A-Za-z0-9+/]{43}=)(?![^\s,])/g)]
    .slice(0, maxSignatures)
    .map((m) => bytesOf(m[1] as string));

type Bytes = Uint8Array<ArrayBuffer>;
const bytesOf = (base64: string): Bytes => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

/** Returns the key of a secret of Standard Webhooks: base64 behind whsec_. */
function standardKey(secret: string): Bytes | undefined {
  const text = secret.startsWith("whsec_") ? secret.slice("whsec_".length) : secret;
  return /^[A-Za-z0-9+/]+={0,2}$/.test(text) && text.length % 4 !== 1 ? bytesOf(text) : undefined;
}

function header(from: HeaderSource, name: string): string {
  if (from instanceof Headers) return from.get(name) ?? "";
  for (const [n, v] of Object.entries(from)) {
    if (n.toLowerCase() === name) return Array.isArray(v) ? v.join(",") : (v ?? "");
  }
  return "";
}
