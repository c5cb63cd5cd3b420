// The entry @tollhq/toll/express.
import { Capture, type NodeRequest, type NodeResponse, open, send } from "./node.js";
import { shopOf } from "./paid.js";
import type { PaidOptions } from "./sale.js";

export { drain, HoldEnded, paymentOf, unsettledStreams } from "./paid.js";
export type {
  Amount, Asked, CallerGone, PaidOptions, Payment, Price, Unsettled, Work,
} from "./sale.js";
export type { NodeRequest, NodeResponse } from "./node.js";

/**
 * Middleware of Express that puts a price on a route, or on everything behind `app.use`.
 *
 *     app.post("/ask", paid({ plan, agent, publicUrl, credits: 2 }), (req, res) => {
 *       res.json({ payer: paymentOf(req).payer });
 *     });
 *
 * The response of the handler is kept back until it is settled: see `paid` of @tollhq/toll/paid. It
 * also works with Connect and other servers on node:http. If the caller disconnects, Express still
 * emits "close"; a handler that must finish its work for a POST should not stop on it.
 */
export function paid(
  options: PaidOptions,
): (req: NodeRequest, res: NodeResponse, next: (error?: unknown) => void) => void {
  const shop = shopOf(options);
  return (req, res, next) => {
    const path = (req as { originalUrl?: string }).originalUrl ?? req.url ?? "/";
    open(shop, req, res, path).then((reply) => {
      if (reply === "gone") return;
      if (!(reply instanceof Capture)) return send(res, reply);
      try {
        next();
      } catch (e) {
        reply.fail(e); // node:http does not catch errors of a handler
      }
    }, next).catch(() => res.destroy());
  };
}
