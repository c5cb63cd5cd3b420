// The entry @tollhq/toll/paid.
import { Toll } from "./client.js";
import { type PaidOptions, Shop } from "./sale.js";
import { sell } from "./web.js";

export { drain, HoldEnded, unsettledStreams } from "./sale.js";
export type {
  Amount, Asked, CallerGone, PaidOptions, Payment, Price, Unsettled, Work,
} from "./sale.js";
export { paymentOf } from "./web.js";

let shared: Toll | undefined;

/** @internal Returns the settings of a route. */
export const shopOf = (o: PaidOptions): Shop => new Shop(o, () => (shared ??= new Toll()));

/**
 * Puts a price on a handler of Web requests: Workers, Deno, Bun, Next route handlers, and
 * SvelteKit.
 *
 *     export default { fetch: paid(handler, { plan, agent, publicUrl, credits: 2 }) };
 *
 * 1. The payment is verified with a hold; otherwise the caller gets a 402 with the price. If the
 *    service is unavailable, the caller gets a 503 and the handler does not run.
 * 2. The handler runs. It never sees the access token; `paymentOf(request)` returns the payment.
 * 3. A 2xx response is settled once, and then sent with its receipt in payment-response. For any
 *    other response, and if the handler throws, the hold is released: errors are free.
 * 4. A refused settlement becomes a 402. A settlement whose outcome is unknown after three attempts
 *    becomes a 503. Neither contains any part of the handler's response.
 *
 * Event streams, responses longer than `maxBuffer`, and all responses with `stream` are sent part
 * by part on the hold, and settled when they end or are cut off. If that settlement fails, it is
 * retried later (`drain`, `onUnsettled`). Throws a TypeError for invalid options.
 */
export function paid<R extends Request, Rest extends unknown[]>(
  handler: (request: R, ...rest: Rest) => Response | Promise<Response>,
  options: PaidOptions,
): (request: R, ...rest: Rest) => Promise<Response> {
  const shop = shopOf(options);
  return (request, ...rest) => sell(shop, request, (inner) => handler(inner, ...rest));
}
