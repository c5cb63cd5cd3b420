package modelapi

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// gemini is the API that Google documents at https://ai.google.dev/api/generate-content. Names are accepted in camel case only, because
// the server also accepts snake case, and takes one of both.
func gemini() *API {
	operation := func(method string, stream bool) *Operation {
		return &Operation{
			path: "/v1beta/models/{model}:" + method, required: "contents", limit: "generationConfig.maxOutputTokens", stream: stream,
			members: geminiMembers(),
			read:    reader{want: []string{"usageMetadata", "candidates", "promptFeedback"}, event: geminiEvent, count: countGemini},
		}
	}
	return newAPI(&API{
		name:       "gemini",
		free:       []string{"GET /v1beta/models", "GET /v1beta/models/{id}"},
		seller:     []string{"x-goog-*", "x-gemini-*"},
		failure:    geminiFailure,
		operations: []*Operation{operation("generateContent", false), operation("streamGenerateContent", true)},
	})
}

func geminiMembers() map[string]rule {
	content := object("parts", members("role", map[string]rule{"parts": list(object("", members("text thought thoughtSignature functionCall functionResponse",
		map[string]rule{"inlineData": inlineData, "fileData": stored})))}))
	tool := func(w *walk, v jsontext.Value) error {
		w.tools = 1
		return object("", members("functionDeclarations"))(w, v)
	}
	return map[string]rule{
		"contents": counted(list(content)), "systemInstruction": counted(content), "tools": counted(list(tool)), "toolConfig": counted(nil),
		"safetySettings": nil, "cachedContent": stored,
		"generationConfig": object("", members("temperature topP topK stopSequences presencePenalty frequencyPenalty seed responseMimeType responseLogprobs "+
			"logprobs thinkingConfig mediaResolution", map[string]rule{
			"maxOutputTokens": limit("generationConfig.maxOutputTokens", 1), "candidateCount": answers,
			"responseSchema": counted(nil), "responseJsonSchema": counted(nil), "responseModalities": list(only("TEXT")),
		})),
	}
}

// inlineData is a file in the request: {"mimeType", "data"}.
func inlineData(w *walk, v jsontext.Value) error {
	data := document
	switch kind := text(get(v, "mimeType")); {
	case strings.HasPrefix(kind, "image/"):
		data = image
	case strings.HasPrefix(kind, "audio/"):
		data = audio
	}
	return object("mimeType data", members("mimeType displayName", map[string]rule{"data": data}))(w, v)
}

// geminiEvent reads the running usage, which every event of a stream has.
func geminiEvent(m *Meter, found map[string]jsontext.Value, _ bool) bool {
	m.report(found["usageMetadata"], true)
	m.done = m.done || present(found["promptFeedback"])
	eachItem(found["candidates"], func(_ int, candidate jsontext.Value) error {
		m.done = m.done || candidate.Kind() == '{' && get(candidate, "finishReason") != nil
		return nil
	})
	return false
}

// countGemini counts usage in which the prompt includes the cached content, and thoughts and results of tools come on top.
func countGemini(f *figures) {
	prompt, knownPrompt := f.number("promptTokenCount")
	f.modalities("promptTokensDetails", 1)
	f.modalities("cacheTokensDetails", -1)
	f.divide(prompt, knownPrompt, Input, part{"cachedContentTokenCount", CacheRead, false},
		part{"promptTokensDetails.AUDIO", InputAudio, false}, part{"promptTokensDetails.IMAGE", InputImage, false})
	tool, knownTool := f.number("toolUsePromptTokenCount")
	if knownTool {
		f.counts[Input] = f.add(f.counts[Input], tool)
	}
	out, knownOut := f.number("candidatesTokenCount")
	f.modalities("candidatesTokensDetails", 1)
	f.divide(out, knownOut, Output, part{"candidatesTokensDetails.AUDIO", OutputAudio, false}, part{"candidatesTokensDetails.IMAGE", OutputImage, false})
	thoughts, knownThoughts := f.number("thoughtsTokenCount")
	if total, known := f.number("totalTokenCount"); known && knownPrompt && knownOut {
		extra := total - f.add(f.add(prompt, tool), f.add(out, thoughts))
		if extra > 0 && !knownThoughts {
			thoughts, knownThoughts = extra, true
		} else if extra != 0 {
			f.bad = true
		}
	}
	if knownThoughts {
		f.counts[Reasoning] = thoughts
	}
}

// modalities adds the audio and image tokens of a list of details, times sign, to figures of the name before the first dot: details of
// the cache are taken from the details of the prompt.
func (f *figures) modalities(list string, sign int64) {
	details := f.values[list]
	if details == nil {
		return
	}
	into := list
	if sign < 0 {
		into = "promptTokensDetails"
	}
	err := eachItem(details, func(_ int, v jsontext.Value) error {
		if v.Kind() != '{' {
			return errNoObject
		}
		kind := into + "." + text(get(v, "modality"))
		if kind != into+".AUDIO" && kind != into+".IMAGE" {
			return nil
		}
		n, ok := integer(get(v, "tokenCount"))
		before, _ := integer(f.values[kind])
		if !ok || n < 0 {
			return errNoObject
		}
		if sign > 0 {
			n = f.add(before, n)
		} else {
			n = before - n
		}
		f.values[kind] = jsontext.Value(strconv.FormatInt(n, 10))
		return nil
	})
	f.bad = f.bad || err != nil
}

// geminiFailure returns the body of an error: https://ai.google.dev/gemini-api/docs/troubleshooting.
func geminiFailure(status int, text, _ string) any {
	word := map[int]string{401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
		429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 504: "DEADLINE_EXCEEDED"}[status]
	switch {
	case word != "":
	case status >= 500:
		word = "UNAVAILABLE"
	default:
		word = "INVALID_ARGUMENT"
	}
	return map[string]any{"error": map[string]any{"code": status, "message": text, "status": word}}
}
