// An agent of LangChain that buys the tools of an MCP server, within a budget. `model` is any chat model that calls tools.
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Toll } from "@tollhq/toll";
import { langchainTools } from "@tollhq/toll/ai";
import { hostOf, payingClient } from "@tollhq/toll/mcp";

const maxTurns = 10;

/** Answers a question with the tools of the server at `url`, and returns the credits spent. */
export async function ask(model, url, question) {
  const client = new Client({ name: "agent", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const limits = { hosts: [hostOf(url)], creditsPerCall: 5n, credits: 20n };
  const paying = payingClient(client, { url, toll: new Toll(), limits }); // TOLL_API_KEY, TOLL_URL
  try {
    const tools = await langchainTools({ tool }, paying);
    const withTools = model.bindTools(tools);
    const messages = [new HumanMessage(question)];
    for (let turn = 0; turn < maxTurns; turn++) {
      const said = await withTools.invoke(messages);
      messages.push(said);
      if (!said.tool_calls?.length) return { text: said.text, credits: paying.budget.spent() };
      for (const call of said.tool_calls) messages.push(await run(tools, call));
    }
    throw new Error(`no answer within ${maxTurns} turns`);
  } finally {
    await client.close();
  }
}

/** Calls a tool. The model can read why a call failed or was not paid. */
async function run(tools, call) {
  try {
    const called = tools.find((t) => t.name === call.name);
    if (!called) throw new Error(`the tool ${call.name} does not exist`);
    return await called.invoke({ ...call, type: "tool_call" });
  } catch (e) {
    return new ToolMessage({ tool_call_id: call.id, status: "error", content: e.message });
  }
}
