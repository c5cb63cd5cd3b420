// Wallets: a key with money of a chain, and unmodified clients that pay with it or sign in with it.
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { createSIWxClientExtension, createSIWxPayload, encodeSIWxHeader, wrapFetchWithSIWx } from "@x402/extensions/sign-in-with-x";
import { wrapFetchWithPayment, x402Client, x402HTTPClient } from "@x402/fetch";
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import { createWalletClient, hexToBigInt, http, numberToHex, pad, parseSignature, serializeSignature } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { serve } from "./lines.mjs";

const headersOf = (headers) => Object.fromEntries([...headers].map(([name, value]) => [name.toLowerCase(), value]));

function watch(trips) {
  return async (input, init) => {
    const request = new Request(input, init);
    const response = await fetch(request);
    trips.push({
      status: response.status,
      headers: headersOf(response.headers),
      payment: request.headers.get("payment-signature"),
      proof: request.headers.get("sign-in-with-x"),
    });
    return response;
  };
}

async function outcomeOf(trips, ask, url) {
  try {
    const response = await ask(url, { method: "POST" });
    return { trips, status: response.status, headers: headersOf(response.headers), body: await response.text() };
  } catch (error) {
    return { trips, thrown: `${error.message}` };
  }
}

function payerOf({ key, spendControls }) {
  const client = new x402Client().register("eip155:*", new ExactEvmScheme(privateKeyToAccount(key)));
  if (spendControls !== undefined) {
    client.setSpendControls(spendControls);
  }
  return client;
}

const transferTypes = {
  TransferWithAuthorization: [
    { name: "from", type: "address" },
    { name: "to", type: "address" },
    { name: "value", type: "uint256" },
    { name: "validAfter", type: "uint256" },
    { name: "validBefore", type: "uint256" },
    { name: "nonce", type: "bytes32" },
  ],
};

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n; // of secp256k1

serve({
  address: ({ key }) => privateKeyToAccount(key).address,
  /** Pays what a route costs. */
  buy(args) {
    const trips = [];
    return outcomeOf(trips, wrapFetchWithPayment(watch(trips), payerOf(args)), args.url);
  },
  /** Signs in, and never pays. */
  signIn({ key, url }) {
    const trips = [];
    return outcomeOf(trips, wrapFetchWithSIWx(watch(trips), privateKeyToAccount(key)), url);
  },
  /** Makes the value of SIGN-IN-WITH-X that answers a 402, and sends nothing. */
  async prove({ key, required, url }) {
    const { info, supportedChains } = decodePaymentRequiredHeader(required).extensions["sign-in-with-x"];
    return encodeSIWxHeader(await createSIWxPayload({ ...info, ...supportedChains[0] }, privateKeyToAccount(key), url));
  },
  /** Signs in, and pays when that is not enough. */
  signInOrPay(args) {
    const trips = [];
    const client = payerOf(args);
    client.registerExtension(createSIWxClientExtension({ signers: [privateKeyToAccount(args.key)] }));
    return outcomeOf(trips, wrapFetchWithPayment(watch(trips), new x402HTTPClient(client)), args.url);
  },
  /** Makes the value of PAYMENT-SIGNATURE that answers a 402, and sends nothing. */
  async pay(args) {
    return encodePaymentSignatureHeader(await payerOf(args).createPaymentPayload(decodePaymentRequiredHeader(args.required)));
  },
  /** Signs what a 402 asks for, with changes: members of the authorization, of the domain, and the form of the signature. */
  async authorize({ key, required, change = {}, domain = {}, form }) {
    const account = privateKeyToAccount(key);
    const { x402Version, resource, accepts, extensions } = decodePaymentRequiredHeader(required);
    const [accepted] = accepts;
    const now = Math.floor(Date.now() / 1000);
    const { lasts = 100, ...members } = change;
    const authorization = {
      from: account.address,
      to: accepted.payTo,
      value: accepted.amount,
      validAfter: "0",
      validBefore: `${now + lasts}`,
      nonce: pad(numberToHex(BigInt(now) * 1000003n + BigInt(Math.floor(Math.random() * 1e9))), { size: 32 }),
      ...members,
    };
    let signature = await account.signTypedData({
      domain: { name: accepted.extra.name, version: accepted.extra.version, chainId: 84532, verifyingContract: accepted.asset, ...domain },
      types: transferTypes,
      primaryType: "TransferWithAuthorization",
      message: authorization,
    });
    if (form === "high-s") {
      const { r, s, yParity } = parseSignature(signature);
      signature = serializeSignature({ r, s: numberToHex(ORDER - hexToBigInt(s), { size: 32 }), yParity: 1 - yParity });
    } else if (form === "v 0") {
      signature = `${signature.slice(0, -2)}0${parseInt(signature.slice(-2), 16) - 27}`;
    }
    return encodePaymentSignatureHeader({ x402Version, resource, accepted, extensions, payload: { authorization, signature } });
  },
  /** Carries an authorization out on the chain. */
  async submit({ key, chain, asset, authorization: a, signature }) {
    const account = privateKeyToAccount(key);
    const wallet = createWalletClient({ account, chain: baseSepolia, transport: http(chain) });
    const { r, s, yParity } = parseSignature(signature);
    return wallet.writeContract({
      address: asset,
      abi: [
        {
          type: "function",
          name: "transferWithAuthorization",
          stateMutability: "nonpayable",
          inputs: [
            ...transferTypes.TransferWithAuthorization,
            { name: "v", type: "uint8" },
            { name: "r", type: "bytes32" },
            { name: "s", type: "bytes32" },
          ],
          outputs: [],
        },
      ],
      functionName: "transferWithAuthorization",
      args: [a.from, a.to, BigInt(a.value), BigInt(a.validAfter), BigInt(a.validBefore), a.nonce, 27 + yParity, r, s],
    });
  },
});
