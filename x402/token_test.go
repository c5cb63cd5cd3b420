package x402_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

const (
	planID  = "44742763076047497640080230236781474129970992727896593861997347135613135571071"
	agentID = "50637310539380773994947796286606926419362223513940385288598954542035389945899"
	payer   = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	jti     = "0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634"
)

func golden(t testing.TB, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile("testdata/" + name))(t)
	return strings.TrimSuffix(string(b), "\n")
}

var (
	exampleAccepted = x402.Requirements{
		Scheme: "svc:erc4337", Network: "eip155:84532", PlanID: planID,
		Extra: x402.RequirementsExtra{Version: "1", AgentID: agentID},
	}
	exampleAuth   = x402.Authorization{From: payer, PlanID: planID, AgentID: agentID}
	exampleSigned = x402.Signed{
		From: toll.MustAddress(payer), PlanID: planID, AgentID: agentID, Scheme: "svc:erc4337", Network: "eip155:84532",
	}
)

// The worked example of the wire contract, section 14, byte for byte.
func TestEncodeToken_WorkedExample(t *testing.T) {
	jws, want := golden(t, "worked-example.jwt"), golden(t, "worked-example.x402")
	if got := x402.EncodeToken(jws, exampleAccepted, exampleAuth, jti); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	got, err := x402.WithNonce(jws, jti)
	if err != nil || got != want {
		t.Errorf("from the claims: %v\ngot  %s\nwant %s", err, got, want)
	}
	got = must.Get(x402.WithNonce(want, "one.more:nonce~_-1"))(t)
	tok, err := x402.DecodeToken(got)
	if err != nil || tok.Nonce != "one.more:nonce~_-1" || tok.JWS != jws || tok.Contradicts(exampleSigned, toll.Sandbox) != "" {
		t.Errorf("%v %+v", err, tok)
	}
	if _, err := x402.WithNonce(jws, "a nonce"); err == nil {
		t.Error("a nonce with a blank is taken")
	}
	if _, err := x402.WithNonce("a.b.c", "x"); codeOf(t, err) != toll.CodeTokenUndecodable {
		t.Errorf("claims that are no JSON: %v", err)
	}
}

func TestDecodeToken_Forms(t *testing.T) {
	jws, rendering := golden(t, "worked-example.jwt"), golden(t, "worked-example.x402")
	plain := must.Get(base64.StdEncoding.DecodeString(rendering))(t)
	tok, err := x402.DecodeToken(jws)
	if err != nil || !reflect.DeepEqual(*tok, x402.Token{JWS: jws, Rendering: x402.RenderingJWT}) {
		t.Fatalf("%v %+v", err, tok)
	}
	// A member with these characters makes the alphabets differ.
	odd := append([]byte(`{"pad":"ÿþ>?>?",`), plain[1:]...)
	for n := range 3 { // all paddings
		p := append(append([]byte{}, odd...), strings.Repeat(" ", n)...)
		std, url := base64.StdEncoding, base64.URLEncoding
		for name, s := range map[string]string{
			"text": string(odd),
			"std":  std.EncodeToString(p), "std, raw": std.WithPadding(base64.NoPadding).EncodeToString(p),
			"url": url.EncodeToString(p), "url, raw": url.WithPadding(base64.NoPadding).EncodeToString(p),
		} {
			tok, err := x402.DecodeToken(s)
			must.Do(t, err, name)
			if tok.JWS != jws || tok.Rendering != x402.RenderingX402 || tok.Nonce != jti || tok.PaymentIdentifier != "" || tok.ResourceURL != "" {
				t.Errorf("%s: %+v", name, tok)
			}
			if *tok.Authorization != exampleAuth || *tok.Accepted != exampleAccepted {
				t.Errorf("%s: %+v %+v", name, tok.Authorization, tok.Accepted)
			}
		}
	}
}

// payload returns the JSON of a PaymentPayload with members replaced ("" removes one).
func payload(t testing.TB, edit map[string]any) string {
	t.Helper()
	p := map[string]any{
		"x402Version": 2,
		"accepted":    map[string]any{"scheme": "svc:erc4337", "network": "eip155:84532", "planId": planID, "extra": map[string]any{"version": "1"}},
		"payload":     map[string]any{"signature": "aa.bb.cc", "authorization": map[string]any{"from": payer}, "nonce": "n1"},
	}
	for path, v := range edit {
		m := p
		names := strings.Split(path, "/")
		for _, n := range names[:len(names)-1] {
			if _, ok := m[n].(map[string]any); !ok {
				m[n] = map[string]any{}
			}
			m = m[n].(map[string]any)
		}
		if last := names[len(names)-1]; v == nil {
			delete(m, last)
		} else {
			m[last] = v
		}
	}
	b := must.Get(json.Marshal(p))(t)
	return string(b)
}

func TestDecodeToken_Members(t *testing.T) {
	var null json.RawMessage = []byte("null")
	for _, c := range []struct {
		edit map[string]any
		code toll.Code
	}{
		{nil, ""},
		{map[string]any{"x402Version": "2"}, ""},
		{map[string]any{"x402Version": 1}, toll.CodeBadX402Version},
		{map[string]any{"x402Version": 3}, toll.CodeBadX402Version},
		{map[string]any{"x402Version": nil}, toll.CodeBadX402Version},
		{map[string]any{"x402Version": 2.5}, toll.CodeTokenUndecodable},
		{map[string]any{"payload": nil}, toll.CodeTokenUndecodable},
		{map[string]any{"payload": null}, toll.CodeTokenUndecodable},
		{map[string]any{"payload": "aa.bb.cc"}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/signature": "aa.bb"}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/signature": "aa.bb.cc="}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/signature": ""}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/authorization": nil, "accepted": nil}, ""},
		{map[string]any{"payload/authorization": null, "accepted": null, "payload/nonce": null}, ""},
		{map[string]any{"payload/sessionKeys": []int{1}, "payload/authorization/sessionKeys": "x", "more": 1}, ""},
		{map[string]any{"payload/authorization/planId": 5}, toll.CodeTokenUndecodable},
		{map[string]any{"accepted/planId": 5}, toll.CodeTokenUndecodable},
		{map[string]any{"accepted/planId": "007"}, toll.CodeTokenUndecodable},
		{map[string]any{"accepted/amount": "", "accepted/asset": "", "accepted/payTo": "", "accepted/maxTimeoutSeconds": 0}, ""},
		{map[string]any{"accepted/amount": 5, "accepted/maxTimeoutSeconds": ""}, ""},
		{map[string]any{"payload/nonce": ""}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/nonce": "a b"}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/nonce": "é"}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/nonce": strings.Repeat("a", 128)}, ""},
		{map[string]any{"payload/nonce": strings.Repeat("a", 129)}, toll.CodeTokenUndecodable},
		{map[string]any{"payload/nonce": "3f0c9a5e-6d5b-4a55-9d53-1f6f6f0f3b11"}, ""},
		{map[string]any{"extensions": map[string]any{"payment-identifier": map[string]any{"info": map[string]any{"required": false}}}}, ""},
		{map[string]any{"extensions/payment-identifier/info/id": "short"}, toll.CodeTokenUndecodable},
		{map[string]any{"extensions/payment-identifier/info/id": strings.Repeat("a", 129)}, toll.CodeTokenUndecodable},
		{map[string]any{"extensions/payment-identifier/info/id": "pay_0f9c1d2e3a4b5c6d:e8f9"}, toll.CodeTokenUndecodable},
		{map[string]any{"extensions/payment-identifier/info/id": "pay_0f9c1d2e3a4b5c6d7e8f"}, ""},
		{map[string]any{"pad": strings.Repeat("a", 2*x402.MaxTokenBytes)}, toll.CodeTokenUndecodable},
	} {
		text := payload(t, c.edit)
		if _, err := x402.DecodeToken(text); codeOf(t, err) != c.code {
			t.Errorf("%.200s: %v, want %s", text, err, c.code)
		}
		if len(text) > 4000 {
			continue
		}
		if _, err := x402.DecodeToken(base64.StdEncoding.EncodeToString([]byte(text))); codeOf(t, err) != c.code {
			t.Errorf("base64 of %.200s: %v, want %s", text, err, c.code)
		}
	}
	tok, err := x402.DecodeToken(payload(t, map[string]any{
		"resource/url": "https://a.example/ask", "extensions/payment-identifier/info/id": "pay_0f9c1d2e3a4b5c6d7e8f",
	}))
	if err != nil || tok.ResourceURL != "https://a.example/ask" || tok.PaymentIdentifier != "pay_0f9c1d2e3a4b5c6d7e8f" || tok.Nonce != "n1" {
		t.Errorf("%v %+v", err, tok)
	}
}

func TestDecodeToken_Refused(t *testing.T) {
	rendering := golden(t, "worked-example.x402")
	std := base64.StdEncoding.EncodeToString
	canonical := payload(t, nil)
	for len(canonical)%3 != 1 {
		canonical += " "
	}
	stray := strings.TrimSuffix(std([]byte(canonical)), "==")
	stray = stray[:len(stray)-1] + string(stray[len(stray)-1]+1) + "=="
	for name, s := range map[string]string{
		"empty": "", "one dot": "aa.bb", "three dots": "a.b.c.d", "10,000 dots": strings.Repeat(".", 8000),
		"a padded JWS": "aa.bb.cc=", "a JWS with a blank": "aa.bb.cc ", "Bearer": "Bearer aa.bb.cc",
		"two values": "aa.bb.cc, aa.bb.cc", "base64 of a JWS": std([]byte("aa.bb.cc")), "base64 of an array": std([]byte("[]")),
		"base64 of text": std([]byte("hello")), "broken JSON": "{", "two objects": payload(t, nil) + "{}",
		"duplicates":      `{"x402Version":2,"x402Version":2,"payload":{"signature":"a.b.c"}}`,
		"line break":      strings.TrimRight(rendering[:76]+"\n"+rendering[76:], "="),
		"carriage return": strings.TrimRight(rendering[:76]+"\r"+rendering[76:], "="),
		"mixed alphabets": "-+" + rendering, "three pads": rendering + "=", "inner pad": "aa==" + rendering,
		"stray bits":   stray,
		"8 KiB + 1":    strings.Repeat("a", 8190) + "..a",
		"a NUL":        "aa.bb.c\x00",
		"blank before": " " + payload(t, nil),
		"wrong case":   `{"x402Version":2,"Payload":{"signature":"a.b.c"}}`,
	} {
		tok, err := x402.DecodeToken(s)
		if codeOf(t, err) != toll.CodeTokenUndecodable || tok != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && len(s) > 4 && strings.Contains(err.Error(), s) {
			t.Errorf("%s: the error carries the token", name)
		}
	}
	for _, s := range []string{"..", "a..", strings.Repeat("a", 8190) + ".."} {
		if _, err := x402.DecodeToken(s); err != nil {
			t.Errorf("%.20s has the form of a JWS, its signature decides: %v", s, err)
		}
	}
}

// T10
func TestOuterObjectChanged(t *testing.T) {
	const other = "1"
	edit := func(path string, v any) *x402.Token {
		t.Helper()
		var p map[string]any
		b, _ := base64.StdEncoding.DecodeString(golden(t, "worked-example.x402"))
		must.Do(t, json.Unmarshal(b, &p))
		m := p
		names := strings.Split(path, "/")
		for _, n := range names[:len(names)-1] {
			m = m[n].(map[string]any)
		}
		m[names[len(names)-1]] = v
		b, _ = json.Marshal(p)
		return must.Get(x402.DecodeToken(string(b)))(t)
	}
	for _, c := range []struct {
		path string
		v    any
		want string
	}{
		{"payload/authorization/from", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "payload.authorization.from"},
		{"payload/authorization/from", "nobody", "payload.authorization.from"},
		{"payload/authorization/from", strings.ToLower(payer), ""},
		{"payload/authorization/planId", other, "payload.authorization.planId"},
		{"payload/authorization/agentId", other, "payload.authorization.agentId"},
		{"accepted/scheme", "svc:card-delegation", "accepted.scheme"},
		{"accepted/scheme", "SVC:erc4337", "accepted.scheme"},
		{"accepted/network", "eip155:8453", "accepted.network"},
		{"accepted/planId", other, "accepted.planId"},
		{"accepted/extra/planId", other, "accepted.extra.planId"},
		{"accepted/extra/agentId", other, "accepted.extra.agentId"},
		// What the server's own requirements decide is not a contradiction: nothing of it is used.
		{"accepted/amount", "1", ""}, {"accepted/asset", "other", ""}, {"accepted/payTo", "other", ""},
		{"accepted/maxTimeoutSeconds", 1, ""}, {"resource", map[string]any{"url": "https://other.example"}, ""},
	} {
		if got := edit(c.path, c.v).Contradicts(exampleSigned, toll.Sandbox); got != c.want {
			t.Errorf("%s = %v: %q, want %q", c.path, c.v, got, c.want)
		}
	}

	unbound := exampleSigned
	unbound.AgentID = ""
	tok := edit("x", 1)
	if got := tok.Contradicts(unbound, toll.Sandbox); got != "payload.authorization.agentId" {
		t.Errorf("an agent beside claims without one: %q", got)
	}
	tok.Authorization = nil
	if got := tok.Contradicts(unbound, toll.Sandbox); got != "" {
		t.Errorf("the entry of an agent, paid with a token for all agents: %q", got)
	}

	card := exampleSigned
	card.Scheme, card.Network = "svc:card-delegation", "stripe"
	for network, want := range map[string]string{"stripe": "", "stripe:sandbox": "", "stripe:live": "accepted.network", "": ""} {
		tok := x402.Token{Accepted: &x402.Requirements{Scheme: "svc:card-delegation", Network: network}}
		if got := tok.Contradicts(card, toll.Sandbox); got != want {
			t.Errorf("network %q: %q", network, got)
		}
	}
}
