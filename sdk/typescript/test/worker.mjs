// A Worker that sells an answer, and runs the conformance files.
import { Toll } from "@tollhq/toll";
import { paid, paymentOf } from "@tollhq/toll/paid";
import { conform } from "./remote.mjs";

let sell;
export default {
  async fetch(request, env, ctx) {
    const { pathname } = new URL(request.url);
    if (pathname === "/conform") return Response.json(await conform(env.ORIGIN));
    sell ??= paid((r) => new Response(`sold to ${paymentOf(r).payer}`), {
      toll: new Toll({ apiKey: env.TOLL_API_KEY, url: env.TOLL_URL }),
      plan: env.TOLL_PLAN, agent: env.TOLL_AGENT, publicUrl: env.AGENT_URL, credits: 2,
      waitUntil: (work) => ctx.waitUntil(work),
    });
    return sell(request);
  },
};
