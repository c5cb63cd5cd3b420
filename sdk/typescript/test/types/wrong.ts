// Programs that must not compile: each line after a directive has one mistake. tsc alone reads this file.
import { credit, price, Toll, TollError } from "@tollhq/toll";

const toll = new Toll();
// @ts-expect-error another currency
price.fiat(5_000_000n, undefined, "GBP");
// @ts-expect-error an unknown right
await toll.keys.create({ rights: ["reed"] });
// @ts-expect-error an unknown member
await toll.payments.searchResources("x", { limitt: 4 });
// @ts-expect-error an unknown member
await toll.payments.resources({ cursor: "x" });
// @ts-expect-error a state in other case
await toll.tokens.list({ status: "active" });
// @ts-expect-error a state of another record
await toll.webhooks.list({ status: "succeeded" });
// @ts-expect-error an order of another list
await toll.orders.list({ sortBy: "name" });
// @ts-expect-error an unknown verb
await toll.agents.addEndpoints("1", { endpoints: [{ FETCH: "https://agent.example.com/" }] });
// @ts-expect-error an unknown price type
await toll.plans.register({ name: "x", priceConfig: { priceType: "FIX" }, creditsConfig: credit.fixed(1n) });
// @ts-expect-error an unknown credits type
await toll.plans.register({ name: "x", priceConfig: price.free(), creditsConfig: { creditsType: "FIX" } });
// @ts-expect-error an unknown provider
await toll.delegations.create({ provider: "strip" });

const key = await toll.keys.get("x");
// @ts-expect-error no state of a key
if (key.status === "Exhausted") throw new Error();
const permission = await toll.tokens.get("x");
// @ts-expect-error no state of a permission
if (permission.status === "active") throw new Error();
const settlement = await toll.payments.get("x");
// @ts-expect-error no state of a request
if (settlement.status === "Settled") throw new Error();
const credits: bigint | undefined = settlement.receipt?.creditsRedeemed;
const delivery = (await toll.webhooks.deliveries("x").page()).items[0];
// @ts-expect-error no state of a delivery
if (delivery?.status === "sent") throw new Error();

// Later releases can add values, so that every text is allowed.
const order = await toll.orders.get("x");
if (order.currency === "GBP") throw new Error(String(credits));
try {
  await toll.meta.info();
} catch (e) {
  if (e instanceof TollError && e.category === "other") throw e;
}
