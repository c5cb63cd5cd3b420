package modelapi

import (
	"maps"

	"github.com/go-json-experiment/json/jsontext"
)

// ollama is the API that Ollama documents at https://docs.ollama.com/api. Its routes that are compatible with OpenAI are the API "openai".
func ollama() *API {
	return newAPI(&API{
		name:    "ollama",
		free:    []string{"GET /api/tags", "POST /api/show", "GET /api/version"},
		failure: func(_ int, text, _ string) any { return map[string]any{"error": text} },
		operations: []*Operation{
			ollamaOperation("/api/chat", "model messages", "options.num_predict", map[string]rule{
				"messages": counted(list(object("role", members("role content thinking tool_calls tool_name tool_call_id",
					map[string]rule{"images": list(image)})))),
				"tools": tools("function"),
			}),
			ollamaOperation("/api/generate", "model", "options.num_predict", map[string]rule{
				"prompt": counted(isString), "suffix": counted(isString), "system": counted(isString), "template": counted(isString),
				"context": counted(nil), "images": counted(list(image)), "raw": isBool,
			}),
			ollamaOperation("/api/embed", "model input", "", map[string]rule{"input": counted(nil), "dimensions": nil}),
		},
	})
}

// ollamaOperation returns an operation without the members and options that change how a model is loaded: they cost memory of the server,
// and a reload for other callers.
func ollamaOperation(path, required, output string, own map[string]rule) *Operation {
	o := &Operation{
		path: path, required: required, limit: output, streamed: output != "",
		read: reader{want: []string{"done", "done_reason", "prompt_eval_count", "eval_count"}, event: ollamaEvent, count: countOllama},
	}
	o.members = members("truncate", map[string]rule{
		"model": isModel,
		"options": object("", members("num_keep seed top_k top_p min_p tfs_z typical_p repeat_last_n temperature repeat_penalty presence_penalty "+
			"frequency_penalty mirostat mirostat_tau mirostat_eta penalize_newline stop", map[string]rule{"num_predict": limit("options.num_predict", -2)})),
	}, own)
	if output != "" {
		o.members = members("think logprobs top_logprobs shift", o.members, map[string]rule{"stream": isStream, "format": counted(nil)})
	}
	return o
}

// ollamaEvent reads the last object of a stream, or the only one. The counts of /api/embed come without "done".
func ollamaEvent(m *Meter, found map[string]jsontext.Value, streamed bool) bool {
	if streamed && string(found["done"]) != "true" {
		return false
	}
	m.figures.bad = m.figures.bad || m.done
	m.done = m.done || streamed
	maps.DeleteFunc(found, func(_ string, v jsontext.Value) bool { return !present(v) })
	m.figures.values, m.known = found, true
	return false
}

// countOllama counts usage that misses counts of 0, and the count of a prompt that is cached. A call that only loads a model uses nothing.
func countOllama(f *figures) {
	in, knownIn := f.number("prompt_eval_count")
	out, knownOut := f.number("eval_count")
	if text(f.values["done_reason"]) == "load" && !knownIn && !knownOut {
		knownIn, knownOut = true, true
	}
	if knownIn {
		f.counts[Input] = in
	}
	if knownOut {
		f.counts[Output] = out
	}
}
