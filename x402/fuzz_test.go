package x402_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"path"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// refusal fails unless err is an error that a caller may see: of a client's making, bounded, and of valid text.
func refusal(t *testing.T, err error) {
	var e *toll.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T %v", err, err)
	}
	if s := e.HTTPStatus(); s < 400 || s > 499 {
		t.Fatalf("status %d: %v", s, err)
	}
	b, jerr := json.Marshal(e.Body("", ""))
	if jerr != nil || len(b) > 64<<10 || !utf8.ValidString(e.Error()) {
		t.Fatalf("%d bytes, %v", len(b), jerr)
	}
}

func FuzzDecodeToken(f *testing.F) {
	f.Add(golden(f, "worked-example.jwt"))
	f.Add(golden(f, "worked-example.x402"))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := x402.DecodeToken(s)
		if err != nil {
			refusal(t, err)
			return
		}
		if strings.Count(tok.JWS, ".") != 2 || strings.ContainsAny(tok.JWS, "=+/ \"") || tok.Nonce != "" && !x402.ValidNonce(tok.Nonce) {
			t.Fatalf("%+v", tok)
		}
		tok.Contradicts(exampleSigned, toll.Sandbox)
		if tok.Accepted == nil || tok.Authorization == nil || tok.Nonce == "" {
			return
		}
		again, err := x402.DecodeToken(x402.EncodeToken(tok.JWS, *tok.Accepted, *tok.Authorization, tok.Nonce))
		if err != nil {
			if len(s) < x402.MaxTokenBytes/3 {
				t.Fatal(err)
			}
			return // grew past the bound
		}
		again.PaymentIdentifier, again.ResourceURL, again.IdentifierRequired = tok.PaymentIdentifier, tok.ResourceURL, tok.IdentifierRequired
		again.Resource, again.Extensions = tok.Resource, tok.Extensions
		if !reflect.DeepEqual(again, tok) {
			t.Fatalf("%+v\n%+v", again, tok)
		}
	})
}

func FuzzDecodeHeader(f *testing.F) {
	f.Add(golden(f, "payment-required.header"))
	f.Add(golden(f, "payment-required.json"))
	f.Fuzz(func(t *testing.T, s string) {
		var p, again x402.PaymentRequired
		if err := x402.DecodeHeader(s, &p); err != nil {
			refusal(t, err)
			return
		}
		h := must.Get(x402.EncodeHeader(&p))(t)
		if err := x402.DecodeHeader(h, &again); err != nil || encode(t, &again) != encode(t, &p) {
			t.Fatalf("%v\n%+v\n%+v", err, p, again)
		}
	})
}

func FuzzDecodeBody(f *testing.F) {
	f.Add(spec(f, `,"maxAmount":"5","hold":true,"holdSecs":60,"agentRequestId":"r"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, c := range []struct{ v, again any }{
			{new(x402.VerifyRequest), new(x402.VerifyRequest)}, {new(x402.SettleRequest), new(x402.SettleRequest)}, {new(record), nil},
		} {
			if err := x402.Decode(data, c.v); err != nil {
				refusal(t, err)
				continue
			}
			if !json.Valid(data) || !utf8.Valid(data) {
				t.Fatalf("%q is taken", data)
			}
			if c.again == nil {
				continue
			}
			b := encode(t, c.v)
			if err := x402.Decode([]byte(b), c.again); err != nil || encode(t, c.again) != b {
				t.Fatalf("%v\n%s", err, b)
			}
		}
	})
}

func FuzzMatchEndpoint(f *testing.F) {
	f.Add("https://a.example/ask", "https://A.example:443/%61sk/?x#y")
	f.Add("/f/:id/*", "https://a.example/f/1/../2")
	f.Add("mcp://srv/resources/*", "mcp://srv/resources/file%3A%2F%2F%2Fa")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		p, err := x402.ParsePattern(pattern)
		if err != nil {
			refusal(t, err)
			return
		}
		if !strings.ContainsAny(pattern, "*:{%") && !p.Match(pattern) {
			t.Fatalf("%q does not match itself", pattern)
		}
		if !p.Match(text) || len(text) > 6 && strings.EqualFold(text[:6], "mcp://") {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.User != nil || strings.Contains(u.Path, "\\") {
			t.Fatalf("%q matches", text)
		}
		if clean := path.Clean("/" + u.Path); clean != "/"+strings.Trim(u.Path, "/") {
			t.Fatalf("%q matches, and is %q to others", text, clean)
		}
	})
}
