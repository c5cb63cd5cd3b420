package x402_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

func spec(t testing.TB, members string) []byte {
	return []byte(`{"paymentRequired":` + golden(t, "payment-required.json") + `,"x402AccessToken":"aa.bb.cc"` + members + `}`)
}

func TestVerifyBody(t *testing.T) {
	var r x402.VerifyRequest
	must.Do(t, x402.Decode(spec(t, `,"maxAmount":"5","hold":"true","holdSecs":"900","agentRequestId":"r-1","unknown":1,"batch":7`), &r))
	if r.AccessToken != "aa.bb.cc" || *r.MaxAmount != 5 || !r.Hold || r.HoldSecs != 900 || r.AgentRequestID != "r-1" || r.PaymentRequired.Accepts[0].PlanID != planID {
		t.Errorf("%+v", r)
	}
	// A request that a client encodes is the one that the service reads, through either JSON package.
	for _, enc := range []func(any) ([]byte, error){x402.Encode, json.Marshal} {
		for _, dec := range []func([]byte, any) error{x402.Decode, json.Unmarshal} {
			var back x402.VerifyRequest
			b, err := enc(&r)
			if err == nil {
				err = dec(b, &back)
			}
			if err != nil || !reflect.DeepEqual(back, r) {
				t.Errorf("%v\n%s\n%+v", err, b, back)
			}
		}
	}
	const least = `{"paymentRequired":{"x402Version":2,"resource":{"url":""},"accepts":[],"extensions":{}},"x402AccessToken":"a.b.c"}`
	if got := encode(t, &x402.VerifyRequest{PaymentRequired: x402.PaymentRequired{X402Version: 2}, AccessToken: "a.b.c"}); got != least {
		t.Errorf("what is not set is written: %s", got)
	}
	// A value that was used before keeps nothing of it.
	if err := x402.Decode(spec(t, `,"maxAmount":null,"hold":null,"holdSecs":null,"agentRequestId":null,"paymentPayload":null`), &r); err != nil ||
		r.MaxAmount != nil || r.Hold || r.HoldSecs != 0 || r.AgentRequestID != "" {
		t.Errorf("%v %+v", err, r)
	}
	must.Do(t, x402.Decode([]byte(`{"paymentRequired":`+golden(t, "payment-required.json")+`,"x402AccessToken":`+payload(t, nil)+`}`), &r))
	if tok, err := x402.DecodeToken(r.AccessToken); err != nil || tok.JWS != "aa.bb.cc" || tok.Nonce != "n1" {
		t.Errorf("a token that is an object: %v %+v", err, tok)
	}
}

func TestSettleBody(t *testing.T) {
	var r x402.SettleRequest
	must.Do(t, x402.Decode(spec(t, `,"maxAmount":0,"batch":true,"agentRequestId":"r-1","hold":7,"marginPercent":null`), &r))
	if r.AccessToken != "aa.bb.cc" || *r.MaxAmount != 0 || !r.Batch || r.AgentRequestID != "r-1" {
		t.Errorf("%+v", r)
	}
	b := encode(t, &r)
	if !strings.Contains(b, `"maxAmount":"0"`) {
		t.Errorf("an amount of 0 is lost: %s", b)
	}
	var back x402.SettleRequest
	if err := x402.Decode([]byte(b), &back); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%v %+v", err, back)
	}
	if err := x402.Decode(spec(t, `,"marginPercent":2.5`), &r); err != nil || r.MarginPercent == nil || *r.MarginPercent != 25_000 {
		t.Errorf("%v %+v", err, r)
	}
	if b := encode(t, &r); !strings.Contains(b, `"marginPercent":2.5`) {
		t.Error(b)
	}
	if err := x402.Decode(spec(t, `,"marginPercent":-1`), &r); codeOf(t, err) != toll.CodeBadNumber || pathsOf(t, err) != "marginPercent" {
		t.Error(err)
	}
	if err := x402.Decode(spec(t, `,"marginPercent":2.5,"maxAmount":1`), &r); codeOf(t, err) != toll.CodeAmountAndMargin {
		t.Error(err)
	}
}

func TestBodies_Refused(t *testing.T) {
	required := `"paymentRequired":` + golden(t, "payment-required.json")
	for _, c := range []struct {
		text  string
		code  toll.Code
		paths string
	}{
		{`{}`, toll.CodeBodyDialect, ""},
		{`{` + required + `}`, toll.CodeBodyDialect, ""},
		{`{` + required + `,"x402AccessToken":null}`, toll.CodeBodyDialect, ""},
		{`{` + required + `,"X402AccessToken":"a.b.c"}`, toll.CodeBodyDialect, ""},
		{`{` + required + `,"x402AccessToken":"a.b.c","paymentPayload":{}}`, toll.CodeBodyDialect, ""},
		{`{"paymentPayload":{}}`, toll.CodeBadRequest, "paymentRequirements"},
		{`{"paymentPayload":7,"paymentRequirements":{"planId":7}}`, toll.CodeBadID, "paymentPayload paymentRequirements.planId"},
		{`{"x402Version":1,"paymentPayload":{},"paymentRequirements":{}}`, toll.CodeBadX402Version, ""},
		{`{"x402AccessToken":"a.b.c"}`, toll.CodeBadRequest, "paymentRequired"},
		{`{"x402AccessToken":"a.b.c","paymentRequired":null}`, toll.CodeBadRequest, "paymentRequired"},
		{`{"x402AccessToken":7,"paymentRequired":7,"maxAmount":-1,"agentRequestId":7}`, toll.CodeBadNumber, "x402AccessToken paymentRequired maxAmount agentRequestId"},
		{`{"x402AccessToken":"a.b.c","paymentRequired":"?"}`, toll.CodeBadRequest, "paymentRequired"},
		{`{"x402AccessToken":"a.b.c","paymentRequired":"{\"accepts\":[{\"planId\":1}]}","maxAmount":"x"}`, toll.CodeBadID, "paymentRequired.accepts[0].planId maxAmount"},
		{`{"x402AccessToken":"a.b.c","paymentRequired":{"x402Version":1}}`, toll.CodeBadX402Version, ""},
		{`{` + required + `,"x402AccessToken":"a.b.c","agentRequestId":""}`, toll.CodeBadRequest, "agentRequestId"},
		{`{` + required + `,"x402AccessToken":"a.b.c","agentRequestId":"a b"}`, toll.CodeBadRequest, "agentRequestId"},
		{`{` + required + `,"x402AccessToken":"a.b.c","agentRequestId":"é"}`, toll.CodeBadRequest, "agentRequestId"},
		{`{` + required + `,"x402AccessToken":"a.b.c","agentRequestId":"` + strings.Repeat("a", 129) + `"}`, toll.CodeBadRequest, "agentRequestId"},
		{`{` + required + `,"x402AccessToken":{"a":1,"a":1}}`, toll.CodeBadRequest, "x402AccessToken.a"},
		{`[]`, toll.CodeBadRequest, ""}, {`null`, toll.CodeBadRequest, ""}, {`x`, toll.CodeBadRequest, ""},
	} {
		for _, v := range []any{new(x402.VerifyRequest), new(x402.SettleRequest)} {
			err := x402.Decode([]byte(c.text), v)
			if codeOf(t, err) != c.code || pathsOf(t, err) != c.paths {
				t.Errorf("%T %.120s: %v at %q, want %s at %q", v, c.text, err, pathsOf(t, err), c.code, c.paths)
			}
		}
	}
	for _, secs := range []string{`0`, `901`, `-1`, `1.5`, `"60s"`, `""`} {
		if err := x402.Decode(spec(t, `,"holdSecs":`+secs), new(x402.VerifyRequest)); codeOf(t, err) != toll.CodeBadNumber || pathsOf(t, err) != "holdSecs" {
			t.Errorf("holdSecs %s: %v", secs, err)
		}
	}
}

// An access token never shows in an error.
func TestBodies_ErrorsCarryNoToken(t *testing.T) {
	const canary = "CANARY"
	for _, text := range []string{
		`{"x402AccessToken":"` + canary + `","paymentRequired":7}`, `{"x402AccessToken":["` + canary + `"],"paymentRequired":7}`,
		`{"x402AccessToken":"` + canary + `"`, `{"x402AccessToken":"` + canary + `\ud800"}`, `{"x402AccessToken":{"payload":{"signature":"` + canary + `"}},"x":}`,
	} {
		err := x402.Decode([]byte(text), new(x402.VerifyRequest))
		if b, _ := json.Marshal(err); err == nil || strings.Contains(string(b)+err.Error(), canary) {
			t.Errorf("%s: %s", text, b)
		}
	}
}

func TestResponses(t *testing.T) {
	five := toll.Credits(5)
	settled := x402.SettleResponse{
		Success: true, Transaction: "0x1", Network: "eip155:84532", Payer: payer, CreditsRedeemed: toll.Credits(0).Ptr(), RemainingBalance: &five, Amount: toll.Credits(0).Ptr(),
		Extra: &x402.SettleExtra{AgentRequestID: "r", PlanID: planID, CreditsRedeemed: toll.Credits(0).Ptr(), RemainingBalance: &five},
		Raw:   []byte("x"), Replayed: true,
	}
	want := `{"success":true,"transaction":"0x1","network":"eip155:84532","payer":"` + payer + `","creditsRedeemed":"0","remainingBalance":"5","amount":"0",` +
		`"extra":{"agentRequestId":"r","planId":"` + planID + `","creditsRedeemed":"0","remainingBalance":"5"}}`
	if got := encode(t, &settled); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{&x402.SettleResponse{ErrorReason: "insufficient_funds"}, `{"success":false,"errorReason":"insufficient_funds","transaction":"","network":""}`},
		{&x402.VerifyResponse{InvalidReason: "insufficient_funds", Code: toll.CodeInsufficientCredits}, `{"isValid":false,"invalidReason":"insufficient_funds","code":"BCK.CREDITS.0003"}`},
		{&x402.VerifyResponse{IsValid: true, Amount: &five, Extra: &x402.VerifyExtra{AgentRequestID: "r", HeldAmount: &five}},
			`{"isValid":true,"amount":"5","extra":{"agentRequestId":"r","heldAmount":"5"}}`},
		{&x402.ReleaseResponse{Success: true, AgentRequestID: "r", Status: "released", Released: 2}, `{"success":true,"agentRequestId":"r","status":"released","released":"2"}`},
	} {
		if got := encode(t, c.v); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		back := reflect.New(reflect.TypeOf(c.v).Elem()).Interface()
		if err := x402.Decode([]byte(c.want), back); err != nil || !reflect.DeepEqual(back, c.v) {
			t.Errorf("%v %+v", err, back)
		}
	}
}
