// The middleware in each framework: I16 to I18, F07 to F09, and T85 to T103 as far as they touch one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import net from "node:net";
import { after, before, beforeEach, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { paid } from "@tollhq/toll/paid";
import { receiptOf, Toll } from "@tollhq/toll";
import { Service } from "@tollhq/toll/testing";
import {
  ask, closeApplication, connect2, content, exchange, flood, names, onHttp2, parse, pause, requestText, start,
} from "./apps.mjs";

const down = "the service is down";
/** TOLL_FRONT names one framework; without it all are tested, one after the other. */
const fronts = names.filter((n) => (process.env.TOLL_FRONT ?? n) === n);
let service;
const tokens = {};
before(async () => {
  service = await Service.start({ args: ["--chain", "off", "--card", "off", "--loopback-webhooks"] });
  for (const name of fronts) tokens[name] = await service.token({ credits: 5000n, account: `buyer ${name}` });
});
after(async () => {
  await service?.stop();
  await closeApplication();
});

async function eventually(check, what) {
  const end = Date.now() + 20_000;
  while (!(await check())) {
    assert.ok(Date.now() < end, typeof what === "function" ? what() : what);
    await pause(10);
  }
}
const has = (front, event) =>
  eventually(() => front.state.events.includes(event), () => `no ${event} in ${front.state.events}`);
const stored = async (id) => (await service.client()).payments.get(id);

for (const name of fronts) {
  describe(name, () => {
    const account = `buyer ${name}`;
    let front;
    let token;
    before(async () => {
      front = await start(name, service);
      token = tokens[name];
    });
    after(() => front.stop());
    beforeEach(() => front.reset());

    const balance = async () => {
      const b = await service.balance(account);
      return [b.balance, b.held];
    };
    const at = (event) => {
      const i = front.state.events.indexOf(event);
      assert.ok(i >= 0, `no ${event} in ${front.state.events}`);
      return i;
    };
    const isSettled = async (had, credits) => {
      await has(front, "settle 200");
      assert.ok(!front.state.events.includes("release 200"), front.state.events.join());
      assert.deepEqual(await balance(), [had - credits, 0n]);
    };
    const isFree = async (had) => {
      await has(front, "release 200");
      assert.ok(!front.state.events.includes("settle 200"), front.state.events.join());
      assert.deepEqual(await balance(), [had, 0n]);
    };

    test("I16: settled before the first byte", async () => {
      const [had] = await balance();
      const got = await ask(front, token);
      assert.deepEqual([got.status, got.body], [200, content]);
      const receipt = got.decoded("payment-response");
      assert.deepEqual([receipt.success, receipt.creditsRedeemed], [true, "2"]);
      assert.ok(at("verify 200") < at("run") && at("run") < at("settle 200"));
      assert.ok(at("settle 200") < at("start 200") && at("start 200") <= at("byte"));
      const s = await stored(receipt.extra.agentRequestId);
      assert.equal(s.status, "settled");
      const headers = new Headers({ "payment-response": got.headers["payment-response"] });
      assert.deepEqual(s.receipt, receiptOf({ headers }));
      assert.equal(s.receipt.creditsRedeemed, 2n);
      assert.deepEqual(await balance(), [had - 2n, 0n]);
      assert.ok([undefined, String(content.length)].includes(got.headers["content-length"]), "two lengths");
      // The answer is private, has one receipt, and the handler never saw the token.
      assert.equal(got.headers["cache-control"], "private, max-age=60");
      assert.match(got.headers.vary, /payment-signature/);
      assert.ok(!got.headers["payment-response"].includes(","));
      assert.ok(!JSON.stringify(front.state.seen).includes(token));
      assert.equal(front.state.payment.payer, (await service.key(account)).address);
      assert.equal(front.state.payment.held, 2n);
      assert.ok(!JSON.stringify(front.logs).includes(token));
    });

    test("a 402 says what it costs", async () => {
      for (const bad of [null, "", "x", `${token.slice(0, -4)}AAAA`, "e30=", "a.b.c"]) {
        const got = await ask(front, bad);
        assert.equal(got.status, 402, `${bad} ${JSON.stringify(got)}`);
        const asks = got.decoded("payment-required");
        assert.deepEqual([asks.accepts[0].amount, asks.accepts[0].planId], ["2", service.planId]);
        assert.equal(asks.resource.url, `http://127.0.0.1:${front.port}/ask`);
        const body = JSON.parse(got.body);
        assert.deepEqual(body.accepts, asks.accepts);
        assert.match(body.code, /^BCK\./);
        assert.equal(got.headers["cache-control"], "no-store");
      }
      assert.equal(front.state.runs, 0);
    });

    test("I17: errors of a handler are free", async () => {
      for (const [what, status] of [["404", 404], ["raise", 500]]) {
        front.reset();
        const [had] = await balance();
        const got = await ask(front, token, { target: `/ask?do=${what}` });
        assert.equal(got.status, status);
        assert.ok(!("payment-response" in got.headers) && !got.body.includes(content));
        await isFree(had);
      }
    });

    const faults = {
      "before verify": { before: (op) => op === "verify" && down, status: 503, burned: 0n, settles: 0 },
      between: { before: (op) => /settle|release/.test(op) && down, status: 503, burned: 0n, settles: 3 },
      "answers of settle lost": { after: (op) => op === "settle" && down, status: 503, burned: 2n, settles: 3 },
      "answer of settle lost once": { after: (op, n) => op === "settle" && n === 1 && down, status: 200, burned: 2n, settles: 2 },
      "back for the third try": { before: (op, n) => op === "settle" && n < 3 && down, status: 200, burned: 2n, settles: 3 },
    };
    for (const [when, f] of Object.entries(faults)) {
      test(`F08: the service is down ${when}`, async () => {
        const [had] = await balance();
        await ask(front, null); // terms are known
        front.reset();
        if (f.before) front.faults.before = f.before;
        if (f.after) front.faults.after = f.after;
        const got = await ask(front, token);
        assert.equal(got.status, f.status, got.body);
        assert.equal(front.faults.counts.settle ?? 0, f.settles);
        front.faults.reset();
        const [now, held] = await balance();
        assert.equal(now, had - f.burned);
        if (f.status === 200) {
          assert.equal(got.body, content);
          assert.ok(got.decoded("payment-response").success);
          return;
        }
        assert.ok(!got.body.includes(content) && !got.body.includes(down) && got.headers["retry-after"]);
        if (f.settles === 0) {
          assert.deepEqual([front.state.runs, held], [0, 0n]);
          return;
        }
        const receipt = got.decoded("payment-response");
        assert.equal(receipt.errorReason, "settlement_pending");
        const id = receipt.extra.agentRequestId;
        assert.equal((await stored(id)).status, f.burned ? "settled" : "held");
        if (!f.burned) await (await service.client()).payments.release(id);
      });
    }

    test("F08: terms are unknown and the service is down", async () => {
      const other = await start(name, service);
      other.faults.before = () => down;
      const got = await ask(other, token);
      await other.stop();
      assert.equal(got.status, 503);
      assert.ok(JSON.parse(got.body).retryable && !got.body.includes(down));
      assert.equal(other.state.runs, 0);
    });

    /** Releases the hold before the gate settles, so that the settlement is refused. */
    const giveBack = async (op) => {
      if (op === "settle") await (await service.client()).payments.release(front.faults.requestId);
    };

    test("a settlement that is refused is a 402", async () => {
      front.faults.before = giveBack;
      const got = await ask(front, token);
      assert.equal(got.status, 402);
      assert.ok(!got.body.includes(content));
      assert.equal(got.decoded("payment-response").success, false);
      assert.ok(got.decoded("payment-required").accepts.length);
    });

    test("prices of answers", async () => {
      const [had] = await balance();
      for (const [asked, redeemed] of [["3", "3"], ["9", "5"], ["0", "0"]]) {
        const got = await ask(front, token, { target: `/priced?price=${asked}`, body: "hello" });
        assert.deepEqual([got.status, got.body], [200, "hello"]);
        assert.equal(got.decoded("payment-response").creditsRedeemed, redeemed);
      }
      front.reset();
      const got = await ask(front, token, { target: "/priced", body: "price fails" });
      assert.equal(got.status, 500);
      assert.ok(!got.body.includes("price fails"));
      await isFree(had - 8n);
    });

    test("T103: a stream of a known price is settled before its first byte, and outlasts its hold", async () => {
      const [had] = await balance();
      const got = await ask(front, token, { target: "/stream?n=60" });
      assert.deepEqual([got.status, got.whole], [200, true]);
      assert.equal(got.body.split(content).length - 1, 60);
      const receipt = got.decoded("payment-response");
      assert.deepEqual([receipt.success, receipt.creditsRedeemed], [true, "2"]);
      assert.match(got.headers["cache-control"], /^private/);
      assert.equal(got.headers["x-accel-buffering"], "no");
      assert.ok(at("settle 200") < at("start 200") && at("start 200") <= at("byte"));
      assert.ok(!front.faults.counts.renew, "a hold that is settled is not renewed");
      await isSettled(had, 2n);
    });

    test("T103: a stream whose price is known at its end renews its hold", async () => {
      const [had] = await balance();
      const got = await ask(front, token, { target: "/metered?n=90" });
      assert.deepEqual([got.status, got.whole], [200, true]);
      assert.equal(got.body.split(content).length - 1, 90);
      assert.ok(!("payment-response" in got.headers));
      assert.equal(got.headers["x-accel-buffering"], "no");
      assert.match(got.headers["cache-control"], /^private/);
      await has(front, "settle 200");
      assert.ok(at("verify 200") < at("byte") && at("byte") < at("settle 200"));
      assert.ok(front.faults.counts.renew >= 2, `${front.faults.counts.renew} renewals`);
      assert.equal((await stored(got.headers["service-request-id"])).status, "settled");
      await isSettled(had, 2n);
    });

    test("T103: an answer that is longer than the buffer streams", async () => {
      const [had] = await balance();
      const got = await ask(front, token, { target: "/long" });
      assert.equal(got.body.length, 40 * 4096 * content.length);
      assert.ok(got.decoded("payment-response").success && !("x-accel-buffering" in got.headers));
      await isSettled(had, 2n);
    });

    test("T103: a stream whose hold cannot be renewed is cut, says so, and is settled", async () => {
      const [had] = await balance();
      front.faults.before = (op) => op === "renew" && down;
      const raw = await exchange(front.port, requestText("POST", "/metered?n=100000", [["payment-signature", token]]));
      const got = parse(raw);
      assert.ok(got.body.includes(content) && !got.whole);
      assert.match(got.body, /\n\nevent: error\ndata: {"message":"The hold for this stream has expired."}\n\n$/);
      await isSettled(had, 2n);
    });

    test("T103: an idle reader keeps no stream open", async () => {
      const [had] = await balance();
      front.faults.before = (op) => op === "renew" && down;
      const socket = net.connect(front.port, "127.0.0.1").on("error", () => undefined);
      socket.write(requestText("POST", "/metered?n=100000", [["payment-signature", token]]));
      await once(socket, "data");
      socket.pause();
      await isSettled(had, 2n);
      socket.destroy();
    });

    test("an answer that is slow outlasts its hold", async () => {
      const short = await start(name, service, { holdSecs: 1 });
      try {
        const [had] = await balance();
        const work = ask(short, token, { target: "/ask?do=hang" });
        await pause(2500);
        short.state.resume.resolve();
        assert.equal((await work).status, 200);
        assert.ok(short.faults.counts.renew >= 2, JSON.stringify([short.logs, short.state.events]));
        assert.deepEqual(await balance(), [had - 2n, 0n]);
      } finally {
        await short.stop();
      }
    });

    /** Hangs up once some bytes of the answer have come, or for none once the handler runs. */
    async function cut(target, seen, method = "POST") {
      const socket = net.connect(front.port, "127.0.0.1").on("error", () => undefined);
      socket.write(requestText(method, target, [["payment-signature", token]]));
      let text = "";
      if (seen) {
        for await (const part of socket) if ((text += part).includes(seen)) break;
      } else {
        await front.state.entered.promise;
      }
      socket.resetAndDestroy();
    }

    test("T102: a stream that the caller cuts is settled", async () => {
      const [had] = await balance();
      for (const target of ["/stream?n=30", "/metered?n=30"]) {
        front.reset();
        await cut(target, "data:");
        await has(front, "settle 200");
        assert.ok(!front.state.events.includes("release 200"));
      }
      await isSettled(had, 4n);
    });

    test("T102: a POST whose caller leaves is settled", async () => {
      const [had] = await balance();
      await cut("/ask?do=hang");
      await pause(100);
      front.state.resume.resolve();
      await isSettled(had, 2n);
    });

    test("T102: a GET whose caller leaves before the handler runs is free", async () => {
      const [had] = await balance();
      const asked = new Promise((resolve) => {
        front.faults.before = async (op) => {
          if (op !== "verify") return;
          resolve();
          await pause(200);
        };
      });
      const socket = net.connect(front.port, "127.0.0.1").on("error", () => undefined);
      socket.write(requestText("GET", "/ask", [["payment-signature", token]]));
      await asked;
      socket.resetAndDestroy();
      await isFree(had);
      assert.equal(front.state.runs, 0);
    });

    test("T102: a GET whose caller leaves is free", async () => {
      const [had] = await balance();
      await cut("/ask?do=hang", undefined, "GET");
      await isFree(had);
      if (!/express|fastify/.test(name)) await eventually(() => front.state.finished, "the handler works on");
      front.state.resume.resolve();
      await pause(50);
      await isFree(had);
    });

    test("work for callers who left ends with the hold", async () => {
      const short = await start(name, service, { holdSecs: 1 });
      const [had] = await balance();
      const was = front;
      front = short;
      try {
        await cut("/ask?do=hang");
        await isFree(had);
      } finally {
        front = was;
        await short.stop();
      }
    });

    test("F09: a stream is settled late", async () => {
      const [had] = await balance();
      front.faults.before = (op, n) => op === "settle" && n < 2 && down;
      const got = await ask(front, token, { target: "/metered" });
      assert.ok(got.status === 200 && got.whole);
      await eventually(() => front.told.length === 1, "no alarm");
      const [u] = front.told;
      assert.ok(u.credits === 2n && !u.final && u.size > 0 && u.payer);
      await isSettled(had, 2n);
      await eventually(() => front.sdk.unsettledStreams() === 0, "it waits");
      assert.equal(front.told.length, 1);
    });

    test("F09: drain settles what waits", async () => {
      const [had] = await balance();
      let away = true;
      front.faults.before = (op) => op === "settle" && away && down;
      assert.equal((await ask(front, token, { target: "/metered" })).status, 200);
      await eventually(() => front.sdk.unsettledStreams() === 1, "nothing waits");
      assert.equal(await front.sdk.drain(100), false);
      away = false;
      assert.ok((await front.sdk.drain(20_000)) && front.sdk.unsettledStreams() === 0);
      await isSettled(had, 2n);
    });

    test("F09: a stream of a known price that is not settled does not begin", async () => {
      for (const [before, status] of [[giveBack, 402], [(op) => op === "settle" && down, 503]]) {
        front.reset();
        front.faults.before = before;
        const got = await ask(front, token, { target: "/stream" });
        assert.equal(got.status, status);
        assert.ok(!got.body.includes(content) && !got.decoded("payment-response").success);
        assert.equal(front.told.length, 0);
        front.faults.reset();
        await (await service.client()).payments.release(got.decoded("payment-response").extra?.agentRequestId ?? "x").catch(() => undefined);
      }
    });

    test("F09: a refused stream raises the alarm", async () => {
      front.faults.before = giveBack;
      const got = await ask(front, token, { target: "/metered" });
      assert.equal(got.status, 200);
      await eventually(() => front.told.length === 1, "no alarm");
      assert.ok(front.told[0].final);
      assert.equal(front.told[0].agentRequestId, got.headers["service-request-id"]);
      assert.equal(front.sdk.unsettledStreams(), 0);
    });

    test("T14: an access token in the wrong place", async () => {
      for (const [target, more] of [
        [`/ask?token=${token}`, []],
        ["/ask", [["cookie", `payment-signature=${token}; a=b`]]],
        ["/ask", [["referer", `http://a/?${token}`]]],
      ]) {
        assert.equal((await ask(front, null, { target, more })).status, 402);
      }
      assert.equal(front.state.runs, 0);
      // With a payment beside it, it does not get to the handler, and never through a URL.
      const more = [["cookie", `x=${token}; a=b`], ["x-other", `Bearer ${token}`]];
      assert.equal((await ask(front, token, { more })).status, 200);
      assert.equal(front.state.seen.cookie, "a=b");
      assert.ok(!("x-other" in front.state.seen));
      assert.equal((await ask(front, token, { target: `/ask?t=${token}` })).status, 400);
    });

    test("T88: one reading of a message", async () => {
      const second = requestText("POST", "/ask", [["payment-signature", token]]).toString("latin1");
      const head = (lines) => `POST /ask HTTP/1.1\r\nhost: agent.test\r\n${lines.join("\r\n")}\r\n\r\n`;
      for (const lines of [
        ["content-length: 4", "transfer-encoding: chunked"],
        ["content-length: 4", "content-length: 5"],
        ["transfer-encoding: xchunked"],
        ["transfer-encoding: chunked", "transfer-encoding: identity"],
        ["content-length: +4"],
        ["content-length : 4"],
        ["x-a: b", " folded: c"],
      ]) {
        const raw = await exchange(front.port, `${head(lines)}0\r\n\r\n${second}`, 3000);
        assert.match(raw.toString("latin1"), /^HTTP\/1.1 4\d\d/, lines.join());
        assert.ok(!raw.includes(content), lines.join());
        assert.equal(front.state.runs, 0, lines.join());
      }
    });

    test("T89: two credentials", async () => {
      const other = await service.token({ account: "other buyer" });
      const payload = Buffer.from(JSON.stringify({ x402Version: 2, payload: { signature: token } })).toString("base64");
      const sig = "payment-signature";
      const twice = Buffer.from('{"x402Version":2,"x402Version":2}').toString("base64");
      for (const [what, headers, wanted, runs] of [
        ["twice", [[sig, token], [sig, other]], [400, 402], 0],
        ["twice, equal", [[sig, token], ["PAYMENT-SIGNATURE", token]], [400, 402], 0],
        ["comma", [[sig, `${token}, ${other}`]], [402, 431], 0],
        ["with version 1", [[sig, token], ["x-payment", "e30="]], [400], 0],
        ["version 1 alone", [["x-payment", "e30="]], [402], 0],
        ["bearer that is not listed", [["authorization", `Bearer ${token}`]], [402], 0],
        ["bearer of others", [[sig, token], ["authorization", "Bearer b3RoZXI"]], [200], 1],
        ["another rendering", [[sig, payload]], [200], 1],
        ["duplicate members", [[sig, twice]], [402], 0],
        ["underscore", [["payment_signature", token]], [402], 0],
      ]) {
        front.reset();
        const got = await ask(front, null, { more: headers });
        assert.ok(wanted.includes(got.status), `${what}: ${got.status} ${got.body}`);
        assert.equal(front.state.runs, runs, what);
        if (what === "bearer of others") assert.equal(front.state.seen.authorization, "Bearer b3RoZXI");
      }
    });

    test("T90: internal headers", async () => {
      const more = [
        ["settlement-overrides", '{"amount":"0"}'], ["payment-response", "e30="],
        ["x-http-method-override", "GET"], ["x-original-url", "/free"],
      ];
      const got = await ask(front, token, { more });
      assert.equal(got.decoded("payment-response").creditsRedeemed, "2");
      for (const [n] of more) assert.ok(!(n in front.state.seen), n);
    });

    test("T90: stripped headers, name by name", async () => {
      const table = JSON.parse(readFileSync(`${process.env.TOLL_CONFORMANCE ?? "../../testdata/conformance"}/tables/headers.json`, "utf8"));
      for (const [name, value] of Object.entries(table.request)) {
        for (const spelling of [name, name.toUpperCase(), name.replaceAll("-", "_")]) {
          front.reset();
          const got = await ask(front, token, { more: [[spelling, value], ["x-kept", "1"]] });
          assert.equal(got.status, 200, `${spelling} ${got.status} ${got.body}`);
          assert.equal(front.state.seen["x-kept"], "1", spelling);
          for (const seen of Object.keys(front.state.seen)) assert.notEqual(seen.toLowerCase().replaceAll("_", "-"), name, spelling);
        }
      }
    });

    test("T91: sizes", async () => {
      for (const [wanted, target, more, body] of [
        [431, "/ask", [["x-big", "x".repeat(17 << 10)]], ""],
        [431, "/ask", Array.from({ length: 201 }, (_, i) => [`x-${i}`, "1"]), ""],
        [414, `/ask?${"y".repeat(8 << 10)}`, [], ""],
        [413, "/ask", [], "z".repeat((1 << 16) + 1)],
      ]) {
        const got = await ask(front, token, { target, more, body });
        assert.equal(got.status, wanted, target.slice(0, 10));
        assert.ok(!got.body.includes(content));
      }
      assert.equal((await ask(front, `${"x".repeat(8 << 10)}y`)).status, 431);
      assert.equal(front.state.runs, 0);
    });

    test("T91: a body without end", async () => {
      const [had] = await balance();
      const head = requestText("POST", "/ask", [["payment-signature", token], ["transfer-encoding", "chunked"]])
        .toString("latin1").replace("content-length: 0\r\n", "");
      const socket = net.connect(front.port, "127.0.0.1").on("error", () => undefined);
      let raw = Buffer.alloc(0);
      socket.on("data", (d) => (raw = Buffer.concat([raw, d])));
      socket.write(head);
      const part = `4000\r\n${"x".repeat(0x4000)}\r\n`;
      let sent = 0;
      while (!socket.destroyed && !raw.length && sent < 64 << 20) {
        sent += 0x4000;
        if (!socket.write(part)) await Promise.race([once(socket, "drain"), once(socket, "close")]).catch(() => undefined);
        await new Promise(setImmediate);
      }
      await eventually(() => raw.length || socket.destroyed, "no answer");
      socket.destroy();
      assert.ok(sent < 32 << 20, `${sent}`);
      assert.ok(!raw.includes(content));
      if (raw.length) assert.equal(parse(raw).status, 413);
      await eventually(async () => (await balance())[1] === 0n, "a hold is left");
      assert.deepEqual(await balance(), [had, 0n]);
    });

    test("T92: paths", async () => {
      for (const path of [
        "//ask", "/./ask", "/ask/", "/ASK", "/%61sk", "/ask%2f", "/ask%00", "/ask;a", "/ask%", "/ask%0a",
        "\\ask", "/x/..%2fask", "/free/../ask", "/ask%3f", "/%EF%BD%81sk", "http://agent.test/ask",
      ]) {
        const got = await ask(front, null, { target: path });
        assert.ok(!got.body.includes(content) && got.status !== 200, `${path} ${got.status}`);
      }
      assert.equal(front.state.runs, 0);
    });

    test("T93: verbs", async () => {
      for (const method of ["HEAD", "OPTIONS", "TRACE", "post", "PUT", "FOO"]) {
        const got = await ask(front, null, { method, body: "" });
        assert.ok(!got.body.includes(content), method);
        if (method === "HEAD") assert.notEqual(got.headers["content-length"], String(content.length));
      }
      const upgrade = [["upgrade", "websocket"], ["connection", "upgrade"]];
      // Next itself ends such a connection.
      const refusals = name === "application" ? [0] : [400, 405];
      assert.ok(refusals.includes((await ask(front, token, { more: upgrade })).status));
      const override = [["x-http-method-override", "GET"]];
      assert.equal((await ask(front, null, { target: "/ask?_method=GET", more: override })).status, 402);
      assert.equal(front.state.runs, 0);
    });

    test("T94: forwarding headers", async () => {
      const more = [
        ["x-forwarded-host", "evil.test"], ["x-forwarded-proto", "https"], ["forwarded", "host=evil.test"],
        ["x-forwarded-prefix", "/evil"],
      ];
      const got = await ask(front, null, { more });
      assert.equal(got.status, 402);
      assert.ok(!got.body.includes("evil"));
      assert.match(got.decoded("payment-required").resource.url, /^http:\/\/127\.0\.0\.1:/);
    });

    test("T95: response splitting", async () => {
      for (const [id, kept] of [["good-1", true], ["a b", false], ["x".repeat(129), false], ["\xe9", false]]) {
        const got = await ask(front, null, { more: [["x-correlation-id", id]] });
        assert.equal(got.headers["x-correlation-id"] === id, kept, id);
        assert.equal(JSON.parse(got.body).correlationId, got.headers["x-correlation-id"]);
      }
    });

    test("T98: the version header has no effect on the price", async () => {
      for (const v of ["1.0", "9.9", "", "x".repeat(1000)]) {
        const got = await ask(front, token, { more: [["service-version", v]] });
        assert.equal(got.decoded("payment-response").creditsRedeemed, "2");
      }
    });

    test("T100: ranges and conditions", async () => {
      const more = [
        ["range", "bytes=0-3"], ["if-none-match", "*"], ["if-modified-since", "Thu, 01 Jan 2032 00:00:00 GMT"],
      ];
      assert.equal((await ask(front, null, { more })).status, 402);
      const got = await ask(front, token, { more });
      assert.ok([200, 206].includes(got.status));
      assert.equal(got.decoded("payment-response").creditsRedeemed, "2");
      assert.ok(!("if-none-match" in front.state.seen));
    });

    /** Waits until each hold that was opened is settled or released. */
    const allEnded = async (own) => {
      await pause(200);
      const { counts } = own.faults;
      const ended = () => (counts.verify ?? 0) === (counts.settle ?? 0) + (counts.release ?? 0);
      await eventually(ended, () => `holds are left: ${JSON.stringify(counts)}`);
      await eventually(async () => (await balance())[1] === 0n, "a hold is left");
    };

    /** An agent of its own, so that its terms can change. */
    const ownAgent = async () => {
      const builder = await service.client();
      const { agentId } = await builder.agents.register({ name: "changing", endpoints: [], plans: [service.planId] });
      const own = await start(name, service, { agent: agentId });
      return { own, set: (listed) => builder.agents.setListed(agentId, listed) };
    };

    test("T85: terms that change before the payment refuse it, and later ones do not count", async () => {
      const [had] = await balance();
      const { own, set } = await ownAgent();
      try {
        assert.equal((await ask(own, null)).decoded("payment-required").accepts[0].amount, "2");
        await set(false); // between the 402 and the payment
        const refused = await ask(own, token);
        assert.deepEqual([refused.status, own.state.runs, await balance()], [402, 0, [had, 0n]]);
        await set(true);
        const work = ask(own, token, { target: "/ask?do=hang" });
        await own.state.entered.promise;
        await set(false); // between the hold and the settlement
        own.state.resume.resolve();
        const got = await work;
        assert.deepEqual([got.status, got.decoded("payment-response").creditsRedeemed], [200, "2"]);
        assert.deepEqual(await balance(), [had - 2n, 0n]);
      } finally {
        await own.stop();
      }
      // A token that was made for the price of a 402 does not pay a higher one.
      const two = await service.token({ account, redemptionLimit: 2n });
      const got = await ask(front, two, { target: "/priced?price=5", body: "hello" });
      assert.equal(got.status, 402);
      assert.ok(!got.body.includes("hello"));
      assert.deepEqual([front.state.runs, await balance()], [0, [had - 2n, 0n]]);
    });

    test("T86: a flood without payments costs no call of the service", async () => {
      const [had] = await balance();
      const big = await ask(front, null, { body: "z".repeat(2 << 20) });
      assert.ok(big.status === 413 || big.status === 0, `${big.status}`); // some close before they are heard
      await ask(front, null); // terms are known
      front.reset();
      const bad = ["x", "e30=", "bm8=", `${"A".repeat(4096)}`];
      const flooded = flood(front.port, 1000, (i) => (i % 2 ? {} : { "payment-signature": bad[(i / 2) % bad.length] }));
      const paid = [];
      for (let i = 0; i < 10; i++) paid.push((await ask(front, token)).status);
      const statuses = await flooded;
      assert.deepEqual([...new Set(statuses)], [402]);
      assert.deepEqual([...new Set(paid)], [200]);
      assert.deepEqual(front.faults.counts, { verify: 10, settle: 10 });
      assert.equal(front.state.runs, 10);
      assert.deepEqual(await balance(), [had - 20n, 0n]);
    });

    test("T87: webhooks are taken when they are signed, before and after a rotation", async () => {
      const { webhooks } = await service.client();
      const hook = await webhooks.create({ url: `http://127.0.0.1:${front.port}/hook`, types: ["plan.updated"] });
      const delivered = async (n) => {
        await webhooks.test(hook.id);
        await eventually(() => front.state.hooks.length === n, () => `${front.state.hooks.length} deliveries, not ${n}`);
        return front.state.hooks.at(-1);
      };
      front.state.secrets = ["whsec_other", hook.secret];
      const first = await delivered(1);
      assert.equal(first.event.type, "webhook.test");
      const rotated = await webhooks.rotate(hook.id);
      front.state.secrets = [hook.secret]; // the old one still counts
      await delivered(2);
      front.state.secrets = [rotated.secret];
      await delivered(3);
      await webhooks.delete(hook.id);
      // The first delivery again: with its old secret, changed, late, without a signature, and as it was.
      const again = (secrets, body = first.body, change = {}) => {
        front.state.secrets = secrets;
        const headers = Object.entries({ ...first.headers, ...change }).filter(([n, v]) => v && /webhook|type/.test(n));
        return ask(front, null, { target: "/hook", body, more: headers });
      };
      const nameOf = (end) => Object.keys(first.headers).find((n) => n.endsWith(end));
      const [id, time, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(nameOf);
      const before = (secs) => {
        const at = String(Math.floor(Date.now() / 1000) - secs);
        const text = `${first.headers[id]}.${at}.${first.body}`;
        return { [time]: at, [signature]: `v1=${createHmac("sha256", hook.secret).update(text).digest("hex")}` };
      };
      assert.equal((await again([rotated.secret])).status, 403);
      assert.equal((await again([hook.secret], first.body.replace("webhook.test", "plan.updated"))).status, 403);
      assert.equal((await again([hook.secret], first.body, before(310))).status, 403);
      assert.equal((await again([hook.secret], first.body, before(-310))).status, 403);
      assert.equal((await again([hook.secret], first.body, { [signature]: undefined })).status, 403);
      assert.equal(front.state.hooks.length, 3);
      assert.equal((await again([hook.secret])).status, 204);
      assert.equal((await again([hook.secret], first.body, before(200))).status, 204);
      assert.ok(front.state.hooks.slice(3).every((h) => h.event.id === first.event.id));
    });

    test("T96: payments in JSON that can be read in two ways", async () => {
      const [had] = await balance();
      const base = (text) => (typeof text === "string" ? Buffer.from(text) : text).toString("base64");
      const payment = (more = "", jws = `"signature":"${token}"`) => `{"x402Version":2,"payload":{${jws}}${more}}`;
      assert.equal((await ask(front, base(payment(',"x":1e400')))).status, 200); // so that the others fail for their own reason
      front.reset();
      const other = await service.token({ account: "other buyer" });
      const utf16 = Buffer.from(payment(), "utf16le");
      for (const [what, text] of Object.entries({
        "duplicate signature": payment("", `"signature":"${other}","signature":"${token}"`),
        "duplicate payload": payment(`,"payload":{"signature":"${other}"}`),
        "duplicate version": payment(',"x402Version":2'),
        "duplicate by escape": payment("", `"signature":"${other}","s\\u0069gnature":"${token}"`),
        "duplicate, unknown": payment(',"x":{"a":1,"a":1}'),
        "other case": payment().replace("signature", "Signature"),
        "name with NUL": payment().replace("signature", "signature\\u0000"),
        "long s": payment().replace("signature", "\u017fignature"),
        "byte order mark": `\ufeff${payment()}`,
        "UTF-16": utf16,
        "UTF-16 with its mark": Buffer.concat([Buffer.from([0xff, 0xfe]), utf16]),
        "bad UTF-8": Buffer.concat([Buffer.from(payment(',"x":"')).subarray(0, -1), Buffer.from([0xff]), Buffer.from('"}')]),
        "lone surrogate": payment(',"x":"\\ud800"'),
        NaN: payment(',"x":NaN'),
        "trailing bytes": `${payment()} x`,
        "two values": `${payment()}{}`,
        "trailing comma": payment(","),
        "depth 33": payment(`,"x":${"[".repeat(32)}${"]".repeat(32)}`),
        "version as text": payment().replace(":2", ':"2"'),
        "version as a fraction": payment().replace(":2", ":2.5"),
        array: `[${payment()}]`,
        "not complete": payment().slice(0, -1),
      })) {
        const got = await ask(front, base(text));
        assert.equal(got.status, 402, `${what}: ${got.status} ${got.body}`);
        assert.ok(!got.body.includes(content) && !got.body.includes(token), what);
        assert.match(got.decoded("payment-required").error, /^invalid_/, what);
      }
      assert.deepEqual([front.state.runs, await balance()], [0, [had - 2n, 0n]]);
    });

    test("T97: media types", async () => {
      const [had] = await balance();
      const types = [
        "application/json", "application/json; charset=utf-8", "application/json; charset=utf-16", "text/plain",
        "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "image/png", "",
      ];
      for (const type of types) {
        for (const coding of ["", "gzip"]) {
          const more = [];
          if (type) more.push(["content-type", type]);
          if (coding) more.push(["content-encoding", coding]);
          const o = { target: "/priced", more, body: "{}" };
          front.reset();
          const asked = await ask(front, null, o);
          assert.equal(asked.status, 402, `${type} ${coding}`);
          assert.deepEqual([asked.headers["content-type"], front.state.runs], ["application/json", 0]);
          // The gate neither reads nor changes the body of a request.
          const got = await ask(front, token, o);
          assert.deepEqual([got.status, got.body], [200, "{}"], `${type} ${coding}`);
          const { seen } = front.state;
          assert.deepEqual([seen["content-type"] ?? "", seen["content-encoding"] ?? ""], [type, coding]);
        }
      }
      assert.deepEqual(await balance(), [had - 16n, 0n]);
    });

    test("T99: a shared cache keeps nothing that was paid", async () => {
      const kept = new Map();
      // A cache that conforms: what a CDN reads first, then what RFC 9111 says.
      const through = async (target, its) => {
        if (kept.has(target)) return kept.get(target);
        const got = await ask(front, its, { method: "GET", target, body: "" });
        const said = ["cdn-cache-control", "surrogate-control", "cache-control"].map((n) => got.headers[n]).find(Boolean) ?? "";
        if (!/no-store|private/.test(said)) kept.set(target, got);
        return got;
      };
      for (const [target, status] of [["/ask", 200], ["/ask?do=cache", 200], ["/ask?do=404", 404], ["/stream", 200], ["/long", 200]]) {
        assert.equal((await through(target, token)).status, status, target);
        const got = await through(target, null);
        assert.ok(got.status === 402 && !got.body.includes(content), `${target}: a stranger gets ${got.status}`);
        assert.equal((await through(target, null)).headers["cache-control"], "no-store");
      }
      assert.equal((await through("/free", null)).status, 200);
      assert.deepEqual([...kept.keys()], ["/free"]);
      await eventually(async () => (await balance())[1] === 0n, "a hold is left");
    });

    test("T101: HTTP/2 on a connection of HTTP/1.1", async () => {
      const [had] = await balance();
      const preface = `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${"\0\0\0\x04\0\0\0\0\0".repeat(1000)}`;
      const raw = await exchange(front.port, preface, 3000);
      assert.match(raw.toString("latin1") || "HTTP/1.1 400", /^HTTP\/1.1 4\d\d/);
      if (name === "application") return; // it ends connections that ask for another protocol
      const upgrade = [["upgrade", "h2c"], ["http2-settings", "AAMAAABkAAQAAP__"], ["connection", "upgrade, http2-settings"]];
      const asked = await ask(front, null, { more: upgrade });
      assert.deepEqual([asked.status, front.state.runs], [402, 0]);
      const got = await ask(front, token, { more: upgrade });
      assert.deepEqual([got.status, got.body, front.state.runs], [200, content, 1]);
      assert.ok(!("http2-settings" in front.state.seen) && !("upgrade" in front.state.seen));
      assert.deepEqual(await balance(), [had - 2n, 0n]);
    });

    test("T101: a server of HTTP/2", { skip: !onHttp2.includes(name) && "the framework has none" }, async () => {
      const [had] = await balance();
      const own = await start(name, service, { http2: true });
      const client = await connect2(own.port);
      try {
        const foreign = await client.ask({ ":authority": "evil.test", host: "other.test" });
        assert.equal(foreign.status, 402);
        assert.equal(foreign.decoded("payment-required").resource.url, `http://127.0.0.1:${own.port}/ask`);
        const paid = { "payment-signature": token };
        const got = await client.ask(paid);
        assert.deepEqual([got.status, got.body], [200, content]);
        assert.ok(got.decoded("payment-response").success && !JSON.stringify(own.state.seen).includes(token));
        const priced = await client.ask({ ...paid, ":path": "/priced?price=3" }, "hello");
        assert.deepEqual([priced.status, priced.body], [200, "hello"]);
        assert.equal(priced.decoded("payment-response").creditsRedeemed, "3");
        const stream = await client.ask({ ...paid, ":path": "/stream?n=3" });
        assert.equal(stream.body.split(content).length, 4);
        const long = await client.ask({ ...paid, ":path": "/priced", "content-length": "9" }, "hello");
        assert.ok(!long.body.includes("hello"));
        await allEnded(own);
        const late = BigInt(own.faults.counts.settle - 3); // a POST whose caller is cut off may be worked on and settled
        assert.ok(late <= 1n);
        assert.deepEqual(await balance(), [had - 7n - late, 0n]);
        // Streams that are reset at once: without a payment none reaches the service.
        own.reset();
        const before = process.memoryUsage().heapUsed;
        await client.resets(1000, {});
        // The server of Hono does not tell its handlers of streams that were reset: their holds lapse.
        if (name === "fastify") await client.resets(20, { ...paid, ":path": "/ask?do=hang", ":method": "GET" });
        await allEnded(own);
        assert.ok((own.faults.counts.verify ?? 0) <= 20 && !own.faults.counts.settle);
        assert.ok(process.memoryUsage().heapUsed - before < 100 << 20);
        const after = await connect2(own.port);
        assert.equal((await after.ask(paid)).status, 200);
        after.close();
        assert.deepEqual(await balance(), [had - 9n - late, 0n]);
      } finally {
        client.close();
        await own.stop();
      }
    });

    test("T119: a token for another resource", async () => {
      const other = await service.token({ credits: 10n, account, resource: "https://other.example.com" });
      assert.equal((await ask(front, other)).status, 402);
      assert.equal(front.state.runs, 0);
      const mine = await service.token({ account, resource: `http://127.0.0.1:${front.port}` });
      assert.equal((await ask(front, mine)).status, 200);
    });

    test("I18: a token with 10 credits pays five answers of two", async () => {
      const few = `few ${name}`;
      const ten = await service.token({ credits: 10n, account: few });
      const got = await Promise.all(Array.from({ length: 12 }, () => ask(front, ten)));
      const served = got.filter((g) => g.status === 200);
      assert.deepEqual([served.length, front.state.runs], [5, 5]);
      assert.ok(got.every((g) => g.status === 200 || g.status === 402));
      const b = await service.balance(few);
      assert.deepEqual([b.balance, b.held], [0n, 0n]);
      assert.equal(new Set(served.map((g) => g.decoded("payment-response").transaction)).size, 5);
    });

    for (const [moment, status] of [
      ["after verify", "held"], ["in the handler", "held"], ["before settle", "held"], ["after settle", "settled"],
    ]) {
      test(`F07: the agent is killed ${moment}`, async () => {
        const widow = `widow ${name} ${moment}`;
        const its = await service.token({ credits: 10n, account: widow });
        const script = fileURLToPath(new URL("killed.mjs", import.meta.url));
        const env = { ...process.env, TOLL_API_KEY: (await service.key("builder")).key, TOLL_URL: service.url };
        const agent = spawn(process.execPath, [script, name, moment, service.planId], { env, stdio: ["ignore", "pipe", "inherit"] });
        let said = "";
        for await (const part of agent.stdout) if (/listens on \d+\n/.test((said += part))) break;
        const port = Number(/listens on (\d+)/.exec(said)?.[1]);
        const raw = await exchange(port, requestText("POST", "/ask", [["payment-signature", its]], "{}"));
        if (agent.signalCode === null) await once(agent, "exit");
        assert.equal(agent.signalCode, "SIGKILL");
        assert.equal(raw.length, 0);
        const b = await service.balance(widow);
        assert.deepEqual([b.balance, b.held], status === "settled" ? [8n, 0n] : [10n, 2n]);
      });
    }
  });
}

test("options that cannot be", () => {
  const plan = "17";
  for (const bad of [
    { holdSecs: 0 }, { holdSecs: 901 }, { holdSecs: 1.5 }, { expiredStatus: 200 }, { callerGone: "x" },
    { publicUrl: "agent.test" }, { publicUrl: "http://a?b" }, { credits: 1.5 }, { credits: -1n }, { plan: "x" },
    { maxCredits: -1 },
  ]) {
    assert.throws(() => paid(() => new Response(), { plan, ...bad }), TypeError, JSON.stringify(Object.keys(bad)));
  }
  const toll = new Toll({ apiKey: null });
  assert.throws(() => paid(() => new Response(), { plan, toll }), /TOLL_API_KEY is not set/);
});

test("without publicUrl a 402 names the path", async () => {
  const toll = new Toll({ apiKey: (await service.key("builder")).key, url: service.url });
  const logs = [];
  const handle = paid(() => new Response(content), { plan: service.planId, toll, log: (l) => logs.push(l) });
  for (let i = 0; i < 2; i++) {
    const got = await handle(new Request("http://evil.test/ask?x=1"));
    assert.equal(got.status, 402);
    const asks = JSON.parse(Buffer.from(got.headers.get("payment-required"), "base64"));
    assert.equal(asks.resource.url, "/ask");
  }
  assert.equal(logs.length, 1);
});

test("the price of a request", async () => {
  const toll = new Toll({ apiKey: (await service.key("builder")).key, url: service.url });
  const maxCredits = (r) => Number(new URLSearchParams(r.query).get("n"));
  const handle = paid(() => new Response(content), {
    plan: service.planId, toll, publicUrl: "http://agent.test", credits: (w) => w.size, maxCredits,
  });
  const got = await handle(new Request("http://x/ask?n=4", { headers: { "payment-signature": tokens[fronts[0]] } }));
  assert.equal(JSON.parse(Buffer.from(got.headers.get("payment-response"), "base64")).creditsRedeemed, "4");
  assert.equal((await handle(new Request("http://x/ask?n=11"))).status, 402); // the bounds of the plan count
});
