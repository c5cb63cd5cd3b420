// The client against a stand-in that answers what a test wants.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import * as sdk from "@tollhq/toll";
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";

const { Toll, credit, price } = sdk;
const me = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const answer = (body, status = 200, headers = {}) =>
  new Response(body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json", ...headers },
  });
/** A client whose calls get these answers, one by one; the last one again and again. */
function scripted(answers, o = {}) {
  const calls = [];
  const fetch = async (url, init) => {
    calls.push({ url, ...init });
    const next = answers[Math.min(calls.length, answers.length) - 1];
    const out = typeof next === "function" ? await next(url, init) : next.clone();
    return out;
  };
  return { calls, toll: new Toll({ apiKey: "sandbox:key", url: "http://toll.test/api/v1/", maxRetryWaitMs: 20, fetch, log: () => {}, ...o }) };
}
const lost = () => { throw new TypeError("fetch failed"); };

test("every call has key, version and agent, and bigints leave as decimal texts", async () => {
  const { toll, calls } = scripted([answer({ planId: "7", success: true })]);
  await toll.plans.register({ name: "p", priceConfig: price.erc20(2_000_000n, me, me), creditsConfig: credit.fixed(100n, 2n) });
  const [c] = calls;
  assert.equal(c.url, "http://toll.test/api/v1/protocol/plans");
  assert.equal(c.headers.get("authorization"), "Bearer sandbox:key");
  assert.equal(c.headers.get("service-version"), sdk.apiVersion);
  assert.match(c.headers.get("idempotency-key"), /^[0-9a-f-]{36}$/);
  assert.equal(c.redirect, "manual");
  const body = JSON.parse(c.body);
  assert.deepEqual(body.priceConfig.amounts, ["2000000"]);
  assert.equal(body.creditsConfig.minAmount, "2");
});

test("numbers of answers are exact bigints, unknown members stay", async () => {
  const body = `{"planId":"7","total":"9223372036854775807","used":"0","news":12345678901234567890,"lots":[{"amount":"5"}],"pricePerCredit":0.5}`;
  const { toll } = scripted([answer(body)]);
  const a = await toll.credits.balance("7").withResponse();
  assert.equal(a.data.total, 9223372036854775807n);
  assert.equal(a.data.news, 12345678901234567890n);
  assert.equal(a.data.lots[0].amount, 5n);
  assert.equal(a.data.planId, "7");
  assert.equal(a.data.pricePerCredit, 0.5);
  assert.equal(a.raw.total, "9223372036854775807");
});

test("flat prices are exact", async () => {
  const { toll } = scripted([answer(`{"priceConfig":{"amounts":[1000000000000000000001,5]},"creditsConfig":{"amount":100,"durationOfThePlan":60},"metadata":{"main":{"price":"1.00"}}}`)]);
  const plan = await toll.plans.get("7");
  assert.deepEqual(plan.priceConfig.amounts, [1000000000000000000001n, 5n]);
  assert.equal(plan.creditsConfig.amount, 100n);
  assert.equal(plan.metadata.main.price, "1.00");
});

test("lists follow cursors, and one that repeats itself is an error", async () => {
  const page = (n, next) => answer({ plans: [{ id: String(n) }], nextCursor: next, total: 2 });
  const { toll, calls } = scripted([page(1, "a"), page(2, null)]);
  const ids = [];
  for await (const p of toll.plans.list({ pageSize: 1 })) ids.push(p.id);
  assert.deepEqual(ids, ["1", "2"]);
  assert.match(calls[0].url, /pageSize=1$/);
  assert.match(calls[1].url, /cursor=a$/);
  const broken = scripted([page(1, "a")]).toll;
  await assert.rejects(broken.plans.list().all(), /same page of a list/);
  const one = await scripted([page(1, "a")]).toll.plans.list().page();
  assert.deepEqual([one.items.length, one.nextCursor, one.total], [1, "a", 2]);
});

test("errors are typed by what happened", async () => {
  const of = async (status, body, headers) => {
    const { toll } = scripted([answer(body, status, headers)], { maxRetries: 0 });
    return toll.plans.get("7").then(assert.fail, (e) => e);
  };
  const e = await of(404, { code: "BCK.PROTOCOL.0003", message: "No plan has this id.", hint: "Check.", category: "business", correlationId: "c1", retryable: false, params: '{"planId":"7"}', news: 1 });
  assert.ok(e instanceof sdk.NotFoundError && e instanceof sdk.TollError);
  assert.deepEqual([e.name, e.code, e.status, e.hint, e.correlationId, e.params.planId, e.raw.news], ["NotFoundError", "BCK.PROTOCOL.0003", 404, "Check.", "c1", "7", 1]);
  assert.ok((await of(401, { code: "BCK.AUTH.0002", message: "x", category: "auth" })) instanceof sdk.AuthError);
  assert.ok((await of(409, { code: "BCK.COMMON.0901", message: "x" })) instanceof sdk.ConflictError);
  const limited = await of(429, { code: "BCK.HTTP.429", message: "x" }, { "retry-after": "7" });
  assert.ok(limited instanceof sdk.RateLimitError && limited.retryAfterSecs === 7);
  const required = btoa(JSON.stringify({ x402Version: 2, accepts: [{ scheme: "svc:erc4337", planId: "9" }] }));
  const paid = await of(402, { code: "BCK.X402.0030", message: "x" }, { "payment-required": required });
  assert.ok(paid instanceof sdk.PaymentRequiredError && paid.requirements.accepts[0].planId === "9");
  const proxy = await of(502, "<html>bad gateway</html>", { "content-type": "text/html" });
  assert.ok(proxy instanceof sdk.InternalError && /502/.test(proxy.message));
});

test("a call is repeated only where that is safe", async () => {
  const times = async (failure, call, o) => {
    const s = scripted([failure, failure, failure, failure, failure], o);
    await call(s.toll).then(assert.fail, () => {});
    return s.calls.length;
  };
  const busy = answer({ code: "BCK.HTTP.503", message: "x" }, 503);
  assert.equal(await times(busy, (t) => t.plans.get("7")), 4);
  assert.equal(await times(lost, (t) => t.plans.get("7")), 4);
  assert.equal(await times(lost, (t) => t.plans.get("7"), { maxRetries: 9 }), 4, "three repeats at most");
  assert.equal(await times(lost, (t) => t.plans.get("7"), { maxRetries: 0 }), 1);
  assert.equal(await times(lost, (t) => t.plans.register({})), 4);
  assert.equal(await times(lost, (t) => t.keys.revoke("0x1")), 1, "a lost removal");
  assert.equal(await times(busy, (t) => t.keys.revoke("0x1")), 4, "a refused removal");
  assert.equal(await times(lost, (t) => t.plans.update("7", {}, { ifMatch: 3 })), 1, "a lost conditional change");
  assert.equal(await times(lost, (t) => t.wallet.export()), 1);
  assert.equal(await times(lost, (t) => t.request("POST", "/api/v1/x")), 1);
  assert.equal(await times(answer("", 408), (t) => t.wallet.export()), 4, "nothing arrived");
  assert.equal(await times(answer({ code: "BCK.HTTP.400", message: "x" }, 400), (t) => t.plans.get("7")), 1);
  assert.equal(await times(answer({ code: "BCK.HTTP.429", message: "x" }, 429, { "retry-after": "60" }), (t) => t.plans.get("7")), 1, "longer than maxRetryWaitMs");
  const s = scripted([lost, answer({ planId: "7" })]);
  await s.toll.plans.register({});
  assert.equal(s.calls[0].headers.get("idempotency-key"), s.calls[1].headers.get("idempotency-key"));
});

test("without a key the error says how to get one", async () => {
  const s = scripted([answer({ code: "BCK.AUTH.0002", message: "No key." }, 401)], { apiKey: "" });
  await assert.rejects(s.toll.plans.get("7"), (e) => e instanceof sdk.AuthError && /pass apiKey, or set TOLL_API_KEY/.test(e.hint));
});

test("Retry-After is honoured", async () => {
  const s = scripted([answer({ code: "BCK.HTTP.429", message: "x" }, 429, { "retry-after": "1" }), answer({ id: "7" })], { maxRetryWaitMs: 2000 });
  const before = Date.now();
  await s.toll.plans.get("7");
  assert.ok(Date.now() - before >= 990);
});

test("the caller's signal ends a call with its reason, a time-out is an error of its own", async () => {
  // The timer keeps node alive, as an open connection does: that of AbortSignal.timeout does not.
  const hang = (url, init) => new Promise((_, reject) => {
    const alive = setInterval(() => {}, 1000);
    init.signal.addEventListener("abort", () => { clearInterval(alive); reject(init.signal.reason); });
  });
  const reason = new Error("enough");
  const c = new AbortController();
  setTimeout(() => c.abort(reason), 10);
  await assert.rejects(scripted([hang]).toll.plans.get("7", { signal: c.signal }), (e) => e === reason);
  await assert.rejects(scripted([hang]).toll.plans.get("7", { timeoutMs: 10, maxRetries: 0 }), (e) => e instanceof sdk.TimeoutError && e.status === 0);
});

test("a settlement without an answer is pending, never a failure", async () => {
  const input = { paymentRequired: {}, x402AccessToken: "t", agentRequestId: "req_1", maxAmount: 2n };
  const lostAll = scripted([lost]);
  await assert.rejects(lostAll.toll.payments.settle(input), (e) => e instanceof sdk.SettlementPendingError && e.agentRequestId === "req_1" && e.retryable);
  assert.equal(lostAll.calls.length, 4);
  const pending = answer({ code: "BCK.X402.0914", message: "x", success: false, errorReason: "settlement_pending" }, 503);
  await assert.rejects(scripted([pending], { maxRetries: 0 }).toll.payments.settle(input), sdk.SettlementPendingError);
  const refused = answer({ code: "BCK.CREDITS.0003", message: "No credits.", success: false, errorReason: "insufficient_funds", transaction: "", network: "eip155:84532" }, 402);
  const r = await scripted([refused]).toll.payments.settle(input);
  assert.deepEqual([r.success, r.errorReason, r.errorMessage], [false, "insufficient_funds", "No credits."]);
  const burned = await scripted([lost, answer({ success: true, transaction: "0x1", network: "n", creditsRedeemed: "2" })]).toll.payments.settle(input);
  assert.equal(burned.creditsRedeemed, 2n);
});

test("a verify with a hold is not repeated after a lost answer", async () => {
  const s = scripted([lost]);
  await assert.rejects(s.toll.payments.verify({ paymentRequired: {}, x402AccessToken: "t", hold: true }), sdk.ConnectionError);
  assert.equal(s.calls.length, 1);
  const bad = await scripted([answer({ isValid: false, invalidReason: "plan_expired" })]).toll.payments.verify({ paymentRequired: {}, x402AccessToken: "t" });
  assert.equal(bad.isValid, false);
});

test("an answer that is too long or no JSON is an error", async () => {
  const endless = () => new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1 << 20)); } }), { headers: { "content-type": "application/json" } });
  await assert.rejects(scripted([endless], { maxRetries: 0 }).toll.plans.get("7"), /longer than/);
  await assert.rejects(scripted([answer("{")]).toll.plans.get("7"), /cannot be read/);
});

test("a list answer without records, and a bad url", async () => {
  await assert.rejects(scripted([answer({})]).toll.plans.list().all(), /list that cannot be read/);
  for (const url of ["ftp://x", "http://u:p@x", "http://x?q", "x"]) assert.throws(() => new Toll({ url }), sdk.ValidationError);
});

test("edit starts over when somebody else changed the record", async () => {
  let version = 1;
  const { toll, calls } = scripted([
    (url, init) => {
      if (init.method === "GET") return answer({ version });
      if (init.headers.get("if-match") === "1") {
        version = 2;
        return answer({ code: "BCK.PROTOCOL.0910", message: "x" }, 412);
      }
      return answer({ success: true });
    },
  ]);
  const done = await toll.plans.edit("7", (plan, o) => toll.plans.update("7", { name: `v${plan.version}` }, o));
  assert.equal(done.success, true);
  assert.equal(JSON.parse(calls.at(-1).body).name, "v2");
});

test("events continue after the last one, each once and in order", async () => {
  const stream = (text) => new Response(text, { headers: { "content-type": "text/event-stream" } });
  const event = (n) => `id: e${n}\nevent: x\ndata: {"id":"e${n}","sequence":${n}}\n\n`;
  const s = scripted([stream(`: hello\n\n${event(1)}${event(2).slice(0, 12)}`), lost, stream(event(2) + event(3))]);
  const got = [];
  for await (const e of s.toll.events.stream({ lastEventId: "e0" })) {
    got.push(e.sequence);
    if (got.length === 3) break;
  }
  assert.deepEqual(got, [1, 2, 3]);
  assert.deepEqual(s.calls.map((c) => c.headers.get("last-event-id")), ["e0", "e1", "e1"]);
  await assert.rejects(scripted([answer({ code: "BCK.AUTH.0002", message: "x" }, 401)]).toll.events.stream().next(), sdk.AuthError);
});

test("webhooks: two secrets, tolerance, tampering", async () => {
  const now = 1_700_000_000_000;
  const body = JSON.stringify({ id: "e1", type: "order.paid", sequence: 1 });
  const sign = (secret, at = now / 1000, text = body) => createHmac("sha256", secret).update(`d1.${at}.${text}`).digest("hex");
  const headers = (signature, at = now / 1000) => ({ "Service-Webhook-Id": "d1", "Service-Webhook-Timestamp": String(at), "Service-Webhook-Signature": signature });
  const ok = (h, secrets = ["new", "old"], b = body) => sdk.verifyWebhook(b, h, secrets, { now });
  assert.equal((await ok(headers(`v1=${sign("new")}`))).id, "e1");
  assert.equal((await ok(headers(`v1=${sign("other")}, v1=${sign("old")}`))).id, "e1");
  assert.equal((await ok(new Headers(headers(`v1=${sign("new")}`)), "new", new TextEncoder().encode(body))).id, "e1");
  await assert.rejects(ok(headers(`v1=${sign("third")}`)), sdk.AuthError);
  await assert.rejects(ok(headers(`v1=${sign("new")}`), [""]), sdk.AuthError);
  await assert.rejects(ok(headers(`v1=${sign("new")}`), "new", body + " "), sdk.AuthError);
  await assert.rejects(ok(headers(sign("new"))), sdk.AuthError);
  const late = now / 1000 - 301;
  await assert.rejects(ok(headers(`v1=${sign("new", late)}`, late)), /outside the allowed window/);
  await assert.rejects(ok({}), sdk.AuthError);
  const notEvent = headers(`v1=${createHmac("sha256", "new").update(`d1.${now / 1000}.[]`).digest("hex")}`);
  await assert.rejects(ok(notEvent, "new", "[]"), sdk.ValidationError);
});

test("deliveries with the headers of the service and of Standard Webhooks", async () => {
  const { now, cases } = JSON.parse(readFileSync(`${process.env.TOLL_CONFORMANCE}/tables/deliveries.json`, "utf8"));
  for (const c of cases) {
    const headers = Object.fromEntries(Object.entries(c.headers).map(([n, v]) => [n.replace("{{Header}}", "Service"), v]));
    for (const source of [headers, new Headers(headers)]) {
      const read = sdk.verifyWebhook(c.body, source, c.secrets, { now: now * 1000 });
      if (c.good) assert.equal((await read).id, "evt_1", c.name);
      else await assert.rejects(read, sdk.TollError, c.name);
    }
  }
});

test("a deprecated token option warns once a process", async () => {
  const lines = [];
  for (let i = 0; i < 2; i++) {
    const { toll } = scripted([answer({ accessToken: "t" }, 201)], { log: (l) => lines.push(l) });
    await toll.tokens.create({ planId: "7", delegationConfig: { spendingLimitCents: 100n } });
  }
  assert.equal(lines.filter((l) => l.level === "warn").length, 1);
  assert.ok(!JSON.stringify(lines).includes("sandbox:key"));
});

test("a price without a receiver leaves the receiver to the service", () => {
  for (const made of [price.fiat(5_000_000n), price.fiat(5_000_000n, undefined, "eur"), price.erc20(1n, me), price.payAsYouGo(1n)]) {
    assert.ok(!("receivers" in made), JSON.stringify(made.receivers));
  }
  assert.deepEqual(price.fiat(5_000_000n, me).receivers, [me]);
  for (const wrong of [() => price.fiat(5n, me, "GBP"), () => price.fiat(-1n), () => credit.fixed(1), () => price.native(1n, "0x0")]) {
    assert.throws(wrong, (e) => e instanceof sdk.ValidationError && e.category === "validation" && e.status === 0);
  }
});

test("a receipt is read whole or not at all", () => {
  const read = (text) => sdk.receiptOf(new Response("", { headers: text === undefined ? {} : { "payment-response": text } }));
  const of = (value) => read(btoa(JSON.stringify(value)));
  const good = { success: true, transaction: "0x1", network: "eip155:1", creditsRedeemed: "2", remainingBalance: 98, extra: { agentRequestId: "a" } };
  assert.deepEqual(of(good), { ...good, creditsRedeemed: 2n, remainingBalance: 98n });
  assert.deepEqual(of({ ...good, extra: { creditsRedeemed: "2" } }).extra, { creditsRedeemed: 2n });
  for (const extra of [[], "x", null, { creditsRedeemed: "x" }]) assert.equal(of({ ...good, extra }), undefined);
  assert.equal(of({ ...good, creditsRedeemed: "9".repeat(78) }).creditsRedeemed, BigInt("9".repeat(78)));
  for (const creditsRedeemed of ["-1", "1.5", "", "9".repeat(79), 2 ** 53, null, {}]) assert.equal(of({ ...good, creditsRedeemed }), undefined, String(creditsRedeemed));
  for (const name of ["success", "transaction", "network"]) assert.equal(of({ ...good, [name]: 1 }), undefined, name);
  for (const text of [undefined, "", "!", btoa("[]"), btoa("null"), btoa(`{"success":true,"transaction":"${"x".repeat(64 << 10)}","network":"n"}`)]) {
    assert.equal(read(text), undefined);
  }
});

test("an unreachable service is named", async () => {
  const { toll } = scripted([lost], { maxRetries: 0 });
  const named = (e) => e instanceof sdk.ConnectionError && e.message === "The service at http://toll.test did not respond.";
  await assert.rejects(toll.plans.get("7"), named);
});

test("the key is in no text of the client", () => {
  const { toll } = scripted([answer({})]);
  assert.ok(!JSON.stringify(toll).includes("key") || !JSON.stringify(toll).includes("sandbox:key"));
});

const builderCases = process.env.TOLL_BUILDERS;
test("builders make what those of Go make", { skip: !builderCases && "TOLL_BUILDERS is not set" }, () => {
  const { dynamic, ...credits } = credit;
  const make = {
    ...price, payg: price.payAsYouGo, ...credits, dynamic, "credits payg": credit.payAsYouGo,
    "non-expirable": credit.nonExpirable,
    mirror: (a, b, c, on) => sdk.withOnchainMirror(dynamic(a, b, c), on === "true"),
    redemption: (a, b, c, kind) => sdk.withRedemptionType(dynamic(a, b, c), typeof kind === "bigint" ? Number(kind) : kind),
  };
  const value = (arg) => (/^\d+$/.test(arg) ? BigInt(arg) : arg);
  for (const { make: name, args, want } of JSON.parse(readFileSync(builderCases))) {
    const build = () => make[name](...(args ?? []).map(value));
    if (want === null) {
      assert.throws(build, sdk.ValidationError, `${name} ${args}`);
      continue;
    }
    const made = JSON.parse(JSON.stringify(build(), (_, v) => (typeof v === "bigint" ? String(v) : v)));
    assert.deepEqual(made, want, `${name} ${args}`);
  }
});

test("every operation of the document has a method or a reason", () => {
  const document = JSON.parse(readFileSync(process.env.TOLL_OPENAPI ?? new URL("../../../docs/openapi.json", import.meta.url)));
  const source = readFileSync(new URL("../src/client.ts", import.meta.url), "utf8");
  // Wallets buy with the paying fetch; listMyMemberships repeats listOrganizations for deployed clients; the rest are documents,
  // retired paths and calls of the card processor. toll.request reaches all of them.
  const without = /^(retired|listMyMemberships|receiveStripeEvent|openStripePayment|readDID|readJWKS|readDocs|readErrorDocs|readOpenAPI|buyPlan|signInToPlan)/;
  const by = { readReady: "/ready", verify: "/x402/verify", settle: "/x402/settle", followEvents: "/events/stream" };
  for (const methods of Object.values(document.paths)) {
    for (const { operationId } of Object.values(methods)) {
      if (!operationId || without.test(operationId)) continue;
      assert.ok(source.includes(`"${operationId}"`) || source.includes(by[operationId] ?? "\0"), `no method for ${operationId}`);
    }
  }
});

test("lines of the sources have at most 100 columns", () => {
  const folder = new URL("../src/", import.meta.url);
  for (const name of readdirSync(folder).filter((n) => n !== "generated.ts")) {
    readFileSync(new URL(name, folder), "utf8").split("\n").forEach((line, i) => {
      assert.ok([...line].length <= 100, `${name}:${i + 1}`);
    });
  }
});

test("the package works with require as well", () => {
  const cjs = createRequire(import.meta.url)("@tollhq/toll");
  assert.deepEqual(Object.keys(cjs).sort(), Object.keys(sdk).sort());
});
