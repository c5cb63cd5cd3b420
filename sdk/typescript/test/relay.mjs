// What both the conformance tests of Node and those of other runtimes need on the side of Node.
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import http from "node:http";

export const stage = process.env.TOLL_STAGE && JSON.parse(process.env.TOLL_STAGE);
const directory = process.env.TOLL_CONFORMANCE;

/** The files, and the table of codes. */
export function material() {
  const names = readdirSync(directory).filter((n) => n.endsWith(".json"));
  const files = Object.fromEntries(names.map((n) => [n, readFileSync(`${directory}/${n}`, "utf8")]));
  return { files, codes: JSON.parse(readFileSync(`${directory}/tables/codes.json`, "utf8")), ...stage };
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });

/** Sends a request as it is said. fetch refuses several lines of a header. */
export function send({ url, method, headers, body, lines, stream }) {
  return new Promise((resolve, reject) => {
    const all = { ...headers, ...lines };
    if (body !== undefined) all["content-length"] = Buffer.byteLength(body);
    const req = http.request(url, { method, headers: all, agent }, (res) => {
      const chunks = [];
      let timer;
      const done = () => {
        clearTimeout(timer);
        const body = Buffer.concat(chunks);
        const status = res.statusCode;
        const h = new Headers();
        for (const [n, vs] of Object.entries(res.headersDistinct)) for (const v of vs) h.append(n, v);
        const response = new Response([204, 205, 304].includes(status) ? null : body, { status, headers: h });
        resolve({ status, headers: res.headersDistinct, text: body.toString(), response });
      };
      const quiet = () => {
        clearTimeout(timer);
        timer = setTimeout(() => (done(), res.destroy()), 1000);
      };
      if (stream && res.statusCode === 200) quiet();
      res.on("data", (c) => {
        chunks.push(c);
        if (timer) quiet();
      });
      res.on("end", done);
      res.on("error", reject);
    });
    req.on("error", reject);
    req.end(body);
  });
}

const bodyOf = async (req) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  return Buffer.concat(chunks);
};

/** Serves on the loopback, and returns the address. */
export async function listen(handle) {
  // The service refuses headers that are too long, and not this server.
  const server = http.createServer({ maxHeaderSize: 1 << 20 }, (req, res) => {
    handle(req, res).catch((e) => res.writeHead(500).end(String(e?.stack ?? e)));
  });
  server.unref();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}`;
}

/** Answers 204 to every POST, and at /received what came to a path. */
export function receiver() {
  const received = [];
  return listen(async (req, res) => {
    const url = new URL(req.url, "http://receiver");
    if (url.pathname === "/received") {
      res.setHeader("content-type", "application/json");
      return res.end(JSON.stringify(received.filter((r) => r.path === url.searchParams.get("path"))));
    }
    received.push({ path: url.pathname, headers: req.headers, body: JSON.parse((await bodyOf(req)).toString()) });
    res.writeHead(204).end();
  });
}

/**
 * Passes on a request of a runtime to the address in x-relay-url, as it came but for what x-relay-more says: fetch of a
 * browser sends some headers itself, and reads few of another server.
 */
export async function relay(req, res) {
  const body = await bodyOf(req);
  const { "x-relay-url": url, "x-relay-more": more } = req.headers;
  const { lines, stream } = JSON.parse(Buffer.from(more, "base64"));
  const headers = {};
  for (const [n, v] of Object.entries(req.headers)) {
    if (!/^(x-relay-|sec-|cf-|accept|connection|host|origin|referer|content-length|transfer-encoding|user-agent)/.test(n)) headers[n] = v;
  }
  const sent = body.length || headers["content-type"] ? body : undefined;
  const a = await send({ url, method: req.method, headers, body: sent, lines, stream });
  for (const [n, v] of Object.entries(a.headers)) {
    if (!/^(connection|transfer-encoding|content-length|keep-alive)$/.test(n)) res.setHeader(n, v);
  }
  res.setHeader("x-relay-headers", Buffer.from(JSON.stringify(a.headers)).toString("base64"));
  res.writeHead(a.status).end(a.text);
}
