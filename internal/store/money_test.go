package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestOpenOrders(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		hash := toll.NewHash()
		o := &store.Order{
			ID: toll.NewUUID(), Account: [16]byte{1}, Plan: "5", Subscriber: bob, Status: toll.OrderCreated, Credits: 10, Amount: toll.UnitsOf(7),
			Currency: "USDC", CreatedAt: noon, UpdatedAt: noon, Open: true, Rail: "crypto", DelegationID: toll.NewUUID(), Cents: 1,
			Permission: &hash, RequestID: "r", Session: "{}", Reading: 3,
		}
		insert := func(o store.Order) error {
			return st.Tx(ctx, func(tx *store.Tx) error { return store.InsertOrder(ctx, tx, &o) })
		}
		must.Do(t, insert(*o))
		same(t, must.Get(store.OpenOrder(ctx, st, o.Account, ""))(t), o)
		same(t, must.Get(store.OrdersOfRequest(ctx, st, o.Account, "r"))(t), []*store.Order{o})
		second := *o
		second.ID = toll.NewUUID()
		if err := insert(second); !store.IsUnique(err) {
			t.Fatalf("a second open order: %v", err)
		}
		second.OpenKey = "x"
		must.Do(t, insert(second))
		o.Open, o.Status, o.FailureCode, o.FailureParams = false, toll.OrderFailed, toll.CodeChainBalance, "{}"
		o.Reversed, o.TakenBack, o.Loss, o.HeldBack = true, 1, 2, 7
		write(t, st, func(tx *store.Tx) error { return store.UpdateOrder(ctx, tx, o) })
		same(t, must.Get(store.OrderByID(ctx, st, o.ID))(t), o)
		_, err := store.OpenOrder(ctx, st, o.Account, "")
		notFound(t, err)
		third := *o
		third.ID, third.Open = toll.NewUUID(), true
		must.Do(t, insert(third), "an order after one that is finished")
	})
}

func TestDelegations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		key := toll.NewHash()
		d := &store.Delegation{
			ID: toll.NewUUID(), Owner: bob, Provider: toll.ProviderCrypto, PaymentMethod: bob.Lower(), Currency: "usdc", Limit: 100,
			MaxTransactions: 2, Plan: "5", APIKeyID: &key, MerchantAccount: "m", AllowedReceivers: []toll.Address{alice}, CreatedAt: noon,
			ExpiresAt: noon.Add(time.Hour),
		}
		write(t, st, func(tx *store.Tx) error { return store.InsertDelegation(ctx, tx, d) })
		same(t, must.Get(store.DelegationByID(ctx, st, d.ID))(t), d)
		d.Spent, d.Reserved, d.Transactions, d.LastUsedAt = 40, 30, 1, noon
		d.Paid, d.Beyond, d.OpenCents, d.Readings = 30, -5, 30, 4
		write(t, st, func(tx *store.Tx) error { return store.UpdateDelegation(ctx, tx, d) })
		same(t, must.Get(store.DelegationByID(ctx, st, d.ID))(t), d)
		over := *d
		over.Reserved = 61
		if err := st.Tx(ctx, func(tx *store.Tx) error { return store.UpdateDelegation(ctx, tx, &over) }); err == nil {
			t.Fatal("more is spent and reserved than the limit")
		}
		list := func(u *store.Usable) int64 {
			return must.Get(store.DelegationsOfOwner(ctx, st, bob, u, store.Page{}))(t).Total
		}
		for want, u := range map[int64][]*store.Usable{
			1: {nil, {At: noon, Key: key}, {At: noon, Key: key, Without: []string{"pm"}}},
			0: {{At: noon}, {At: noon.Add(time.Hour), Key: key}, {At: noon, Key: key, Without: []string{"pm", bob.Lower()}}},
		} {
			for _, u := range u {
				if n := list(u); n != want {
					t.Errorf("%+v: %d", u, n)
				}
			}
		}
		for status, at := range map[toll.PermissionStatus]time.Time{toll.StatusActive: noon, toll.StatusExpired: noon.Add(time.Hour)} {
			if got := d.Status(at); got != status {
				t.Errorf("%s, want %s", got, status)
			}
		}
		write(t, st, func(tx *store.Tx) error {
			_, err := store.RevokeDelegationsOf(ctx, tx, bob, bob.Lower(), noon)
			return err
		})
		later := noon.Add(2 * time.Minute)
		left := must.Get(store.DelegationByID(ctx, st, d.ID))(t)
		if !left.Revoking || left.Status(noon) != toll.StatusRevoked || list(&store.Usable{At: noon, Key: key}) != 0 {
			t.Fatalf("%+v", left)
		}
		same(t, len(must.Get(store.DueJobs(ctx, st, noon))(t)), 0) // the caller does it
		same(t, must.Get(store.DueJobs(ctx, st, later))(t), []string{store.JobEndDelegation})
		var claimed []store.Job
		write(t, st, func(tx *store.Tx) (err error) {
			claimed, err = store.ClaimJobs(ctx, tx, store.JobEndDelegation, "a", later, later.Add(time.Minute), 9)
			return err
		})
		if len(claimed) != 1 || string(claimed[0].Key) != d.ID {
			t.Fatalf("%+v", claimed)
		}
		write(t, st, func(tx *store.Tx) error { return store.EndDelegation(ctx, tx, d.ID) })
		same(t, len(must.Get(store.DueJobs(ctx, st, later.Add(time.Hour)))(t)), 0)
	})
}

func TestHeldDelegations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		d := &store.Delegation{
			ID: toll.NewUUID(), Owner: bob, Provider: toll.ProviderCrypto, Currency: "usdc", Limit: 100, CreatedAt: noon,
			ExpiresAt: noon.Add(time.Hour), OwnerAccount: alice,
		}
		write(t, st, func(tx *store.Tx) error { return store.InsertDelegation(ctx, tx, d) })
		same(t, must.Get(store.DelegationByID(ctx, st, d.ID))(t), d)
		check := func(status toll.PermissionStatus, usable int64, expires int) {
			t.Helper()
			n := must.Get(store.DelegationsOfOwner(ctx, st, bob, &store.Usable{At: noon}, store.Page{}))(t).Total
			ended := must.Get(store.ExpiredDelegations(ctx, st, noon, noon.Add(2*time.Hour), 9))(t)
			if d.Status(noon) != status || n != usable || len(ended) != expires {
				t.Errorf("%s, %d usable, %d expire", d.Status(noon), n, len(ended))
			}
		}
		check(toll.StatusPending, 0, 0)
		d.Signature, d.Authorization = []byte{1, 2}, "{}"
		write(t, st, func(tx *store.Tx) error { return store.UpdateDelegation(ctx, tx, d) })
		same(t, must.Get(store.DelegationByID(ctx, st, d.ID))(t), d)
		check(toll.StatusActive, 1, 1)
		d.RevokedAt, d.DisableAt = noon, noon.Add(time.Minute)
		write(t, st, func(tx *store.Tx) error { return store.UpdateDelegation(ctx, tx, d) })
	})
}

// The audit sees each way in which money and credits can disagree.
func TestAuditOrders(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		d := &store.Delegation{ID: toll.NewUUID(), Owner: bob, Currency: "usdc", Limit: 100, CreatedAt: noon, ExpiresAt: noon}
		o := &store.Order{
			ID: toll.NewUUID(), Account: [16]byte{1}, Plan: "5", Subscriber: bob, Status: toll.OrderCreated, CreatedAt: noon, UpdatedAt: noon, Open: true,
			DelegationID: d.ID, Cents: 9,
		}
		write(t, st, func(tx *store.Tx) error { return store.InsertDelegation(ctx, tx, d) })
		expect := func(want ...string) {
			t.Helper()
			got := must.Get(store.AuditOrders(ctx, st))(t)
			if len(got) != len(want) {
				t.Fatalf("%q, want %q", got, want)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("%q, want %q", got, want)
				}
			}
		}
		expect()
		write(t, st, func(tx *store.Tx) error { return store.InsertOrder(ctx, tx, o) })
		expect("a delegation and its orders disagree", "an order and the payment")
		d.Reserved, d.Transactions = 9, 1
		write(t, st, func(tx *store.Tx) error {
			if _, _, err := store.CountOrder(ctx, tx, "5", 0); err != nil {
				return err
			}
			if err := store.UpdateDelegation(ctx, tx, d); err != nil {
				return err
			}
			return store.InsertDelegationTransaction(ctx, tx, &toll.DelegationTransaction{
				ID: toll.NewUUID(), DelegationID: d.ID, OrderID: o.ID, AmountCents: 9, Currency: "usdc", Status: toll.TransactionPending, CreatedAt: toll.At(noon),
			})
		})
		expect()
		write(t, st, func(tx *store.Tx) error { return store.UncountOrder(ctx, tx, "5") })
		expect("a plan has a wrong order count")
		write(t, st, func(tx *store.Tx) error {
			_, _, err := store.CountOrder(ctx, tx, "5", 0)
			return err
		})
		o.Open, o.Status = false, toll.OrderConfirmed
		write(t, st, func(tx *store.Tx) error { return store.UpdateOrder(ctx, tx, o) })
		expect("a delegation and its orders disagree", "an order and its credits", "an order and the payment")
		o.Status, o.Reversed = toll.OrderFailed, true
		write(t, st, func(tx *store.Tx) error { return store.UpdateOrder(ctx, tx, o) })
		expect("a delegation and its orders disagree", "a plan has a wrong order count", "an order and its credits", "an order and the payment")
		d.Reserved, d.Transactions, d.Beyond = 0, 0, 7
		write(t, st, func(tx *store.Tx) error {
			if err := store.UncountOrder(ctx, tx, "5"); err != nil {
				return err
			}
			return store.UpdateDelegation(ctx, tx, d)
		})
		expect("the sums of a delegation", "an order and its credits", "an order and the payment")
		d.Spent = 7
		lot := func(taken, remaining int64) error {
			return st.Tx(ctx, func(tx *store.Tx) error {
				if err := store.UpdateDelegation(ctx, tx, d); err != nil {
					return err
				}
				if err := store.UpdateDelegationTransaction(ctx, tx, d.ID, o.ID, toll.TransactionFailed, "", ""); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, `INSERT INTO lots (account_id, lot_id, ref, granted, remaining, ends_at, taken, old_end, open)
					VALUES ($1, 1, $2, 0, $3, 1, $4, 2, 0)`, o.Account[:], o.ID, remaining, taken)
				return err
			})
		}
		must.Do(t, lot(0, 0))
		expect()
		o.TakenBack, o.Loss = 3, -3
		write(t, st, func(tx *store.Tx) error { return store.UpdateOrder(ctx, tx, o) })
		expect("an order and the credits taken back")
	})
}
