// The plugin against a real core: a Go test starts service and core and says in the environment where
// they are. Without it these tests are skipped.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import plugin from "../dist/index.js";
import { fakeApi, manifest, registry } from "./fake-api.mjs";

const env = JSON.parse(process.env.TOLL_TEST_OPENCLAW ?? "null");
const owner = { senderIsOwner: true };
const options = { skip: env === null && "needs a core: see interop/openclaw_plugin_test.go" };

/** load registers the plugin with the configuration of the test, and starts its services. */
async function load(t, config = {}) {
  const api = fakeApi({ config: { ...env.config, ...config } });
  plugin.register(api);
  for (const service of api.services) {
    await service.start();
    t.after(() => service.stop());
  }
  return api;
}

test("a real core", options, async t => {
  await t.test("has the tools of the plugin", async () => {
    const headers = { authorization: `Bearer ${env.token}` };
    const res = await fetch(`${env.config.coreUrl}/gateway/v1/tools`, { headers });
    const { tools } = await res.json();
    assert.deepEqual(tools.map(tool => tool.name), manifest.contracts.tools);
    const health = await (await fetch(`${env.config.coreUrl}/gateway/v1/health`)).json();
    assert.equal(health.registry, registry.hash);
  });

  await t.test("is told about a login, and forgets it", async t => {
    const api = await load(t);
    await assert.rejects(api.run("service_checkBalance"), {
      message: "Not authenticated. Run /svc_login first (not_authenticated).",
    });
    assert.match((await api.commands.svc_login.handler({ args: env.key })).text, /Only the owner/);
    const login = await api.commands.svc_login.handler({ args: env.key, senderIsOwner: true });
    assert.match(login.text, /^Logged in to sandbox as /);
    const { details } = await api.run("service_checkBalance");
    assert.equal(details.planId, env.config.planId);
    assert.match((await api.commands.svc_logout.handler(owner)).text, /^Logged out\./);
    await assert.rejects(api.run("service_checkBalance"), /not_authenticated/);
  });

  await t.test("refuses what a stranger may not, and what is no argument", async t => {
    const api = await load(t, { apiKey: env.key });
    await assert.rejects(api.run("service_orderPlan"), /\(not_owner\)/);
    await assert.rejects(api.run("service_queryAgent", { prompt: "x" }, owner), /agentUrl.*\(invalid_params\)/);
    const { details } = await api.run("service_orderPlan", {}, owner);
    assert.equal(details.requiresConfirmation, true);
  });

  await t.test("asks for an approval only where the configuration says so", async t => {
    const event = { toolName: "service_orderplan", params: { confirm: true } };
    const confirm = await load(t, { apiKey: env.key });
    assert.equal(await confirm.hooks.before_tool_call(event, {}), undefined);
    const host = await load(t, { apiKey: env.key, spendApproval: "host" });
    const { requireApproval } = await host.hooks.before_tool_call(event, {});
    assert.ok(requireApproval.title && requireApproval.description.includes("sandbox"));
    assert.equal(await host.hooks.before_tool_call({ toolName: "service_orderplan", params: {} }, {}), undefined);
  });

  await t.test("says the balance", async t => {
    const api = await load(t, { apiKey: env.key });
    const { prependContext } = await api.hooks.before_prompt_build({}, {});
    assert.match(prependContext, /^\[service\] Plan "/);
  });

  await t.test("serves the paid endpoint through the plugin", async t => {
    const api = await load(t, { apiKey: env.sellerKey, creditsPerRequest: 2, enablePaidEndpoint: true });
    const server = createServer((req, res) => void api.routes[0].handler(req, res));
    await new Promise(done => server.listen(0, "127.0.0.1", done));
    t.after(() => new Promise(done => (server.close(done), server.closeAllConnections())));
    const ask = (headers, method = "POST") =>
      fetch(`http://127.0.0.1:${server.address().port}${registry.defaultPath}`, {
        method,
        headers: { "content-type": "application/json", ...headers },
        body: method === "POST" ? '{"prompt":"hello"}' : undefined,
      });
    assert.equal((await ask({}, "GET")).status, 405);
    const refused = await ask({});
    assert.equal(refused.status, 402);
    assert.ok(refused.headers.get("payment-required"));
    const paid = await ask({ "payment-signature": env.accessToken });
    assert.equal(paid.status, 200, await paid.clone().text());
    assert.match(JSON.stringify(await paid.json()), /hello/);
    const receipt = JSON.parse(Buffer.from(paid.headers.get("payment-response"), "base64"));
    assert.equal(receipt.success, true);
  });

  await t.test("names a wrong field of the configuration", async t => {
    const api = await load(t, { maxOrderCents: -1 });
    await assert.rejects(api.run("service_checkBalance"), /maxOrderCents/);
  });
});

test("a core that the plugin starts", options, async t => {
  const config = { ...env.started, startCore: true, apiKey: env.key };
  const api = await load(t, config);
  for (let i = 0; i < 300; i++) {
    try {
      await api.run("service_checkBalance");
      break;
    } catch (error) {
      assert.match(error.message, /core_unreachable/);
      await new Promise(done => setTimeout(done, 100));
    }
  }
  assert.equal((await api.run("service_checkBalance")).details.planId, env.config.planId);
  // The host registers the plugin again for agent runs, and starts no service of that instance.
  const again = fakeApi({ config: { ...env.config, ...config } });
  plugin.register(again);
  assert.equal((await again.run("service_checkBalance")).details.planId, env.config.planId);
  await api.services[0].stop();
  await assert.rejects(api.run("service_checkBalance"), /core_unreachable/);
  assert.ok(api.lines.some(line => line.startsWith("core: ")));
  assert.ok(!api.lines.join("\n").includes(env.key.split(":")[1]));
});
