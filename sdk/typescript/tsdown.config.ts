import { defineConfig } from "tsdown";

export default defineConfig({
  entry: ["index", "paid", "express", "hono", "fastify", "next", "mcp", "fetch", "ai", "testing"].map(
    (name) => `src/${name}.ts`,
  ),
  format: ["esm", "cjs"],
  dts: true,
  platform: "neutral",
  target: "es2022",
  fixedExtension: false,
  // Node prints the line of an uncaught error. Bundlers minify what they ship.
  minify: false,
  deps: { neverBundle: [/^node:/, /^@modelcontextprotocol\//] },
});
