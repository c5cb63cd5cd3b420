// A client of the TypeScript SDK. It takes one command as JSON in its first argument and prints one JSON object a line.
import { createInterface } from "node:readline";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

// url and headers, or command, args and env, are those of an MCP host's settings.
const { url, headers, command, args, env, signIn, calls, reconnect } = JSON.parse(process.argv[2]);
const say = (what) => console.log(JSON.stringify(what));

// A provider of the SDK as an application writes it: it keeps what it is given, and a person opens the page.
class Provider {
  redirectUrl = signIn?.callback;
  clientMetadata = {
    client_name: "Test of the TypeScript SDK", redirect_uris: [signIn?.callback], grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"], token_endpoint_auth_method: "none",
  };
  state() { return "state-of-the-client"; }
  clientInformation() { return this.client; }
  saveClientInformation(c) { this.client = c; }
  tokens() { return this.saved; }
  saveTokens(t) { this.saved = t; say({ tokens: { type: t.token_type, expires: t.expires_in, refresh: Boolean(t.refresh_token) } }); }
  redirectToAuthorization(to) { say({ open: to.href }); }
  saveCodeVerifier(v) { this.verifier = v; }
  codeVerifier() { return this.verifier; }
}

const provider = signIn ? new Provider() : undefined;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const open = async () => {
  const client = new Client({ name: "interop", version: "1.0.0" });
  const transport = command ? new StdioClientTransport({ command, args, env })
    : new StreamableHTTPClientTransport(new URL(url), { authProvider: provider, requestInit: { headers } });
  try {
    await client.connect(transport);
  } catch (e) {
    if (!provider || !(e instanceof UnauthorizedError)) throw e;
    await transport.finishAuth((await lines.next()).value);
    return open();
  }
  return client;
};

let client = await open();
say({ tools: (await client.listTools()).tools.map((t) => t.name) });
for (const [i, c] of calls.entries()) {
  if (reconnect === i) {
    await client.close();
    client = await open();
  }
  try {
    say({ result: await client.request({ method: c.method, params: c.params }, { parse: (r) => r, safeParse: (data) => ({ success: true, data }) }) });
  } catch (e) {
    say({ error: { code: e.code, message: e.message, data: e.data } });
  }
}
await client.close();
process.exit(0);
