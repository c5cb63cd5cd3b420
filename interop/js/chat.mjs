// A person in the web chat of a chat host: a client of its WebSocket with the rights of the operator.
import { serve } from "./lines.mjs";

let socket, call;
const finished = new Map(); // what a run said, by its id

function open({ url, token }) {
  return new Promise((resolve, reject) => {
    const waiting = new Map();
    let last = 0;
    socket = new WebSocket(url);
    call = (method, params) =>
      new Promise((ok, no) => {
        const id = String(++last);
        waiting.set(id, { ok, no });
        socket.send(JSON.stringify({ type: "req", id, method, params }));
      });
    socket.onerror = () => reject(new Error("the WebSocket failed"));
    socket.onclose = ({ code, reason }) => {
      reject(new Error(`the WebSocket closed: ${code} ${reason}`));
      for (const { no } of waiting.values()) no(new Error(`the WebSocket closed: ${code} ${reason}`));
    };
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === "res") {
        const { ok, no } = waiting.get(frame.id);
        waiting.delete(frame.id);
        frame.ok ? ok(frame.payload) : no(new Error(JSON.stringify(frame.error)));
      } else if (frame.event === "connect.challenge") {
        call("connect", {
          minProtocol: 4,
          maxProtocol: 4,
          client: { id: "gateway-client", version: "1.0.0", platform: "linux", mode: "backend" },
          role: "operator",
          scopes: ["operator.admin"],
          caps: [],
          auth: { token },
        }).then(() => resolve(null), reject);
      } else if (frame.event === "chat" && ["final", "error", "aborted"].includes(frame.payload.state)) {
        finished.set(frame.payload.runId, frame.payload);
      }
    };
  });
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

serve({
  open,
  /** say writes a message and returns the text of the answer. */
  async say({ session, message }) {
    const { runId } = await call("chat.send", { sessionKey: session, message, idempotencyKey: crypto.randomUUID() });
    for (let i = 0; i < 1200 && !finished.has(runId); i++) await pause(100);
    const end = finished.get(runId);
    if (!end) throw new Error(`no answer to ${message}`);
    if (end.state !== "final") throw new Error(JSON.stringify(end));
    return (end.message?.content ?? []).map((part) => part.text ?? "").join("\n");
  },
  history: ({ session }) => call("chat.history", { sessionKey: session }),
  close: () => socket?.close(),
});
