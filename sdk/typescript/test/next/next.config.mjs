import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

// Beside the packages, of which the application is a directory.
const root = dirname(dirname(fileURLToPath(import.meta.url)));
export default { turbopack: { root }, outputFileTracingRoot: root };
