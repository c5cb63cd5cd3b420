// Runs the conformance files in a runtime that has fetch alone, such as a Worker or a page of a browser.
import { payingFetch } from "@tollhq/toll/fetch";
import { runsOf } from "./conformance.mjs";

/** Headers that a browser sends itself. */
const own = ["accept", "accept-encoding", "access-control-request-method", "cookie", "origin"];
const decode = (text) => new TextDecoder().decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));

/** Returns for each run "" or why it failed. `origin` is where runtimes.test.mjs serves. */
export async function conform(origin) {
  const o = await (await fetch(`${origin}/material`)).json();
  let calls = 0;
  const send = async ({ url, method, headers, body, lines, stream }) => {
    const more = { lines: { ...lines }, stream };
    const sent = { ...headers };
    for (const n of own) {
      if (n in sent) more.lines[n] ??= sent[n];
      delete sent[n];
    }
    for (const n of Object.keys(more.lines)) delete sent[n];
    Object.assign(sent, { "x-relay-url": url, "x-relay-more": btoa(JSON.stringify(more)) });
    // As bytes: fetch names the type of a text that is sent without one.
    const bytes = body === undefined ? {} : { body: new TextEncoder().encode(body) };
    const init = { method, headers: sent, redirect: "manual", ...bytes };
    // An address for each: a browser keeps answers that may be kept.
    const response = await fetch(`${origin}/relay?${++calls}`, init);
    const text = await response.clone().text();
    const lined = JSON.parse(decode(response.headers.get("x-relay-headers") ?? btoa("{}")));
    return { status: response.status, headers: lined, text, response };
  };
  const results = {};
  const runs = runsOf({ ...o, send });
  const one = async (r) => {
    results[r.name] = await r.pass().then(() => "", (e) => String(e?.stack ?? e));
  };
  const early = runs.filter((r) => !r.clock);
  await Promise.all(Array.from({ length: 5 }, async () => {
    for (let r; (r = early.shift()); ) await one(r);
  }));
  for (const r of runs) if (r.clock) await one(r);
  return results;
}

/** Buys an answer with an access token, and returns what it said and cost. */
export async function buy(url, token) {
  const limits = { hosts: [new URL(url).host], creditsPerCall: 5n, credits: 5n };
  const pay = payingFetch({ token, limits });
  const answer = await pay(url, { method: "POST", body: "?" });
  return `${answer.status} ${await answer.text()} ${pay.budget.spent()}`;
}
