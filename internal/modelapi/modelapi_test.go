package modelapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// recorded is one case of testdata: a request and the response to it.
type recorded struct {
	name, path, request, contentType string
	sent, shown                      string // by the server, and to the caller
	counts                           map[string]int64
	bad, complete                    bool
	api                              *API
}

func readCases(t testing.TB) (cases []recorded) {
	t.Helper()
	files := must.Get(filepath.Glob("testdata/*.txt"))(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		api, ok := Find(name)
		if !ok {
			t.Fatalf("%s: no such API", file)
		}
		_, rest, _ := strings.Cut(string(must.Get(os.ReadFile(file))(t)), "\n== ")
		for text := range strings.SplitSeq(rest, "\n== ") {
			parts := strings.Split(text, "\n-- ")
			head := strings.SplitN(parts[0], "\n", 3)
			if len(parts) != 3 || len(head) != 3 {
				t.Fatalf("%s: %q is not a case", file, text)
			}
			kind, sent, _ := strings.Cut(parts[1], "\n")
			c := recorded{api: api, name: name + " " + head[0], path: strings.TrimPrefix(head[1], "POST "), request: head[2]}
			var crlf bool
			c.contentType, crlf = strings.CutSuffix(kind, " crlf")
			for line := range strings.Lines(sent) {
				plain := strings.ReplaceAll(line, " hide", "")
				c.sent += plain
				if plain == line {
					c.shown += line
				} else {
					c.shown += "\x00"
				}
			}
			c.shown = strings.ReplaceAll(c.shown, "\x00\n", "") // with the blank line
			if crlf {
				c.sent, c.shown = strings.ReplaceAll(c.sent, "\n", "\r\n"), strings.ReplaceAll(c.shown, "\n", "\r\n")
			}
			for want := range strings.FieldsSeq(parts[2]) {
				quantity, n, found := strings.Cut(want, "=")
				switch {
				case found:
					if c.counts == nil {
						c.counts = map[string]int64{}
					}
					c.counts[quantity] = must.Get(strconv.ParseInt(n, 10, 64))(t)
				case want == "bad":
					c.bad = true
				case want == "complete":
					c.complete = true
				case want != "none":
					t.Fatalf("%s: %q", c.name, want)
				}
			}
			cases = append(cases, c)
		}
	}
	return cases
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// parse parses a request that must be valid.
func parse(t testing.TB, api *API, path, body string) *Call {
	t.Helper()
	o := api.Operation("POST", path)
	if o == nil {
		t.Fatalf("no operation has the path %s", path)
	}
	c, err := o.Parse(jsonHeader(), []byte(body))
	if err != nil {
		t.Fatalf("Parse(%s): %v", body, err)
	}
	return c
}

// run sends the pieces of a response through a meter.
func run(c *Call, contentType string, pieces ...[]byte) (shown string, u Usage, complete bool) {
	m := c.Meter(200, http.Header{"Content-Type": {contentType}})
	for _, p := range pieces {
		own := bytes.Clone(p)
		shown += string(m.Write(own))
		clear(own) // the meter must not keep it
	}
	rest, u, complete := m.End()
	return shown + string(rest), u, complete
}

func (c *recorded) check(t *testing.T, how, shown string, u Usage, complete bool) {
	t.Helper()
	if got, want := fmt.Sprint(u.Counts, u.Bad, complete), fmt.Sprint(c.counts, c.bad, c.complete); got != want {
		t.Fatalf("%s: got %s, want %s", how, got, want)
	}
	if (u.Counts == nil) != (c.counts == nil) {
		t.Fatalf("%s: counts are nil: %v", how, u.Counts == nil)
	}
	if shown != c.shown {
		t.Fatalf("%s: the caller gets\n%q, want\n%q", how, shown, c.shown)
	}
}

// TestMeter_Recorded reads recorded responses at once, byte by byte, and in two pieces that are cut at every place.
func TestMeter_Recorded(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := parse(t, c.api, c.path, c.request)
			shown, u, complete := run(call, c.contentType, []byte(c.sent))
			c.check(t, "at once", shown, u, complete)
			for i := range len(c.sent) {
				shown, u, complete := run(call, c.contentType, []byte(c.sent[:i]), []byte(c.sent[i:]))
				c.check(t, "cut at "+strconv.Itoa(i), shown, u, complete)
			}
			single := make([][]byte, 0, len(c.sent))
			for i := range len(c.sent) {
				single = append(single, []byte(c.sent[i:i+1]))
			}
			shown, u, complete = run(call, c.contentType, single...)
			c.check(t, "byte by byte", shown, u, complete)
		})
	}
}

// TestMeter_Long sends lines of 10 MB: they pass, the memory is bounded, and the usage of a stream is unknown.
func TestMeter_Long(t *testing.T) {
	api, _ := Find("openai")
	body := `{"model":"m","messages":[],"stream":true}`
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":3}`
	fill := strings.Repeat("x", 10<<20)
	for name, c := range map[string]struct {
		contentType, sent string
		known, complete   bool
	}{
		"one line":  {"text/event-stream", "data: {\"choices\":[{\"x\":\"" + fill + "\"}]," + usage + "}\n\ndata: [DONE]\n\n", false, true},
		"no lines":  {"text/event-stream", fill, false, false},
		"then more": {"text/event-stream", fill + "\n\ndata: {\"choices\":[]," + usage + "}\n\ndata: [DONE]\n\n", false, true},
		"at once":   {"text/event-stream at once", "data: {\"choices\":[]," + usage + ",\"x\":\"" + fill[:maxEvent] + "\"}\n\ndata: {\"choices\":[]," + usage + "}\n\ndata: [DONE]\n\n", false, true},
		"one value": {"application/json", `{"choices":[{"x":"` + fill + `"}],` + usage + `}`, true, true},
		"in usage":  {"application/json", `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"x":"` + fill + `"}}`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			kind, atOnce := strings.CutSuffix(c.contentType, " at once")
			m := parse(t, api, "/v1/chat/completions", body).Meter(200, http.Header{"Content-Type": {kind}})
			size := 32 << 10
			if atOnce {
				size = len(c.sent)
			}
			got := 0
			for piece := range slices.Chunk([]byte(c.sent), size) {
				got += len(m.Write(piece))
				if kept := cap(m.buf) + cap(m.find.value); kept > 3*maxEvent {
					t.Fatalf("the meter keeps %d bytes", kept)
				}
			}
			rest, u, complete := m.End()
			got += len(rest)
			if hidden := strings.Count(c.sent, `data: {"choices":[],`+usage+"}"); got != len(c.sent)-hidden*(len(`data: {"choices":[],}`)+len(usage)+2) {
				t.Errorf("the caller gets %d of %d bytes", got, len(c.sent))
			}
			if (u.Counts != nil) != c.known || complete != c.complete {
				t.Errorf("got %v, complete %v", u, complete)
			}
		})
	}
}

// TestFinder compares the members that a finder and a decoder find, for random documents in random pieces.
func TestFinder(t *testing.T) {
	want := []string{"usage", "a.usage", "b.c"}
	names := rapid.SampledFrom([]string{"usage", "a", "b", "c", `us"age\`, "a.usage", ""})
	texts := rapid.SampledFrom([]string{"", "usage", `"usage":{`, "}],\\", "\u2028é\n"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Map(texts, func(s string) any { return s }), rapid.SampledFrom([]any{nil, true, -1.5, 12}))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(value(depth-1), 0, 3), func(v []any) any { return v }),
			rapid.Map(rapid.MapOfN(names, value(depth-1), 0, 5), func(v map[string]any) any { return v }))
	}
	rapid.Check(t, func(t *rapid.T) {
		document := rapid.MapOfN(names, value(3), 0, 5).Draw(t, "document")
		text, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		f := finder{want: want}
		for piece := range slices.Chunk(text, rapid.IntRange(1, 50).Draw(t, "size")) {
			f.write(piece)
		}
		if !f.complete() || f.twice {
			t.Fatalf("complete %v, twice %v: %s", f.complete(), f.twice, text)
		}
		for _, path := range want {
			outer, inner, nested := strings.Cut(path, ".")
			expected, ok := document[outer]
			if nested {
				object, _ := expected.(map[string]any)
				expected, ok = object[inner]
			}
			got, found := f.found[path]
			if found != ok {
				t.Fatalf("%s: found %v in %s", path, found, text)
			}
			if plain, err := json.Marshal(expected); found && (err != nil || string(plain) != string(got)) {
				t.Fatalf("%s: got %s, want %s", path, got, plain)
			}
		}
	})
}

// TestTables lists what the APIs offer.
func TestTables(t *testing.T) {
	if got := fmt.Sprint(Names()); got != "[openai anthropic ollama gemini]" {
		t.Error(got)
	}
	for name, want := range map[string]string{
		"openai": "[POST /v1/chat/completions POST /v1/completions POST /v1/responses POST /v1/embeddings] [GET /v1/models GET /v1/models/{id}] " +
			"[set-cookie x-ratelimit-* openai-organization openai-project]",
		"anthropic": "[POST /v1/messages] [GET /v1/models GET /v1/models/{id}] " +
			"[set-cookie x-ratelimit-* anthropic-organization-id anthropic-workspace-id anthropic-ratelimit-* anthropic-priority-*]",
		"ollama": "[POST /api/chat POST /api/generate POST /api/embed] [GET /api/tags POST /api/show GET /api/version] [set-cookie x-ratelimit-*]",
		"gemini": "[POST /v1beta/models/{model}:generateContent POST /v1beta/models/{model}:streamGenerateContent] " +
			"[GET /v1beta/models GET /v1beta/models/{id}] [set-cookie x-ratelimit-* x-goog-* x-gemini-*]",
	} {
		a, _ := Find(name)
		if got := fmt.Sprint(a.Paths(), " ", a.FreeRoutes(), " ", a.SellerHeaders()); got != want || a.Name() != name {
			t.Errorf("%s: got %s", name, got)
		}
		for _, path := range a.Paths() {
			_, path, _ = strings.Cut(path, " ")
			o := a.Operation("POST", strings.ReplaceAll(path, "{model}", "m"))
			if o == nil || o.HasOutput() == strings.Contains(path, "embed") {
				t.Errorf("%s: HasOutput is wrong", path)
			}
		}
	}
}

func TestMeter_Pass(t *testing.T) {
	api, _ := Find("openai")
	c := parse(t, api, "/v1/chat/completions", `{"model":"m","messages":[]}`)
	body := `{"usage":{"prompt_tokens":5,"completion_tokens":3},"choices":[]}`
	for _, m := range []*Meter{
		c.Meter(500, jsonHeader()),
		c.Meter(200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}),
	} {
		shown := string(m.Write([]byte(body)))
		if rest, u, _ := m.End(); shown+string(rest) != body || u.Counts != nil || u.Bad {
			t.Errorf("got %q, %v", shown, u)
		}
	}
}

// TestParse_Calls checks facts about requests, and the body that is forwarded.
func TestParse_Calls(t *testing.T) {
	long := strings.Repeat("a", 1000)
	for _, c := range []struct {
		api, path, body string
		limit           int64
		want            string // members of Call, without templateTokens
		sent            string
	}{
		{"openai", "/v1/chat/completions", ` { "model" : "\u0067pt", "messages" : [ {"role":"user","content":"h\u00e9 \ud83d\ude00"} ], "temperature" : 1.50e0, "seed": 12345678901234567890 } `, 500,
			`model=gpt seed=12345678901234567890 temperature=1.50e0 n=1 input=38 files=0 output=0`,
			`{"model":"gpt","messages":[{"role":"user","content":"hé 😀"}],"temperature":1.50e0,"seed":12345678901234567890,"max_completion_tokens":500,"store":false}`},
		{"openai", "/openai/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":100,"store":true}`, 50,
			`max_tokens=100 model=m store=true n=1 input=2 files=0 output=100`,
			`{"model":"m","messages":[],"max_tokens":50,"store":false}`},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_completion_tokens":100,"max_tokens":null,"n":3,"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":false}}`, 5000,
			`max_completion_tokens=100 model=m n=3 stream=true n=3 input=2 files=0 output=100 stream hide`,
			`{"model":"m","messages":[],"max_completion_tokens":100,"n":3,"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},"store":false}`},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"stream_options":null,"service_tier":"flex"}`, 0,
			`model=m service_tier=flex stream=true n=1 input=2 files=0 output=0 stream hide surcharges=service_tier`,
			`{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true},"service_tier":"flex","store":false}`},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + long + `","detail":"low"}}]}],` +
			`"tools":[{"type":"function","function":{"name":"f","parameters":{"file_id":1}}}]}`, 0,
			`model=m n=1 input=1210 files=1 output=0`, ""},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"` + long + `"}}]}]}`, 0, `model=m n=1 input=1069 files=1 output=0`, ""},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"` + long + `","format":"mp3"}}]}]}`, 0, `model=m n=1 input=154 files=1 output=0`, ""},
		{"openai", "/v1/completions", `{"model":"m","prompt":["a","b",[1,2]],"best_of":4,"n":2}`, 9, `best_of=4 model=m n=2 n=12 input=15 files=0 output=0`,
			`{"model":"m","prompt":["a","b",[1,2]],"best_of":4,"n":2,"max_tokens":9}`},
		{"openai", "/v1/completions", `{"model":"m","prompt":[1,2,3]}`, 0, `model=m n=1 input=7 files=0 output=0`, `{"model":"m","prompt":[1,2,3]}`},
		{"openai", "/v1/embeddings", `{"model":"m","input":["a","b"]}`, 100, `model=m n=1 input=9 files=0 output=0`, `{"model":"m","input":["a","b"]}`},
		{"openai", "/v1/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":"https://x/y.pdf"},{"type":"input_image","image_url":"https://x/y.png"}]},` +
			`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"abc"},{"type":"function_call_output","call_id":"c","output":"42"}],"store":true,"background":false,"stream":true}`, 77,
			`background=false model=m store=true stream=true n=1 input=1048824 files=2 output=0 stream`, ""},
		{"openai", "/v1/responses", `{"model":"m","input":"hi","max_output_tokens":50,"previous_response_id":null}`, 77, `input=hi max_output_tokens=50 model=m n=1 input=4 files=0 output=50`,
			`{"model":"m","input":"hi","max_output_tokens":50,"previous_response_id":null,"store":false}`},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":4096,"messages":[],"thinking":{"type":"enabled","budget_tokens":1024},"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}],"speed":"fast","service_tier":"auto"}`, 1025,
			`max_tokens=4096 model=m service_tier=auto speed=fast n=1 input=2121 files=0 output=4096 surcharges=speed`,
			`{"model":"m","max_tokens":1025,"messages":[],"thinking":{"type":"enabled","budget_tokens":1024},"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}],"speed":"fast","service_tier":"auto"}`},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + long + `"}},` +
			`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"abc"}},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}]},{"type":"tool_use","id":"t","name":"n","input":{"file_id":1,"image":"` + long + `"}}]}]}`, 0,
			`max_tokens=5 model=m n=1 input=1371 files=1 output=5`, ""},
		{"ollama", "/api/chat", `{"model":"m","messages":[{"role":"user","content":"a","images":["` + long + `","b"]}]}`, 64, `model=m n=1 input=44 files=2 output=0 stream`, ""},
		{"ollama", "/api/generate", `{"model":"m","prompt":"a","options":{"seed":1,"num_predict":-1},"stream":false}`, 64, `model=m prompt=a stream=false n=1 input=3 files=0 output=0`,
			`{"model":"m","prompt":"a","options":{"seed":1,"num_predict":64},"stream":false}`},
		{"ollama", "/api/generate", `{"model":"m","prompt":"a","options":{"num_predict":8}}`, 64, `model=m prompt=a n=1 input=3 files=0 output=8 stream`,
			`{"model":"m","prompt":"a","options":{"num_predict":8}}`},
		{"ollama", "/api/embed", `{"model":"m","input":"a"}`, 64, `input=a model=m n=1 input=3 files=0 output=0`, `{"model":"m","input":"a"}`},
		{"gemini", "/v1beta/models/g-1:streamGenerateContent", `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + long + `"}},{"inlineData":{"data":"abc","mimeType":"application/pdf"}}]}],"generationConfig":{"candidateCount":2}}`, 9,
			`model=g-1 n=2 input=120 files=2 output=0 stream`, ""},
		{"gemini", "/v1beta/models/g-1:generateContent", `{"contents":[],"tools":[{"functionDeclarations":[]}]}`, 9, `model=g-1 n=1 input=1055 files=0 output=0`,
			`{"contents":[],"tools":[{"functionDeclarations":[]}],"generationConfig":{"maxOutputTokens":9}}`},
	} {
		api, _ := Find(c.api)
		call := parse(t, api, c.path, c.body)
		var got []string
		for name, value := range call.Members {
			got = append(got, name+"="+value)
		}
		slices.Sort(got)
		got = append(got, fmt.Sprintf("n=%d input=%d files=%d output=%d", call.N, call.Input-templateTokens, call.Files, call.Output))
		if call.Stream {
			got = append(got, "stream")
		}
		if call.hide {
			got = append(got, "hide")
		}
		if call.Surcharges != nil {
			got = append(got, "surcharges="+strings.Join(call.Surcharges, ","))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%.200s:\ngot  %s\nwant %s", c.body, s, c.want)
		}
		body := must.Get(call.Body(c.limit))(t)
		if c.sent != "" && string(body) != c.sent {
			t.Errorf("%s:\nsent %s\nwant %s", c.body, body, c.sent)
		}
		if !json.Valid(body) {
			t.Errorf("%s is not JSON", body)
		}
	}
}

// TestParse_Refusals checks the errors for bad requests: part of the message, and params.path.
func TestParse_Refusals(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for _, c := range []struct{ api, path, body, want, member string }{
		{"openai", "/v1/chat/completions", ``, "not complete JSON", ""},
		{"openai", "/v1/chat/completions", `{"model":"m"`, "not complete JSON", ""},
		{"openai", "/v1/chat/completions", `[]`, "must be an object", ""},
		{"openai", "/v1/chat/completions", `null`, "must be an object", ""},
		{"openai", "/v1/chat/completions", "{\"model\":\"\xff\"}", "not valid JSON in UTF-8", ""},
		{"openai", "/v1/chat/completions", `{"model":"\ud800"}`, "not valid JSON in UTF-8", ""},
		{"openai", "/v1/chat/completions", "\ufeff{}", "not valid JSON in UTF-8", ""},
		{"openai", "/v1/chat/completions", `{} {}`, "data after", ""},
		{"openai", "/v1/chat/completions", `{"model":"m","mod\u0065l":"n","messages":[]}`, "model is duplicated", "model"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","role":"user"}]}`, "messages.0.role is duplicated", "messages.0.role"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"tools":` + deep + `}`, "nested deeper than 128", ""},
		{"openai", "/v1/chat/completions", `{"Model":"m","messages":[]}`, "must be spelled model", "Model"},
		{"openai", "/v1/chat/completions", `{"messages":[]}`, "model is required", "model"},
		{"openai", "/v1/chat/completions", `{"model":null,"messages":[]}`, "model is required", "model"},
		{"openai", "/v1/chat/completions", `{"model":"m"}`, "messages is required", "messages"},
		{"openai", "/v1/chat/completions", `{"model":"","messages":[]}`, "must be a string", "model"},
		{"openai", "/v1/chat/completions", `{"model":["m"],"messages":[]}`, "must be a string", "model"},
		{"openai", "/v1/chat/completions", `{"model":"` + strings.Repeat("m", 257) + `","messages":[]}`, "must be a string", "model"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":{}}`, "must be a list", "messages"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":["hi"]}`, "must be an object", "messages[0]"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":5}]}`, "must be a string or a list", "messages[0].content"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"text":"x"}]}]}`, "not support", "messages[0].content[0].type"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`, "stored data", "messages[0].content[0].file.file_id"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","audio":{"id":"a"}}]}`, "stored data", "messages[0].audio"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":5}`, "cannot be combined", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":1.5}`, "must be an integer", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":1e3}`, "must be an integer", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":0}`, "must be an integer", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":-1}`, "must be an integer", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":"5"}`, "must be an integer", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":9223372036854775808}`, "must be an integer", "max_tokens"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"n":129}`, "from 1 to 128", "n"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"n":0}`, "from 1 to 128", "n"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"stream":"true"}`, "must be true or false", "stream"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"stream_options":{"include_usage":1}}`, "must be true or false", "stream_options.include_usage"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"store":"no"}`, "must be true or false", "store"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"service_tier":5}`, "short string", "service_tier"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"modalities":["text","audio"]}`, "must be text", "modalities[1]"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"audio":{"voice":"a"}}`, "audio_output", "audio"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"web_search_options":{}}`, "web_search", "web_search_options"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"models":["n"]}`, "not supported", "models"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"tools":[{"type":"web_search"}]}`, "web_search", "tools[0].type"},
		{"openai", "/v1/chat/completions", `{"model":"m","messages":[],"tools":[5]}`, "must be an object", "tools[0]"},
		{"openai", "/v1/completions", `{"model":"m","prompt":{}}`, "must be a list", "prompt"},
		{"openai", "/v1/completions", `{"model":"m","prompt":[` + strings.Repeat(`"",`, 2048) + `""]}`, "more than 2048", "prompt"},
		{"openai", "/v1/embeddings", `{"model":"m","input":"a","stream":true}`, "not supported", "stream"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","previous_response_id":"r"}`, "stored data", "previous_response_id"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","conversation":{"id":"c"}}`, "stored data", "conversation"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","prompt":{"id":"p"}}`, "stored data", "prompt"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","background":true}`, "must be false", "background"},
		{"openai", "/v1/responses", `{"model":"m","input":[{"id":"msg_1"}]}`, "is required", "input[0].role"},
		{"openai", "/v1/responses", `{"model":"m","input":[{"type":null,"id":"msg_1"}]}`, "is required", "input[0].role"},
		{"openai", "/v1/responses", `{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`, "stored data", "input[0]"},
		{"openai", "/v1/responses", `{"model":"m","input":[{"type":"reasoning","id":"rs_1","summary":[]}]}`, "is required", "input[0].encrypted_content"},
		{"openai", "/v1/responses", `{"model":"m","input":[{"type":"web_search_call","id":"ws_1"}]}`, "web_search", "input[0].type"},
		{"openai", "/v1/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`, "stored data", "input[0].content[0].file_id"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","context_management":[]}`, "not supported", "context_management"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","max_tokens":5}`, "not supported", "max_tokens"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","tools":[{"type":"function","name":"f"},{"type":"code_interpreter","container":{"type":"auto"}}]}`, "code_execution", "tools[1].type"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","tools":[{"type":"file_search"}]}`, "file_search", "tools[0].type"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","tools":[{"type":"image_generation"}]}`, "image_generation", "tools[0].type"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","tools":[{"type":"computer_use_preview"}]}`, "computer_use", "tools[0].type"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","tools":[{"type":"mcp","server_url":"https://x"}]}`, "mcp", "tools[0].type"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","tools":[{"type":"new_thing"}]}`, "not support", "tools[0].type"},
		{"openai", "/v1/responses", `{"model":"m","input":"a","reasoning":{"mode":"pro"}}`, "not supported", "reasoning.mode"},
		{"anthropic", "/v1/messages", `{"model":"m","messages":[]}`, "is required", "max_tokens"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":0,"messages":[]}`, "at least 1", "max_tokens"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"thinking":{"type":"enabled","budget_tokens":1024}}`, "must be below the output limit, which is 1024", "thinking.budget_tokens"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"container":"c"}`, "stored data", "container"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"mcp_servers":[]}`, "mcp", "mcp_servers"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"context_management":{}}`, "not supported", "context_management"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}]}`, "stored data", "messages[0].content[0].source"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"tool_result","content":"x"}]}]}]}`, "not support", "messages[0].content[0].content[0].type"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]}`, "stored data", "messages[0].content[0]"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, "web_search", "tools[0].type"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"tools":[{"type":"code_execution_20250825"}]}`, "code_execution", "tools[0].type"},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":1024,"messages":[],"tools":[{"type":"web_fetch_20250910"}]}`, "web_fetch", "tools[0].type"},
		{"ollama", "/api/chat", `{"model":"m","messages":[],"keep_alive":-1}`, "not supported", "keep_alive"},
		{"ollama", "/api/chat", `{"model":"m","messages":[],"Options":{"num_predict":5}}`, "must be spelled options", "Options"},
		{"ollama", "/api/chat", `{"model":"m","messages":[],"options":{"num_ctx":1000000}}`, "not supported", "options.num_ctx"},
		{"ollama", "/api/chat", `{"model":"m","messages":[],"options":{"num_predict":-3}}`, "at least -2", "options.num_predict"},
		{"ollama", "/api/chat", `{"model":"m","messages":[],"options":[]}`, "must be an object", "options"},
		{"ollama", "/api/chat", `{"model":"m","messages":[{"role":"user","Content":"x"}]}`, "must be spelled content", "messages[0].Content"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[],"generation_config":{}}`, "not supported", "generation_config"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[],"cachedContent":"cachedContents/1"}`, "stored data", "cachedContent"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"fileData":{"fileUri":"f"}}]}]}`, "stored data", "contents[0].parts[0].fileData"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[],"tools":[{"googleSearch":{}}]}`, "web_search", "tools[0].googleSearch"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[],"tools":[{"codeExecution":{}}]}`, "code_execution", "tools[0].codeExecution"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[],"generationConfig":{"responseModalities":["AUDIO"]}}`, "must be TEXT", "generationConfig.responseModalities[0]"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[],"generationConfig":{"maxOutputTokens":0}}`, "at least 1", "generationConfig.maxOutputTokens"},
	} {
		api, _ := Find(c.api)
		_, err := api.Operation("POST", c.path).Parse(jsonHeader(), []byte(c.body))
		checkFault(t, c.body, err, c.want, c.member)
	}
}

func checkFault(t *testing.T, body string, err error, want, member string) {
	t.Helper()
	e, ok := errors.AsType[*toll.Error](err)
	if !ok {
		t.Errorf("%.200s: got %v, want an error with %q", body, err, want)
		return
	}
	path, _ := e.Params["path"].(string)
	if e.HTTPStatus() != 400 || !strings.Contains(e.Message, want) || path != member {
		t.Errorf("%.200s: got %d %q at %q, want %q at %q", body, e.HTTPStatus(), e.Message, path, want, member)
	}
}

func TestParse_Header(t *testing.T) {
	api, _ := Find("openai")
	o := api.Operation("POST", "/v1/embeddings")
	body := []byte(`{"model":"m","input":"a"}`)
	for _, h := range []http.Header{
		{},
		{"Content-Type": {"text/plain"}},
		{"Content-Type": {"application/json; charset=utf-16"}},
		{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		if _, err := o.Parse(h, body); err == nil {
			t.Errorf("%v is accepted", h)
		}
	}
	for _, h := range []http.Header{
		{"Content-Type": {"application/json; charset=UTF-8"}, "Openai-Organization": {"org"}, "Authorization": {"Bearer x"}},
		{"Content-Type": {"application/json"}, "Content-Encoding": {"identity"}},
	} {
		if sent := must.Get(o.Parse(h, body))(t).Header(); len(sent) != 1 || sent.Get("Content-Type") != "application/json" {
			t.Errorf("%v: sent %v", h, sent)
		}
	}
}

// TestHeader_Anthropic forwards the version, and betas that do not change the price.
func TestHeader_Anthropic(t *testing.T) {
	api, _ := Find("anthropic")
	h := http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {"k"}, "Anthropic-Version": {"2024-01-01"},
		"Anthropic-Beta": {"fast-mode-2026-02-01, interleaved-thinking-2025-05-14", "files-api-2025-04-14,effort-2025-11-24"}}
	c := must.Get(api.Operation("POST", "/v1/messages").Parse(h, []byte(`{"model":"m","max_tokens":5,"messages":[]}`)))(t)
	got := fmt.Sprint(c.Header())
	if want := "map[Anthropic-Beta:[interleaved-thinking-2025-05-14,effort-2025-11-24] Anthropic-Version:[2024-01-01] Content-Type:[application/json]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestBody_Budget lowers the output limit below the thinking budget.
func TestBody_Budget(t *testing.T) {
	api, _ := Find("anthropic")
	c := parse(t, api, "/v1/messages", `{"model":"m","max_tokens":4096,"messages":[],"thinking":{"type":"enabled","budget_tokens":2000}}`)
	_, err := c.Body(2000)
	checkFault(t, "limit 2000", err, "must be below the output limit, which is 2000", "thinking.budget_tokens")
	must.Get(c.Body(2001))(t)
}

// TestBody_LimitName sends the limit under the name that the seller chose.
func TestBody_LimitName(t *testing.T) {
	api, _ := Find("openai")
	c := parse(t, api, "/v1/chat/completions", `{"model":"m","max_completion_tokens":90,"messages":[]}`)
	if names := fmt.Sprint(c.op.LimitNames()); names != "[max_tokens max_completion_tokens]" {
		t.Error(names)
	}
	c.LimitName = "max_tokens"
	if got := string(must.Get(c.Body(50))(t)); got != `{"model":"m","messages":[],"max_tokens":50,"store":false}` {
		t.Error(got)
	}
	if got := string(must.Get(c.Body(0))(t)); got != `{"model":"m","messages":[],"max_tokens":90,"store":false}` {
		t.Error(got)
	}
}

// TestBody_Omit leaves out members that the server rejects, also if the caller set them.
func TestBody_Omit(t *testing.T) {
	api, _ := Find("openai")
	c := parse(t, api, "/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"store":true,"stream_options":{"include_usage":true}}`)
	for omit, want := range map[string]string{
		"store":                `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`,
		"stream_options":       `{"model":"m","messages":[],"stream":true,"store":false}`,
		"store stream_options": `{"model":"m","messages":[],"stream":true}`,
	} {
		c.Omit = strings.Fields(omit)
		if got := string(must.Get(c.Body(0))(t)); got != want {
			t.Errorf("without %s: %s", omit, got)
		}
	}
	for path, want := range map[string]string{"/v1/chat/completions": "[store stream_options]", "/v1/responses": "[store]", "/v1/embeddings": "[]"} {
		if got := fmt.Sprint(api.Operation("POST", path).Added()); got != want {
			t.Errorf("%s adds %s", path, got)
		}
	}
}

func TestOperation(t *testing.T) {
	for _, c := range []struct{ api, method, path, want string }{
		{"openai", "POST", "/v1/chat/completions", "/v1/chat/completions"},
		{"openai", "POST", "/api/openai/v1/completions", "/v1/completions"},
		{"openai", "GET", "/v1/chat/completions", ""},
		{"openai", "POST", "/v1/chat/completions/", ""},
		{"openai", "POST", "/chat/completions", ""},
		{"openai", "POST", "/V1/embeddings", ""},
		{"openai", "POST", "/v1/chat/completions/id/messages", ""},
		{"openai", "POST", "/v1/batches", ""},
		{"openai", "POST", "/v1/responses", "/v1/responses"},
		{"openai", "POST", "/v1/responses/compact", ""},
		{"anthropic", "POST", "/v1/messages", "/v1/messages"},
		{"anthropic", "POST", "/v1/messages/batches", ""},
		{"ollama", "POST", "/api/chat", "/api/chat"},
		{"ollama", "POST", "/api/pull", ""},
		{"gemini", "POST", "/v1beta/models/gemini-2.5-pro:generateContent", "/v1beta/models/{model}:generateContent"},
		{"gemini", "POST", "/v1beta/models/a/b:generateContent", ""},
		{"gemini", "POST", "/v1beta/models/..:generateContent", ""},
		{"gemini", "POST", "/v1beta/models/:generateContent", ""},
		{"gemini", "POST", "/v1beta/models/m:countTokens", ""},
	} {
		api, ok := Find(c.api)
		if !ok {
			t.Fatal(c.api)
		}
		got := ""
		if o := api.Operation(c.method, c.path); o != nil {
			got = o.path
		}
		if got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.method, c.path, got, c.want)
		}
	}
	api, _ := Find("gemini")
	first := api.Operation("POST", "/v1beta/models/first:generateContent")
	api.Operation("POST", "/v1beta/models/second:generateContent")
	if c := must.Get(first.Parse(jsonHeader(), []byte(`{"contents":[]}`)))(t); c.Members["model"] != "first" {
		t.Errorf("the model is %s", c.Members["model"])
	}
	if _, ok := Find("OpenAI"); ok {
		t.Error("names are not case-sensitive")
	}
}

func TestError(t *testing.T) {
	const buy = "https://shop.example/agents/1"
	for _, c := range []struct {
		api    string
		status int
		want   string
	}{
		{"openai", 400, `{"error":{"code":null,"message":"Wrong.","param":"n","type":"invalid_request_error"}}`},
		{"openai", 401, `{"error":{"code":"invalid_api_key","message":"Wrong. Buy access at ` + buy + `","param":"n","type":"invalid_request_error"}}`},
		{"openai", 402, `{"error":{"code":"insufficient_quota","message":"Wrong. Buy access at ` + buy + `","param":"n","type":"insufficient_quota"}}`},
		{"openai", 404, `{"error":{"code":"model_not_found","message":"Wrong.","param":"n","type":"invalid_request_error"}}`},
		{"openai", 429, `{"error":{"code":"rate_limit_exceeded","message":"Wrong.","param":"n","type":"requests"}}`},
		{"openai", 502, `{"error":{"code":null,"message":"Wrong.","param":"n","type":"server_error"}}`},
		{"anthropic", 400, `{"error":{"message":"Wrong.","type":"invalid_request_error"},"type":"error"}`},
		{"anthropic", 401, `{"error":{"message":"Wrong. Buy access at ` + buy + `","type":"authentication_error"},"type":"error"}`},
		{"anthropic", 402, `{"error":{"message":"Wrong. Buy access at ` + buy + `","type":"billing_error"},"type":"error"}`},
		{"anthropic", 404, `{"error":{"message":"Wrong.","type":"not_found_error"},"type":"error"}`},
		{"anthropic", 429, `{"error":{"message":"Wrong.","type":"rate_limit_error"},"type":"error"}`},
		{"anthropic", 502, `{"error":{"message":"Wrong.","type":"api_error"},"type":"error"}`},
		{"ollama", 402, `{"error":"Wrong. Buy access at ` + buy + `"}`},
		{"gemini", 400, `{"error":{"code":400,"message":"Wrong.","status":"INVALID_ARGUMENT"}}`},
		{"gemini", 401, `{"error":{"code":401,"message":"Wrong. Buy access at ` + buy + `","status":"UNAUTHENTICATED"}}`},
		{"gemini", 402, `{"error":{"code":402,"message":"Wrong. Buy access at ` + buy + `","status":"RESOURCE_EXHAUSTED"}}`},
		{"gemini", 502, `{"error":{"code":502,"message":"Wrong.","status":"UNAVAILABLE"}}`},
	} {
		api, _ := Find(c.api)
		e := &toll.Error{Code: toll.CodeBadRequest, Message: "Wrong.", Status: c.status, Params: map[string]any{"path": "n"}}
		status, kind, body := api.Error(e, buy)
		if status != c.status || kind != "application/json" || string(body) != c.want {
			t.Errorf("%s: got %d %s\n%s, want\n%s", c.api, status, kind, body, c.want)
		}
	}
}

// FuzzParse checks that a body that is accepted is forwarded as JSON with the same facts, and that nothing panics.
func FuzzParse(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add(c.api.name, c.path, c.request, int64(100))
	}
	f.Fuzz(func(t *testing.T, name, path, body string, limit int64) {
		api, ok := Find(name)
		if !ok {
			return
		}
		o := api.Operation("POST", path)
		if o == nil {
			return
		}
		c, err := o.Parse(jsonHeader(), []byte(body))
		if err != nil {
			if _, ok := errors.AsType[*toll.Error](err); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		if c.Input < 0 || c.N < 1 || c.Output < 0 || c.Files < 0 || c.Members["model"] == "" {
			t.Fatalf("%+v", c)
		}
		sent, err := c.Body(limit)
		if err != nil {
			return
		}
		again, err := o.Parse(jsonHeader(), sent)
		if err != nil {
			t.Fatalf("sent %s: %v", sent, err)
		}
		if again.Input != c.Input || again.N != c.N || again.Stream != c.Stream || again.Members["model"] != c.Members["model"] {
			t.Fatalf("sent %s: %+v, was %+v", sent, again, c)
		}
		if limit > 0 && c.HasOutput && (again.Output == 0 || again.Output > limit) {
			t.Fatalf("sent %s with the limit %d", sent, limit)
		}
	})
}

// FuzzMeter checks that the usage does not depend on how a response is cut, and that no count is negative.
func FuzzMeter(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add(c.api.name, c.path, c.request, c.contentType, []byte(c.sent), uint16(len(c.sent)/2))
	}
	f.Fuzz(func(t *testing.T, name, path, request, contentType string, response []byte, cut uint16) {
		api, ok := Find(name)
		if !ok {
			return
		}
		o := api.Operation("POST", path)
		if o == nil {
			return
		}
		c, err := o.Parse(jsonHeader(), []byte(request))
		if err != nil {
			return
		}
		i := min(int(cut), len(response))
		shown, u, complete := run(c, contentType, response)
		shown2, u2, complete2 := run(c, contentType, response[:i], response[i:])
		if shown != shown2 || fmt.Sprint(u) != fmt.Sprint(u2) || complete != complete2 {
			t.Fatalf("at once %q %v %v, cut %q %v %v", shown, u, complete, shown2, u2, complete2)
		}
		for q, n := range u.Counts {
			if n < 0 {
				t.Fatalf("%s=%d", q, n)
			}
		}
	})
}
