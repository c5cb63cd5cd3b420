// The entry @tollhq/toll/hono.
import { shopOf } from "./paid.js";
import type { PaidOptions } from "./sale.js";
import { sell } from "./web.js";

export { drain, HoldEnded, paymentOf, unsettledStreams } from "./paid.js";
export type {
  Amount, Asked, CallerGone, PaidOptions, Payment, Price, Unsettled, Work,
} from "./sale.js";

/** The members of a Context of Hono that are used. */
export interface HonoLikeContext {
  req: { raw: Request };
  get res(): Response;
  set res(response: Response | undefined);
}

/**
 * Middleware of Hono that puts a price on a route, or on everything behind `app.use`.
 *
 *     app.post("/ask", paid({ plan, agent, publicUrl, credits: 2 }), (c) =>
 *       c.json({ payer: paymentOf(c.req.raw).payer }),
 *     );
 *
 * The response of the handler is kept back until it is settled: see `paid` of @tollhq/toll/paid.
 */
export function paid(
  options: PaidOptions,
): (c: HonoLikeContext, next: () => Promise<void>) => Promise<Response | undefined> {
  const shop = shopOf(options);
  return async (c, next) => {
    let ran = false;
    const out = await sell(shop, c.req.raw, async (inner) => {
      ran = true;
      c.req.raw = inner;
      await next();
      return c.res;
    });
    if (!ran) return out;
    // Otherwise, Hono would copy headers of its current response.
    c.res = undefined;
    c.res = out;
    return undefined;
  };
}
