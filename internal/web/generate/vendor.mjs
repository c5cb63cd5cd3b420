// Copies what the pages use of others from node_modules into ../static/vendor, makes the sprite of the icons, and compresses
// the texts. Run by `go generate ./internal/web`; the result is committed, so that a build needs no Node.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const out = new URL("../static/vendor/", import.meta.url);
const from = (path) => readFileSync(new URL(`node_modules/${path}`, import.meta.url));

// The icons of the pages, by their names at Lucide. To use another one, add its name and generate again.
const icons = `activity arrow-left arrow-right badge-check ban bell book-open bot building-2 calendar chart-column check
  chevron-down chevron-right circle-alert circle-check circle-x clock code coins copy credit-card download ellipsis
  external-link eye flag funnel hand-coins history house info key-round layout-grid link list list-checks log-out mail menu
  monitor moon pencil play plus receipt refresh-cw rotate-ccw search send server settings shield shopping-cart
  sliders-horizontal store sun tag terminal trash-2 triangle-alert upload user user-plus users wallet webhook x zap`
  .split(/\s+/);

const symbol = (name) => {
  const inner = from(`lucide-static/icons/${name}.svg`).toString().replace(/<!--.*?-->/gs, "").replace(/\s+/g, " ")
    .match(/<svg [^>]*>(.*)<\/svg>/)[1].replaceAll("> <", "><").replaceAll(" />", "/>").trim();
  return `<symbol id="${name}" viewBox="0 0 24 24">${inner}</symbol>`;
};

const files = {
  "icons.svg": Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg">${icons.map(symbol).join("")}</svg>\n`),
};
for (const subset of ["latin", "latin-ext", "cyrillic", "greek", "vietnamese"]) {
  files[`inter-${subset}.woff2`] = from(`@fontsource-variable/inter/files/inter-${subset}-wght-normal.woff2`);
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out);
const sums = [];
const write = (name, bytes) => {
  writeFileSync(new URL(name, out), bytes);
  sums.push(`${createHash("sha256").update(bytes).digest("hex")}  ${name}\n`);
};
for (const [name, bytes] of Object.entries(files)) {
  write(name, bytes);
  if (!name.endsWith(".woff2")) {
    write(`${name}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
    write(`${name}.gz`, gzipSync(bytes, { level: 9 }));
  }
}
writeFileSync(new URL("SHA256SUMS", out), sums.join(""));
