// A route handler of Next, app/ask/route.ts.
import { paid, paymentOf } from "@tollhq/toll/next";

export const POST = paid(
  async (request) => {
    const { text } = await request.json();
    return Response.json({ text: text.toUpperCase(), payer: paymentOf(request).payer });
  },
  {
    plan: process.env.TOLL_PLAN,
    agent: process.env.TOLL_AGENT,
    publicUrl: process.env.AGENT_URL,
    credits: 2,
  },
);
