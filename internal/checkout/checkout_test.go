package checkout_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	owner  = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	holder = toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	other  = toll.MustAddress("0x90F79bf6EB2c4f870365E785982E1f101E93b906")
	start  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// shop is a checkout, or two of different processes on one database.
type shop struct {
	*testing.T
	ctx     context.Context
	store   *store.Store
	ledgers []*ledger.Ledger
	rooms   []*checkout.Checkout
	queues  map[*checkout.Checkout]*jobs.Queue
	rail    *railtest.Rail // nil: there is none
	now     atomic.Int64   // microseconds

	prepared func(p *rail.Purchase) // happens before Prepare; nil for nothing
}

// refusing undoes what creates.
func refusing(err error) *store.Once {
	return &store.Once{Scope: toll.NewHash(), Seal: func(any) ([]byte, error) { return nil, err }}
}

func (s *shop) clock() time.Time { return time.UnixMicro(s.now.Load()).UTC() }

func (s *shop) at(i int) *checkout.Checkout { return s.rooms[i%len(s.rooms)] }

func each(t *testing.T, f func(s *shop)) {
	t.Helper()
	eachWith(t, func() *railtest.Rail { return nil }, f)
}

// eachRail is each with a rail, the same for both processes and all plans.
func eachRail(t *testing.T, f func(s *shop)) {
	t.Helper()
	eachWith(t, railtest.New, f)
}

func eachWith(t *testing.T, rail func() *railtest.Rail, f func(s *shop)) {
	t.Helper()
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) { f(newShop(t, v, rail(), storetest.Config(t, v))) })
	}
}

func newShop(t *testing.T, v storetest.Variant, rail *railtest.Rail, cfg store.Config) *shop {
	s := &shop{T: t, ctx: context.Background(), rail: rail, queues: map[*checkout.Checkout]*jobs.Queue{}}
	s.now.Store(start.UnixMicro())
	processes := 2
	if v == storetest.SQLite {
		processes = 1
	}
	for range processes {
		s.store = storetest.OpenConfig(t, cfg)
		l := ledger.New(s.store, ledger.Config{Clock: s.clock, MACKey: []byte("0123456789abcdef0123456789abcdef")})
		s.ledgers = append(s.ledgers, l)
		t.Cleanup(func() {
			found, err := l.Audit(context.Background())
			if err := errors.Join(err, l.Close(context.Background())); err != nil || len(found) > 0 {
				t.Error(err, found)
			}
		})
		s.rooms = append(s.rooms, s.start(s.store, l))
	}
	t.Cleanup(s.audit)
	return s
}

// start makes a checkout, as a process that starts would.
func (s *shop) start(st *store.Store, l *ledger.Ledger) *checkout.Checkout {
	d := checkout.Deps{
		Store: st, Ledger: l, Clock: s.clock, Queue: jobs.NewQueue(st, s.clock, nil),
		SignReference: func(use string, owner toll.Address, id string, _ time.Time) (string, error) {
			return use + "." + owner.Lower() + "." + id, nil
		},
		OpenReference: func(use, text string) (toll.Address, string, error) {
			parts := strings.Split(text, ".")
			switch parts[0] {
			case use:
			case "not":
				return toll.Address{}, "", toll.NewError(toll.CodeDatabaseUnavailable)
			default:
				return toll.Address{}, "", errors.New("another use")
			}
			owner, err := toll.ParseAddress(parts[1])
			return owner, parts[2], err
		},
	}
	if s.rail != nil {
		o := &outside{Rail: s.rail, s: s}
		d.Rails = rail.Rails{rail.Crypto: o, rail.Card: o}
		s.rail.Keep(st)
		d.Queue.Handle(store.JobCardRefund, s.rail.SendRefund)
	}
	return s.open(d)
}

// open makes a checkout that is closed at the end of the test.
func (s *shop) open(d checkout.Deps) *checkout.Checkout {
	if d.Queue == nil {
		d.Queue = jobs.NewQueue(d.Store, s.clock, nil)
	}
	c := checkout.New(d)
	s.queues[c] = d.Queue
	s.Cleanup(func() { s.close(c) })
	return c
}

// close ends the process of a checkout.
func (s *shop) close(c *checkout.Checkout) {
	s.Helper()
	c.StopWaiting()
	must.Do(s, s.queues[c].Close(context.Background()))
}

// audit proves that money and credits agree.
func (s *shop) audit() {
	s.Helper()
	ctx := context.Background()
	found, err := store.AuditOrders(ctx, s.store)
	for more := true; more && err == nil; {
		more, err = s.ledgers[0].CountUsage(ctx)
	}
	usage, usageErr := store.AuditUsage(ctx, s.store)
	found, err = append(found, usage...), errors.Join(err, usageErr)
	if s.rail != nil {
		found = append(found, s.rail.Faults()...)
	}
	if err != nil || len(found) > 0 {
		s.Error(err, found)
	}
}

func (s *shop) code(err error, want toll.Code) {
	s.Helper()
	if err == nil || toll.AsError(err).Code != want { // what callers see, and not its cause
		s.Fatalf("got the error %v, want %s", err, want)
	}
}

// plan registers a free plan of 100 credits, as f changes it.
func (s *shop) plan(f func(p *toll.Plan)) *toll.Plan {
	s.Helper()
	p := &toll.Plan{
		ID: toll.NewPlanID(), Owner: owner, Metadata: toll.Metadata{Name: "Basic"}, Price: toll.Price{IsCrypto: true},
		Credits:     toll.CreditsConfig{RedemptionType: 4, Amount: 100, MinAmount: 1, MaxAmount: 1},
		AccessLimit: toll.LimitCredits, IsListed: true, CreatedAt: s.clock(), UpdatedAt: s.clock(),
	}
	if f != nil {
		f(p)
	}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertPlan(s.ctx, tx, p, "", nil) }))
	return p
}

func (s *shop) account(p *toll.Plan, holder toll.Address) ledger.Account {
	s.Helper()
	return must.Get(s.ledgers[0].Account(s.ctx, ledger.NewAccountID(p.ID, holder)))(s)
}

func (s *shop) orders(p *toll.Plan) int64 {
	s.Helper()
	return must.Get(store.OrdersOfPlan(s.ctx, s.store, p.ID))(s)
}

func TestOrderOfFreePlan(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(func(p *toll.Plan) { p.Credits.DurationSecs = toll.UnitsOf(3600) })
		o, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p}, nil)
		must.Do(s, err)
		end := start.Add(time.Hour)
		if !o.Success || o.Status != toll.OrderConfirmed || o.CreditsGranted != 100 || !o.Amount.IsZero() || o.PlanID != p.ID ||
			o.Balance.Balance != 100 || !o.Balance.IsSubscriber || !o.Balance.ExpiresAt.Equal(end) || o.HTTPStatus != 200 {
			t.Fatalf("%+v", o)
		}
		if _, err := toll.ParseHash(o.TxHash); err != nil || o.TxHash != s.account(p, holder).Commitment.String() {
			t.Fatalf("the transaction %s is not the entry", o.TxHash)
		}
		// Ordering again by asking buys again.
		must.Get(s.at(1).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p}, nil))(s)
		if a := s.account(p, holder); a.Orders != 2 || a.Balance != 200 || s.orders(p) != 2 {
			t.Fatalf("%+v", a)
		}
		for _, caller := range []toll.Address{holder, owner} {
			again := must.Get(s.at(1).OrderByID(s.ctx, caller, o.OrderID))(s)
			if again.TxHash != o.TxHash || again.CreditsGranted != 100 || again.Balance.Balance != 200 {
				t.Fatalf("%+v", again)
			}
		}
		_, err = s.at(0).OrderByID(s.ctx, other, o.OrderID)
		s.code(err, toll.CodeOrderNotFound)
		_, err = s.at(0).OrderByID(s.ctx, holder, toll.NewUUID())
		s.code(err, toll.CodeOrderNotFound)
		_, err = s.at(0).OrderByID(s.ctx, holder, "x")
		s.code(err, toll.CodeBadUUID)
	})
}

func TestOrderRefusals(t *testing.T) {
	each(t, func(s *shop) {
		for code, f := range map[toll.Code]func(p *toll.Plan){
			toll.CodeChainUnreachable:      func(p *toll.Plan) { p.Price.Amounts = []toll.Units{toll.UnitsOf(1)} },
			toll.CodeFiatPlanOnCryptoRoute: func(p *toll.Plan) { p.Price.IsCrypto, p.Price.Amounts = false, []toll.Units{toll.UnitsOf(1_000_000)} },
			toll.CodePlanUnlisted:          func(p *toll.Plan) { p.IsListed = false },
		} {
			p := s.plan(f)
			_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p}, nil)
			s.code(err, code)
			if a := s.account(p, holder); a.Seq != 0 || s.orders(p) != 0 {
				t.Fatalf("%s left %+v", code, a)
			}
		}
		fiat := s.plan(func(p *toll.Plan) { p.Price.IsCrypto, p.Price.Amounts = false, []toll.Units{toll.UnitsOf(1_000_000)} })
		_, err := s.at(0).Fiat(s.ctx, checkout.FiatRequest{Caller: holder, Plan: fiat}, nil)
		s.code(err, toll.CodeCardOff)
		_, err = s.at(0).Fiat(s.ctx, checkout.FiatRequest{Caller: holder, Plan: s.plan(func(p *toll.Plan) { p.Price.Amounts = []toll.Units{toll.UnitsOf(1)} })}, nil)
		s.code(err, toll.CodeCheckoutWrongPlan)

		// The caller read the plan before it was unlisted.
		stale := s.plan(nil)
		now := *stale
		now.IsListed = false
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, &now) }))
		_, err = s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: stale}, nil)
		s.code(err, toll.CodePlanUnlisted)
		s.code(s.at(0).EnsureFree(s.ctx, stale, holder), toll.CodePlanUnlisted)
		if a := s.account(stale, holder); a.Seq != 0 || s.orders(stale) != 0 {
			t.Fatalf("a refused order left %+v", a)
		}

		full := s.plan(func(p *toll.Plan) { p.Credits.Amount = toll.MaxCredits })
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: full}, nil))(s)
		_, err = s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: full}, nil)
		s.code(err, toll.CodeCreditsOverflow)
		if s.orders(full) != 1 {
			t.Fatal("a refused order was counted")
		}
	})
}

func TestTrialOnce(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(func(p *toll.Plan) { p.IsTrial = true })
		var made atomic.Int64
		atOnce(16, func(i int) {
			_, err := s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p}, nil)
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, toll.NewError(toll.CodeTrialUsed)) {
				s.Error(err)
			}
		})
		if a := s.account(p, holder); made.Load() != 1 || a.Balance != 100 || s.orders(p) != 1 {
			t.Fatalf("%d made, %+v", made.Load(), a)
		}
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: other, Plan: p}, nil))(s)
	})
}

func TestMaxOrders(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(func(p *toll.Plan) { p.MaxOrders = 5 })
		holders := make([]toll.Address, 20)
		for i := range holders {
			holders[i] = toll.Address{19: byte(i + 1)}
		}
		var made atomic.Int64
		atOnce(len(holders), func(i int) {
			_, err := s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holders[i], Plan: p}, nil)
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, toll.NewError(toll.CodePlanSoldOut)) {
				s.Error(err)
			}
		})
		if made.Load() != 5 || s.orders(p) != 5 {
			t.Fatalf("%d made, %d counted", made.Load(), s.orders(p))
		}
		credits := toll.Credits(0)
		for _, h := range holders {
			credits += s.account(p, h).Balance
		}
		if credits != 500 {
			t.Fatalf("%d credits", credits)
		}
		s.code(s.at(0).EnsureFree(s.ctx, p, other), toll.CodePlanSoldOut)
	})
}

func TestEnsureFreeOnce(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(nil)
		atOnce(32, func(i int) {
			must.Check(s, s.at(i).EnsureFree(s.ctx, p, holder))
		})
		if a := s.account(p, holder); a.Orders != 1 || a.Balance != 100 || s.orders(p) != 1 {
			t.Fatalf("%+v", a)
		}
		priced := s.plan(func(p *toll.Plan) { p.Price.Amounts = []toll.Units{toll.UnitsOf(1)} })
		if err := s.at(0).EnsureFree(s.ctx, priced, holder); err == nil {
			t.Fatal("a priced plan was ordered for free")
		}
	})
}

// T42
func TestMintByOwner(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(nil)
		r, err := s.at(0).Mint(s.ctx, owner, p.ID, holder, 7, toll.Units{}, nil)
		must.Do(s, err)
		if !r.Success || r.TxHash.IsZero() || r.Data["balance"] != toll.Credits(7) {
			t.Fatalf("%+v", r)
		}
		must.Get(s.at(1).Mint(s.ctx, owner, p.ID, holder, 5, toll.UnitsOf(60), nil))(s)
		b := must.Get(s.at(0).Balance(s.ctx, p, holder, true))(s)
		if b.Balance != 12 || b.Total != 12 || len(b.Lots) != 2 || b.Lots[0].Remaining != 5 || b.Lots[1].ExpiresAt != nil || b.ExpiresAt != nil {
			t.Fatalf("%+v", b)
		}
		s.now.Add(time.Minute.Microseconds())
		b = must.Get(s.at(1).Balance(s.ctx, p, holder, true))(s)
		if b.Balance != 7 || b.Available != 7 || len(b.Lots) != 1 || !b.IsSubscriber {
			t.Fatalf("%+v", b)
		}
		_, err = s.at(0).Mint(s.ctx, owner, p.ID, holder, 0, toll.Units{}, nil)
		s.code(err, toll.CodeMintNotPositive)
		_, err = s.at(0).Mint(s.ctx, holder, p.ID, holder, 1, toll.Units{}, nil)
		s.code(err, toll.CodeNotPlanOwner)
		_, err = s.at(0).Mint(s.ctx, owner, toll.NewPlanID(), holder, 1, toll.Units{}, nil)
		s.code(err, toll.CodePlanNotFound)
		_, err = s.at(0).Mint(s.ctx, owner, p.ID, toll.Address{}, 1, toll.Units{}, nil)
		s.code(err, toll.CodeBadAddress)
		must.Get(s.at(0).Mint(s.ctx, owner, p.ID, other, toll.MaxCredits, toll.Units{}, nil))(s)
		_, err = s.at(0).Mint(s.ctx, owner, p.ID, other, 1, toll.Units{}, nil)
		s.code(err, toll.CodeCreditsOverflow)
		if a := s.account(p, other); a.Balance != toll.MaxCredits {
			t.Fatalf("%+v", a)
		}
		none := must.Get(s.at(0).Balance(s.ctx, p, owner, true))(s)
		if none.Balance != 0 || none.IsSubscriber || none.Lots == nil {
			t.Fatalf("%+v", none)
		}
	})
}

// The owner of a plan takes back what a holder has free, once for an Idempotency-Key, with one entry
// in the audit log.
func TestWithdraw(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(nil)
		must.Get(s.at(0).Mint(s.ctx, owner, p.ID, holder, 10, toll.Units{}, nil))(s)
		r := must.Get(s.at(1).Withdraw(s.ctx, owner, p.ID, holder, 4, nil))(s)
		if !r.Success || r.TxHash.IsZero() || r.Data["balance"] != toll.Credits(6) || r.Data["available"] != toll.Credits(6) {
			t.Fatalf("%+v", r)
		}
		for _, bad := range []struct {
			by, of toll.Address
			plan   toll.PlanID
			n      toll.Credits
			want   toll.Code
		}{
			{owner, holder, p.ID, 7, toll.CodeCreditsNotFree},
			{owner, holder, p.ID, toll.MaxCredits, toll.CodeCreditsNotFree},
			{owner, other, p.ID, 1, toll.CodeCreditsNotFree},
			{owner, toll.Address{}, p.ID, 1, toll.CodeCreditsNotFree},
			{owner, holder, p.ID, 0, toll.CodeBadNumber},
			{owner, holder, p.ID, -1, toll.CodeBadNumber},
			{holder, holder, p.ID, 1, toll.CodeNotPlanOwner},
			{owner, holder, toll.NewPlanID(), 1, toll.CodePlanNotFound},
		} {
			_, err := s.at(0).Withdraw(s.ctx, bad.by, bad.plan, bad.of, bad.n, nil)
			s.code(err, bad.want)
		}
		if a := s.account(p, other); a.Seq != 0 || !a.Subscriber.IsZero() {
			t.Fatalf("a refusal made an account: %+v", a)
		}
		// Of many at once exactly as many succeed as there are credits.
		var took atomic.Int64
		atOnce(9, func(i int) {
			if _, err := s.at(i%2).Withdraw(s.ctx, owner, p.ID, holder, 1, nil); err == nil {
				took.Add(1)
			}
		})
		if a := s.account(p, holder); a.Balance != 0 || a.TakenBack != 10 || took.Load() != 6 {
			t.Fatalf("%d took %+v", took.Load(), a)
		}
	})
}

// An order shows what its seller took of it by hand. A workspace is not deleted while paid credits that an earlier build took by
// hand are not refunded.
func TestWithdraw_Shown(t *testing.T) {
	each(t, func(s *shop) {
		p := s.plan(nil) // 100 credits for nothing
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p}, nil))(s)
		for range 2 {
			must.Get(s.at(0).Withdraw(s.ctx, owner, p.ID, holder, 40, nil))(s)
		}
		for _, who := range []toll.Address{owner, holder} {
			if got, err := s.at(1).OrderByID(s.ctx, who, o.OrderID); err != nil || got.TakenByHand != 80 || got.RefundedCredits != 0 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		priced := s.plan(func(p *toll.Plan) {
			p.Price.Amounts, p.Price.Receivers = []toll.Units{toll.UnitsOfCents(100)}, []toll.Address{owner}
		})
		must.Get(s.at(0).Mint(s.ctx, owner, priced.ID, holder, 30, toll.Units{}, nil))(s)
		must.Get(s.at(0).Withdraw(s.ctx, owner, priced.ID, holder, 30, nil))(s)
		must.Do(s, s.at(0).Reports.Owes(s.ctx, owner))
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { // the lot of a paid order, as an earlier build left it
			_, err := tx.Exec(s.ctx, "UPDATE lots SET ref = 'order' WHERE ref LIKE 'mint:%'")
			return err
		}))
		s.code(s.at(0).Reports.Owes(s.ctx, owner), toll.CodeWorkspaceOwes)
	})
}

// atOnce releases n goroutines by one barrier and waits for them.
func atOnce(n int, f func(i int)) {
	gate, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			<-gate
			f(i)
			done <- struct{}{}
		}()
	}
	close(gate)
	for range n {
		<-done
	}
}
