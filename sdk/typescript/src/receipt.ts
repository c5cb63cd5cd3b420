import type { SettleResponse } from "./generated.js";
import { readReceipt } from "./x402.js";

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
  const out = { ...r };
  for (const name of ["amount", "creditsRedeemed", "remainingBalance"]) {
    const value = out[name];
    if (value === undefined) continue;
    const digits = Number.isSafeInteger(value) ? String(value) : value;
    if (typeof digits !== "string" || !/^\d{1,78}$/.test(digits)) return undefined;
    out[name] = BigInt(digits);
  }
  return out as unknown as SettleResponse;
}
