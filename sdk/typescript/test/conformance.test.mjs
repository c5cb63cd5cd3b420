// Runs every file of testdata/conformance through the client of this package. The Go test
// interop/typescript_test.go starts the services and says in TOLL_STAGE where they are.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import http from "node:http";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { Toll, TollError } from "@tollhq/toll";

const stage = process.env.TOLL_STAGE && JSON.parse(process.env.TOLL_STAGE);
const directory = process.env.TOLL_CONFORMANCE;

/** Parses JSON with every number as its digits, in an object of its own class. */
class Digits {
  constructor(text) {
    this.text = text;
  }
  toJSON() {
    return Number(this.text);
  }
}
function exact(text) {
  const mark = randomBytes(8).toString("hex") + ":";
  const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const marked = text.replace(token, (t) => (t[0] === '"' ? t : `"${mark}${t}"`));
  return JSON.parse(marked, (_, v) =>
    typeof v === "string" && v.startsWith(mark) ? new Digits(v.slice(mark.length)) : v,
  );
}
const encode = (v) => {
  if (v instanceof Digits) return v.text;
  if (Array.isArray(v)) return `[${v.map(encode).join(",")}]`;
  if (v && typeof v === "object") {
    return `{${Object.entries(v).map(([n, m]) => `${JSON.stringify(n)}:${encode(m)}`).join(",")}}`;
  }
  return JSON.stringify(v);
};
const isNumber = (v) => typeof v === "number" || typeof v === "bigint" || v instanceof Digits;
const digits = (v) => (v instanceof Digits ? v.text : String(v));
const show = (v) => (v === undefined ? "nothing" : encode(v).slice(0, 600));

const types = {
  hash: /^0x[0-9a-f]{64}$/,
  address: /^0x[0-9a-fA-F]{40}$/,
  uuid: /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  id256: /^[1-9][0-9]{0,77}$/,
  credits: /^(0|[1-9][0-9]{0,18})$/,
  units: /^(0|[1-9][0-9]{0,77})$/,
  cents: /^(0|[1-9][0-9]{0,12})$/,
  reqid: /^req_[0-9a-z]{1,124}$/,
  time: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
  jwt: /^[\w-]+\.[\w-]+\.[\w-]+$/,
  url: /^https?:\/\/[^\s]+$/,
  text: /^.+$/s,
};
function hasType(word, got) {
  switch (word) {
    case "string": return typeof got === "string";
    case "number": return isNumber(got);
    case "int": return isNumber(got) && /^-?\d+$/.test(digits(got));
    case "bool": return typeof got === "boolean";
    case "object": return !!got && typeof got === "object" && !Array.isArray(got);
    case "array": return Array.isArray(got);
  }
  return typeof got === "string" && !!types[word]?.test(got);
}

class Matcher {
  captured = {};
  faults = [];
  fault(path, text) {
    this.faults.push(`${path || "the body"}: ${text}`);
  }
  value(path, want, got) {
    if (Array.isArray(want)) {
      if (!Array.isArray(got) || got.length !== want.length) {
        return this.fault(path, `wanted an array of ${want.length}, got ${show(got)}`);
      }
      return want.forEach((w, i) => this.value(`${path}[${i}]`, w, got[i]));
    }
    if (want && typeof want === "object" && !(want instanceof Digits)) {
      if (Object.keys(want).some((n) => n.startsWith("$"))) return this.operator(path, want, got);
      if (!hasType("object", got)) return this.fault(path, `wanted an object, got ${show(got)}`);
      for (const [n, w] of Object.entries(want)) this.value(path ? `${path}.${n}` : n, w, got[n]);
      return;
    }
    const same = isNumber(want) ? isNumber(got) && digits(want) === digits(got) : want === got;
    if (!same) this.fault(path, `wanted ${show(want)}, got ${show(got)}`);
  }
  operator(path, want, got) {
    if (want.$absent === true) {
      if (got !== undefined) this.fault(path, `wanted nothing there, got ${show(got)}`);
      return;
    }
    if (got === undefined) return this.fault(path, "is not there");
    const before = this.faults.length;
    for (const [name, w] of Object.entries(want)) this.apply(path, name, w, got);
    if (want.$capture && this.faults.length === before) {
      if (got === null) this.fault(path, "is null and cannot be captured");
      else this.captured[want.$capture] = got;
    }
  }
  like(want, got) {
    const m = new Matcher();
    m.value("", want, got);
    if (m.faults.length) return false;
    Object.assign(this.captured, m.captured);
    return true;
  }
  inner(path, decode, want) {
    let v;
    try {
      v = exact(decode());
    } catch {
      return this.fault(path, "cannot be decoded");
    }
    this.value(path, want, v);
  }
  apply(path, name, want, got) {
    switch (name) {
      case "$any":
      case "$capture":
        return;
      case "$type":
        if (!hasType(want, got)) this.fault(path, `wanted ${want}, got ${show(got)}`);
        return;
      case "$match": {
        const fold = want.startsWith("(?i)");
        const pattern = new RegExp(fold ? want.slice(4) : want, fold ? "i" : "");
        if (typeof got !== "string" || !pattern.test(got)) this.fault(path, `wanted a text like ${want}, got ${show(got)}`);
        return;
      }
      case "$is":
        return this.value(path, want, got);
      case "$not":
        if (new Matcher().like(want, got)) this.fault(path, `wanted anything but ${show(want)}`);
        return;
      case "$oneOf":
        if (!want.some((w) => this.like(w, got))) this.fault(path, `wanted one of ${show(want)}, got ${show(got)}`);
        return;
      case "$only":
        if (!hasType("object", got)) return this.fault(path, `wanted an object, got ${show(got)}`);
        for (const n of Object.keys(got)) {
          if (!(n in want)) this.fault(`${path}.${n}`, `wanted nothing there, got ${show(got[n])}`);
        }
        return this.value(path, want, got);
      case "$length":
      case "$each":
      case "$contains":
        if (!Array.isArray(got)) return this.fault(path, `wanted an array, got ${show(got)}`);
        if (name === "$length" && digits(want) !== String(got.length)) this.fault(path, `wanted ${digits(want)} items, got ${got.length}`);
        if (name === "$each") got.forEach((g, i) => this.value(`${path}[${i}]`, want, g));
        if (name === "$contains" && !got.some((g) => this.like(want, g))) this.fault(path, `no item is like ${show(want)} in ${show(got)}`);
        return;
      case "$json":
        return this.inner(path, () => got, want);
      case "$base64":
        return this.inner(path, () => Buffer.from(got, "base64").toString(), want);
      case "$jwt":
        return this.inner(path, () => Buffer.from(got.split(".")[1], "base64url").toString(), want);
      default:
        this.fault(path, `the file has an operator that does not exist: ${name}`);
    }
  }
}

/** A fetch that can send what the global one refuses: bodies with GET, several lines of a header. */
function plainFetch(run) {
  return (url, init) =>
    new Promise((resolve, reject) => {
      const headers = Object.fromEntries(init.headers);
      for (const [name, lines] of Object.entries(run.lines)) headers[name] = lines;
      delete headers["user-agent"];
      if (init.body !== undefined) headers["content-length"] = Buffer.byteLength(init.body);
      const req = http.request(url, { method: init.method, headers, agent }, (res) => {
        const chunks = [];
        let timer;
        const done = () => {
          clearTimeout(timer);
          const body = Buffer.concat(chunks);
          run.answer = { status: res.statusCode, headers: res.headersDistinct, text: body.toString() };
          const h = new Headers();
          for (const [n, vs] of Object.entries(res.headersDistinct)) for (const v of vs) h.append(n, v);
          const bare = [204, 205, 304].includes(res.statusCode);
          resolve(new Response(bare ? null : body, { status: res.statusCode, headers: h }));
        };
        const quiet = () => {
          clearTimeout(timer);
          timer = setTimeout(() => (done(), res.destroy()), 1000);
        };
        if (run.stream && res.statusCode === 200) quiet();
        res.on("data", (c) => {
          chunks.push(c);
          if (timer) quiet();
        });
        res.on("end", done);
        res.on("error", reject);
      });
      req.on("error", reject);
      req.end(init.body);
    });
}
const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });

const roles = ["builder", "otherBuilder", "subscriber", "stranger", "operator"];
const codes = directory && JSON.parse(readFileSync(`${directory}/tables/codes.json`, "utf8"));

class Run {
  actors = {};
  answers = {};
  lines = {};
  serial = 0;
  constructor(service, file, version, receiver) {
    this.service = service;
    this.file = file;
    this.version = version;
    const unique = randomBytes(8).toString("hex");
    this.vars = {
      scheme: "svc", Header: "Service", header: "service", word: "service", keyPrefix: "sandbox",
      publicURL: service.url, version, run: unique, runNumber: (BigInt(`0x${unique}`) | 1n).toString(),
      receiver, long: "0123456789".repeat(26),
    };
    this.toll = new Toll({
      apiKey: null, url: service.url, version: null, maxRetries: 0, timeoutMs: 120_000, fetch: plainFetch(this),
    });
  }
  async actor(role) {
    if (!this.actors[role]) {
      const account = `${role} of ${this.file.name} ${this.version} ${this.vars.run}`;
      const res = await fetch(`${this.service.keys}&account=${encodeURIComponent(account)}&operator=${role === "operator"}`, { method: "POST" });
      assert.equal(res.status, 200, await res.clone().text());
      const key = (this.actors[role] = await res.json());
      Object.assign(this.vars, {
        [`${role}.address`]: key.address, [`${role}.keyId`]: key.id, [`${role}.key`]: key.key,
        [`${role}.jwt`]: key.key.slice(key.key.indexOf(":") + 1),
      });
    }
    return this.actors[role];
  }
  async variable(name) {
    const role = name.split(".")[0];
    if (name.includes(".") && roles.includes(role)) await this.actor(role);
    assert.ok(name in this.vars, `{{${name}}} was not captured before`);
    return this.vars[name];
  }
  async text(s) {
    let out = "";
    let at = 0;
    for (const m of s.matchAll(/\{\{([A-Za-z][\w.]*)\}\}/g)) {
      const v = await this.variable(m[1]);
      out += s.slice(at, m.index) + (typeof v === "string" ? v : encode(v));
      at = m.index + m[0].length;
    }
    return out + s.slice(at);
  }
  async fill(v) {
    if (typeof v === "string") {
      const whole = /^\{\{([A-Za-z][\w.]*)\}\}$/.exec(v);
      return whole ? this.variable(whole[1]) : this.text(v);
    }
    if (Array.isArray(v)) return Promise.all(v.map((x) => this.fill(x)));
    if (v && typeof v === "object" && !(v instanceof Digits)) {
      const out = {};
      for (const [n, m] of Object.entries(v)) {
        if (n === "$capture") out[n] = m;
        else out[await this.text(n)] = await this.fill(m);
      }
      return out;
    }
    return v;
  }
  encoded(v) {
    if (Array.isArray(v)) return v.map((x) => this.encoded(x));
    if (v && typeof v === "object" && !(v instanceof Digits)) {
      const names = Object.keys(v);
      if (names.length === 1 && ["$json", "$base64", "$base64url"].includes(names[0])) {
        const text = encode(this.encoded(v[names[0]]));
        return names[0] === "$json" ? text : Buffer.from(text).toString(names[0].slice(1));
      }
      return Object.fromEntries(names.map((n) => [n, this.encoded(v[n])]));
    }
    return v;
  }
  async case(c, last) {
    if (c.only && c.only !== this.version) return false;
    let faults = [];
    for (let n = Number(c.times?.text ?? 1); n > 0 && !faults.length; n--) faults = await this.once(c);
    const passing = /"code":"(BCK\.COMMON\.0029|BCK\.CHAIN\.0001|BCK\.HTTP\.503)"/;
    if (faults.length && !last && this.answer.status === 503 && passing.test(this.answer.text)) return true;
    this.answers[c.name] = this.answer.text;
    assert.deepEqual(faults, [], `${this.file.name}/${c.name} (${this.version})`);
    return false;
  }
  async once(c) {
    const end = Date.now() + (c.retrySecs ? Math.max(Number(c.retrySecs.text), 60) * 1000 : 0);
    for (;;) {
      const m = new Matcher();
      const correlation = `case-${this.vars.run}-${++this.serial}`;
      await this.send(c, correlation, m);
      await this.check(c, m, correlation);
      if (!m.faults.length || Date.now() > end) {
        Object.assign(this.vars, m.captured);
        return m.faults;
      }
      await new Promise((r) => setTimeout(r, 100));
    }
  }
  /** Sends a case through the client, which must say the same as the answer on the wire. */
  async send(c, correlation, m) {
    const r = c.request;
    let rawBody;
    if (r.rawBody !== undefined) rawBody = await this.text(r.rawBody);
    else if (r.body !== undefined) rawBody = encode(this.encoded(await this.fill(r.body)));
    const headers = { "service-version": this.version, "x-correlation-id": correlation };
    headers["content-type"] = rawBody ? "application/json" : null;
    if (c.as !== "nobody") headers.authorization = `Bearer ${(await this.actor(c.as)).key}`;
    this.lines = {};
    for (const [name, value] of Object.entries(r.headers ?? {})) {
      const n = (await this.text(name)).toLowerCase();
      const v = await this.fill(value);
      if (Array.isArray(v)) {
        headers[n] = null;
        this.lines[n] = v.map((x) => (isNumber(x) ? digits(x) : x));
      } else headers[n] = v === null ? null : isNumber(v) ? digits(v) : v;
    }
    this.stream = r.stream === true;
    const path = await this.text(r.path);
    if (path.startsWith("http")) {
      const res = await fetch(path);
      this.answer = { status: res.status, headers: { "content-type": [res.headers.get("content-type")] }, text: await res.text(), receiver: true };
      this.raw = exact(this.answer.text);
      return;
    }
    try {
      const a = await this.toll.request(r.method, path, { headers, ...(rawBody ? { rawBody } : {}) }).withResponse();
      this.raw = a.raw;
      if (a.response.status >= 300) m.fault("", `the client took status ${a.response.status} for a success`);
      if (a.requestId !== this.answer.headers["x-correlation-id"]?.[0]) m.fault("", "the client has another request id");
    } catch (e) {
      if (!(e instanceof TollError) || e.status === 0) throw e;
      this.raw = e.raw;
      if (e.status !== this.answer.status) m.fault("", `the client says ${e.status}, not ${this.answer.status}`);
      const code = /^\{"code":"([^"]+)"/.exec(this.answer.text)?.[1];
      if (code && e.code !== code) m.fault("", `the client says ${e.code}, not ${code}`);
    }
  }
  async check(c, m, correlation) {
    const { status, headers, text, receiver } = this.answer;
    const wanted = [c.expect.status].flat().map(digits);
    if (!wanted.includes(String(status))) return m.fault("", `status ${status}, wanted ${wanted}: ${text.slice(0, 900)}`);
    const json = headers["content-type"]?.[0] === "application/json";
    if (!receiver) {
      for (const n of ["service-version", "service-version-resolved-from", "x-correlation-id", "cache-control", "access-control-allow-origin"]) {
        if (headers[n]?.length !== 1) m.fault(`header ${n}`, `wanted one line, got ${headers[n]}`);
      }
      const own = c.request.headers && "x-correlation-id" in c.request.headers;
      if (!own && headers["x-correlation-id"]?.[0] !== correlation) m.fault("header x-correlation-id", "is another one");
      if ([429, 503].includes(status) && !headers["retry-after"]) m.fault("header retry-after", "is not there");
      if (status >= 400 && json && text && !(status === 503 && text.includes('"checks"'))) {
        const known = codes[this.raw?.code];
        if (!known?.status.includes(status)) m.fault("code", `${this.raw?.code} came with status ${status}`);
        else {
          m.value("", {
            code: this.raw.code, message: { $type: "text" }, httpStatus: status, category: known.category,
            correlationId: headers["x-correlation-id"]?.[0],
          }, this.raw);
        }
      }
    }
    for (const [name, want] of Object.entries(c.expect.headers ?? {})) {
      const n = (await this.text(name)).toLowerCase();
      m.value(`header ${n}`, await this.fill(want), headers[n]?.join(", "));
    }
    if (c.expect.text !== undefined) m.value("the text", await this.fill(c.expect.text), text);
    if (c.expect.sameAs && text !== this.answers[c.expect.sameAs]) m.fault("", `differs from that of ${c.expect.sameAs}: ${text}`);
    if (c.expect.code) m.value("", { code: c.expect.code }, this.raw);
    if (c.expect.body !== undefined) {
      if (!json) m.fault("", `is not JSON: ${text}`);
      else m.value("", await this.fill(c.expect.body), this.raw);
    }
  }
}

/** Answers 204 to every POST, and at /received what came to a path. */
function receiver() {
  const received = [];
  const server = http.createServer(async (req, res) => {
    const url = new URL(req.url, "http://receiver");
    if (url.pathname === "/received") {
      res.setHeader("content-type", "application/json");
      return res.end(JSON.stringify(received.filter((r) => r.path === url.searchParams.get("path"))));
    }
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    received.push({ path: url.pathname, headers: req.headers, body: JSON.parse(Buffer.concat(chunks).toString()) });
    res.writeHead(204).end();
  });
  server.unref();
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`)));
}

describe("conformance", { skip: !stage && "TOLL_STAGE is not set: run it through go test ./interop", concurrency: 12 }, async () => {
  const files = readdirSync(directory).filter((n) => n.endsWith(".json"));
  const address = await receiver();
  const runs = [];
  for (const name of files) {
    const file = { name: name.slice(0, -5), ...exact(readFileSync(`${directory}/${name}`, "utf8")) };
    const need = file.needs?.find((n) => ["rail", "embedded-chain", "rate-limit"].includes(n)) ?? "";
    const clock = file.needs?.includes("clock") ?? false;
    for (const version of ["1.0", "1.1"]) runs.push({ file, version, clock, service: stage.services[need] });
  }
  const pass = async ({ file, version, service }) => {
    for (let n = 1; ; n++) {
      const run = new Run(service, file, version, address);
      let again = false;
      for (const c of file.cases) if ((again = await run.case(c, n === 3))) break;
      if (!again) return;
    }
  };
  const early = runs.filter((r) => !r.clock).map((r) => {
    let end;
    r.done = new Promise((resolve) => (end = resolve));
    test(`${r.file.name} ${r.version}`, () => pass(r).finally(end));
    return r.done;
  });
  // Files that move the clock come last, one after the other.
  test("files that move the clock", async () => {
    await Promise.all(early);
    for (const r of runs.filter((x) => x.clock)) await pass(r);
  });
});
