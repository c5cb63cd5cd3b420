package gate_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/modelapi"
	"github.com/tollhq/toll/internal/must"
)

// The prices of TestRecordedUsage. Each class has a different rate, for 10 units.
const (
	recordedRow    = "{ per: 10, input: 2, cache_read: 3, cache_write: 5, cache_write_1h: 7, output: 11, reasoning: 13, input_audio: 17, input_image: 19, output_audio: 23, output_image: 29 }"
	embeddingRow   = "{ per: 10, input: 2 }"
	atHold         = -1
	highestInput   = 19
	highestOutput  = 29
	defaultOutput  = 16384
	recordedCredit = 1_000_000
)

// recordedSums are the costs of the recorded responses of package modelapi in tenths of a credit, as rate*count for each class. atHold is
// the hold: the usage is missing, incomplete, or contradictory.
var recordedSums = []struct {
	name string
	sum  int64
}{
	{"anthropic messages", 2*2095 + 11*503},
	{"anthropic messages: the cache comes on top", 2*2048 + 3*1800 + 5*148 + 7*100 + 11*503},
	{"anthropic messages: thinking is inside of the output", 2*10 + 11*103 + 13*400},
	{"anthropic messages: the parts of a write contradict its total", atHold},
	{"anthropic messages: more thinking than output", atHold},
	{"anthropic messages: negative", atHold},
	{"anthropic stream", 2*25 + 3*7 + 7*30 + 11*15},
	{"anthropic stream: the end repeats the input", 2*472 + 11*80 + 13*9},
	{"anthropic stream: breaks before the output is known", atHold},
	{"anthropic stream: running usage", 2*25 + 11*40},
	{"anthropic stream: the output shrinks", atHold},
	{"anthropic stream: two starts", atHold},
	{"anthropic stream: no usage", atHold},
	{"gemini generateContent", 2*8 + 11*23 + 13*1115},
	{"gemini generateContent: the cache is inside of the prompt, also for audio", 2*10 + 3*600 + 17*200 + 19*200 + 11*20 + 29*30 + 13*40},
	{"gemini generateContent: thoughts that only the total contains", 2*8 + 11*2 + 13*50},
	{"gemini generateContent: blocked", atHold},
	{"gemini generateContent: more cached than prompt", atHold},
	{"gemini generateContent: more cached audio than audio", atHold},
	{"gemini generateContent: a total that contradicts", atHold},
	{"gemini streamGenerateContent as events", 2*11 + 11*73 + 13*50},
	{"gemini streamGenerateContent as events: breaks", atHold},
	{"gemini streamGenerateContent as a list", 2*11 + 11*73},
	{"gemini streamGenerateContent as a list: breaks", atHold},
	{"gemini generateContent: thoughts and total contradict", atHold},
	{"gemini streamGenerateContent as events: blocked", atHold},
	{"ollama generate", 2*26 + 11*290},
	{"ollama generate: the count of the prompt is missing", atHold},
	{"ollama generate: only loads the model", 0},
	{"ollama generate stream", 2*26 + 11*259},
	{"ollama chat", 2*26 + 11*298},
	{"ollama chat stream", 2*26 + 11*282},
	{"ollama chat stream: breaks", atHold},
	{"ollama chat stream: two ends", atHold},
	{"ollama chat stream: an error", atHold},
	{"ollama chat stream: negative", atHold},
	{"ollama embed", 2 * 8},
	{"ollama chat stream: null is missing", atHold},
	{"openai chat: cached and reasoning tokens are inside of the totals", 2*86 + 3*1920 + 11*44 + 13*256},
	{"openai chat: a server without details", 2*26 + 11*298},
	{"openai chat: cache writes are inside of the prompt", 2*793 + 3*1000 + 5*3207 + 11*10},
	{"openai chat: audio in both directions", 2*17 + 17*100 + 11*41 + 23*160},
	{"openai chat: a server that reports reasoning on top of the completion", 2*26 + 3*6 + 11*9 + 13*94},
	{"openai chat: thoughts that only the total contains", 2*10 + 11*20 + 13*470},
	{"openai chat: no usage", atHold},
	{"openai chat: a missing total is missing", atHold},
	{"openai chat: more cached than prompt", atHold},
	{"openai chat: negative", atHold},
	{"openai chat: a fraction", atHold},
	{"openai chat: a number above 2^63", atHold},
	{"openai chat: the largest numbers", atHold},
	{"openai chat: a total that contradicts", atHold},
	{"openai chat: usage twice", atHold},
	{"openai chat: a figure twice", atHold},
	{"openai chat: usage is a text", atHold},
	{"openai chat: cut off", atHold},
	{"openai chat: no JSON", atHold},
	{"openai chat: JSON after the end", atHold},
	{"openai chat stream: the usage event is hidden", 2*9 + 11*12},
	{"openai chat stream: the usage event is shown", 2*9 + 11*12},
	{"openai chat stream: false counts as not requested, and lines end with CR LF", 2*9 + 11*12},
	{"openai chat stream: usage in the last event with choices", 2*17 + 11*9},
	{"openai chat stream: running usage of a stream that breaks", 2*5 + 11*2},
	{"openai chat stream: running usage, then the final one", 2*5 + 11*3},
	{"openai chat stream: the same final usage twice", 2*5 + 11*3},
	{"openai chat stream: two different final usages", atHold},
	{"openai chat stream: breaks before the usage", atHold},
	{"openai chat stream: no usage", atHold},
	{"openai chat stream: the last event without a blank line", 2*5 + 11*3},
	{"openai chat stream: data in two lines", 2*5 + 11*3},
	{"openai chat stream: the server answers at once", 2*5 + 11*3},
	{"openai completions", 2*5 + 11*7},
	{"openai completions stream", 2*2 + 11*64},
	{"openai embeddings", 2 * 8},
	{"openai responses", 2*25 + 3*11 + 11*23 + 13*64},
	{"openai responses stream", 2*93 + 5*3207 + 11*12},
	{"openai responses stream: the output limit is reached", 2*8 + 11*16},
	{"openai responses stream: fails without usage", atHold},
	{"openai responses stream: two ends", atHold},
	{"openai responses stream: breaks", atHold},
	{"openai chat: cached images", 3*900 + 19*100 + 11*5},
	{"openai chat: writes above the adjusted prompt", 5*3200 + 11*5},
	{"openai chat: names that look like paths", 2*10 + 11*5},
	{"openai chat: reasoning and total contradict", atHold},
	{"openai chat: brackets do not match", atHold},
	{"openai chat stream: usage twice in one event", atHold},
}

// recordedCase is a request of testdata, and the response to it.
type recordedCase struct{ api, path, request, contentType, response string }

func recordedCases(t *testing.T) map[string]recordedCase {
	t.Helper()
	out := map[string]recordedCase{}
	for _, file := range must.Get(filepath.Glob("../modelapi/testdata/*.txt"))(t) {
		api := strings.TrimSuffix(filepath.Base(file), ".txt")
		_, text, _ := strings.Cut(string(must.Get(os.ReadFile(file))(t)), "\n== ")
		for one := range strings.SplitSeq(text, "\n== ") {
			parts := strings.Split(one, "\n-- ")
			head := strings.SplitN(parts[0], "\n", 3)
			kind, response, _ := strings.Cut(parts[1], "\n")
			kind, crlf := strings.CutSuffix(kind, " crlf")
			response = strings.ReplaceAll(response, " hide\n", "\n")
			if crlf {
				response = strings.ReplaceAll(response, "\n", "\r\n")
			}
			out[api+" "+head[0]] = recordedCase{api, strings.TrimPrefix(head[1], "POST "), head[2], kind, response}
		}
	}
	return out
}

// hold returns the largest price of the request, in credits.
func (c *recordedCase) hold(t *testing.T) int64 {
	t.Helper()
	api, _ := modelapi.Find(c.api)
	call := must.Get(api.Operation("POST", c.path).Parse(http.Header{"Content-Type": {"application/json"}}, []byte(c.request)))(t)
	if !call.HasOutput {
		return (2*call.Input + 9) / 10
	}
	output := int64(defaultOutput)
	if call.Output > 0 {
		output = min(output, call.Output)
	}
	return (highestInput*call.Input + highestOutput*output*call.N + 9) / 10
}

// TestRecordedUsage sends every recorded response of every API, plain and streamed, through a gate with a service. The settled credits are
// the sums of the table.
func TestRecordedUsage(t *testing.T) {
	cases := recordedCases(t)
	config, routes := "upstreams: { m: { url: UPSTREAM } }\nroutes:\n", map[string]bool{}
	for _, c := range cases {
		if routes[c.path] {
			continue
		}
		routes[c.path] = true
		row := recordedRow
		if strings.Contains(c.path, "embed") {
			row = embeddingRow
		}
		config += fmt.Sprintf("  - { match: %q, preset: %s, price: [ %s ] }\n", "POST "+c.path, c.api, row)
	}
	var now recordedCase
	s := begin(t, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", now.contentType)
		_, _ = io.WriteString(w, now.response)
	}))
	ann := s.svc.Subscriber(recordedCredit)
	if len(recordedSums) != len(cases) {
		t.Errorf("the table has %d rows for %d recorded responses", len(recordedSums), len(cases))
	}
	for _, row := range recordedSums {
		c, ok := cases[row.name]
		if !ok {
			t.Errorf("%s is not recorded", row.name)
			continue
		}
		now = c
		hold, want := c.hold(t), (row.sum+9)/10
		if row.sum == atHold {
			want = hold
		}
		r := s.send("POST", c.path, ann.AccessToken, c.request)
		got := spent(ann, recordedCredit)
		if r.status != 200 || got != toll.Credits(min(want, hold)) {
			t.Errorf("%s: %d, %d credits, want %d at a hold of %d: %.300s", row.name, r.status, got, want, hold, r.body)
		}
		if used, held := r.header.Get(gate.HeaderUsed), r.header.Get(gate.HeaderHeld); used != "" && used != fmt.Sprint(got) || held != "" && held != fmt.Sprint(hold) || used+held == "" {
			t.Errorf("%s: the response says %q used, %q held", row.name, used, held)
		}
		if got > 0 {
			s.svc.Mint(ann.Address, got)
		}
	}
}
