// The middleware for node:http where handlers and callers do what frameworks do not: nothing ends the process, and nothing is free.
import assert from "node:assert/strict";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { paid } from "@tollhq/toll/express";
import { Toll } from "@tollhq/toll";
import { Service } from "@tollhq/toll/testing";
import { connect2, content, exchange, Faults, parse, pause, requestText } from "./apps.mjs";

let service;
let token;
before(async () => {
  service = await Service.start({ args: ["--chain", "off", "--card", "off"] });
  token = await service.token({ credits: 5000n });
});
after(() => service?.stop());

/** Serves a paid handler on node:http without a framework. */
async function sell(t, handle, more = {}, server = http.createServer()) {
  const events = [];
  const logs = [];
  const faults = new Faults(events);
  const toll = new Toll({
    apiKey: (await service.key("builder")).key, url: service.url, log: () => undefined,
    fetch: (url, init) => faults.fetch(url, init),
  });
  const sells = paid({
    toll, plan: service.planId, agent: service.agentId, publicUrl: "http://agent.test", credits: 2, maxBody: 1 << 16,
    maxBuffer: 1 << 20, log: (entry) => logs.push(entry.message), ...more,
  });
  server.on("request", (req, res) => sells(req, res, (e) => (e ? res.destroy(e) : handle(req, res))));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections?.();
    server.close();
  });
  const own = { port: server.address().port, events, logs, faults };
  own.ask = async (o = {}) => {
    const { method = "POST", target = "/ask", more: lines = [], body = "{}", seen } = o;
    const text = requestText(method, target, [...lines, ["payment-signature", token]], body);
    return parse(await exchange(own.port, text, 5000, seen));
  };
  return own;
}

const balance = async () => (await service.balance()).balance;
async function eventually(check, what) {
  const end = Date.now() + 10_000;
  while (!(await check())) {
    assert.ok(Date.now() < end, what);
    await pause(10);
  }
}
/** What a request ended in, and what it cost. */
async function ends(own, had) {
  await eventually(() => own.events.some((e) => /^(settle|release)/.test(e)), `no end: ${own.events}`);
  await eventually(async () => (await service.balance()).held === 0n, "a hold is left");
  return had - (await balance());
}

const events = { "content-type": "text/event-stream" };

/** Sends a body that grows beyond maxBody once the answer streams. */
async function tooLong(port) {
  const socket = net.connect(port, "127.0.0.1").on("error", () => undefined);
  let text = "";
  socket.on("data", (d) => (text += d));
  socket.write(`POST /ask HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\npayment-signature: ${token}\r\n\r\n1\r\nx\r\n`);
  await eventually(() => text.includes(content), "nothing streams");
  for (let i = 0; i < 8 && !socket.destroyed; i++) socket.write(`4000\r\n${"x".repeat(0x4000)}\r\n`);
  await new Promise((resolve) => socket.once("close", resolve));
  return text;
}

test("a body that grows too long while the answer streams cuts the stream, which is settled", async (t) => {
  const own = await sell(t, (req, res) => {
    req.resume();
    res.writeHead(200, events);
    res.write(`data: ${content}\n\n`);
    const timer = setInterval(() => res.write(": more\n\n"), 20);
    res.on("close", () => clearInterval(timer));
  });
  const had = await balance();
  assert.ok(!(await tooLong(own.port)).endsWith("0\r\n\r\n"), "the stream looks whole");
  assert.equal(await ends(own, had), 2n);
});

test("a body that is too long is refused when nothing has left", async (t) => {
  const own = await sell(t, (req) => req.resume());
  const had = await balance();
  const chunked = requestText("POST", "/ask", [["transfer-encoding", "chunked"], ["payment-signature", token]])
    .toString("latin1").replace("content-length: 0\r\n", "");
  const got = parse(await exchange(own.port, `${chunked}11000\r\n${"x".repeat(0x11000)}\r\n0\r\n\r\n`, 5000));
  assert.equal(got.status, 413, JSON.stringify([got, own.events, own.logs]));
  assert.equal(await ends(own, had), 0n);
});

for (const [what, handle] of Object.entries({
  "end(5)": (req, res) => res.end(5),
  "write(5)": (req, res) => res.write(5) || res.end(),
  "write({})": (req, res) => res.write({}) || res.end(),
  "an unknown encoding": (req, res) => res.end(content, "utf-7"),
  "end(5), later": (req, res) => setTimeout(() => res.end(5), 5),
  "a throw": () => {
    throw new Error("the handler failed");
  },
})) {
  test(`a handler that fails by ${what} is free and answers 500`, async (t) => {
    const own = await sell(t, handle);
    const had = await balance();
    const got = await own.ask();
    assert.equal(got.status, 500, JSON.stringify(got));
    assert.ok(!got.body.includes(content));
    assert.equal(JSON.parse(got.body).httpStatus, 500);
    assert.equal(await ends(own, had), 0n);
    assert.equal(own.logs.length, 1, own.logs.join());
  });
}

test("a handler that fails in its stream is cut and settled", async (t) => {
  let fail;
  const own = await sell(t, (req, res) => {
    res.writeHead(200, events);
    res.write(`data: ${content}\n\n`);
    fail = () => res.write(5);
  });
  const had = await balance();
  const got = await own.ask({ seen: (bytes) => bytes.includes(content) && fail() });
  assert.ok(got.body.includes(content) && !got.whole);
  assert.equal(await ends(own, had), 2n);
});

for (const streams of [false, true]) {
  test(`trailers leave with a paid answer${streams ? " that streams" : ""}`, async (t) => {
    const own = await sell(t, (req, res) => {
      res.setHeader("trailer", "x-sum, payment-response");
      if (streams) res.setHeader("content-type", "text/event-stream");
      if (req.headers["x-length"]) res.setHeader("content-length", content.length);
      res.write(content);
      res.addTrailers({ "x-sum": "17", "payment-response": "forged" });
      res.end();
    });
    for (const more of [[], [["x-length", "1"]]]) {
      const had = await balance();
      own.events.length = 0;
      const raw = (await exchange(own.port, requestText("POST", "/ask", [...more, ["payment-signature", token]], "{}"))).toString("latin1");
      assert.match(raw, /^HTTP\/1.1 200/);
      assert.match(raw, /0\r\nx-sum: 17\r\n\r\n$/i);
      assert.ok(!raw.includes("forged"));
      assert.equal(await ends(own, had), 2n);
    }
    // Answers without a body have none, and neither has an answer in place of the handler's.
    const head = await exchange(own.port, requestText("HEAD", "/ask", [["payment-signature", token]]), 5000);
    assert.match(head.toString("latin1"), /^HTTP\/1.1 200[^]*\r\n\r\n$/);
  });
}

test("trailers of an answer that is not settled do not leave", async (t) => {
  const own = await sell(t, (req, res) => {
    res.setHeader("trailer", "x-sum");
    res.addTrailers({ "x-sum": "17" });
    res.end(content);
  });
  own.faults.before = (op) => op === "settle" && "the service is down";
  const raw = (await exchange(own.port, requestText("POST", "/ask", [["payment-signature", token]], "{}"))).toString("latin1");
  assert.match(raw, /^HTTP\/1.1 503/);
  assert.ok(!/x-sum|17\r\n\r\n$/.test(raw), raw);
  own.faults.reset();
  await (await service.client()).payments.release(own.faults.requestId);
});

/** Hangs up on a handler with half of a body sent. */
async function hangUp(own, entered) {
  const socket = net.connect(own.port, "127.0.0.1").on("error", () => undefined);
  socket.write(`POST /ask HTTP/1.1\r\nhost: a\r\ncontent-length: 400\r\npayment-signature: ${token}\r\n\r\nhalf`);
  await entered;
  socket.destroy();
  await pause(50);
}

for (const [what, reads, cost] of [
  ["that does not read it is settled", async () => undefined, 2n],
  ["that drops it is settled", async (req) => void req.resume(), 2n],
  ["that reads it and passes over the error is free", async (req) => {
    try {
      for await (const _ of req);
    } catch {
      // half a request
    }
  }, 0n],
  ["that reads it later and passes over the error is free", async (req) => {
    await pause(150);
    try {
      for await (const _ of req);
    } catch {
      // half a request
    }
  }, 0n],
]) {
  test(`work of a handler for half a body ${what}`, async (t) => {
    let enter;
    const entered = new Promise((resolve) => (enter = resolve));
    const own = await sell(t, async (req, res) => {
      enter();
      await reads(req);
      await pause(150);
      res.end(content);
    });
    const had = await balance();
    await hangUp(own, entered);
    assert.equal(await ends(own, had), cost);
  });
}

test("nothing leaves before its settlement: early hints, processing, pushes, streams of HTTP/2", async (t) => {
  const own = await sell(t, (req, res) => {
    res.writeEarlyHints({ link: `</${content}>; rel=preload` }, () => own.events.push("hinted"));
    res.writeContinue();
    res.writeProcessing();
    res.end("answer");
  });
  const raw = (await exchange(own.port, requestText("POST", "/ask", [["payment-signature", token]], "{}"))).toString("latin1");
  assert.match(raw, /^HTTP\/1.1 200/);
  assert.ok(!raw.includes(content) && own.events.includes("hinted"));

  const problems = [];
  const second = await sell(t, (req, res) => {
    const tried = (call) => {
      try {
        call();
      } catch (e) {
        problems.push(e.message);
      }
    };
    for (const stream of [res.stream, req.stream]) {
      tried(() => stream.respond({ ":status": 200 }));
      tried(() => stream.pushStream({ ":path": "/free" }, () => undefined));
      tried(() => stream.additionalHeaders({ ":status": 103 }));
      tried(() => stream.end(content));
    }
    res.createPushResponse({ ":path": "/free" }, (e) => problems.push(e.message));
    res.writeEarlyHints({ link: "</x>; rel=preload" });
    assert.equal(typeof res.stream.id, "number");
    res.end("answer");
  }, {}, http2.createServer());
  const had = await balance();
  const client = await connect2(second.port);
  t.after(() => client.close());
  const got = await client.ask({ "payment-signature": token });
  assert.deepEqual([got.status, got.body, problems.length], [200, "answer", 9]);
  assert.ok(problems.every((p) => /^a paid handler must not/.test(p)), problems.join());
  assert.equal(await ends(second, had), 2n);
});

test("headersDistinct has what a handler may see", async (t) => {
  let seen;
  const own = await sell(t, (req, res) => {
    seen = req.headersDistinct;
    res.end(content);
  });
  const got = await own.ask({ more: [["x-two", "a"], ["x-two", "b"]] });
  assert.equal(got.status, 200, got.body);
  assert.deepEqual(seen["x-two"], ["a", "b"]);
  assert.ok(!("payment-signature" in seen) && !JSON.stringify(seen).includes(token));
});

test("headers of a request that is not paid cost linear time", async (t) => {
  const own = await sell(t, (req, res) => res.end(content));
  await own.ask();
  const spent = async (header) => {
    const before = process.cpuUsage();
    for (let i = 0; i < 40; i++) {
      assert.equal(parse(await exchange(own.port, requestText("GET", "/ask", [header]))).status, 402);
    }
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 40_000;
  };
  const encoded = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const naming = (aud) => ["payment-signature", `e30.${encoded({ iss: "i", aud: [aud] })}.e30`];
  const none = await spent(["x-a", "x".repeat(15_000)]);
  for (const [what, header] of Object.entries({
    "escaped padding": ["x-a", `${"%3D".repeat(5000)}x`],
    "padding of a token": ["payment-signature", `${"=".repeat(8000)}x`],
    "a resource of slashes": naming(`http://agent.test${"/".repeat(5500)}x`),
  })) {
    const ms = await spent(header);
    assert.ok(ms < none + 3, `${what}: ${ms} ms a request, ${none} for another`);
  }
});
