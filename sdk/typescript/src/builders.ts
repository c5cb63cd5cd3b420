import { codes, ValidationError } from "./errors.js";
import type { CreditsInput, PriceInput } from "./generated.js";

const zero = `0x${"0".repeat(40)}`;
const eurcLive = "0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42";
const payAsYouGoTemplate = "0x1FCcaBF8D461cCc8259CB09aE54b4Ff9a90718B3";

const isZero = (address: string): boolean => /^0x0*$/i.test(address);

function bad(path: string, message: string): never {
  throw new ValidationError({ code: "BCK.PROTOCOL.0904", message, params: { path } });
}

function whole(n: bigint, name: string): bigint {
  if (typeof n !== "bigint" || n < 0n) {
    throw new ValidationError({
      code: codes.badRequest,
      message: `${name} must be a bigint of 0 or more, such as 100n; got ${String(n)}.`,
    });
  }
  return n;
}

function to(
  amount: bigint,
  receiver: string | undefined,
  isCrypto: boolean,
  tokenAddress = zero,
): PriceInput {
  if (receiver !== undefined && isZero(receiver)) {
    bad("receivers[0]", "The zero address cannot receive payments.");
  }
  return {
    tokenAddress,
    amounts: [whole(amount, "amount")],
    ...(receiver === undefined ? {} : { receivers: [receiver] }),
    contractAddress: zero,
    feeController: zero,
    externalPriceAddress: zero,
    templateAddress: zero,
    isCrypto,
  };
}

function credits(
  amount: bigint,
  min: bigint,
  max: bigint,
  fixed: boolean,
  secs = 0n,
): CreditsInput {
  return {
    isRedemptionAmountFixed: fixed,
    redemptionType: 4,
    onchainMirror: false,
    durationSecs: whole(secs, "duration"),
    amount: whole(amount, "credits"),
    minAmount: whole(min, "credits per request"),
    maxAmount: whole(max, "credits per request"),
  };
}

/** Currency of a card price, in either case. */
export type FiatCurrency = "USD" | "EUR" | "usd" | "eur";

/**
 * Builders of prices. Amounts are bigints in base units: 6 decimals for USDC, EURC and cards
 * (2000000n is 2.00), 18 for the native token. The receiver defaults to the wallet of the workspace
 * that registers the plan. Errors: ValidationError for the zero address as receiver.
 */
export const price = {
  /** A free plan. */
  free: (): PriceInput => ({
    tokenAddress: zero,
    amounts: [],
    receivers: [],
    contractAddress: zero,
    feeController: zero,
    externalPriceAddress: zero,
    templateAddress: zero,
    isCrypto: true,
  }),
  /** A card price in USD or EUR, default USD. */
  fiat(amount: bigint, receiver?: string, currency: FiatCurrency = "USD"): PriceInput {
    const c = currency.toUpperCase();
    if (c !== "USD" && c !== "EUR") {
      bad("currency", `currency must be USD or EUR; got ${currency}.`);
    }
    return { ...to(amount, receiver, false), currency: c };
  },
  /** A price in base units of a token, by default the native token. */
  crypto: (amount: bigint, receiver?: string, token = zero): PriceInput =>
    to(amount, receiver, true, token),
  /** A price in base units of the native token. */
  native: (amount: bigint, receiver?: string): PriceInput => to(amount, receiver, true),
  /** A price in base units of an ERC-20 token. The token comes before the receiver. */
  erc20(amount: bigint, token: string, receiver?: string): PriceInput {
    if (isZero(token)) {
      bad("tokenAddress", "The zero address is the native token: use price.native.");
    }
    return to(amount, receiver, true, token);
  },
  /** A price in base units of EURC. The service uses the EURC token of its network. */
  eurc: (amount: bigint, receiver?: string, eurc = eurcLive): PriceInput => ({
    ...to(amount, receiver, true, isZero(eurc) ? eurcLive : eurc),
    currency: "EURC",
  }),
  /** The price of one credit, for a plan whose credits are bought per request. */
  payAsYouGo: (amount: bigint, receiver?: string, token = zero): PriceInput => ({
    ...to(amount, receiver, true, token),
    templateAddress: payAsYouGoTemplate,
  }),
};

/** Builders of credits. All numbers are bigints of at least 1. */
export const credit = {
  /** Each request burns `perRequest` credits. */
  fixed: (granted: bigint, perRequest = 1n): CreditsInput =>
    credits(granted, perRequest, perRequest, true),
  /** Each request burns an amount that the seller chooses, from `least` to `most`. */
  dynamic: (granted: bigint, least: bigint, most: bigint): CreditsInput =>
    credits(granted, least, most, false),
  /** For plans with price.payAsYouGo. */
  payAsYouGo: (): CreditsInput => credits(1n, 1n, 1n, false),
  /** A plan that sells time, in seconds. */
  expirable: (secs: bigint): CreditsInput => credits(1n, 1n, 1n, false, secs),
  /** One credit that never expires. */
  nonExpirable: (): CreditsInput => credits(1n, 1n, 1n, false),
};

/** Returns the configuration with the on-chain mirror of burns turned on or off. */
export const withOnchainMirror = (c: CreditsInput, on = true): CreditsInput => ({
  ...c,
  onchainMirror: on,
});

/** Returns the configuration with a redemption type: 0, 1, 2, 4, "fixed", or "dynamic". */
export function withRedemptionType(
  c: CreditsInput,
  type: 0 | 1 | 2 | 4 | "fixed" | "dynamic",
): CreditsInput {
  if (typeof type === "number") return { ...c, redemptionType: type };
  return { ...c, redemptionType: 4, isRedemptionAmountFixed: type === "fixed" };
}
