// A role of a test: one process, which takes commands as lines of JSON and answers each with a line.
import { createInterface } from "node:readline";

export function serve(commands) {
  const answers = process.stdout;
  for (const name of ["log", "info", "debug"]) {
    console[name] = console.error; // libraries talk; lines of stdout are answers
  }
  const input = createInterface({ input: process.stdin });
  input.on("line", async (line) => {
    const { id, command, args } = JSON.parse(line);
    let answer;
    try {
      answer = { value: (await commands[command](args)) ?? null };
    } catch (error) {
      answer = { error: `${error?.message ?? error}` };
    }
    answers.write(`${JSON.stringify({ id, ...answer })}\n`);
  });
  input.on("close", () => process.exit(0));
}
