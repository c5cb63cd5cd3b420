package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// FuzzVersionHeader holds that any header gives one of the served versions or a 400, and the two headers always.
func FuzzVersionHeader(f *testing.F) {
	for _, s := range []string{"1.0", "v1.0", "1.0.7", "1.1", "9.9", "1", "", "v", strings.Repeat("1", 100), "1.0\x00", "１.０"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	h := newHandler(Deps{}, []route{{op: "x", method: "GET", path: "/x", auth: open, right: public, tag: "Test", action: reads(func(*call) (*struct{}, error) { return &struct{}{}, nil })}})
	f.Fuzz(func(t *testing.T, value string, known bool) {
		path := "/x"
		if !known {
			path = "/y"
		}
		r := httptest.NewRequest("GET", path, nil)
		r.Header["Service-Version"] = []string{value}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		version, from := w.Header().Get("Service-Version"), w.Header().Get("Service-Version-Resolved-From")
		if version != apiversion.Floor.String() && version != apiversion.Current.String() {
			t.Fatalf("%q was applied as %q", value, version)
		}
		_, err := apiversion.Parse(value)
		switch {
		case err != nil && len(value) < maxHeaderBytes-100 && (w.Code != 400 || from != "fallback"):
			t.Fatalf("%q: %d %s", value, w.Code, from)
		case err == nil && (from != "header" || known != (w.Code == 200)):
			t.Fatalf("%q: %d %s", value, w.Code, from)
		}
	})
}

// FuzzBody holds that the decoder of every route takes a body or gives a 400 in the one shape, and never panics; and
// that no older version takes what the newest one refuses as JSON.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"planId":"1","amount":"5","creditsReceiver":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"}`, `{"creditsConfig":{"proofRequired":true},"priceConfig":{"amounts":[1]},"name":"x"}`,
		`{"plan":{"creditsConfig":{"amount":1e3}},"agent":{}}`, `{"name":null,"version":"1.0"}`, `{"agentRequestId":"req_x"}`, `{"accepted":{"planId":"5","extra":{}}}`, `{"a":1,"a":2}`, `[`, "\xef\xbb\xbf{}", `{"x402AccessToken":"a.b.c","paymentRequired":{"x402Version":2,"accepts":[]}}`,
		`{"expiresAt":"2026-11-21T01:52:18.322+01:00","expiresInSecs":"60"}`, `{"endpoints":[{"POST":"/a"},{"verb":"get","url":"/b"}],"plans":"1,2"}`,
		`{"name":null,"metadataAttributes":{"tags":null,"customData":{}},"agentApiAttributes":null,"maxOrders":null}`,
	} {
		f.Add([]byte(s))
	}
	targets := map[string]func() any{
		"registerPlan": func() any { return new(toll.PlanInput) }, "registerAgent": func() any { return new(toll.AgentInput) }, "registerAgentWithPlan": func() any { return new(toll.AgentPlanInput) },
		"mintCredits": func() any { return new(MintInput) }, "takeBackCredits": func() any { return new(TakeBackInput) }, "mintExpirableCredits": func() any { return new(MintExpirableInput) }, "createKey": func() any { return new(KeyInput) }, "updateKey": func() any { return new(KeyChange) },
		"verify": func() any { return new(x402.VerifyRequest) }, "settle": func() any { return new(x402.SettleRequest) }, "release": func() any { return new(x402.ReleaseRequest) }, "renew": func() any { return new(x402.RenewRequest) },
		"createPermission": func() any { return new(tokens.PermissionRequest) }, "orderPlan": func() any { return new(OrderInput) },
		"updateAgent": func() any { return new(toll.AgentUpdate) }, "updatePlan": func() any { return new(toll.PlanUpdate) }, "createDelegation": func() any { return new(toll.DelegationInput) },
		"createWebhook": func() any { return new(WebhookInput) }, "updateWebhook": func() any { return new(WebhookChange) },
	}
	h := newHandler(Deps{}, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		for op, target := range targets {
			for _, version := range []apiversion.Version{apiversion.Floor, apiversion.Current} {
				c := &call{h: h, w: httptest.NewRecorder(), r: httptest.NewRequest("POST", "/", bytes.NewReader(body)), route: &route{op: op}, version: version}
				err := c.decode(target())
				if err == nil {
					if len(body) > 0 && !json.Valid(body) {
						t.Fatalf("%s takes what is no JSON: %q", op, body)
					}
					continue
				}
				var e *toll.Error
				if !errors.As(err, &e) || e.HTTPStatus() < 400 || e.HTTPStatus() > 499 {
					t.Fatalf("%s: %v", op, err)
				}
				if _, err := x402.Encode(e.Body("x", "")); err != nil {
					t.Fatalf("%s: the error cannot be written: %v", op, err)
				}
			}
		}
	})
}

// byteConn is a connection that gives what a client has sent.
type byteConn struct {
	net.Conn
	io.Reader
}

func (c byteConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// FuzzMessages holds that the guard of connections gives net/http the same requests whether bytes come at once or one by
// one: where a message is cut on its way must not change what it says.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET /2 HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "GET / HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > 8<<10 {
			return
		}
		read := func(r io.Reader) (out []string) {
			in := bufio.NewReader(&guardedConn{Conn: byteConn{Reader: r}})
			for range 20 {
				req, err := http.ReadRequest(in)
				if err != nil {
					return out
				}
				body, err := io.ReadAll(req.Body)
				out = append(out, req.Method+" "+req.RequestURI+" "+string(body))
				if err != nil || refusal(req.RequestURI) != nil || closeAfter(req) {
					return out
				}
			}
			return out
		}
		whole, single := read(bytes.NewReader(sent)), read(iotest.OneByteReader(bytes.NewReader(sent)))
		if strings.Join(whole, "\n") != strings.Join(single, "\n") {
			t.Fatalf("%q\nat once:    %q\none by one: %q", sent, whole, single)
		}
	})
}
