// Runs files of testdata/conformance through the client of this package, on any runtime that has fetch.
import { Toll, TollError } from "@tollhq/toll";

const hex = (n) =>
  Array.from(crypto.getRandomValues(new Uint8Array(n)), (b) => b.toString(16).padStart(2, "0")).join("");
const fromBase64 = (s) => {
  const binary = atob(s.replace(/-/g, "+").replace(/_/g, "/").replace(/=+$/, ""));
  return new TextDecoder().decode(Uint8Array.from(binary, (c) => c.charCodeAt(0)));
};
const toBase64 = (text, url) => {
  const out = btoa(String.fromCharCode(...new TextEncoder().encode(text)));
  return url ? out.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "") : out;
};

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
  const mark = hex(8) + ":";
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
        return this.inner(path, () => fromBase64(got), want);
      case "$jwt":
        return this.inner(path, () => fromBase64(got.split(".")[1]), want);
      default:
        this.fault(path, `the file has an operator that does not exist: ${name}`);
    }
  }
}

const roles = ["builder", "otherBuilder", "subscriber", "stranger", "operator"];

class Run {
  actors = {};
  answers = {};
  lines = {};
  serial = 0;
  constructor(o, service, file, version) {
    this.o = o;
    this.service = service;
    this.file = file;
    this.version = version;
    const unique = hex(8);
    this.vars = {
      scheme: "svc", Header: "Service", header: "service", word: "service", keyPrefix: "sandbox",
      publicURL: service.url, version, run: unique, runNumber: (BigInt(`0x${unique}`) | 1n).toString(),
      receiver: o.receiver, long: "0123456789".repeat(26),
    };
    this.toll = new Toll({
      apiKey: null, url: service.url, version: null, maxRetries: 0, timeoutMs: 120_000,
      fetch: (url, init) => this.fetch(url, init),
    });
  }
  async fetch(url, { method, headers, body }) {
    const sent = Object.fromEntries(headers);
    delete sent["user-agent"];
    const { stream, lines } = this;
    this.answer = await this.o.send({ url, method, headers: sent, body, lines, stream });
    return this.answer.response;
  }
  async actor(role) {
    if (!this.actors[role]) {
      const account = `${role} of ${this.file.name} ${this.version} ${this.vars.run}`;
      const url = `${this.service.keys}&account=${encodeURIComponent(account)}&operator=${role === "operator"}`;
      const { status, text } = await this.o.send({ url, method: "POST", headers: {} });
      if (status !== 200) throw new Error(`no key: ${text}`);
      const key = (this.actors[role] = JSON.parse(text));
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
    if (!(name in this.vars)) throw new Error(`{{${name}}} was not captured before`);
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
        return names[0] === "$json" ? text : toBase64(text, names[0] === "$base64url");
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
    if (faults.length) throw new Error(`${this.file.name}/${c.name} (${this.version}):\n${faults.join("\n")}`);
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
      this.answer = { ...(await this.o.send({ url: path, method: "GET", headers: {} })), receiver: true };
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
        const known = this.o.codes[this.raw?.code];
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

/**
 * Returns a run for each file and version, as {name, clock, pass}. Those that move the clock have to come last, one
 * after the other. `o` has files (name to text), codes, services, the address of the receiver, and send, which sends
 * {url, method, headers, body, lines, stream} and returns {status, headers, text, response}: lines replace headers and
 * may be several of a name; a stream is read for a second.
 */
export function runsOf(o) {
  return Object.entries(o.files).flatMap(([name, text]) => {
    const file = { name: name.slice(0, -5), ...exact(text) };
    const need = file.needs?.find((n) => ["rail", "embedded-chain", "rate-limit"].includes(n)) ?? "";
    const pass = async (version) => {
      for (let n = 1; ; n++) {
        const run = new Run(o, o.services[need], file, version);
        let again = false;
        for (const c of file.cases) if ((again = await run.case(c, n === 3))) break;
        if (!again) return;
      }
    };
    const clock = file.needs?.includes("clock") ?? false;
    return ["1.0", "1.1"].map((v) => ({ name: `${file.name} ${v}`, clock, pass: () => pass(v) }));
  });
}
