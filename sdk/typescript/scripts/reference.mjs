// Generates docs/TYPESCRIPT-REFERENCE.md from the comments of the sources. With --check it only
// compares. A public name without a comment is an error.
import { readFileSync, writeFileSync } from "node:fs";
import ts from "typescript";

const target = process.env.TOLL_REFERENCE ?? new URL("../../../docs/TYPESCRIPT-REFERENCE.md", import.meta.url);
const entries = [
  ["index", "The client: @tollhq/toll"],
  ["paid", "Sell responses of Web handlers: @tollhq/toll/paid"],
  ["express", "Express: @tollhq/toll/express"],
  ["hono", "Hono: @tollhq/toll/hono"],
  ["fastify", "Fastify: @tollhq/toll/fastify"],
  ["next", "Next: @tollhq/toll/next"],
  ["mcp", "MCP servers and clients: @tollhq/toll/mcp"],
  ["fetch", "A fetch that pays: @tollhq/toll/fetch"],
  ["ai", "Tools of models: @tollhq/toll/ai"],
  ["testing", "A service for tests: @tollhq/toll/testing"],
];

const files = {};
const parsed = (name) =>
  (files[name] ??= ts.createSourceFile(
    name, readFileSync(new URL(`../src/${name}.ts`, import.meta.url), "utf8"), ts.ScriptTarget.Latest, true,
  ));

/** Reports whether the comments before a statement have the tag @internal. */
const isInternal = (node) => /@internal/.test(node.getFullText().slice(0, node.getLeadingTriviaWidth()));

/** Returns the declarations that a module exports, by name. */
function exportsOf(module) {
  const out = new Map();
  for (const s of parsed(module).statements) {
    if (ts.isExportDeclaration(s)) {
      if (!s.exportClause || !ts.isNamedExports(s.exportClause)) continue; // the namespace of generated types
      const from = exportsOf(s.moduleSpecifier.text.replace(/^\.\/|\.js$/g, ""));
      for (const { name } of s.exportClause.elements) if (from.has(name.text)) out.set(name.text, from.get(name.text));
    } else if (s.modifiers?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword) && !isInternal(s)) {
      const all = ts.isVariableStatement(s) ? s.declarationList.declarations : [s];
      for (const d of all) out.set(d.name.text, d);
    }
  }
  return out;
}

const undocumented = [];

/** Returns the lines of the comment of a declaration. */
function comment(node, name) {
  const holder = ts.isVariableDeclaration(node) ? node.parent.parent : node;
  const text = node.getSourceFile().text;
  const { pos, end } = ts.getLeadingCommentRanges(text, holder.getFullStart())?.at(-1) ?? {};
  const found = pos === undefined ? "" : text.slice(pos, end);
  if (!found.startsWith("/**")) undocumented.push(name);
  return found.slice(3, -2).split("\n").map((l) => l.replace(/^\s*\* ?/, "").trimEnd());
}

/** Returns a comment as Markdown. Indented parts are code. */
const prose = (lines, indent = "") =>
  lines.join("\n").trim().split(/\n\n+/)
    .flatMap((part) => {
      const inside = part.split("\n");
      return part.startsWith("    ") ? ["```ts", ...inside.map((l) => l.slice(4)), "```", ""] : [...inside, ""];
    })
    .map((line) => line && indent + line);

const plain = (text) =>
  text.replace(/\bg\./g, "").replace(/\/\*[\s\S]*?\*\//g, "").replace(/\s+/g, " ")
    .replace(/([(<]) /g, "$1").replace(/,? ([)>])/g, "$1").trim().replace(/ ?=>$|;$/, "");

/** Returns a declaration from its name to its body. */
function signature(node) {
  const { text } = node.getSourceFile();
  const inner = node.initializer && ts.isArrowFunction(node.initializer) ? node.initializer : node;
  const end = inner.body ? inner.body.getStart() : node.end;
  if (ts.isConstructorDeclaration(node)) return plain(text.slice(node.getStart(), end)).replace("constructor", `new ${node.parent.name.text}`);
  const out = plain(text.slice(node.name.getStart(), end)).replace(/ = \{$/, "");
  if (ts.isGetAccessor(node)) return out.replace("()", "");
  return node.initializer ? out.replace(/^(\w+)(: | = )\(/, "$1(") : out;
}

const isPublic = (m) =>
  !(m.name && (ts.isPrivateIdentifier(m.name) || ts.isComputedPropertyName(m.name))) &&
  !m.modifiers?.some((x) => [ts.SyntaxKind.PrivateKeyword, ts.SyntaxKind.ProtectedKeyword, ts.SyntaxKind.OverrideKeyword].includes(x.kind)) &&
  !/@internal/.test(m.getFullText());

/** Returns an item for each public member. */
const membersOf = (members, owner) =>
  members.filter(isPublic).flatMap((m) => {
    if (ts.isConstructorDeclaration(m)) return [];
    const item = `- \`.${signature(m)}\``;
    // Fields need no comment if their names are clear.
    const isField = ts.isPropertyDeclaration(m);
    const has = /^\s*\/\*\*/.test(m.getFullText());
    if (isField && !has) return [item, ""];
    return [item, ...prose(comment(m, `${owner}.${m.name.text}`), "  ")];
  });

function described(name, node) {
  const heading = [`### \`${name}\``, ""];
  const said = prose(comment(node, name));
  const code = (text) => ["```ts", ...text.split("\n"), "```", ""];
  if (ts.isClassDeclaration(node)) {
    const made = node.members.find((m) => ts.isConstructorDeclaration(m) && isPublic(m));
    return [...heading, ...(made ? code(signature(made)) : []), ...said, ...membersOf(node.members, name)];
  }
  if (ts.isVariableDeclaration(node)) {
    const of = node.initializer;
    if (of && ts.isObjectLiteralExpression(of)) return [...heading, ...said, ...membersOf(of.properties, name)];
    return [...heading, ...code(signature(node)), ...said];
  }
  if (ts.isFunctionDeclaration(node)) return [...heading, ...code(signature(node)), ...said];
  const text = node.getSourceFile().text.slice(node.getStart(), node.end);
  return [...heading, ...code(text.replace(/^export /, "").replace(/\bg\./g, "")), ...said];
}

const out = [
  "# TypeScript reference", "",
  "Every public name of the package `@tollhq/toll`. Generated from its sources by `sdk/typescript/scripts/reference.mjs`: edit the sources.",
  "For the guide, see [TypeScript](TYPESCRIPT.md). Requests and responses have the names of the API reference; their types",
  "are in the namespace `api` of `@tollhq/toll`.", "",
];
const seen = new Map();
const resources = new Map();
for (const m of exportsOf("index").get("Toll").members) {
  if (ts.isPropertyDeclaration(m) && m.type) resources.set(m.type.getText(), m.name.text);
}
for (const [module, heading] of entries) {
  out.push(`## ${heading}`, "");
  const again = [];
  for (const [name, node] of exportsOf(module)) {
    if (seen.has(node)) {
      again.push(name);
      continue;
    }
    seen.set(node, module);
    const resource = module === "index" && node.heritageClauses?.some((h) => /\bResource\b/.test(h.getText()));
    out.push(...described(name, node).map((l, i) => (i === 0 && resource ? `### \`toll.${resources.get(name)}\`: ${name}` : l)));
  }
  if (again.length) out.push(`It also exports ${again.map((n) => `\`${n}\``).join(", ")}, which are documented above.`, "");
}
const text = `${out.join("\n").replace(/\n{3,}/g, "\n\n").trim()}\n`;
if (undocumented.length) {
  console.error(`missing doc comments: ${undocumented.join(", ")}`);
  process.exit(1);
}
if (!process.argv.includes("--check")) writeFileSync(target, text);
else if (readFileSync(target, "utf8") !== text) {
  console.error("docs/TYPESCRIPT-REFERENCE.md differs from the sources: run node scripts/reference.mjs");
  process.exit(1);
}
