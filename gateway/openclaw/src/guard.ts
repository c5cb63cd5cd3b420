// Guards against API keys in prompts, transcripts, errors and logs. The patterns come from the
// core (registry.json).
import registry from "./registry.json" with { type: "json" };

const patterns = registry.secretPatterns.map((source) => new RegExp(source, "g"));
const mark = "[key removed]";

/**
 * isAccessToken reports whether a JWT is an access token: it names a plan, an API key does not.
 * Access tokens reach the model on purpose, so they stay.
 */
function isAccessToken(jwt: string): boolean {
  try {
    const payload = Buffer.from(jwt.split(".")[1] ?? "", "base64url").toString();
    const claims: unknown = JSON.parse(payload);
    return typeof claims === "object" && claims !== null && "planId" in claims && "x402Version" in claims;
  } catch {
    return false;
  }
}

/** redact replaces every API key in a text. */
export function redact(text: string): string {
  if (!/eyJ|tk_/i.test(text)) return text;
  for (const pattern of patterns) {
    text = text.replace(pattern, (found) => (isAccessToken(found) ? found : mark));
  }
  return text;
}

/** holdsKey reports whether a text holds an API key. */
export function holdsKey(text: string): boolean {
  return redact(text) !== text;
}

const maxDepth = 64;

/**
 * redactAll returns value with the API keys in all its texts replaced. It copies what it changes
 * and returns value itself where nothing changes.
 */
export function redactAll(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return redact(value);
  if (typeof value !== "object" || value === null || depth > maxDepth) return value;
  if (Array.isArray(value)) {
    const copy = value.map((item) => redactAll(item, depth + 1));
    return copy.some((item, i) => item !== value[i]) ? copy : value;
  }
  let copy: Record<string, unknown> | undefined;
  for (const [name, item] of Object.entries(value)) {
    const clean = redactAll(item, depth + 1);
    if (clean !== item) {
      copy ??= { ...value };
      copy[name] = clean;
    }
  }
  return copy ?? value;
}
