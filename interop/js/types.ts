// Compiled only: the plug-in is what the software that takes it asks for.
import type { SchemeNetworkClient, SchemeNetworkServer } from "@x402/core/types";
import { HTTPFacilitatorClient, x402ResourceServer } from "@x402/core/server";
import { x402Client } from "@x402/core/client";
import { ClientScheme, SCHEME_CARD, ServerScheme, facilitatorAt } from "@tollhq/x402";

const client: SchemeNetworkClient = new ClientScheme("token");
new x402Client().register("eip155:84532", client).register("stripe:sandbox", new ClientScheme(async () => "token", { scheme: SCHEME_CARD }));

const facilitator = facilitatorAt("https://pay.example.com", "key");
const server: SchemeNetworkServer = new ServerScheme({ facilitator, planId: "7", agentId: "9" });
new x402ResourceServer(new HTTPFacilitatorClient(facilitator)).register("eip155:84532", server);
