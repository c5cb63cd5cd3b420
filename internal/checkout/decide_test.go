package checkout_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

const gone = "the operation cannot be made any more"

// undo is what the chain says after a reorganisation that made the payment of an order impossible.
func (s *shop) undo(i int, id string) {
	s.Helper()
	s.rail.Undo(id, toll.CodeChainFailed, gone)
	must.Do(s, s.decides(s.at(i), id, undone))
}

// undone is what the chain says of a payment that became impossible.
var undone = rail.Outcome{Status: toll.OrderFailed, FailureCode: toll.CodeChainFailed, FailureReason: gone}

// decides has a rail decide an order in a transaction of its own.
func (s *shop) decides(room *checkout.Checkout, id string, out rail.Outcome) error {
	s.Helper()
	o := must.Get(store.OrderByID(s.ctx, s.store, id))(s)
	return room.Decisions.Change(s.ctx, o.Account, func(t *rail.Tx) error { return t.Decide(id, out) })
}

// redone is what it says of one that was made after all.
var redone = rail.Outcome{Status: toll.OrderConfirmed, TxHash: toll.Hash{9}.String()}

func (s *shop) redo(i int, id string) {
	s.Helper()
	s.rail.Redo(id)
	must.Do(s, s.decides(s.at(i), id, redone))
}

func (s *shop) hold(p *toll.Plan, perm ledger.Permission, n toll.Credits, life time.Duration) string {
	s.Helper()
	none := ""
	h := must.Get(s.ledgers[0].Hold(s.ctx, ledger.HoldOp{
		Plan: p.ID, Subscriber: perm.Subscriber, Permission: perm.Hash, Amount: n, Until: s.clock().Add(life), OrderTx: &none,
	}))(s)
	return h.RequestID
}

func (s *shop) settle(p *toll.Plan, perm ledger.Permission, id string, n toll.Credits) {
	s.Helper()
	none := ""
	must.Get(s.ledgers[0].Settle(s.ctx, ledger.SettleOp{
		Plan: p.ID, Subscriber: perm.Subscriber, Permission: perm.Hash, RequestID: id, Amount: n, OrderTx: &none,
		Render: func(ledger.Receipt) []byte { return nil },
	}))(s)
}

// events lists the types of the events of an order, for its subscriber.
func (s *shop) events(id string) (types []toll.EventType) {
	s.Helper()
	rows, err := s.store.Query(s.ctx, "SELECT type FROM events WHERE principal = $1 AND object_id = $2 ORDER BY seq", holder.Lower(), id)
	must.Do(s, err)
	defer rows.Close()
	for rows.Next() {
		var t string
		must.Do(s, rows.Scan(&t))
		types = append(types, toll.EventType(t))
	}
	must.Do(s, rows.Err())
	return types
}

// T53
func TestTakeBackAfterSpending(t *testing.T) {
	eachRail(t, func(s *shop) {
		for _, settles := range []bool{true, false} {
			p := s.plan(usdc(100))
			perm := s.permission(p, "", nil)
			o := must.Get(s.order(0, holder, p))(s)
			s.settle(p, perm, "", 70)
			held := s.hold(p, perm, 20, time.Hour)
			s.undo(1, o.OrderID)
			now := s.state(o.OrderID)
			if a := s.account(p, holder); now.Status != toll.OrderFailed || now.TakenBack != 10 || now.Loss != 70 || now.HeldBack != 20 ||
				a.Balance != 20 || a.Held != 20 || a.TakenBack != 10 {
				s.Fatalf("%+v %+v", now, a)
			}
			s.audit()
			s.undo(0, o.OrderID) // told again
			s.later(0)
			if now := s.state(o.OrderID); now.HeldBack != 20 || now.Loss != 70 {
				s.Fatalf("%+v", now)
			}
			taken, loss := toll.Credits(10), toll.Credits(90)
			if settles {
				s.settle(p, perm, held, 20)
			} else {
				taken, loss = 30, 70
				must.Get(s.ledgers[0].Release(s.ctx, perm.Account(), held))(s)
			}
			s.later(1)
			now = s.state(o.OrderID)
			if a := s.account(p, holder); now.TakenBack != taken || now.Loss != loss || now.HeldBack != 0 || a.Balance != 0 || a.Held != 0 || a.TakenBack != taken {
				s.Fatalf("settles=%v: %+v %+v", settles, now, a)
			}
			s.charges(0)
			s.audit()
		}
	})
}

// A hold that lapses gives its credits to the take back, without anybody who touches the account.
// T53
func TestHoldLapses(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		perm := s.permission(p, "", nil)
		o := must.Get(s.order(0, holder, p))(s)
		s.hold(p, perm, 100, time.Hour)
		s.undo(0, o.OrderID)
		if now := s.state(o.OrderID); now.HeldBack != 100 || now.TakenBack != 0 {
			s.Fatalf("%+v", now)
		}
		s.now.Add(time.Hour.Microseconds())
		s.jobs(0)
		if now := s.state(o.OrderID); now.HeldBack != 0 || now.TakenBack != 100 || now.Loss != 0 {
			s.Fatalf("%+v", now)
		}
	})
}

// The half of T56 that is checkout's: what the chain decides otherwise, with a delegation, a permission and a place that count.
// T56
func TestOrderUndoneAndRedone(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten, func(p *toll.Plan) { p.MaxOrders = 1 }))
		d := s.delegation(100)
		one := int64(1)
		perm := s.permission(p, d, func(p *ledger.Permission) { p.OrderLimit = &one })
		must.Get(s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 4))(s)
		id := s.rail.Purchases()[0].OrderID
		counted := func(orders, permission int64, left toll.Cents) {
			s.Helper()
			got := must.Get(s.ledgers[0].PermissionByHash(s.ctx, perm.Hash))(s)
			if n := s.orders(p); n != orders || got.Orders != permission || s.remaining(d) != left {
				s.Fatalf("%d orders, %d of the permission, %d cents left", n, got.Orders, s.remaining(d))
			}
			s.audit()
		}
		counted(1, 1, 0)
		for range 2 {
			s.undo(1, id)
			if a := s.account(p, holder); a.Balance != 4 || a.Held != 4 || s.state(id).HeldBack != 4 {
				s.Fatalf("%+v", a)
			}
			counted(0, 0, 100)
			s.redo(0, id)
			if a := s.account(p, holder); a.Balance != 10 || a.Held != 4 || s.state(id).Reversed || s.state(id).TxHash != redone.TxHash {
				s.Fatalf("%+v %+v", a, s.state(id))
			}
			counted(1, 1, 0)
		}
		list := must.Get(s.at(0).Delegations.Transactions(s.ctx, holder, d, store.Page{}))(s)
		if list.Total != 1 || list.Items[0].Status != toll.TransactionSucceeded {
			s.Fatalf("%+v", list.Items)
		}
		want := fmt.Sprint([]toll.EventType{
			toll.EventOrderCreated, toll.EventOrderPaid, toll.EventOrderFailed, toll.EventOrderPaid, toll.EventOrderFailed, toll.EventOrderPaid,
		})
		if got := fmt.Sprint(s.events(id)); got != want {
			s.Fatalf("events %s", got)
		}

		// Beyond any reorganisation nothing is taken back.
		s.rail.Finalize(id)
		for i := range 2 {
			must.Do(s, s.decides(s.at(i), id, rail.Outcome{Status: toll.OrderFinal}))
		}
		must.Do(s, s.decides(s.at(0), id, undone))
		if o := s.state(id); o.Status != toll.OrderFinal || s.account(p, holder).Balance != 10 {
			s.Fatalf("%+v", o)
		}
		counted(1, 1, 0)
		s.charges(1)
	})
}

// An order that failed while it was open is paid after all: it counts again wherever it had counted.
// T56
func TestFailedOrderIsPaid(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(100)
		perm := s.permission(p, d, nil)
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainFailed, Reason: "void"})
		_, err := s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 1)
		s.code(err, toll.CodeTopUpRefused)
		id := s.rail.Purchases()[0].OrderID
		s.rail.Behave(railtest.Behaviour{})
		// The place of the money is taken by another order meanwhile.
		q := s.plan(usdc(100))
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: q, DelegationID: d, Wait: soon}, nil))(s)
		for i := range 2 {
			s.redo(i, id)
		}
		got := must.Get(s.ledgers[0].PermissionByHash(s.ctx, perm.Hash))(s)
		r := must.Get(s.at(0).Delegations.Read(s.ctx, holder, d))(s)
		if a := s.account(p, holder); a.Balance != 10 || got.Orders != 1 || r.AmountSpentCents != 100 || r.TransactionCount != 2 {
			s.Fatalf("%+v, %d orders, %+v", a, got.Orders, r)
		}
		s.audit()
		s.undo(1, id)
		if r, err = s.at(0).Delegations.Read(s.ctx, holder, d); err != nil || r.AmountSpentCents != 100 || r.TransactionCount != 1 {
			s.Fatalf("%+v %v", r, err)
		}
	})
}

// A trial that was not paid after all can be bought again.
func TestUndoneTrial(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), trial))
		o, err := s.order(0, holder, p)
		must.Do(s, err)
		_, err = s.order(1, holder, p)
		s.code(err, toll.CodeTrialUsed)
		s.undo(1, o.OrderID)
		must.Get(s.order(0, holder, p))(s)
		_, err = s.order(1, holder, p)
		s.code(err, toll.CodeTrialUsed)
		if a := s.account(p, holder); a.Orders != 1 || a.Balance != 100 {
			s.Fatalf("%+v", a)
		}
	})
}

// A rail that cannot write its own row decides nothing, and an order that is not there is not decided.
func TestDecideWithRowOfRail(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		o := must.Get(s.order(0, holder, p))(s)
		row, stale := s.state(o.OrderID), errors.New("the row of the rail was changed")
		err := s.at(1).Decisions.Change(s.ctx, row.Account, func(t *rail.Tx) error {
			if err := t.Decide(row.ID, undone); err != nil {
				return err
			}
			return stale
		})
		if a := s.account(p, holder); !errors.Is(err, stale) || a.Balance != 100 || s.state(row.ID).Status != toll.OrderConfirmed {
			s.Fatalf("%v: %+v", err, a)
		}
		s.code(s.at(1).Decisions.Change(s.ctx, row.Account, func(t *rail.Tx) error { return t.Decide(toll.NewUUID(), undone) }), toll.CodeOrderNotFound)
		s.audit()
	})
}

// The rail decides an order that nobody waits for any more, before its own answer, and straight to the end.
func TestDecideOpenOrders(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Behave(railtest.Behaviour{Steps: 1 << 20})
		open := func(p *toll.Plan) string {
			s.Helper()
			o := s.begin(p, "")
			if o.HTTPStatus != 202 || o.TxHash == "" || o.Status != toll.OrderSent {
				s.Fatalf("%+v", o)
			}
			return o.OrderID
		}
		p, q := s.plan(usdc(100)), s.plan(usdc(100))
		id := open(p)
		must.Do(s, s.rail.Complete(id))
		s.rail.Finalize(id)
		must.Do(s, s.decides(s.at(1), id, rail.Outcome{Status: toll.OrderFinal}))
		if a := s.account(p, holder); a.Balance != 100 || s.state(id).Status != toll.OrderFinal {
			s.Fatalf("%+v", a)
		}
		id = open(q)
		s.rail.Undo(id, toll.CodeChainBalance, "10 are needed")
		params := map[string]any{"needed": "10", "available": "3"}
		must.Do(s, s.decides(s.at(1), id, rail.Outcome{
			Status: toll.OrderFailed, FailureCode: toll.CodeChainBalance, FailureReason: "10 are needed", Params: params, TxHash: toll.Hash{3}.String(),
		}))
		_, err := s.at(0).ReplayOrder(s.ctx, holder, id, soon)
		s.code(err, toll.CodeChainBalance)
		if e := toll.AsError(err); e.Params["needed"] != "10" || e.Details != "10 are needed" || e.HTTPStatus() != 402 {
			s.Fatalf("%+v", e)
		}
		if o := s.state(id); o.Open || o.TxHash != (toll.Hash{3}).String() || s.orders(q) != 0 {
			s.Fatalf("%+v", o)
		}
		s.rail.Behave(railtest.Behaviour{})
	})
}

// A process dies at each step of a decision; it is decided again, elsewhere.
func TestDecideKilledAtEachStep(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.delegation(100_000)
		orderOf := func() (*toll.Plan, ledger.Permission, string) {
			p := s.plan(both(usdc(100), ten))
			perm := s.permission(p, d, nil)
			must.Get(s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 4))(s)
			o := must.Get(store.OrderByID(s.ctx, s.store, s.last(perm.Account())))(s)
			return p, perm, o.ID
		}
		for _, c := range []struct {
			step    string
			undo    bool
			balance toll.Credits // what half is written
		}{
			{"taking back", true, 10}, {"decided", true, 4}, {"confirming", false, 4}, {"decided", false, 10},
		} {
			p, perm, id := orderOf()
			if !c.undo {
				s.undo(0, id)
			}
			dying := s.start(s.store, s.ledgers[len(s.ledgers)-1])
			dying.Failpoint(func(at string) {
				if at == c.step {
					panic("killed")
				}
			})
			tell := func(room *checkout.Checkout) error {
				if c.undo {
					s.rail.Undo(id, toll.CodeChainFailed, gone)
					return s.decides(room, id, undone)
				}
				s.rail.Redo(id)
				return s.decides(room, id, redone)
			}
			func() {
				defer func() {
					if recover() == nil {
						s.Fatalf("%s was not reached", c.step)
					}
				}()
				if must.Do(s, tell(dying)); c.step == "decided" {
					panic("killed")
				}
			}()
			if a := s.account(p, holder); a.Balance != c.balance {
				s.Fatalf("killed at %s: %+v", c.step, a)
			}
			s.audit()
			for i := range 2 {
				must.Do(s, tell(s.at(i)))
			}
			s.audit()
			got := must.Get(s.ledgers[0].PermissionByHash(s.ctx, perm.Hash))(s)
			want, orders := toll.Credits(10), int64(1)
			if c.undo {
				want, orders = 4, 0
			}
			if a := s.account(p, holder); a.Balance != want || got.Orders != orders || s.orders(p) != orders {
				s.Fatalf("%s: %+v, %d orders", c.step, a, got.Orders)
			}
		}
	})
}

// Many processes decide the same at once: it is decided once.
func TestDecideAtOnce(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		d := s.delegation(1000)
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil))(s)
		for round := range 6 {
			if round%2 == 0 {
				s.rail.Undo(o.OrderID, toll.CodeChainFailed, gone)
			} else {
				s.rail.Redo(o.OrderID)
			}
			atOnce(16, func(i int) {
				out := redone
				if round%2 == 0 {
					out = undone
				}
				must.Check(s, s.decides(s.at(i), o.OrderID, out))
			})
			want := toll.Credits(100 * (round % 2))
			if a := s.account(p, holder); a.Balance != want {
				s.Fatalf("round %d: %+v", round, a)
			}
			s.audit()
		}
	})
}

// What is lost is an alarm: the log says so as an error, with the sums.
func TestTakeBackIsLogged(t *testing.T) {
	eachRail(t, func(s *shop) {
		var mu sync.Mutex
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(lockedWriter{&mu, &text}, &slog.HandlerOptions{Level: slog.LevelError}))
		room := s.open(checkout.Deps{Store: s.store, Ledger: s.ledgers[0], Clock: s.clock, Log: log, Rails: rail.Rails{rail.Crypto: s.rail}})
		p := s.plan(usdc(100))
		perm := s.permission(p, "", nil)
		o := must.Get(s.order(0, holder, p))(s)
		s.settle(p, perm, "", 70)
		s.rail.Undo(o.OrderID, toll.CodeChainFailed, gone)
		must.Do(s, s.decides(room, o.OrderID, undone))
		s.close(room)
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{o.OrderID, "level=ERROR", "taken_back=30", "loss=70"} {
			if !strings.Contains(text.String(), want) {
				s.Errorf("the log lacks %s: %s", want, text.String())
			}
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// last returns the id of the only order of an account.
func (s *shop) last(account ledger.AccountID) (id string) {
	s.Helper()
	must.Do(s, s.store.QueryRow(s.ctx, "SELECT order_id FROM orders WHERE account_id = $1", account[:]).Scan(&id))
	return id
}

// An order that failed because the service did wrong, and sent nothing, is its fault; one that the chain refused is not.
func TestFailureOfOperation(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainFailed, Reason: "AA24 signature error"})
		_, err := s.order(0, holder, p)
		s.code(err, toll.CodeChainFailed)
		if e := toll.AsError(err); e.HTTPStatus() != 500 || e.Details != "AA24 signature error" {
			s.Fatalf("%+v", e)
		}
		s.rail.Behave(railtest.Behaviour{Steps: 1 << 20})
		o := s.begin(p, "")
		s.rail.Undo(o.OrderID, toll.CodeChainFailed, gone)
		sent := undone
		sent.TxHash = o.TxHash
		must.Do(s, s.decides(s.at(0), o.OrderID, sent))
		_, err = s.at(0).ReplayOrder(s.ctx, holder, o.OrderID, soon)
		if e := toll.AsError(err); !errors.Is(err, toll.NewError(toll.CodeChainFailed)) || e.HTTPStatus() != 502 {
			s.Fatalf("%+v", e)
		}
	})
}
