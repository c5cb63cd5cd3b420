// Runs every file of testdata/conformance through the client of this package. The Go test
// interop/typescript_test.go starts the services and says in TOLL_STAGE where they are.
import { describe, test } from "node:test";
import { runsOf } from "./conformance.mjs";
import { material, receiver, send, stage } from "./relay.mjs";

const skip = !stage && "TOLL_STAGE is not set: run it through go test ./interop";
describe("conformance", { skip, concurrency: 12 }, async () => {
  const runs = runsOf({ ...material(), receiver: await receiver(), send });
  const early = runs.filter((r) => !r.clock).map((r) => {
    let end;
    const done = new Promise((resolve) => (end = resolve));
    test(r.name, () => r.pass().finally(end));
    return done;
  });
  // Files that move the clock come last, one after the other.
  test("files that move the clock", async () => {
    await Promise.all(early);
    for (const r of runs.filter((x) => x.clock)) await r.pass();
  });
});
