// One paid application in each framework, behind a recorder of what leaves, on a real server.
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { once } from "node:events";
import { createRequire } from "node:module";
import { join } from "node:path";
import { serve } from "@hono/node-server";
import express from "express";
import express4 from "express4";
import Fastify from "fastify";
import { Hono } from "hono";
import { Toll, verifyWebhook } from "@tollhq/toll";
import * as forWeb from "@tollhq/toll/paid";
import * as forExpress from "@tollhq/toll/express";
import * as forFastify from "@tollhq/toll/fastify";
import * as forHono from "@tollhq/toll/hono";
import * as forNext from "@tollhq/toll/next";

export const content = "the paid content";
export const names = ["web", "express", "express4", "hono", "fastify", "next"];
if (process.env.TOLL_NEXT) names.push("application");
/** Frameworks with a server of HTTP/2. */
export const onHttp2 = ["web", "hono", "fastify"];
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A fetch whose calls fail as a test says, and which notes what it did. */
export class Faults {
  constructor(events) {
    this.events = events;
    this.reset();
  }
  reset() {
    this.counts = {};
    this.before = this.after = () => undefined;
  }
  async fetch(url, init) {
    const op = new URL(url).pathname.split("/").at(-1);
    const n = (this.counts[op] = (this.counts[op] ?? 0) + 1);
    const fail = (why) => {
      if (why) throw new TypeError(String(why));
    };
    fail(await this.before(op, n));
    const response = await fetch(url, init);
    fail(await this.after(op, n));
    if (op === "verify") this.requestId = (await response.clone().json()).agentRequestId;
    this.events.push(`${op} ${response.status}`);
    return response;
  }
}

/** What handlers did. */
class State {
  events = [];
  reset() {
    this.events.length = 0;
    this.runs = 0;
    this.hooks = [];
    this.secrets = [];
    this.seen = {};
    this.payment = undefined;
    this.finished = false;
    this.entered = resolvers();
    this.resume = resolvers();
  }
  constructor() {
    this.reset();
  }
}
function resolvers() {
  const out = {};
  out.promise = new Promise((resolve) => (out.resolve = resolve));
  return out;
}

/** What a handler may say to have its answer kept by caches for everybody. */
const forCaches = {
  "cache-control": "public, s-maxage=3600, max-age=3600",
  "cdn-cache-control": "max-age=3600",
  "surrogate-control": "max-age=3600",
  expires: new Date(Date.now() + 3_600_000).toUTCString(),
};

async function* parts(n) {
  for (let i = 0; i < n; i++) {
    if (i) await pause(50);
    yield `data: ${content} ${i}\n\n`;
  }
}

/** The handlers, without a framework: they get what they may know of a request. */
function handlers(state, paymentOf) {
  const enter = (request, r) => {
    state.runs++;
    state.events.push("run");
    state.seen = r.headers;
    state.payment = paymentOf(request);
    state.entered.resolve();
  };
  const all = {
    async ask(request, r) {
      enter(request, r);
      await r.body();
      const what = r.query.get("do");
      if (what === "raise") throw new Error("the handler failed");
      if (what === "404") return { status: 404, headers: { "cache-control": "public, s-maxage=3600" }, body: "nothing here" };
      if (what === "cache") return { headers: forCaches, body: content };
      if (what === "hang") {
        await Promise.race([
          state.resume.promise,
          new Promise((_, reject) => r.signal?.addEventListener("abort", () => {
            state.finished = true;
            reject(r.signal.reason);
          })),
        ]);
      }
      state.finished = true;
      return { headers: { "cache-control": "public, max-age=60", "payment-response": "e30=" }, body: content };
    },
    async stream(request, r) {
      enter(request, r);
      return { headers: { ...forCaches, "content-type": "text/event-stream" }, parts: parts(Number(r.query.get("n") ?? 3)) };
    },
    metered: (request, r) => all.stream(request, r),
    async long(request, r) {
      enter(request, r);
      return { headers: forCaches, parts: (async function* () {
        for (let i = 0; i < 40; i++) yield content.repeat(4096);
      })() };
    },
    async priced(request, r) {
      enter(request, r);
      return { headers: { "x-price": r.query.get("price") ?? "1" }, body: await r.body() };
    },
  };
  return all;
}

/** Takes a delivery of a webhook, which is not paid; returns the status. */
async function hook(state, headers, body) {
  try {
    const event = await verifyWebhook(body, headers, state.secrets);
    state.hooks.push({ event, headers, body });
    return 204;
  } catch (e) {
    return e.status ?? 500;
  }
}
async function webHook(state, request) {
  const status = await hook(state, Object.fromEntries(request.headers), await request.text());
  return new Response(null, { status });
}

const byHeader = (work) => {
  if (new TextDecoder().decode(work.body) === "price fails") throw new Error("no price");
  return Number(work.answer.get("x-price") ?? 1);
};

/** The options of each route. */
function routes(shared) {
  return {
    ask: { ...shared, credits: 2 },
    stream: { ...shared, credits: 2n, holdSecs: shared.holdSecs ?? 2 },
    metered: { ...shared, credits: () => 2, maxCredits: 2, holdSecs: shared.holdSecs ?? 2 },
    long: { ...shared, credits: 2n },
    priced: { ...shared, credits: byHeader, maxCredits: 5 },
  };
}

const webResponse = (a) => {
  const body = a.parts ? ReadableStream.from(encoded(a.parts)) : a.body;
  return new Response(body, { status: a.status ?? 200, headers: a.headers ?? {} });
};
async function* encoded(texts) {
  const e = new TextEncoder();
  for await (const t of texts) yield e.encode(t);
}
const webFacts = (request) => ({
  headers: Object.fromEntries(request.headers),
  query: new URL(request.url).searchParams,
  signal: request.signal,
  body: () => request.text(),
});
const webHandler = (handle) => async (request) => webResponse(await handle(request, webFacts(request)));
const free = (request) => new Response(`free ${request.headers.get("payment-signature")}`);

const serverOf = (shared) => (shared.http2 ? { createServer: http2.createServer } : {});

/** Serves a fetch handler, and answers its errors as servers do. */
const serveWeb = (handle, port, shared) =>
  new Promise((resolve) => {
    const fetch = async (request) => {
      try {
        return await handle(request);
      } catch {
        return new Response("failed", { status: 500 });
      }
    };
    const server = serve({ fetch, port, hostname: "127.0.0.1", ...serverOf(shared) }, () => resolve(server));
  });

/** What Next gives a route handler: a Request of a class of its own. */
class NextRequest extends Request {
  constructor(input, init) {
    super(input, init);
    this.nextUrl = new URL(this.url);
  }
}

/** The routes of an application of Next, by the names of their directories. */
function nextRoutes(state, shared, sdk) {
  const o = routes(shared);
  const at = {};
  for (const [name, handle] of Object.entries(handlers(state, sdk.paymentOf))) {
    at[name] = sdk.paid(async (request, context) => {
      if (!request.nextUrl?.pathname) throw new Error("not a NextRequest");
      if ((await context.params).name !== name) throw new Error("no context");
      return webResponse(await handle(request, webFacts(request)));
    }, o[name]);
  }
  return (name, request, context) => {
    if (name === "free") return free(request);
    if (name === "hook") return webHook(state, request);
    return at[name]?.(request, context) ?? new Response("no such path", { status: 404 });
  };
}

let application;
async function openApplication() {
  const dir = process.env.TOLL_NEXT;
  const next = createRequire(join(dir, "package.json"))("next");
  const app = next({ dev: false, dir, quiet: true });
  await app.prepare();
  return { handle: app.getRequestHandler(), close: () => app.close() };
}
export const closeApplication = async () => (await application)?.close();

/** The application of a release of Express. What a handler throws is caught by release 5 itself. */
async function sellsBehind(express, caught, state, shared, port) {
  const app = express();
  app.set("env", "test");
  const h = handlers(state, forExpress.paymentOf);
  const o = routes(shared);
  for (const [name, handle] of Object.entries(h)) {
    app.all(`/${name}`, forExpress.paid(o[name]), caught(async (req, res) => {
      const a = await handle(req, {
        headers: req.headers,
        query: new URL(req.url, "http://x").searchParams,
        body: async () => {
          let text = "";
          for await (const c of req) text += c;
          return text;
        },
      });
      res.status(a.status ?? 200);
      for (const [n, v] of Object.entries(a.headers ?? {})) res.setHeader(n, v);
      if (!a.parts) return res.send(a.body);
      for await (const part of a.parts) {
        if (!res.write(part) && res.destroyed) return;
      }
      res.end();
    }));
  }
  app.post("/hook", express.raw({ type: "*/*" }), caught(async (req, res) => {
    res.status(await hook(state, req.headers, req.body.toString())).end();
  }));
  app.get("/free", (req, res) => res.send(`free ${req.headers["payment-signature"] ?? null}`));
  app.use((_error, _req, res, _next) => (res.headersSent ? res.destroy() : res.status(500).send("failed")));
  const server = app.listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

const makers = {
  async web(state, shared, port) {
    const h = handlers(state, forWeb.paymentOf);
    const o = routes(shared);
    const at = Object.fromEntries(
      Object.entries(h).map(([name, handle]) => [`/${name}`, forWeb.paid(webHandler(handle), o[name])]),
    );
    return serveWeb((request) => {
      const { pathname } = new URL(request.url);
      if (pathname === "/free") return free(request);
      if (pathname === "/hook") return webHook(state, request);
      return at[pathname]?.(request) ?? new Response("no such path", { status: 404 });
    }, port, shared);
  },

  async next(state, shared, port) {
    const routes = nextRoutes(state, shared, forNext);
    return serveWeb((request) => {
      const name = new URL(request.url).pathname.slice(1);
      const init = { method: request.method, headers: request.headers, signal: request.signal };
      if (request.body) Object.assign(init, { body: request.body, duplex: "half" });
      const context = { params: Promise.resolve({ name }) };
      return routes(name, new NextRequest(request.url, init), context);
    }, port, shared);
  },

  /** The built application of test/next, in this process. Its bundle has a copy of the package. */
  async application(state, { toll: _, tollOptions, ...shared }, port) {
    const { handle } = await (application ??= openApplication());
    globalThis.tollFronts ??= {};
    globalThis.tollFronts[port] = {
      answer(sdk, name, request, context) {
        this.sdk = sdk;
        this.routes ??= nextRoutes(state, { ...shared, toll: new sdk.Toll(tollOptions) }, sdk);
        return this.routes(name, request, context);
      },
    };
    const server = http.createServer((req, res) => {
      req.headers["x-front"] = String(port);
      handle(req, res);
    });
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    return server;
  },

  async hono(state, shared, port) {
    const app = new Hono();
    const h = handlers(state, forHono.paymentOf);
    const o = routes(shared);
    for (const [name, handle] of Object.entries(h)) {
      app.on(["GET", "POST"], `/${name}`, forHono.paid(o[name]), (c) => webHandler(handle)(c.req.raw));
    }
    app.get("/free", (c) => free(c.req.raw));
    app.post("/hook", (c) => webHook(state, c.req.raw));
    app.onError((_, c) => c.text("failed", 500));
    return new Promise((resolve) => {
      const server = serve({ fetch: app.fetch, port, hostname: "127.0.0.1", ...serverOf(shared) }, () => resolve(server));
    });
  },

  express: (state, shared, port) => sellsBehind(express, (f) => f, state, shared, port),
  express4: (state, shared, port) =>
    sellsBehind(express4, (f) => (req, res, next) => void f(req, res).catch(next), state, shared, port),

  async fastify(state, shared, port) {
    const app = Fastify({ bodyLimit: 1 << 16, http2: shared.http2 });
    app.addContentTypeParser("*", { parseAs: "string" }, (_, body, done) => done(null, body));
    const h = handlers(state, forFastify.paymentOf);
    const o = routes(shared);
    for (const [name, handle] of Object.entries(h)) {
      app.route({
        method: ["GET", "POST"],
        url: `/${name}`,
        preHandler: forFastify.paid(o[name]),
        handler: async (request, reply) => {
          const a = await handle(request, {
            headers: request.headers,
            query: new URLSearchParams(request.query),
            body: async () => (typeof request.body === "string" ? request.body : JSON.stringify(request.body ?? "")),
          });
          reply.code(a.status ?? 200).headers(a.headers ?? {});
          return a.parts ? new (await import("node:stream")).Readable.from(a.parts) : a.body;
        },
      });
    }
    app.register(async (scope) => {
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser("*", { parseAs: "string" }, (_, body, done) => done(null, body));
      scope.post("/hook", async (request, reply) => reply.code(await hook(state, request.headers, request.body)).send());
    });
    app.get("/free", async (request) => `free ${request.headers["payment-signature"] ?? null}`);
    await app.listen({ port, host: "127.0.0.1" });
    return app.server;
  },
};

/** A client of HTTP/2 on one connection. */
export async function connect2(port) {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  session.on("error", () => undefined);
  await once(session, "connect");
  const open = (headers) => {
    const stream = session.request({ ":method": "POST", ":path": "/ask", "content-type": "text/plain", ...headers });
    return stream.on("error", () => undefined);
  };
  return {
    close: () => session.destroy(),
    async ask(headers, body = "{}") {
      const stream = open(headers);
      let got = {};
      let text = "";
      stream.on("response", (h) => (got = h)).on("data", (d) => (text += d));
      stream.end(body);
      await new Promise((resolve) => stream.once("close", resolve));
      const decoded = (n) => JSON.parse(Buffer.from(got[n], "base64").toString());
      return { status: got[":status"], headers: got, body: text, decoded };
    },
    /** Opens streams and resets each at once. */
    async resets(n, headers) {
      let done = 0;
      for (let i = 0; i < n && !session.destroyed; i++) {
        const stream = open(headers);
        stream.close(http2.constants.NGHTTP2_CANCEL);
        if (i % 50 === 49) await pause(1);
        done++;
      }
      await pause(50);
      return done;
    },
  };
}

/** Sends requests on 8 connections and returns the status of each. */
export async function flood(port, n, headersOf) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const one = (i) =>
    new Promise((resolve, reject) => {
      const o = { agent, port, host: "127.0.0.1", method: "POST", path: "/ask", headers: headersOf(i) };
      http.request(o, (res) => res.resume().on("end", () => resolve(res.statusCode))).on("error", reject).end();
    });
  try {
    return await Promise.all(Array.from({ length: n }, (_, i) => one(i)));
  } finally {
    agent.destroy();
  }
}

/** Notes when the first bytes of an answer leave, outside of the gate. */
function record(server, events) {
  server.on("connection", (socket) => {
    const write = socket.write;
    socket.write = function (chunk, ...rest) {
      const text = typeof chunk === "string" ? chunk : Buffer.from(chunk).toString("latin1");
      const status = /^HTTP\/1\.1 (\d+)/.exec(text);
      if (status) events.push(`start ${status[1]}`);
      if (text.includes(content)) events.push("byte");
      return write.call(this, chunk, ...rest);
    };
  });
}

/** Below the ports that systems choose, and others in each process: many of these tests run at a time. */
let nextPort = 10_000 + (process.pid % 1000) * 20;

export async function freePort() {
  for (;;) {
    const server = net.createServer().listen(nextPort++, "127.0.0.1");
    const free = await once(server, "listening").then(() => true, () => false);
    if (!free) continue;
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

/** Starts a server of a framework that sells with the keys of the builder. */
export async function start(name, service, { http2: h2, ...more } = {}) {
  const state = new State();
  const faults = new Faults(state.events);
  const port = await freePort();
  const logs = [];
  const tollOptions = {
    apiKey: (await service.key("builder")).key,
    url: service.url,
    fetch: (url, init) => faults.fetch(url, init),
    log: (entry) => logs.push(entry),
  };
  const toll = new Toll(tollOptions);
  const told = [];
  const shared = {
    toll,
    plan: service.planId,
    agent: service.agentId,
    publicUrl: `http://127.0.0.1:${port}`,
    maxBuffer: 1 << 20,
    maxBody: 1 << 16,
    onUnsettled: (u) => told.push(u),
    log: (entry) => logs.push(entry),
    ...more,
  };
  const server = await makers[name](state, { ...shared, tollOptions, http2: h2 ?? false }, port);
  record(server, state.events);
  return {
    name, port, state, faults, server, toll, logs, told,
    /** The copy of the package that sells. */
    get sdk() {
      return globalThis.tollFronts?.[port]?.sdk ?? forWeb;
    },
    reset() {
      state.reset();
      faults.reset();
      logs.length = 0;
      told.length = 0;
    },
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections?.();
        server.close(resolve);
      }),
  };
}

/** Sends raw bytes and returns everything that comes back. `seen` gets all bytes so far whenever some arrive. */
export function exchange(port, text, ms = 20_000, seen = () => undefined) {
  return new Promise((resolve) => {
    const got = [];
    const socket = net.connect(port, "127.0.0.1");
    const timer = setTimeout(() => socket.destroy(), ms);
    socket.on("data", (d) => {
      got.push(d);
      seen(Buffer.concat(got));
    });
    socket.on("error", () => undefined);
    socket.on("close", () => {
      clearTimeout(timer);
      resolve(Buffer.concat(got));
    });
    socket.write(text);
  });
}

export function requestText(method, target, headers, body = "") {
  const lines = [`${method} ${target} HTTP/1.1`, "host: agent.test", "connection: close"];
  if (body || method === "POST" || method === "PUT") lines.push(`content-length: ${Buffer.byteLength(body)}`);
  for (const [n, v] of headers) lines.push(`${n}: ${v}`);
  return Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), Buffer.from(body)]);
}

/** Takes an answer apart. */
export function parse(raw) {
  const text = raw.toString("latin1");
  const at = text.indexOf("\r\n\r\n");
  const [first = "", ...rest] = text.slice(0, Math.max(at, 0)).split("\r\n");
  const headers = {};
  for (const line of rest) {
    const [n, v] = [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()];
    headers[n] = n in headers ? `${headers[n]}, ${v}` : v;
  }
  let body = text.slice(at + 4);
  let whole = true;
  if (headers["transfer-encoding"] === "chunked") {
    let out = "";
    whole = false;
    while (body) {
      const end = body.indexOf("\r\n");
      const size = Number.parseInt(body.slice(0, end), 16);
      if (!size) {
        whole = size === 0;
        break;
      }
      out += body.slice(end + 2, end + 2 + size);
      body = body.slice(end + 2 + size + 2);
    }
    body = out;
  }
  const status = Number(first.split(" ")[1] ?? 0);
  const decoded = (name) => JSON.parse(Buffer.from(headers[name], "base64").toString());
  return { status, headers, body, whole, decoded };
}

export async function ask(front, token, o = {}) {
  const { method = "POST", target = "/ask", body = "{}", more = [] } = o;
  const headers = token === null ? more : [...more, ["payment-signature", token]];
  return parse(await exchange(front.port, requestText(method, target, headers, body)));
}
