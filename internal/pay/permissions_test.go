package pay_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

func TestPermissionRequest(t *testing.T) {
	type want = tokens.PermissionRequest
	secs := func(n int64) *int64 { return &n }
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for body, w := range map[string]want{
		`{"planId":"11"}`: {PlanID: "11"},
		`{"planId":"11","agentId":"12","redemptionLimit":"20","orderLimit":2,"expiration":60,"metadata":{"a":1},"tokenFormat":"JWT"}`: {
			PlanID: "11", AgentID: "12", RedemptionLimit: toll.Credits(20).Ptr(), OrderLimit: secs(2), ExpiresInSecs: secs(60),
			Metadata: json.RawMessage(`{"a":1}`), TokenFormat: "jwt"},
		`{"planId":"11","allowedAgents":["12","13"],"maxCredits":20,"expiresInSecs":"90","resource":"https://a.example/mcp"}`: {
			PlanID: "11", AllowedAgents: []toll.AgentID{"12", "13"}, RedemptionLimit: toll.Credits(20).Ptr(), ExpiresInSecs: secs(90),
			Resource: "https://a.example/mcp"},
		`{"accepted":{"scheme":"svc:erc4337","network":"eip155:84532","planId":"11","extra":{"agentId":"12","version":"1"}},"delegationConfig":{"delegationId":"x"}}`: {
			PlanID: "11", AgentID: "12", Scheme: "svc:erc4337", Network: "eip155:84532", Delegation: &tokens.DelegationConfig{ID: "x"}, Nested: true},
		`{"accepted":{"planId":"11"},"planId":"11","delegationConfig":null,"metadata":null,"expiresAt":"2026-12-01T00:00:00Z"}`: {
			PlanID: "11", Nested: true, ExpiresAt: end},
	} {
		var got tokens.PermissionRequest
		if err := x402.Decode([]byte(body), &got); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(w)
		if string(a) != string(b) {
			t.Errorf("%s:\ngot  %s\nwant %s", body, a, b)
		}
	}
	for body, path := range map[string]string{
		`{}`: "planId",
		`{"accepted":{"planId":"11"},"planId":"12"}`:                              "accepted.planId",
		`{"planId":"11","agentId":"1","accepted":{"extra":{"agentId":"2"}}}`:      "accepted.extra.agentId",
		`{"planId":"11","metadata":[1]}`:                                          "metadata",
		`{"planId":"11","metadata":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`:  "metadata",
		`{"planId":"11","tokenFormat":"jws"}`:                                     "tokenFormat",
		`{"planId":"11","resource":"/a"}`:                                         "resource",
		`{"planId":"11","resource":"https://u@a.example/"}`:                       "resource",
		`{"planId":"11","allowedAgents":["1"` + strings.Repeat(`,"1"`, 64) + `]}`: "allowedAgents",
	} {
		var got tokens.PermissionRequest
		err := x402.Decode([]byte(body), &got)
		b, _ := json.Marshal(toll.AsError(err).Params)
		if !errors.Is(err, toll.NewError(toll.CodeBadRequest)) || !strings.Contains(string(b), `"`+path+`"`) {
			t.Errorf("%.80s: %v %s", body, err, b)
		}
	}
}

func TestCreatePermission(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		a, foreign := s.agent(nil, p), s.agent(nil, s.plan(nil))
		create := func(f func(r *tokens.PermissionRequest)) (*toll.AccessToken, error) {
			r := &tokens.PermissionRequest{PlanID: p.ID}
			f(r)
			return s.one().Tokens.Create(s.ctx, auth.Caller{Address: s1}, r, nil)
		}
		n := func(n int64) *int64 { return &n }
		for name, row := range map[string]struct {
			f    func(r *tokens.PermissionRequest)
			code toll.Code
		}{
			"unknown plan":  {func(r *tokens.PermissionRequest) { r.PlanID = toll.NewPlanID() }, toll.CodePaymentPlanNotFound},
			"unknown agent": {func(r *tokens.PermissionRequest) { r.AgentID = toll.NewAgentID() }, toll.CodePaymentAgentNotFound},
			"foreign agent": {func(r *tokens.PermissionRequest) { r.AgentID = foreign.ID }, toll.CodeAgentMismatch},
			"foreign among": {func(r *tokens.PermissionRequest) { r.AllowedAgents = []toll.AgentID{a.ID, foreign.ID} }, toll.CodeAgentMismatch},
			"contradiction": {func(r *tokens.PermissionRequest) { r.AgentID, r.AllowedAgents = a.ID, []toll.AgentID{foreign.ID} }, toll.CodeAgentMismatch},
			"delegation": {func(r *tokens.PermissionRequest) {
				r.Delegation = &tokens.DelegationConfig{ID: toll.NewUUID()}
			}, toll.CodeDelegationNotFound},
			"scheme":           {func(r *tokens.PermissionRequest) { r.Scheme = "svc:card-delegation" }, toll.CodeUnsupportedScheme},
			"network":          {func(r *tokens.PermissionRequest) { r.Network = "eip155:8453" }, toll.CodeWrongNetwork},
			"0 s":              {func(r *tokens.PermissionRequest) { r.ExpiresInSecs = n(0) }, toll.CodeBadNumber},
			"-1 s":             {func(r *tokens.PermissionRequest) { r.ExpiresInSecs = n(-1) }, toll.CodeBadNumber},
			"365 days and 1 s": {func(r *tokens.PermissionRequest) { r.ExpiresInSecs = n(365*86400 + 1) }, toll.CodeBadNumber},
			"past":             {func(r *tokens.PermissionRequest) { r.ExpiresAt = start.Add(-time.Hour) }, toll.CodeBadNumber},
		} {
			if _, err := create(row.f); !errors.Is(err, toll.NewError(row.code)) {
				t.Errorf("%s: %v", name, err)
			}
		}

		tok := must.Get(create(func(r *tokens.PermissionRequest) {
			r.AllowedAgents, r.RedemptionLimit, r.OrderLimit, r.ExpiresInSecs = []toll.AgentID{a.ID}, toll.Credits(20).Ptr(), n(0), n(60)
			r.Metadata, r.Resource = json.RawMessage(`{"k":"v"}`), "https://a.example/mcp"
		}))(s)
		if tok.TokenFormat != "jwt" || tok.Token != tok.AccessToken || *tok.AgentID != a.ID || *tok.MaxCredits != 20 || tok.Status != toll.StatusActive ||
			tok.Scheme != "svc:erc4337" || tok.Network != "eip155:84532" || !tok.ExpiresAt.Equal(start.Add(time.Minute)) {
			t.Fatalf("%+v", tok)
		}
		claims := must.Get(s.at(1).auth.VerifyToken(tok.AccessToken))(s)
		if claims.Hash != tok.PermissionHash || claims.AgentID != a.ID || *claims.RedemptionLimit != 20 || *claims.OrderLimit != 0 ||
			len(claims.Audience) != 2 || claims.Subscriber != s1 || !claims.ExpiresAt.Equal(tok.ExpiresAt.Time) {
			t.Fatalf("%+v", claims)
		}

		// Nested requests get the x402 rendering, unless they say otherwise.
		tok = must.Get(create(func(r *tokens.PermissionRequest) { r.Nested = true }))(s)
		if tok.TokenFormat != "x402" {
			t.Fatal(tok.TokenFormat)
		}
		d := must.Get(x402.DecodeToken(tok.AccessToken))(s)
		if d.Rendering != "x402" || d.Nonce != tok.PermissionHash.String() || d.Accepted.PlanID != string(p.ID) || d.Authorization.From != s1.String() {
			t.Fatalf("%+v", d)
		}
		tok = must.Get(create(func(r *tokens.PermissionRequest) { r.Nested, r.TokenFormat = true, "jwt" }))(s)
		if tok.TokenFormat != "jwt" || strings.Count(tok.AccessToken, ".") != 2 {
			t.Fatal(tok.TokenFormat)
		}

		card := s.plan(func(p *toll.Plan) { p.Price.IsCrypto = false })
		tok = s.token(card, s1, func(r *tokens.PermissionRequest) { r.Network = "stripe:sandbox" })
		if tok.Scheme != "svc:card-delegation" || tok.Network != "stripe" {
			t.Fatalf("%+v", tok)
		}
		s.mint(card, s1, 10)
		// Verify and settle answer the network that the server sent, also when they refuse and when they repeat.
		for _, network := range []string{"stripe", "stripe:sandbox"} {
			c := s.call(card, nil, tok)
			c.required.Accepts[0].Network = network
			v, err := c.verify(s.one(), nil)
			s.valid(v, err)
			id := "card-" + network
			for range 2 {
				r := must.Get(c.settle(s.one(), id, nil))(s)
				if v.Network != network || !r.Success || r.Network != network {
					t.Fatalf("%s: verify %s, settle %+v", network, v.Network, r)
				}
			}
			s.clock.add(366 * 24 * time.Hour)
			v = must.Get(c.verify(s.one(), nil))(s)
			r := must.Get(c.settle(s.one(), "", nil))(s)
			if v.IsValid || r.Success || v.Network != network || r.Network != network {
				t.Fatalf("%s: verify %+v, settle %+v", network, v, r)
			}
			s.clock.add(-366 * 24 * time.Hour)
		}
		// A life of one second counts.
		short := s.token(p, s1, func(r *tokens.PermissionRequest) { r.ExpiresInSecs = n(1) })
		s.mint(p, s1, 10)
		v, err := s.call(p, nil, short).verify(s.one(), nil)
		s.valid(v, err)
		s.clock.add(time.Second)
		if v, err = s.call(p, nil, short).verify(s.one(), nil); err != nil || v.IsValid {
			t.Fatalf("%+v, %v", v, err)
		}
	})
}

func TestPermissionRecords(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(nil)
		s.mint(p, s1, 100)
		active := s.token(p, s1, func(r *tokens.PermissionRequest) { r.Metadata = json.RawMessage(`{"k":"v"}`) })
		s.clock.add(time.Millisecond)
		exhausted := s.token(p, s1, limit(5))
		s.clock.add(time.Millisecond)
		revoked := s.token(p, s1, nil)
		s.clock.add(time.Millisecond)
		expired := s.token(q, s1, func(r *tokens.PermissionRequest) { n := int64(60); r.ExpiresInSecs = &n })
		s.token(p, s2, nil)
		for range 3 {
			s.call(p, nil, active).burn("", nil)
		}
		s.call(p, nil, exhausted).burn("", nil)
		must.Do(s, s.one().Tokens.Revoke(s.ctx, s1, revoked.PermissionHash))
		s.code(s.at(1).Tokens.Revoke(s.ctx, s1, revoked.PermissionHash), toll.CodePermissionAlreadyRevoked)
		s.code(s.at(1).Tokens.Revoke(s.ctx, s2, active.PermissionHash), toll.CodePermissionNotFound)
		s.code(s.at(1).Tokens.Revoke(s.ctx, s1, toll.NewHash()), toll.CodePermissionNotFound)
		s.clock.add(time.Minute)

		r, err := s.at(1).Tokens.Get(s.ctx, s1, active.PermissionHash)
		must.Do(s, err)
		if r.Status != toll.StatusActive || r.UsedCredits != 15 || r.MaxCredits != nil || r.RemainingCredits != nil || len(r.Transactions) != 3 ||
			r.Transactions[0].CreditsRedeemed != 5 || string(r.Metadata) != `{"k":"v"}` || r.OwnerAddress != s1 || r.SubscriberAddress != s1 {
			t.Fatalf("%+v", r)
		}
		_, err = s.one().Tokens.Get(s.ctx, s2, active.PermissionHash)
		s.code(err, toll.CodePermissionNotFound)

		for status, want := range map[string]*toll.AccessToken{
			"active": active, "Exhausted": exhausted, "REVOKED": revoked, "Expired": expired,
		} {
			list := must.Get(s.at(1).Tokens.List(s.ctx, s1, tokens.PermissionQuery{Status: status}))(s)
			if list.Total != 1 || len(list.Items) != 1 || list.Items[0].PermissionHash != want.PermissionHash ||
				!strings.EqualFold(string(list.Items[0].Status), status) || list.Items[0].Transactions == nil {
				t.Fatalf("%s: %+v", status, list)
			}
		}
		list := must.Get(s.one().Tokens.List(s.ctx, s1, tokens.PermissionQuery{PlanID: p.ID}))(s)
		if list.Total != 3 || list.Items[0].PermissionHash != revoked.PermissionHash || *list.Items[1].RemainingCredits != 0 {
			t.Fatalf("%+v", list)
		}
		list = must.Get(s.one().Tokens.List(s.ctx, s1, tokens.PermissionQuery{Page: store.Page{Number: 2, Size: 3, Ascending: true}}))(s)
		if list.Total != 4 || len(list.Items) != 1 || list.Items[0].PermissionHash != expired.PermissionHash {
			t.Fatalf("%+v", list)
		}
		_, err = s.one().Tokens.List(s.ctx, s1, tokens.PermissionQuery{Status: "lost"})
		s.code(err, toll.CodeBadRequest)
	})
}

// An access token works through the seam that middleware is built on.
func TestAs(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		s.mint(p, s1, 10)
		var f x402.Facilitator = s.one().As(b1)
		terms, err := f.Terms(s.ctx, p.ID)
		must.Do(s, err)
		if terms.PlanName != "Basic" || terms.Scheme != "svc:erc4337" || terms.Network != "eip155:84532" || terms.PayTo != b1.String() ||
			terms.MinAmount != 1 || terms.MaxAmount != 10 || !terms.Kind.Charges() {
			t.Fatalf("%+v", terms)
		}
		_, err = f.Terms(s.ctx, toll.NewPlanID())
		s.code(err, toll.CodePlanNotFound)
		required := *x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{})
		token := s.token(p, s1, nil).AccessToken
		v, err := f.Verify(s.ctx, &x402.VerifyRequest{PaymentRequired: required, AccessToken: token, Hold: true})
		s.valid(v, err)
		if v.AgentRequest != nil || v.AgentID != "" {
			t.Fatalf("%+v", v)
		}
		out := must.Get(f.Release(s.ctx, &x402.ReleaseRequest{AgentRequestID: v.AgentRequestID}))(s)
		if out.Released != 10 {
			t.Fatalf("%+v", out)
		}
		r := must.Get(f.Settle(s.ctx, &x402.SettleRequest{PaymentRequired: required, AccessToken: token}))(s)
		if !r.Success || *r.CreditsRedeemed != 10 || r.Extra.AgentRequestID == "" {
			t.Fatalf("%+v", r)
		}
		_, err = s.one().As(b2).Verify(s.ctx, &x402.VerifyRequest{PaymentRequired: required, AccessToken: token})
		s.code(err, toll.CodeNotPlanOwner)
	})
}

// TestTokenCredits: an access token always says something of credits.
func TestTokenCredits(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(2, 10))
		for name, c := range map[string]struct {
			with func(*tokens.PermissionRequest)
			want string
		}{
			"no limits": {nil, `{"planMin":"2","planMax":"10","perOrder":"` + p.Credits.Amount.String() + `"}`},
			"limits": {func(r *tokens.PermissionRequest) {
				orders := int64(3)
				r.RedemptionLimit, r.OrderLimit = toll.Credits(7).Ptr(), &orders
			}, `{"redemptionLimit":"7","orderLimit":3,"planMin":"2","planMax":"10","perOrder":"` + p.Credits.Amount.String() + `"}`},
		} {
			jws := s.token(p, s1, c.with).AccessToken
			payload := must.Get(base64.RawURLEncoding.DecodeString(strings.Split(jws, ".")[1]))(s)
			var claims struct{ Credits json.RawMessage }
			must.Do(s, json.Unmarshal(payload, &claims))
			if string(claims.Credits) != c.want {
				t.Errorf("%s: got %s, want %s", name, claims.Credits, c.want)
			}
		}
	})
}
