export { Toll } from "./client.js";
export type {
  Agents, Credits, Delegations, Events, Keys, Members, Meta, OrderQuery, Orders, PaymentMethods,
  Payments, Plans, Receipt, RequestQuery, ResourceFilter, Sandbox, Sessions, SortByName,
  SortByTime, SumQuery, TimeRange, Tokens, Verdict, Wallet, Webhooks,
} from "./client.js";
export { List, TollPromise, release } from "./core.js";
export type {
  Answer, CallOptions, ListOptions, LogEntry, Namespace, Page, Query, TollOptions,
} from "./core.js";
export {
  AuthError, BusinessError, ConflictError, ConnectionError, IntegrationError, InternalError,
  NotFoundError, PaymentRequiredError, RateLimitError, SettlementPendingError, TimeoutError,
  TollError, ValidationError,
} from "./errors.js";
export type { ErrorParts } from "./errors.js";
export type { ErrorCategory } from "./error.js";
export { credit, price, withOnchainMirror, withRedemptionType } from "./builders.js";
export type { FiatCurrency } from "./builders.js";
export { receiptOf } from "./receipt.js";
export { verifyWebhook } from "./webhooks.js";
export type { VerifyOptions } from "./webhooks.js";
export { apiVersion } from "./generated.js";
export type * as api from "./generated.js";
