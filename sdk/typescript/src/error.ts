// The base of all errors, apart from those of answers: entries that only pay stay small.

/** What an error is made of. */
export interface ErrorParts {
  code: string;
  message: string;
  status?: number;
  category?: string;
  hint?: string;
  details?: string;
  correlationId?: string;
  retryable?: boolean;
  retryAfterSecs?: number;
  docsUrl?: string;
  params?: Record<string, unknown>;
  /** The body as it was sent, with members that this release does not know. */
  raw?: unknown;
  cause?: unknown;
}

/**
 * An error of the service, or of a call to it. Branch on `code`; `message` and `hint` are for
 * people. Every error of this package is one, except the reason of your own AbortSignal.
 */
export class TollError extends Error {
  /** Stable code, for example "BCK.PROTOCOL.0003". */
  declare readonly code: string;
  /** HTTP status; 0 when there was no answer. */
  declare readonly status: number;
  /** validation, auth, business, integration or internal. */
  declare readonly category: string;
  /** What to do about it, if the service says so. */
  declare readonly hint: string | undefined;
  declare readonly details: string | undefined;
  /** Id of the call in the logs of the service. */
  declare readonly correlationId: string | undefined;
  /** Whether the same call can succeed later. */
  declare readonly retryable: boolean;
  /** Seconds after which the service asks for a repeat. */
  declare readonly retryAfterSecs: number | undefined;
  declare readonly docsUrl: string | undefined;
  declare readonly params: Record<string, unknown> | undefined;
  declare readonly raw: unknown;

  constructor({ message, cause, ...parts }: ErrorParts) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    Object.assign(this, { status: 0, category: "internal", retryable: false }, parts);
  }
}

/** The state of a record does not allow the call. */
export class BusinessError extends TollError {}
