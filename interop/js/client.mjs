// C: clients of @x402/fetch and @x402/axios with the plug-in.
import axios from "axios";
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import { wrapAxiosWithPayment, x402Client as AxiosClient } from "@x402/axios";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ClientScheme } from "@tollhq/x402";
import { serve } from "./lines.mjs";

/** The plug-in, with the changes that a scene asks for. */
function schemeOf(args) {
  const scheme = new ClientScheme(args.token, { scheme: args.scheme });
  if (args.noDefaultAsset) {
    scheme.findDefaultAsset = undefined;
  }
  const create = scheme.createPaymentPayload.bind(scheme);
  scheme.createPaymentPayload = async (version, requirements, context) => {
    if (args.anyPlan) {
      requirements = { ...requirements, planId: undefined, extra: { ...requirements.extra, planId: undefined } };
    }
    const made = await create(version, requirements, context);
    if (args.nonce !== undefined) {
      made.payload.nonce = args.nonce ?? undefined;
    }
    if (args.paymentIdentifier) {
      made.extensions = { "payment-identifier": { info: { id: args.paymentIdentifier } } };
    }
    return made;
  };
  return scheme;
}

function clientOf(args, Client) {
  const client = new Client().register(args.network, schemeOf(args));
  if (args.spendControls !== undefined) {
    client.setSpendControls(args.spendControls);
  }
  return client;
}

const headersOf = (headers) => Object.fromEntries([...headers].map(([name, value]) => [name.toLowerCase(), value]));

serve({
  /** Asks with payment, as a user of the library does. trips are the answers of the server on the way. */
  async fetch(args) {
    const trips = [];
    const watched = async (input, init) => {
      const request = new Request(input, init);
      const payment = request.headers.get("payment-signature");
      const response = await fetch(request);
      trips.push({ status: response.status, headers: headersOf(response.headers), payment });
      return response;
    };
    const paid = wrapFetchWithPayment(watched, clientOf(args, x402Client));
    try {
      const response = await paid(args.url, { method: "POST", body: "{}", headers: { "content-type": "application/json" } });
      return { trips, status: response.status, headers: headersOf(response.headers), body: await response.text() };
    } catch (error) {
      return { trips, thrown: `${error.message}` };
    }
  },
  async axios(args) {
    const trips = [];
    const instance = axios.create();
    const watch = ({ status, headers, config }) =>
      trips.push({ status, headers: headersOf(Object.entries(headers)), payment: config.headers.get("PAYMENT-SIGNATURE") });
    instance.interceptors.response.use(
      (response) => (watch(response), response),
      (error) => (error.response && watch(error.response), Promise.reject(error)),
    );
    const paid = wrapAxiosWithPayment(instance, clientOf(args, AxiosClient));
    try {
      const response = await paid.post(args.url, "{}", {
        headers: { "content-type": "application/json" },
        validateStatus: (status) => status !== 402,
        responseType: "text",
        transformResponse: (text) => text,
      });
      return { trips, status: response.status, headers: headersOf(Object.entries(response.headers)), body: response.data };
    } catch (error) {
      if (!error.response) {
        return { trips, thrown: `${error.message}` };
      }
      return { trips, status: error.response.status, headers: headersOf(Object.entries(error.response.headers)), body: error.response.data };
    }
  },
  /** Makes the value of PAYMENT-SIGNATURE that answers a 402, and sends nothing. */
  async pay(args) {
    const payload = await clientOf(args, x402Client).createPaymentPayload(decodePaymentRequiredHeader(args.required));
    return encodePaymentSignatureHeader(payload);
  },
});
