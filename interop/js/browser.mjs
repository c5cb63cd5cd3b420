// Persons with browsers: chromium, one page at a time. What a person reads may be in a frame of the page.
import { chromium } from "playwright-core";
import { privateKeyToAccount } from "viem/accounts";
import { serve } from "./lines.mjs";

const patience = 60_000;
const persons = new Map(); // by name: context and page
let browser, context, page;
let faults = [];

/** Runs attempts, each in all frames, until one returns something, for a minute. */
async function inSomeFrame(what, attempts) {
  for (const end = Date.now() + patience; ; await page.waitForTimeout(50)) {
    for (const attempt of [attempts].flat()) {
      for (const frame of page.frames()) {
        const found = await attempt(frame).catch(() => undefined); // a frame may go while it is read
        if (found) {
          return found;
        }
      }
    }
    if (Date.now() > end) {
      const text = await page.locator("body").innerText().catch(() => "");
      throw new Error(`${what}: not there on ${page.url()}:\n${text.slice(0, 2000)}`);
    }
  }
}

const visible = (locator) => locator.first().isVisible().then((is) => is && locator.first());

serve({
  /**
   * Gives a person an empty browser, in place of one that they had. Requests that leave this machine are refused, and are faults.
   * With scripts the browser has an authenticator for passkeys, and with the key of a wallet a wallet that signs what it is asked.
   */
  async open({ program, scripts, person, wallet }) {
    browser ??= await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    await persons.get(person)?.context.close();
    context = await browser.newContext({ javaScriptEnabled: scripts, viewport: { width: 1000, height: 900 } });
    page = await context.newPage();
    persons.set(person, { context, page });
    faults = [];
    await context.route((url) => !["127.0.0.1", "localhost"].includes(url.hostname), (route) => {
      faults.push(`request to ${route.request().url()}`);
      return route.abort();
    });
    const at = page;
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
    if (scripts) {
      const tools = await context.newCDPSession(page);
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
    ({ context, page } = persons.get(person));
  },

  /** Goes to an address, and returns the status of the answer. */
  async visit({ url }) {
    const response = await page.goto(url, { timeout: patience });
    return response?.status() ?? 0;
  },

  async type({ label, text }) {
    await (await inSomeFrame(`field ${label}`, (frame) => visible(frame.getByLabel(label)))).fill(text, { timeout: patience });
  },

  /**
   * Presses a button, follows a link, or opens what a summary hides. A button that says more than the name, to readers of
   * screens, is pressed when no frame has one that says it alone.
   */
  async press({ name }) {
    const button = await inSomeFrame(`button ${name}`, [
      async (frame) =>
        (await visible(frame.getByRole("button", { name, exact: true }))) ||
        (await visible(frame.getByRole("link", { name, exact: true }))) ||
        visible(frame.locator("summary").getByText(name, { exact: true })),
      (frame) => visible(frame.getByRole("button", { name })),
    ]);
    await button.click({ timeout: patience });
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

  /** Shows the page light, dark and on a telephone, takes pictures of it when file is given, and returns what is wrong with it. */
  async look({ file }) {
    const wrong = [];
    for (const [name, scheme, width] of [["light", "light", 1000], ["dark", "dark", 1000], ["narrow", "light", 320]]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 900 });
      for (const frame of page.frames()) {
        wrong.push(...(await frame.evaluate(examine)).map((fault) => `${frame.url()} ${name}: ${fault}`));
      }
      if (file) {
        await page.screenshot({ path: `${file}-${name}.png`, fullPage: true });
      }
    }
    await page.emulateMedia({ colorScheme: null });
    await page.setViewportSize({ width: 1000, height: 900 });
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

/** Runs in the page: what a person could not read, reach or name. Contrast as WCAG 2 counts it, 4.5 to 1. */
function examine() {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    wrong.push(`is ${root.scrollWidth - root.clientWidth} pixels too wide`);
  }
  const parse = (color) => (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const canvas = matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(root).colorScheme.includes("dark") ? [18, 18, 18] : [255, 255, 255];
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) {
        return color;
      }
    }
    return canvas;
  };
  for (const element of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(element);
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!own || style.visibility === "hidden" || !element.getClientRects().length || element.classList.contains("unseen")) {
      continue;
    }
    const [a, b] = [light(parse(style.color)), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) {
      wrong.push(`"${element.textContent.trim().slice(0, 40)}" is ${style.color} on ${behind(element)}`);
    }
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, iframe")) {
    if (!field.labels?.length && !field.title && !field.getAttribute("aria-label")) {
      wrong.push(`a field ${field.name || field.tagName} has no name`);
    }
  }
  return wrong;
}
