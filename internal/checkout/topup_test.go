package checkout_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

func ten(p *toll.Plan) { p.Credits.Amount = 10 }

func payg(p *toll.Plan) {
	usdc(2)(p)
	p.Price.TemplateAddress, p.Credits.Amount, p.Credits.MaxAmount = toll.PayAsYouGoTemplate, 1, 100
}

func timed(p *toll.Plan) {
	usdc(100)(p)
	p.AccessLimit, p.Credits = toll.LimitTime, toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1, DurationSecs: toll.UnitsOf(3600)}
}

// request holds credits as a verify does: it tops up while the ledger says that they are missing.
func (s *shop) request(i int, p *toll.Plan, perm ledger.Permission, id string, amount toll.Credits) (orderTx string, err error) {
	t := checkout.TopUp{
		Plan: p, Subscriber: perm.Subscriber, Permission: perm.Hash, DelegationID: perm.DelegationID, Needed: amount, RequestID: id, Wait: soon,
	}
	if !p.Kind().Charges() {
		t.Needed = 0
	}
	for {
		_, err := s.ledgers[i%len(s.ledgers)].Hold(s.ctx, ledger.HoldOp{
			Plan: p.ID, Subscriber: perm.Subscriber, Permission: perm.Hash, RequestID: id, Amount: t.Needed, Kind: p.Kind(),
			Until: s.clock().Add(time.Hour), OrderTx: &orderTx,
		})
		if !ledger.IsRefused(err, ledger.Insufficient) && !ledger.IsRefused(err, ledger.PeriodOver) {
			return orderTx, err
		}
		tx, err := s.at(i).TopUp(s.ctx, &t)
		if err != nil {
			return "", err
		}
		if tx != "" {
			orderTx = tx
		}
	}
}

func (s *shop) remaining(d string) toll.Cents {
	s.Helper()
	r := must.Get(s.at(0).Delegations.Read(s.ctx, holder, d))(s)
	return r.RemainingBudgetCents
}

// requestAtOnce holds a credit for each of n requests at the same time, under a permission that buys
// through a delegation. It returns how many are held, and how many the spent delegation refused.
func (s *shop) requestAtOnce(n int, p *toll.Plan, delegation string) (held, refused int64) {
	s.Helper()
	perm := s.permission(p, delegation, nil)
	var ok, no atomic.Int64
	atOnce(n, func(i int) {
		_, err := s.request(i, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 1)
		switch {
		case err == nil:
			ok.Add(1)
		case errors.Is(err, toll.NewError(toll.CodeDelegationExhausted)):
			no.Add(1)
		default:
			s.Error(err)
		}
	})
	return ok.Load(), no.Load()
}

// T37
func TestTopUpRaced(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(300)
		held, refused := s.requestAtOnce(50, p, d)
		a := s.account(p, holder)
		if held != 30 || refused != 20 || a.Balance != 30 || a.Held != 30 || a.Orders != 3 {
			s.Fatalf("%d held, %d refused, %+v", held, refused, a)
		}
		s.charges(3)
		if s.remaining(d) != 0 {
			s.Fatal(s.remaining(d))
		}
	})
}

// A request that needs more than one order brings makes several.
func TestTopUpOfLargeRequest(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(1000)
		perm := s.permission(p, d, nil)
		id := s.ledgers[0].NewRequestID(perm.Account())
		tx := must.Get(s.request(0, p, perm, id, 25))(s)
		s.charges(3)
		o := must.Get(s.at(0).OrderOfRequest(s.ctx, perm.Account(), id))(s)
		if a := s.account(p, holder); o.TxHash != tx || a.Balance != 30 || a.Held != 25 || s.remaining(d) != 700 {
			s.Fatalf("%s %+v", tx, a)
		}
	})
}

// One request, sent a hundred times at once and again later, buys once.
func TestTopUpOfOneRequest(t *testing.T) {
	eachRail(t, func(s *shop) {
		for _, p := range []*toll.Plan{s.plan(both(usdc(100), ten)), s.plan(payg)} {
			d := s.delegation(10_000)
			perm := s.permission(p, d, nil)
			before, _ := s.rail.Charges()
			id := s.ledgers[0].NewRequestID(perm.Account())
			var held, repeated atomic.Int64
			atOnce(60, func(i int) {
				_, err := s.request(i, p, perm, id, 10)
				switch {
				case err == nil:
					held.Add(1)
				case ledger.IsRefused(err, ledger.InFlight):
					repeated.Add(1)
				default:
					s.Error(err)
				}
			})
			if held.Load() != 1 || repeated.Load() != 59 {
				s.Fatalf("%d held, %d repeated", held.Load(), repeated.Load())
			}
			// The credits are gone to this request; a late repeat finds its order.
			tx, err := s.at(1).TopUp(s.ctx, &checkout.TopUp{
				Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 10, RequestID: id, Wait: soon,
			})
			must.Do(s, err)
			o := must.Get(s.at(0).OrderOfRequest(s.ctx, perm.Account(), id))(s)
			if n, _ := s.rail.Charges(); n != before+1 || tx != o.TxHash || tx == "" || s.account(p, holder).Balance != 10 {
				s.Fatalf("%d charges, %s, %+v", n-before, tx, s.account(p, holder))
			}
			_, err = s.at(0).OrderOfRequest(s.ctx, perm.Account(), "other")
			if !errors.Is(err, store.ErrNotFound) {
				s.Fatal(err)
			}
		}
	})
}

func TestTopUpPayAsYouGo(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(payg)
		d := s.delegation(100)
		perm := s.permission(p, d, nil)
		atOnce(10, func(i int) {
			if _, err := s.request(i, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 4); err != nil {
				s.Error(err)
			}
		})
		n, sum := s.rail.Charges()
		if a := s.account(p, holder); a.Balance != 40 || a.Held != 40 || n != 10 || sum.String() != "800000" || s.remaining(d) != 20 {
			s.Fatalf("%+v, %d charges of %s", a, n, sum)
		}
		for _, b := range s.rail.Purchases() {
			if b.Credits != 4 || b.Amounts[0].String() != "80000" {
				s.Fatalf("%+v", b)
			}
		}
		// 20 cents are left: ten credits, not eleven.
		can := checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 11}
		s.code(s.at(0).CanTopUp(s.ctx, can), toll.CodeDelegationInsufficient)
		can.Needed = 10
		must.Do(s, s.at(0).CanTopUp(s.ctx, can))
		// A request for nothing opens the account, and buys nothing.
		fresh := s.permission(p, d, func(p *ledger.Permission) { p.Subscriber = other })
		must.Get(s.request(0, p, fresh, s.ledgers[0].NewRequestID(fresh.Account()), 0))(s)
		s.charges(10)
	})
}

func TestTopUpOfTimePlan(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(timed)
		d := s.delegation(250)
		perm := s.permission(p, d, nil)
		for range 2 {
			atOnce(10, func(i int) {
				if _, err := s.request(i, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 0); err != nil {
					s.Error(err)
				}
			})
			s.now.Add(2 * time.Hour.Microseconds())
		}
		s.charges(2)
		_, err := s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 0)
		s.code(err, toll.CodeDelegationInsufficient)
	})
}

// A delegation pays orders up to a count; a permission causes orders up to its limit.
func TestTopUpCounts(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		twice := s.delegate(input(func(in *toll.DelegationInput) { in.MaxTransactions = ptr(toll.Int(2)) })).DelegationID
		once := int64(1)
		limited := s.permission(p, s.delegation(1000), func(p *ledger.Permission) { p.OrderLimit = &once })
		counted := s.permission(p, twice, nil)
		need := func(perm ledger.Permission, n toll.Credits) checkout.TopUp {
			return checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: perm.DelegationID, Needed: n, Wait: soon}
		}
		must.Do(s, s.at(0).CanTopUp(s.ctx, need(limited, 10)))
		s.code(s.at(0).CanTopUp(s.ctx, need(limited, 11)), toll.CodeOrderLimit)
		must.Do(s, s.at(0).CanTopUp(s.ctx, need(counted, 20)))
		s.code(s.at(0).CanTopUp(s.ctx, need(counted, 21)), toll.CodeDelegationExhausted)
		s.charges(0)
		// An order that fails is given back to both.
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainBalance, Reason: "none left"})
		for _, perm := range []ledger.Permission{limited, counted} {
			_, err := s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 10)
			s.code(err, toll.CodeTopUpRefused)
			if want := "BCK.CHAIN.0003: none left"; toll.AsError(err).Details != want {
				s.Fatalf("%q", toll.AsError(err).Details)
			}
		}
		s.rail.Behave(railtest.Behaviour{})
		for _, perm := range []ledger.Permission{limited, counted, counted} {
			must.Get(s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 10))(s)
		}
		_, err := s.request(0, p, limited, s.ledgers[0].NewRequestID(limited.Account()), 10)
		s.code(err, toll.CodeOrderLimit)
		_, err = s.request(0, p, counted, s.ledgers[0].NewRequestID(counted.Account()), 10)
		s.code(err, toll.CodeDelegationExhausted)
		s.charges(3)
	})
}

func TestTopUpRefusals(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(1000)
		perm := s.permission(p, d, nil)
		ask := func(f func(t *checkout.TopUp)) error {
			t := checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 5, RequestID: toll.NewUUID(), Wait: soon}
			f(&t)
			can := s.at(0).CanTopUp(s.ctx, t)
			_, err := s.at(0).TopUp(s.ctx, &t)
			if toll.AsError(can).Code != toll.AsError(err).Code {
				s.Errorf("it could: %v; it did: %v", can, err)
			}
			return err
		}
		s.code(ask(func(t *checkout.TopUp) { t.DelegationID = "" }), toll.CodeDelegationNotFound)
		s.code(ask(func(t *checkout.TopUp) { t.DelegationID = toll.NewUUID() }), toll.CodeDelegationNotFound)
		s.code(ask(func(t *checkout.TopUp) { t.Plan = s.plan(fiat) }), toll.CodeUnsupportedScheme)
		of := func(p *toll.Plan) func(t *checkout.TopUp) {
			return func(t *checkout.TopUp) { t.Plan, t.Permission = p, s.permission(p, d, nil).Hash }
		}
		s.code(ask(of(s.plan(both(usdc(100), func(p *toll.Plan) { p.IsListed = false })))), toll.CodePlanUnlisted)
		s.code(ask(of(s.plan(usdc(1001)))), toll.CodeDelegationInsufficient)
		s.code(ask(of(s.plan(nil))), toll.CodeInsufficientCredits)
		full := s.plan(both(usdc(1), func(p *toll.Plan) { p.MaxOrders = 1 }))
		_, err := s.order(0, other, full)
		must.Do(s, err)
		s.code(ask(func(t *checkout.TopUp) { t.Plan, t.Permission = full, s.permission(full, d, nil).Hash }), toll.CodePlanSoldOut)
		once := s.plan(both(usdc(1), ten, trial))
		must.Get(s.order(0, holder, once))(s)
		s.code(ask(func(t *checkout.TopUp) { t.Plan, t.Permission, t.Needed = once, s.permission(once, d, nil).Hash, 11 }), toll.CodeTrialUsed)
		must.Do(s, s.ledgers[0].RevokePermission(s.ctx, p.ID, holder, perm.Hash, s.clock()))
		_, err = s.at(0).TopUp(s.ctx, &checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 5, Wait: soon})
		s.code(err, toll.CodePermissionRevoked)
		if s.remaining(d) != 1000 {
			s.Fatal("refusals took money")
		}
		if a := s.account(p, holder); a.Seq != 0 || s.orders(p) != 0 {
			s.Fatalf("%+v", a)
		}
	})
}

func TestTopUpWithoutRail(t *testing.T) {
	each(t, func(s *shop) {
		for p, want := range map[*toll.Plan]toll.Code{s.plan(usdc(100)): toll.CodeChainUnreachable, s.plan(fiat): toll.CodeCardOff} {
			s.card("pm_1", nil)
			d := s.delegation(1000)
			if !p.Price.IsCrypto {
				d = s.delegate(input(func(in *toll.DelegationInput) {
					in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("usd"), ptr("pm_1")
				})).DelegationID
			}
			t := checkout.TopUp{Plan: p, Subscriber: holder, Permission: s.permission(p, d, nil).Hash, DelegationID: d, Needed: 5, Wait: soon}
			s.code(s.at(0).CanTopUp(s.ctx, t), want)
			_, err := s.at(0).TopUp(s.ctx, &t)
			s.code(err, want)
		}
	})
}

// While nobody knows what became of the order, the request waits, and then hears so; the same request goes on with it.
func TestTopUpPending(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(1000)
		perm := s.permission(p, d, nil)
		t := checkout.TopUp{
			Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 5, RequestID: "r", Wait: 200 * time.Millisecond,
		}
		s.rail.Behave(railtest.Behaviour{LoseAnswers: 1 << 20})
		_, err := s.at(0).TopUp(s.ctx, &t)
		s.code(err, toll.CodeSettlementPending)
		if tx := toll.AsError(err).Params["transaction"]; tx != "" {
			s.Fatal(tx)
		}
		s.jobs(0)
		s.rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainFeeCap})
		s.now.Add(time.Minute.Microseconds())
		t.Wait = soon
		_, err = s.at(1).TopUp(s.ctx, &t)
		s.code(err, toll.CodeChainFeeCap)
		// It takes some turns of the rail; the transaction is known before the end.
		q := s.plan(both(usdc(100), ten))
		u := t
		u.Wait = 200 * time.Millisecond
		u.Plan, u.Permission = q, s.permission(q, d, nil).Hash
		s.rail.Behave(railtest.Behaviour{Steps: 1})
		for range 2 {
			_, err = s.at(0).TopUp(s.ctx, &u)
			s.code(err, toll.CodeSettlementPending)
			s.jobs(0)
		}
		if tx := toll.AsError(err).Params["transaction"]; tx == "" {
			s.Fatal("no transaction")
		}
		s.settleDown(1)
		for _, v := range []*checkout.TopUp{&t, &u} {
			tx := must.Get(s.at(0).TopUp(s.ctx, v))(s)
			if tx == "" || s.account(v.Plan, holder).Balance != 10 {
				s.Fatalf("%q %+v", tx, s.account(v.Plan, holder))
			}
		}
		s.charges(2)
	})
}

// A top-up that another process makes is waited for, and its credits serve who waited.
func TestTopUpOfAnotherProcess(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(100)
		perm := s.permission(p, d, nil)
		s.rail.Behave(railtest.Behaviour{Hang: true})
		done := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := s.request(i, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 5)
				done <- err
			}()
		}
		s.until("the rail is asked", func() bool { return s.rail.Calls() > 0 })
		time.Sleep(50 * time.Millisecond)
		s.rail.Behave(railtest.Behaviour{})
		must.Do(s, errors.Join(<-done, <-done))
		s.charges(1)
		if a := s.account(p, holder); a.Held != 10 || a.Balance != 10 {
			s.Fatalf("%+v", a)
		}
	})
}

func TestCanTopUp(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(350)
		perm := s.permission(p, d, nil)
		can := func(n toll.Credits) error {
			return s.at(1).CanTopUp(s.ctx, checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: n})
		}
		must.Do(s, can(30))
		s.code(can(31), toll.CodeDelegationInsufficient)
		must.Get(s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 4))(s)
		// Six are there, and two orders can follow.
		must.Do(s, can(26))
		s.code(can(27), toll.CodeDelegationInsufficient)
		// An order under way counts as what it will bring.
		s.rail.Behave(railtest.Behaviour{Hang: true})
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: 20 * time.Millisecond}, nil))(s)
		must.Do(s, can(26))
		s.code(can(27), toll.CodeDelegationInsufficient)
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
		if s.state(o.OrderID).Status != toll.OrderConfirmed || s.remaining(d) != 150 {
			s.Fatalf("%+v", s.state(o.OrderID))
		}
		// What is there needs no delegation.
		must.Do(s, s.at(0).CanTopUp(s.ctx, checkout.TopUp{Plan: p, Subscriber: holder, Needed: 16}))
		tm := s.plan(timed)
		must.Do(s, s.at(0).CanTopUp(s.ctx, checkout.TopUp{Plan: tm, Subscriber: holder, DelegationID: d}))
	})
}
