package checkout_test

import (
	"encoding/json"
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

// refund has the owner of the plan refund an order.
func (s *shop) refund(id string, cents *toll.Cents) (*toll.Order, error) {
	return s.at(0).Refund(s.ctx, owner, id, cents, nil, soon)
}

func TestRefund(t *testing.T) {
	eachRail(t, func(s *shop) {
		p, id, _ := s.bought(s.cardDelegation(1000), 20, nil)
		for code, ask := range map[toll.Code]func() error{
			toll.CodeOrderNotFound: func() error { _, err := s.at(0).Refund(s.ctx, other, id, nil, nil, soon); return err },
			toll.CodeNotPlanOwner:  func() error { _, err := s.at(0).Refund(s.ctx, holder, id, nil, nil, soon); return err },
			toll.CodeBadUUID:       func() error { _, err := s.refund("x", nil); return err },
			toll.CodeBadNumber:     func() error { _, err := s.refund(id, ptr(toll.Cents(0))); return err },
			toll.CodeRefundRefused: func() error { _, err := s.refund(id, ptr(toll.Cents(501))); return err },
		} {
			s.code(ask(), code)
		}
		crypto, err := s.order(0, holder, s.plan(usdc(100)))
		must.Do(s, err)
		_, err = s.refund(crypto.OrderID, nil)
		s.code(err, toll.CodeRefundRefused)
		s.money(p, id, 0, 0, 0, 0, 80)

		o := must.Get(s.refund(id, ptr(toll.Cents(250))))(s)
		if o.HTTPStatus != 200 || o.RefundedCents != 250 || o.RefundedCredits != 50 || o.Status != toll.OrderConfirmed {
			s.Fatalf("%+v", o)
		}
		s.money(p, id, 250, 50, 0, 0, 30)
		o = must.Get(s.refund(id, nil))(s) // the rest
		if o.RefundedCents != 500 {
			s.Fatalf("%+v", o)
		}
		s.money(p, id, 500, 80, 20, 0, 0)
		acts := must.Get(store.AuditList(s.ctx, s.store, owner.Lower(), "order.refund_asked", time.Time{}, time.Time{}, store.Page{}))(s)
		if acts.Total != 2 || acts.Items[0].Object != id {
			s.Errorf("what was refunded is noted as %+v", acts.Items)
		}
		_, err = s.refund(id, nil)
		s.code(err, toll.CodeRefundRefused)
	})
}

// While the processor is unreachable a refund is answered with 202. It is made once, although two
// processes repeat the call.
func TestRefund_Pending(t *testing.T) {
	eachRail(t, func(s *shop) {
		p, id, _ := s.bought(s.cardDelegation(1000), 0, nil)
		s.rail.Behave(railtest.Behaviour{Unreachable: toll.CodeCardUnreachable})
		var ref checkout.RefundRef
		once := &store.Once{Scope: toll.NewHash(), At: s.clock(), Seal: func(v any) ([]byte, error) {
			ref = v.(checkout.RefundRef)
			return []byte("x"), nil
		}}
		o, err := s.at(0).Refund(s.ctx, owner, id, ptr(toll.Cents(100)), once, time.Millisecond)
		must.Do(s, err)
		if o.HTTPStatus != 202 || o.RefundedCents != 0 || ref.OrderID != id {
			s.Fatalf("%+v, %+v", o, ref)
		}
		// A pending refund already counts: at most 400 of the 500 cents can still be refunded.
		_, err = s.refund(id, ptr(toll.Cents(401)))
		s.code(err, toll.CodeRefundRefused)
		s.rail.Behave(railtest.Behaviour{})
		s.now.Add(time.Minute.Microseconds())
		for i := range 2 {
			o = must.Get(s.at(i).ReplayRefund(s.ctx, owner, ref, soon))(s)
			if o.HTTPStatus != 200 || o.RefundedCents != 100 {
				s.Fatalf("%+v", o)
			}
		}
		s.money(p, id, 100, 20, 0, 0, 80)
		_, err = s.at(0).ReplayRefund(s.ctx, holder, ref, soon)
		s.code(err, toll.CodeNotPlanOwner)
	})
}

// A refund that the processor refuses takes no credits, and a later one may be made.
func TestRefund_Refused(t *testing.T) {
	eachRail(t, func(s *shop) {
		p, id, _ := s.bought(s.cardDelegation(1000), 0, nil)
		s.rail.Behave(railtest.Behaviour{NoRefund: "the charge is too old"})
		_, err := s.refund(id, nil)
		s.code(err, toll.CodeRefundRefused)
		s.money(p, id, 0, 0, 0, 0, 100)
		s.rail.Behave(railtest.Behaviour{})
		must.Do(s, s.rail.Dispute(id, store.DisputeOpen))
		_, err = s.refund(id, nil)
		s.code(err, toll.CodeRefundRefused)
		must.Do(s, s.rail.Dispute(id, store.DisputeWon))
		must.Get(s.refund(id, nil))(s)
		must.Do(s, s.rail.FailRefunds(id)) // it fails later
		s.money(p, id, 0, 0, 0, 0, 100)
	})
}

// An order whose payment is not decided, and one that failed, have no money to give back.
func TestRefund_Unpaid(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Behave(railtest.Behaviour{Person: true})
		page := must.Get(s.at(0).Fiat(s.ctx, checkout.FiatRequest{Caller: holder, Plan: s.plan(fiat), Wait: soon}, nil))(s)
		refused := func(want string) {
			s.Helper()
			_, err := s.refund(page.OrderID, nil)
			s.code(err, toll.CodeRefundRefused)
			if got := toll.AsError(err).Text(); got != want {
				s.Errorf("%q, want %q", got, want)
			}
		}
		refused("The order is not paid yet, so it cannot be refunded.")
		must.Do(s, s.rail.Expire(page.OrderID))
		refused("The order failed, so there is nothing to refund.")
		if o := s.state(page.OrderID); o.Status != toll.OrderFailed || o.RefundedCents != 0 {
			s.Errorf("%+v", o)
		}
	})
}

// F11: the process that was asked for a refund dies; another one makes it, once.
// F11
func TestRefundKilled(t *testing.T) {
	eachRail(t, func(s *shop) {
		for at, want := range map[string]int64{"finish": 0, "finished": 100, "refunding": 100} {
			p, id, _ := s.bought(s.cardDelegation(1000), 0, nil)
			s.killed(0, at, func() { _, _ = s.at(0).Refund(s.ctx, owner, id, ptr(toll.Cents(100)), nil, time.Millisecond) })
			for range 3 {
				s.now.Add(time.Minute.Microseconds())
				s.jobs(1)
			}
			s.money(p, id, want, toll.Credits(want/5), 0, 0, 100-toll.Credits(want/5))
		}
	})
}

// T82: the bank wants the owner of the card to confirm. The refusal carries the address of a page,
// which works once, for an hour.
// T82
func TestRefund_Authentication(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(fiat, func(p *toll.Plan) { p.MaxOrders = 5 }))
		d := s.cardDelegation(1000)
		perm := s.permission(p, d, nil)
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeCardAuthentication, Reason: "The bank asks for its customer."})
		_, err := s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 1)
		s.code(err, toll.CodeTopUpRefused)
		id, _ := toll.AsError(err).Params["orderId"].(string)
		want := "https://toll.example/checkout/" + id + "/again?until=" + s.clock().Add(time.Hour).Format(time.RFC3339)
		if url := toll.AsError(err).Params["checkoutUrl"]; url != want {
			s.Fatalf("%v, want %s", url, want)
		}
		_, err = s.charge(0, p, d)
		s.code(err, toll.CodeCardAuthentication)
		if toll.AsError(err).Params["checkoutUrl"] == nil {
			s.Fatal(err)
		}
		if a := s.account(p, holder); a.Balance != 0 || s.remaining(d) != 1000 {
			s.Fatalf("%+v", a)
		}
		s.rail.Behave(railtest.Behaviour{Person: true})
		_, err = s.at(0).Replace(s.ctx, other, id, rail.SessionInput{}, soon)
		s.code(err, toll.CodeOrderNotFound)
		_, err = s.at(0).Replace(s.ctx, holder, id, rail.SessionInput{SuccessURL: "javascript:x"}, soon)
		s.code(err, toll.CodeBadRequest)

		pages := make([]string, 10)
		atOnce(len(pages), func(i int) {
			page, err := s.at(i).Replace(s.ctx, holder, id, rail.SessionInput{}, soon)
			if err != nil {
				s.Error(err)
				return
			}
			pages[i] = page.OrderID
		})
		slices.Sort(pages)
		if pages = slices.Compact(pages); len(pages) != 1 {
			s.Fatalf("pages of the orders %v", pages)
		}
		if o := s.state(pages[0]); o.Replaces != id || o.DelegationID != "" || o.Amount.Cmp(toll.UnitsOfCents(500)) != 0 || o.Credits != 100 {
			s.Fatalf("%+v", o)
		}
		must.Do(s, s.rail.Complete(pages[0]))
		again := must.Get(s.at(1).Replace(s.ctx, holder, id, rail.SessionInput{}, soon))(s)
		if again.OrderID != pages[0] || again.Result.PaymentStatus != "paid" {
			s.Fatalf("%+v", again)
		}
		s.charges(1)
		if a := s.account(p, holder); a.Balance != 100 || s.remaining(d) != 1000 || s.status(d) != toll.StatusActive {
			s.Fatalf("%+v", a)
		}
		read := must.Get(s.at(0).OrderByID(s.ctx, holder, pages[0]))(s)
		if read.Replaces == nil || *read.Replaces != id {
			s.Fatalf("%+v", read)
		}
		s.now.Add(time.Hour.Microseconds())
		_, err = s.at(0).Replace(s.ctx, holder, id, rail.SessionInput{}, soon)
		s.code(err, toll.CodeOrderNotFound)
		_, err = s.at(0).ReplayOrder(s.ctx, holder, id, soon)
		s.code(err, toll.CodeCardAuthentication)
		if toll.AsError(err).Params["checkoutUrl"] != nil {
			s.Fatal("the page has ended")
		}
	})
}

// T85: a page in the place of a failed order sells what that order was to buy, or nothing. A page that
// nobody paid is replaced.
// T85
func TestReplaceOtherTerms(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(fiat)
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeCardAuthentication})
		_, err := s.charge(0, p, s.cardDelegation(1000))
		s.code(err, toll.CodeCardAuthentication)
		id := toll.AsError(err).Params["orderId"].(string)
		s.rail.Behave(railtest.Behaviour{Person: true})
		first := must.Get(s.at(0).Replace(s.ctx, holder, id, rail.SessionInput{}, soon))(s)
		must.Do(s, s.rail.Expire(first.OrderID))
		second := must.Get(s.at(0).Replace(s.ctx, holder, id, rail.SessionInput{}, soon))(s)
		if second.OrderID == first.OrderID {
			s.Fatal("the page has expired")
		}
		must.Do(s, s.rail.Expire(second.OrderID))
		set := func(column string, value any) {
			s.Helper()
			text := must.Get(json.Marshal(value))(s)
			must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(s.ctx, "UPDATE plans SET "+column+" = $1 WHERE plan_id = $2", string(text), string(p.ID))
				return err
			}))
		}
		price, credits := p.Price, p.Credits
		price.Amounts, credits.Amount = []toll.Units{toll.UnitsOfCents(600)}, 90
		for column, other := range map[string]any{"price": price, "credits": credits} {
			set(column, other)
			_, err = s.at(0).Replace(s.ctx, holder, id, rail.SessionInput{}, soon)
			s.code(err, toll.CodeRecordChanged)
			set(column, map[string]any{"price": p.Price, "credits": p.Credits}[column])
		}
		s.charges(0)
	})
}

// The processor forgets a card that is removed, once.
func TestRemovePaymentMethod_Detach(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(1000)
		for i := range 2 {
			must.Do(s, s.at(i).PaymentMethods.Remove(s.ctx, me, "pm_1"))
		}
		var n int
		must.Do(s, s.store.QueryRow(s.ctx, "SELECT COUNT(*) FROM jobs WHERE kind = $1", store.JobCardDetach).Scan(&n))
		if n != 1 || s.status(d) != toll.StatusRevoked {
			s.Fatalf("%d jobs, %s", n, s.status(d))
		}
	})
}
