// Prices on items of an MCP server of the official SDK, and clients that pay for them.
import assert from "node:assert/strict";
import http from "node:http";
import { once } from "node:events";
import { after, before, beforeEach, test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CallToolRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import { generateText, jsonSchema, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { z } from "zod";
import { Toll } from "@tollhq/toll";
import { aiTools, langchainTools } from "@tollhq/toll/ai";
import { payingFetch, receiptOf } from "@tollhq/toll/fetch";
import { payingClient, PaymentError, paymentOf, seller } from "@tollhq/toll/mcp";
import { Service } from "@tollhq/toll/testing";
import { content, Faults, pause } from "./apps.mjs";

let service;
let faults;
let front;
const events = [];
const state = {};
before(async () => {
  service = await Service.start();
  await service.mint(1000n);
  faults = new Faults(events);
  front = await serve();
});
after(async () => {
  front?.closeAllConnections();
  front?.close();
  await service?.stop();
});
beforeEach(() => {
  events.length = 0;
  faults.reset();
  Object.assign(state, { runs: 0, seen: undefined, payment: undefined, aborted: false, said: [] });
  state.entered = new Promise((resolve) => (state.enter = resolve));
  state.resumed = new Promise((resolve) => (state.resume = resolve));
});

async function makeServer({ rejected, ...more } = {}) {
  const toll = new Toll({
    apiKey: (await service.key("builder")).key, url: service.url, log: () => undefined,
    fetch: (url, init) => faults.fetch(url, init),
  });
  const sell = seller({ toll, plan: service.planId, agent: service.agentId, serverName: "weather", log: () => undefined, ...more });
  const server = new McpServer({ name: "weather", version: "1" }, { capabilities: { logging: {} } });
  const run = (extra) => {
    state.runs++;
    events.push("run");
    state.seen = { meta: extra._meta, headers: extra.requestInfo?.headers };
    state.enter();
  };
  const text = (t) => ({ content: [{ type: "text", text: t }] });
  server.registerTool("ask", { inputSchema: { what: z.string().optional() } },
    sell.tool("ask", { credits: 2 }, async ({ what }, extra) => {
      run(extra);
      state.payment = paymentOf(extra);
      if (what === "raise") throw new Error("the tool failed");
      if (what === "error") return { ...text("no"), isError: true };
      if (what === "say") {
        await extra.sendNotification({ method: "notifications/message", params: { level: "info", data: content } });
      }
      if (what === "hang") {
        await Promise.race([state.resumed, new Promise((_, reject) => extra.signal.addEventListener("abort", () => {
          state.aborted = true;
          reject(extra.signal.reason);
        }))]);
      }
      return { ...text(content), _meta: { own: 1, "x402/payment-response": "forged" } };
    }));
  server.registerTool("priced", { inputSchema: { n: z.number() } },
    sell.tool("priced", { credits: ({ args, result }) => {
      if (args.n < 0) throw new Error("no price");
      return args.n + result.content.length;
    }, maxCredits: 5 }, async (_, extra) => (run(extra), text(content))));
  server.registerTool("free", {}, sell.tool("free", { credits: 0 }, async (extra) => (run(extra), text("free"))));
  server.registerTool("strict", {}, sell.tool("strict", { credits: 2, onRedeemError: "propagate" }, async (extra) => (run(extra), text(content))));
  server.registerTool("typed", { outputSchema: { answer: z.string() } },
    sell.tool("typed", { credits: 2 }, async (extra) => (run(extra), { ...text(content), structuredContent: { answer: content } })));
  if (rejected) registerRejected(server, sell, run);
  server.registerResource("data", "data://one", {},
    sell.resource("data://one", { credits: 2 }, async (uri, extra) => (run(extra), { contents: [{ uri: uri.href, text: content }] })));
  server.registerPrompt("report", {},
    sell.prompt("report", { credits: 2 }, async (extra) => {
      run(extra);
      await Promise.race([state.held ? state.resumed : undefined, new Promise((resolve) => extra.signal.addEventListener("abort", resolve))]);
      return { messages: [{ role: "user", content: { type: "text", text: content } }] };
    }));
  return server;
}

/** Items whose results the SDK rejects. */
function registerRejected(server, sell, run) {
  const text = (t) => ({ content: [{ type: "text", text: t }] });
  const loose = { answer: z.string() };
  for (const [name, outputSchema] of [["loose", loose], ["whole", z.object(loose)], ["shapeless", undefined]]) {
    server.registerTool(name, { outputSchema, inputSchema: { what: z.string().optional() } },
      sell.tool(name, { credits: 2, outputSchema }, async ({ what }, extra) => {
        run(extra);
        const results = {
          none: text(content), wrong: { ...text(content), structuredContent: { answer: 5 } }, nothing: undefined,
          shape: { content: [{ type: "picture", of: content }] },
        };
        return what in results ? results[what] : { ...text(content), structuredContent: { answer: content } };
      }));
  }
  server.registerResource("bad", "data://bad", {},
    sell.resource("data://bad", { credits: 2 }, async (uri, extra) => (run(extra), { contents: [{ uri: uri.href, text: 5 }] })));
  server.registerPrompt("bad", {},
    sell.prompt("bad", { credits: 2 }, async (extra) => (run(extra), { messages: [{ role: "nobody", content: { type: "text", text: content } }] })));
}

/** Serves one server for each request, as stateless servers do. */
async function serve() {
  const out = http.createServer(async (req, res) => {
    const server = await makeServer();
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    res.on("close", () => transport.close());
    await server.connect(transport);
    await transport.handleRequest(req, res);
  });
  out.listen(0, "127.0.0.1");
  await once(out, "listening");
  return out;
}

const url = () => `http://127.0.0.1:${front.address().port}/mcp`;
const host = () => `127.0.0.1:${front.address().port}`;

async function connect(headers = {}) {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url()), { requestInit: { headers } }));
  return client;
}

/** A client and a server without a network between them. */
async function pair(more) {
  return linked(await makeServer(more));
}

async function linked(server) {
  const client = new Client({ name: "test", version: "1" });
  const [a, b] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(a), client.connect(b)]);
  return client;
}

const withToken = (token, params) => ({ ...params, _meta: { "x402/payment": token } });
const balance = async () => {
  const b = await service.balance();
  return [b.balance, b.held];
};
const eventually = async (check, what) => {
  for (const end = Date.now() + 20_000; !(await check()); await pause(10)) {
    assert.ok(Date.now() < end, typeof what === "function" ? what() : what);
  }
};
const has = (event) => eventually(() => events.includes(event), () => `no ${event} in ${events}`);
const options = async (more = {}) => ({
  url: url(), toll: await service.client("subscriber"), plans: [service.planId], hosts: [host()],
  limits: { hosts: [host()], creditsPerCall: 5n, credits: 100n }, ...more,
});

test("a call that is slow outlasts its hold", async () => {
  const [had] = await balance();
  const client = await pair({ holdSecs: 1 });
  const call = client.callTool(withToken(await service.token(), { name: "ask", arguments: { what: "hang" } }));
  await pause(2500);
  assert.ok(faults.counts.renew >= 2, `${faults.counts.renew} renewals`);
  state.resume();
  assert.equal((await call).content[0].text, content);
  assert.deepEqual(await balance(), [had - 2n, 0n]);
  await client.close();
});

test("a result that the SDK rejects is free", async () => {
  const [had] = await balance();
  const client = await pair({ rejected: true });
  const token = await service.token();
  for (const [name, what] of [
    ["loose", "none"], ["loose", "wrong"], ["whole", "none"], ["whole", "wrong"], ["shapeless", "shape"], ["shapeless", "nothing"],
  ]) {
    const got = await client.callTool(withToken(token, { name, arguments: { what } })).catch((e) => ({ isError: true, message: e.message }));
    assert.ok(got.isError && !JSON.stringify(got).includes(content), `${name} ${what}: ${JSON.stringify(got)}`);
  }
  await assert.rejects(client.getPrompt(withToken(token, { name: "bad" })));
  await assert.rejects(client.readResource(withToken(token, { uri: "data://bad" })));
  assert.equal(state.runs, 8);
  assert.deepEqual(await balance(), [had, 0n]);
  for (const name of ["loose", "whole"]) {
    const got = await client.callTool(withToken(token, { name, arguments: {} }));
    assert.equal(got.structuredContent.answer, content);
  }
  assert.deepEqual(await balance(), [had - 4n, 0n]);
  await client.close();
});

test("I16: a result leaves once it is settled, with its receipt", async () => {
  const token = await service.token();
  const [had] = await balance();
  for (const client of [await connect(), await pair()]) {
    events.length = 0;
    const r = await client.callTool(withToken(token, { name: "ask", arguments: {} }));
    assert.equal(r.content[0].text, content);
    const receipt = r._meta["x402/payment-response"];
    const stored = await (await service.client()).payments.get(receipt.extra.agentRequestId);
    assert.equal(stored.status, "settled");
    assert.deepEqual(stored.receipt, receiptOf({ headers: new Headers({ "payment-response": btoa(JSON.stringify(receipt)) }) }));
    const { txHash, ...credits } = r._meta["service/credits"];
    assert.equal(txHash, receipt.transaction);
    assert.deepEqual([credits.creditsRedeemed, credits.planId], ["2", service.planId]);
    assert.equal(r._meta.own, 1);
    assert.deepEqual(events.filter((e) => / 200|run/.test(e) && !/plans|api/.test(e)).slice(-3), ["verify 200", "run", "settle 200"]);
    assert.ok(!JSON.stringify(state.seen).includes(token));
    assert.equal(state.payment.payer, (await service.key("subscriber")).address);
    await client.close();
  }
  assert.deepEqual(await balance(), [had - 4n, 0n]);
});

test("without a payment the answer in band says what it costs", async () => {
  const client = await connect();
  for (const bad of [undefined, "x", {}, { x402Version: 2 }, 5, `${(await service.token()).slice(0, -4)}AAAA`]) {
    const r = await client.callTool(withToken(bad, { name: "ask", arguments: {} }));
    assert.equal(r.isError, true);
    const asks = r.structuredContent;
    assert.deepEqual(JSON.parse(r.content[0].text), asks);
    assert.match(asks.error, /^payment required/);
    assert.equal(asks.resource.url, "mcp://weather/tools/ask");
    assert.deepEqual([asks.accepts[0].planId, asks.accepts[0].amount, asks.accepts[0].extra.httpVerb], [service.planId, "2", "POST"]);
  }
  for (const call of [() => client.readResource({ uri: "data://one" }), () => client.getPrompt({ name: "report" })]) {
    await assert.rejects(call(), (e) => e.code === -32003 && e.data.accepts.length === 1 && /Authorization required/.test(e.message));
  }
  assert.equal(state.runs, 0);
  await client.close();
});

test("I17: errors of items are free", async () => {
  const token = await service.token();
  const [had] = await balance();
  const client = await pair();
  for (const what of ["raise", "error"]) {
    events.length = 0;
    const r = await client.callTool(withToken(token, { name: "ask", arguments: { what } }));
    assert.equal(r.isError, true);
    assert.ok(!JSON.stringify(r).includes(content));
    await has("release 200");
  }
  assert.deepEqual(await balance(), [had, 0n]);
});

test("prices of results, and free items", async () => {
  const token = await service.token();
  const [had] = await balance();
  const client = await pair();
  const call = (n) => client.callTool(withToken(token, { name: "priced", arguments: { n } }));
  assert.equal((await call(2))._meta["service/credits"].creditsRedeemed, "3");
  assert.equal((await call(9))._meta["service/credits"].creditsRedeemed, "5");
  await assert.rejects(async () => {
    const r = await call(-1);
    assert.ok(!JSON.stringify(r).includes(content), "the content left");
    throw new Error(JSON.stringify(r));
  });
  const free = await client.callTool({ name: "free", arguments: {} });
  assert.deepEqual(free._meta, { "service/credits": { success: true, creditsRedeemed: "0" } });
  assert.deepEqual(await balance(), [had - 8n, 0n]);
});

test("F08: the service is down, or refuses the settlement", async () => {
  const token = await service.token();
  const client = await pair();
  const call = (name = "ask") => client.callTool(withToken(token, { name, arguments: {} }));
  await client.callTool({ name: "ask", arguments: {} }); // terms are known
  faults.before = (op) => op === "verify" && "down";
  assert.match((await call()).structuredContent.error, /plans unavailable/);
  assert.equal(state.runs, 0);
  const [had] = await balance();
  faults.reset();
  faults.after = (op) => op === "settle" && "down";
  const lost = await call();
  assert.match(lost.structuredContent.error, /settlement pending/);
  assert.ok(!JSON.stringify(lost).includes(content));
  assert.deepEqual(await balance(), [had - 2n, 0n]);
  const giveBack = async (op) => {
    if (op === "settle") await (await service.client()).payments.release(faults.requestId);
  };
  faults.reset();
  faults.before = giveBack;
  const refused = await call();
  assert.match(refused.structuredContent.error, /settlement failed/);
  assert.ok(!JSON.stringify(refused).includes(content));
  const strict = await call("strict").catch((e) => e);
  assert.ok(!JSON.stringify(strict).includes(content));
  assert.match(JSON.stringify(strict.content ?? strict.message), /Failed to redeem credits/);
  assert.deepEqual(await balance(), [had - 2n, 0n]);
});

test("notifications wait for the settlement", async () => {
  const token = await service.token();
  const client = await pair();
  client.fallbackNotificationHandler = async (n) => {
    events.push("said");
    state.said.push(n.params.data);
  };
  const say = () => client.callTool(withToken(token, { name: "ask", arguments: { what: "say" } }));
  await say();
  assert.deepEqual(state.said, [content]);
  assert.ok(events.indexOf("settle 200") < events.indexOf("said"));
  state.said = [];
  faults.before = (op) => op === "settle" && "down";
  await say();
  faults.reset();
  assert.deepEqual(state.said, []);
  await (await service.client()).payments.release(faults.requestId); // its outcome is unknown
});

test("T102: callers who leave", async () => {
  const token = await service.token();
  const [had] = await balance();
  const client = await pair();
  const c = new AbortController();
  const left = client.callTool(withToken(token, { name: "ask", arguments: { what: "hang" } }), undefined, { signal: c.signal });
  left.catch(() => undefined);
  await state.entered;
  c.abort();
  await pause(50);
  state.resume();
  await has("settle 200");
  await eventually(async () => (await balance())[0] === had - 2n, "it is not settled");
  assert.equal(state.aborted, false);

  events.length = 0;
  state.held = true;
  state.entered = new Promise((resolve) => (state.enter = resolve));
  const c2 = new AbortController();
  const free = client.getPrompt(withToken(token, { name: "report" }), { signal: c2.signal });
  free.catch(() => undefined);
  await state.entered;
  c2.abort();
  await has("release 200");
  state.held = false;
  assert.ok(!events.includes("settle 200"));
  assert.deepEqual(await balance(), [had - 2n, 0n]);
});

test("T89: the bearer token pays, and the payment in the message wins", async () => {
  const token = await service.token();
  const other = await service.token({ credits: 10n, account: "other" });
  const [had] = await balance();
  const client = await connect({ authorization: `Bearer ${token}` });
  const r = await client.callTool({ name: "ask", arguments: {} });
  assert.equal(r._meta["service/credits"].creditsRedeemed, "2");
  assert.ok(!JSON.stringify(state.seen).includes(token));
  const s = await client.callTool(withToken(other, { name: "ask", arguments: {} }));
  assert.equal(s._meta["service/credits"].subscriberAddress, (await service.key("other")).address);
  assert.deepEqual(await balance(), [had - 2n, 0n]);
  await client.close();
});

test("a low-level server sells the calls that it dispatches itself", async () => {
  const token = await service.token();
  const [had] = await balance();
  const shop = { toll: await service.client(), plan: service.planId, agent: service.agentId };
  const tools = {
    echo: seller({ ...shop, serverName: "low" }).tool("echo", { credits: 2 }, async ({ text }, extra) => {
      state.seen = { text, meta: extra._meta };
      return { content: [{ type: "text", text }] };
    }),
  };
  const server = new Server({ name: "low", version: "1" }, { capabilities: { tools: {} } });
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) => tools[params.name](params.arguments, extra));
  const client = await linked(server);
  const call = { name: "echo", arguments: { text: "hi" } };
  const asks = await client.callTool(call);
  assert.deepEqual([asks.isError, asks.structuredContent.accepts[0].amount], [true, "2"]);
  assert.equal(state.seen, undefined);
  const paid = await client.callTool(withToken(token, call));
  assert.deepEqual([paid.content[0].text, paid._meta["service/credits"].creditsRedeemed], ["hi", "2"]);
  assert.deepEqual(state.seen, { text: "hi", meta: {} });
  assert.deepEqual(await balance(), [had - 2n, 0n]);
});

test("a paying client pays once, within limits", async () => {
  const [had] = await balance();
  const client = await connect();
  const paying = payingClient(client, await options());
  assert.equal((await paying.callTool({ name: "ask", arguments: {} })).content[0].text, content);
  assert.equal((await paying.readResource({ uri: "data://one" })).contents[0].text, content);
  assert.equal((await paying.getPrompt({ name: "report" })).messages[0].content.text, content);
  assert.equal((await paying.callTool({ name: "free", arguments: {} })).content[0].text, "free");
  assert.equal((await paying.listTools()).tools.length, 5);
  assert.equal(paying.budget.spent(), 6n);
  assert.deepEqual(paying.budget.payments.map((p) => [p.state, p.path]), [
    ["paid", "tools/call/ask"], ["paid", "resources/read/data://one"], ["paid", "prompts/get/report"],
  ]);
  assert.deepEqual(await balance(), [had - 6n, 0n]);
  const error = await paying.callTool({ name: "ask", arguments: { what: "error" } });
  assert.equal(error.isError, true);
  assert.equal(paying.budget.payments.at(-1).state, "refused");
  const poor = payingClient(client, await options({ limits: { hosts: [host()], creditsPerCall: 1n, credits: 9n } }));
  for (const call of [() => poor.callTool({ name: "ask", arguments: {} }), () => poor.readResource({ uri: "data://one" })]) {
    await assert.rejects(call(), (e) => e instanceof PaymentError && !e.payment && /limit for one request is 1/.test(e.message));
  }
  await client.close();
});

test("a paid call without an answer is not repeated", async () => {
  let calls = 0;
  const challenge = (await (await connect()).callTool({ name: "ask", arguments: {} })).structuredContent;
  const lying = {
    async callTool() {
      calls++;
      if (calls > 1) throw new Error("the connection broke");
      return { isError: true, structuredContent: challenge, content: [] };
    },
    readResource: async () => ({}),
    getPrompt: async () => ({}),
  };
  const paying = payingClient(lying, await options());
  await assert.rejects(paying.callTool({ name: "ask" }), (e) => e instanceof PaymentError && e.payment.state === "unknown");
  assert.deepEqual([calls, paying.budget.spent()], [2, 2n]);
});

/** Stands in for a language model: it makes the given calls of tools, one after the other, and then ends. */
function modelThatCalls(...calls) {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const seen = [];
  const model = new MockLanguageModelV3({
    doGenerate: async ({ prompt, tools }) => {
      seen.push({ prompt, tools });
      const [toolName, input] = calls.shift() ?? [];
      const content = toolName
        ? [{ type: "tool-call", toolCallId: `call ${calls.length}`, toolName, input: JSON.stringify(input) }]
        : [{ type: "text", text: "done" }];
      const finishReason = { unified: toolName ? "tool-calls" : "stop", raw: undefined };
      return { content, finishReason, usage, warnings: [] };
    },
  });
  return { model, seen };
}

const httpAgent = async () => ({
  pay: payingFetch(await options()), url: `http://${host()}/none`, name: "agent", description: "An agent.",
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
});

test("tools of the AI SDK pay by themselves, and the model reads why one did not", async () => {
  const client = await connect();
  const [had] = await balance();
  const limits = { hosts: [host()], creditsPerCall: 5n, credits: 4n };
  const paying = payingClient(client, await options({ limits }));
  const tools = await aiTools({ jsonSchema }, paying, await httpAgent());
  const { model, seen } = modelThatCalls(["ask", {}], ["ask", { what: "error" }], ["ask", {}], ["ask", {}], ["agent", { text: "x" }]);
  const { text, steps } = await generateText({ model, tools, prompt: "ask", stopWhen: stepCountIs(9) });
  assert.equal(text, "done");
  // The model is offered the schemas that the server has.
  const offered = Object.fromEntries(seen[0].tools.map((t) => [t.name, t]));
  assert.deepEqual(Object.keys(offered).sort(), ["agent", "ask", "free", "priced", "strict", "typed"]);
  assert.equal(offered.ask.inputSchema.properties.what.type, "string");
  const said = steps.flatMap((s) => s.content).filter((c) => /^tool-(result|error)$/.test(c.type));
  assert.deepEqual(said.map((c) => c.output ?? c.error.message.split(":")[0].slice(0, 4)), [content, "no", content, host().slice(0, 4), "http"]);
  assert.match(said[3].error.message, /only 0 of 4 remain/);
  assert.match(said[4].error.message, /responded with status 4/);
  assert.ok(JSON.stringify(seen.at(-1).prompt).includes("only 0 of 4 remain"), "the model did not read it");
  assert.equal(paying.budget.spent(), 4n);
  assert.deepEqual(await balance(), [had - 4n, 0n]);
  await assert.rejects(aiTools({ jsonSchema }, paying, paying), /two tools/);
  await client.close();
});

test("tools of LangChain pay by themselves", async () => {
  const client = await connect();
  const [had] = await balance();
  const paying = payingClient(client, await options());
  const tools = await langchainTools({ tool }, paying, await httpAgent());
  const call = (name, args) => tools.find((t) => t.name === name).invoke({ type: "tool_call", id: "1", name, args });
  const message = await call("ask", {});
  assert.ok(ToolMessage.isInstance(message));
  assert.deepEqual([message.content, message.status, message.tool_call_id], [content, "success", "1"]);
  // A model is offered the schema of the server, and input that does not fit is not sent.
  assert.equal(convertToOpenAITool(tools[0]).function.parameters.properties.what.type, "string");
  state.runs = 0;
  await assert.rejects(call("ask", { what: 5 }), /schema/);
  assert.equal(state.runs, 0);
  await assert.rejects(call("ask", { what: "error" }), /no/);
  await assert.rejects(call("agent", { text: "x" }), /responded with status 4/);
  assert.equal(paying.budget.spent(), 2n);
  assert.deepEqual(await balance(), [had - 2n, 0n]);
  await client.close();
});
