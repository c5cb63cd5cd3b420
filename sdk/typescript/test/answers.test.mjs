// The middleware with a stand-in for the service: answers that name another request, and each header that must not pass.
import assert from "node:assert/strict";
import http from "node:http";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Toll } from "@tollhq/toll";
import * as forExpress from "@tollhq/toll/express";
import { Budget, LimitReached } from "@tollhq/toll/fetch";
import { seller } from "@tollhq/toll/mcp";
import * as forWeb from "@tollhq/toll/paid";

const read = (name) => JSON.parse(readFileSync(`${process.env.TOLL_CONFORMANCE ?? "../../testdata/conformance"}/tables/${name}.json`, "utf8"));
const content = "the paid content";
const token = "e30.e30.sig";
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const decoded = (header) => JSON.parse(Buffer.from(header, "base64"));

/** A service that holds 5 credits for request req_1. */
class StandIn {
  calls = [];
  told = [];
  settle = { success: true, transaction: "0xabc", network: "eip155:84532" };
  renew = { success: true, agentRequestId: "req_1" };
  count = (op) => this.calls.filter((c) => c === op).length;
  fetch = async (url) => {
    const op = new URL(url).pathname.split("/").at(-1);
    this.calls.push(op);
    const answers = {
      "": { apiBase: "http://toll.test/api/v1", environment: "sandbox", network: "eip155:84532" },
      7: {
        planId: "7", owner: "0x1", isListed: true, accessLimit: "credits", metadata: { plan: {} },
        registry: { price: { receivers: [] }, credits: { minAmount: "1", maxAmount: "10" } },
      },
      verify: { isValid: true, payer: "0x2", agentRequestId: "req_1", amount: "5", extra: { heldAmount: "5" } },
      settle: this.settle,
      renew: this.renew,
      release: { success: true, agentRequestId: "req_1", status: "released" },
    };
    return new Response(JSON.stringify(answers[op]), { headers: { "content-type": "application/json" } });
  };
  /** Options of a paid route or of a seller of MCP. */
  options(more) {
    const toll = new Toll({ apiKey: "sandbox:a.b.c", url: "http://toll.test", fetch: this.fetch, log: () => undefined });
    return { toll, plan: "7", publicUrl: "http://agent.test", log: () => undefined, onSettled: (s) => this.told.push(s), ...more };
  }
}

/** Serve what `handle` returns for the headers of a request: status, headers, parts, trailers. Each returns a function that asks. */
const fronts = {
  async web(_, options, handle) {
    const sells = forWeb.paid((request) => {
      const { status, headers, parts } = handle(Object.fromEntries(request.headers));
      return new Response(ReadableStream.from(encoded(parts)), { status, headers });
    }, options);
    return async (headers = {}) => {
      const res = await sells(new Request("http://agent.test/ask", { headers: { "payment-signature": token, ...headers } }));
      let body = "";
      try {
        for await (const part of res.body ?? []) body += Buffer.from(part);
      } catch {
        body += " cut";
      }
      return { status: res.status, headers: Object.fromEntries(res.headers), trailers: {}, body };
    };
  },

  async node(t, options, handle) {
    const sells = forExpress.paid(options);
    const server = http.createServer((req, res) => sells(req, res, async (e) => {
      if (e) return res.destroy(e);
      const a = handle(req.headers);
      for (const [name, value] of Object.entries(a.headers)) res.setHeader(name, value);
      res.statusCode = a.status;
      for await (const part of a.parts) res.write(part);
      if (a.trailers) res.addTrailers(a.trailers);
      res.end();
    }));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => server.close());
    return async (headers = {}) => {
      const req = http.get({ port: server.address().port, path: "/ask", agent: false, headers: { "payment-signature": token, ...headers } });
      const [res] = await once(req, "response");
      let body = "";
      try {
        for await (const part of res) body += part;
      } catch {
        body += " cut";
      }
      return { status: res.statusCode, headers: res.headers, trailers: res.trailers, body };
    };
  },
};
async function* encoded(parts) {
  for await (const part of parts) yield new TextEncoder().encode(part);
}
const events = { "content-type": "text/event-stream" };
/** Ways in which an answer leaves, with its price, status and headers. */
const kinds = {
  "whole": { credits: 5, status: 200, headers: {} },
  "stream": { credits: 5, status: 200, headers: events },
  "metered stream": { credits: () => 5, status: 200, headers: events },
};
const failures = {
  "error": { credits: 5, status: 404, headers: {} },
  "stream of an error": { credits: 5, status: 404, headers: events },
};

for (const [name, serve] of Object.entries(fronts)) {
  test(`${name}: an answer of the service to something else settles nothing`, async (t) => {
    const { settle } = read("answers");
    assert.ok(settle.length >= 11);
    await Promise.all(settle.map(async (c) => {
      const s = new StandIn();
      s.settle = c.body;
      const ask = await serve(t, s.options({ credits: Number(c.amount) }), () => ({ ...kinds.whole, parts: [content] }));
      const got = await ask();
      const is = { paid: [200, 1, 0], refused: [402, 1, 1], unknown: [503, 3, 0] }[c.outcome];
      assert.deepEqual([got.status, s.count("settle"), s.count("release")], is, c.name);
      assert.equal(got.body.includes(content), c.outcome === "paid", c.name);
      assert.equal(s.told.length, 1, c.name);
      if (c.outcome !== "unknown") return;
      const receipt = decoded(got.headers["payment-response"]);
      assert.deepEqual([receipt.success, receipt.transaction, receipt.extra.agentRequestId], [false, "", "req_1"], c.name);
      assert.deepEqual([JSON.parse(got.body).code, s.told[0].errorReason], ["BCK.X402.0914", "settlement_pending"], c.name);
    }));
  });

  test(`${name}: a stream that was settled by an answer to something else is settled later`, async (t) => {
    for (const c of read("answers").settle) {
      const s = new StandIn();
      s.settle = c.body;
      const alarms = [];
      const options = s.options({ credits: () => Number(c.amount), maxCredits: 5, onUnsettled: (u) => alarms.push(u.final) });
      const ask = await serve(t, options, () => ({ ...kinds["metered stream"], parts: [content] }));
      const got = await ask();
      assert.deepEqual([got.status, got.body], [200, content], c.name);
      while (s.told.length === 0) await pause(5);
      await pause(5);
      const unknown = c.outcome === "unknown";
      assert.equal(forWeb.unsettledStreams(), Number(unknown), c.name);
      assert.deepEqual(alarms, { paid: [], refused: [true], unknown: [false] }[c.outcome], c.name);
      s.settle = new StandIn().settle;
      assert.ok(await forWeb.drain(5000));
      assert.deepEqual([s.count("settle"), s.told.at(-1).success], [unknown ? 2 : 1, c.outcome !== "refused"], c.name);
    }
  });

  test(`${name}: the renewal of another request renews nothing`, async (t) => {
    const { renew } = read("answers");
    assert.ok(renew.length >= 2);
    await Promise.all(renew.map(async (c) => {
      const s = new StandIn();
      s.renew = c.body;
      async function* parts() {
        for (let i = 0; i < 14; i++) {
          yield `data: ${i}\n\n`;
          await pause(100);
        }
        yield "data: last\n\n";
      }
      const options = s.options({ credits: () => 5, maxCredits: 5, holdSecs: 1 });
      const ask = await serve(t, options, () => ({ ...kinds["metered stream"], parts: parts() }));
      const got = await ask();
      assert.ok(s.count("renew") > 0, c.name);
      assert.deepEqual([got.body.includes("data: last"), got.body.includes("The hold for this stream")], [c.good, !c.good], `${c.name}: ${got.body}`);
      while (s.told.length === 0) await pause(5);
      assert.deepEqual([s.count("settle"), s.told[0].success], [1, true], c.name);
    }));
  });

  test(`T90: ${name} strips each header of a handler's answer`, async (t) => {
    const { answer } = read("headers");
    assert.ok(Object.keys(answer).length >= 7);
    for (const [kind, { credits, ...a }] of Object.entries({ ...kinds, ...failures })) {
      let said = {};
      const ask = await serve(t, new StandIn().options({ credits, maxCredits: 5 }), () => ({ ...a, headers: { ...a.headers, "x-kept": "1", ...said }, parts: [content] }));
      for (const [n, value] of Object.entries(answer)) {
        for (const spelling of [n, n.toUpperCase(), n.replaceAll("-", "_")]) {
          said = { [spelling]: value };
          const got = await ask();
          assert.deepEqual([got.status, got.headers["x-kept"], got.body], [a.status, "1", content], `${kind} ${spelling}`);
          for (const [sent, v] of Object.entries(got.headers)) assert.ok(!String(v).includes(value), `${spelling} of a ${kind} leaves as ${sent}`);
        }
      }
    }
  });

  test(`T99: ${name} strips each header that speaks to shared caches`, async (t) => {
    const { caches } = read("headers");
    assert.ok(Object.keys(caches).length >= 5);
    for (const [kind, { credits, ...a }] of Object.entries({ ...kinds, ...failures })) {
      let said = {};
      const ask = await serve(t, new StandIn().options({ credits, maxCredits: 5 }), () => ({ ...a, headers: { ...a.headers, "x-kept": "1", ...said }, parts: [content] }));
      for (const [n, value] of Object.entries(caches)) {
        said = { [n]: value };
        const got = await ask();
        assert.deepEqual([got.status, got.headers["x-kept"], got.headers[n]], [a.status, "1", undefined], `${n} of a ${kind}`);
      }
      for (const word of ["public", "s-maxage=9", "proxy-revalidate", "private"]) {
        said = { "cache-control": `${word}, max-age=9` };
        assert.equal((await ask()).headers["cache-control"], "private, max-age=9", `${word} of a ${kind}`);
      }
    }
  });

  test(`T90: ${name} strips each header of a request`, async (t) => {
    const { request } = read("headers");
    assert.ok(Object.keys(request).length >= 15);
    let seen;
    const handle = (headers) => {
      seen = headers;
      return { ...kinds.whole, parts: [content] };
    };
    const ask = await serve(t, new StandIn().options({ credits: 5 }), handle);
    const byOther = await serve(t, new StandIn().options({ credits: 5, tokenHeaders: ["x-token"] }), handle);
    for (const [n, value] of Object.entries(request)) {
      for (const spelling of [n, n.replaceAll("-", "_")]) {
        for (const [asks, more] of [[ask, {}], [byOther, { "x-token": token, "payment-signature": "x" }]]) {
          seen = undefined;
          const got = await asks({ ...more, [spelling]: value, "x-kept": "1" });
          assert.deepEqual([got.status, seen?.["x-kept"]], [200, "1"], spelling);
          const stripped = [n, "payment-signature", "x-token"].filter((h) => asks === byOther || h !== "x-token");
          for (const h of Object.keys(seen)) assert.ok(!stripped.includes(h.toLowerCase().replaceAll("_", "-")), `${h} reaches the handler`);
        }
      }
    }
    seen = undefined;
    assert.equal((await ask({ "payment-signature": "", "x-payment": "e30=" })).status, 402);
    assert.equal((await ask({ "x-payment": "e30=" })).status, 400);
    assert.equal(seen, undefined);
  });
}

for (const kind of Object.keys(kinds)) {
  test(`T90: node strips each trailer of a ${kind}`, async (t) => {
    const { credits, ...a } = kinds[kind];
    let said = {};
    const ask = await fronts.node(t, new StandIn().options({ credits, maxCredits: 5 }), () => ({
      ...a, headers: { ...a.headers, trailer: "x-sum" }, parts: [content], trailers: { "x-sum": "17", ...said },
    }));
    for (const [n, value] of Object.entries(read("headers").answer)) {
      for (const spelling of [n, n.replaceAll("-", "_")]) {
        said = { [spelling]: value };
        const got = await ask();
        assert.deepEqual([got.status, got.trailers], [200, { "x-sum": "17" }], spelling);
      }
    }
  });
}

test("mcp: an answer of the service to something else settles nothing", async () => {
  const priced = read("answers").settle.filter((c) => c.amount !== "0");
  await Promise.all(priced.map(async (c) => {
    const s = new StandIn();
    s.settle = c.body;
    const { publicUrl: _, ...options } = s.options();
    const tool = seller(options).tool("t", { credits: 5 }, () => ({ content: [{ type: "text", text: content }] }));
    const got = JSON.stringify(await tool({ signal: new AbortController().signal, _meta: { "x402/payment": token } }));
    assert.equal(got.includes(content), c.outcome === "paid", c.name);
    assert.equal(got.includes("settlement pending"), c.outcome === "unknown", c.name);
    assert.equal(s.count("settle"), c.outcome === "unknown" ? 3 : 1, c.name);
    assert.equal(s.count("release"), Number(c.outcome === "refused"), c.name);
  }));
});

test("a budget gives limits back, after the second payment as after the first", () => {
  const noon = Date.UTC(2026, 0, 1, 12);
  const budget = new Budget({ hosts: ["h"], creditsPerCall: 5n, credits: 12n, creditsPerDay: 6n });
  const take = (id, most, ends, hours = 0) => {
    const p = {
      id, at: new Date(noon + hours * 3_600_000), host: "h", method: "GET", path: "/", planId: "1", unit: "credits", most,
      spent: 0n, state: "sent", transaction: "", permissionHash: "",
    };
    try {
      budget.take(p);
    } catch (e) {
      assert.ok(e instanceof LimitReached);
      return undefined;
    }
    if (ends) budget.close({ ...p, ...ends });
    return budget.spent();
  };
  for (const i of [0n, 1n]) {
    assert.equal(take(`refused ${i}`, 5n, { state: "refused" }), i);
    assert.equal(take(`less ${i}`, 5n, { state: "paid", spent: 1n }), i + 1n);
  }
  assert.equal(take("unknown", 4n, { state: "unknown" }), 6n);
  assert.equal(take("too much for the day", 1n), undefined);
  assert.equal(take("still the same day", 1n, undefined, 23), undefined);
  assert.equal(take("a day later", 5n, undefined, 25), 11n);
  assert.equal(take("too much in all", 2n, undefined, 50), undefined);
  assert.equal(take("the rest", 1n, undefined, 50), 12n);
});
