package pay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

func TestPermissionWithDelegation(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		made := must.Get(s.one().auth.CreateKey(s.ctx, auth.Local(s1), auth.KeyParams{}, nil))(s)
		key, other := made.ID, toll.NewHash()
		create := func(who auth.Caller, d *tokens.DelegationConfig) (*toll.AccessToken, error) {
			return s.one().Tokens.Create(s.ctx, who, &tokens.PermissionRequest{PlanID: p.ID, Delegation: d}, nil)
		}
		me := auth.Caller{Address: s1, KeyID: key}
		foreignPlan := s.plan(nil).ID
		for name, row := range map[string]struct {
			who  auth.Caller
			d    *tokens.DelegationConfig
			code toll.Code
		}{
			"not an id":      {me, &tokens.DelegationConfig{ID: "x"}, toll.CodeBadUUID},
			"not a token":    {me, &tokens.DelegationConfig{ID: "a.b.c"}, toll.CodeDelegationNotFound},
			"somebody's":     {auth.Caller{Address: s2}, &tokens.DelegationConfig{ID: s.delegation(100, nil)}, toll.CodeDelegationNotFound},
			"another key's":  {me, &tokens.DelegationConfig{ID: s.delegation(100, nil), APIKeyID: &other}, toll.CodePaymentMethodNotAllowed},
			"for other plan": {me, &tokens.DelegationConfig{ID: s.delegation(100, func(in *toll.DelegationInput) { in.PlanID = &foreignPlan })}, toll.CodeDelegationPlanMismatch},
		} {
			if _, err := create(row.who, row.d); !errors.Is(err, toll.NewError(row.code)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		d := s.delegation(100, nil)
		tok := must.Get(create(me, &tokens.DelegationConfig{ID: d, APIKeyID: &key}))(s)
		rec, err := s.at(1).Tokens.Get(s.ctx, s1, tok.PermissionHash)
		if err != nil || rec.DelegationID == nil || *rec.DelegationID != d || rec.APIKeyID == nil || *rec.APIKeyID != key || tok.Warnings != nil {
			t.Errorf("%v %+v", err, rec)
		}
	})
}

// The old way makes both in one transaction, or neither.
func TestPermissionWithInlineDelegation(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		delegations := func() (n int) {
			must.Do(s, s.one().store.QueryRow(s.ctx, `SELECT count(*) FROM delegations`).Scan(&n))
			return n
		}
		decode := func(body string) *tokens.PermissionRequest {
			var r tokens.PermissionRequest
			must.Do(s, x402.Decode([]byte(`{"planId":"`+string(p.ID)+`",`+body+`}`), &r))
			return &r
		}
		create := func(body string, once *store.Once) (*toll.AccessToken, error) {
			return s.one().Tokens.Create(s.ctx, auth.Caller{Address: s1}, decode(body), once)
		}
		tok := must.Get(create(`"delegationConfig":{"spending_limit_cents":200,"duration_secs":"600","max_transactions":3}`, nil))(s)
		if tok.DelegationID == nil || len(tok.Warnings) != 1 || tok.Warnings[0].Code != toll.CodeDeprecatedForm {
			t.Fatalf("%+v", tok)
		}
		d, err := s.one().checkout.Delegations.Read(s.ctx, s1, *tok.DelegationID)
		if err != nil || d.SpendingLimitCents != 200 || *d.MaxTransactions != 3 || d.Currency != "usdc" || !d.ExpiresAt.Equal(start.Add(10*time.Minute)) {
			t.Fatalf("%v %+v", err, d)
		}
		s.call(p, nil, tok).hold(nil)
		tok = must.Get(create(`"delegationConfig":{"maxTransactions":1}`, nil))(s)
		if d, err = s.one().checkout.Delegations.Read(s.ctx, s1, *tok.DelegationID); err != nil || d.SpendingLimitCents != 1000 || !d.ExpiresAt.Equal(start.Add(time.Hour)) {
			t.Fatalf("%v %+v", err, d)
		}
		before := delegations()
		for body, code := range map[string]toll.Code{
			`"delegationConfig":{"currency":"usd","spendingLimitCents":100}`:                      toll.CodeUnsupportedScheme,
			`"delegationConfig":{"durationSecs":1}`:                                               toll.CodeBadNumber,
			`"delegationConfig":{"provider":"stripe","currency":"usd","cardId":"pm_1"}`:           toll.CodePaymentMethodNotFound,
			`"delegationConfig":{"planId":"11","spendingLimitCents":100}`:                         toll.CodeDelegationPlanMismatch,
			`"agentId":"` + string(s.agent(nil).ID) + `","delegationConfig":{"durationSecs":600}`: toll.CodeAgentMismatch,
		} {
			if _, err := create(body, nil); !errors.Is(err, toll.NewError(code)) {
				t.Errorf("%s: %v", body, err)
			}
		}
		failed := errors.New("the answer cannot be kept")
		if _, err := create(`"delegationConfig":{"durationSecs":600}`, refusing(failed)); !errors.Is(err, failed) {
			t.Error(err)
		}
		if n := delegations(); n != before {
			t.Errorf("%d delegations of refused requests", n-before)
		}
		list, err := s.one().Tokens.List(s.ctx, s1, tokens.PermissionQuery{})
		if err != nil || list.Total != 2 {
			t.Errorf("%v, %d permissions", err, list.Total)
		}
	})
}

func TestDelegationConfig(t *testing.T) {
	for body, want := range map[string]string{
		`{"delegationId":"a","delegation_id":"a","delegationToken":null,"status":"Active","expiresAt":"x"}`: "a",
		`{"delegation_id":"a","spendingLimitCents":5}`:                                                      "a",
		`{"delegationToken":"a.b.c"}`:                                                                       "a.b.c",
		`{"delegation_token":"a.b.c","delegationId":""}`:                                                    "a.b.c",
		`{"cardId":"pm_1"}`: "",
		`{"card_id":"pm_1","providerPaymentMethodId":"pm_1"}`: "",
	} {
		var r tokens.PermissionRequest
		if err := x402.Decode([]byte(`{"planId":"11","delegationConfig":`+body+`}`), &r); err != nil || r.Delegation.ID != want || (r.Delegation.New == nil) == (want == "") {
			t.Errorf("%s: %v %+v", body, err, r.Delegation)
		}
	}
	for _, none := range []string{`{}`, `null`, `{"delegationId":null}`, `{"delegation_id":"","delegationToken":null}`} {
		var r tokens.PermissionRequest
		if err := x402.Decode([]byte(`{"planId":"11","delegationConfig":`+none+`}`), &r); err != nil || r.Delegation != nil {
			t.Errorf("%s: %v %+v", none, err, r.Delegation)
		}
	}
	for body, code := range map[string]toll.Code{
		`{"delegationID":"a"}`: toll.CodePaymentRequired,
		`{"apiKeyId":"0x` + "00000000000000000000000000000000000000000000000000000000000000aa" + `"}`: toll.CodePaymentRequired,
		`{"delegationId":"a","delegation_id":"b"}`:                                                    toll.CodeBadRequest,
		`{"durationSecs":1,"duration_secs":2}`:                                                        toll.CodeBadRequest,
		`{"cardId":"a","providerPaymentMethodId":"b"}`:                                                toll.CodeBadRequest,
		`{"spendingLimitCents":1.5}`:                                                                  toll.CodeBadNumber,
		`[]`:                                                                                          toll.CodeBadRequest,
	} {
		var r tokens.PermissionRequest
		if err := x402.Decode([]byte(`{"planId":"11","delegationConfig":`+body+`}`), &r); !errors.Is(err, toll.NewError(code)) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
