// The entry @tollhq/toll/testing: a service for tests, which is the real program with separate
// data.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import { credit, price } from "./builders.js";
import { Toll } from "./client.js";
import { sleep, type TollOptions } from "./core.js";
import type * as g from "./generated.js";

const run = promisify(execFile);
const usdcSandbox = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
const startMs = 60_000;

/** An API key of a separate workspace. */
export interface TestKey {
  readonly address: string;
  readonly id: string;
  readonly key: string;
}

/** Settings of a service for tests. */
export interface ServiceOptions {
  /** Path of the program. Default: TOLL_BIN, else `toll` on PATH. */
  bin?: string;
  /** Arguments of `toll serve`. Default: no chain and no cards. */
  args?: readonly string[];
}

/**
 * A running service with a builder, who has a plan and an agent, and a subscriber. An order of the
 * plan grants 100 credits, and a request costs 1 to 10. It listens only on the loopback interface.
 *
 *     const service = await Service.start();
 *     const token = await service.token({ credits: 10n });
 *     …
 *     await service.stop();
 *
 * It needs Node, Deno or Bun.
 */
export class Service {
  readonly #bin: string;
  readonly #args: readonly string[];
  readonly #dir: string;
  #port = 0;
  readonly #keys = new Map<string, Promise<TestKey>>();
  #process: ChildProcess | undefined;
  #registered: Promise<g.AgentAndPlanRegistered> | undefined;
  /** Id of the builder's plan. */
  planId = "";
  /** Id of the builder's agent, which has no endpoints and can be paid for any request. */
  agentId = "";

  private constructor(bin: string, args: readonly string[], dir: string) {
    this.#bin = bin;
    this.#args = args;
    this.#dir = dir;
  }

  /** Starts a service. Throws an Error if the program is missing or does not start. */
  static async start(o: ServiceOptions = {}): Promise<Service> {
    const bin = o.bin ?? process.env.TOLL_BIN ?? onPath("toll");
    if (!bin) throw new Error("toll is not on PATH: install it, or set TOLL_BIN to its path");
    const args = o.args ?? ["--chain", "off", "--card", "off"];
    const dir = await mkdtemp(join(tmpdir(), "toll-ts-"));
    const service = new Service(bin, args, dir);
    try {
      await service.#make("builder", ["--init"]);
      await service.start();
      const made = await service.registered();
      service.planId = made.planId;
      service.agentId = made.agentId;
    } catch (e) {
      await service.stop();
      throw e;
    }
    return service;
  }

  /** Public address of the service. */
  get url(): string {
    return `http://localhost:${this.#port}`;
  }

  /** Restarts the process with the same data, after kill(). */
  async start(): Promise<void> {
    const path = join(this.#dir, "log");
    const log = await open(path, "a");
    this.#port ||= await freePort();
    const args = [
      "serve",
      "--listen",
      `127.0.0.1:${this.#port}`,
      "--data",
      this.#data,
      ...this.#args,
    ];
    const started = spawn(this.#bin, args, {
      stdio: ["ignore", log.fd, log.fd],
      env: environment(),
    });
    this.#process = started;
    await log.close();
    const toll = new Toll({ apiKey: null, url: this.url, maxRetries: 0, timeoutMs: 5000 });
    for (const end = Date.now() + startMs; ; await sleep(50)) {
      try {
        await toll.meta.health();
        return;
      } catch (cause) {
        if (started.exitCode === null && Date.now() < end) continue;
        const said = (await readFile(path, "utf8")).slice(-2000);
        throw new Error(`toll serve did not start:\n${said}`, { cause });
      }
    }
  }

  /** Kills the process, like a crash. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Stops the process gracefully and removes its data. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const p = this.#process;
    this.#process = undefined;
    if (!p || p.exitCode !== null || p.signalCode !== null) return;
    const ended = new Promise((resolve) => p.once("exit", resolve));
    p.kill(signal);
    const late = setTimeout(() => p.kill("SIGKILL"), 20_000);
    await ended;
    clearTimeout(late);
  }

  get #data(): string {
    return join(this.#dir, "data");
  }

  async #make(account: string, more: readonly string[]): Promise<TestKey> {
    const args = [
      "keys",
      "create",
      "--local",
      "--data",
      this.#data,
      "--account",
      account,
      "-o",
      "json",
    ];
    const { stdout } = await run(this.#bin, [...args, ...more], {
      env: environment(),
      timeout: startMs,
    });
    const made = JSON.parse(stdout) as TestKey;
    const key = { address: made.address, id: made.id, key: made.key };
    this.#keys.set(account, Promise.resolve(key));
    return key;
  }

  /** Returns the API key of a workspace, which is created on first use. */
  key(account: string, o: { operator?: boolean } = {}): Promise<TestKey> {
    let key = this.#keys.get(account);
    if (!key) {
      this.#keys.set(account, (key = this.#make(account, o.operator ? ["--operator"] : [])));
    }
    return key;
  }

  /** Returns a client with the API key of a workspace, by default the builder's. */
  async client(account = "builder", o: TollOptions = {}): Promise<Toll> {
    return new Toll({ apiKey: (await this.key(account)).key, url: this.url, ...o });
  }

  /** The builder's agent and plan, registered on first use. */
  registered(): Promise<g.AgentAndPlanRegistered> {
    this.#registered ??= (async () => {
      const receiver = (await this.key("builder")).address;
      return (await this.client()).agents.registerWithPlan({
        agentMetadata: { name: "Test agent" },
        agentApi: { endpoints: [] },
        planMetadata: { name: "Test plan" },
        priceConfig: price.erc20(1_000_000n, usdcSandbox, receiver),
        creditsConfig: credit.dynamic(100n, 1n, 10n),
      });
    })();
    return this.#registered;
  }

  /** Grants credits of the plan to a workspace. */
  async mint(credits: bigint, account = "subscriber"): Promise<void> {
    const { address } = await this.key(account);
    await (await this.client()).credits.mint(this.planId, address, credits);
  }

  /** Returns an access token of a workspace, and first grants `credits` to it. */
  async token(
    o: Omit<g.PermissionRequest, "planId"> & { credits?: bigint; account?: string } = {},
  ): Promise<string> {
    const { credits = 0n, account = "subscriber", ...limits } = o;
    if (credits > 0n) await this.mint(credits, account);
    const toll = await this.client(account);
    return (await toll.tokens.create({ planId: this.planId, ...limits })).accessToken;
  }

  /** The balance of a workspace for the plan. `balance` includes the `held` credits. */
  async balance(account = "subscriber"): Promise<g.Balance> {
    return (await this.client(account)).credits.balance(this.planId);
  }

  /** Moves the clock of the service forward. */
  async advance(seconds: number): Promise<void> {
    const { key } = await this.key("operator", { operator: true });
    await new Toll({ apiKey: key, url: this.url }).sandbox.advanceClock(seconds);
  }
}

/** Opens a page, or submits its form, and returns its text and where it redirects to. */
async function visit(url: string, form?: Record<string, string>): Promise<[string, string?]> {
  const response = await fetch(url, {
    redirect: "manual",
    signal: AbortSignal.timeout(20_000),
    headers: { origin: new URL(url).origin },
    ...(form && { method: "POST", body: new URLSearchParams(form) }),
  });
  const to = response.headers.get("location");
  return [await response.text(), ...(to ? [new URL(to, url).href] : [])] as [string, string?];
}

const plain = (html: string): string =>
  html.replace(/&(#34|#39|quot|lt|gt|amp);/g, (_, name: string) =>
    ({ "#34": '"', "#39": "'", quot: '"', lt: "<", gt: ">" })[name] ?? "&",
  );

/**
 * Pays the page of an order of any sandbox with a test card, like a person in a browser who agrees
 * to 3-D Secure. Then wait for the order with `orders.wait`.
 *
 *     await payPage(result.checkoutUrl, "4242424242424242");
 *
 * Throws an Error if the test page declines the card, and if the page does not lead to a test page
 * of Toll, such as the page of a paid order or a page of Stripe.
 */
export async function payPage(checkoutUrl: string, card: string): Promise<void> {
  let link: string | undefined;
  // The form asks for a link in place of an embedded form.
  for (const form of [undefined, {}, undefined]) {
    link = /href="([^"]*\/c\/pay\/[^"]*)"/.exec((await visit(checkoutUrl, form))[0])?.[1];
    if (link) break;
  }
  if (!link) {
    throw new Error(
      "the page has no link to a payment: it is paid or expired, or not an order page",
    );
  }
  let page = plain(link);
  if (!(await visit(page))[0].includes("TEST PAGE: NO MONEY MOVES")) {
    throw new Error(`${page} is not a test page of Toll, so nothing was paid`);
  }
  let form: Record<string, string> = {
    number: card, expiry: "12/39", cvc: "123", name: "Ada", email: "ada@example.com",
  };
  for (let step = 0; step < 5 && new URL(page).pathname.includes("/c/"); step++) {
    const [text, to] = await visit(page, form);
    if (!to) {
      const said = /role="alert">([^]*?)<\/p>/.exec(text)?.[1];
      throw new Error(plain(said ?? "the test page did not accept the card"));
    }
    page = to;
    form = { result: "approve" }; // 3-D Secure
  }
  await visit(page); // the service reads the payment
}

/** The environment without the TOLL_ variables of the developer. */
const environment = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(process.env).filter(([n]) => !n.startsWith("TOLL_")));

const onPath = (name: string): string | undefined =>
  (process.env.PATH ?? "").split(delimiter).map((d) => join(d, name)).find((f) => existsSync(f));

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
