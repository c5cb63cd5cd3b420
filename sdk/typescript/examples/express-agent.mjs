// An agent that sells responses with Express. Set TOLL_PLAN, TOLL_AGENT, AGENT_URL, and PORT.
import express from "express";
import { drain, paid, paymentOf } from "@tollhq/toll/express";

const { TOLL_PLAN: plan, TOLL_AGENT: agent, AGENT_URL: publicUrl, PORT = "8403" } = process.env;
const shop = { plan, agent, publicUrl };
const app = express();

app.post("/ask", paid({ ...shop, credits: 2 }), express.json(), (req, res) => {
  res.json({ text: req.body.text.toUpperCase(), payer: paymentOf(req).payer });
});

/** One credit for each hundred bytes of the answer. */
const byLength = (work) => Math.ceil(work.size / 100);
app.post("/essay", paid({ ...shop, credits: byLength, maxCredits: 5 }), express.json(), (req, res) => {
  res.json({ text: req.body.text.repeat(10) });
});

const server = app.listen(Number(PORT), "127.0.0.1");
process.once("SIGTERM", async () => {
  server.close();
  await drain(10_000); // streams that wait for their settlement
  process.exit(0);
});
