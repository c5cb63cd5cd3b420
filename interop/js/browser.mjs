// Persons with browsers: chromium, one page at a time. What a person reads may be in a frame of the page.
import axe from "axe-core/axe.min.js";
import { chromium } from "playwright-core";
import { privateKeyToAccount } from "viem/accounts";
import { serve } from "./lines.mjs";

const patience = 60_000;
const persons = new Map(); // by name: context, page, and scripts, which switches those of pages on and off
const desktop = { width: 1280, height: 900 };
let browser, context, page, scripts;
let faults = [];

/** Runs attempts, each in all frames whose scripts have run, until one returns something, for a minute. */
async function inSomeFrame(what, attempts) {
  for (const end = Date.now() + patience; ; await page.waitForTimeout(50)) {
    for (const attempt of [attempts].flat()) {
      for (const frame of page.frames()) {
        // A page may still show what its scripts change, and a frame may go while it is read.
        const found = await frame.waitForLoadState("domcontentloaded", { timeout: patience }).then(() => attempt(frame)).catch(() => undefined);
        if (found) {
          return found;
        }
      }
    }
    if (Date.now() > end) {
      const text = await page.locator("body").innerText().catch(() => "");
      throw new Error(`${what}: not found on ${page.url()}:\n${text.slice(0, 2000)}`);
    }
  }
}

const visible = async (locator) => {
  const seen = locator.filter({ visible: true }).first();
  return (await seen.count()) > 0 && seen;
};

/** What an open dialog holds goes before what the page below it holds. */
const dialogFirst = (find) => [(frame) => find(frame.getByRole("dialog")), find];

serve({
  /**
   * Gives a person an empty browser, in place of one that they had. Requests that leave this machine are refused, and are faults.
   * With scripts the browser has an authenticator for passkeys, and with the key of a wallet a wallet that signs what it is asked.
   */
  async open({ program, scripts: scripted, person, wallet }) {
    browser ??= await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    await persons.get(person)?.context.close();
    context = await browser.newContext({ javaScriptEnabled: scripted, viewport: desktop });
    page = await context.newPage();
    const tools = await context.newCDPSession(page); // its end would undo what it sets
    scripts = async (on) => scripted || tools.send("Emulation.setScriptExecutionDisabled", { value: !on });
    await scripts(false);
    persons.set(person, { context, page, scripts });
    faults = [];
    await context.route((url) => !["127.0.0.1", "localhost"].includes(url.hostname), (route) => {
      faults.push(`request to ${route.request().url()}`);
      return route.abort();
    });
    const at = page;
    at.waits = new Set(); // requests with which it waits for news
    page.on("request", (request) => /\/live\?/.test(request.url()) && at.waits.add(request));
    page.on("requestfinished", (request) => at.waits.delete(request));
    page.on("requestfailed", (request) => at.waits.delete(request));
    page.on("pageerror", (error) => faults.push(`${at.url()}: ${error.message}`));
    page.on("console", (message) => {
      // A declined card and the icon that no page names are answers with a status of their own.
      if (message.type() === "error" && !/Failed to load resource/.test(message.text())) {
        faults.push(`${at.url()}: ${message.text()}`);
      }
    });
    page.on("dialog", (dialog) => {
      faults.push(`${at.url()}: dialog ${dialog.message()}`);
      return dialog.dismiss();
    });
    if (scripted) {
      await tools.send("WebAuthn.enable");
      await tools.send("WebAuthn.addVirtualAuthenticator", {
        options: { protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true },
      });
    }
    if (wallet) {
      const account = privateKeyToAccount(wallet);
      await context.exposeFunction("askWallet", (method, params) =>
        method === "personal_sign" ? account.signMessage({ message: { raw: params[0] } }) : [account.address]);
      await context.addInitScript(announceWallet);
    }
  },

  /** Makes another person act, in the browser that they have. */
  async turn({ person }) {
    ({ context, page, scripts } = persons.get(person));
  },

  /** Goes to an address, and returns the status of the answer. */
  async visit({ url }) {
    const response = await page.goto(url, { timeout: patience });
    return response?.status() ?? 0;
  },

  /** Types a text into a field, or chooses it there. */
  async type({ label, text }) {
    const field = await inSomeFrame(`field ${label}`, dialogFirst((part) => visible(part.getByLabel(label))));
    const choice = await field.evaluate((element) => element.tagName === "SELECT");
    await (choice ? field.selectOption({ label: text }, { timeout: patience }) : field.fill(text, { timeout: patience }));
  },

  /**
   * Presses a button, follows a link, opens what a summary hides, or ticks a box. A button or box that says more than the name
   * is pressed when no frame has one that says it alone.
   */
  async press({ name }) {
    const button = await inSomeFrame(`button ${name}`, [
      ...dialogFirst(async (part) =>
        (await visible(part.getByRole("button", { name, exact: true }))) ||
        (await visible(part.getByRole("link", { name, exact: true }))) ||
        visible(part.locator("summary").getByText(name, { exact: true }))),
      async (frame) => (await visible(frame.getByRole("button", { name }))) || visible(frame.getByRole("checkbox", { name })),
    ]);
    await button.click({ timeout: patience });
  },

  /** Presses a key on the page. */
  async key({ key }) {
    await page.keyboard.press(key);
  },

  /** Hides the page, as another tab before it does, or shows it, and waits until a number of its requests wait for news. */
  async hide({ hidden, waits }) {
    await page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    await inSomeFrame(`${waits} waiting requests`, async () => page.waits.size === waits);
  },

  /** Waits until a page shows a text, and returns the address of the page. */
  async read({ text }) {
    await inSomeFrame(`text ${text}`, (frame) => visible(frame.getByText(text)));
    return page.url();
  },

  /** Returns the text of an element, which has to appear. */
  async textOf({ selector }) {
    return (await inSomeFrame(`element ${selector}`, (frame) => visible(frame.locator(selector)))).innerText();
  },

  /** Returns the heading of the page and of each frame in it, "" where there is none. */
  async frames() {
    return Promise.all(page.frames().map((frame) => frame.locator("h1").first().textContent({ timeout: 1000 }).catch(() => "")));
  },

  /** Sends a request of a script of the page. */
  async request({ method, path, headers, body }) {
    return page.evaluate(async ({ method, path, headers, body }) => {
      const response = await fetch(path, { method, headers, body });
      return { status: response.status, body: await response.text() };
    }, { method, path, headers, body });
  },

  /** Returns the addresses to which links of the page lead. */
  async links() {
    return page.locator("a[href]").evaluateAll((links) => links.map((link) => link.href));
  },

  /**
   * Returns what is wrong with the page, light and dark: what axe finds serious. Also returns what is wider than the screen of a
   * desktop, the narrowest telephone, a telephone, or a tablet. Takes pictures when file is given.
   */
  async look({ file }) {
    const wrong = [];
    const show = async (colorScheme, width) => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: desktop.height });
    };
    await scripts(true); // axe needs timers
    for (const frame of page.frames()) {
      await frame.evaluate(axe.source);
    }
    for (const [scheme, width, rules] of [["light", desktop.width], ["dark", desktop.width, ["color-contrast"]], ["light", 320, []], ["light", 390, []], ["light", 820, []]]) {
      await show(scheme, width);
      for (const frame of page.frames()) {
        wrong.push(...(await frame.evaluate(examine, rules)).map((fault) => `${frame.url()} ${scheme} ${width}: ${fault}`));
      }
    }
    await scripts(false);
    for (const [scheme, width] of file ? [["light", desktop.width], ["dark", desktop.width], ["light", 390], ["dark", 390], ["light", 820]] : []) {
      await show(scheme, width);
      await page.screenshot({ path: `${file}-${width}-${scheme}.png`, fullPage: true });
    }
    await show(null, desktop.width);
    return wrong;
  },

  /** Returns what went wrong in the browser since open. */
  async faults() {
    return faults;
  },

  async close() {
    await browser?.close();
    browser = undefined;
    persons.clear();
  },
});

/** Runs in each page before its scripts: a wallet announces itself (EIP-6963). */
function announceWallet() {
  const provider = { request: ({ method, params }) => window.askWallet(method, params) };
  const info = { uuid: "5f2c4f4e-6c0b-4f3e-9d0e-0f6f2f0a1b17", name: "Test wallet", icon: "data:,", rdns: "com.example.wallet" };
  const announce = () => dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider }) }));
  addEventListener("eip6963:requestProvider", announce);
  announce();
}

/** Runs in the page, where axe is: what is too wide, and what breaks a rule of axe, of all rules unless some are named. */
async function examine(rules) {
  const { scrollWidth, clientWidth } = document.documentElement;
  const wrong = scrollWidth > clientWidth ? [`is ${scrollWidth - clientWidth} pixels too wide`] : [];
  if (rules?.length === 0) {
    return wrong;
  }
  const { violations } = await axe.run({ iframes: false, resultTypes: ["violations"], ...(rules && { runOnly: rules }) });
  for (const { id, impact, nodes } of violations) {
    if (impact === "serious" || impact === "critical") {
      wrong.push(...nodes.map((node) => `${id} (${impact}) at ${node.target}: ${node.html} ${node.failureSummary}`));
    }
  }
  return wrong;
}
