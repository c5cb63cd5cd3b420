// The OpenClaw plugin of Toll. It registers tools, commands, hooks and the paid route with the host
// and forwards everything to the core. It holds no key, knows no price and decides nothing about
// money; it only keeps API keys out of prompts and transcripts.
import { createHash } from "node:crypto";
import { homedir } from "node:os";
import { join } from "node:path";
import registry from "./registry.json" with { type: "json" };
import { Core, Failure, tokenFrom, type Caller, type CoreError } from "./core.js";
import { holdsKey, redact, redactAll } from "./guard.js";
import type { Api, CommandContext, HookContext, Tool, ToolContext } from "./host.js";
import { Link } from "./link.js";
import { paidHandler } from "./paid.js";
import { CoreProcess } from "./process.js";

const id = registry.plugin.id;
const toolTimeout = 180_000;
const commandTimeout = 60_000;
const approvalTimeout = 10_000;
const contextTimeout = 2_000;
const approvalWait = 120_000;

export default {
  id,
  name: registry.plugin.name,
  description: registry.plugin.description,

  /** register starts nothing by itself: it also runs inside commands and discovery of the host. */
  register(api: Api): void {
    const config = api.pluginConfig ?? {};
    const url = text(config["coreUrl"]) ?? registry.coreUrl;
    const child =
      config["startCore"] === true
        ? new CoreProcess(text(config["coreBinary"]) ?? "toll", new URL(url), config, api.logger)
        : undefined;
    const file = text(config["coreTokenFile"]) ?? defaultTokenFile();
    const core = new Core(url, child ? async () => child.token : tokenFrom(file));
    const run = api.config?.plugins?.entries?.[id]?.hooks?.allowConversationAccess === true;
    const link = new Link(api, core, { write: true, run });

    registerTools(api, link);
    registerCommands(api, link);
    registerGuards(api);
    registerContext(api, link);
    registerApproval(api, link);
    if (config["enablePaidEndpoint"] === true) {
      const path = text(config["agentEndpointPath"]) ?? registry.defaultPath;
      api.registerHttpRoute({ path, auth: "plugin", match: "exact", handler: paidHandler(link, path) });
    }
    if (api.registrationMode !== "full") return;
    if (!run) {
      api.logger.warn(
        `Prompts do not show the balance and are not checked for keys. To enable both, run ` +
          `openclaw config set plugins.entries.${id}.hooks.allowConversationAccess true`,
      );
    }
    api.registerService({
      id,
      start() {
        child?.start();
        link.start();
      },
      async stop() {
        link.stop();
        await child?.stop();
      },
    });
  },
};

function registerTools(api: Api, link: Link): void {
  const names = registry.tools.map((tool) => tool.name);
  const make = (ctx: ToolContext): Tool[] =>
    registry.tools.map((tool) => ({
      name: tool.name,
      label: tool.label,
      description: tool.description,
      parameters: tool.parameters,
      execute: async (callId, params, signal) => {
        const body = { params: params ?? {}, callId: bounded(callId), caller: toolCaller(ctx) };
        const answer = await link.call(`tools/${tool.name}`, body, toolTimeout, signal);
        if (answer["error"]) throw new Failure(answer["error"] as CoreError);
        const result = withWarnings(answer["result"], answer["warnings"]);
        return { content: [{ type: "text", text: textOf(result) }], details: result };
      },
    }));
  api.registerTool(make, { names });
}

/** textOf indents a result that is short. The indentation of a nested list is many times as long as the list. */
function textOf(result: unknown): string {
  const text = JSON.stringify(result);
  return text.length > 64 * 1024 ? text : JSON.stringify(result, null, 2);
}

/** withWarnings puts warnings into the result: log lines never reach the user. */
function withWarnings(result: unknown, warnings: unknown): unknown {
  if (!Array.isArray(warnings) || warnings.length === 0) return result;
  if (typeof result !== "object" || result === null || Array.isArray(result)) return { result, warnings };
  return { ...result, warnings };
}

function registerCommands(api: Api, link: Link): void {
  for (const { name, description, acceptsArgs } of registry.commands) {
    api.registerCommand({
      name,
      description,
      acceptsArgs,
      requireAuth: true,
      handler: async (ctx) => {
        try {
          const body = { args: ctx.args ?? "", caller: commandCaller(ctx) };
          const answer = await link.call(`commands/${name}`, body, commandTimeout);
          return { text: text(answer["text"]) ?? "The core returned an empty answer." };
        } catch (error) {
          return { text: redact((error as Error).message) };
        }
      },
    });
  }
}

function registerGuards(api: Api): void {
  // Synchronous: the host ignores a promise here.
  api.on("before_message_write", (event) => {
    const message = redactAll(event.message);
    return message === event.message ? undefined : { message };
  });
  api.on("before_agent_run", (event) => {
    if (!holdsKey(event.prompt ?? "")) return undefined;
    const message =
      `The prompt was blocked because it contains an API key. ` +
      `Send /${registry.loginCommand} as a command, not as a prompt.`;
    return { outcome: "block", reason: "The prompt contains an API key.", message };
  });
}

function registerContext(api: Api, link: Link): void {
  let down = false;
  api.on("before_prompt_build", async (_event, ctx) => {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error("no answer in 2 s")), contextTimeout);
    });
    try {
      const answer = await Promise.race([
        link.call("context", { caller: hookCaller(ctx) }, contextTimeout),
        late,
      ]);
      down = false;
      const context = text(answer["prependContext"]);
      return context === undefined ? undefined : { prependContext: context };
    } catch (error) {
      if (!down) api.logger.warn(`Prompts do not show the balance: ${redact((error as Error).message)}`);
      down = true;
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  });
}

function registerApproval(api: Api, link: Link): void {
  // The host names tools in lower case in this hook.
  const asked = registry.tools.filter((tool) => tool.effect !== "read");
  const byHostName = new Map(asked.map((tool) => [tool.name.toLowerCase(), tool.name]));
  api.on(
    "before_tool_call",
    async (event, ctx) => {
      const tool = byHostName.get(event.toolName.toLowerCase());
      if (tool === undefined) return undefined;
      const body = { tool, params: event.params, caller: hookCaller(ctx) };
      let answer: Record<string, unknown>;
      try {
        answer = await link.call("approval", body, approvalTimeout);
      } catch (error) {
        return { block: true, blockReason: redact((error as Error).message) };
      }
      if (answer["needed"] === false) return undefined;
      return {
        requireApproval: {
          title: (text(answer["title"]) ?? "Approve an order").slice(0, 80),
          description: (text(answer["description"]) ?? tool).slice(0, 512),
          severity: answer["severity"] === "critical" ? "critical" : "warning",
          timeoutMs: approvalWait,
          allowedDecisions: ["allow-once", "deny"],
        },
      };
    },
    { matcher: [...byHostName.keys()] },
  );
}

function toolCaller(ctx: ToolContext): Caller {
  return caller(ctx.sessionKey, ctx.requesterSenderId, ctx.senderIsOwner, ctx.messageChannel);
}

/** commandCaller takes a client of the host itself for the owner when it has the right of admin. */
function commandCaller(ctx: CommandContext): Caller {
  const owner = ctx.senderIsOwner === true || ctx.gatewayClientScopes?.includes("operator.admin");
  return caller(ctx.sessionKey, ctx.senderId, owner, ctx.channel);
}

function hookCaller(ctx: HookContext): Caller {
  return caller(
    ctx.sessionKey,
    ctx.requester?.senderId ?? ctx.senderId,
    ctx.requester?.senderIsOwner,
    ctx.requester?.channel ?? ctx.channel ?? ctx.messageProvider,
  );
}

/** caller fills in what the host does not say: an unknown sender is not the owner. */
function caller(sessionKey = "", senderId = "", senderIsOwner = false, channel = ""): Caller {
  return { sessionKey: bounded(sessionKey), senderId: bounded(senderId), senderIsOwner, channel: channel.slice(0, 64) };
}

/** bounded replaces an id that is longer than the core takes by its hash. */
function bounded(id: string): string {
  return id.length <= 256 ? id : createHash("sha256").update(id).digest("hex");
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** defaultTokenFile is the token file of a core that runs with its default data directory. */
function defaultTokenFile(): string {
  return join(process.env["TOLL_GATEWAY_DATA"] ?? join(homedir(), ".toll", "gateway"), "gateway.token");
}
