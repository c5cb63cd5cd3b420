// worker.mjs as a program of Bun or Deno, with its bindings in the environment.
import worker from "./worker.mjs";

const { env } = globalThis.process;
const options = { port: Number(env.PORT), hostname: "127.0.0.1" };
const handle = (request) => worker.fetch(request, env, { waitUntil: () => undefined });
if (globalThis.Bun) Bun.serve({ ...options, idleTimeout: 0, fetch: handle });
else Deno.serve(options, handle);
