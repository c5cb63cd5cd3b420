// An agent that kills itself at a moment of a paid request: killed.mjs FRAMEWORK MOMENT PLAN.
import { start } from "./apps.mjs";

const [, , name, moment, planId] = process.argv;
const die = () => process.kill(process.pid, "SIGKILL");
const service = {
  url: process.env.TOLL_URL,
  planId,
  agentId: undefined,
  key: async () => ({ key: process.env.TOLL_API_KEY }),
};
const more = { agent: undefined, log: () => undefined };
const front = await start(name, service, more);
const { faults, state } = front;
// Each moment ends the process before the next step is awaited.
const never = () => new Promise(() => die());
faults.after = (op) => {
  if (op === "verify" && moment === "after verify") return never();
  if (op === "settle" && moment === "after settle") return never();
  return undefined;
};
faults.before = (op) => (op === "settle" && moment === "before settle" ? never() : undefined);
if (moment === "in the handler") state.entered.promise.then(die);
console.log(`listens on ${front.port}`);
