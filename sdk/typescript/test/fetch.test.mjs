// Requests that pay: against a paid server, its limits, and servers that lie.
import assert from "node:assert/strict";
import http from "node:http";
import { once } from "node:events";
import { after, before, beforeEach, describe, test } from "node:test";
import { TollError } from "@tollhq/toll";
import { Budget, hostOf, LimitReached, PaymentError, payingFetch, receiptOf } from "@tollhq/toll/fetch";
import { Service } from "@tollhq/toll/testing";
import { content, start } from "./apps.mjs";

let service;
let front;
let toll;
before(async () => {
  service = await Service.start();
  await service.mint(500n);
  toll = await service.client("subscriber");
  front = await start("web", service);
});
after(async () => {
  await front?.stop();
  await service?.stop();
});
beforeEach(() => front.reset());

const address = (path = "/ask") => `http://127.0.0.1:${front.port}${path}`;
const good = (more = {}) => ({
  toll,
  plans: [service.planId],
  hosts: [`127.0.0.1:${front.port}`],
  limits: { hosts: [`127.0.0.1:${front.port}`], creditsPerCall: 5n, credits: 100n },
  ...more,
});
const post = (body) => ({ method: "POST", body });

test("a request is paid once", async () => {
  const had = await service.balance();
  const told = [];
  const budget = new Budget(good().limits, { onPayment: (p) => told.push(p.state) });
  const pay = payingFetch({ ...good({ budget }) });
  const answer = await pay(address(), post("{}"));
  assert.deepEqual([answer.status, await answer.text()], [200, content]);
  assert.deepEqual([receiptOf(answer).success, receiptOf(answer).creditsRedeemed], [true, 2n]);
  const now = await service.balance();
  assert.equal(now.balance, had.balance - 2n);
  assert.equal(front.state.runs, 1);
  assert.equal(pay.budget.spent(), 2n);
  const [p] = pay.budget.payments;
  assert.deepEqual([p.state, p.spent, p.most, p.path, p.planId, p.unit], ["paid", 2n, 2n, "/ask", service.planId, "credits"]);
  assert.match(p.transaction, /^0x/);
  assert.ok(!JSON.stringify({ ...p, spent: 0, most: 0 }).includes("eyJ"));
  assert.deepEqual(told, ["sent", "sent", "paid"]);
});

test("a body of any kind is sent again", async () => {
  const stream = () => new Blob(["hello"]).stream();
  for (const body of ["hello", new TextEncoder().encode("hello"), new Blob(["hello"]), stream()]) {
    const pay = payingFetch(good());
    const init = { ...post(body), duplex: "half" };
    const answer = await pay(address("/priced?price=3"), init);
    assert.equal(await answer.text(), "hello");
    // A price that turns out less than what was held.
    const [p] = pay.budget.payments;
    assert.deepEqual([p.most, p.spent], [5n, 3n]);
  }
  const request = new Request(address("/priced"), post("hello"));
  assert.equal(await (await payingFetch(good())(request)).text(), "hello");
});

test("work that is refused costs nothing", async () => {
  const had = await service.balance();
  const pay = payingFetch(good());
  const answer = await pay(address("/ask?do=404"), post("x"));
  assert.equal(answer.status, 404);
  assert.deepEqual([pay.budget.payments[0].state, pay.budget.spent()], ["refused", 0n]);
  const now = await service.balance();
  assert.deepEqual([now.balance, now.held], [had.balance, 0n]);
});

test("limits", async () => {
  const host = `127.0.0.1:${front.port}`;
  for (const [limits, more, why] of [
    [{ hosts: [] }, {}, /not in the list of allowed hosts/],
    [{ hosts: ["127.0.0.1"], creditsPerCall: 5n, credits: 9n }, {}, /not in the list of allowed hosts/],
    [{ hosts: [host], creditsPerCall: 1n, credits: 9n }, {}, /limit for one request is 1/],
    [{ hosts: [host], creditsPerCall: 5n }, {}, /only 0 of 0 remain/],
    [{ hosts: [host], creditsPerCall: 5n, credits: 1n }, {}, /only 1 of 1 remain/],
    [{ hosts: [host], creditsPerCall: 5n, credits: 9n, creditsPerDay: 1n }, {}, /24 hours/],
    [{ hosts: [host], creditsPerCall: 5n, credits: 9n }, { plans: ["17"] }, /not in the list of allowed plans/],
    [{ hosts: [host], creditsPerCall: 5n, credits: 9n }, { hosts: [] }, /cannot verify/],
    [{ hosts: [host], creditsPerCall: 5n, credits: 9n }, { agent: "17" }, /only agent 17/],
    [{ hosts: [host], moneyPerCall: 5n, money: 9n }, {}, /limit for one request is 0/],
  ]) {
    const pay = payingFetch(good({ limits, ...more }));
    await assert.rejects(pay(address(), post("x")), (e) => {
      assert.match(e.message, why);
      return e instanceof PaymentError && e instanceof TollError && e.name === "PaymentError" && e.code === "BCK.X402.0030" &&
        e.status === 402 && e.payment === undefined && e.challenge.accepts.length === 1;
    });
    assert.equal(pay.budget.spent(), 0n);
  }
  assert.equal(front.state.runs, 0);
});

test("an access token pays for its plan", async () => {
  const token = await service.token();
  const pay = payingFetch({ token, limits: good().limits });
  assert.equal(await (await pay(address(), post("x"))).text(), content);
  assert.equal(pay.budget.spent(), 2n);
  const other = payingFetch({ token, limits: { ...good().limits, creditsPerCall: 1n } });
  await assert.rejects(other(address(), post("x")), /limit for one request is 1/);
});

test("options that cannot be", () => {
  assert.throws(() => payingFetch({ limits: { hosts: [] } }), TypeError);
  assert.throws(() => payingFetch(good({ plans: [], delegationId: "d" })), TypeError);
  assert.equal(hostOf("https://Agent.Example.com/x"), "agent.example.com");
  assert.equal(hostOf("http://agent.example.com"), "agent.example.com:80");
});

test("a request with a payment of its own, and a 402 of others, return as they are", async () => {
  const token = await service.token();
  const pay = payingFetch(good());
  const answer = await pay(address(), { ...post("x"), headers: { "payment-signature": token } });
  assert.equal(answer.status, 200);
  assert.equal(pay.budget.payments.length, 0);
});

describe("servers that lie", () => {
  let liar;
  let seen;
  let asks;
  let paid;
  before(async () => {
    liar = http.createServer((req, res) => {
      req.resume();
      const payment = req.headers["payment-signature"];
      if (payment) {
        seen.push(payment);
        if (paid === "close") return req.socket.destroy();
        return res.writeHead(302, { location: "/next" }).end();
      }
      if (req.url === "/next") seen.push("next");
      if (req.url === "/away") return res.writeHead(302, { location: "/ask" }).end();
      const text = typeof asks === "string" ? asks : JSON.stringify(asks);
      const header = { "payment-required": Buffer.from(text).toString("base64") };
      res.writeHead(402, typeof asks === "string" ? {} : header).end(text);
    });
    liar.listen(0, "127.0.0.1");
    await once(liar, "listening");
  });
  after(() => liar.close());
  beforeEach(() => {
    seen = [];
    paid = "close";
  });

  const host = () => `127.0.0.1:${liar.address().port}`;
  const its = () => `http://${host()}/ask`;
  const options = () => ({
    toll, plans: [service.planId, "1"], hosts: [host()],
    limits: { hosts: [host()], creditsPerCall: 5n, credits: 100n },
  });
  const challenge = (url, more = {}) => ({
    x402Version: 2,
    resource: { url },
    accepts: [{
      scheme: "svc:erc4337", network: "eip155:84532", planId: service.planId, amount: "2",
      extra: { version: "1", planId: service.planId, agentId: service.agentId }, ...more,
    }],
    extensions: {},
  });

  test("an answer that is lost is not repeated, and counts until it is known", async () => {
    asks = challenge(its());
    const pay = payingFetch(options());
    await assert.rejects(pay(its(), post("x")), (e) => e instanceof TollError && e instanceof PaymentError && e.code === "BCK.X402.0914" && e.payment.state === "unknown");
    assert.equal(seen.length, 1);
    assert.equal(pay.budget.spent(), 2n);
    await pay.check();
    assert.deepEqual([pay.budget.payments[0].state, pay.budget.spent()], ["refused", 0n]);
  });

  test("they get nothing", async () => {
    const { agentId } = await (await service.client()).agents.register({
      name: "elsewhere", endpoints: [{ POST: "https://agent.example.com/ask" }],
      plans: [service.planId],
    });
    for (const [what, why] of [
      [challenge(address()), /not at/],
      [challenge("https://agent.example.com/ask"), /not at/],
      [challenge("http://["), /not at/],
      [challenge(its(), { extra: { planId: service.planId, agentId } }), /registered at agent.example.com/],
      [challenge(its(), { extra: { planId: service.planId, agentId: 5 } }), /an invalid agent id/],
      [challenge(its(), { amount: "0" }), /0 credits/],
      [challenge(its(), { amount: "-1" }), /not a whole number/],
      [challenge(its(), { amount: 2 }), /not a whole number/],
      [challenge(its(), { scheme: "exact" }), /no wallet is configured/],
      [challenge(its(), { scheme: "x", planId: undefined, extra: {} }), /has no plan/],
      [challenge(its(), { network: "eip155:1" }), /uses scheme/],
      [challenge(its(), { planId: "1", extra: {} }), /./],
      [{ ...challenge(its()), accepts: [] }, /no way to pay/],
      [{ ...challenge(its()), accepts: ["x", 1, null] }, /not a JSON object/],
    ]) {
      asks = what;
      const pay = payingFetch(options());
      await assert.rejects(pay(its(), post("x")), (e) => e instanceof PaymentError && !e.payment && why.test(e.message), JSON.stringify(what));
      assert.deepEqual([seen.length, pay.budget.spent()], [0, 0n]);
    }
  });

  test("what is not x402 version 2 is an answer like any other", async () => {
    const long = "x".repeat(1 << 20);
    for (const text of ["{}", "plain", '{"x402Version":1,"accepts":[]}', '{"x402Version":2}', long]) {
      asks = text;
      const answer = await payingFetch(options())(its(), post("x"));
      assert.deepEqual([answer.status, await answer.text()], [402, text]);
    }
  });

  test("a payment does not go along with a redirect", async () => {
    asks = challenge(its());
    paid = "redirect";
    const pay = payingFetch(options());
    assert.equal((await pay(its(), post("x"))).status, 302);
    assert.equal(seen.length, 1);
    await assert.rejects(pay(`http://${host()}/away`), /redirected/);
    assert.equal(seen.length, 1);
  });

  test("a wallet signs what is asked, within limits, for the tokens that it knows", async () => {
    const signed = [];
    const wallet = {
      address: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
      signTypedData: async (data) => {
        signed.push(data);
        return `0x${"1b".repeat(65)}`;
      },
    };
    const usdc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
    const entry = {
      scheme: "exact", network: "eip155:84532", amount: "10000", asset: usdc, payTo: wallet.address,
      maxTimeoutSeconds: 90, extra: { name: "USDC", version: "2" },
    };
    const limits = { hosts: [host()], moneyPerCall: 20_000n, money: 15_000n };
    const ask = (more) => (asks = { ...challenge(its()), accepts: [{ ...entry, ...more }] });
    for (const [more, why] of [
      [{ asset: wallet.address }, /neither USDC nor EURC/],
      [{ network: "eip155:1" }, /neither USDC nor EURC/],
      [{ amount: "30000" }, /limit for one request is 20000/],
      [{ amount: undefined }, /no amount/],
      [{ payTo: "0x0" }, /not a valid address/],
      [{ extra: {} }, /domain/],
      [{ extra: { ...entry.extra, assetTransferMethod: "permit2" } }, /permit2/],
    ]) {
      ask(more);
      await assert.rejects(payingFetch({ wallet, limits })(its(), post("x")), why);
    }
    assert.equal(signed.length + seen.length, 0);
    ask({});
    const pay = payingFetch({ wallet, limits });
    await assert.rejects(pay(its(), post("x")), (e) => e.payment?.unit === "USDC");
    const payload = JSON.parse(Buffer.from(seen[0], "base64"));
    assert.deepEqual(payload.accepted, entry);
    const { authorization: a, signature } = payload.payload;
    assert.deepEqual([a.from, a.to, a.value], [wallet.address, wallet.address, "10000"]);
    assert.equal(BigInt(a.validBefore) - BigInt(a.validAfter), 690n);
    assert.match(a.nonce, /^0x[0-9a-f]{64}$/);
    assert.equal(signature.length, 132);
    assert.deepEqual(signed[0].domain, { name: "USDC", version: "2", chainId: 84532, verifyingContract: usdc });
    assert.equal(pay.budget.spent("USDC"), 10_000n);
    await assert.rejects(pay(its(), post("x")), /only 5000 of 15000 remain/);
  });
});

test("an agent on record at the server needs no word for it", async (t) => {
  const builder = await service.client();
  const register = (name, url) =>
    builder.agents.register({ name, endpoints: [{ POST: url }], plans: [service.planId] });
  const other = await start("web", service, { agent: undefined });
  t.after(() => other.stop());
  const host = `127.0.0.1:${other.port}`;
  const limits = { hosts: [host], creditsPerCall: 5n, credits: 100n };
  const ask = () => payingFetch({ toll, limits })(`http://${host}/ask`, post("x"));
  await register("there", "http://127.0.0.1:9/ask");
  await assert.rejects(ask(), /has no endpoint at/);
  await register("here", `http://${host}/:any`);
  assert.equal((await ask()).status, 200);
});

test("a budget is exact", () => {
  const budget = new Budget({ hosts: ["h"], creditsPerCall: 3n, credits: 10n });
  let taken = 0;
  for (let i = 0; i < 100; i++) {
    try {
      budget.take({ id: String(i), at: new Date(), host: "h", method: "GET", path: "/", planId: "1", unit: "credits", most: 3n, spent: 0n, state: "sent", transaction: "", permissionHash: "" });
      taken++;
    } catch (e) {
      assert.ok(e instanceof LimitReached && e instanceof TollError && e.name === "LimitReached");
    }
  }
  assert.deepEqual([taken, budget.spent()], [3, 9n]);
});
