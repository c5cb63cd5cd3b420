package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// sellerKey is the API key of the seller at the model server of a guide.
const sellerKey = "seller"

// sellers are the guides for sellers. Each begins with its result, has a short configuration, and ends with the revenue (TestGuide_Sellers).
var sellers = []guide{
	{page: "guides/sell-models.md", from: modelSDKs, service: true, servers: map[string]http.Handler{"127.0.0.1:8000": vllm{}}},
	{page: "guides/sell-ollama.md", from: payments, service: true, servers: map[string]http.Handler{"127.0.0.1:11434": http.HandlerFunc(ollama)}},
	{page: "guides/sell-search.md", from: payments, service: true, servers: map[string]http.Handler{"127.0.0.1:3000": http.HandlerFunc(searches)}},
	{page: "guides/sell-mcp.md", from: mcpClients, service: true},
}

// TestGuide_Sellers checks the form of the guides for sellers.
func TestGuide_Sellers(t *testing.T) {
	for _, page := range []string{"sell-models", "sell-ollama", "sell-search", "sell-mcp", "gate-proxy"} {
		text := string(must.Get(os.ReadFile(filepath.Join("..", "docs", "guides", page+".md")))(t))
		if _, body, _ := strings.Cut(text, "\n\n"); !strings.HasPrefix(body, "After this, ") {
			t.Errorf("%s does not begin with its result", page)
		}
		if last := text[strings.LastIndex(text, "\n## "):]; !strings.Contains(last, "toll usage") || !strings.Contains(last, "toll revenue") {
			t.Errorf("%s does not end with the revenue", page)
		}
		most := map[string]int{"yaml": 12, "buyer": 5}
		for _, b := range blocksOf(text) {
			for _, kind := range []string{b.language, b.word} {
				if n := strings.Count(b.text, "\n"); most[kind] > 0 && n > most[kind] {
					t.Errorf("%s: a block of %s has %d lines", page, kind, n)
				}
			}
		}
	}
}

// modelRequest has the members of requests to the model servers below. vllm rejects unknown members.
type modelRequest struct {
	Model         string
	Messages      []json.RawMessage
	Input         []string
	Stream        *bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Store   *bool
	Limit   int64 `json:"max_completion_tokens"`
	Options struct {
		Limit int64 `json:"num_predict"`
	}
}

// vllm is a server with the chat API of OpenAI as vLLM serves it: a stream has usage only on request. It calls pause, if any, after the first word.
type vllm struct{ pause func(http.ResponseWriter) }

func (s vllm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q modelRequest
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch err := d.Decode(&q); {
	case r.Header.Get("Authorization") != "Bearer "+sellerKey:
		http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
		return
	case r.URL.Path != "/v1/chat/completions" || q.Model != "qwen3-8b" || len(q.Messages) == 0:
		http.Error(w, `{"error":{"message":"The model does not exist."}}`, http.StatusNotFound)
		return
	case err != nil || q.Limit != 16384:
		http.Error(w, fmt.Sprintf(`{"error":{"message":"%v, limit %d"}}`, err, q.Limit), http.StatusBadRequest)
		return
	}
	chunk := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,"model":"qwen3-8b","choices":`
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	fmt.Fprint(w, chunk, `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`, "\n\n")
	for i, word := range strings.SplitAfter("The capital of France is Paris.", " ") {
		text, _ := json.Marshal(word)
		fmt.Fprint(w, chunk, `[{"index":0,"delta":{"content":`, string(text), `},"logprobs":null,"finish_reason":null}]}`, "\n\n")
		_ = http.NewResponseController(w).Flush()
		if i == 0 && s.pause != nil {
			s.pause(w)
		}
	}
	fmt.Fprint(w, chunk, `[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}`, "\n\n")
	if q.StreamOptions.IncludeUsage {
		fmt.Fprint(w, chunk, `[],"usage":{"prompt_tokens":15,"total_tokens":23,"completion_tokens":8}}`, "\n\n")
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// ollama responds as https://docs.ollama.com/api documents, with the counts of its examples.
func ollama(w http.ResponseWriter, r *http.Request) {
	var q modelRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, `{"error":"invalid request"}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if r.URL.Path == "/api/embed" {
		vectors, _ := json.Marshal(make([][3]float64, len(q.Input)))
		fmt.Fprintf(w, `{"model":%q,"embeddings":%s,"total_duration":14143917,"load_duration":1019500,"prompt_eval_count":12}`, q.Model, vectors)
		return
	}
	if q.Options.Limit <= 0 { // its default has no end
		http.Error(w, `{"error":"no output limit"}`, http.StatusBadRequest)
		return
	}
	object := func(text, more string) {
		said, _ := json.Marshal(text)
		member := `"response":` + string(said)
		if r.URL.Path == "/api/chat" {
			member = `"message":{"role":"assistant","content":` + string(said) + `}`
		}
		fmt.Fprintf(w, `{"model":%q,"created_at":"2026-08-04T08:52:19.385406Z",%s,"done":%v%s}`+"\n", q.Model, member, more != "", more)
	}
	const answer = "The sky is blue because of Rayleigh scattering."
	const end = `,"done_reason":"stop","total_duration":4883583458,"load_duration":1334875,"prompt_eval_count":26,` +
		`"prompt_eval_duration":342546000,"eval_count":298,"eval_duration":4535599000`
	if q.Stream != nil && !*q.Stream {
		object(answer, end)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for _, word := range strings.SplitAfter(answer, " ") {
		object(word, "")
		_ = http.NewResponseController(w).Flush()
	}
	object("", end)
}

// searches is the search API of a guide.
func searches(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Query().Get("q") {
	case "toll":
		w.Header().Set("X-Pages", "4")
		_, _ = io.WriteString(w, `{"results":[{"title":"Toll"},{"title":"Gate"},{"title":"Plan"}]}`)
	case "nothing":
		w.Header().Set("X-Pages", "1")
		_, _ = io.WriteString(w, `{"results":[]}`)
	case "broken":
		http.Error(w, "the index is down", http.StatusInternalServerError)
	}
}
