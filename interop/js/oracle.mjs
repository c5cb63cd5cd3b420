// Says what the software of others makes of answers.
import { HTTPFacilitatorClient } from "@x402/core/server";
import { FacilitatorResponseError, SettleError, VerifyError } from "@x402/core/types";
import { parsePaymentPayload, parsePaymentRequired } from "@x402/core/schemas";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader, decodePaymentSignatureHeader } from "@x402/core/http";
import { serve } from "./lines.mjs";

const recorded = new Map(); // answers by the address at which the client asks
globalThis.fetch = async (url) => recorded.get(new URL(url).host);
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
    return error instanceof FacilitatorResponseError ? error.message : `not understood: ${error.message}`;
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
});
