// The part of the host's plugin SDK (2026.9.6) that this plugin uses. The SDK is experimental, so
// its types are written here and not imported.
import type { IncomingMessage, ServerResponse } from "node:http";

export type RegistrationMode =
  | "full"
  | "discovery"
  | "tool-discovery"
  | "setup-only"
  | "setup-runtime"
  | "cli-metadata";

export interface Logger {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export interface ToolContext {
  sessionKey?: string;
  requesterSenderId?: string;
  senderIsOwner?: boolean;
  messageChannel?: string;
}

export interface ToolResult {
  content: { type: "text"; text: string }[];
  details: unknown;
}

export interface Tool {
  name: string;
  label: string;
  description: string;
  parameters: object;
  execute(callId: string, params: unknown, signal?: AbortSignal): Promise<ToolResult>;
}

export interface CommandContext {
  senderId?: string;
  channel?: string;
  senderIsOwner?: boolean;
  gatewayClientScopes?: string[];
  sessionKey?: string;
  args?: string;
}

export interface Command {
  name: string;
  description: string;
  acceptsArgs: boolean;
  requireAuth: boolean;
  handler(ctx: CommandContext): Promise<{ text: string }>;
}

export interface Route {
  path: string;
  auth: "plugin";
  match: "exact";
  handler(req: IncomingMessage, res: ServerResponse): Promise<boolean>;
}

export interface HookContext {
  sessionKey?: string;
  senderId?: string;
  channel?: string;
  messageProvider?: string;
  requester?: { channel?: string; senderId?: string; senderIsOwner?: boolean };
}

export interface ToolCallEvent {
  toolName: string;
  params: Record<string, unknown>;
  toolCallId?: string;
}

export interface ToolCallDecision {
  block?: boolean;
  blockReason?: string;
  requireApproval?: {
    title: string;
    description: string;
    severity?: "info" | "warning" | "critical";
    timeoutMs: number;
    allowedDecisions: ("allow-once" | "deny")[];
  };
}

export interface Service {
  id: string;
  start(): void | Promise<void>;
  stop?(): void | Promise<void>;
}

type Hooks = {
  before_message_write(event: { message: unknown }): { message: unknown } | undefined;
  before_agent_run(event: {
    prompt?: string;
  }): { outcome: "block"; reason: string; message: string } | undefined;
  before_prompt_build(
    event: unknown,
    ctx: HookContext,
  ): Promise<{ prependContext: string } | undefined>;
  before_tool_call(event: ToolCallEvent, ctx: HookContext): Promise<ToolCallDecision | undefined>;
};

export interface Api {
  registrationMode: RegistrationMode;
  config?: {
    plugins?: {
      entries?: Record<string, { hooks?: { allowConversationAccess?: boolean } } | undefined>;
    };
  };
  pluginConfig?: Record<string, unknown>;
  runtime?: { version?: string };
  logger: Logger;
  registerTool(factory: (ctx: ToolContext) => Tool[], opts: { names: string[] }): void;
  registerCommand(command: Command): void;
  registerHttpRoute(route: Route): void;
  registerService(service: Service): void;
  on<K extends keyof Hooks>(hook: K, handler: Hooks[K], opts?: { matcher?: string[] }): void;
}
