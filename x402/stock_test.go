package x402_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

func stockText(t testing.TB, members string) string {
	return `{"x402Version":2,"paymentPayload":` + payload(t, nil) + `,"paymentRequirements":{"scheme":"svc:erc4337","network":"eip155:84532",` +
		`"amount":5,"asset":"","maxTimeoutSeconds":0,"extra":{"planId":"` + planID + `"}}` + members + `}`
}

func TestStockBody(t *testing.T) {
	// Members of the spec body are unknown members here, whatever they hold.
	text := stockText(t, `,"maxAmount":"none","hold":7,"holdSecs":-1,"agentRequestId":"","marginPercent":99,"batch":"?"`)
	var v x402.VerifyRequest
	var s x402.SettleRequest
	var rel x402.ReleaseRequest
	must.Do(t, x402.Decode([]byte(text), &v))
	must.Do(t, x402.Decode([]byte(text), &s))
	must.Do(t, x402.Decode([]byte(stockText(t, "")), &rel))
	for _, p := range []*x402.StockPayment{v.Stock, s.Stock, rel.Stock} {
		if p == nil || p.Requirements.Amount != "5" || p.Requirements.Extra.PlanID != planID || p.Requirements.MaxTimeoutSeconds != 0 {
			t.Fatalf("%+v", p)
		}
		if tok, err := x402.DecodeToken(p.Payload); err != nil || tok.JWS != "aa.bb.cc" {
			t.Errorf("%v %+v", err, tok)
		}
	}
	if v.AccessToken != "" || v.Hold || s.MaxAmount != nil || s.MarginPercent != nil || rel.AgentRequestID != "" {
		t.Errorf("%+v %+v", v, s)
	}
	for _, back := range []any{new(x402.VerifyRequest), new(x402.SettleRequest), new(x402.ReleaseRequest)} {
		must.Check(t, x402.Decode([]byte(encode(t, &v)), back))
		got := reflect.ValueOf(back).Elem().FieldByName("Stock").Interface().(*x402.StockPayment)
		if !reflect.DeepEqual(got, v.Stock) {
			t.Errorf("%T: %+v", back, got)
		}
	}
	// Another form of the payment is text.
	v.Stock.Payload = "aa.bb.cc"
	if b := encode(t, &v); !strings.Contains(b, `"paymentPayload":"aa.bb.cc"`) || x402.Decode([]byte(b), &s) != nil || s.Stock.Payload != "aa.bb.cc" {
		t.Error(b)
	}
}

// A stock server is told about a malformed payment in its own way, so what is wrong must not hide which body it was.
func TestStockBody_FaultsKeepTheDialect(t *testing.T) {
	for text, stock := range map[string]bool{
		`{"paymentPayload":{},"paymentRequirements":{"extra":{"planId":7}}}`: true,
		`{"paymentPayload":[]}`: true,
		`{"x402Version":3,"paymentPayload":{},"paymentRequirements":{}}`:    true,
		`{"paymentPayload":{},"x402AccessToken":"a.b.c"}`:                   false,
		`{"paymentPayload":{},"paymentRequirements":{}`:                     false,
		`{"paymentPayload":{},"paymentRequirements":{},"paymentPayload":1}`: false,
		`{"paymentPayload":null,"paymentRequirements":{}}`:                  false,
	} {
		var v x402.VerifyRequest
		var s x402.SettleRequest
		for _, err := range []error{x402.Decode([]byte(text), &v), x402.Decode([]byte(text), &s)} {
			if err == nil || (v.Stock != nil) != stock || s.Stock != nil && !stock {
				t.Errorf("%s: %v, stock %v", text, err, v.Stock != nil)
			}
		}
	}
}

func TestReleaseBody(t *testing.T) {
	var r x402.ReleaseRequest
	if err := x402.Decode([]byte(`{"agentRequestId":"r-1","paymentPayload":{}}`), &r); err != nil || r.AgentRequestID != "r-1" || r.Stock != nil {
		t.Errorf("%v %+v", err, r)
	}
	if got := encode(t, &r); got != `{"agentRequestId":"r-1"}` {
		t.Error(got)
	}
	if err := x402.Decode([]byte(`{}`), &r); codeOf(t, err) != toll.CodeBadRequest || pathsOf(t, err) != "agentRequestId" {
		t.Error(err)
	}
}

func TestMargin(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "10": "10", "2.5": "2.5", "2.5000": "2.5", "0.0001": "0.0001", "9.9999": "9.9999", "10.0": "10", "0.0": "0"} {
		m, err := x402.ParseMargin(text)
		if err != nil || m.String() != want {
			t.Errorf("%s: %s, %v", text, m, err)
		}
		var back x402.Margin
		if err := x402.Decode([]byte(encode(t, m)), &back); err != nil || back != m {
			t.Errorf("%s: %v %v", text, back, err)
		}
	}
	for _, text := range []string{"", "-1", "+1", "10.0001", "11", "1e0", "1.", ".5", "01", "1.00000", "0x1", "1.-5", " 1", "100", "٥", "2,5", "NaN"} {
		if m, err := x402.ParseMargin(text); codeOf(t, err) != toll.CodeBadNumber {
			t.Errorf("%q is taken as %s", text, m)
		}
	}
	for _, c := range []struct {
		margin string
		n      toll.Credits
		want   toll.Credits
	}{
		{"0", 0, 0}, {"0", 7, 7}, {"10", 10, 11}, {"10", 1, 2}, {"2.5", 100, 103}, {"2.5", 40, 41}, {"0.0001", 1, 2}, {"0.0001", 1_000_000, 1_000_001},
		{"0.0001", 2_000_000, 2_000_002}, {"10", toll.MaxCredits, toll.MaxCredits}, {"0", toll.MaxCredits, toll.MaxCredits},
		{"3.3333", 9_007_199_254_740_993, 9_307_436_227_499_275},
	} {
		m, err := x402.ParseMargin(c.margin)
		if err != nil || m.On(c.n) != c.want {
			t.Errorf("%s%% on %d: %d, want %d", c.margin, c.n, m.On(c.n), c.want)
		}
	}
}
