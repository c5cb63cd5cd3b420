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
  // Comments are in the declarations. Names of functions stay, so that stack traces can be read.
  minify: { compress: true, mangle: { toplevel: false, keepNames: true }, codegen: true },
  deps: { neverBundle: [/^node:/, /^@modelcontextprotocol\//] },
});
