// The built modules in workerd, Bun, Deno and a browser: every conformance file, a sale or a purchase. TOLL_WORKERD,
// TOLL_BUN, TOLL_DENO and TOLL_CHROMIUM are their programs; make test-all has them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { after, before, describe, test } from "node:test";
import { payingFetch } from "@tollhq/toll/fetch";
import { Service } from "@tollhq/toll/testing";
import { freePort, pause, start } from "./apps.mjs";
import { listen, material, receiver, relay, stage } from "./relay.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
const modules = readdirSync(dist).filter((n) => n.endsWith(".js") && n !== "testing.js");
const page = `<!doctype html><script type="importmap">{"imports":{
  "@tollhq/toll":"/dist/index.js","@tollhq/toll/fetch":"/dist/fetch.js"}}</script><script type="module">
  import { buy, conform } from "/test/remote.mjs";
  const tell = (body) => fetch("/told", { method: "POST", body: JSON.stringify(body) });
  addEventListener("error", (e) => tell({ error: String(e.message) }));
  addEventListener("unhandledrejection", (e) => tell({ error: String(e.reason?.stack ?? e.reason) }));
  const token = new URL(location).searchParams.get("token");
  const bought = await buy(new URL("/ask", location).href, token);
  await tell({ bought, results: await conform(location.origin) });
</script>`;

let origin;
let service;
let front;
let told;
const hears = new Promise((resolve) => (told = resolve));
const running = [];
let dir;
before(async () => {
  dir = mkdtempSync(join(tmpdir(), "toll-runtimes-"));
  service = await Service.start();
  const files = { ...material(), receiver: await receiver() };
  let sold;
  origin = await listen(async (req, res) => {
    const { pathname } = new URL(req.url, "http://x");
    if (pathname === "/material") return res.end(JSON.stringify(files));
    if (pathname === "/relay") return relay(req, res);
    if (pathname === "/ask") return sold(req, res);
    if (pathname === "/told") {
      let text = "";
      for await (const chunk of req) text += chunk;
      told(JSON.parse(text));
      return res.end();
    }
    const [, folder, name] = /^\/(dist|test)\/([\w.-]+\.m?js)$/.exec(pathname) ?? [];
    res.setHeader("content-type", folder ? "text/javascript" : "text/html");
    res.end(folder ? readFileSync(join(root, folder, name)) : page);
  });
  front = await start("express", service, { publicUrl: origin });
  sold = async (req, res) => front.server.emit("request", req, res);
});
after(async () => {
  for (const p of running) p.kill("SIGKILL");
  await Promise.all(running.map((p) => p.exitCode ?? p.signalCode ?? once(p, "exit")));
  await front?.stop();
  await service?.stop();
  rmSync(dir, { recursive: true, force: true });
});

function run(program, args, env = process.env) {
  const p = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"], env });
  p.said = "";
  p.stderr.on("data", (d) => (p.said = (p.said + d).slice(-4000)));
  running.push(p);
  return p;
}

function passed(results) {
  const names = Object.keys(results);
  assert.equal(names.length, 2 * Object.keys(material().files).length);
  const failed = Object.values(results).filter(Boolean);
  assert.equal(failed.length, 0, failed.join("\n\n"));
}

const { TOLL_WORKERD, TOLL_BUN, TOLL_DENO, TOLL_CHROMIUM: chromium } = process.env;
const without = (program, name) => (!stage || !program || !existsSync(program)) && `${name} is not there`;

/** A configuration of workerd with the built modules. */
function configure(port, env) {
  // Files are beside the configuration, and modules beside the one that imports them, also those of a package.
  const embed = (name, text) => {
    const file = name.replaceAll("/", "-");
    writeFileSync(join(dir, file), text);
    return `(name = ${JSON.stringify(name)}, esModule = embed ${JSON.stringify(file)})`;
  };
  const copy = (from) => (name) => embed(name, readFileSync(join(root, from, name)));
  const embedded = [
    ...["worker.mjs", "remote.mjs", "conformance.mjs"].map(copy("test")),
    ...modules.map(copy("dist")),
    embed("@tollhq/toll", 'export * from "../index.js";'),
    ...["fetch", "paid"].map((n) => embed(`@tollhq/toll/${n}`, `export * from "../../${n}.js";`)),
  ];
  const bindings = Object.entries(env).map(([n, v]) => `(name = "${n}", text = ${JSON.stringify(v)})`);
  const config = join(dir, "config.capnp");
  writeFileSync(config, `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .agent), (name = "internet", network = (allow = ["local", "private"]))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const agent :Workerd.Worker = (
  compatibilityDate = "2026-01-01",
  modules = [${embedded.join(", ")}],
  bindings = [${bindings.join(", ")}],
);
`);
  return config;
}

const importMap = () => {
  const file = join(dir, "imports.json");
  const at = (n) => pathToFileURL(join(dist, `${n}.js`)).href;
  const imports = { "@tollhq/toll": at("index"), "@tollhq/toll/fetch": at("fetch"), "@tollhq/toll/paid": at("paid") };
  writeFileSync(file, JSON.stringify({ imports }));
  return file;
};
const alone = join(root, "test", "alone.mjs");
const deno = () => ["run", "--quiet", "--no-config", "--allow-net", "--allow-env", "--allow-read", `--import-map=${importMap()}`, alone];

for (const [name, program, args] of [
  ["workerd", TOLL_WORKERD, (port, env) => ["serve", configure(port, env)]],
  ["bun", TOLL_BUN, () => ["run", alone]],
  ["deno", TOLL_DENO, deno],
]) {
  describe(name, { skip: without(program, name) }, () => {
    let url;
    before(async () => {
      const port = await freePort();
      url = `http://127.0.0.1:${port}`;
      const env = {
        ORIGIN: origin, TOLL_URL: service.url, TOLL_API_KEY: (await service.key("builder")).key,
        TOLL_PLAN: service.planId, TOLL_AGENT: service.agentId, AGENT_URL: url,
      };
      const p = run(program, args(port, env), { ...env, PORT: String(port), HOME: dir, PATH: process.env.PATH });
      for (const end = Date.now() + 20_000; ; await pause(50)) {
        if (await fetch(url).then((r) => r.status === 402, () => false)) return;
        assert.ok(p.exitCode === null && Date.now() < end, p.said);
      }
    });
    test("sells", async () => {
      const account = `buyer at ${name}`;
      const token = await service.token({ account, credits: 10n });
      const limits = { hosts: [new URL(url).host], creditsPerCall: 5n, credits: 5n };
      const answer = await payingFetch({ token, limits })(`${url}/ask`, { method: "POST", body: "?" });
      assert.deepEqual([answer.status, await answer.text()], [200, `sold to ${(await service.key(account)).address}`]);
      const { balance, held } = await service.balance(account);
      assert.deepEqual([balance, held], [8n, 0n]);
    });
    test("conformance", async () => passed(await (await fetch(`${url}/conform`)).json()));
  });
}

test("a browser buys, and conforms", { skip: without(chromium, "chromium") }, async () => {
  const token = await service.token({ account: "buyer in a page", credits: 10n });
  const p = run(chromium, [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
    `--user-data-dir=${join(dir, "chromium")}`, `${origin}/?token=${encodeURIComponent(token)}`,
  ]);
  const late = once(p, "exit").then(() => ({ error: `chromium ended: ${p.said}` }));
  const { error, bought, results } = await Promise.race([hears, late]);
  assert.equal(error, undefined);
  assert.equal(bought, "200 the paid content 2");
  assert.deepEqual((await service.balance("buyer in a page")).balance, 8n);
  passed(results);
});
