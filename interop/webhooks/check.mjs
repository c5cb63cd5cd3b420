// Checks a delivery with the packages standardwebhooks and svix, and calls the card double with stripe-node's defaults.
import Stripe from "stripe";
import { Webhook as Standard } from "standardwebhooks";
import { Webhook as Svix } from "svix";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const { deliveries, secrets, double } = JSON.parse(text);

const verdicts = [];
for (const { headers, body } of deliveries) {
  for (const secret of secrets) {
    for (const Verifier of [Standard, Svix]) {
      try {
        new Verifier(secret).verify(body, headers);
        verdicts.push(JSON.parse(body).id);
      } catch (error) {
        verdicts.push(`refused: ${error.message}`);
      }
    }
  }
}

const url = new URL(double);
const stripe = new Stripe("sk_test_interop", { host: url.hostname, port: url.port, protocol: "http" });
const customer = await stripe.customers.create({ name: "Ann" });
const again = await stripe.customers.retrieve(customer.id);
console.log(JSON.stringify({ verdicts, customer: again.name, version: customer.lastResponse.apiVersion }));
