// Clients that check structured content against the output schema of its tool. Each lists, calls the
// tool without and with an access token, and prints what an application sees of the answers.

const { url, token, library } = JSON.parse(process.argv[2]);
const name = "measure";
const headers = (paid) => (paid ? { Authorization: `Bearer ${token}` } : {});
const text = (content) => content.map((c) => c.text).join("");

// The TypeScript SDK, of the version that stands in package.json under this name.
const sdk = (at) => async (paid) => {
  const { Client } = await import(`${at}/client/index.js`);
  const { StreamableHTTPClientTransport } = await import(`${at}/client/streamableHttp.js`);
  const client = new Client({ name: "interop", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: headers(paid) } }));
  await client.listTools();
  const result = await client.callTool({ name, arguments: {} });
  let lies;
  if (paid) lies = await client.callTool({ name: "lies", arguments: {} }).then(() => "is taken", (e) => e.message);
  await client.close();
  return { error: Boolean(result.isError), structured: result.structuredContent, text: text(result.content), lies };
};

const ai = (schemas) => async (paid) => {
  const { createMCPClient } = await import("@ai-sdk/mcp");
  const client = await createMCPClient({ transport: { type: "http", url, headers: headers(paid) } });
  const tools = await client.tools(schemas && { schemas: await schemas() });
  const result = await tools[name].execute({}, { toolCallId: "1", messages: [] });
  await client.close();
  if (schemas && !result.isError) return { error: false, structured: result, text: "" };
  return { error: Boolean(result.isError), structured: result.structuredContent, text: text(result.content) };
};

const libraries = {
  "sdk 1.12": sdk("sdk-1-12"),
  "sdk 1.32": sdk("@modelcontextprotocol/sdk"),
  "ai": ai(),
  "ai with schemas": ai(async () => {
    const { z } = await import("zod");
    return { [name]: { inputSchema: z.object({}), outputSchema: z.object({ n: z.number() }) } };
  }),
  "langchain": async (paid) => {
    const { MultiServerMCPClient } = await import("@langchain/mcp-adapters");
    const client = new MultiServerMCPClient({ mcpServers: { demo: { transport: "http", url, headers: headers(paid) } } });
    const [tool] = (await client.getTools()).filter((t) => t.name === name);
    try {
      const message = await tool.invoke({ type: "tool_call", id: "1", name, args: {} });
      const structured = message.artifact?.find((a) => a.type === "mcp_structured_content")?.data;
      return { error: message.status === "error", structured, text: message.text };
    } catch (e) {
      return { error: true, text: e.message }; // its form of a tool's error
    } finally {
      await client.close();
    }
  },
};

const call = libraries[library];
console.log(JSON.stringify({ unpaid: await call(false), paid: await call(true) }));
process.exit(0);
