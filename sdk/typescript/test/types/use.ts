// What docs/TYPESCRIPT.md shows compiles with the types of the packages that it is for. tsc alone reads this file.
import type { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { tool } from "@langchain/core/tools";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { generateText, jsonSchema, type LanguageModel } from "ai";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { privateKeyToAccount } from "viem/accounts";
import { z } from "zod";
import { credit, price, Toll } from "@tollhq/toll";
import { aiTools, langchainTools } from "@tollhq/toll/ai";
import * as forExpress from "@tollhq/toll/express";
import * as forFastify from "@tollhq/toll/fastify";
import { payingFetch } from "@tollhq/toll/fetch";
import * as forHono from "@tollhq/toll/hono";
import { payingClient, seller } from "@tollhq/toll/mcp";
import * as forNext from "@tollhq/toll/next";
import * as forWeb from "@tollhq/toll/paid";

declare const client: Client;
declare const model: LanguageModel;
declare const chat: BaseChatModel;
const shop = { plan: "1", agent: "2", publicUrl: "https://agent.example.com", credits: 2 };
const limits = { hosts: ["agent.example.com"], creditsPerCall: 5n, credits: 100n };

const paying = payingClient(client, { url: "https://agent.example.com/mcp", toll: new Toll(), limits });
await paying.callTool({ name: "forecast", arguments: { city: "Oslo" } });
const tools = await aiTools({ jsonSchema }, paying);
console.log((await generateText({ model, tools, prompt: "?" })).text);
chat.bindTools?.(await langchainTools({ tool }, paying));

const account = privateKeyToAccount(`0x${"1".repeat(64)}`);
const answer: Response = await payingFetch({ wallet: account, limits })("https://agent.example.com/ask");
console.log(answer.status);

express().post("/ask", forExpress.paid(shop), (req, res) => {
  res.json({ payer: forExpress.paymentOf(req).payer });
});
fastify().post("/ask", { preHandler: forFastify.paid(shop) }, async (req) => forFastify.paymentOf(req).payer);
new Hono().post("/ask", forHono.paid(shop), (c) => c.json({ payer: forHono.paymentOf(c.req.raw).payer }));
export const POST = forNext.paid(async (request: Request) => Response.json({ url: request.url }), shop);
export default { fetch: forWeb.paid((request: Request) => new Response(request.url), shop) };

const sell = seller({ ...shop, serverName: "weather" });
new McpServer({ name: "weather", version: "1.0.0" }).registerTool(
  "forecast",
  { inputSchema: { city: z.string() } },
  sell.tool("forecast", { credits: 3 }, async ({ city }) => ({ content: [{ type: "text", text: `${city}: sun` }] })),
);

const person = { login: "sam", password: process.env["PASSWORD"]!, workspace: "Sam Labs" };
const { token, organizations } = await new Toll({ apiKey: null }).session.signUp(person);
const session = new Toll({ apiKey: token, workspace: organizations[0]!.id });
const toll = new Toll({ apiKey: (await session.keys.create({ name: "server" })).key });
const { planId } = await toll.agents.registerWithPlan({
  agentMetadata: { name: "Ask" }, agentApi: { endpoints: [{ POST: "https://agent.example.com/ask" }] },
  planMetadata: { name: "Basic" }, priceConfig: price.fiat(5_000_000n),
  creditsConfig: credit.dynamic(100n, 1n, 10n), nonce: 9n,
});
const { orderId, result } = await toll.plans.checkout(planId, { sessionType: "hosted" });
console.log("Pay at", result.checkoutUrl);
const order = await toll.orders.wait(orderId, { signal: AbortSignal.timeout(600_000) });
if (order.status === "failed") throw new Error(order.failureReason);
const made = await toll.tokens.create({ planId, redemptionLimit: 20n, expiresInSecs: 3600 });
console.log(made.accessToken);
const card = (await toll.paymentMethods.list()).find((m) => m.status === "Active");
await toll.delegations.create({
  provider: "stripe", currency: "usd", spendingLimitCents: 2000n, durationSecs: 86_400, providerPaymentMethodId: card!.id,
});
for await (const o of toll.orders.list({ role: "seller" })) console.log(o.orderId, o.status, o.amount, o.refundedCents);
console.log(await toll.credits.usage({ by: "plan" }).all(), await toll.orders.revenue({ by: "day" }).all());
await toll.orders.refund(orderId);
