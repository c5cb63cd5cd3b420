// The paid endpoint: requests of others are streamed to the core, which verifies and settles.
import type { IncomingMessage, ServerResponse } from "node:http";
import registry from "./registry.json" with { type: "json" };
import type { Link } from "./link.js";

const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);
const never = new Set(["authorization", "cookie", "expect", "host", "set-cookie", "settlement-overrides"]);

/** forwarded returns the headers that pass the plugin, with repeated headers kept apart. */
export function forwarded(raw: string[]): Record<string, string[]> {
  const named = new Set<string>();
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.toLowerCase() !== "connection") continue;
    for (const name of (raw[i + 1] ?? "").split(",")) named.add(name.trim().toLowerCase());
  }
  const out: Record<string, string[]> = {};
  for (let i = 0; i < raw.length; i += 2) {
    const name = (raw[i] ?? "").toLowerCase();
    if (hopByHop.has(name) || named.has(name) || never.has(name) || name.startsWith("x-openclaw-")) continue;
    (out[name] ??= []).push(raw[i + 1] ?? "");
  }
  return out;
}

/** paidHandler returns the handler of the route at path. It answers 502 while the core is down. */
export function paidHandler(link: Link, path: string) {
  return async (req: IncomingMessage, res: ServerResponse): Promise<boolean> => {
    await link.ready().catch(() => {}); // the core says itself that it is not configured
    if (res.destroyed || req.destroyed) return true; // the caller is gone
    await new Promise<void>((done) => {
      const upstream = link.core.open(path, {
        method: req.method ?? "POST",
        headers: { ...forwarded(req.rawHeaders), host: link.core.url.host },
      });
      upstream.on("response", (answer) => {
        res.writeHead(answer.statusCode ?? 502, answer.statusMessage, forwarded(answer.rawHeaders));
        answer.pipe(res);
        answer.on("error", () => res.destroy());
      });
      upstream.on("error", () => {
        if (res.headersSent) {
          res.destroy();
          return;
        }
        res.writeHead(502, { "content-type": "application/json", "cache-control": "no-store" });
        res.end(JSON.stringify({ error: `the core of ${registry.plugin.id} cannot be reached` }));
      });
      // The core finishes a request whose caller is gone; only the transfer ends here.
      res.on("close", () => {
        if (!res.writableFinished) upstream.destroy();
        done();
      });
      req.pipe(upstream);
    });
    return true;
  };
}
