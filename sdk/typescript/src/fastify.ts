// The entry @tollhq/toll/fastify.
import { Capture, type NodeRequest, type NodeResponse, open } from "./node.js";
import { shopOf } from "./paid.js";
import type { PaidOptions } from "./sale.js";

export { drain, HoldEnded, paymentOf, unsettledStreams } from "./paid.js";
export type {
  Amount, Asked, CallerGone, PaidOptions, Payment, Price, Unsettled, Work,
} from "./sale.js";
export type { NodeRequest, NodeResponse } from "./node.js";

/** The members of a FastifyRequest that are used. */
export interface FastifyLikeRequest {
  raw: NodeRequest;
}

/** The members of a FastifyReply that are used. */
export interface FastifyLikeReply {
  raw: NodeResponse;
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  send(payload: unknown): unknown;
  hijack(): unknown;
}

/**
 * A preHandler of Fastify that puts a price on a route, or with addHook on all of a scope.
 *
 *     const preHandler = paid({ plan, agent, publicUrl, credits: 2 });
 *     app.post("/ask", { preHandler }, async (req) => ({ payer: paymentOf(req).payer }));
 *
 * The response of the handler is kept back until it is settled: see `paid` of @tollhq/toll/paid.
 * Fastify reads the body before, within its own bodyLimit.
 */
export function paid(
  options: PaidOptions,
): (request: FastifyLikeRequest, reply: FastifyLikeReply) => Promise<unknown> {
  const shop = shopOf(options);
  return async (request, reply) => {
    const { raw } = request;
    const refused = await open(shop, raw, reply.raw, raw.url ?? "/", request);
    if (refused instanceof Capture) return undefined;
    if (refused === "gone") {
      reply.hijack(); // otherwise the handler would run
      return reply;
    }
    reply.code(refused.status);
    for (const [name, value] of refused.headers) reply.header(name, value);
    reply.send(refused.body);
    return reply;
  };
}
