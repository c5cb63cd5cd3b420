import type { SettleResponse } from "./generated.js";
import { type Json, object, readReceipt } from "./x402.js";

/**
 * Returns the receipt in the header payment-response of a response. Credits are bigints. Returns
 * undefined if the header is missing or malformed. The receipt is not signed: `payments.get` and
 * `payments.findByTransaction` read the record of the service.
 *
 *     const answer = await pay("https://agent.example.com/ask", { method: "POST", body: "?" });
 *     console.log(receiptOf(answer)?.creditsRedeemed);
 */
export function receiptOf(response: { readonly headers: Headers }): SettleResponse | undefined {
  const r = readReceipt(response.headers);
  if (typeof r?.success !== "boolean") return undefined;
  if (typeof r.transaction !== "string" || typeof r.network !== "string") return undefined;
  const out = exact(r);
  if (!out || out.extra === undefined) return out as unknown as SettleResponse | undefined;
  const extra = exact(object(out.extra));
  return extra && ({ ...out, extra } as unknown as SettleResponse);
}

/** Returns an object with its credits as bigints; undefined if one is not a whole number. */
function exact(from: Json | undefined): Json | undefined {
  const out = from && { ...from };
  for (const name of ["amount", "creditsRedeemed", "remainingBalance", "requestedAmount"]) {
    const value = out?.[name];
    if (!out || value === undefined) continue;
    const digits = Number.isSafeInteger(value) ? String(value) : value;
    if (typeof digits !== "string" || !/^\d{1,78}$/.test(digits)) return undefined;
    out[name] = BigInt(digits);
  }
  return out;
}
