// Deliveries of webhooks of the past, of the future and of earlier secrets, by the table that the clients of all languages share.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AuthError, verifyWebhook } from "@tollhq/toll";

test("webhooks: the table of times that the clients of all languages share", async () => {
  const table = JSON.parse(readFileSync(`${process.env.TOLL_CONFORMANCE ?? "../../testdata/conformance"}/tables/delivery-times.json`, "utf8"));
  assert.ok(table.cases.length > 20);
  for (const c of table.cases) {
    const headers = { "service-webhook-id": c.id, "service-webhook-timestamp": c.timestamp, "service-webhook-signature": c.signatures };
    const read = verifyWebhook(c.body, headers, table.secrets, { now: table.now * 1000 });
    if (c.good) assert.equal((await read).id, c.id, c.name);
    else await assert.rejects(read, AuthError, c.name);
  }
});
