// The error of a 402, by the table that the middlewares of all languages share.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import ts from "typescript";

// The package does not export the function, so the test compiles its file alone.
const source = readFileSync(new URL("../src/challenge.ts", import.meta.url), "utf8");
const { outputText } = ts.transpileModule(source, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
const { challengeError } = await import(`data:text/javascript,${encodeURIComponent(outputText)}`);
const table = `${process.env.TOLL_CONFORMANCE ?? "../../testdata/conformance"}/tables/challenges.json`;

test("the error of a 402 continues with the sentence that has an address", () => {
  const { cases } = JSON.parse(readFileSync(table, "utf8"));
  assert.ok(cases.length > 10);
  for (const c of cases) assert.equal(challengeError(c.begin, c.sentence), c.error, c.name);
});
