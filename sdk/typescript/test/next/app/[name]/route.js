// Every path of the application. apps.mjs serves it and says by x-front for which of its servers.
import { Toll } from "@tollhq/toll";
import { drain, paid, paymentOf, unsettledStreams } from "@tollhq/toll/next";

const sdk = { Toll, drain, paid, paymentOf, unsettledStreams };
const answer = async (request, context) => {
  const { name } = await context.params;
  return globalThis.tollFronts[request.headers.get("x-front")].answer(sdk, name, request, context);
};

export { answer as GET, answer as POST };
