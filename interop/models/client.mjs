// Buys from a gate with the SDKs of OpenAI and Anthropic, which know only an address and an API key.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { serve } from "./lines.mjs";

const messages = [{ role: "user", content: "hello" }];

const apis = {
  chat: {
    create: (gate, model, limit, stream) =>
      gate.openai.chat.completions.create({ model, messages, stream, ...(limit && { max_completion_tokens: limit }) }),
    whole: (answer) => answer.choices[0].message.content,
    part: (event) => event.choices[0]?.delta.content,
  },
  responses: {
    create: (gate, model, limit, stream) =>
      gate.openai.responses.create({ model, input: "hello", stream, ...(limit && { max_output_tokens: limit }) }),
    whole: (answer) => answer.output_text,
    part: (event) => event.delta,
  },
  messages: {
    create: (gate, model, limit, stream) => gate.anthropic.messages.create({ model, messages, stream, max_tokens: limit || 100 }),
    whole: (answer) => answer.content[0].text,
    part: (event) => event.delta?.text,
  },
};

const families = [OpenAI, Anthropic];

function failure(error) {
  const family = families.find((f) => error instanceof f.APIError);
  if (!family) {
    throw error;
  }
  const name = ["AuthenticationError", "NotFoundError", "BadRequestError"].find((n) => error instanceof family[n]);
  return { status: error.status, class: name ?? "APIError", message: error.message };
}

serve({
  async call({ url, token, api, model, limit, stream, abort, options }) {
    const gate = {
      openai: new OpenAI({ baseURL: `${url}/v1`, apiKey: token, ...options }),
      anthropic: new Anthropic({ baseURL: url, apiKey: token, ...options }),
    };
    const { create, whole, part } = apis[api];
    try {
      const answer = await create(gate, model, limit, stream);
      if (!stream) {
        return { text: whole(answer) };
      }
      let text = "";
      for await (const event of answer) {
        text += part(event) ?? "";
        if (abort && text) {
          answer.controller.abort();
        }
      }
      return { text };
    } catch (error) {
      return failure(error);
    }
  },
  async models({ url, token }) {
    const list = await new OpenAI({ baseURL: `${url}/v1`, apiKey: token }).models.list();
    return { text: list.data.map((m) => m.id).join(" ") };
  },
});
