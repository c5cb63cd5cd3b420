// A stand-in for the core, for answers and failures that a real core cannot be made to give.
import { createServer } from "node:http";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * startDouble serves the answers of on[path](body, req, res), which is an object, or undefined when
 * it has answered itself. Everything that arrives is in seen.
 */
export async function startDouble(on = {}) {
  const double = { seen: [], on, token: "token-of-the-core", port: 0 };
  const answers = {
    "/gateway/v1/health": () => ({ ok: true, version: "1", registry: "r", loggedIn: true }),
    "/gateway/v1/hello": () => ({ ok: true, warnings: [] }),
    "/gateway/v1/context": () => ({}),
    "/gateway/v1/approval": () => ({ needed: false }),
  };
  const server = createServer(async (req, res) => {
    let text = "";
    const entry = { method: req.method, path: req.url, headers: req.headers, raw: req.rawHeaders };
    double.seen.push(entry);
    if (!double.on[req.url]?.streams) for await (const chunk of req) text += chunk;
    entry.text = text;
    try {
      entry.body = JSON.parse(text);
    } catch {
      // The body of a paid request may be anything.
    }
    const control = req.url.startsWith("/gateway/") && req.url !== "/gateway/v1/health";
    if (control && req.headers.authorization !== `Bearer ${double.token}`) {
      res.writeHead(401, { "content-type": "application/json" });
      res.end('{"error":"token"}');
      return;
    }
    const answer = await (double.on[req.url] ?? answers[req.url] ?? (() => ({ result: { ok: true } })))(entry.body, req, res);
    if (answer === undefined) return;
    res.writeHead(200, { "content-type": "application/json" });
    res.end(JSON.stringify(answer));
  });
  const folder = mkdtempSync(join(tmpdir(), "toll-double-"));
  const file = join(folder, "gateway.token");
  writeFileSync(file, `${double.token}\n`, { mode: 0o600 });
  const listen = () => new Promise(done => server.listen(double.port, "127.0.0.1", done));
  double.start = async () => {
    await listen();
    double.port = server.address().port;
    double.config = { coreUrl: `http://127.0.0.1:${double.port}`, coreTokenFile: file };
  };
  double.stop = () =>
    new Promise(done => {
      server.close(done);
      server.closeAllConnections();
    });
  double.end = async () => {
    await double.stop();
    rmSync(folder, { recursive: true });
  };
  double.paths = () => double.seen.map(e => e.path.replace("/gateway/v1/", ""));
  await double.start();
  return double;
}
