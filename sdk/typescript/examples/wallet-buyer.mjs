// A buyer that pays in USDC from a wallet: WALLET_KEY=0x… node wallet-buyer.mjs http://127.0.0.1:8403/ask "how are you"
import { hostOf, payingFetch, PaymentError } from "@tollhq/toll/fetch";
import { privateKeyToAccount } from "viem/accounts";

const [url, text] = process.argv.slice(2);
const cent = 10_000n; // USDC has six decimals
const pay = payingFetch({
  wallet: privateKeyToAccount(process.env.WALLET_KEY),
  limits: { hosts: [hostOf(url)], moneyPerCall: 5n * cent, money: 100n * cent },
});
try {
  const answer = await pay(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ text }),
  });
  console.log(answer.status, await answer.text());
  for (const p of pay.budget.payments) console.log(p.state, p.spent, p.unit, p.transaction);
} catch (e) {
  if (!(e instanceof PaymentError)) throw e;
  console.error(e.message);
  process.exitCode = 1;
}
