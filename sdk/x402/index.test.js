import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import test from "node:test";
import { ClientScheme, SCHEME_CARD, ServerScheme, facilitatorAt } from "./index.js";

const claims = { authorization: { from: "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", planId: "7" } };
const part = (object) => Buffer.from(JSON.stringify(object)).toString("base64url");
const jws = `${part({ alg: "EdDSA" })}.${part(claims)}.c2lnbmF0dXJl`;
const payment = JSON.stringify({ x402Version: 2, payload: { signature: jws, nonce: "0x01" }, note: "ü?>" });
const asked = (planId) => ({ scheme: "svc:erc4337", network: "eip155:84532", asset: "svc:credits", amount: "5", extra: { planId } });

test("an access token has four forms", async () => {
  for (const token of [jws, ` ${jws}\n`, payment, Buffer.from(payment).toString("base64"), Buffer.from(payment).toString("base64url")]) {
    const made = await new ClientScheme(token).createPaymentPayload(2, asked("7"));
    assert.equal(made.x402Version, 2);
    assert.equal(made.payload.signature, jws);
    assert.deepEqual(made.payload.authorization, claims.authorization);
    assert.match(made.payload.nonce, /^[0-9a-f]{32}$/);
  }
});

test("each payment has a fresh nonce, and a function is asked for each", async () => {
  const seen = [];
  const client = new ClientScheme(async (requirements) => {
    seen.push(requirements.extra.planId);
    return jws;
  });
  const nonces = new Set();
  for (let i = 0; i < 3; i++) {
    nonces.add((await client.createPaymentPayload(2, asked("7"))).payload.nonce);
  }
  assert.equal(nonces.size, 3);
  assert.deepEqual(seen, ["7", "7", "7"]);
});

test("an access token stays in the program when the plan is another, and in no error", async () => {
  await assert.rejects(new ClientScheme(jws).createPaymentPayload(2, asked("8")), /is for plan 7, but the server requires plan 8/);
  const top = { ...asked(undefined), planId: "8" };
  await assert.rejects(new ClientScheme(jws).createPaymentPayload(2, top), /requires plan 8/);
  for (const token of ["", "secret", "secret.secret", "secret.secret.secret", "{secret", undefined, 7]) {
    await assert.rejects(new ClientScheme(token).createPaymentPayload(2, asked("7")), (error) => {
      assert.match(error.message, /^the access token is malformed/);
      assert.doesNotMatch(`${error.message} ${error.stack} ${error.cause}`, /secret/);
      return true;
    });
  }
  assert.doesNotMatch(JSON.stringify(new ClientScheme(jws)), /signature|eyJ/);
});

test("credits are an asset with six decimals, of the prefix of the scheme", () => {
  const client = new ClientScheme(jws, { scheme: "acme:erc4337" });
  assert.deepEqual(client.findDefaultAsset("acme:credits", "eip155:84532"), { asset: "acme:credits", decimals: 6, symbol: "credits" });
  assert.equal(client.findDefaultAsset("svc:credits", "eip155:84532"), undefined);
  assert.equal(new ServerScheme({ planId: "7", scheme: SCHEME_CARD }).getAssetDecimals("svc:credits", "stripe:sandbox"), 6);
  assert.throws(() => new ClientScheme(jws, { scheme: "exact" }), /must have a prefix/);
});

test("a price is a whole number of credits", async () => {
  const server = new ServerScheme({ planId: "7" });
  for (const price of [5, "5", { amount: "5", asset: "svc:credits" }]) {
    const { amount, asset } = await server.parsePrice(price, "eip155:84532");
    assert.deepEqual([amount, asset], ["5", "svc:credits"]);
  }
  assert.equal((await server.parsePrice("9223372036854775807", "eip155:84532")).amount, "9223372036854775807");
  for (const price of ["$0.01", 0.5, -1, "05", "1e3", 1e21, "9223372036854775808", 2 ** 53, { amount: "5", asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e" }]) {
    await assert.rejects(server.parsePrice(price, "eip155:84532"), /whole number of credits/);
  }
});

test("plan and agent stand in extra alone", async () => {
  const kind = { x402Version: 2, scheme: "svc:erc4337", network: "eip155:84532", extra: { version: "1", creditsAsset: "svc:credits" } };
  const base = { scheme: "svc:erc4337", network: "eip155:84532", asset: "svc:credits", amount: "5", payTo: "", maxTimeoutSeconds: 60, extra: {} };
  const server = new ServerScheme({ planId: "7", agentId: "9" });
  const made = await server.enhancePaymentRequirements(base, kind, []);
  assert.deepEqual(made, { ...base, payTo: "merchant", extra: { version: "1", planId: "7", agentId: "9" } });
  const other = await server.enhancePaymentRequirements({ ...base, extra: { planId: "8", httpVerb: "POST" } }, kind, []);
  assert.deepEqual(other.extra, { version: "1", planId: "8", agentId: "9", httpVerb: "POST" });
  await assert.rejects(new ServerScheme({}).enhancePaymentRequirements(base, kind, []), /the plan id is missing/);
});

test("a base of a service becomes settings of a facilitator", async () => {
  const { url, createAuthHeaders } = facilitatorAt("https://pay.example.com/", "sandbox:key");
  assert.equal(url, "https://pay.example.com/api/v1/x402");
  const headers = { Authorization: "Bearer sandbox:key" };
  assert.deepEqual(await createAuthHeaders(), { verify: headers, settle: headers, release: headers });
});
