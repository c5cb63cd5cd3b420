package x402_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// record has a member of each kind that bodies have.
type record struct {
	PlanID  toll.PlanID     `json:"planId"`
	Agents  []toll.AgentID  `json:"agents"`
	Owner   *toll.Address   `json:"owner"`
	Key     toll.Hash       `json:"key"`
	Credits toll.Credits    `json:"credits"`
	Price   toll.Units      `json:"price"`
	Count   toll.Int        `json:"count"`
	Listed  toll.Bool       `json:"listed"`
	Name    string          `json:"name"`
	Tags    []string        `json:"tags"`
	At      *toll.Time      `json:"at"`
	Custom  json.RawMessage `json:"custom"`
	Inner   *inner          `json:"inner"`
	Plain   int             `json:"plain"`
	Ratio   float64         `json:"ratio"`
	Any     any             `json:"any"`
	ByName  map[string]inner
	Common
}

type Common struct {
	Note string `json:"note"`
}

type inner struct {
	Limit *toll.Credits `json:"limit"`
	Items []inner       `json:"items"`
}

func codeOf(t *testing.T, err error) toll.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *toll.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not a *toll.Error: %v", err, err)
	}
	return e.Code
}

func faultsOf(t *testing.T, err error) []toll.Fault {
	t.Helper()
	var e *toll.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not a *toll.Error: %v", err, err)
	}
	f, _ := e.Params["errors"].([]toll.Fault)
	return f
}

func pathsOf(t *testing.T, err error) string {
	t.Helper()
	var p []string
	for _, f := range faultsOf(t, err) {
		if f.Message == "" {
			t.Errorf("the fault of %s says nothing", f.Path)
		}
		p = append(p, f.Path)
	}
	return strings.Join(p, " ")
}

// T96
func TestJSONDifferentials(t *testing.T) {
	deep := func(n int) string { return `{"x":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	refused := map[string]string{
		"duplicate":                `{"planId":"1","planId":"1"}`,
		"duplicate by escape":      `{"planId":"1","plan\u0049d":"2"}`,
		"duplicate, unknown":       `{"a":1,"a":1}`,
		"duplicate, nested":        `{"x":{"y":[{"a":1,"a":1}]}}`,
		"duplicate, raw":           `{"custom":{"a":1,"a":1}}`,
		"duplicate, any":           `{"any":{"a":1,"a":1}}`,
		"duplicate after a fault":  `{"name":5,"x":{"a":1,"a":1}}`,
		"BOM":                      "\ufeff{}",
		"UTF-16":                   "{\x00}\x00",
		"UTF-16 with BOM":          "\xff\xfe{\x00}\x00",
		"bad UTF-8":                "{\"name\":\"\xff\"}",
		"bad UTF-8, unknown":       "{\"x\":\"\xc3\"}",
		"bad UTF-8, name":          "{\"\xff\":1}",
		"overlong":                 "{\"name\":\"\xc0\xaf\"}",
		"UTF-8 surrogate":          "{\"name\":\"\xed\xa0\x80\"}",
		"lone surrogate":           `{"name":"\ud800"}`,
		"lone low surrogate":       `{"x":"\udc00"}`,
		"swapped surrogates":       `{"x":"\udc00\ud800"}`,
		"NaN":                      `{"ratio":NaN}`,
		"Infinity":                 `{"x":Infinity}`,
		"trailing bytes":           `{} {}`,
		"trailing letter":          `{}x`,
		"trailing NUL":             "{}\x00",
		"trailing comma":           `{"name":"a",}`,
		"comment":                  `{/* */}`,
		"single quotes":            `{'name':'a'}`,
		"bare name":                `{name:"a"}`,
		"control in text":          "{\"name\":\"a\nb\"}",
		"bad escape":               `{"name":"\x41"}`,
		"truncated":                `{"name":"a"`,
		"empty":                    ``,
		"blank":                    " \n",
		"depth 33":                 deep(33),
		"depth 33 beside brackets": `{"s":"]]]]","x":` + deep(32) + `}`,
		"depth, unclosed":          strings.Repeat("[", 40),
		"depth, huge":              strings.Repeat("[", 1<<20),
		"array":                    `[]`,
		"text":                     `"{}"`,
		"number":                   `1`,
		"null":                     `null`,
		"null after blanks":        "\n null",
		"leading zero":             `{"x":01}`,
		"plus":                     `{"x":+1}`,
		"bare fraction":            `{"x":.5}`,
		"number of 10^6 digits":    `{"credits":` + strings.Repeat("9", 1e6) + `}`,
		"10^6 digits, units":       `{"price":` + strings.Repeat("9", 1e6) + `}`,
		"10^6 digits, int":         `{"plain":` + strings.Repeat("9", 1e6) + `}`,
		"10^6 digits, id":          `{"planId":` + strings.Repeat("9", 1e6) + `}`,
		"10^6 digits, any":         `{"any":1e` + strings.Repeat("9", 1e6) + `}`,
	}
	// decoding takes the shortest of many times, as a busy machine makes most longer, or one that is short enough.
	most := time.Duration(0)
	decoding := func(text string) time.Duration {
		best := time.Hour
		for tries := 0; tries < 30 && best > most; tries++ {
			start := time.Now()
			_ = x402.Decode([]byte(text), new(record))
			best = min(best, time.Since(start))
		}
		return best
	}
	// A number that nobody wants is read once. Turning digits into one costs hundreds of times as much.
	most = 60 * decoding(`{"x":`+strings.Repeat("9", 1e6)+`}`)
	for name, text := range refused {
		err := x402.Decode([]byte(text), new(record))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if status := err.(*toll.Error).HTTPStatus(); status != 400 {
			t.Errorf("%s: status %d", name, status)
		}
		if len(faultsOf(t, err)) == 0 {
			t.Errorf("%s: params name no fault", name)
		}
		if m := err.Error(); len(m) > 500 {
			t.Errorf("%s: a message of %d bytes", name, len(m))
		}
		if d := decoding(text); d > most {
			t.Errorf("%s: took %v, more than %v", name, d, most)
		}
	}
	taken := map[string]string{
		"depth 32":               deep(32),
		"brackets in text":       `{"x":"` + strings.Repeat(`[{\"`, 100) + `"}`,
		"many shallow":           `{"x":[` + strings.Repeat(`{},`, 100) + `{}]}`,
		"unknown, huge number":   `{"x":` + strings.Repeat("9", 1e6) + `}`,
		"same name apart":        `{"x":{"a":1},"y":{"a":1}}`,
		"surrogate pair":         `{"name":"\ud83d\ude00"}`,
		"blanks around":          " \r\n\t{ } \n",
		"exponent in unknown":    `{"x":1e400}`,
		"escaped name":           `{"n\u0061me":"a"}`,
		"null everywhere":        `{"planId":null,"agents":null,"owner":null,"key":null,"credits":null,"price":null,"count":null,"listed":null,"name":null,"tags":null,"at":null,"inner":{"limit":null,"items":null},"plain":null,"ratio":null,"note":null}`,
		"integers read exactly":  `{"price":1000000000000000000,"credits":9223372036854775807,"count":"7"}`,
		"booleans as text":       `{"listed":"true"}`,
		"address of any case":    `{"owner":"0xF39FD6E51AAD88F6F4CE6AB8827279CFFFB92266"}`,
		"member of the embedded": `{"note":"x"}`,
	}
	for name, text := range taken {
		must.Check(t, x402.Decode([]byte(text), new(record)), name)
	}
}

// Names that look alike are other names: the member they imitate is missing.
// T96
func TestNamesAreExact(t *testing.T) {
	for _, name := range []string{`PlanId`, `planid`, `PLANID`, `planId\u0000`, ` planId`, `planId `, `plan_id`, "planI\u0501"} {
		text := `{"` + name + `":"1"}`
		var v record
		if err := x402.Decode([]byte(text), &v); err != nil || v.PlanID != "" {
			t.Errorf("%q: %v, planId %q", name, err, v.PlanID)
		}
		err := x402.DecodeRequired([]byte(text), new(record), "planId")
		if codeOf(t, err) != toll.CodeBadRequest || pathsOf(t, err) != "planId" {
			t.Errorf("%q: %v", name, err)
		}
	}
	// U+017F and U+212A fold to s and k under Unicode case rules.
	for _, text := range []string{`{"liſted":true}`, `{"\u212aey":"0x"}`} {
		var v record
		if err := x402.Decode([]byte(text), &v); err != nil || bool(v.Listed) || !v.Key.IsZero() {
			t.Errorf("%s: %v %+v", text, err, v)
		}
	}
}

// T41
func TestNumberSyntax(t *testing.T) {
	bad := []string{
		`"+5"`, `"05"`, `" 5"`, `"5 "`, `"5.0"`, `"1e3"`, `"0x5"`, `"-1"`, `"٥"`, `"５"`, `""`, `"` + strings.Repeat("9", 100) + `"`,
		`5.0`, `1e3`, `-1`, `-0`, `1E0`, strings.Repeat("9", 100), `9223372036854775808`, `"9223372036854775808"`, `true`, `[5]`, `{}`,
		`"\u0035"`, `"0x35"`, `"5\n"`,
	}
	for _, n := range bad {
		for _, member := range []string{"credits", "count"} {
			if err := x402.Decode([]byte(`{"`+member+`":`+n+`}`), new(record)); codeOf(t, err) != toll.CodeBadNumber {
				t.Errorf("%s %s: %v", member, n, err)
			}
		}
		for _, text := range []string{
			`{"paymentRequired":{"x402Version":2,"accepts":[]},"x402AccessToken":"a.b.c","maxAmount":` + n + `}`,
			`{"x402AccessToken":"a.b.c","maxAmount":` + n + `,"paymentRequired":{"x402Version":2,"accepts":[]}}`,
		} {
			if err := x402.Decode([]byte(text), new(x402.VerifyRequest)); codeOf(t, err) != toll.CodeBadNumber || pathsOf(t, err) != "maxAmount" {
				t.Errorf("verify %s: %v", text, err)
			}
			if err := x402.Decode([]byte(text), new(x402.SettleRequest)); codeOf(t, err) != toll.CodeBadNumber {
				t.Errorf("settle %s: %v", text, err)
			}
		}
		if n == `""` || strings.Contains(n, "9223372036854775808") {
			continue // a client that met a minimal entry sends ""; entries of other schemes count in base units
		}
		text := `{"paymentRequired":{"x402Version":2,"accepts":[{"amount":` + n + `}]},"x402AccessToken":"a.b.c"}`
		if err := x402.Decode([]byte(text), new(x402.VerifyRequest)); codeOf(t, err) != toll.CodeBadNumber || pathsOf(t, err) != "paymentRequired.accepts[0].amount" {
			t.Errorf("amount %s: %v", n, err)
		}
	}
	for _, n := range []string{`0`, `"0"`, `5`, `"5"`, `9223372036854775807`, `"9223372036854775807"`} {
		var v record
		if err := x402.Decode([]byte(`{"credits":`+n+`,"price":`+n+`}`), &v); err != nil || v.Credits.String() != strings.Trim(n, `"`) || v.Price.String() != strings.Trim(n, `"`) {
			t.Errorf("%s: %v, %v", n, err, v.Credits)
		}
	}
	if err := x402.DecodeRequired([]byte(`{"credits":null}`), new(record), "credits"); codeOf(t, err) != toll.CodeBadRequest || pathsOf(t, err) != "credits" {
		t.Errorf("null where required: %v", err)
	}
}

// T50
func TestIDs(t *testing.T) {
	ids := []string{
		`"115792089237316195423570985008687907853269984665640564039457584007913129639936"`, `"-1"`, `"007"`, `"0"`, `"0x1"`, `1`, `""`, `" 1"`,
		`"\u0031"`, `true`, `"` + strings.Repeat("1", 100<<10) + `"`,
	}
	for _, id := range ids {
		if err := x402.Decode([]byte(`{"planId":`+id+`}`), new(record)); codeOf(t, err) != toll.CodeBadID || pathsOf(t, err) != "planId" {
			t.Errorf("planId %.40s: %.200v", id, err)
		}
		if err := x402.Decode([]byte(`{"agents":["1",`+id+`]}`), new(record)); codeOf(t, err) != toll.CodeBadID || pathsOf(t, err) != "agents[1]" {
			t.Errorf("agents %.40s: %.200v", id, err)
		}
		if id == `""` {
			continue // an entry without a plan
		}
		for _, entry := range []string{`{"planId":` + id + `}`, `{"extra":{"planId":` + id + `}}`, `{"extra":{"agentId":` + id + `}}`} {
			text := `{"paymentRequired":{"x402Version":2,"accepts":[` + entry + `]},"x402AccessToken":"a.b.c"}`
			if err := x402.Decode([]byte(text), new(x402.VerifyRequest)); codeOf(t, err) != toll.CodeBadID || !strings.HasPrefix(pathsOf(t, err), "paymentRequired.accepts[0].") {
				t.Errorf("%.120s: %.200v", text, err)
			}
		}
	}
	max := `"115792089237316195423570985008687907853269984665640564039457584007913129639935"`
	must.Check(t, x402.Decode([]byte(`{"planId":`+max+`}`), new(record)))
}

func TestDecodeReportsAllFaultsAtOnce(t *testing.T) {
	for _, c := range []struct {
		text, paths string
		code        toll.Code
	}{
		{`{"name":5,"tags":["a",1,null],"listed":1}`, "name tags[1] listed", toll.CodeBadRequest},
		{`{"name":5,"credits":"05","planId":1}`, "name credits planId", toll.CodeBadNumber},
		{`{"planId":1,"credits":"05"}`, "planId credits", toll.CodeBadID},
		{`{"owner":"0x1","key":"0x1","at":"yesterday"}`, "owner key at", toll.CodeBadAddress},
		{`{"owner":7}`, "owner", toll.CodeBadAddress},
		{`{"key":7}`, "key", toll.CodeBadRequest},
		{`{"inner":{"limit":-1,"items":[{"limit":1},{"limit":"x"},[]]}}`, "inner.limit inner.items[1].limit inner.items[2]", toll.CodeBadNumber},
		{`{"ByName":{"a":{"limit":"x"},"b":3}}`, "ByName.a.limit ByName.b", toll.CodeBadNumber},
		{`{"inner":[],"tags":{},"note":1,"plain":1.5,"ratio":"x"}`, "inner tags note plain ratio", toll.CodeBadNumber},
		{`{"plain":99999999999999999999}`, "plain", toll.CodeBadNumber},
		{`{"owner":null,"key":null,"credits":null,"inner":null,"tags":null,"note":null,"name":5,"Any":null}`, "name", toll.CodeBadRequest},
		{`[]`, "", toll.CodeBadRequest},
	} {
		err := x402.Decode([]byte(c.text), new(record))
		if codeOf(t, err) != c.code || pathsOf(t, err) != c.paths {
			t.Errorf("%s: %v at %q, want %s at %q", c.text, err, pathsOf(t, err), c.code, c.paths)
		}
	}
	err := x402.DecodeRequired([]byte(`{"name":5,"inner":{"items":[]}}`), new(record), "name", "inner.limit", "planId", "note.deep")
	if pathsOf(t, err) != "name inner.limit planId note.deep" {
		t.Errorf("required: %q", pathsOf(t, err))
	}
	err = x402.DecodeRequired([]byte(`{"name":5`), new(record), "planId")
	if len(faultsOf(t, err)) != 1 {
		t.Errorf("broken JSON lacks members, too: %v", pathsOf(t, err))
	}
	must.Check(t, x402.DecodeRequired([]byte(`{"planId":"1","inner":{"limit":"0"}}`), new(record), "planId", "inner.limit"))
	many := `{"tags":[` + strings.Repeat("1,", 100000) + `1]}`
	if n := len(faultsOf(t, x402.Decode([]byte(many), new(record)))); n > 64 {
		t.Errorf("%d faults are reported", n)
	}
}

func TestEncode(t *testing.T) {
	got, err := x402.Encode(map[string]any{"b": "<a>&\u2028", "a": []string(nil), "c": toll.Credits(5), "d": "\xff"})
	if want := "{\"a\":[],\"b\":\"<a>&\u2028\",\"c\":\"5\",\"d\":\"\ufffd\"}"; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	if _, err := x402.Encode(func() {}); codeOf(t, err) != toll.CodeInternal {
		t.Errorf("a function: %v", err)
	}
}
