// A person with a browser: chromium, one page at a time. What the person reads may be in a frame of the page.
import { chromium } from "playwright-core";
import { serve } from "./lines.mjs";

const patience = 60_000;
let browser, context, page, faults;

/** Runs try of each frame until one returns something, for a minute. */
async function inSomeFrame(what, attempt) {
  for (const end = Date.now() + patience; ; await page.waitForTimeout(50)) {
    for (const frame of page.frames()) {
      const found = await attempt(frame).catch(() => undefined); // a frame may go while it is read
      if (found) {
        return found;
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
  /** Begins with an empty browser. Requests that leave this machine are refused, and are faults. */
  async open({ program, scripts }) {
    browser ??= await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    await context?.close();
    context = await browser.newContext({ javaScriptEnabled: scripts, viewport: { width: 1000, height: 900 } });
    page = await context.newPage();
    faults = [];
    await context.route((url) => !["127.0.0.1", "localhost"].includes(url.hostname), (route) => {
      faults.push(`request to ${route.request().url()}`);
      return route.abort();
    });
    page.on("pageerror", (error) => faults.push(`${page.url()}: ${error.message}`));
    page.on("console", (message) => {
      // A declined card and the icon that no page names are answers with a status of their own.
      if (message.type() === "error" && !/Failed to load resource/.test(message.text())) {
        faults.push(`${page.url()}: ${message.text()}`);
      }
    });
  },

  /** Goes to an address, and returns the status of the answer. */
  async visit({ url }) {
    const response = await page.goto(url, { timeout: patience });
    return response?.status() ?? 0;
  },

  async type({ label, text }) {
    await (await inSomeFrame(`field ${label}`, (frame) => visible(frame.getByLabel(label)))).fill(text, { timeout: patience });
  },

  /** Presses a button, follows a link, or opens what a summary hides. */
  async press({ name }) {
    const button = await inSomeFrame(`button ${name}`, async (frame) =>
      (await visible(frame.getByRole("button", { name, exact: true }))) ||
      (await visible(frame.getByRole("link", { name, exact: true }))) ||
      visible(frame.locator("summary").getByText(name, { exact: true })));
    await button.click({ timeout: patience });
  },

  /** Waits until a page shows a text, and returns the address of the page. */
  async read({ text }) {
    await inSomeFrame(`text ${text}`, (frame) => visible(frame.getByText(text)));
    return page.url();
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
  },
});

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
