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
 * Puts a price on a handler of Web requests: Workers, Deno, Bun, route handlers of Next, SvelteKit.
 *
 *     export default { fetch: paid(handler, { plan, agent, publicUrl, credits: 2 }) };
 *
 * 1. The payment is verified with a hold, or the caller gets 402 that says what it costs. When the
 *    service is away: 503, and the handler does not run.
 * 2. The handler runs. It never sees the access token, and `paymentOf(request)` says who pays.
 * 3. A 2xx is settled, once; then it leaves with its receipt in payment-response. Anything else,
 *    and a handler that throws, gives the hold back: errors are free.
 * 4. A settlement that is refused is a 402, and one whose outcome is unknown after three tries a
 *    503, both without a byte of the handler's answer.
 *
 * Event streams, answers beyond `maxBuffer`, and all with `stream` leave part by part on the hold
 * and are settled at their end or when they are cut. A stream that cannot be settled then is
 * settled later (`drain`, `onUnsettled`). Throws a TypeError for options that cannot be.
 */
export function paid<R extends Request, Rest extends unknown[]>(
  handler: (request: R, ...rest: Rest) => Response | Promise<Response>,
  options: PaidOptions,
): (request: R, ...rest: Rest) => Promise<Response> {
  const shop = shopOf(options);
  return (request, ...rest) => sell(shop, request, (inner) => handler(inner, ...rest));
}
