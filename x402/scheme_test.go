package x402_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

func jwsOf(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"EdDSA"}`)) + "." + part([]byte(claims)) + ".c2lnbmF0dXJl"
}

var schemeJWS = jwsOf(`{"authorization":{"from":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266","planId":"7"}}`)

func TestClientScheme(t *testing.T) {
	rendering := x402.EncodeToken(schemeJWS, x402.Requirements{PlanID: "7"}, x402.Authorization{PlanID: "7"}, "0x01")
	nonces := map[any]bool{}
	for _, token := range []string{schemeJWS, rendering, schemeJWS} {
		s := x402.NewClientScheme("acme:erc4337", x402.StaticToken(token))
		p := must.Get(s.CreatePaymentPayload(t.Context(), x402.StandardRequirements{Scheme: s.Scheme(), Extra: map[string]any{"planId": "7"}}))(t)
		text := must.Get(json.Marshal(map[string]any{"x402Version": 2, "payload": p}))(t)
		back, err := x402.DecodeToken(string(text))
		if err != nil || back.JWS != schemeJWS || back.Authorization.PlanID != "7" || back.Authorization.From == "" || back.Nonce == "" {
			t.Errorf("%+v %v", back, err)
		}
		nonces[p["nonce"]] = true
	}
	if len(nonces) != 3 {
		t.Errorf("%d nonces of 3 payments", len(nonces))
	}
}

func TestClientScheme_Refuses(t *testing.T) {
	other := x402.StandardRequirements{Extra: map[string]any{"planId": "8"}}
	_, err := x402.NewClientScheme("svc:erc4337", x402.StaticToken(schemeJWS)).CreatePaymentPayload(t.Context(), other)
	if e := toll.AsError(err); e.Code != toll.CodePlanMismatch || strings.Contains(err.Error(), schemeJWS[:20]) {
		t.Errorf("another plan: %v", err)
	}
	_, err = x402.NewClientScheme("svc:erc4337", x402.StaticToken("secret")).CreatePaymentPayload(t.Context(), other)
	if e := toll.AsError(err); e.Code != toll.CodeTokenUndecodable || strings.Contains(err.Error(), "secret") {
		t.Errorf("no access token: %v", err)
	}
	none := errors.New("none today")
	source := func(context.Context, x402.StandardRequirements) (string, error) { return "", none }
	if _, err = x402.NewClientScheme("svc:erc4337", source).CreatePaymentPayload(t.Context(), other); !errors.Is(err, none) {
		t.Errorf("no source: %v", err)
	}
}

func TestServerScheme(t *testing.T) {
	s := &x402.ServerScheme{Name: "acme:erc4337", PlanID: "7", AgentID: "9"}
	for _, price := range []any{"5", toll.Credits(5)} {
		if asset, amount, err := s.ParsePrice(price); asset != "acme:credits" || amount != "5" || err != nil {
			t.Errorf("%v is %s %s %v", price, amount, asset, err)
		}
	}
	for _, price := range []any{"$0.01", "05", "-1", "", "9223372036854775808", 5, 0.5, nil} {
		if asset, amount, err := s.ParsePrice(price); toll.AsError(err).Code != toll.CodeBadNumber {
			t.Errorf("%v is %s %s %v", price, amount, asset, err)
		}
	}
	r, err := s.EnhanceRequirements(x402.StandardRequirements{Scheme: "acme:erc4337", Network: "eip155:84532", Asset: "acme:credits", Amount: "5", MaxTimeoutSeconds: 60})
	must.Do(t, err)
	text, err := json.Marshal(r)
	want := `{"scheme":"acme:erc4337","network":"eip155:84532","asset":"acme:credits","amount":"5","payTo":"merchant","maxTimeoutSeconds":60,` +
		`"extra":{"agentId":"9","planId":"7","version":"1"}}`
	if err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
	r, err = s.EnhanceRequirements(x402.StandardRequirements{PayTo: "0x01", Extra: map[string]any{"planId": "8", "httpVerb": "POST"}})
	if diff := cmp.Diff(map[string]any{"version": "1", "planId": "8", "agentId": "9", "httpVerb": "POST"}, r.Extra); err != nil || diff != "" || r.PayTo != "0x01" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err = new(x402.ServerScheme).EnhanceRequirements(x402.StandardRequirements{}); toll.AsError(err).Code != toll.CodeBadRequest {
		t.Errorf("without a plan: %v", err)
	}
}

// releases is a facilitator that keeps what is released.
type releases struct {
	x402.Facilitator
	got []*x402.ReleaseRequest
}

func (r *releases) Release(_ context.Context, req *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	r.got = append(r.got, req)
	return &x402.ReleaseResponse{Success: true}, nil
}

func TestServerScheme_Release(t *testing.T) {
	f := new(releases)
	s := &x402.ServerScheme{Name: "svc:erc4337", PlanID: "7", Facilitator: f}
	r, err := s.EnhanceRequirements(x402.StandardRequirements{Scheme: "svc:erc4337", Network: "eip155:84532", Amount: "5", MaxTimeoutSeconds: 60})
	must.Do(t, err)
	must.Do(t, s.Release(t.Context(), `{"x402Version":2}`, r))
	want := &x402.StockPayment{Payload: `{"x402Version":2}`, Requirements: x402.Requirements{
		Scheme: "svc:erc4337", Network: "eip155:84532", Amount: "5", PayTo: "merchant", MaxTimeoutSeconds: 60,
		Extra: x402.RequirementsExtra{Version: "1", PlanID: "7"},
	}}
	if len(f.got) != 1 || !cmp.Equal(want, f.got[0].Stock) {
		t.Errorf("%s", cmp.Diff(want, f.got[0].Stock))
	}
}
