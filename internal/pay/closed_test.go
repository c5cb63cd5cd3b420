package pay_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// TestPermissionClosed: a permission is closed when nothing can burn credits under it any more, and
// not before.
func TestPermissionClosed(t *testing.T) {
	const life = 2 * time.Minute
	minutes := func(r *tokens.PermissionRequest) {
		secs := int64(life / time.Second)
		r.ExpiresInSecs = &secs
	}
	type payer struct {
		*scene
		*call
		hash toll.Hash
	}
	revoke := func(p *payer) { must.Do(p, p.at(1).Tokens.Revoke(p.ctx, s1, p.hash)) }
	for name, c := range map[string]struct {
		limits func(*tokens.PermissionRequest)
		// do returns a request that the builder may still try to settle, "" for none.
		do     func(p *payer) string
		closed bool
	}{
		"new":     {minutes, func(*payer) string { return "" }, false},
		"revoked": {minutes, func(p *payer) string { revoke(p); return "" }, true},
		"an open hold": {minutes, func(p *payer) string {
			id := p.hold(nil).AgentRequestID
			revoke(p)
			return id
		}, false},
		"an open hold of nothing": {minutes, func(p *payer) string {
			id := p.hold(heldFor(0)).AgentRequestID
			revoke(p)
			return id
		}, true},
		"a hold that lapsed before the revocation": {minutes, func(p *payer) string {
			id := p.hold(func(r *x402.VerifyRequest) { r.HoldSecs = 1 }).AgentRequestID
			p.clock.add(2 * time.Second)
			revoke(p)
			return id
		}, true},
		"a hold that lapsed after the revocation": {minutes, func(p *payer) string {
			id := p.hold(nil).AgentRequestID
			revoke(p)
			p.clock.add(time.Minute)
			return id
		}, true},
		"a released hold": {minutes, func(p *payer) string {
			id := p.hold(nil).AgentRequestID
			revoke(p)
			must.Get(p.one().Release(p.ctx, b1, &x402.ReleaseRequest{AgentRequestID: id}))(p)
			return id
		}, true},
		"a settled hold": {minutes, func(p *payer) string {
			id := p.hold(nil).AgentRequestID
			revoke(p)
			p.burn(id, nil)
			return ""
		}, true},
		"used up": {limit(5), func(p *payer) string {
			p.burn("", nil)
			return ""
		}, true},
		"used up, with a hold of nothing": {limit(5), func(p *payer) string {
			id := p.hold(heldFor(0)).AgentRequestID
			p.burn("", nil)
			return id
		}, true},
		"expired, and a lapsed hold may be settled for an hour": {minutes, func(p *payer) string {
			id := p.hold(nil).AgentRequestID
			p.clock.add(life + time.Hour)
			return id
		}, false},
		"expired for more than an hour": {minutes, func(p *payer) string {
			id := p.hold(nil).AgentRequestID
			p.clock.add(life + time.Hour + 2*time.Minute)
			return id
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				plan := s.plan(nil)
				s.mint(plan, s1, 20)
				token := s.token(plan, s1, c.limits)
				p := &payer{s, s.call(plan, s.agent(nil, plan), token), token.PermissionHash}
				id := c.do(p)
				record := must.Get(s.at(1).Tokens.Get(s.ctx, s1, p.hash))(s)
				if record.Closed != c.closed {
					t.Fatalf("closed is %v", record.Closed)
				}
				list := must.Get(s.at(1).Tokens.List(s.ctx, s1, tokens.PermissionQuery{PlanID: plan.ID}))(s)
				if list.Items[0].Closed && !c.closed {
					t.Error("the list says that it is closed")
				}
				tried := p.burned(id)
				if tried > 0 && record.Closed {
					t.Errorf("%d credits were burned under a closed permission", tried)
				}
				if tried == 0 && !record.Closed {
					t.Error("it is said to be open, and nothing can be burned")
				}
			})
		})
	}
}

// burned tries to burn under the permission of the call: the request with this id, and a new one,
// with a hold and without.
func (c *call) burned(id string) (sum toll.Credits) {
	c.s.Helper()
	balance := func() toll.Credits {
		b := must.Get(c.s.one().checkout.Balance(c.s.ctx, &toll.Plan{ID: toll.PlanID(c.required.Accepts[0].PlanID)}, s1, false))(c.s)
		return b.Balance
	}
	before := balance()
	var err error
	if id != "" {
		must.Get(c.settle(c.s.one(), id, amount(5)))(c.s)
	}
	_, err = c.settle(c.s.one(), "", amount(5))
	must.Do(c.s, err)
	if v, err := c.verify(c.s.one(), held); err == nil && v.IsValid {
		must.Get(c.settle(c.s.one(), v.AgentRequestID, nil))(c.s)
	}
	return before - balance()
}

// TestPermissionClosed_Events: the event of a revocation was made from a record that is older than
// the act.
func TestPermissionClosed_Events(t *testing.T) {
	each(t, func(s *scene) {
		plan := s.plan(nil)
		token := s.token(plan, s1, nil)
		must.Do(s, s.one().Tokens.Revoke(s.ctx, s1, token.PermissionHash))
		var claims int
		must.Do(s, s.one().store.QueryRow(s.ctx, `SELECT count(*) FROM events WHERE data LIKE '%"closed":true%'`).Scan(&claims))
		if claims != 0 {
			t.Error("an event says that a permission is closed")
		}
	})
}
