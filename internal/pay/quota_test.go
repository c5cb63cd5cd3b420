package pay_test

import (
	"fmt"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// limited is an instance with other quotas than those of the scene.
func (s *scene) limited(permissions, freeHolds int64) *instance {
	i := *s.one()
	i.Facilitator = i.pays(s, func(f *pay.Deps, t *tokens.Deps, _ *purchases.Deps) {
		f.FreeHolds, t.Quota = freeHolds, permissions
	})
	return &i
}

// quota proves that an error names a quota and its limit.
func (s *scene) quota(e *toll.Error, code toll.Code, what string, limit any) {
	s.Helper()
	if e == nil || e.Code != code || e.HTTPStatus() != 429 || e.Params["quota"] != what || fmt.Sprint(e.Params["limit"]) != fmt.Sprint(limit) {
		s.Errorf("%+v, want %s with %s %v", e, code, what, limit)
	}
}

// A subscriber has so many holds that burn nothing in an hour with each builder. What is burned does not count, and others have
// their own.
// T177
func TestFreeHolds(t *testing.T) {
	each(t, func(s *scene) {
		const what = "holds that burn nothing"
		p := s.plan(dynamic(1, 10))
		i := s.limited(0, 3)
		for _, who := range []toll.Address{s1, s2} {
			s.mint(p, who, 1000)
		}
		tok := s.token(p, s1, nil)
		c := s.call(p, nil, tok)
		hold := func() (*x402.VerifyResponse, error) { return c.verify(i, held) }
		for range 10 { // paid for
			v, err := hold()
			s.valid(v, err)
			must.Get(c.settle(i, v.AgentRequestID, nil))(t)
		}
		for range 2 { // given back
			v, err := hold()
			s.valid(v, err)
			must.Get(i.Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: v.AgentRequestID}))(s)
		}
		last, err := hold()
		s.valid(last, err)
		_, err = hold()
		s.quota(toll.AsError(err), toll.CodeTooManyHolds, what, 3)
		// Standard software gets a verdict.
		v, err := c.nonce("a").stock("1").verify(i)
		s.invalid(v, err, x402.ReasonTooManyHolds)
		r, err := c.settle(i, "", amount(0))
		s.refused(r, err, toll.CodeTooManyHolds)
		if v, err := s.call(p, nil, s.token(p, s2, nil)).verify(i, held); err != nil || !v.IsValid {
			t.Errorf("another subscriber: %+v, %v", v, err)
		}
		// The first builder cannot keep the subscriber from paying another one.
		q := s.plan(func(p *toll.Plan) { p.Owner = b2 })
		s.mint(q, s1, 1000)
		if v, err := s.call(q, nil, s.token(q, s1, nil)).verify(i, held); err != nil || !v.IsValid {
			t.Errorf("another builder: %+v, %v", v, err)
		}
		v, err = c.verify(i, nil)
		s.valid(v, err) // without a hold there is no row
		must.Get(c.settle(i, last.AgentRequestID, nil))(t)
		v, err = hold()
		s.valid(v, err)
	})
}

// A hold that is refused gives its place in the quota back, a settlement gives back one, and a repeat or a release gives back
// nothing.
// T177
func TestFreeHoldsGivenBack(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		i := s.limited(0, 2)
		s.mint(p, s1, 10)
		c := s.call(p, nil, s.token(p, s1, nil))
		hold := func(n toll.Credits, want toll.Code) (id string) {
			s.Helper()
			v, err := c.verify(i, heldFor(n))
			switch {
			case want == toll.CodeTooManyHolds:
				s.quota(toll.AsError(err), want, "holds that burn nothing", 2)
			case want != "":
				s.invalid(v, err, x402.ReasonInsufficientFunds)
			default:
				s.valid(v, err)
				id = v.AgentRequestID
			}
			return id
		}
		first := hold(10, "")
		for range 3 {
			hold(1, toll.CodeInsufficientCredits)
		}
		for n := range 3 {
			if r, err := c.settle(i, first, amount(1)); err != nil || !r.Success || r.Replayed != (n > 0) {
				s.Fatalf("%v %+v", err, r)
			}
			if n == 0 {
				hold(1, "")
			}
		}
		last := hold(1, "")
		hold(1, toll.CodeTooManyHolds)
		must.Get(i.Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: last}))(s) // it burned nothing
		hold(1, toll.CodeTooManyHolds)
	})
}

// A hold and its settlement of nothing count once, also when the quota is used up. A settlement of nothing without a hold counts.
// T177
func TestFreeHolds_SettledWithNothing(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		i := s.limited(0, 2)
		s.mint(p, s1, 10)
		c := s.call(p, nil, s.token(p, s1, nil))
		hold := func() string {
			s.Helper()
			v, err := c.verify(i, held)
			s.valid(v, err)
			return v.AgentRequestID
		}
		settle := func(id string) {
			s.Helper()
			if r, err := c.settle(i, id, amount(0)); err != nil || !r.Success {
				s.Fatalf("%v %+v", err, r)
			}
		}
		settle(hold())
		settle(hold()) // with the quota used up
		_, err := c.verify(i, held)
		s.quota(toll.AsError(err), toll.CodeTooManyHolds, "holds that burn nothing", 2)
		r, err := c.settle(i, "", amount(0))
		s.refused(r, err, toll.CodeTooManyHolds)
	})
}

// An account makes so many permissions in an hour. Large metadata counts for several.
// T177
func TestQuota_Permissions(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	p := s.plan(nil)
	i := s.limited(4, 0)
	make := func(who toll.Address, metadata int) error {
		_, err := i.Tokens.Create(s.ctx, auth.Caller{Address: who}, &tokens.PermissionRequest{PlanID: p.ID, Metadata: fmt.Appendf(nil, `{"a":"%0*d"}`, metadata, 0)}, nil)
		return err
	}
	must.Do(s, make(s1, 10))
	must.Do(s, make(s1, 9000)) // three
	s.quota(toll.AsError(make(s1, 10)), toll.CodeRateLimited, "permissions", 4)
	must.Do(s, make(s2, 10))
}

// A request has so many sub-tasks.
// T177
func TestSubTasks(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		full, other := c.hold(nil).AgentRequestID, c.hold(nil).AgentRequestID
		for range 1000 {
			must.Get(s.one().Requests.RecordSubTask(s.ctx, b1, task(full, 0), nil))(s)
		}
		_, err := s.one().Requests.RecordSubTask(s.ctx, b1, task(full, 0), nil)
		s.quota(toll.AsError(err), toll.CodeRateLimited, "sub-tasks of a request", 1000)
		must.Get(s.one().Requests.RecordSubTask(s.ctx, b1, task(other, 0), nil))(s)
	})
}
