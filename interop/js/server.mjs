// E: servers of @x402/express with one paid route, POST /ask.
import express from "express";
import { HTTPFacilitatorClient } from "@x402/core/server";
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from "@x402/express";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { ServerScheme, facilitatorAt } from "@tollhq/x402";
import { serve } from "./lines.mjs";

const servers = new Map();

/** The plug-in, with the changes that a scene asks for. */
function schemeOf(args, facilitator) {
  if (args.scheme === "exact") {
    return new ExactEvmScheme();
  }
  const scheme = new ServerScheme({
    facilitator: args.noCancelHook ? undefined : facilitator,
    planId: args.planId,
    agentId: args.agentId,
    scheme: args.scheme,
  });
  if (args.upfront) {
    scheme.paymentFlows = { default: { supported: ["authorization", "upfront"], default: "authorization" } };
  }
  if (args.topLevelPlan) {
    const enhance = scheme.enhancePaymentRequirements.bind(scheme);
    scheme.enhancePaymentRequirements = async (...given) => ({ ...(await enhance(...given)), planId: args.planId });
  }
  return scheme;
}

async function open(args) {
  const facilitator = facilitatorAt(args.service, args.key);
  const resourceServer = new x402ResourceServer(new HTTPFacilitatorClient(facilitator));
  resourceServer.register(args.network, schemeOf(args, facilitator));
  const server = { runs: 0, waiting: [], pass: [] };
  const app = express();
  app.use(
    paymentMiddleware(
      {
        "POST /ask": {
          accepts: {
            scheme: args.scheme,
            network: args.network,
            price: args.price,
            payTo: args.payTo,
            maxTimeoutSeconds: args.maxTimeoutSeconds,
            extra: args.upfront ? { httpVerb: "POST", paymentFlow: "upfront" } : { httpVerb: "POST" },
          },
          resource: args.resource,
          description: "Ask the agent",
          mimeType: "application/json",
          extensions: args.extensions,
        },
      },
      resourceServer,
    ),
  );
  app.post("/ask", async (_request, response) => {
    server.runs++;
    if (args.pause) {
      await new Promise((pass) => {
        server.pass.push(pass);
        server.waiting.splice(0).forEach((arrived) => arrived());
      });
    }
    if (args.override) {
      setSettlementOverrides(response, { amount: args.override });
    }
    response.status(args.status || 200).json({ answer: 42 });
  });
  const listener = await new Promise((ready, failed) => {
    const l = app.listen(0, "127.0.0.1", (error) => (error ? failed(error) : ready(l)));
  });
  server.close = () => {
    listener.close();
    listener.closeAllConnections();
  };
  const url = `http://127.0.0.1:${listener.address().port}`;
  servers.set(url, server);
  return url;
}

serve({
  open,
  close({ url }) {
    servers.get(url).close();
    servers.delete(url);
  },
  runs: ({ url }) => servers.get(url).runs,
  /** Returns when a handler that pauses was reached. */
  async reached({ url }) {
    const server = servers.get(url);
    if (server.pass.length === 0) {
      await new Promise((arrived) => server.waiting.push(arrived));
    }
  },
  /** Lets handlers go on that pause. */
  pass({ url }) {
    servers.get(url).pass.splice(0).forEach((pass) => pass());
  },
});
