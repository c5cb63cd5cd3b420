// A buyer that pays agents within a budget: node buyer.mjs http://127.0.0.1:8403 "how are you"
import { Toll } from "@tollhq/toll";
import { hostOf, payingFetch, PaymentError } from "@tollhq/toll/fetch";

const [agent, text] = process.argv.slice(2);
const pay = payingFetch({
  toll: new Toll(), // TOLL_API_KEY, TOLL_URL
  limits: { hosts: [hostOf(agent)], creditsPerCall: 5n, creditsPerDay: 50n, credits: 100n },
});
try {
  const answer = await pay(`${agent}/ask`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ text }),
  });
  if (!answer.ok) throw new Error(`the agent responded with status ${answer.status}: ${await answer.text()}`);
  console.log((await answer.json()).text);
  console.log(`${pay.budget.spent()} credits spent`);
} catch (e) {
  if (!(e instanceof PaymentError)) throw e;
  console.error(e.message);
  process.exitCode = 1;
}
