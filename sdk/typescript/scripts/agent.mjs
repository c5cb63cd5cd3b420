// Serves the agent of the benchmark in a framework: node scripts/agent.mjs express. It reads its role
// and its commands as lines of JSON, and replies to each with the CPU time that it has used, in ns.
import { once } from "node:events";
import { createInterface } from "node:readline";
import { serve } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import { Toll } from "@tollhq/toll";
import * as forExpress from "@tollhq/toll/express";
import * as forHono from "@tollhq/toll/hono";

const makers = {
  async express(shop) {
    const work = [express.text(), (req, res) => res.json({ characters: req.body.length })];
    const app = express().post("/bare", work).post("/paid", forExpress.paid(shop), work);
    const server = app.listen(0, "127.0.0.1");
    await once(server, "listening");
    return server.address();
  },
  hono(shop) {
    const work = async (c) => c.json({ characters: (await c.req.text()).length });
    const app = new Hono().post("/bare", work).post("/paid", forHono.paid(shop), work);
    return new Promise((resolve) => serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, resolve));
  },
};

function say(more) {
  const { user, system } = process.cpuUsage();
  console.log(JSON.stringify({ ...more, CPU: 1000 * (user + system) }));
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { Agent: a } = JSON.parse((await lines.next()).value);
const toll = new Toll({ apiKey: a.Key, url: a.URL });
const { port } = await makers[process.argv[2]]({ toll, plan: a.Plan, agent: a.Agent, credits: 1, log: () => undefined });
say({ Addr: `127.0.0.1:${port}` });
for await (const line of lines) {
  say({});
  if (JSON.parse(line).Quit) break;
}
process.exit(0);
