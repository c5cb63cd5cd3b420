package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

type rawJSON = json.RawMessage

func refusal(code toll.Code, status int, more string) string {
	return fmt.Sprintf(`{"code":"%s","message":"A sentence.","httpStatus":%d,"category":"business","retryable":false,"correlationId":"corr-3",%s}`, code, status, more)
}

// TestVerifyVerdicts: refusals are answers, failures of the call are errors.
func TestVerifyVerdicts(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		reason string
		code   toll.Code
		err    toll.Code
	}{
		{"refused", 200, `{"isValid":false,"invalidReason":"insufficient_funds","invalidMessage":"5 credits needed","code":"BCK.CREDITS.0003"}`, "insufficient_funds", toll.CodeInsufficientCredits, ""},
		{"undecodable", 400, refusal(toll.CodeTokenUndecodable, 400, `"isValid":false,"invalidReason":"invalid_payload"`), "invalid_payload", toll.CodeTokenUndecodable, ""},
		{"unknown plan", 404, refusal(toll.CodePaymentPlanNotFound, 404, `"isValid":false,"invalidReason":"invalid_payment_requirements"`), "invalid_payment_requirements", toll.CodePaymentPlanNotFound, ""},
		{"holds", 429, refusal(toll.CodeTooManyHolds, 429, `"isValid":false,"invalidReason":"too_many_holds"`), "too_many_holds", toll.CodeTooManyHolds, ""},
		{"conflict", 409, refusal(toll.CodeSettleConflict, 409, `"isValid":false,"invalidReason":"payment_identifier_conflict"`), "payment_identifier_conflict", toll.CodeSettleConflict, ""},
		{"rate", 429, refusal(toll.CodeRateLimited, 429, `"isValid":false,"invalidReason":"rate_limited"`), "", "", toll.CodeRateLimited},
		{"foreign plan", 403, refusal(toll.CodeNotPlanOwner, 403, `"isValid":false,"invalidReason":"unauthorized_server"`), "", "", toll.CodeNotPlanOwner},
		{"key", 401, refusal(toll.CodeNotAuthenticated, 401, `"isValid":false,"invalidReason":"unauthorized_server"`), "", "", toll.CodeNotAuthenticated},
		{"pending", 503, refusal(toll.CodeSettlementPending, 503, `"isValid":false,"invalidReason":"settlement_pending"`), "", "", toll.CodeSettlementPending},
		{"fault", 500, refusal(toll.CodeInternal, 500, `"isValid":false,"invalidReason":"unexpected_verify_error"`), "", "", toll.CodeInternal},
		{"proxy", 404, "<html>", "", "", toll.CodePathNotFound},
		{"nonsense", 200, "<html>", "", "", toll.CodeInternal},
		{"stray 400", 400, refusal(toll.CodeBadRequest, 400, `"x":1`), "", "", toll.CodeBadRequest},
	} {
		v, err := serve(t, always(c.status, c.body)).client(client.WithRetries(0)).Verify(context.Background(), &x402.VerifyRequest{AccessToken: token})
		switch {
		case c.err != "":
			if v != nil || err == nil || toll.AsError(err).Code != c.err {
				t.Errorf("%s: %+v, %v", c.name, v, err)
			}
		case err != nil || v.IsValid || v.InvalidReason != c.reason || v.Code != c.code || v.InvalidMessage == "":
			t.Errorf("%s: %+v, %v", c.name, v, err)
		}
	}
	// A body that says yes under a status that says no is a no.
	v, err := serve(t, always(400, `{"isValid":true,"invalidReason":"invalid_payload","code":"BCK.X402.0010","message":"x"}`)).client().Verify(context.Background(), &x402.VerifyRequest{})
	if err != nil || v.IsValid {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestVerify(t *testing.T) {
	s := serve(t, always(200, `{"isValid":true,"payer":"0xf39F","network":"eip155:84532","agentRequestId":"req_1","planId":"4474","agentId":"5063","amount":"2",
	 "urlMatching":"/ask","verbMatching":"POST","new":{"member":1},"extra":{"agentRequestId":"req_1","heldAmount":"2","holdExpiresAt":"2026-11-21T01:52:18.322Z"}}`))
	v, err := s.client().Verify(context.Background(), &x402.VerifyRequest{
		PaymentRequired: *x402.NewPaymentRequired([]*x402.Terms{{PlanID: plan}}, x402.Options{Endpoint: "https://a/ask", HTTPVerb: "POST"}),
		AccessToken:     token, MaxAmount: toll.Credits(2).Ptr(), Hold: true, HoldSecs: 30,
	})
	if err != nil || !v.IsValid || *v.Extra.HeldAmount != 2 || *v.Amount != 2 || v.AgentID != agent {
		t.Fatalf("%+v, %v", v, err)
	}
	var b map[string]any
	if err := json.Unmarshal([]byte(s.sent[0].body), &b); err != nil || s.sent[0].target != "/api/v1/x402/verify" {
		t.Fatalf("%+v", s.sent[0])
	}
	if b["x402AccessToken"] != token || b["maxAmount"] != "2" || b["hold"] != true || b["holdSecs"] != 30.0 || b["paymentRequired"].(map[string]any)["x402Version"] != 2.0 {
		t.Errorf("sent %s", s.sent[0].body)
	}
}

// TestSettleOutcomes: three outcomes, and nothing that is unknown looks like a refusal.
func TestSettleOutcomes(t *testing.T) {
	const paid = `{"success":true,"transaction":"0xab","network":"eip155:84532","payer":"0xf39F","creditsRedeemed":"2","remainingBalance":"98","amount":"2"}`
	for _, c := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		ok     bool
		reason string
		err    bool
	}{
		{"settled", 200, nil, paid, true, "", false},
		{"replayed", 200, map[string]string{"Idempotency-Replayed": "true"}, paid, true, "", false},
		{"short", 402, nil, refusal(toll.CodeInsufficientCredits, 402, `"success":false,"errorReason":"insufficient_funds","transaction":"","network":"eip155:84532"`), false, "insufficient_funds", false},
		{"conflict", 409, nil, refusal(toll.CodeSettleConflict, 409, `"success":false,"errorReason":"settle_conflict","transaction":"","network":""`), false, "settle_conflict", false},
		{"endpoint", 403, nil, refusal(toll.CodeEndpointMismatch, 403, `"success":false,"errorReason":"invalid_svc_resource_mismatch","transaction":"","network":""`), false, "invalid_svc_resource_mismatch", false},
		{"pending", 503, nil, refusal(toll.CodeSettlementPending, 503, `"success":false,"errorReason":"settlement_pending","transaction":"0xcd","network":""`), false, "settlement_pending", false},
		{"busy", 503, nil, refusal(toll.CodeUnavailable, 503, `"success":false,"errorReason":"unexpected_settle_error","transaction":"","network":""`), false, "", true},
		{"fault", 500, nil, refusal(toll.CodeInternal, 500, `"success":false,"errorReason":"unexpected_settle_error","transaction":"","network":""`), false, "", true},
		{"key", 401, nil, refusal(toll.CodeNotAuthenticated, 401, `"success":false,"errorReason":"unauthorized_server","transaction":"","network":""`), false, "", true},
		{"rate", 429, nil, refusal(toll.CodeRateLimited, 429, `"success":false,"errorReason":"rate_limited","transaction":"","network":""`), false, "", true},
		{"proxy", 502, nil, "<html>", false, "", true},
		{"broken", 0, nil, "", false, "", true},
		{"nonsense", 200, nil, "{", false, "", true},
	} {
		s := serve(t, func(int, sent) (int, map[string]string, string) { return c.status, c.header, c.body })
		got, err := s.client(client.WithRetries(0)).Settle(context.Background(), &x402.SettleRequest{AccessToken: token, AgentRequestID: "req_1"})
		if (err != nil) != c.err {
			t.Errorf("%s: %+v, %v", c.name, got, err)
			continue
		}
		if c.err {
			continue
		}
		if got.Success != c.ok || got.ErrorReason != c.reason || string(got.Raw) != c.body || got.Replayed != (c.header != nil) || (!c.ok && (got.Code == "" || got.ErrorMessage == "")) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestTerms(t *testing.T) {
	price := toll.Price{Amounts: []toll.Units{toll.UnitsOf(2_000_000)}, Receivers: []toll.Address{{7}}, IsCrypto: true}
	free := toll.Price{IsCrypto: true}
	card := price
	card.IsCrypto, card.Currency = false, "USD"
	for _, c := range []struct {
		name            string
		price           toll.Price
		scheme, network string
	}{{"crypto", price, "svc:erc4337", "eip155:84532"}, {"free", free, "svc:erc4337", "eip155:84532"}, {"card", card, "svc:card-delegation", "stripe:sandbox"}} {
		p := toll.Plan{
			ID: plan, Owner: toll.Address{9}, Metadata: toll.Metadata{Name: "Basic"}, Price: c.price, AccessLimit: toll.LimitCredits,
			Credits: toll.CreditsConfig{Amount: 100, MinAmount: 2, MaxAmount: 5}, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0),
		}
		s := serve(t, func(_ int, s sent) (int, map[string]string, string) {
			if s.target == "/" {
				return 200, nil, `{"name":"toll","environment":"sandbox","network":"eip155:84532"}`
			}
			b, err := x402.Encode(p)
			must.Check(t, err)
			return 200, nil, string(b)
		})
		cl := s.client()
		for range 2 {
			got, err := cl.Terms(context.Background(), plan)
			payTo := toll.Address{9}
			if len(c.price.Receivers) > 0 {
				payTo = toll.Address{7}
			}
			if err != nil || got.Scheme != c.scheme || got.Network != c.network || got.MinAmount != 2 || got.MaxAmount != 5 || got.PayTo != payTo.String() ||
				got.PlanID != plan || got.PlanName != "Basic" || !got.Kind.Charges() {
				t.Errorf("%s: %+v, %v", c.name, got, err)
			}
		}
		if s.calls() != 3 { // the service says once where it is
			t.Errorf("%s: %d calls", c.name, s.calls())
		}
	}
}

// Terms of a plan that any wallet can buy say where.
func TestTermsNameTheSale(t *testing.T) {
	dollar := toll.Price{TokenAddress: toll.USDCLive, Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{{7}}, IsCrypto: true}
	const want = "https://pay.example.com/api/v1/x402/plans/" + string(plan) + "/order"
	for name, c := range map[string]struct {
		change func(*toll.Plan)
		want   string
	}{
		"a dollar": {func(*toll.Plan) {}, want},
		"unlisted": {func(p *toll.Plan) { p.IsListed = false }, ""},
		"trial":    {func(p *toll.Plan) { p.IsTrial = true }, ""},
		"native":   {func(p *toll.Plan) { p.Price.TokenAddress = toll.Address{} }, ""},
		"free":     {func(p *toll.Plan) { p.Price.Amounts, p.Price.Receivers = nil, nil }, ""},
	} {
		p := toll.Plan{
			ID: plan, Owner: toll.Address{9}, Price: dollar, AccessLimit: toll.LimitCredits, IsListed: true,
			Credits: toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 1}, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0),
		}
		c.change(&p)
		s := serve(t, func(_ int, s sent) (int, map[string]string, string) {
			if s.target == "/" {
				return 200, nil, `{"name":"toll","environment":"sandbox","apiBase":"https://pay.example.com/api/v1"}`
			}
			b, err := x402.Encode(p)
			must.Check(t, err)
			return 200, nil, string(b)
		})
		if got, err := s.client().Terms(context.Background(), plan); err != nil || got.OrderURL != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestRelease(t *testing.T) {
	s := serve(t, always(200, `{"success":true,"agentRequestId":"req_1","status":"released","released":"2"}`))
	r, err := s.client().Release(context.Background(), &x402.ReleaseRequest{AgentRequestID: "req_1"})
	if err != nil || r.Released != 2 || r.Status != "released" || s.sent[0].body != `{"agentRequestId":"req_1"}` {
		t.Errorf("%+v, %v, sent %s", r, err, s.sent[0].body)
	}
	if !strings.HasSuffix(s.sent[0].target, "/x402/release") {
		t.Error(s.sent[0].target)
	}
}
