// Generates src/generated.ts from docs/openapi.json: the types of every request and response, the
// table of operations, and the members of responses that are credits or money. With --check it only
// compares.
import { readFileSync, writeFileSync } from "node:fs";

const target = new URL("../src/generated.ts", import.meta.url);
const source = process.env.TOLL_OPENAPI ?? new URL("../../../docs/openapi.json", import.meta.url);
const document = JSON.parse(readFileSync(source, "utf8"));
const schemas = document.components.schemas;

// Decimal strings are credits, base units, cents, or seconds; ids begin with [1-9] and stay strings.
const decimal = (s) => /^\^\(0\|\[1-9\]\[0-9\](\*|\{0,\d+\})\)\$$/.test(s.pattern ?? "");
// Version 1.0 shows these as JSON integers, which may be longer than a JavaScript number holds.
const exact = { FlatCredits: ["amount", "minAmount", "maxAmount"], FlatPrice: ["amounts"] };

const refName = (s) => s.$ref?.split("/").pop();
const key = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name));
const comment = (text, indent) => {
  if (!text) return "";
  const words = text.replaceAll("*/", "* /").split(/\s+/);
  const lines = [""];
  for (const word of words) {
    const last = lines.length - 1;
    if ((lines[last] + " " + word).length > 88 - indent.length) lines.push(word);
    else lines[last] += (lines[last] && " ") + word;
  }
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((l) => `${indent} * ${l}\n`).join("")}${indent} */\n`;
};

function type(s, indent = "", big = false) {
  if (s.$ref) return refName(s);
  const options = s.oneOf ?? s.anyOf;
  if (options) return options.map((o) => type(o, indent, big)).join(" | ");
  if (s.allOf) return s.allOf.map((o) => type(o, indent, big)).join(" & ");
  if (s.enum) return s.enum.map((v) => JSON.stringify(v)).join(" | ");
  const known = s["x-extensible-enum"]; // later releases of the service can add values
  if (known) return [...known.map((v) => JSON.stringify(v)), "(string & {})"].join(" | ");
  if (s.const !== undefined) return JSON.stringify(s.const);
  const kinds = [s.type ?? []].flat();
  if (kinds.length === 0) return s.properties ? object(s, indent) : "unknown";
  return kinds
    .map((kind) => {
      switch (kind) {
        case "null":
        case "boolean":
          return kind;
        case "string":
          return decimal(s) ? "bigint" : "string";
        case "integer":
        case "number":
          return big ? "bigint" : "number";
        case "array": {
          const item = type(s.items ?? {}, indent, big);
          return /[|&]/.test(item) && !/^\w+<.*>$/.test(item) ? `(${item})[]` : `${item}[]`;
        }
        default:
          return object(s, indent);
      }
    })
    .join(" | ");
}

function object(s, indent, name = "") {
  const inner = indent + "  ";
  const members = Object.entries(s.properties ?? {}).map(([n, p]) => {
    const big = exact[name]?.includes(n) ?? false;
    const optional = s.required?.includes(n) ? "" : "?";
    return `${comment(p.description, inner)}${inner}${key(n)}${optional}: ${type(p, inner, big)};\n`;
  });
  const more = s.additionalProperties;
  if (members.length === 0) {
    const value = more && typeof more === "object" && Object.keys(more).length ? type(more, indent) : "unknown";
    if (s["x-property-names"]) return `Partial<Record<${type(s["x-property-names"])}, ${value}>>`;
    return `Record<string, ${value}>`;
  }
  return `{\n${members.join("")}${indent}}`;
}

// A shape lists the members of a response that are numbers (1) or contain numbers (a name or a shape).
const shapes = {};
function shapeOf(s, name = "") {
  if (s.$ref) return shape(refName(s)) ? refName(s) : 0;
  const options = s.oneOf ?? s.anyOf ?? s.allOf;
  if (options) return options.map((o) => shapeOf(o)).find(Boolean) ?? 0;
  if (s.items) return shapeOf(s.items);
  if (s.properties) {
    const found = {};
    for (const [n, p] of Object.entries(s.properties)) {
      const of = exact[name]?.includes(n) ? 1 : shapeOf(p);
      if (of) found[n] = of;
    }
    return Object.keys(found).length ? found : 0;
  }
  return decimal(s) ? 1 : 0;
}
function shape(name) {
  if (!(name in shapes)) {
    shapes[name] = 0; // ends recursion
    shapes[name] = shapeOf(schemas[name], name);
  }
  return shapes[name];
}

// Returns the path for the table: relative to /api/v1/ unless it begins with a slash, with {} for each parameter.
const short = (path) => path.replace(/^\/api\/v1\//, "").replace(/\{\w+\}/g, "{}");

const operations = [];
for (const [path, methods] of Object.entries(document.paths)) {
  for (const [method, op] of Object.entries(methods)) {
    if (method === "parameters") continue;
    const ok = Object.entries(op.responses).find(([status]) => status.startsWith("2"));
    const answer = Object.values(ok?.[1].content ?? {})[0]?.schema;
    const names = (op.parameters ?? []).map((p) => p.name ?? p.$ref.split("/").pop());
    const list = names.includes("cursor") && refName(answer ?? {});
    const member = list && Object.entries(schemas[refName(answer)].properties).find(([, p]) => p.items)?.[0];
    const of = answer ? shapeOf(answer) : 0;
    const row = [method.toUpperCase(), short(path), typeof of === "string" ? of : 0, member || 0];
    row.push(names.includes("IdempotencyKey") ? 1 : 0);
    while (row.at(-1) === 0) row.pop();
    operations.push([op.operationId, row]);
  }
}

const used = new Set();
const visit = (of) => {
  if (typeof of === "string") {
    if (used.has(of)) return;
    used.add(of);
    visit(shapes[of]);
  } else if (of && typeof of === "object") Object.values(of).forEach(visit);
};
for (const [, row] of operations) visit(row[2]);
visit(shapeOf({ $ref: "#/components/schemas/Permission" }));

let out = "// Generated by scripts/generate.mjs from docs/openapi.json. Do not edit.\n\n";
out += `/** The API version that this release was tested with. */\nexport const apiVersion = ${JSON.stringify(document.info.version)};\n\n`;
for (const [name, s] of Object.entries(schemas)) {
  const text = s.properties && !s.oneOf && !s.anyOf && !s.allOf ? object(s, "", name) : type(s);
  out += comment(s.description, "");
  out += text.startsWith("{") && !/\}\s*[|&]/.test(text) ? `export interface ${name} ${text}\n\n` : `export type ${name} = ${text};\n\n`;
}
out += "export type Shape = 0 | 1 | string | { [member: string]: Shape };\n\n";
out += `export const shapes: Record<string, Shape> = ${JSON.stringify(Object.fromEntries([...used].sort().map((n) => [n, shapes[n]])), null, 1)};\n\n`;
out += "/** Method, path (relative to /api/v1/ unless it begins with a slash; {} is a parameter), shape of the response, member of a list, and whether it accepts an idempotency key. */\n";
out += "export type Operation = readonly [string, string, (string | 0)?, (string | 0)?, (0 | 1)?];\n\n";
out += "export const operations = {\n";
for (const [id, row] of operations) out += `  ${id}: ${JSON.stringify(row)},\n`;
out += "} as const satisfies Record<string, Operation>;\n";

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== out) {
    console.error("src/generated.ts differs from docs/openapi.json: run node scripts/generate.mjs");
    process.exit(1);
  }
} else writeFileSync(target, out);
