// Says what the software of others makes of answers.
import { HTTPFacilitatorClient } from "@x402/core/server";
import { FacilitatorResponseError, SettleError, VerifyError } from "@x402/core/types";
import { parsePaymentPayload, parsePaymentRequired } from "@x402/core/schemas";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader, decodePaymentSignatureHeader } from "@x402/core/http";
import { withBazaar } from "@x402/extensions/bazaar";
import {
  decodeSignedOffers,
  extractJWSHeader,
  extractOffersFromPaymentRequired,
  extractReceiptFromResponse,
  findAcceptsObjectFromSignedOffer,
  verifyOfferSignatureJWS,
  verifyReceiptMatchesOffer,
  verifyReceiptSignatureJWS,
} from "@x402/extensions/offer-receipt";
import { serve } from "./lines.mjs";

const recorded = new Map(); // answers by the address at which the client asks
const network = globalThis.fetch;
globalThis.fetch = async (url, init) => recorded.get(new URL(url).host) ?? network(url, init);
let asked = 0;

const methods = { verify: "verify", settle: "settle", supported: "getSupported" };

/** Gives a recorded answer of a facilitator to the client that servers use, whose schemas judge it. */
async function answerOf({ operation, status, headers, body }) {
  const host = `f${asked++}.invalid`;
  recorded.set(host, new Response(body, { status, headers }));
  try {
    await new HTTPFacilitatorClient({ url: `http://${host}` })[methods[operation]]({ x402Version: 2 }, {});
  } catch (error) {
    if (error instanceof VerifyError || error instanceof SettleError) {
      return undefined; // a refusal that is understood
    }
    return error instanceof FacilitatorResponseError ? error.message : `the response cannot be read: ${error.message}`;
  }
}

function headerOf({ name, value }) {
  try {
    switch (name) {
      case "payment-required":
        return parsePaymentRequired(decodePaymentRequiredHeader(value)).error?.message;
      case "payment-signature":
        return parsePaymentPayload(decodePaymentSignatureHeader(value)).error?.message;
      case "payment-response":
        return typeof decodePaymentResponseHeader(value).success === "boolean" ? undefined : "no receipt";
    }
  } catch (error) {
    return error.message;
  }
}

serve({
  /** Returns what is wrong with answers of the facilitator and with headers, in words; nothing when they are understood. */
  async judge({ answers, headers }) {
    const faults = [];
    for (const answer of answers ?? []) {
      const fault = await answerOf(answer);
      if (fault) {
        faults.push(`${answer.operation} ${answer.status}: ${fault}`);
      }
    }
    for (const header of headers ?? []) {
      const fault = headerOf(header);
      if (fault) {
        faults.push(`${header.name}: ${fault}`);
      }
    }
    return faults;
  },
  /** Verifies the offer of a 402 and the receipt of an answer with the keys of did.json. */
  async statements({ required, response, did, payer, resource }) {
    const faults = [];
    const keyOf = ({ signature }) => {
      const { kid } = extractJWSHeader(signature);
      const method = did.verificationMethod.find(({ id }) => id === kid);
      if (!method || !did.assertionMethod.includes(kid)) {
        throw new Error(`did.json has no key ${kid}`);
      }
      return method.publicKeyJwk;
    };
    const asked = decodePaymentRequiredHeader(required);
    const [offer] = decodeSignedOffers(extractOffersFromPaymentRequired(asked));
    const terms = await verifyOfferSignatureJWS(offer.signedOffer, keyOf(offer.signedOffer));
    if (terms.resourceUrl !== resource || terms.amount !== "5" || !findAcceptsObjectFromSignedOffer(offer, asked.accepts)) {
      faults.push(`wrong offer: ${JSON.stringify(terms)}`);
    }
    const receipt = extractReceiptFromResponse(new Response(null, { headers: { "payment-response": response } }));
    const paid = await verifyReceiptSignatureJWS(receipt, keyOf(receipt));
    if (paid.transaction !== decodePaymentResponseHeader(response).transaction) {
      faults.push(`receipt ${JSON.stringify(paid)}`);
    }
    // The clock of the service may be ahead of this one, as scenes move it.
    if (!verifyReceiptMatchesOffer(receipt, offer, [payer])) {
      faults.push(`receipt ${JSON.stringify(paid)} does not match offer ${JSON.stringify(terms)}`);
    }
    return faults;
  },
  /** Lists the catalogue, or searches it. */
  async catalogue({ service, payTo, query }) {
    const { bazaar } = withBazaar(new HTTPFacilitatorClient({ url: `${service}/api/v1/x402` })).extensions;
    const found = query ? await bazaar.search({ query, payTo, limit: 100 }) : await bazaar.listResources({ payTo, type: "http", limit: 100 });
    return found.items ?? found.resources;
  },
});
