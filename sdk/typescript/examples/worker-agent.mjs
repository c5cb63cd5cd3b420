// An agent on Hono, as a Worker has it: `export default app` is all that it needs there.
import { Hono } from "hono";
import { Toll } from "@tollhq/toll";
import { paid, paymentOf } from "@tollhq/toll/hono";

/** Returns the agent for the bindings of a Worker. */
export function agent(env) {
  const toll = new Toll({ apiKey: env.TOLL_API_KEY, url: env.TOLL_URL });
  const shop = { toll, plan: env.TOLL_PLAN, agent: env.TOLL_AGENT, publicUrl: env.AGENT_URL };
  const app = new Hono();
  app.post("/ask", paid({ ...shop, credits: 2 }), async (c) => {
    const { text } = await c.req.json();
    return c.json({ text: text.toUpperCase(), payer: paymentOf(c.req.raw).payer });
  });
  return app;
}

let app;
export default {
  fetch(request, env, ctx) {
    app ??= agent(env);
    return app.fetch(request, env, ctx);
  },
};
