package checkout_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// cardDelegation makes a limit of this many cents on the card pm_1, which it enrols.
func (s *shop) cardDelegation(cents int64, f ...func(in *toll.DelegationInput)) string {
	s.Helper()
	s.card("pm_1", nil)
	return s.delegate(input(func(in *toll.DelegationInput) {
		for _, f := range f {
			f(in)
		}
		in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("usd"), ptr("pm_1")
		in.SpendingLimitCents, in.DurationSecs = ptr(toll.Cents(cents)), ptr(toll.Int(30*toll.DaySecs))
	})).DelegationID
}

// charge orders a plan with a delegation.
func (s *shop) charge(i int, p *toll.Plan, delegation string) (*toll.Order, error) {
	return s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holder, APIKeyID: me.KeyID, Plan: p, DelegationID: delegation, Wait: soon}, nil)
}

func (s *shop) status(delegation string) toll.PermissionStatus {
	s.Helper()
	d := must.Get(s.at(0).Delegations.Read(s.ctx, holder, delegation))(s)
	return d.Status
}

// declined is how a rail behaves whose bank declines every charge.
var declined = railtest.Behaviour{Decline: true, ByBank: true, Code: toll.CodeCardDeclined, Reason: "The bank declined the card."}

// A fiat plan is ordered with a card delegation, and with nothing else.
func TestOrder_CardDelegation(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(fiat) // 5.00 USD
		d := s.cardDelegation(1200)
		_, err := s.charge(0, p, "")
		s.code(err, toll.CodeFiatPlanOnCryptoRoute)
		_, err = s.charge(0, p, s.delegation(1000))
		s.code(err, toll.CodeUnsupportedScheme)
		_, err = s.charge(0, s.plan(usdc(100)), d)
		s.code(err, toll.CodeUnsupportedScheme)
		ofAccount := s.cardDelegation(1200, func(in *toll.DelegationInput) { in.MerchantAccountID = ptr("acct_1") })
		_, err = s.charge(0, p, ofAccount) // no plan is paid to an account of its own
		s.code(err, toll.CodeDelegationPlanMismatch)
		s.charges(0)

		o := must.Get(s.charge(0, p, "delegation."+holder.Lower()+"."+d))(s)
		bought := s.rail.Purchases()[0]
		if o.Status != toll.OrderConfirmed || o.Balance.Balance != 100 || o.Currency != toll.CurrencyUSD || s.remaining(d) != 700 ||
			bought.PaymentMethod != "pm_1" || bought.Delegation.Currency != "usd" || bought.Total.Cmp(toll.UnitsOfCents(500)) != 0 || bought.Session != nil {
			s.Fatalf("%+v, %d left, %+v", o, s.remaining(d), bought)
		}
		must.Get(s.charge(1, p, d))(s)
		_, err = s.charge(0, p, d)
		s.code(err, toll.CodeDelegationInsufficient)
		s.charges(2)
		if o := s.state(o.OrderID); o.Rail != "card" || o.RefundedCents != 0 || o.Dispute != "" {
			s.Fatalf("%+v", o)
		}
	})
}

// T81: a card delegation for three charges is raced by top-ups of two processes.
// T81
func TestCardDelegationRaced(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(fiat, ten))
		d := s.cardDelegation(1500)
		held, refused := s.requestAtOnce(60, p, d)
		if a := s.account(p, holder); held != 30 || refused != 30 || a.Orders != 3 || s.remaining(d) != 0 {
			s.Fatalf("%d held, %d refused, %+v", held, refused, a)
		}
		s.charges(3)
	})
}

// Three declines in a row freeze a delegation, until its owner unfreezes it. A payment in between ends the row.
func TestFreeze_Declines(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(fiat, ten))
		d := s.cardDelegation(10_000)
		perm := s.permission(p, d, nil)
		decline := func(times int) {
			s.Helper()
			s.rail.Behave(declined)
			for i := range times {
				_, err := s.charge(i, p, d)
				s.code(err, toll.CodeCardDeclined)
			}
			s.rail.Behave(railtest.Behaviour{})
		}
		decline(2)
		_, err := s.charge(0, p, d)
		must.Do(s, err)
		decline(2)
		// Refusals that no bank made do not count.
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodePaymentMethodUnusable})
		_, err = s.charge(0, p, d)
		s.code(err, toll.CodePaymentMethodUnusable)
		if got := s.status(d); got != toll.StatusActive {
			s.Fatal(got)
		}
		s.rail.Behave(declined)
		_, err = s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 11)
		s.code(err, toll.CodeTopUpRefused)
		s.rail.Behave(railtest.Behaviour{})

		if got := s.status(d); got != toll.StatusFrozen || s.remaining(d) != 9500 {
			s.Fatalf("%s, %d left", got, s.remaining(d))
		}
		_, err = s.charge(1, p, d)
		s.code(err, toll.CodeDelegationFrozen)
		_, err = s.request(1, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 11)
		s.code(err, toll.CodeDelegationFrozen)
		s.code(s.at(0).CanTopUp(s.ctx, checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 11}), toll.CodeDelegationFrozen)
		if list, err := s.at(0).Delegations.List(s.ctx, me, true, store.Page{}); err != nil || list.Total != 0 {
			s.Fatalf("%+v, %v", list, err)
		}
		s.charges(1)

		_, err = s.at(0).Delegations.Unfreeze(s.ctx, other, d)
		s.code(err, toll.CodeUnknownDelegation)
		for i := range 2 { // a repeat changes nothing
			record := must.Get(s.at(i).Delegations.Unfreeze(s.ctx, holder, d))(s)
			if record.Status != toll.StatusActive {
				s.Fatalf("%+v", record)
			}
		}
		must.Get(s.charge(0, p, d))(s)
		want := []toll.EventType{toll.EventDelegationCreated, toll.EventDelegationFrozen, toll.EventDelegationUnfrozen}
		if got := s.events(d); !slices.Equal(got, want) {
			s.Fatalf("%v, want %v", got, want)
		}
		decline(2)
		if got := s.status(d); got != toll.StatusActive {
			s.Fatalf("declines before the freeze count after it: %s", got)
		}
	})
}

// A frozen delegation that is revoked or expires has that status, and its orders are refused with that
// code.
func TestFreeze_Ended(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(fiat)
		frozen := func() string {
			s.Helper()
			d := s.cardDelegation(10_000)
			for i := range 3 {
				_, err := s.charge(i, p, d)
				s.code(err, toll.CodeCardDeclined)
			}
			return d
		}
		ended := func(d string, code toll.Code, status toll.PermissionStatus) {
			s.Helper()
			_, err := s.charge(0, p, d)
			s.code(err, code)
			if got := s.status(d); got != status {
				s.Fatalf("the delegation is %s, want %s", got, status)
			}
		}
		s.rail.Behave(declined)
		revoked, expired := frozen(), frozen()
		must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, revoked))(s)
		ended(revoked, toll.CodeDelegationRevoked, toll.StatusRevoked)
		ended(expired, toll.CodeDelegationFrozen, toll.StatusFrozen)
		s.now.Add((31 * 24 * time.Hour).Microseconds())
		ended(expired, toll.CodeDelegationExpired, toll.StatusExpired)
	})
}

// A late payment confirms a failed order if the limits of the plan have room, else the order
// refuses it. The rail continues in the same transaction.
// T76
func TestLatePaymentWithinLimits(t *testing.T) {
	eachRail(t, func(s *shop) {
		late := rail.Outcome{Status: toll.OrderConfirmed, TxHash: "pi_1", WithinLimits: true}
		failed := func(p *toll.Plan) string {
			s.Helper()
			s.rail.Behave(declined)
			_, err := s.charge(0, p, s.cardDelegation(10_000))
			s.code(err, toll.CodeCardDeclined)
			s.rail.Behave(railtest.Behaviour{})
			return toll.AsError(err).Params["orderId"].(string)
		}
		pays := func(id string) (fits bool) {
			s.Helper()
			must.Do(s, s.at(1).Decisions.Change(s.ctx, s.state(id).Account, func(t *rail.Tx) error {
				err := t.Decide(id, late)
				if fits = err == nil; errors.Is(err, rail.ErrNoPlace) {
					return store.PutSetting(s.ctx, t.Tx, "rejected/"+id, []byte("1"))
				}
				return err
			}))
			return fits
		}
		for name, f := range map[string]func(p *toll.Plan){
			"sold out": func(p *toll.Plan) { p.MaxOrders = 1 },
			"trial":    trial,
		} {
			p := s.plan(both(fiat, f))
			id := failed(p)
			if _, err := s.charge(0, p, s.cardDelegation(10_000)); err != nil {
				s.Fatal(name, err)
			}
			before, events := s.account(p, holder), s.events(id)
			if pays(id) {
				s.Errorf("%s: taken", name)
			}
			o, a := s.state(id), s.account(p, holder)
			if o.Status != toll.OrderFailed || a.Seq != before.Seq || s.orders(p) != 1 || !slices.Equal(s.events(id), events) {
				s.Errorf("%s: %+v, %+v", name, o, a)
			}
			if _, err := store.Setting(s.ctx, s.store, "rejected/"+id); err != nil {
				s.Errorf("%s: what the rail wrote is gone: %v", name, err)
			}
			s.audit()
		}
		// There is a place, although the plan was unlisted since.
		p := s.plan(both(fiat, func(p *toll.Plan) { p.MaxOrders = 1 }))
		id := failed(p)
		p.IsListed = false
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, p) }))
		if !pays(id) || s.state(id).Status != toll.OrderConfirmed || s.account(p, holder).Balance != 100 || s.orders(p) != 1 {
			s.Errorf("%+v", s.state(id))
		}
	})
}

// A card is refused only after the processor has reported it as expired: banks renew cards, so its
// printed date alone does not count.
func TestCard_PastItsDate(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(fiat)
		d := s.cardDelegation(10_000)
		expire := func(at time.Time) {
			s.Helper()
			must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
				return store.RefreshPaymentMethod(s.ctx, tx, &store.PaymentMethod{Owner: holder, ID: "pm_1", Brand: "visa", Last4: "4242", ExpMonth: 1, ExpYear: 2026, ExpiredAt: at})
			}))
		}
		expire(time.Time{})
		_, err := s.charge(0, p, d)
		must.Do(s, err)
		expire(s.clock())
		_, err = s.charge(0, p, d)
		s.code(err, toll.CodePaymentMethodUnusable)
		s.charges(1)
	})
}
