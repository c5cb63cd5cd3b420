package checkout_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// soon is more than anything takes that comes at all, on a busy machine as well.
const soon = 2 * time.Minute

// usdc prices a plan at this many cents.
func usdc(cents int64) func(p *toll.Plan) {
	return func(p *toll.Plan) {
		p.Price = toll.Price{
			IsCrypto: true, TokenAddress: toll.USDCSandbox, Amounts: []toll.Units{toll.UnitsOfCents(cents)}, Receivers: []toll.Address{owner},
		}
	}
}

func fiat(p *toll.Plan) {
	p.Price = toll.Price{Currency: toll.CurrencyUSD, Amounts: []toll.Units{toll.UnitsOfCents(500)}, Receivers: []toll.Address{owner}}
}

func both(fs ...func(p *toll.Plan)) func(p *toll.Plan) {
	return func(p *toll.Plan) {
		for _, f := range fs {
			f(p)
		}
	}
}

func trial(p *toll.Plan) { p.IsTrial = true }

func (s *shop) order(i int, who toll.Address, p *toll.Plan) (*toll.Order, error) {
	return s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: who, Plan: p, Wait: soon}, nil)
}

func (s *shop) charges(want int) {
	s.Helper()
	if n, _ := s.rail.Charges(); n != want {
		s.Fatalf("money moved %d times, want %d", n, want)
	}
}

// settleDown goes on with what is open until nothing is, as time passes.
func (s *shop) settleDown(i int) {
	s.Helper()
	for range 30 {
		s.now.Add(time.Minute.Microseconds())
		n := s.jobs(i)
		var open int
		must.Do(s, s.store.QueryRow(s.ctx, "SELECT COUNT(*) FROM orders WHERE open_key IS NOT NULL").Scan(&open))
		if n == 0 && open == 0 {
			return
		}
	}
	s.Fatal("orders stay open")
}

// jobs runs the jobs that are due, as a process does, and returns how many there were.
func (s *shop) jobs(i int) int {
	s.Helper()
	return must.Get(s.queues[s.at(i)].RunDue(s.ctx))(s)
}

// later is jobs after some seconds.
func (s *shop) later(i int) {
	s.Helper()
	s.now.Add((10 * time.Second).Microseconds())
	s.jobs(i)
}

// until waits for what happens beside the test.
func (s *shop) until(what string, happened func() bool) {
	s.Helper()
	for end := time.Now().Add(soon); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("still not: %s", what)
		}
	}
}

// begin orders, and returns the order as it stands when the first process has done for it what it can do now.
func (s *shop) begin(p *toll.Plan, delegation string) *toll.Order {
	s.Helper()
	r := checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: delegation, Wait: time.Millisecond}
	must.Get(s.at(0).Order(s.ctx, r, nil))(s)
	s.jobs(0)
	return must.Get(s.at(0).Order(s.ctx, r, nil))(s)
}

func (s *shop) state(id string) *store.Order {
	s.Helper()
	return must.Get(store.OrderByID(s.ctx, s.store, id))(s)
}

func TestOrderOfPaidPlan(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(150), func(p *toll.Plan) { p.Credits.DurationSecs = toll.UnitsOf(3600) }))
		o := must.Get(s.order(0, holder, p))(s)
		if !o.Success || o.Status != toll.OrderConfirmed || o.CreditsGranted != 100 || o.Amount.String() != "1500000" || o.Currency != "USDC" ||
			o.Balance.Balance != 100 || !o.Balance.ExpiresAt.Equal(start.Add(time.Hour)) || o.HTTPStatus != 200 {
			s.Fatalf("%+v", o)
		}
		if bought := s.rail.Purchases(); len(bought) != 1 || bought[0].OrderID != o.OrderID || bought[0].Subscriber != holder ||
			bought[0].Token != toll.USDCSandbox || !slices.Equal(bought[0].Receivers, []toll.Address{owner}) || bought[0].DelegationID != "" {
			s.Fatalf("%+v", bought)
		}
		again := must.Get(s.order(1, holder, p))(s)
		if a := s.account(p, holder); again.OrderID == o.OrderID || a.Balance != 200 || a.Orders != 2 || s.orders(p) != 2 {
			s.Fatalf("%+v", a)
		}
		s.charges(2)
	})
}

func TestOrderDeclined(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), trial, func(p *toll.Plan) { p.MaxOrders = 1 }))
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainBalance, Reason: "10 are needed"})
		_, err := s.order(0, holder, p)
		s.code(err, toll.CodeChainBalance)
		e := toll.AsError(err)
		failed := must.Get(s.at(0).OrderByID(s.ctx, holder, e.Params["orderId"].(string)))(s)
		if failed.Success || failed.Status != toll.OrderFailed || failed.FailureReason != "10 are needed" || failed.FailureCode != toll.FailureFunds || failed.Balance != nil {
			s.Fatalf("%+v", failed)
		}
		s.rail.Behave(railtest.Behaviour{Decline: true})
		_, err = s.order(1, holder, p)
		s.code(err, toll.CodeOrderLacksMoney)
		if a := s.account(p, holder); a.Seq != 0 || a.Orders != 0 || s.orders(p) != 0 {
			s.Fatalf("declined orders left %+v", a)
		}
		// Neither the place nor the trial is lost.
		s.rail.Behave(railtest.Behaviour{})
		must.Get(s.order(0, holder, p))(s)
		s.charges(1)
	})
}

func TestOrderWithoutAnswer(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{LoseAnswers: 2})
		o := must.Get(s.order(0, holder, p))(s)
		if o.Status != toll.OrderConfirmed {
			s.Fatalf("%+v", o)
		}
		s.charges(1)

		// No answer comes: not known is no failure.
		s.rail.Behave(railtest.Behaviour{LoseAnswers: 1 << 20})
		o = must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: other, Plan: p, Wait: 300 * time.Millisecond}, nil))(s)
		if !o.Success || o.HTTPStatus != 202 || o.Status == toll.OrderConfirmed || o.Balance != nil {
			s.Fatalf("%+v", o)
		}
		// Whoever asks again meanwhile gets the same order.
		again := must.Get(s.at(1).Order(s.ctx, checkout.OrderRequest{Caller: other, Plan: p, Wait: 200 * time.Millisecond}, nil))(s)
		if again.OrderID != o.OrderID || again.HTTPStatus != 202 {
			s.Fatalf("%+v", again)
		}
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(1)
		if a := s.account(p, other); a.Balance != 100 || s.state(o.OrderID).Status != toll.OrderConfirmed {
			s.Fatalf("%+v", a)
		}
		s.charges(2)
	})
}

func TestOrderWhileRailIsAway(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainRelayerLow})
		_, err := s.order(0, holder, p)
		s.code(err, toll.CodeChainRelayerLow)
		id := toll.AsError(err).Params["orderId"]
		s.now.Add(time.Minute.Microseconds())
		_, err = s.order(1, holder, p)
		s.code(err, toll.CodeChainRelayerLow)
		if toll.AsError(err).Params["orderId"] != id || s.orders(p) != 1 {
			s.Fatal("the repeat made another order")
		}
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
		if a := s.account(p, holder); a.Balance != 100 || a.Orders != 1 {
			s.Fatalf("%+v", a)
		}
		s.charges(1)
	})
}

// A process dies at each step of an order, before and after each of its writes; another one goes on.
func TestOrderKilledAtEachStep(t *testing.T) {
	for _, declined := range []bool{false, true} {
		steps := []string{"place", "placing", "placed", "pay", "paid", "finish", "confirming", "finished"}
		if declined {
			steps[6] = "failing"
		}
		t.Run(fmt.Sprintf("declined=%v", declined), func(t *testing.T) {
			eachRail(t, func(s *shop) {
				d := s.delegation(100 * int64(len(steps)))
				for _, step := range steps {
					p := s.plan(both(usdc(100), func(p *toll.Plan) { p.MaxOrders = 1 }))
					before, _ := s.rail.Charges()
					s.rail.Behave(railtest.Behaviour{Decline: declined})
					dying := s.start(s.store, s.ledgers[len(s.ledgers)-1])
					var reached atomic.Bool
					dying.Failpoint(func(at string) {
						if at == step {
							reached.Store(true)
							panic("killed")
						}
					})
					id := killedOrder(s, dying, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: 100 * time.Millisecond})
					s.until(step+" is reached", reached.Load)
					s.settleDown(0)
					s.audit()
					charges, _ := s.rail.Charges()
					a := s.account(p, holder)
					recorded := step != "place" && step != "placing"
					switch {
					case !recorded && (id != "" || s.orders(p) != 0 || charges != before || a.Orders != 0):
						s.Fatalf("%s: the order was not recorded, and there are %+v", step, a)
					case recorded && !declined && (charges != before+1 || a.Balance != 100 || a.Orders != 1 || s.orders(p) != 1):
						s.Fatalf("%s: %d charges, %+v", step, charges-before, a)
					case recorded && declined && (charges != before || a.Balance != 0 || s.orders(p) != 0):
						s.Fatalf("%s: %d charges, %+v", step, charges-before, a)
					}
				}
				r := must.Get(s.at(0).Delegations.Read(s.ctx, holder, d))(s)
				paid := int64(len(steps) - 2)
				if declined {
					paid = 0
				}
				if r.AmountSpentCents != toll.Cents(100*paid) || r.TransactionCount != paid ||
					r.RemainingBudgetCents != r.SpendingLimitCents-r.AmountSpentCents {
					s.Fatalf("%+v", r)
				}
			})
		})
	}
}

// killedOrder orders with a process that may die, and returns the id of the order when it got one.
func killedOrder(s *shop, c *checkout.Checkout, r checkout.OrderRequest) (id string) {
	defer func() { _ = recover() }()
	o, err := c.Order(s.ctx, r, nil)
	if err == nil {
		return o.OrderID
	}
	if e := toll.AsError(err); e.Params["orderId"] != nil {
		return e.Params["orderId"].(string)
	}
	return ""
}

// One process gets the refusal of a payment that another one sees succeed after all: the money moved, so the credits follow.
func TestOrderPaidAfterAll(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		d := s.delegation(1000)
		s.rail.Behave(railtest.Behaviour{Decline: true})
		a, b := s.start(s.store, s.ledgers[0]), s.start(s.store, s.ledgers[len(s.ledgers)-1])
		_, err := a.Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil)
		s.code(err, toll.CodeOrderLacksMoney)
		if r, err := s.at(0).Delegations.Read(s.ctx, holder, d); err != nil || r.RemainingBudgetCents != 1000 {
			s.Fatalf("%+v %v", r, err)
		}
		id := s.rail.Purchases()[0].OrderID
		must.Do(s, s.rail.Complete(id))
		must.Do(s, s.decides(b, id, redone))
		if acc := s.account(p, holder); acc.Balance != 100 || s.orders(p) != 1 {
			s.Fatalf("%+v", acc)
		}
		if r, err := s.at(0).Delegations.Read(s.ctx, holder, d); err != nil || r.AmountSpentCents != 100 {
			s.Fatalf("%+v %v", r, err)
		}
	})
}

func TestOrder_KeptUnderKey(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), func(p *toll.Plan) { p.MaxOrders = 1 }))
		d := s.delegation(100)
		no := errors.New("no")
		r := checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}
		_, err := s.at(0).Order(s.ctx, r, refusing(no))
		if !errors.Is(err, no) || s.orders(p) != 0 {
			s.Fatal(err)
		}
		s.charges(0)
		s.rail.Behave(railtest.Behaviour{Hang: true})
		var seen []string
		keep := func() *store.Once {
			return &store.Once{Scope: toll.NewHash(), At: s.clock(), Seal: func(answer any) ([]byte, error) {
				seen = append(seen, answer.(checkout.OrderRef).OrderID)
				return []byte("sealed"), nil
			}}
		}
		r.Wait = 50 * time.Millisecond
		first := must.Get(s.at(0).Order(s.ctx, r, keep()))(s)
		second := must.Get(s.at(1).Order(s.ctx, r, keep()))(s)
		if len(seen) != 2 || seen[0] != first.OrderID || seen[1] != first.OrderID || second.OrderID != first.OrderID {
			s.Fatalf("%+v", seen)
		}
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
		s.charges(1)

		free := s.plan(nil)
		seen = nil
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: free}, keep()))(s)
		if len(seen) != 1 || seen[0] != o.OrderID || o.TxHash == "" {
			s.Fatalf("%+v", seen)
		}
		if _, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: free}, refusing(no)); !errors.Is(err, no) {
			s.Fatal(err)
		}
		_, err = s.at(0).Mint(s.ctx, owner, free.ID, holder, 5, toll.Units{}, refusing(no))
		if !errors.Is(err, no) || s.account(free, holder).Balance != 100 {
			s.Fatal(err)
		}
	})
}

// T38
func TestTrialTwice(t *testing.T) {
	eachRail(t, func(s *shop) {
		for _, plan := range []*toll.Plan{s.plan(both(usdc(100), trial)), s.plan(trial)} {
			// The rail is slow, so that all but one meet an order that is not finished.
			s.rail.Behave(railtest.Behaviour{Hang: true})
			var paid, refused atomic.Int64
			mixed := []toll.Address{holder, toll.MustAddress(holder.Lower())}
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					o, err := s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: mixed[i%2], APIKeyID: toll.Hash{byte(i % 2)}, Plan: plan, Wait: soon}, nil)
					switch {
					case err == nil && o.Status == toll.OrderConfirmed:
						paid.Add(1)
					case errors.Is(err, toll.NewError(toll.CodeTrialUsed)):
						refused.Add(1)
					default:
						s.Errorf("%+v %v", o, err)
					}
				})
			}
			for until := time.Now().Add(soon / 2); refused.Load() < 49 && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			s.rail.Behave(railtest.Behaviour{})
			wg.Wait()
			if a := s.account(plan, holder); paid.Load() != 1 || a.Balance != 100 || a.Orders != 1 {
				s.Fatalf("%d paid, %+v", paid.Load(), a)
			}
			restarted := s.start(s.store, s.ledgers[len(s.ledgers)-1])
			_, err := restarted.Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: plan, Wait: soon}, nil)
			s.code(err, toll.CodeTrialUsed)
		}
		s.charges(1)
	})
}

// T39
func TestAccessLimitRaced(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), func(p *toll.Plan) { p.MaxOrders = 10 }))
		s.rail.Behave(railtest.Behaviour{DeclineNext: 3})
		var paid, declined, soldOut atomic.Int64
		buy := func(i int) {
			_, err := s.order(i, toll.Address{19: byte(i + 1)}, p)
			switch {
			case err == nil:
				paid.Add(1)
			case errors.Is(err, toll.NewError(toll.CodePlanSoldOut)):
				soldOut.Add(1)
			case errors.Is(err, toll.NewError(toll.CodeOrderLacksMoney)):
				declined.Add(1)
			default:
				s.Error(err)
			}
		}
		atOnce(50, buy)
		if n := paid.Load(); declined.Load() != 3 || n > 10 || n < 7 || s.orders(p) != n {
			s.Fatalf("%d paid, %d declined, %d sold out, %d counted", n, declined.Load(), soldOut.Load(), s.orders(p))
		}
		atOnce(20, func(i int) { buy(100 + i) })
		if paid.Load() != 10 || s.orders(p) != 10 {
			s.Fatalf("%d paid, %d counted", paid.Load(), s.orders(p))
		}
		s.charges(10)
	})
}

func TestOrderPayAsYouGo(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(2), func(p *toll.Plan) { p.Price.TemplateAddress = toll.PayAsYouGoTemplate }))
		o := must.Get(s.order(0, holder, p))(s)
		if o.Status != toll.OrderConfirmed || o.CreditsGranted != 0 || !o.Amount.IsZero() || !o.Balance.IsSubscriber || o.Balance.Balance != 0 {
			s.Fatalf("%+v %+v", o, o.Balance)
		}
		s.charges(0)
	})
}

func TestFiat(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(fiat)
		s.rail.Behave(railtest.Behaviour{Person: true})
		r := checkout.FiatRequest{Caller: holder, Plan: p, Wait: soon, Session: rail.SessionInput{Hosted: true, SuccessURL: "https://a.example/ok"}}
		out, err := s.at(0).Fiat(s.ctx, r, nil)
		must.Do(s, err)
		if out.Result.URL != "https://pay.example/"+out.OrderID || out.Result.Link != out.Result.URL || out.Result.SessionID != "cs_"+out.OrderID ||
			out.Result.ClientReferenceID != out.OrderID || out.Result.PaymentStatus != "unpaid" || out.Result.ExpiresAt != 1_800_086_400 {
			s.Fatalf("%+v", out)
		}
		if bought := s.rail.Purchases(); *bought[0].Session != r.Session {
			s.Fatalf("%+v", bought[0].Session)
		}
		// Another page is another order, and a page does not keep anybody from ordering.
		second := must.Get(s.at(1).Fiat(s.ctx, r, nil))(s)
		if second.OrderID == out.OrderID {
			s.Fatal("two pages of one order")
		}
		must.Do(s, s.rail.Complete(out.OrderID))
		must.Do(s, s.rail.Expire(second.OrderID))
		s.settleDown(0)
		if a := s.account(p, holder); a.Balance != 100 || s.orders(p) != 1 || s.state(second.OrderID).Status != toll.OrderFailed {
			s.Fatalf("%+v", a)
		}
		paid := must.Get(s.at(0).ReplayFiat(s.ctx, holder, out.OrderID, soon))(s)
		if paid.Result.PaymentStatus != "paid" {
			s.Fatalf("%+v", paid)
		}
		_, err = s.at(0).ReplayFiat(s.ctx, other, out.OrderID, soon)
		s.code(err, toll.CodeOrderNotFound)

		// Pages that nobody pays take one place of a limited plan for each account.
		limited := s.plan(both(fiat, func(p *toll.Plan) { p.MaxOrders = 2 }))
		r.Plan = limited
		pages := map[string]bool{}
		for i := range 5 {
			page := must.Get(s.at(i).Fiat(s.ctx, r, nil))(s)
			pages[page.OrderID] = true
		}
		r.Caller = other
		page := must.Get(s.at(0).Fiat(s.ctx, r, nil))(s)
		if pages[page.OrderID] || len(pages) != 1 || s.orders(limited) != 2 {
			s.Fatalf("%d pages of one account, %d places are taken", len(pages), s.orders(limited))
		}
		r.Caller, pages[page.OrderID] = holder, true
		for id := range pages {
			must.Do(s, s.rail.Expire(id))
		}
		s.settleDown(0)
		page = must.Get(s.at(0).Fiat(s.ctx, r, nil))(s) // the pages have ended, and their places are free again
		if pages[page.OrderID] || s.orders(limited) != 1 {
			s.Fatalf("%+v, %d places are taken", page, s.orders(limited))
		}
		must.Do(s, s.rail.Complete(page.OrderID))
		s.settleDown(0)

		// A trial has one page: who comes back gets it again.
		once := s.plan(both(fiat, trial))
		r.Plan = once
		first := must.Get(s.at(0).Fiat(s.ctx, r, nil))(s)
		again := must.Get(s.at(1).Fiat(s.ctx, r, nil))(s)
		if again.OrderID != first.OrderID || again.Result != first.Result {
			s.Fatalf("%+v", again)
		}
		// A request does not wait for a person.
		s.card("pm_1", nil)
		d := s.delegate(input(func(in *toll.DelegationInput) {
			in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("usd"), ptr("pm_1")
		})).DelegationID
		_, err = s.at(0).TopUp(s.ctx, &checkout.TopUp{
			Plan: once, Subscriber: holder, Permission: s.permission(once, d, nil).Hash, DelegationID: d, Needed: 1, Wait: soon,
		})
		s.code(err, toll.CodeTrialUsed)
		must.Do(s, s.rail.Complete(first.OrderID))
		s.settleDown(1)
		_, err = s.at(0).Fiat(s.ctx, r, nil)
		s.code(err, toll.CodeTrialUsed)

		r.Session.SuccessURL, r.Session.CancelURL = "javascript:1", "/x"
		_, err = s.at(0).Fiat(s.ctx, r, nil)
		s.code(err, toll.CodeBadRequest)
		if faults := toll.AsError(err).Params["errors"].([]toll.Fault); len(faults) != 2 {
			s.Fatalf("%+v", faults)
		}
	})
}

// Orders whose rail was taken away do not stand before others, and go on when it is back.
func TestOrderWithoutItsRail(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Hang: true})
		l := s.ledgers[len(s.ledgers)-1]
		going := s.start(s.store, l)
		must.Get(going.Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: 20 * time.Millisecond}, nil))(s)
		s.close(going)
		s.rail.Behave(railtest.Behaviour{})
		s.now.Add(time.Minute.Microseconds())
		bare := s.open(checkout.Deps{Store: s.store, Ledger: l, Clock: s.clock})
		for range 2 {
			n := must.Get(s.queues[bare].RunDue(s.ctx))(s)
			if due, err := store.DueJobs(s.ctx, s.store, s.clock()); err != nil || len(due) != 0 || n > 1 {
				s.Fatal(n, due, err)
			}
		}
		s.close(bare)
		s.settleDown(0)
		s.charges(1)
	})
}

// Who waits for an order does not keep a service from ending.
func TestStopWaiting(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Hang: true})
		ending := s.start(s.store, s.ledgers[len(s.ledgers)-1])
		time.AfterFunc(20*time.Millisecond, ending.StopWaiting)
		began := time.Now()
		o := must.Get(ending.Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: time.Hour}, nil))(s)
		if o.HTTPStatus != 202 || time.Since(began) > soon {
			s.Fatalf("%+v", o)
		}
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
		s.charges(1)
	})
}

// Nothing that is under way keeps a service from stopping, and the next start goes on.
func TestOrderOverRestart(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		l := s.ledgers[len(s.ledgers)-1]
		stopping := s.start(s.store, l)
		s.rail.Behave(railtest.Behaviour{Hang: true})
		o := must.Get(stopping.Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: 20 * time.Millisecond}, nil))(s)
		s.close(stopping)
		s.rail.Behave(railtest.Behaviour{Steps: 2})
		s.settleDown(0)
		if s.state(o.OrderID).Status != toll.OrderConfirmed || s.account(p, holder).Balance != 100 {
			s.Fatalf("%+v", s.state(o.OrderID))
		}
		s.charges(1)
	})
}

func (s *shop) permission(p *toll.Plan, delegation string, f func(p *ledger.Permission)) ledger.Permission {
	s.Helper()
	perm := ledger.Permission{
		Hash: toll.NewHash(), Plan: p.ID, Subscriber: holder, Scheme: "x", Network: "y", DelegationID: delegation,
		CreatedAt: s.clock(), ExpiresAt: s.clock().Add(24 * time.Hour),
	}
	if f != nil {
		f(&perm)
	}
	must.Do(s, s.ledgers[0].CreatePermission(s.ctx, perm))
	return perm
}

// TestRendered_FailureCode: each stored failure has one documented cause.
func TestRendered_FailureCode(t *testing.T) {
	const class, before = `{"class":"%s"}`, `{"reason":"invalid_exact_evm_payload_authorization_valid_before"}`
	of := func(code toll.Code, params string) *store.Order {
		return &store.Order{Status: toll.OrderFailed, FailureCode: code, FailureParams: params}
	}
	for what, c := range map[string]struct {
		order *store.Order
		want  toll.OrderFailure
	}{
		"confirmed":           {&store.Order{Status: toll.OrderConfirmed}, ""},
		"no code":             {of("", ""), toll.FailureFunds},
		"balance":             {of(toll.CodeChainBalance, ""), toll.FailureFunds},
		"card without money":  {of(toll.CodeCardDeclined, fmt.Sprintf(class, "insufficient_funds")), toll.FailureFunds},
		"lost card":           {of(toll.CodeCardDeclined, fmt.Sprintf(class, "card_lost")), toll.FailureDeclined},
		"removed card":        {of(toll.CodePaymentMethodUnusable, ""), toll.FailureDeclined},
		"confirmation":        {of(toll.CodeCardAuthentication, ""), toll.FailureAuthentication},
		"expired page":        {of(toll.CodeCheckoutFailed, fmt.Sprintf(class, "page_expired")), toll.FailureExpired},
		"expired signature":   {of(toll.CodePaymentRequired, before), toll.FailureExpired},
		"unreadable params":   {of(toll.CodeCheckoutFailed, "{"), toll.FailureOther},
		"reversed by a reorg": {of(toll.CodeChainFailed, ""), toll.FailureOther},
	} {
		if got := checkout.Rendered(c.order).FailureCode; got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
