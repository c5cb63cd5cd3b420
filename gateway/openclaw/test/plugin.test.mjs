import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { afterEach, beforeEach, test } from "node:test";
import plugin from "../dist/index.js";
import { startDouble } from "./double.mjs";
import { fakeApi, manifest, registry } from "./fake-api.mjs";

const part = value => Buffer.from(JSON.stringify(value)).toString("base64url");
const jwt = claims => `${part({ alg: "EdDSA", typ: "JWT" })}.${part(claims)}.${"c2lnbmF0dXJl".repeat(6)}`;
const key = jwt({ iss: "https://pay.example.com/api/v1", sub: "0x1", jti: "0x2", iat: 1, o11y: "x" });
const shortKey = `tk_sandbox_${"c2lnbmF0".repeat(4)}`;
const keys = { prefixed: `sandbox:${key}`, ownPrefix: `my-word:${key}`, bare: key, short: shortKey };
const accessToken = jwt({ iss: "https://pay.example.com", planId: "7", x402Version: 2 });

let core;
beforeEach(async () => (core = await startDouble()));
afterEach(() => core.end());

/** load registers the plugin; what it starts is stopped when the test ends. */
async function load(t, config = {}, options = {}) {
  const api = fakeApi({ config: { ...core.config, ...config }, ...options });
  plugin.register(api);
  for (const service of api.services) {
    await service.start();
    t.after(() => service.stop());
  }
  return api;
}

async function until(condition) {
  for (let i = 0; i < 600 && !condition(); i++) await new Promise(done => setTimeout(done, 50));
  assert.ok(condition(), condition.toString());
}

/** serve runs the paid route as the host does and returns its address. */
async function serve(t, api) {
  const [route] = api.routes;
  const server = createServer((req, res) => void route.handler(req, res));
  await new Promise(done => server.listen(0, "127.0.0.1", done));
  t.after(() => new Promise(done => (server.close(done), server.closeAllConnections())));
  return `http://127.0.0.1:${server.address().port}${route.path}`;
}

test("registers what the manifest declares", async t => {
  const api = await load(t, { enablePaidEndpoint: true });
  assert.equal(plugin.id, manifest.id);
  assert.deepEqual(api.toolNames, manifest.contracts.tools);
  assert.deepEqual(api.factory({}).map(tool => tool.name), manifest.contracts.tools);
  assert.deepEqual(Object.keys(api.commands), registry.commands.map(c => c.name));
  assert.ok(Object.values(api.commands).every(c => c.requireAuth));
  assert.deepEqual(api.routes.map(r => [r.path, r.auth, r.match]), [[registry.defaultPath, "plugin", "exact"]]);
  const hooks = ["before_agent_run", "before_message_write", "before_prompt_build", "before_tool_call"];
  assert.deepEqual(Object.keys(api.hooks).sort(), hooks);
  for (const tool of api.factory({})) {
    assert.ok(tool.label && tool.description, tool.name);
    assert.equal(tool.parameters.type, "object");
  }
});

test("has no route without the paid endpoint, and the configured path with it", async t => {
  assert.deepEqual((await load(t)).routes, []);
  const api = await load(t, { enablePaidEndpoint: true, agentEndpointPath: "/ask" });
  assert.equal(api.routes[0].path, "/ask");
});

for (const mode of ["cli-metadata", "discovery", "tool-discovery", "setup-only", "setup-runtime"]) {
  test(`starts nothing and says no hello in mode ${mode}`, async t => {
    const api = await load(t, { startCore: true, coreBinary: "/nonexistent" }, { mode });
    assert.deepEqual(api.services, []);
    assert.deepEqual(api.lines, []);
    assert.deepEqual(core.seen, []);
    assert.equal(api.toolNames.length, manifest.contracts.tools.length);
  });
}

test("runs tools without a hello in mode tool-discovery", async t => {
  const api = await load(t, {}, { mode: "tool-discovery" });
  await api.run("service_checkBalance");
  assert.deepEqual(core.paths(), ["tools/service_checkBalance"]);
  assert.equal(core.seen[0].headers["toll-registry"], registry.hash);
  core.on["/gateway/v1/tools/service_checkBalance"] = (_body, _req, res) => {
    res.writeHead(409, { "content-type": "application/json" });
    res.end('{"error":{"code":"registry_mismatch","message":"no"}}');
  };
  await assert.rejects(api.run("service_checkBalance"), /Update the plugin or the core/);
});

test("says hello with guards, versions and configuration, and the key once", async t => {
  const api = await load(t, { planId: "7", apiKey: keys.prefixed }, { grant: false });
  await until(() => core.paths().includes("hello"));
  const { body } = core.seen.find(e => e.path.endsWith("hello"));
  assert.equal(body.plugin, manifest.id);
  assert.equal(body.pluginVersion, manifest.version);
  assert.equal(body.hostVersion, "2026.9.6");
  assert.equal(body.registry, registry.hash);
  assert.deepEqual(body.guards, { write: true, run: false });
  assert.deepEqual(body.config, { ...core.config, planId: "7", apiKey: keys.prefixed });
  assert.ok(api.lines.some(line => line.includes("allowConversationAccess")));
  await api.run("service_checkBalance");
  await api.run("service_listPlans");
  assert.equal(core.seen.filter(e => e.text.includes(key)).length, 1);
  assert.ok(!api.lines.join().includes(key));
});

test("says hello before the first call and logs the warnings", async t => {
  core.on["/gateway/v1/hello"] = () => ({ ok: true, warnings: ["first", { message: "second" }] });
  const api = fakeApi({ config: core.config });
  plugin.register(api);
  await api.run("service_checkBalance");
  assert.deepEqual(core.paths(), ["health", "hello", "tools/service_checkBalance"]);
  assert.deepEqual(api.lines, ["first", "second"]);
});

test("says hello again after a restart of the core", async t => {
  const api = fakeApi({ config: core.config });
  plugin.register(api);
  await api.run("service_checkBalance");
  await core.stop();
  await assert.rejects(api.run("service_checkBalance"), /core_unreachable/);
  await core.start();
  await api.run("service_checkBalance");
  assert.equal(core.paths().filter(p => p === "hello").length, 2);
});

test("says hello to a core that was restarted between two calls", async t => {
  let instance = "first";
  core.on["/gateway/v1/health"] = () => ({ ok: true, registry: "r", instance });
  const api = fakeApi({ config: core.config });
  plugin.register(api);
  await api.run("service_checkBalance");
  instance = "second";
  await new Promise(done => setTimeout(done, 1_100));
  await Promise.all([api.run("service_checkBalance"), api.run("service_listPlans")]);
  assert.deepEqual(core.paths().slice(3, 5), ["health", "hello"]);
  assert.equal(core.paths().filter(p => p === "hello").length, 2);
});

test("says no hello after its end", async t => {
  const api = fakeApi({ config: core.config });
  plugin.register(api);
  await api.services[0].start();
  await until(() => core.paths().includes("hello"));
  await api.services[0].stop();
  await core.stop();
  await assert.rejects(api.run("service_checkBalance"));
  await core.start();
  await api.run("service_checkBalance");
  assert.equal(core.paths().filter(p => p === "hello").length, 1);
});

test("refuses calls while plugin and core have different tools", async t => {
  core.on["/gateway/v1/hello"] = (_body, _req, res) => {
    res.writeHead(409, { "content-type": "application/json" });
    res.end('{"error":{"code":"registry_mismatch","message":"no"}}');
  };
  const api = await load(t);
  await assert.rejects(api.run("service_checkBalance"), /Update the plugin or the core/);
  await assert.rejects(api.run("service_checkBalance"), /Update the plugin or the core/);
  assert.match((await api.commands.svc_login.handler({})).text, /Update the plugin or the core/);
  assert.ok(!core.paths().some(p => p.startsWith("tools/")));
});

test("forwards a tool call with its caller and returns text and details", async t => {
  core.on["/gateway/v1/tools/service_checkBalance"] = () => ({ result: { balance: "45" }, warnings: ["low"] });
  const api = await load(t);
  const result = await api.run("service_checkBalance", { planId: "7" }, { senderIsOwner: true });
  assert.deepEqual(result.details, { balance: "45", warnings: ["low"] });
  assert.equal(result.content[0].text, JSON.stringify(result.details, null, 2));
  const { body } = core.seen.find(e => e.path.endsWith("service_checkBalance"));
  assert.deepEqual(body, {
    params: { planId: "7" },
    callId: "call-1",
    caller: { sessionKey: "s", senderId: "p", senderIsOwner: true, channel: "c" },
  });
});

test("takes an unknown sender for a stranger", async t => {
  const api = await load(t);
  await api.run("service_checkBalance");
  await api.commands.svc_login.handler({});
  const callers = core.seen.filter(e => e.body?.caller).map(e => e.body.caller);
  assert.deepEqual(callers.map(c => c.senderIsOwner), [false, false]);
  await api.commands.svc_login.handler({ gatewayClientScopes: ["operator.admin"] });
  assert.equal(core.seen.at(-1).body.caller.senderIsOwner, true);
});

test("throws errors of the core on one line, without keys", async t => {
  const errors = [
    [{ code: "over_cap", message: "Too dear", hint: "Raise it." }, "Too dear (over_cap). Raise it."],
    [{ code: "plan_required", message: "planId is required.\nSet it." }, "planId is required. Set it (plan_required)."],
    [{ code: "x", message: `Bad key ${keys.prefixed}` }, "Bad key [key removed] (x)."],
  ];
  const api = await load(t);
  for (const [error, message] of errors) {
    core.on["/gateway/v1/tools/service_orderPlan"] = () => ({ error });
    await assert.rejects(api.run("service_orderPlan"), { message });
  }
});

test("names the token file when the core refuses the token", async t => {
  core.token = "rotated";
  const api = await load(t);
  await assert.rejects(api.run("service_checkBalance"), /coreTokenFile/);
});

test("commands answer with text and never throw", async t => {
  core.on["/gateway/v1/commands/svc_login"] = ({ args }) => ({ text: `Open the page ${args}` });
  const api = await load(t);
  assert.deepEqual(await api.commands.svc_login.handler({ args: "live" }), { text: "Open the page live" });
  await core.stop();
  assert.match((await api.commands.svc_logout.handler({})).text, /cannot be reached/);
  await core.start();
});

test("removes keys from every message, in every form of it", async t => {
  const api = await load(t);
  const write = api.hooks.before_message_write;
  assert.equal(write.constructor.name, "Function");
  for (const [name, secret] of Object.entries(keys)) {
    const messages = [
      { role: "user", content: `/svc_login ${secret} please` },
      { role: "user", content: [{ type: "text", text: `a\n${secret}` }, { type: "image", data: "aaaa" }] },
      { role: "assistant", content: [{ type: "toolCall", name: "x", arguments: { deep: [{ key: secret }] } }] },
      { role: "toolResult", content: [{ type: "text", text: `"${secret}"` }], details: { raw: secret } },
    ];
    for (const message of messages) {
      const before = JSON.stringify(message);
      const out = write({ message });
      assert.ok(!JSON.stringify(out.message).includes(key), name);
      assert.ok(!JSON.stringify(out.message).includes(shortKey), name);
      assert.ok(JSON.stringify(out.message).includes("[key removed]"), name);
      assert.equal(JSON.stringify(message), before, "the message of the host is not changed");
    }
  }
  assert.equal(write({ message: { role: "user", content: "eyJ is how they begin" } }), undefined);
});

test("keeps access tokens, which the model needs", async t => {
  const api = await load(t);
  const message = { role: "toolResult", content: [{ type: "text", text: `{"accessToken": "${accessToken}"}` }] };
  assert.equal(api.hooks.before_message_write({ message }), undefined);
  assert.equal(api.hooks.before_agent_run({ prompt: `use ${accessToken}` }), undefined);
  const prefixed = api.hooks.before_message_write({ message: { content: `sandbox:${accessToken}` } });
  assert.equal(prefixed, undefined);
});

test("blocks a prompt with a key and names the command", async t => {
  const api = await load(t);
  for (const secret of Object.values(keys)) {
    const out = api.hooks.before_agent_run({ prompt: `[Mon 16:00] /svc_login ${secret}` });
    assert.equal(out.outcome, "block");
    assert.equal(
      out.message,
      "The prompt was blocked because it contains an API key. Send /svc_login as a command, not as a prompt.",
    );
    assert.ok(!JSON.stringify(out).includes(key) && !JSON.stringify(out).includes(shortKey));
  }
  assert.equal(api.hooks.before_agent_run({ prompt: "hello" }), undefined);
});

test("reads long hostile messages in time", async t => {
  const api = await load(t);
  for (const text of ["eyJ".repeat(300_000), "tk_sandbox_".repeat(80_000), "a-".repeat(500_000) + "eyJ", `${"eyJaaaaaaaaa.".repeat(60_000)}`]) {
    const started = performance.now();
    api.hooks.before_message_write({ message: { content: text } });
    assert.ok(performance.now() - started < 10_000);
  }
});

test("puts the balance into the prompt, or nothing", async t => {
  core.on["/gateway/v1/context"] = ({ caller }) => ({ prependContext: `41 credits ${caller.channel}` });
  const api = await load(t);
  const ctx = { sessionKey: "s", channel: "webchat" };
  assert.deepEqual(await api.hooks.before_prompt_build({}, ctx), { prependContext: "41 credits webchat" });
  core.on["/gateway/v1/context"] = () => ({});
  assert.equal(await api.hooks.before_prompt_build({}, ctx), undefined);
});

test("gives the core 2 s for the balance and logs one line an outage", async t => {
  const api = await load(t);
  await until(() => core.paths().includes("hello"));
  const balance = () => api.hooks.before_prompt_build({}, {});
  const lines = () => api.lines.filter(line => line.startsWith("Prompts do not show the balance: ")).length;
  core.on["/gateway/v1/context"] = () => new Promise(() => {});
  const started = performance.now();
  assert.equal(await balance(), undefined);
  assert.ok(performance.now() - started < 4_000);
  await core.stop();
  assert.equal(await balance(), undefined);
  assert.equal(lines(), 1);
  core.on["/gateway/v1/context"] = () => ({ prependContext: "back" });
  await core.start();
  assert.deepEqual(await balance(), { prependContext: "back" });
  await core.stop();
  assert.equal(await balance(), undefined);
  assert.equal(lines(), 2);
  await core.start();
});

test("asks the host for approval when the core says so", async t => {
  const api = await load(t);
  const hook = api.hooks.before_tool_call;
  const event = { toolName: "service_orderplan", params: { confirm: true } };
  assert.ok(hook.matcher.includes("service_orderplan") && !hook.matcher.includes("service_checkbalance"));
  assert.equal(await hook(event, {}), undefined);
  assert.equal(core.seen.at(-1).body.tool, "service_orderPlan");
  core.on["/gateway/v1/approval"] = () => ({ needed: true, title: "t".repeat(99), description: "d".repeat(999), severity: "critical" });
  const { requireApproval } = await hook(event, {});
  assert.deepEqual(requireApproval, {
    title: "t".repeat(80),
    description: "d".repeat(512),
    severity: "critical",
    timeoutMs: 120_000,
    allowedDecisions: ["allow-once", "deny"],
  });
  await core.stop();
  const blocked = await hook(event, {});
  assert.equal(blocked.block, true);
  assert.match(blocked.blockReason, /cannot be reached/);
  await core.start();
});

test("streams a paid request and its answer, with the headers that may pass", async t => {
  const chunks = [];
  core.on["/service/agent"] = Object.assign(
    async (_body, req, res) => {
      for await (const chunk of req) {
        chunks.push(String(chunk));
        if (chunks.length === 1) res.writeHead(200, { "payment-response": "abc", connection: "x-hop", "x-hop": "1" });
        res.write(`got ${chunk};`);
      }
      res.end();
    },
    { streams: true },
  );
  const address = await serve(t, await load(t, { enablePaidEndpoint: true }));
  const headers = {
    authorization: "Bearer host", cookie: "a=b", "x-openclaw-session-key": "s", "settlement-overrides": "x",
    te: "trailers", "x-named": "1", connection: "x-named, keep-alive", "payment-signature": ["one", "two"], "x-other": "stays",
  };
  const req = request(address, { method: "POST", headers });
  const answered = new Promise(done => req.on("response", done));
  req.write("first");
  const res = await answered;
  let text = "";
  res.on("data", chunk => (text += chunk));
  await until(() => text === "got first;");
  req.end("second");
  await new Promise(done => res.on("end", done));
  assert.equal(text, "got first;got second;");
  assert.equal(res.headers["payment-response"], "abc");
  assert.equal(res.headers["x-hop"], undefined);
  const { raw, headers: got } = core.seen.find(e => e.path === "/service/agent");
  for (const name of ["authorization", "cookie", "x-openclaw-session-key", "settlement-overrides", "te", "x-named"]) {
    assert.equal(got[name], undefined, name);
  }
  assert.equal(got["x-other"], "stays");
  assert.equal(got.host, new URL(core.config.coreUrl).host);
  assert.equal(raw.filter(name => name.toLowerCase() === "payment-signature").length, 2);
});

test("ends a paid request whose caller is gone", async t => {
  let closed;
  const ended = new Promise(done => (closed = done));
  core.on["/service/agent"] = Object.assign((_body, req) => void req.on("close", closed), { streams: true });
  const address = await serve(t, await load(t, { enablePaidEndpoint: true }));
  const req = request(address, { method: "POST", headers: { "content-length": "100" } });
  req.on("error", () => {});
  req.write("half");
  await until(() => core.paths().includes("/service/agent"));
  req.destroy();
  await ended;
});

test("answers 502 on the paid route while the core is down", async t => {
  const address = await serve(t, await load(t, { enablePaidEndpoint: true }));
  await core.stop();
  const res = await fetch(address, { method: "POST", body: "{}" });
  assert.equal(res.status, 502);
  assert.equal(res.headers.get("cache-control"), "no-store");
  await core.start();
});

test("passes status and body of refusals through", async t => {
  core.on["/service/agent"] = (_body, _req, res) => {
    res.writeHead(405, { allow: "POST" });
    res.end("no");
  };
  const address = await serve(t, await load(t, { enablePaidEndpoint: true }));
  const res = await fetch(address);
  assert.deepEqual([res.status, res.headers.get("allow"), await res.text()], [405, "POST", "no"]);
});
