// The entry @tollhq/toll/ai.
import type { Budget } from "./buy.js";
import type { PayingFetch } from "./fetch.js";
import type { McpLikeClient } from "./mcp.js";

/** A tool, independent of any framework. */
interface Plain {
  name: string;
  description: string;
  schema: Record<string, unknown>;
  run(input: Record<string, unknown>): Promise<string>;
}

/** A paying MCP client, as returned by payingClient of @tollhq/toll/mcp. */
export interface PayingMcp extends McpLikeClient {
  readonly budget: Budget;
  listTools(params?: { cursor?: string }): Promise<{
    tools: { name: string; description?: string | undefined; inputSchema: object }[];
    nextCursor?: string | undefined;
  }>;
}

/** An agent that is called over HTTP, by POST with the input as JSON. */
export interface HttpAgent {
  pay: PayingFetch;
  url: string;
  /** Name of the tool, for models. */
  name: string;
  description: string;
  /** JSON Schema of the input, an object. */
  inputSchema: object;
}

/** A source of tools. */
export type ToolSource = PayingMcp | HttpAgent;

const maxTools = 1000;
const maxAnswer = 256 << 10;

async function toolsOf(source: ToolSource): Promise<Plain[]> {
  if ("pay" in source) {
    const { pay, url, name, description, inputSchema } = source;
    return [{
      name, description, schema: inputSchema as Record<string, unknown>,
      run: async (input) => {
        const response = await pay(url, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(input),
        });
        const text = (await response.text()).slice(0, maxAnswer);
        if (!response.ok) {
          throw new Error(`${url} responded with status ${response.status}: ${text.slice(0, 300)}`);
        }
        return text;
      },
    }];
  }
  const out: Plain[] = [];
  for (let cursor: string | undefined; out.length < maxTools; ) {
    const page = await source.listTools(cursor === undefined ? {} : { cursor });
    for (const t of page.tools) {
      out.push({
        name: t.name,
        description: t.description ?? "",
        schema: t.inputSchema as Record<string, unknown>,
        run: async (input) => textOf(await call(source, t.name, input)),
      });
    }
    cursor = page.nextCursor;
    if (!cursor || page.tools.length === 0) break;
  }
  return out;
}

const call = (source: PayingMcp, name: string, input: Record<string, unknown>): Promise<unknown> =>
  (source.callTool as (p: { name: string; arguments: object }) => Promise<unknown>)({
    name,
    arguments: input,
  });

/** Returns the text of a result. Throws an Error for an error result. */
function textOf(result: unknown): string {
  const r = result as {
    isError?: boolean;
    content?: { type: string; text?: string }[];
    structuredContent?: unknown;
  };
  const texts = (r.content ?? []).map((c) => (c.type === "text" ? c.text : JSON.stringify(c)));
  const text = texts.length ? texts.join("\n") : JSON.stringify(r.structuredContent ?? null);
  if (r.isError) throw new Error(text.slice(0, 1000));
  return text.slice(0, maxAnswer);
}

/** A tool of the AI SDK. */
export interface AiTool<Schema> {
  description: string;
  inputSchema: Schema;
  execute(input: Record<string, unknown>): Promise<string>;
}

/**
 * Returns paying tools of the AI SDK, by name. `jsonSchema` comes from the package `ai`. The budget
 * of each source has the amounts spent. A payment that exceeds its limits is an error of the tool,
 * which the model can read.
 *
 *     const tools = await aiTools({ jsonSchema }, payingClient(client, { … }));
 *     await generateText({ model, tools, prompt });
 */
export async function aiTools<Schema>(
  ai: { jsonSchema(schema: never): Schema },
  ...sources: ToolSource[]
): Promise<Record<string, AiTool<Schema>>> {
  const make = ai.jsonSchema as (schema: Record<string, unknown>) => Schema;
  const out: Record<string, AiTool<Schema>> = {};
  for (const t of (await Promise.all(sources.map(toolsOf))).flat()) {
    if (t.name in out) throw new TypeError(`two tools have the same name: ${t.name}`);
    out[t.name] = { description: t.description, inputSchema: make(t.schema), execute: t.run };
  }
  return out;
}

/**
 * Returns paying tools of LangChain. `tool` comes from @langchain/core/tools.
 *
 *     const tools = await langchainTools({ tool }, payingClient(client, { … }));
 *     const agent = createAgent({ model, tools });
 */
export async function langchainTools<Tool>(
  langchain: { tool(run: never, fields: never): Tool },
  ...sources: ToolSource[]
): Promise<Tool[]> {
  const make = langchain.tool as unknown as (
    run: (input: Record<string, unknown>) => Promise<string>,
    fields: { name: string; description: string; schema: Record<string, unknown> },
  ) => Tool;
  const tools = (await Promise.all(sources.map(toolsOf))).flat();
  return tools.map(({ name, description, schema, run }) =>
    make(run, { name, description, schema }),
  );
}
