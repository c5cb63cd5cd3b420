package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestHoldBounds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		bounded := func(key string, n toll.Credits) ledger.SettleOp {
			op := settleOp(perm, "", n)
			op.Keys, op.HoldBounds = []string{key}, true
			return op
		}
		hold := b.holdOp(perm, 10)
		hold.Keys = []string{"n:held"}
		_, err := b.Hold(b.ctx, hold)
		must.Do(b, err)
		_, err = b.Settle(b.ctx, bounded("n:held", 11))
		b.refused(err, ledger.ExceedsHold)
		first := must.Get(b.Settle(b.ctx, bounded("n:held", 10)))(b)
		again, err := b.Settle(b.ctx, bounded("n:held", 10))
		if err != nil || !again.Replayed || string(again.Answer) != string(first.Answer) {
			t.Errorf("%v %+v", err, again)
		}

		hold.Keys = []string{"n:lapsed"}
		must.Get(b.Hold(b.ctx, hold))(b)
		b.clock.add(2 * time.Minute)
		_, err = b.Settle(b.ctx, bounded("n:lapsed", 11))
		b.refused(err, ledger.ExceedsHold)
		must.Get(b.Settle(b.ctx, bounded("n:lapsed", 10)))(b)

		// Without a hold before it a settlement is made once and not told again, but to who sends the id.
		direct := must.Get(b.Settle(b.ctx, bounded("n:direct", 7)))(b)
		_, err = b.Settle(b.ctx, bounded("n:direct", 7))
		b.refused(err, ledger.Replay)
		if r, _ := errors.AsType[*ledger.Refusal](err); r.Transaction != direct.Transaction {
			t.Errorf("%s", r.Transaction)
		}
		_, err = b.Settle(b.ctx, bounded("n:direct", 8))
		b.refused(err, ledger.Conflict)
		again, err = b.Settle(b.ctx, settleOp(perm, direct.RequestID, 7))
		if err != nil || !again.Replayed {
			t.Errorf("%v %+v", err, again)
		}
		b.balance(73, 0)
	})
}

func TestPaymentIdentifierNamesOneContent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		hold := func(n toll.Credits, keys ...string) error {
			op := b.holdOp(perm, n)
			op.Keys = keys
			_, err := b.Hold(b.ctx, op)
			return err
		}
		settle := func(n toll.Credits, keys ...string) error {
			op := settleOp(perm, "", n)
			op.Keys = keys
			_, err := b.Settle(b.ctx, op)
			return err
		}
		must.Do(b, hold(5, "n:1", "p:pay"))
		b.refused(hold(5, "n:2", "p:pay"), ledger.InFlight)
		b.refused(hold(6, "n:2", "p:pay"), ledger.IdentifierConflict)
		b.refused(hold(6, "n:1"), ledger.InFlight)
		must.Do(b, settle(3, "n:3", "p:pay"))
		b.refused(hold(5, "n:2", "p:pay"), ledger.Duplicate)
		b.refused(hold(3, "n:2", "p:pay"), ledger.IdentifierConflict)
		b.refused(settle(4, "n:2", "p:pay"), ledger.IdentifierConflict)
		b.refused(settle(4, "n:1"), ledger.Conflict)
		must.Do(b, settle(3, "n:2", "p:pay"))

		must.Do(b, settle(4, "p:direct"))
		b.refused(hold(4, "p:direct"), ledger.Duplicate)
		b.refused(hold(5, "p:direct"), ledger.IdentifierConflict)
		b.balance(93, 0)
	})
}

// A request that somebody names may have an order from an earlier call; which one, its answer says.
func TestOrderOfRequest(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		key := toll.NewHash()
		p := ledger.Permission{
			Hash: toll.NewHash(), Plan: plan, Subscriber: subscriber, Scheme: "svc:erc4337", Network: "eip155:84532", DelegationID: "d-1",
			APIKeyID: &key, CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(24 * time.Hour),
		}
		must.Do(b, b.CreatePermission(b.ctx, p))
		asks := func(err error) {
			t.Helper()
			b.refused(err, ledger.OrderUnknown)
			if r, _ := errors.AsType[*ledger.Refusal](err); r.DelegationID != "d-1" || r.APIKeyID == nil || *r.APIKeyID != key {
				t.Errorf("%+v", r)
			}
		}
		var told string
		settle := func(id string, tx *string, keys ...string) (ledger.Settled, error) {
			op := settleOp(p.Hash, id, 5)
			op.Keys, op.OrderTx = keys, tx
			op.Render = func(r ledger.Receipt) []byte { told = r.OrderTx; return render(r) }
			return b.Settle(b.ctx, op)
		}
		tx, none := "0xabc", ""
		hold := b.holdOp(p.Hash, 5)
		hold.Keys = []string{"n:1"}
		_, err := b.Hold(b.ctx, hold)
		asks(err)
		hold.OrderTx = &tx
		h := must.Get(b.Hold(b.ctx, hold))(b)
		r, err := b.Request(b.ctx, h.Account.ID, h.RequestID)
		if err != nil || r.OrderTx != tx {
			t.Errorf("%v, the hold keeps %q", err, r.OrderTx)
		}
		_, err = settle(h.RequestID, nil)
		if err != nil || told != tx {
			t.Errorf("%v, told %q", err, told)
		}

		_, err = settle("", nil, "n:2")
		asks(err)
		_, err = settle("own", nil)
		asks(err)
		_, err = settle("own", &none)
		if err != nil || told != "" {
			t.Errorf("%v, told %q", err, told)
		}
		_, err = settle("", &tx, "n:2")
		if err != nil || told != tx {
			t.Errorf("%v, told %q", err, told)
		}
		must.Get(settle("", nil))(b) // nobody can have named it before

		hold = b.holdOp(p.Hash, 81)
		_, err = b.Hold(b.ctx, hold)
		b.refused(err, ledger.Insufficient)
		if r, _ := errors.AsType[*ledger.Refusal](err); r.DelegationID != "d-1" || r.Uncovered != 81 || r.Available != 80 {
			t.Errorf("%+v", r)
		}
		h = must.Get(b.Hold(b.ctx, b.holdOp(p.Hash, 10)))(b)
		op := settleOp(p.Hash, h.RequestID, 85)
		_, err = b.Settle(b.ctx, op)
		b.refused(err, ledger.Insufficient)
		if r, _ := errors.AsType[*ledger.Refusal](err); r.Needed != 85 || r.Uncovered != 75 || r.Available != 70 {
			t.Errorf("%+v", r)
		}
	})
}
