package rates_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rates"
)

func TestParseTable(t *testing.T) {
	got := table(t, `[
		{"when":{"model":"small-*","tier":"?"},"per":1000000,"base":3,"max":9223372036854775807,"max_input":1000,"max_output":100,"min_output":0,"image":85,
		 "input":150000,"cache_read":0,"output":600000,"results":7,"above":{"input":200000,"rates":{"input":1000000000000000,"pages":4}},
		 "missing":{"input":"refuse","results":"min","pages":"max"}},
		{"when":{"model":"*"},"output_image":1,"cache_read":0,"missing":"min"},
		{"when":{"model":""},"base":5,"max":5,"max_output":100},
		{"when":{"tier":"*"},"input":1,"output":2,"max_output":300,"missing":"refuse"},
		{"base":0}]`)
	want := rates.Table{
		{
			When: map[string]string{"model": "small-*", "tier": "?"}, Per: 1_000_000, Base: 3, Max: toll.MaxCredits.Ptr(), MaxInput: 1000, MaxOutput: 100, MinOutput: 0,
			Image: 85, Rates: counts{"input": 150_000, "cache_read": 0, "output": 600_000, "results": 7},
			Above:   &rates.Above{Input: 200_000, Rates: counts{"input": 1e15, "pages": 4}},
			Missing: map[rates.Quantity]rates.Policy{"input": "refuse", "results": "min", "pages": "max"},
		},
		{
			When: map[string]string{"model": "*"}, Per: 1, MaxInput: 200_000, MaxOutput: 16_384, MinOutput: 256, Rates: counts{"output_image": 1, "cache_read": 0},
			Missing: map[rates.Quantity]rates.Policy{"output": "min"},
		},
		{When: map[string]string{"model": ""}, Per: 1, Base: 5, Max: toll.Credits(5).Ptr(), MaxInput: 200_000, MaxOutput: 100, MinOutput: 100, Rates: counts{}},
		{
			When: map[string]string{"tier": "*"}, Per: 1, MaxInput: 200_000, MaxOutput: 300, MinOutput: 256, Rates: counts{"input": 1, "output": 2},
			Missing: map[rates.Quantity]rates.Policy{"input": "refuse", "output": "refuse"},
		},
		{Per: 1, MaxInput: 200_000, MaxOutput: 16_384, MinOutput: 256, Rates: counts{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseTable_Faults(t *testing.T) {
	const whole = "must be a whole number from 0 to 1000000000000000"
	many := func(n int, format string) string {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(rows, ",")
	}
	for _, c := range []struct{ text, want string }{
		{``, "price: is not complete JSON"},
		{`[`, "price: is not complete JSON"},
		{`[{"base":1}] x`, "price: has data after the JSON value"},
		{"[{\"base\":1,\"\xff\":1}]", "price"},
		{`{}`, "price: must be an array"},
		{`null`, "price: must be an array of 1 to 200 rows"},
		{`[]`, "price: must be an array of 1 to 200 rows"},
		{`[` + many(201, `{"when":{"model":"%d"},"base":1}`) + `]`, "price: must be an array of 1 to 200 rows"},
		{`[null]`, "price[0]: must be an object"},
		{`[7]`, "price[0]: must be an object"},
		{`[[]]`, "price[0]: must be an object"},
		{`[{}]`, "price[0]: must have base or the rate of a quantity"},
		{`[{"per":2,"max":2}]`, "price[0]: must have base or the rate of a quantity"},
		{`[{"base":1},{"base":1}]`, "price[1]: is never used"},
		{`[{"when":{},"base":1},{"base":1}]`, "price[1]: is never used"},
		{`[{"base":1,"base":1}]`, "price[0].base: is duplicated"},
		{`[{"input":1,"above":{"input":1,"rates":{"output":1,"output":2}}}]`, "price[0].above.rates.output: is duplicated"},
		{`[{"when":{"a":"1","a":"2"},"base":1}]`, "price[0].when.a: is duplicated"},
		{strings.Repeat("[", 40), "price: is nested deeper than 32"},

		{`[{"when":{"a":"b"},"base":1},{"output":1.5}]`, "price[1].output: " + whole},
		{`[{"output":-1}]`, "price[0].output: " + whole},
		{`[{"output":-0}]`, "price[0].output: " + whole},
		{`[{"output":1e3}]`, "price[0].output: " + whole},
		{`[{"output":1.0}]`, "price[0].output: " + whole},
		{`[{"output":"1"}]`, "price[0].output: " + whole},
		{`[{"output":null}]`, "price[0].output: " + whole},
		{`[{"output":true}]`, "price[0].output: " + whole},
		{`[{"output":{}}]`, "price[0].output: " + whole},
		{`[{"output":1000000000000001}]`, "price[0].output: " + whole},
		{`[{"output":99999999999999999999}]`, "price[0].output: " + whole},
		{`[{"base":1000000000000001}]`, "price[0].base: " + whole},
		{`[{"results":-1}]`, "price[0].results: " + whole},
		{`[{"base":1,"per":0}]`, "price[0].per: must be a whole number from 1 to 1000000000000"},
		{`[{"base":1,"per":1000000000001}]`, "price[0].per: must be a whole number from 1 to 1000000000000"},
		{`[{"base":0,"max":0}]`, "price[0].max: must be a whole number from 1 to 9223372036854775807"},
		{`[{"base":1,"max_input":9223372036854775808}]`, "price[0].max_input: must be a whole number from 0 to 9223372036854775807"},
		{`[{"base":1,"max_output":-1}]`, "price[0].max_output: must be"},
		{`[{"base":1,"min_output":-1}]`, "price[0].min_output: must be"},
		{`[{"base":1,"image":-1}]`, "price[0].image: must be"},
		{`[{"base":2,"max":1}]`, "price[0].max: must be at least base"},
		{`[{"base":2,"max_output":9,"min_output":10}]`, "price[0].min_output: must be at most max_output, which is 9"},

		{`[{"ouput":1}]`, "price[0].ouput: is not a member of price tables. The quantities of this route are input, cache_read, "},
		{`[{"Output":1}]`, `price[0]."Output": is not a member`},
		{`[{"a\u001b[1m":1}]`, `price[0]."a\x1b[1m": is not a member`},
		{`[{"":1}]`, `price[0]."": is not a member`},
		{`[{"documents":1}]`, "price[0].documents: is not a member"},

		{`[{"base":1,"when":7}]`, "price[0].when: must be an object"},
		{`[{"base":1,"when":{"model":7}}]`, `price[0].when.model: must be text such as "small-*"`},
		{`[{"base":1,"when":{"model":null}}]`, "price[0].when.model: must be text"},
		{`[{"base":1,"when":{"":"a"}}]`, `price[0].when."": must be text`},
		{`[{"base":1,"when":{"model":"` + strings.Repeat("a", 129) + `"}}]`, "price[0].when.model: must be text"},
		{`[{"base":1,"when":{"` + strings.Repeat("a", 129) + `":"a"}}]`, `must be text`},
		{`[{"base":1,"when":{` + many(17, `"m%d":"a"`) + `}}]`, "price[0].when: must have at most 16 members"},

		{`[{"base":1,"above":7}]`, "price[0].above: must be an object"},
		{`[{"base":1,"above":{}}]`, "price[0].above: must have input, and rates with at least one rate"},
		{`[{"base":1,"above":{"rates":{"input":1}}}]`, "price[0].above: must have input"},
		{`[{"base":1,"above":{"input":1}}]`, "price[0].above: must have input"},
		{`[{"base":1,"above":{"input":1,"rates":{}}}]`, "price[0].above: must have input"},
		{`[{"base":1,"above":{"input":-1,"rates":{"input":1}}}]`, "price[0].above.input: must be a whole number"},
		{`[{"base":1,"above":{"input":1,"rates":[]}}]`, "price[0].above.rates: must be an object"},
		{`[{"base":1,"above":{"input":1,"rates":{"base":1}}}]`, "price[0].above.rates.base: is not a member"},
		{`[{"base":1,"above":{"input":1,"rates":{"output":1.5}}}]`, "price[0].above.rates.output: " + whole},
		{`[{"base":1,"above":{"input":1,"rates":{"output":1},"per":2}}]`, "price[0].above.per: is unknown"},

		{`[{"input":1,"missing":"zero"}]`, "price[0].missing: must be max, min, or refuse"},
		{`[{"input":1,"missing":null}]`, "price[0].missing: must be max, min, or refuse"},
		{`[{"input":1,"missing":[]}]`, "price[0].missing: must be max, min, or refuse"},
		{`[{"input":1,"missing":{"input":7}}]`, "price[0].missing.input: must be max, min, or refuse"},
		{`[{"input":1,"missing":{"output":"min"}}]`, "price[0].missing.output: has no effect"},
		{`[{"input":1,"cache_read":2,"missing":{"cache_read":"min"}}]`, "price[0].missing.cache_read: has no effect"},
		{`[{"input":0,"output":2,"missing":{"input":"min"}}]`, "price[0].missing.input: has no effect"},
		{`[{"input":1,"missing":{"documents":"min"}}]`, "price[0].missing.documents: has no effect"},
	} {
		rows, err := rates.ParseTable([]byte(c.text), own)
		e, ok := errors.AsType[*toll.Error](err)
		if !ok || e.Code != toll.CodeBadRequest || rows != nil || !strings.HasPrefix(e.Message, c.want) && (c.want != "must be text" || !strings.Contains(e.Message, c.want)) {
			t.Errorf("%.120s: %v, want %s", c.text, err, c.want)
		}
	}

	// Every fault is listed.
	_, err := rates.ParseTable([]byte(`[{"when":{"a":"b"},"base":-1,"per":0},{"output":1.5}]`), nil)
	var paths []string
	for _, f := range toll.AsError(err).Params["errors"].([]toll.Fault) {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"price[0].base", "price[0].per", "price[1].output"}, paths); diff != "" {
		t.Error(diff)
	}
}

func TestParseQuantity(t *testing.T) {
	for _, good := range []string{"results", "input", "a", "a_1", strings.Repeat("a", 128)} {
		if q, err := rates.ParseQuantity(good); string(q) != good || err != nil {
			t.Errorf("%s: %q, %v", good, q, err)
		}
	}
	for _, bad := range []string{
		"", "1", "_a", "A", "a-b", "a.b", "é", strings.Repeat("a", 129),
		"when", "per", "base", "max", "max_input", "max_output", "min_output", "image", "above", "missing",
	} {
		if q, err := rates.ParseQuantity(bad); q != "" || err == nil {
			t.Errorf("%s: %q, %v", bad, q, err)
		}
		if _, err := rates.ParseTable([]byte(`[{"base":1}]`), []rates.Quantity{rates.Quantity(bad)}); err == nil {
			t.Errorf("ParseTable accepts the quantity %q", bad)
		}
	}
	if _, err := rates.ParseTable([]byte(`[{"input":1}]`), []rates.Quantity{"input", "results"}); err != nil {
		t.Errorf("a meter cannot report input: %v", err)
	}
}

func FuzzParseTable(f *testing.F) {
	for _, row := range []string{
		small, tiered, cached, search, `{"when":{"model":"a*"},"base":1},{"output_image":3,"missing":{"output":"refuse"}}`,
		`{"base":1,"max":5,"min_output":0,"max_output":0,"image":7,"requests":1,"missing":"min"}`, `{"output":1e3}`, `{"base":1,"base":2}`,
	} {
		f.Add([]byte("["+row+"]"), int64(1000), int64(500))
	}
	f.Fuzz(func(t *testing.T, raw []byte, input, output int64) {
		rows, err := rates.ParseTable(raw, own)
		if err != nil {
			if e, ok := errors.AsType[*toll.Error](err); !ok || e.Code != toll.CodeBadRequest || !strings.HasPrefix(e.Message, "price") {
				t.Fatalf("%v", err)
			}
			return
		}
		var plain []map[string]any
		if err := json.Unmarshal(raw, &plain); err != nil || len(plain) != len(rows) || len(rows) > 200 {
			t.Fatalf("%d rows of %d: %v", len(rows), len(plain), err)
		}
		for i := range rows {
			r := &rows[i]
			if r.Per < 1 || r.Per > 1e12 || r.Base < 0 || r.Base > 1e15 || r.MinOutput < 0 || r.MinOutput > r.MaxOutput || r.MaxInput < 0 || r.Image < 0 ||
				len(r.When) > 16 || r.Max != nil && *r.Max < toll.Credits(max(r.Base, 1)) {
				t.Fatalf("out of bounds: %+v", r)
			}
			for q, rate := range r.Rates {
				if rate < 0 || rate > 1e15 {
					t.Fatalf("rate %d of %s", rate, q)
				}
			}
			b := rates.Bounds{Input: input, Output: output, N: 1, Own: counts{"results": 1}}
			hold := r.Hold(b)
			if hold < 0 || r.Max != nil && hold > *r.Max {
				t.Fatalf("hold %d of %+v", hold, r)
			}
			if got, ok := r.Afford(b, hold); !ok || got != max(output, 0) {
				t.Fatalf("the hold does not pay for the limit: %d %v", got, ok)
			}
			u := rates.Usage{Counts: counts{"input": input, "output": output, "results": 1}}
			if p, uncovered, err := r.Price(u, hold); err == nil && (p < 0 || p > hold || uncovered < 0) {
				t.Fatalf("price %d of hold %d, uncovered %d", p, hold, uncovered)
			}
			rows.Find(map[string]string{"model": string(raw)})
		}
	})
}
