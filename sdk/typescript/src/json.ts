import { shapes, type Shape } from "./generated.js";

const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const long = /\d{16}/;

/**
 * Parses JSON without rounding: an integer that a JavaScript number cannot hold becomes a bigint.
 * Throws a SyntaxError for malformed JSON.
 */
export function parse(text: string): unknown {
  if (!long.test(text)) return JSON.parse(text);
  const mark = `${crypto.randomUUID()}:`;
  const marked = text.replace(token, (t) =>
    t[0] !== '"' && /^-?\d+$/.test(t) && !Number.isSafeInteger(Number(t)) ? `"${mark}${t}"` : t,
  );
  return JSON.parse(marked, (_, v: unknown) =>
    typeof v === "string" && v.startsWith(mark) ? BigInt(v.slice(mark.length)) : v,
  );
}

/** Encodes a body. A bigint becomes a decimal string, which the service reads exactly. */
export function stringify(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) => (typeof v === "bigint" ? v.toString() : v));
}

/** Returns the value with the numbers of its shape as bigints, and everything else unchanged. */
export function convert(value: unknown, shape: Shape | undefined): unknown {
  if (!shape || value === null || value === undefined) return value;
  if (typeof shape === "string") return convert(value, shapes[shape]);
  if (Array.isArray(value)) return value.map((v) => convert(v, shape));
  if (shape === 1) {
    if (typeof value === "string") return /^\d+$/.test(value) ? BigInt(value) : value;
    return typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : value;
  }
  if (typeof value !== "object") return value;
  const out: Record<string, unknown> = { ...value };
  for (const [name, of] of Object.entries(shape)) {
    if (name in out) out[name] = convert(out[name], of);
  }
  return out;
}
