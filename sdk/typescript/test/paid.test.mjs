// The middleware in each framework: I16 to I18, F07 to F09, and T85 to T103 as far as they touch one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { after, before, beforeEach, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { drain, paid, unsettledStreams } from "@tollhq/toll/paid";
import { Toll } from "@tollhq/toll";
import { Service } from "@tollhq/toll/testing";
import { ask, content, exchange, names, parse, pause, requestText, start } from "./apps.mjs";

const down = "the service is down";
let service;
const tokens = {};
before(async () => {
  service = await Service.start();
  for (const name of names) tokens[name] = await service.token({ credits: 2000n, account: `buyer ${name}` });
});
after(() => service?.stop());

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

for (const name of names) {
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
      assert.deepEqual(s.receipt, receipt);
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

    test("T103: a stream runs on its hold", async () => {
      const [had] = await balance();
      const got = await ask(front, token, { target: "/stream?n=3" });
      assert.deepEqual([got.status, got.whole], [200, true]);
      assert.equal(got.body.split(content).length - 1, 3);
      assert.ok(!("payment-response" in got.headers));
      assert.match(got.headers["cache-control"], /^private/);
      await has(front, "settle 200");
      assert.ok(at("verify 200") < at("byte") && at("byte") < at("settle 200"));
      assert.equal((await stored(got.headers["service-request-id"])).status, "settled");
      await isSettled(had, 2n);
    });

    test("T103: an answer that is longer than the buffer streams", async () => {
      const [had] = await balance();
      const got = await ask(front, token, { target: "/long" });
      assert.equal(got.body.length, 40 * 4096 * content.length);
      assert.ok(got.headers["service-request-id"]);
      await isSettled(had, 2n);
    });

    test("T103: a stream that never ends is cut with its hold", async () => {
      const [had] = await balance();
      const raw = await exchange(front.port, requestText("POST", "/stream?n=100000", [["payment-signature", token]]));
      const got = parse(raw);
      assert.ok(got.body.includes(content) && !got.whole);
      await isSettled(had, 2n);
    });

    test("T103: an idle reader keeps no stream open", async () => {
      const [had] = await balance();
      const socket = net.connect(front.port, "127.0.0.1").on("error", () => undefined);
      socket.write(requestText("POST", "/stream?n=100000", [["payment-signature", token]]));
      await once(socket, "data");
      socket.pause();
      await isSettled(had, 2n);
      socket.destroy();
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
      await cut("/stream?n=30", "data:");
      await isSettled(had, 2n);
    });

    test("T102: a POST whose caller leaves is settled", async () => {
      const [had] = await balance();
      await cut("/ask?do=hang");
      await pause(100);
      front.state.resume.resolve();
      await isSettled(had, 2n);
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
      const got = await ask(front, token, { target: "/stream" });
      assert.ok(got.status === 200 && got.whole);
      await eventually(() => front.told.length === 1, "no alarm");
      const [u] = front.told;
      assert.ok(u.credits === 2n && !u.final && u.size > 0 && u.payer);
      await isSettled(had, 2n);
      await eventually(() => unsettledStreams() === 0, "it waits");
      assert.equal(front.told.length, 1);
    });

    test("F09: drain settles what waits", async () => {
      const [had] = await balance();
      let away = true;
      front.faults.before = (op) => op === "settle" && away && down;
      assert.equal((await ask(front, token, { target: "/stream" })).status, 200);
      await eventually(() => unsettledStreams() === 1, "nothing waits");
      assert.equal(await drain(100), false);
      away = false;
      assert.ok((await drain(20_000)) && unsettledStreams() === 0);
      await isSettled(had, 2n);
    });

    test("F09: a refused stream raises the alarm", async () => {
      front.faults.before = giveBack;
      const got = await ask(front, token, { target: "/stream" });
      assert.equal(got.status, 200);
      await eventually(() => front.told.length === 1, "no alarm");
      assert.ok(front.told[0].final);
      assert.equal(front.told[0].agentRequestId, got.headers["service-request-id"]);
      assert.equal(unsettledStreams(), 0);
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
      assert.ok([400, 405].includes((await ask(front, token, { more: upgrade })).status));
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
        const [line] = await once(agent.stdout, "data");
        const raw = await exchange(Number(String(line)), requestText("POST", "/ask", [["payment-signature", its]], "{}"));
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
  const got = await handle(new Request("http://x/ask?n=4", { headers: { "payment-signature": tokens.web } }));
  assert.equal(JSON.parse(Buffer.from(got.headers.get("payment-response"), "base64")).creditsRedeemed, "4");
  assert.equal((await handle(new Request("http://x/ask?n=11"))).status, 402); // the bounds of the plan count
});
