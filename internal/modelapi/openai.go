package modelapi

import (
	"bytes"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// openAI is the API that OpenAI documents at https://platform.openai.com/docs/api-reference, with members of common servers with the
// same API (vLLM, llama.cpp, DeepSeek, OpenRouter) that do not change the price.
func openAI() *API {
	return newAPI(&API{
		name:    "openai",
		free:    []string{"GET /v1/models", "GET /v1/models/{id}"},
		seller:  []string{"openai-organization", "openai-project"},
		failure: openAIFailure,
		operations: []*Operation{
			openAIChat(),
			{path: "/v1/completions", required: "model prompt", limit: "max_tokens", usage: true, read: openAIReader("prompt_tokens", "completion_tokens"),
				members: members("echo frequency_penalty logit_bias logprobs presence_penalty seed stop temperature top_p user top_k min_p repetition_penalty min_tokens ignore_eos",
					openAICommon("max_tokens"), map[string]rule{"prompt": counted(prompts), "suffix": counted(isString), "n": answers, "best_of": answers})},
			openAIResponses(),
			{path: "/v1/embeddings", required: "model input", read: openAIReader("prompt_tokens", ""),
				members: members("dimensions encoding_format user", map[string]rule{"model": isModel, "input": counted(nil)})},
		},
	})
}

func newAPI(a *API) *API {
	for _, o := range a.operations {
		o.api = a
	}
	return a
}

// openAICommon returns the members of operations with output.
func openAICommon(limits ...string) map[string]rule {
	m := map[string]rule{
		"model":  isModel,
		"stream": isStream,
		"stream_options": object("", members("include_obfuscation continuous_usage_stats",
			map[string]rule{"include_usage": streamUsage})),
		"service_tier": surcharge("service_tier", "auto default"),
	}
	for _, name := range limits {
		m[name] = limit(name, 1)
	}
	return m
}

func openAIChat() *Operation {
	part := typed("", map[string]rule{
		"text":        object("text", members("type text cache_control prompt_cache_breakpoint")),
		"refusal":     object("", members("type refusal")),
		"image_url":   object("image_url", members("type cache_control", map[string]rule{"image_url": imageURL})),
		"input_audio": object("input_audio", members("type", map[string]rule{"input_audio": inputAudio})),
		"file": object("file", members("type cache_control", map[string]rule{
			"file": object("", members("filename", map[string]rule{"file_data": document, "file_id": stored})),
		})),
	})
	message := object("role", members("role name tool_calls tool_call_id function_call refusal reasoning reasoning_content reasoning_details annotations cache_control prefix",
		map[string]rule{"content": stringOr(list(part)), "audio": stored}))
	return &Operation{
		path: "/v1/chat/completions", required: "model messages", limit: "max_tokens|max_completion_tokens", store: true, usage: true,
		read: openAIReader("prompt_tokens", "completion_tokens"),
		members: members("frequency_penalty presence_penalty logit_bias logprobs top_logprobs metadata parallel_tool_calls reasoning_effort verbosity seed stop "+
			"temperature top_p user safety_identifier prompt_cache_key prompt_cache_retention prompt_cache_options "+
			"top_k min_p repetition_penalty min_tokens ignore_eos reasoning thinking enable_thinking",
			openAICommon("max_tokens", "max_completion_tokens"), map[string]rule{
				"messages": counted(list(message)), "tools": tools("function", "custom"), "functions": counted(list(object("name", members("name description parameters")))),
				"tool_choice": counted(nil), "function_call": counted(nil), "response_format": counted(nil), "prediction": counted(nil), "chat_template_kwargs": counted(nil),
				"n": answers, "store": isBool, "modalities": list(only("text")),
				"audio": apart("audio_output"), "web_search_options": apart("web_search"),
			}),
	}
}

// openAIResponses refuses items that refer to stored items.
func openAIResponses() *Operation {
	parts := stringOr(list(typed("", map[string]rule{
		"input_text":     object("text", members("type text prompt_cache_breakpoint")),
		"output_text":    object("text", members("type text annotations logprobs")),
		"summary_text":   object("text", members("type text")),
		"reasoning_text": object("text", members("type text")),
		"refusal":        object("", members("type refusal")),
		"input_image":    object("image_url", members("type detail prompt_cache_breakpoint", map[string]rule{"image_url": image, "file_id": stored})),
		"input_audio":    object("input_audio", members("type", map[string]rule{"input_audio": inputAudio})),
		"input_file": object("", members("type filename detail prompt_cache_breakpoint",
			map[string]rule{"file_data": document, "file_url": remote, "file_id": stored})),
	})))
	call := object("", members("type id call_id name namespace arguments input action operation status caller"))
	output := object("output", members("type id call_id status max_output_length caller", map[string]rule{"output": parts}))
	items := stringOr(list(typed("message", map[string]rule{
		"message":              object("role content", members("type id role status phase", map[string]rule{"content": parts})),
		"function_call":        call,
		"custom_tool_call":     call,
		"local_shell_call":     call,
		"apply_patch_call":     call,
		"function_call_output": output, "custom_tool_call_output": output, "local_shell_call_output": output, "apply_patch_call_output": output,
		"reasoning":      object("encrypted_content", members("type id status encrypted_content", map[string]rule{"summary": parts, "content": parts})),
		"item_reference": stored,
	})))
	return &Operation{
		path: "/v1/responses", required: "model input", limit: "max_output_tokens", store: true,
		members: members("include metadata parallel_tool_calls max_tool_calls prompt_cache_key prompt_cache_retention prompt_cache_options safety_identifier "+
			"temperature top_p top_logprobs truncation user", openAICommon("max_output_tokens"), map[string]rule{
			"input": counted(items), "instructions": counted(isString), "tools": tools("function", "custom", "local_shell*", "apply_patch*"),
			"tool_choice": counted(nil), "text": counted(nil), "store": isBool, "stream_options": object("", members("include_obfuscation")),
			"reasoning":            object("", members("effort summary generate_summary")),
			"previous_response_id": stored, "conversation": stored, "prompt": stored, "background": never,
		}),
		read: reader{
			want: []string{"usage", "type", "response.usage"},
			event: func(m *Meter, found map[string]jsontext.Value, streamed bool) bool {
				if !streamed {
					m.report(found["usage"], true)
					return false
				}
				switch text(found["type"]) {
				case "response.completed", "response.incomplete", "response.failed":
					m.figures.bad = m.figures.bad || m.done
					m.done = true
					m.report(found["response.usage"], true)
				}
				return false
			},
			count: func(f *figures) { countOpenAI(f, "input_tokens", "output_tokens") },
		},
	}
}

func imageURL(w *walk, v jsontext.Value) error {
	if v.Kind() == '"' {
		return image(w, v)
	}
	return object("url", members("detail", map[string]rule{"url": image}))(w, v)
}

func inputAudio(w *walk, v jsontext.Value) error {
	return object("data", members("format", map[string]rule{"data": audio}))(w, v)
}

// openAIReader reads usage with these totals. The last event of a stream has the usage and no choices; some servers send a running usage
// in every event, or the usage in the last event with choices.
func openAIReader(in, out string) reader {
	return reader{
		want: []string{"usage", "choices"},
		event: func(m *Meter, found map[string]jsontext.Value, streamed bool) bool {
			usage := found["usage"]
			if !present(usage) {
				return false
			}
			last := !streamed || len(found["choices"]) == 0 || string(found["choices"]) == "[]"
			if last && m.final && !bytes.Equal(usage, m.figures.source) {
				m.figures.bad = true
			}
			if last || !m.final {
				m.report(usage, true)
				m.figures.source = bytes.Clone(usage)
			}
			m.final = m.final || last
			return last
		},
		count: func(f *figures) { countOpenAI(f, in, out) },
	}
}

// countOpenAI counts usage whose details are included in the totals. Cached tokens may also be audio or images, and writes are reported
// before the prompt is adjusted: these overlap. Servers that report reasoning on top of the completion show it by total_tokens.
func countOpenAI(f *figures, in, out string) {
	prompt, knownPrompt := f.number(in)
	f.divide(prompt, knownPrompt, Input,
		part{in + "_details.cached_tokens", CacheRead, false}, part{in + "_details.cache_write_tokens", CacheWrite, true},
		part{in + "_details.audio_tokens", InputAudio, true}, part{in + "_details.image_tokens", InputImage, true})
	if out == "" {
		return
	}
	completion, knownCompletion := f.number(out)
	total, knownTotal := f.number("total_tokens")
	if knownPrompt && knownCompletion && knownTotal {
		reasoning, knownReasoning := f.number(out + "_details.reasoning_tokens")
		extra := total - f.add(prompt, completion)
		switch {
		case f.bad || extra == 0:
		case extra > 0 && (!knownReasoning || reasoning == 0 || reasoning == extra):
			delete(f.values, out+"_details.reasoning_tokens")
			f.counts[Reasoning] = extra
		default:
			f.bad = true
		}
	}
	f.divide(completion, knownCompletion, Output,
		part{out + "_details.reasoning_tokens", Reasoning, false}, part{out + "_details.audio_tokens", OutputAudio, false},
		part{out + "_details.image_tokens", OutputImage, false})
}

// openAIFailure returns the body of an error: https://platform.openai.com/docs/guides/error-codes.
func openAIFailure(status int, text, param string) any {
	kind, code := "invalid_request_error", ""
	switch {
	case status == http.StatusUnauthorized:
		code = "invalid_api_key"
	case status == http.StatusPaymentRequired:
		kind, code = "insufficient_quota", "insufficient_quota"
	case status == http.StatusNotFound:
		code = "model_not_found"
	case status == http.StatusTooManyRequests:
		kind, code = "requests", "rate_limit_exceeded"
	case status >= 500:
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": text, "type": kind, "param": orNull(param), "code": orNull(code)}}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
