// The base of all errors, in a separate file to keep entries that only pay small.

/** Side that can resolve an error. Later releases of the service can add categories. */
export type ErrorCategory =
  | "validation"
  | "auth"
  | "business"
  | "integration"
  | "internal"
  | (string & {});

/** Members of an error. */
export interface ErrorParts {
  code: string;
  message: string;
  status?: number;
  category?: ErrorCategory;
  hint?: string;
  details?: string;
  correlationId?: string;
  retryable?: boolean;
  retryAfterSecs?: number;
  docsUrl?: string;
  params?: Record<string, unknown>;
  /** The body as sent, including members unknown to this release. */
  raw?: unknown;
  cause?: unknown;
}

/**
 * An error of the service, or of a call to it. Branch on `code`; `message` and `hint` are for
 * people. Failed calls throw only this class, its subclasses, or the reason of your AbortSignal.
 */
export class TollError extends Error {
  /** Stable code, for example "BCK.PROTOCOL.0003". */
  declare readonly code: string;
  /** HTTP status; 0 if there was no response. */
  declare readonly status: number;
  declare readonly category: ErrorCategory;
  /** Suggested action, if the service sends a hint. */
  declare readonly hint: string | undefined;
  declare readonly details: string | undefined;
  /** Id of the call in the logs of the service. */
  declare readonly correlationId: string | undefined;
  /** Whether the same call can succeed later. */
  declare readonly retryable: boolean;
  /** Seconds to wait before a retry, as requested by the service. */
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
