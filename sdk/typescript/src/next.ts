// The entry @tollhq/toll/next.
import { shopOf } from "./paid.js";
import type { PaidOptions } from "./sale.js";
import { sell } from "./web.js";

export { drain, HoldEnded, paymentOf, unsettledStreams } from "./paid.js";
export type {
  Amount, Asked, CallerGone, PaidOptions, Payment, Price, Unsettled, Work,
} from "./sale.js";

/**
 * Puts a price on a route handler of Next.
 *
 *     export const POST = paid(async (request: NextRequest) => Response.json({ ok: true }), {
 *       plan, agent, publicUrl, credits: 2,
 *     });
 *
 * The handler receives a NextRequest and the context of its route, as without a price. See `paid`
 * of @tollhq/toll/paid for the rules.
 */
export function paid<R extends Request, Rest extends unknown[]>(
  handler: (request: R, ...rest: Rest) => Response | Promise<Response>,
  options: PaidOptions,
): (request: R, ...rest: Rest) => Promise<Response> {
  const shop = shopOf(options);
  // A new request of the same class keeps cookies and nextUrl of a NextRequest.
  const make = (request: R, init: RequestInit): R => {
    const Made = request.constructor as new (url: string, init: RequestInit) => R;
    return new Made(request.url, { method: request.method, ...init });
  };
  return (request, ...rest) => sell(shop, request, (inner) => handler(inner, ...rest), make);
}
