// A host that records what a plugin registers. It enforces the rules of the host that a plugin
// notices: declared tools, auth on routes, one name once.
import { readFileSync } from "node:fs";

export const manifest = JSON.parse(readFileSync(new URL("../openclaw.plugin.json", import.meta.url)));
export const registry = JSON.parse(readFileSync(new URL("../src/registry.json", import.meta.url)));

export function fakeApi({ mode = "full", config = {}, grant = true } = {}) {
  const hooks = allowConversationAccess => ({ [manifest.id]: { hooks: { allowConversationAccess } } });
  const api = {
    registrationMode: mode,
    pluginConfig: config,
    config: { plugins: { entries: hooks(grant) } },
    runtime: { version: "2026.9.6" },
    lines: [],
    logger: {},
    hooks: {},
    commands: {},
    routes: [],
    services: [],
    registerTool(factory, { names }) {
      for (const name of names) {
        if (!manifest.contracts.tools.includes(name)) throw new Error(`${name} is not in contracts.tools`);
      }
      Object.assign(api, { toolNames: names, factory });
    },
    registerCommand(command) {
      if (api.commands[command.name]) throw new Error(`${command.name} is registered twice`);
      api.commands[command.name] = command;
    },
    registerHttpRoute(route) {
      if (route.auth !== "plugin") throw new Error("missing or invalid auth");
      api.routes.push(route);
    },
    registerService: service => api.services.push(service),
    on: (name, handler, opts) => (api.hooks[name] = Object.assign(handler, opts)),
    /** run calls a tool as an agent turn of a person does. */
    run(name, params = {}, ctx = {}, callId = "call-1") {
      const tool = api.factory({ sessionKey: "s", requesterSenderId: "p", messageChannel: "c", ...ctx });
      return tool.find(t => t.name === name).execute(callId, params);
    },
  };
  for (const level of ["info", "warn", "error"]) api.logger[level] = line => api.lines.push(line);
  return api;
}
