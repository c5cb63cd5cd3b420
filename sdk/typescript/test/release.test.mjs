// The archive as users get it: packed, installed into an empty project, and used as the pages say. And the examples.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import net from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { after, before, describe, test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { credit, price, Toll } from "@tollhq/toll";
import { payingClient } from "@tollhq/toll/mcp";
import { payingFetch } from "@tollhq/toll/fetch";
import { payPage, Service } from "@tollhq/toll/testing";
import { freePort, pause } from "./apps.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, "package.json")));
const entries = Object.keys(manifest.exports).filter((e) => e !== "./package.json");
const page = process.env.TOLL_PAGE ?? fileURLToPath(new URL("../../../docs/TYPESCRIPT.md", import.meta.url));
const execute = promisify(execFile);
const running = [];
// Below the project, so that frameworks are found and the package is the installed one.
const empty = mkdtempSync(join(root, "empty-"));
const archive = join(empty, `tollhq-toll-${manifest.version}.tgz`);
const data = join(empty, "dev");
let at;
let dev;
let service;
before(async () => {
  at = await freePort();
  mkdirSync(data);
  // It takes a while, in which the package is installed.
  const args = ["dev", "--data", data, "--listen", `127.0.0.1:${at}`, "--history=false"];
  dev = run(process.env.TOLL_BIN, args, { cwd: empty });
  await execute("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", empty], { cwd: root });
  writeFileSync(join(empty, "package.json"), '{"name":"empty","private":true,"type":"module"}');
  await execute("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", archive], { cwd: empty });
});
after(async () => {
  for (const p of running) p.kill("SIGKILL");
  await service?.stop();
  rmSync(empty, { recursive: true, force: true });
});

async function answers(port, of) {
  for (const end = Date.now() + 60_000; ; await pause(50)) {
    const socket = net.connect(port, "127.0.0.1");
    const ok = await Promise.race([once(socket, "connect").then(() => true), once(socket, "error").then(() => false, () => false)]).catch(() => false);
    socket.destroy();
    if (ok) return;
    assert.ok(of.exitCode === null && Date.now() < end, `nothing listens on ${port}`);
  }
}

function run(program, args, o) {
  const p = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"], ...o });
  running.push(p);
  p.text = "";
  p.stdout.on("data", (d) => (p.text += d));
  return p;
}

async function output(args, o) {
  const p = run(process.execPath, args, o);
  const [code] = await once(p, "close");
  assert.equal(code, 0, p.text);
  return p.text;
}

// They mostly wait for other programs, and so run side by side.
describe("the archive", { concurrency: true }, () => {
  test("the archive has what it says, with and without ESM", async () => {
    const files = readdirSync(join(empty, "node_modules", "@tollhq", "toll"));
    assert.deepEqual(files.sort(), ["LICENSE", "README.md", "dist", "package.json"]);
    const names = entries.map((e) => `@tollhq/toll${e.slice(1)}`);
    const esm = names.map((n, i) => `import * as m${i} from "${n}"; console.log("${n}", Object.keys(m${i}).length);`).join("\n");
    const cjs = names.map((n) => `console.log("${n}", Object.keys(require("${n}")).length);`).join("\n");
    const [a, b] = await Promise.all([["module", esm], ["commonjs", cjs]].map(([type, text]) =>
      execute(process.execPath, [`--input-type=${type}`, "-e", text], { cwd: empty }),
    ));
    assert.equal(a.stdout, b.stdout);
    assert.deepEqual(a.stdout.trim().split("\n").map((l) => Number(l.split(" ")[1]) > 0), names.map(() => true), a.stdout);
  });

  test("an uncaught error is readable", async () => {
    const program = `await new Toll({ apiKey: null, url: "http://127.0.0.1:9" }).meta.info({ maxRetries: 0 });`;
    for (const [type, text] of [
      ["module", `import { Toll } from "@tollhq/toll";\n${program}`],
      ["commonjs", `const { Toll } = require("@tollhq/toll");\n(async () => { ${program} })();`],
    ]) {
      const { stderr } = await execute(process.execPath, [`--input-type=${type}`, "-e", text], { cwd: empty }).catch((e) => e);
      assert.match(stderr, /ConnectionError: The service at http:\/\/127\.0\.0\.1:9 did not respond/);
      assert.ok(stderr.length < 6000 && stderr.split("\n").every((line) => line.length < 300), `${stderr.length} characters: ${stderr.slice(0, 4000)}`);
    }
  });

  /** Bytes that a bundler ships for an entry with all its exports, minified and compressed. */
  async function sizeOf(name) {
    const bundle = await rolldown({ input: join(root, "dist", `${name}.js`), external: [/^node:/, /^@modelcontextprotocol\//] });
    const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: false });
    assert.equal(output.length, 1);
    return gzipSync(output[0].code, { level: 9 }).length;
  }

  test("entries are small", async () => {
    const sizes = {};
    for (const n of ["index", "fetch", "paid", "mcp"]) sizes[n] = await sizeOf(n);
    console.log(JSON.stringify(sizes));
    assert.ok(sizes.index < 12_000, `index ${sizes.index}`);
    assert.ok(sizes.fetch < 6000, `fetch ${sizes.fetch}`);
  });

  test("attw and publint find nothing", async () => {
    const { checkPackage, createPackageFromTarballData } = await import("@arethetypeswrong/core");
    const { problems } = await checkPackage(createPackageFromTarballData(readFileSync(archive)));
    assert.deepEqual(problems, []);
    const { publint } = await import("publint");
    const { messages } = await publint({ pkgDir: root, strict: true });
    assert.deepEqual(messages.filter((m) => m.type !== "suggestion"), []);
  });

  test("types need no package beside it", async () => {
    writeFileSync(join(empty, "use.ts"), entries.map((e, i) => `export * as m${i} from "@tollhq/toll${e.slice(1)}";`).join("\n"));
    const compilerOptions = {
      noEmit: true, strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, module: "nodenext",
      target: "es2022", lib: ["es2023", "dom", "dom.iterable"], types: [],
    };
    writeFileSync(join(empty, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["use.ts"] }));
    const tsc = fileURLToPath(import.meta.resolve("typescript/bin/tsc"));
    const others = ["--module", "commonjs", "--moduleResolution", "node10"]; // usual for Express with CommonJS
    for (const more of [[], others]) await execute(process.execPath, [tsc, "-p", ".", ...more], { cwd: empty }).catch((e) => assert.fail(e.stdout));
    for (const file of readdirSync(join(root, "dist")).filter((f) => f.endsWith(".d.ts"))) {
      const text = readFileSync(join(root, "dist", file), "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
      assert.ok(!/\bany\b/.test(text), `${file} has any`);
    }
  });

  test("the quick start sells and buys against toll dev, over HTTP and over MCP", async () => {
    const blocks = [...readFileSync(page, "utf8").matchAll(/```js (\S+)\n([\s\S]*?)```/g)];
    assert.deepEqual(blocks.map((b) => b[1]), ["sell.mjs", "buy.mjs", "mcp-sell.mjs", "mcp-buy.mjs"]);
    const [http, mcp] = [await freePort(), await freePort()];
    for (const [, name, text] of blocks) {
      assert.ok(text.trim().split("\n").filter((l) => l.trim() && !/^import /.test(l)).length <= 13, name);
      writeFileSync(join(empty, name), text.replaceAll("8403", String(http)).replaceAll("8404", String(mcp)));
    }
    for (const end = Date.now() + 120_000; !dev.text.includes("Paste these commands"); await pause(100)) {
      assert.ok(dev.exitCode === null && Date.now() < end, dev.text);
    }
    const as = (who) => ({
      cwd: empty,
      env: { PATH: process.env.PATH, TOLL_URL: `http://localhost:${at}`, TOLL_API_KEY: readFileSync(join(data, `${who}.key`), "utf8").trim() },
    });
    for (const [name, port] of [["sell.mjs", http], ["mcp-sell.mjs", mcp]]) {
      await answers(port, run(process.execPath, [name], as("builder")));
    }
    assert.equal(await output(["buy.mjs"], as("subscriber")), "42 2n\n");
    assert.equal(await output(["mcp-buy.mjs"], as("subscriber")), "42 2n\n");
    // The example of the README registers a plan and lists those of the builder.
    const [, example] = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, "README.md"), "utf8"));
    writeFileSync(join(empty, "readme.mjs"), example);
    const ids = (await output(["readme.mjs"], as("builder"))).trim().split("\n");
    assert.ok(ids.length > 2 && ids.every((id) => /^\d+$/.test(id)), ids.join());
    dev.kill("SIGTERM");
    await once(dev, "close");
  });

  test("test cards pay hosted and embedded pages of a sandbox, and nothing else is paid", async () => {
    const cards = await Service.start({ args: ["--chain", "off"] });
    let asked = "";
    const stripe = createServer((req, res) => {
      asked += `${req.method} ${req.url}\n`;
      res.end(`<a href="http://${req.headers.host}/c/pay/cs_live_1">Pay</a>`);
    }).listen(0, "127.0.0.1");
    try {
      const seller = await cards.client();
      const buyer = await cards.client("card buyer");
      const { planId } = await seller.agents.registerWithPlan({
        agentMetadata: { name: "Cards" }, agentApi: { endpoints: [] }, planMetadata: { name: "Five" },
        priceConfig: price.fiat(5_000_000n),
        creditsConfig: credit.dynamic(100n, 1n, 10n),
      });
      assert.deepEqual((await seller.plans.get(planId)).priceConfig.receivers, [(await seller.wallet.get()).address]);
      const hosted = await buyer.plans.checkout(planId, { sessionType: "hosted" });
      await assert.rejects(payPage(hosted.result.checkoutUrl, "4000000000009995"), /card was declined/);
      await payPage(hosted.result.checkoutUrl, "4000002760003184"); // 3-D Secure
      assert.equal((await buyer.orders.get(hosted.orderId)).status, "confirmed");
      await assert.rejects(payPage(hosted.result.checkoutUrl, "4242424242424242"), /no link to a payment/);
      const embedded = await buyer.plans.checkout(planId);
      await payPage(embedded.result.checkoutUrl, "4242 4242 4242 4242");
      assert.equal((await buyer.credits.balance(planId)).available, 200n);
    } finally {
      await cards.stop();
    }
    await assert.rejects(payPage(`http://127.0.0.1:${stripe.address().port}/pay`, "4242424242424242"), /nothing was paid/);
    assert.equal(asked, "GET /pay\nGET /c/pay/cs_live_1\n");
    stripe.close();
  });

  test("the examples sell to the buyer and to a model's tools", async () => {
    service = await Service.start();
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const builder = await service.client("example seller");
    const made = await builder.agents.registerWithPlan({
      agentMetadata: { name: "Example" },
      agentApi: { endpoints: [{ POST: `${url}/ask` }, { POST: `${url}/essay` }, { POST: "mcp://shout/tools/*" }] },
      planMetadata: { name: "Example" },
      priceConfig: price.free(),
      creditsConfig: credit.dynamic(100n, 1n, 10n),
    });
    const env = {
      PATH: process.env.PATH, TOLL_URL: service.url, TOLL_API_KEY: (await service.key("example seller")).key,
      TOLL_PLAN: made.planId, TOLL_AGENT: made.agentId, AGENT_URL: url, PORT: String(port),
    };
    const examples = join(root, "examples");
    const buyer = { ...env, TOLL_API_KEY: (await service.key("example buyer")).key };
    const toll = new Toll({ apiKey: buyer.TOLL_API_KEY, url: service.url });

    const agent = run(process.execPath, [join(examples, "express-agent.mjs")], { env });
    await answers(port, agent);
    assert.equal(await output([join(examples, "buyer.mjs"), url, "how are you"], { env: buyer }), "HOW ARE YOU\n2 credits spent\n");
    const limits = { hosts: [`127.0.0.1:${port}`], creditsPerCall: 10n, credits: 50n };
    const pay = payingFetch({ toll, limits });
    const essay = await pay(`${url}/essay`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ text: "word " }),
    });
    assert.equal((await essay.json()).text.length, 50);
    assert.equal(pay.budget.spent(), 1n);
    agent.kill("SIGTERM");
    await once(agent, "close");

    const server = run(process.execPath, [join(examples, "mcp-server.mjs")], { env });
    await answers(port, server);
    const client = new Client({ name: "test", version: "1" });
    await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`)));
    const paying = payingClient(client, { url: `${url}/mcp`, toll, limits });
    const shouted = await paying.callTool({ name: "shout", arguments: { text: "hello" } });
    assert.equal(shouted.content[0].text, "HELLO");
    assert.equal(paying.budget.spent(), 3n);
    await client.close();

    // A model that calls the tool twice, once with the wrong arguments, and then says what it read.
    Object.assign(process.env, buyer);
    const { ask: askAgent } = await import("../examples/langchain-agent.mjs");
    const said = [];
    const steps = [{ text: "hi" }, { text: 5 }];
    const model = {
      bindTools: (tools) => (assert.deepEqual(tools.map((t) => t.name), ["shout"]), model),
      invoke: async (messages) => {
        said.push(messages.at(-1));
        const args = steps.shift();
        if (!args) return new AIMessage(messages.map((m) => m.text).join());
        return new AIMessage({ content: "", tool_calls: [{ name: "shout", args, id: String(steps.length) }] });
      },
    };
    const told = await askAgent(model, `${url}/mcp`, "hello");
    assert.deepEqual([told.text.split(",").slice(0, 3), told.credits], [["hello", "", "HI"], 3n]);
    assert.deepEqual(said.map((m) => m.status), [undefined, "success", "error"]);
    server.kill("SIGKILL");

    // A Worker and a route of Next are called as their platforms do.
    Object.assign(process.env, env);
    const worker = await import("../examples/worker-agent.mjs");
    const next = await import("../examples/next-route.mjs");
    const token = (await toll.tokens.create({ planId: made.planId })).accessToken;
    for (const handle of [(r) => worker.default.fetch(r, env, {}), (r) => next.POST(r)]) {
      const ask = (headers) => handle(new Request(`${url}/ask`, { method: "POST", body: '{"text":"hi"}', headers }));
      assert.equal((await ask({})).status, 402);
      const answer = await ask({ "payment-signature": token });
      assert.deepEqual([answer.status, (await answer.json()).text], [200, "HI"]);
      assert.ok(answer.headers.get("payment-response"));
    }
  });
});
