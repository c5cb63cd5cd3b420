package modelapi

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// anthropic is the API that Anthropic documents at https://docs.claude.com/en/api/messages.
func anthropic() *API {
	const cached = "type cache_control"
	blocks := func(types ...map[string]rule) rule { return stringOr(list(typed("", members("", types...)))) }
	source := func(data, url rule, more map[string]rule) map[string]rule {
		return map[string]rule{"source": typed("", members("", more, map[string]rule{
			"base64": object("data", members("type media_type", map[string]rule{"data": data})),
			"url":    object("url", members("type", map[string]rule{"url": url})),
			"file":   stored,
		}))}
	}
	texts := map[string]rule{"text": object("text", members(cached+" text citations"))}
	images := map[string]rule{"image": object("source", members(cached, source(image, image, nil)))}
	papers := map[string]rule{
		"document": object("source", members(cached+" title context citations", source(document, remote, map[string]rule{
			"text":    object("data", members("type media_type data")),
			"content": object("content", members("type", map[string]rule{"content": blocks(texts, images)})),
		}))),
		"search_result": object("content", members(cached+" source title citations", map[string]rule{"content": blocks(texts)})),
	}
	content := blocks(texts, images, papers, map[string]rule{
		"thinking":          object("thinking", members("type thinking signature")),
		"redacted_thinking": object("data", members("type data")),
		"tool_use":          object("input", members(cached+" id name input caller")),
		"tool_result":       object("", members(cached+" tool_use_id is_error", map[string]rule{"content": blocks(texts, images, papers)})),
		"container_upload":  stored,
	})
	return newAPI(&API{
		name:    "anthropic",
		free:    []string{"GET /v1/models", "GET /v1/models/{id}"},
		seller:  []string{"anthropic-organization-id", "anthropic-workspace-id", "anthropic-ratelimit-*", "anthropic-priority-*"},
		failure: anthropicFailure,
		operations: []*Operation{{
			path: "/v1/messages", required: "model max_tokens messages", limit: "max_tokens",
			members: members("metadata stop_sequences temperature top_k top_p cache_control", map[string]rule{
				"model": isModel, "stream": isStream, "max_tokens": limit("max_tokens", 1),
				"messages":    counted(list(object("role content", members("role", map[string]rule{"content": content})))),
				"system":      counted(blocks(texts)),
				"tools":       tools("custom", "bash_*", "text_editor_*", "memory_*"),
				"tool_choice": counted(nil), "output_config": counted(nil), "output_format": counted(nil),
				"thinking":     object("", members("type display", map[string]rule{"budget_tokens": budget})),
				"service_tier": surcharge("service_tier", "auto standard_only"), "speed": surcharge("speed", "standard"), "inference_geo": surcharge("inference_geo", "global"),
				"container": stored, "mcp_servers": apart("mcp"),
			}),
			headers: anthropicHeaders,
			read: reader{
				want:  []string{"usage", "type", "message.usage"},
				event: anthropicEvent,
				count: countAnthropic,
			},
		}},
	})
}

func budget(w *walk, v jsontext.Value) error {
	n, ok := integer(v)
	if !ok || n < 1 {
		return wrong("must be an integer of at least 1")
	}
	w.call.budget = n
	return nil
}

// anthropicHeaders forwards the version, and the betas that neither change the price nor need a member that is refused.
func anthropicHeaders(from, to http.Header) {
	to.Set("Anthropic-Version", "2023-06-01")
	if v := from.Get("Anthropic-Version"); v != "" && len(v) <= maxName {
		to.Set("Anthropic-Version", v)
	}
	var betas []string
	for beta := range strings.SplitSeq(strings.Join(from.Values("Anthropic-Beta"), ","), ",") {
		for _, known := range []string{"interleaved-thinking-", "fine-grained-tool-streaming-", "token-efficient-tools-", "output-128k-", "prompt-caching-",
			"extended-cache-ttl-", "structured-outputs-", "effort-", "pdfs-", "context-1m-"} {
			if beta = strings.TrimSpace(beta); strings.HasPrefix(beta, known) && len(beta) <= maxName && len(betas) < 16 {
				betas = append(betas, beta)
			}
		}
	}
	if betas != nil {
		to.Set("Anthropic-Beta", strings.Join(betas, ","))
	}
}

// anthropicEvent reads usage: message_start has the input, and message_delta has the running output and may repeat the input.
func anthropicEvent(m *Meter, found map[string]jsontext.Value, streamed bool) bool {
	if !streamed {
		m.report(found["usage"], true)
		return false
	}
	switch text(found["type"]) {
	case "message_start":
		m.figures.bad = m.figures.bad || m.known
		m.report(found["message.usage"], true)
		m.partial = true
	case "message_delta":
		before, known := integer(m.figures.values["output_tokens"])
		m.report(found["usage"], false)
		after, _ := integer(m.figures.values["output_tokens"])
		m.figures.bad = m.figures.bad || known && after < before
		m.partial = m.partial && !present(found["usage"])
	case "message_stop":
		m.done = true
	}
	return false
}

// countAnthropic counts usage in which input, reads and writes of the cache come on top of each other.
func countAnthropic(f *figures) {
	for figure, quantity := range map[string]string{"input_tokens": Input, "cache_read_input_tokens": CacheRead} {
		if n, known := f.number(figure); known {
			f.counts[quantity] = n
		}
	}
	written, known := f.number("cache_creation_input_tokens")
	short, knownShort := f.number("cache_creation.ephemeral_5m_input_tokens")
	long, knownLong := f.number("cache_creation.ephemeral_1h_input_tokens")
	if !known && (knownShort || knownLong) {
		written, known = f.add(short, long), true
	}
	if knownShort && knownLong && written-short != long {
		f.bad = true
	}
	f.divide(written, known, CacheWrite, part{"cache_creation.ephemeral_1h_input_tokens", CacheWrite1h, false})
	out, known := f.number("output_tokens")
	f.divide(out, known, Output, part{"output_tokens_details.thinking_tokens", Reasoning, false})
}

// anthropicFailure returns the body of an error: https://docs.claude.com/en/api/errors.
func anthropicFailure(status int, text, _ string) any {
	kind := map[int]string{401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error"}[status]
	switch {
	case kind != "":
	case status >= 500:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}}
}
