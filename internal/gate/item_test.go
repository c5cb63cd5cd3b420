package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

const toolsOfServer = `plan: Pro
credit: 0.01 USD
meters:
  find: { results: { response: /page/results, count: true }, letters: { request: /q, length: true }, hits: { response: /hits } }
routes:
  - match: tools/find
    meter: find
    price:
      - { when: { mode: "deep*" }, base: 10, results: 5, letters: 2, max: 100 }
      - { when: { mode: "strict" }, results: 5, max: 40, missing: refuse }
      - { when: { mode: "loose" }, base: 1, hits: 3, max: 40, missing: min }
      - { when: { mode: "timed" }, seconds: 4, max: 30 }
      - { when: { mode: "sized" }, per: 10, bytes: 3, max: 60 }
  - { match: tools/report, credits: 40, per_call: 0.02 USDC }
  - { match: "tools/*", credits: 1 }
  - { match: "prompts/hello", free: true }
`

// TestItem prices calls of tools by hand.
func TestItem(t *testing.T) {
	c := must.Get(gate.Parse([]byte(toolsOfServer)))(t)
	find := c.Items()[0]
	structured := func(text string) string { return `{"content":[],"structuredContent":` + text + `}` }
	deep := `{"mode":"deeper","q":"abc"}`
	for _, s := range []struct {
		name, args, result string
		took               time.Duration
		hold, price, over  toll.Credits
	}{
		{"results and letters", deep, structured(`{"page":{"results":[1,2]}}`), 0, 100, 26, 0},
		{"no results", deep, structured(`{"page":{"results":[]}}`), 0, 100, 16, 0},
		{"above the hold", deep, structured(`{"page":{"results":[` + strings.Repeat("0,", 19) + `0]}}`), 0, 100, 100, 16},
		{"missing", deep, structured(`{"page":{}}`), 0, 100, 100, 0},
		{"null", deep, structured(`{"page":{"results":null}}`), 0, 100, 100, 0},
		{"no list", deep, structured(`{"page":{"results":3}}`), 0, 100, 100, 0},
		{"no result", deep, "", 0, 100, 100, 0},
		{"no structured content", deep, `{"content":[]}`, 0, 100, 100, 0},
		{"JSON as text", deep, `{"content":[{"type":"text","text":"{\"page\":{\"results\":[1]}}"}]}`, 0, 100, 21, 0},
		{"two texts", deep, `{"content":[{"type":"text","text":"{\"page\":{\"results\":[1]}}"},{"type":"text","text":""}]}`, 0, 100, 100, 0},
		{"a text twice the name", deep, `{"content":[{"type":"text","text":"{\"page\":{\"results\":[1],\"results\":[]}}"}]}`, 0, 100, 100, 0},
		{"a text beside", deep, `{"content":[{"type":"text","text":"{}"}],"structuredContent":{"page":{"results":[1]}}}`, 0, 100, 21, 0},
		{"characters, not bytes", `{"mode":"deep","q":"äöü"}`, structured(`{"page":{"results":[]}}`), 0, 100, 16, 0},
		{"negative", `{"mode":"loose"}`, structured(`{"hits":-1}`), 0, 40, 40, 0},
		{"a fraction", `{"mode":"loose"}`, structured(`{"hits":1.5}`), 0, 40, 40, 0},
		{"huge", `{"mode":"loose"}`, structured(`{"hits":99999999999999999999}`), 0, 40, 40, 0},
		{"the largest", `{"mode":"loose"}`, structured(`{"hits":9223372036854775807}`), 0, 40, 40, toll.MaxCredits - 40},
		{"counted as nothing", `{"mode":"loose"}`, structured(`{}`), 0, 40, 1, 0},
		{"seconds", `{"mode":"timed"}`, structured(`{}`), 2100 * time.Millisecond, 30, 12, 0},
		{"bytes", `{"mode":"sized"}`, structured(`{}`), 0, 60, 12, 0}, // 38 bytes
	} {
		hold, err := find.Hold([]byte(s.args))
		if err != nil || hold != s.hold {
			t.Errorf("%s: hold %s, %v, want %s", s.name, hold, err, s.hold)
		}
		var result []byte
		if s.result != "" {
			result = []byte(s.result)
		}
		price, over, err := find.Price([]byte(s.args), result, s.took)
		if err != nil || price != s.price || over != s.over {
			t.Errorf("%s: %s and %s above, %v; want %s and %s", s.name, price, over, err, s.price, s.over)
		}
	}
	if _, _, err := find.Price([]byte(`{"mode":"strict"}`), []byte(structured(`{}`)), 0); err == nil || !strings.Contains(err.Error(), "results is missing") {
		t.Errorf("refused: %v", err)
	}
	if !find.RefusesResults() || c.Items()[1].RefusesResults() {
		t.Error("RefusesResults")
	}
	if n, fixed := c.Items()[1].Fixed(); n != 40 || !fixed || c.Items()[1].Exact().Amount.String() != "20000" {
		t.Errorf("%s %v %+v", n, fixed, c.Items()[1].Exact())
	}
	if n, fixed := c.Items()[3].Fixed(); n != 0 || !fixed {
		t.Errorf("free: %s %v", n, fixed)
	}
}

// TestItem_Strict: arguments that a server could read in another way are rejected before a hold.
func TestItem_Strict(t *testing.T) {
	find := must.Get(gate.Parse([]byte(toolsOfServer)))(t).Items()[0]
	for name, s := range map[string]struct{ args, says string }{
		"no arguments":        {"", "no price for these parameters"},
		"null":                {"null", "no price for these parameters"},
		"another value":       {`{"mode":"other"}`, "no price for these parameters"},
		"twice":               {`{"mode":"deep","mode":"loose","q":""}`, "without duplicate names"},
		"twice, inside":       {`{"mode":"deep","q":"","x":{"a":1,"a":2}}`, "without duplicate names"},
		"another case":        {`{"Mode":"loose","mode":"deep","q":""}`, "Mode must be spelled mode"},
		"a counted name":      {`{"mode":"deep","Q":"long text","q":""}`, "Q must be spelled q"},
		"a list":              {`{"mode":["deep"]}`, "must be a text, a number, or a boolean"},
		"not an object":       {`["deep"]`, "must be a JSON object"},
		"a text":              {`"deep"`, "must be a JSON object"},
		"a number for a text": {`{"mode":"deep","q":7}`, "whole number of 0 or more"},
		"invalid UTF-8":       {"{\"mode\":\"deep\",\"q\":\"\xff\"}", "must be a JSON object"},
		"nested deeply":       {`{"mode":"deep","q":"","x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, "must be a JSON object"},
		"a long value":        {`{"mode":"deep` + strings.Repeat("x", 2000) + `","q":""}`, "no price for these parameters"},
	} {
		_, err := find.Hold([]byte(s.args))
		if e := toll.AsError(err); err == nil || e.Code != toll.CodeBadRequest || !strings.Contains(e.Text(), s.says) {
			t.Errorf("%s: %v, want %q", name, err, s.says)
		}
	}
}

// TestLines_Tools: the command check prints tools as it prints routes, and holds their prices against the plan.
func TestLines_Tools(t *testing.T) {
	c := must.Get(gate.Parse([]byte(toolsOfServer)))(t)
	lines := c.Lines()
	if len(lines) != 8 {
		t.Fatalf("%+v", lines)
	}
	if got := fmt.Sprintf("%+v", lines[0]); got != "{Route:tools/find Upstream: When:mode=deep* Price:10 + 2 per letters + 5 per results Most:100 Example:10 letters, 10 results Credits:80 Worth:0.80 USD}" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%+v", lines[5]); got != "{Route:tools/report Upstream: When: Price:40 Most:40 Example: Credits:40 Worth:0.40 USD}" {
		t.Error(got)
	}
	if err := c.CheckPlan(&x402.Terms{MinAmount: 1, MaxAmount: 99}); err == nil || !strings.Contains(err.Error(), "routes[0] (tools/find): price[0] can cost up to 100 credits") {
		t.Error(err)
	}
	if err := c.CheckPlan(&x402.Terms{MinAmount: 1, MaxAmount: 100}); err != nil {
		t.Error(err)
	}
	other := must.Get(gate.Parse([]byte(strings.Replace(toolsOfServer, "credits: 40", "credits: 41", 1))))(t)
	moved := must.Get(gate.Parse([]byte(toolsOfServer + "listen: 127.0.0.1:1\n")))(t)
	if !c.SameServer(other) || c.SameServer(moved) {
		t.Error("SameServer")
	}
}
