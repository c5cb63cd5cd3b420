// The protocol for buyers and sellers: access tokens, challenges, and receipts.
import { fromBase64, toBase64 } from "./base64.js";

export const signature = "payment-signature";
export const required = "payment-required";
export const receipt = "payment-response";
/** Longest access token in one header, in characters. */
export const maxToken = 8 << 10;
/** Lower bound of the length of access tokens, in characters. */
export const minToken = 200;
/** Name of the extension for the id that a client gives its payment. */
export const identifier = "payment-identifier";

const jwsForm = /^[\w-]+\.[\w-]+\.[\w-]+$/;
const maxPayload = 16 << 10;
const maxChallenge = 64 << 10;

export type Json = Record<string, unknown>;

/** Returns the value if it is a JSON object. */
export const object = (v: unknown): Json | undefined =>
  typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Json) : undefined;

/** Encodes JSON for payment headers. Bigints become decimal strings. */
export const encode = (value: unknown): string =>
  toBase64(JSON.stringify(value, (_, v: unknown) => (typeof v === "bigint" ? String(v) : v)));

/** Decodes base64 of JSON; undefined for anything else. */
function decode(text: string, max: number): unknown {
  if (!text || text.length > max) return undefined;
  try {
    return JSON.parse(fromBase64(text));
  } catch {
    return undefined;
  }
}

/** A payment cannot be decoded. `code` is the error code that the service uses for it. */
export class Undecodable extends Error {
  readonly code: string;
  constructor(why: string, code = "BCK.X402.0010") {
    super(`The access token cannot be decoded: ${why}.`);
    this.code = code;
  }
}

/** The parts of an access token. Only the JWS is signed, and its signature is not verified here. */
export interface Token {
  jws: string;
  claims: Json;
  nonce: string;
  extensions: Json;
}

/** Decodes an access token in any form: JWS, base64 of a PaymentPayload, or its JSON text. */
export function decodeToken(text: string): Token {
  const json = text.startsWith("{");
  if (text.length > (json ? maxPayload : maxToken)) {
    throw new Undecodable(`the token is larger than ${json ? 16 : 8} KiB`);
  }
  if (jwsForm.test(text)) return { jws: text, claims: claimsOf(text), nonce: "", extensions: {} };
  let value: unknown;
  try {
    value = JSON.parse(json ? text : fromBase64(text));
  } catch {
    throw new Undecodable("expected a JWS, a JSON object, or the base64 of a JSON object");
  }
  const p = object(value);
  if (!p) throw new Undecodable("the payment payload is not an object");
  if (p.x402Version !== 2) throw new Undecodable("x402Version is not 2", "BCK.X402.0915");
  const inner = object(p.payload) ?? {};
  if (typeof inner.signature !== "string" || !jwsForm.test(inner.signature)) {
    throw new Undecodable("payload.signature is not a JWS");
  }
  const extensions = object(p.extensions ?? {});
  if (!extensions) throw new Undecodable("extensions must be an object");
  return {
    jws: inner.signature,
    claims: claimsOf(inner.signature),
    nonce: typeof inner.nonce === "string" ? inner.nonce : "",
    extensions,
  };
}

const claimsOf = (jws: string): Json => object(decode(jws.split(".")[1] ?? "", maxToken)) ?? {};

/** Reports whether a text has the form of an access token. */
export function isAccessToken(text: string): boolean {
  if (text.length < minToken || !/^[e{]/.test(text)) return false;
  try {
    const { claims } = decodeToken(text);
    return claims.x402Version === 2 && !!claims.planId;
  } catch {
    return false;
  }
}

/** Returns the credential of a Bearer Authorization header, or "". */
export const bearer = (value: string): string =>
  /^bearer\s/i.test(value) ? value.slice("bearer".length).trim() : "";

/** The PaymentRequired of a server, as sent. */
export interface Challenge extends Json {
  accepts: unknown[];
}

/** Reads the PaymentRequired of a 402; undefined unless it has version 2. */
export function readChallenge(headers: Headers, body: string): Challenge | undefined {
  const header = headers.get(required);
  let value: unknown;
  try {
    value = header ? decode(header, maxChallenge) : JSON.parse(body);
  } catch {
    return undefined;
  }
  return challengeOf(value);
}

/** Returns a PaymentRequired of version 2, undefined for anything else. */
export function challengeOf(value: unknown): Challenge | undefined {
  const p = object(value);
  return p?.x402Version === 2 && Array.isArray(p.accepts) ? (p as Challenge) : undefined;
}

/** Reads the receipt of a response; undefined if it is missing or malformed. */
export const readReceipt = (headers: Headers): Json | undefined =>
  object(decode(headers.get(receipt) ?? "", maxChallenge));
