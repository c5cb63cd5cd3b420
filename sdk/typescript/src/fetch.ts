// The entry @tollhq/toll/fetch.
import { type Budget, type BuyOptions, Buyer, hostOf, PaymentError } from "./buy.js";
import * as x402 from "./x402.js";

export { Budget, hostOf, LimitReached, PaymentError } from "./buy.js";
export type {
  BuyOptions, Limits, PaymentRecord, PaymentState, TransferData, Unit, Wallet,
} from "./buy.js";
export type { Challenge } from "./x402.js";
export { receiptOf } from "./receipt.js";

/** A fetch that pays. */
export interface PayingFetch {
  (input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** Amounts spent, and the records of payments. */
  readonly budget: Budget;
  /**
   * Reads the outcome of payments whose outcome is unknown from the service. It revokes their
   * access tokens: call it while no request is running.
   */
  check(): Promise<void>;
}

const maxRefusal = 64 << 10;

/**
 * Returns a fetch that pays 402 responses of x402 servers, each once and within limits.
 *
 *     const pay = payingFetch({
 *       toll: new Toll(),
 *       limits: { hosts: ["agent.example.com"], creditsPerCall: 5n, credits: 100n },
 *     });
 *     const answer = await pay("https://agent.example.com/ask", { method: "POST", body: "?" });
 *     if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
 *     console.log(pay.budget.spent());
 *
 * A 402 response without x402 version 2, or to a request that already has a payment, is returned
 * unchanged. A redirect of a paid request is returned and not followed, because the
 * payment is only for the original address. Errors: PaymentError if nothing could be paid, or if a
 * paid request got no response. Throws a TypeError for invalid options.
 */
export function payingFetch(o: BuyOptions & { fetch?: typeof globalThis.fetch }): PayingFetch {
  const buyer = new Buyer(o);
  const send = (request: Request) => (o.fetch ?? globalThis.fetch)(request);
  const pay = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    if (request.headers.has(x402.signature)) return send(request);
    const first = await send(request.clone());
    const challenge = first.status === 402 ? await challenged(first) : undefined;
    if (!challenge) return first;
    await first.body?.cancel();
    const url = first.url || request.url;
    if (first.redirected && url !== request.url) {
      const reason = `the request was redirected to ${url}: call that address directly`;
      throw new PaymentError(hostOf(url), reason, { challenge });
    }
    const { method } = request;
    const made = await buyer.pay({ method, url, path: new URL(url).pathname, challenge });
    const headers = new Headers(request.headers);
    headers.set(x402.signature, x402.encode(made.payload));
    let answer: Response;
    try {
      answer = await send(new Request(request, { headers, redirect: "manual" }));
    } catch (e) {
      throw buyer.lost(made, e);
    }
    await buyer.finish(made, x402.readReceipt(answer.headers), answer.ok);
    return answer;
  };
  return Object.assign(pay, { budget: buyer.budget, check: () => buyer.check() });
}

/** Reads the payment requirements of a 402 without consuming its body. */
async function challenged(response: Response): Promise<x402.Challenge | undefined> {
  if (response.headers.has(x402.required)) return x402.readChallenge(response.headers, "");
  const reader = (response.clone().body as ReadableStream<Uint8Array> | null)?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (reader && text.length <= maxRefusal) {
    const { done, value } = await reader.read();
    if (done) return x402.readChallenge(response.headers, text + decoder.decode());
    text += decoder.decode(value, { stream: true });
  }
  reader?.cancel().catch(() => undefined);
  return undefined;
}
