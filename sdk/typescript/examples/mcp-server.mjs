// An MCP server whose tool costs three credits. Set TOLL_PLAN, TOLL_AGENT, and PORT.
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { seller } from "@tollhq/toll/mcp";
import { z } from "zod";

const { TOLL_PLAN: plan, TOLL_AGENT: agent, PORT = "8404" } = process.env;
const sell = seller({ plan, agent, serverName: "shout" });

function makeServer() {
  const server = new McpServer({ name: "shout", version: "1.0.0" });
  const shout = ({ text }) => ({ content: [{ type: "text", text: text.toUpperCase() }] });
  server.registerTool(
    "shout",
    { description: "Converts a text to upper case.", inputSchema: { text: z.string() } },
    sell.tool("shout", { credits: 3 }, shout),
  );
  return server;
}

createServer(async (req, res) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  res.on("close", () => transport.close());
  await makeServer().connect(transport);
  await transport.handleRequest(req, res);
}).listen(Number(PORT), "127.0.0.1");
