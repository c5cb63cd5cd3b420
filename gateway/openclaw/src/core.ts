// Requests to the core over its control paths.
import { readFile } from "node:fs/promises";
import { request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import registry from "./registry.json" with { type: "json" };
import { redact } from "./guard.js";

/** Caller is the person behind a call, as the host reports it. */
export interface Caller {
  sessionKey: string;
  senderId: string;
  senderIsOwner: boolean;
  channel: string;
}

/** CoreError is the error object of the core. */
export interface CoreError {
  code: string;
  message: string;
  hint?: string;
}

/** Failure is an error with a text for the model and the user, on one line and without keys. */
export class Failure extends Error {
  readonly code: string;

  constructor(e: CoreError) {
    const message = `${e.message.replace(/\.$/, "")} (${e.code}).${e.hint ? ` ${e.hint}` : ""}`;
    super(redact(message.replace(/\s+/g, " ").trim()));
    this.name = "Error";
    this.code = e.code;
  }
}

const largestAnswer = 8 << 20;

/** Core sends requests to the core. */
export class Core {
  readonly url: URL;
  readonly #token: () => Promise<string>;

  /** token is called for each request, so that a rotated token works at once. */
  constructor(url: string, token: () => Promise<string>) {
    this.url = new URL(url);
    this.#token = token;
  }

  /**
   * open starts a request to a path of the core, on a connection of its own: one that is kept can be
   * closed by the core while an order or a payment is written to it.
   */
  open(path: string, options: RequestOptions) {
    const send = this.url.protocol === "https:" ? httpsRequest : httpRequest;
    return send(new URL(path, this.url), { ...options, agent: false });
  }

  /**
   * post sends a body to a control path and returns the JSON object of the answer.
   *
   * It throws a Failure when the core cannot be reached, is slower than timeout milliseconds, or
   * answers with another status than 200.
   */
  async post(path: string, body: object, timeout: number, signal?: AbortSignal) {
    return this.#exchange("POST", path, JSON.stringify(body), timeout, signal);
  }

  /** health returns the answer of the health path. It throws as post does. */
  async health(timeout: number) {
    return this.#exchange("GET", "health", undefined, timeout);
  }

  async #exchange(
    method: string,
    path: string,
    body: string | undefined,
    timeout: number,
    signal?: AbortSignal,
  ): Promise<Record<string, unknown>> {
    const headers: Record<string, string> = { accept: "application/json" };
    if (body !== undefined) {
      headers["authorization"] = `Bearer ${await this.#token()}`;
      headers["content-type"] = "application/json";
      headers["toll-registry"] = registry.hash;
      headers["content-length"] = String(Buffer.byteLength(body));
    }
    const ends = AbortSignal.timeout(timeout);
    const stop = signal ? AbortSignal.any([signal, ends]) : ends;
    let status = 0;
    let text = "";
    try {
      const answer = await new Promise<IncomingMessage>((resolve, reject) => {
        const req = this.open(`/gateway/v1/${path}`, { method, headers, signal: stop });
        req.on("response", resolve).on("error", reject).end(body);
      });
      status = answer.statusCode ?? 0;
      answer.setEncoding("utf8");
      for await (const chunk of answer) {
        text += chunk;
        if (text.length > largestAnswer) throw new Error("the answer is too large");
      }
    } catch (error) {
      if (signal?.aborted) throw new Failure({ code: "cancelled", message: "The call was canceled." });
      throw this.#unreachable(ends.aborted ? `no answer in ${timeout / 1000} s` : reason(error));
    }
    return this.#read(status, text);
  }

  #read(status: number, text: string): Record<string, unknown> {
    let answer: unknown;
    try {
      answer = JSON.parse(text);
    } catch {
      // The status decides.
    }
    const object = typeof answer === "object" && answer !== null && !Array.isArray(answer);
    if (status === 200 && object) return answer as Record<string, unknown>;
    if (status === 401) {
      throw new Failure({
        code: "core_refused",
        message: `The core at ${this.url.origin} rejected the core token`,
        hint: "Set coreTokenFile to the file gateway.token in the data directory of the core.",
      });
    }
    const error = object ? (answer as { error?: CoreError | string; code?: string; message?: string }) : {};
    if (typeof error.error === "object" && typeof error.error.message === "string") {
      throw new Failure(error.error.code === updateNeeded.code ? updateNeeded : error.error);
    }
    const code = typeof error.error === "string" ? error.error : error.code;
    throw new Failure({
      code: code ?? "core_error",
      message: error.message ?? `The core at ${this.url.origin} answered with status ${status}`,
    });
  }

  #unreachable(why: string): Failure {
    return new Failure({
      code: "core_unreachable",
      message: `The core at ${this.url.origin} cannot be reached: ${why}`,
      hint: "Start it with toll gateway serve, or set coreUrl.",
    });
  }
}

function reason(error: unknown): string {
  const e = error as NodeJS.ErrnoException;
  return e.code ?? e.message;
}

/** tokenFrom reads the core token from a file. */
export function tokenFrom(file: string): () => Promise<string> {
  return async () => {
    try {
      return (await readFile(file, "utf8")).trim();
    } catch (error) {
      throw new Failure({
        code: "core_unreachable",
        message: `The core token cannot be read from ${file}: ${reason(error)}`,
        hint: "Start the core with toll gateway serve, or set coreTokenFile.",
      });
    }
  };
}

export const updateNeeded: CoreError = {
  code: "registry_mismatch",
  message: `The plugin (version ${registry.plugin.version}) and the core have different tools`,
  hint: "Update the plugin or the core.",
};
