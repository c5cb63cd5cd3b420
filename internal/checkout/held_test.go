package checkout_test

import (
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
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

var (
	account = toll.MustAddress("0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1")
	signed  = "0x" + hex.EncodeToString(railtest.Signature[:])
)

func held(in *toll.DelegationInput) {
	in.OwnerAccount, in.DurationSecs = &account, ptr(toll.Int(30*toll.DaySecs))
}

func TestHeldAccount(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		made := s.delegate(input(held))
		d := made.DelegationID
		if made.Status != toll.StatusPending || made.TypedData["primaryType"] != "Delegation" || made.Account.Address != account || !made.Account.CodeRequired {
			s.Fatalf("%+v", made)
		}
		pending := func() {
			s.Helper()
			r, err := s.at(1).Delegations.Read(s.ctx, holder, d)
			must.Do(s, err)
			if r.Status != toll.StatusPending || r.ProviderPaymentMethodID != account.String() {
				s.Fatalf("%+v", r)
			}
			s.code(s.at(0).Delegations.Usable(s.ctx, holder, nil, d, p), toll.CodeDelegationNotFound)
			_, err = s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil)
			s.code(err, toll.CodeDelegationNotFound)
			perm := s.permission(p, d, nil)
			_, err = s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 1)
			s.code(err, toll.CodeDelegationNotFound)
			usable := must.Get(s.at(0).Delegations.List(s.ctx, me, true, store.Page{}))(s)
			if usable.Total != 0 || len(s.events(d)) != 0 {
				s.Fatalf("%+v, events %v", usable, s.events(d))
			}
		}
		pending()
		sign := func(i int, signature, authorization string) error {
			_, err := s.at(i).Delegations.Sign(s.ctx, holder, d, signature, json.RawMessage(authorization))
			return err
		}
		for _, bad := range []struct{ signature, authorization string }{
			{"", ""}, {"0x", ""}, {"0x1", ""}, {signed[2:], ""}, {"0xzz", ""}, {"0x" + string(slices.Repeat([]byte("ab"), 1025)), ""}, {signed, `[]`}, {signed, `"0x"`},
			{signed, `{"a":"` + string(slices.Repeat([]byte("a"), 2048)) + `"}`},
		} {
			s.code(sign(0, bad.signature, bad.authorization), toll.CodeBadRequest)
		}
		s.code(sign(0, "0x00", ""), toll.CodeChainSignature)
		for _, code := range []toll.Code{toll.CodeChainForeignCode, toll.CodeChainContracts} {
			s.rail.Behave(railtest.Behaviour{BadAccount: code})
			s.code(sign(0, signed, ""), code)
		}
		s.rail.Behave(railtest.Behaviour{})
		_, err := s.at(0).Delegations.Sign(s.ctx, other, d, signed, nil)
		s.code(err, toll.CodeUnknownDelegation)
		pending()

		dying := s.start(s.store, s.ledgers[0])
		dying.Failpoint(func(at string) {
			if at == "signature checked" {
				panic("killed")
			}
		})
		func() {
			defer func() { _ = recover() }()
			_, _ = dying.Delegations.Sign(s.ctx, holder, d, signed, nil)
		}()
		pending()

		authorization := `{"chainId": "0x14a34", "nonce": 0}`
		for i := range 2 { // a repeat is the same answer
			must.Do(s, sign(i, signed, authorization))
		}
		r := must.Get(s.at(1).Delegations.Read(s.ctx, holder, d))(s)
		if r.Status != toll.StatusActive || !slices.Equal(s.events(d), []toll.EventType{toll.EventDelegationCreated}) {
			s.Fatalf("%+v, events %v", r, s.events(d))
		}
		s.code(sign(0, "0x00", ""), toll.CodeBadRequest)
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil))(s)
		bought := s.rail.Purchases()[0].Delegation
		want := &rail.Delegation{
			ID: d, Owner: holder, OwnerAccount: account, Currency: "usdc", LimitCents: 1000, CreatedAt: start, ExpiresAt: start.Add(30 * 24 * time.Hour),
			Signature: railtest.Signature[:], Authorization: json.RawMessage(`{"chainId":"0x14a34","nonce":0}`),
		}
		if !reflect.DeepEqual(bought, want) {
			s.Fatalf("%+v, want %+v", bought, want)
		}

		// Who holds the account disables it on the chain; the rail is not asked to.
		perm := s.permission(p, d, nil)
		for i := range 2 {
			out := must.Get(s.at(i).Delegations.Revoke(s.ctx, holder, d))(s)
			call, _ := out.Data["transaction"].(map[string]any)
			if call["from"] != account || call["data"] != "0x49934047" || call["value"] != "0x0" || call["chainId"] != "0x14a34" {
				s.Fatalf("%+v", out.Data)
			}
		}
		s.settleDown(0)
		if n := s.rail.Revocations(d); n != 0 {
			s.Fatalf("%d revocations", n)
		}
		if got, err := s.ledgers[0].PermissionByHash(s.ctx, perm.Hash); err != nil || got.RevokedAt.IsZero() {
			s.Fatalf("%+v %v", got, err)
		}
	})
}

func TestHeldAccount_Refusals(t *testing.T) {
	eachRail(t, func(s *shop) {
		for want, f := range map[toll.Code]func(in *toll.DelegationInput){
			toll.CodeBadRequest: func(in *toll.DelegationInput) { in.OwnerAccount = &toll.Address{} },
		} {
			_, err := s.at(0).Delegations.Create(s.ctx, me, input(f), nil)
			s.code(err, want)
		}
		_, err := s.at(0).Delegations.Create(s.ctx, me, input(func(in *toll.DelegationInput) { in.OwnerAccount = &holder }), nil)
		s.code(err, toll.CodeBadRequest)
		s.rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainUnreachable})
		_, err = s.at(0).Delegations.Create(s.ctx, me, input(held), nil)
		s.code(err, toll.CodeChainUnreachable)
		s.rail.Behave(railtest.Behaviour{})
		if list, err := s.at(0).Delegations.List(s.ctx, me, false, store.Page{}); err != nil || list.Total != 0 {
			s.Fatalf("refusals left %+v, %v", list, err)
		}
		plain := s.delegation(1000)
		_, err = s.at(0).Delegations.Sign(s.ctx, holder, plain, signed, nil)
		s.code(err, toll.CodeBadRequest)
		revoked := s.delegate(input(held)).DelegationID
		out := must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, revoked))(s)
		if out.Data["transaction"] != nil || len(s.events(revoked)) != 0 {
			s.Fatalf("nothing was signed, and there is %+v, %v", out.Data, s.events(revoked))
		}
		_, err = s.at(0).Delegations.Sign(s.ctx, holder, revoked, signed, nil)
		s.code(err, toll.CodeDelegationRevoked)
		late := s.delegate(input(held)).DelegationID
		s.now.Add(31 * 24 * time.Hour.Microseconds())
		_, err = s.at(0).Delegations.Sign(s.ctx, holder, late, signed, nil)
		s.code(err, toll.CodeDelegationExpired)
	})
}

// disabled has a rail say that a delegation is disabled.
func (s *shop) disabled(i int, d string) error {
	return s.store.Tx(s.ctx, func(tx *store.Tx) error { return s.at(i).Delegations.Disabled(s.ctx, tx, d) })
}

// spent has a rail say what is spent of a delegation in all.
func (s *shop) spent(i int, d string, units toll.Units) error {
	return s.store.Tx(s.ctx, func(tx *store.Tx) error { return s.at(i).Delegations.Spent(s.ctx, tx, d, units) })
}

// A delegation of a wallet that the service holds is disabled on the chain once it was used there, however often the rail is
// away or the process dies on the way.
func TestRevocationReachesTheChain(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		unused, used := s.delegation(1000), s.delegation(1000)
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: used, Wait: soon}, nil))(s)
		for _, d := range []string{unused, used} {
			must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, d))(s)
		}
		reconcile := func(c *checkout.Checkout) {
			s.Helper()
			must.Get(s.queues[c].RunDue(s.ctx))(s)
		}
		s.rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainUnreachable})
		reconcile(s.at(0))
		reconcile(s.at(1))
		if n := s.rail.Revocations(used); n != 1 {
			s.Fatalf("%d revocations", n)
		}
		// What is under way may fail, so it is asked for until it is done.
		s.rail.Behave(railtest.Behaviour{Revoking: true})
		for range 2 {
			s.now.Add(time.Minute.Microseconds())
			reconcile(s.at(0))
		}
		s.rail.Behave(railtest.Behaviour{})
		for range 3 {
			s.now.Add(time.Minute.Microseconds())
			reconcile(s.at(1))
		}
		if n, none := s.rail.Revocations(used), s.rail.Revocations(unused); n != 4 || none != 0 {
			s.Fatalf("%d revocations, %d of one that was never used", n, none)
		}

		// What the chain says itself needs no second word there.
		third := s.delegation(1000)
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: third, Wait: soon}, nil))(s)
		perm := s.permission(p, third, nil)
		for i := range 2 {
			must.Do(s, s.disabled(i, third))
		}
		reconcile(s.at(0))
		got := must.Get(s.ledgers[0].PermissionByHash(s.ctx, perm.Hash))(s)
		r := must.Get(s.at(0).Delegations.Read(s.ctx, holder, third))(s)
		if got.RevokedAt.IsZero() || r.Status != toll.StatusRevoked || s.rail.Revocations(third) != 0 ||
			!slices.Equal(s.events(third), []toll.EventType{toll.EventDelegationCreated, toll.EventDelegationRevoked}) {
			s.Fatalf("%+v, %+v, %v", got, r, s.events(third))
		}
		s.code(s.disabled(0, toll.NewUUID()), toll.CodeUnknownDelegation)
	})
}

// The half of T65 that is checkout's: what a delegation does not pay is refused before anything is signed, and what the chain
// refuses brings no credits and costs nothing.
// T65
func TestDelegationMisuse(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		pinned := s.delegate(input(func(in *toll.DelegationInput) { in.AllowedRecipients = []toll.Address{other} })).DelegationID
		eurc := s.delegate(input(func(in *toll.DelegationInput) { in.Currency = ptr("eurc") })).DelegationID
		plain := s.delegation(1000)
		perm := s.permission(p, plain, nil)
		order := func(d string) error {
			_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil)
			return err
		}
		s.code(order(pinned), toll.CodeDelegationPlanMismatch)
		s.code(order(eurc), toll.CodeUnsupportedScheme)
		if len(s.rail.Purchases()) != 0 {
			s.Fatal("the rail was asked")
		}
		// Revoked on the chain between simulation and sending: the event says that the operation failed.
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeDelegationRevoked, Reason: "CannotUseADisabledDelegation()"})
		s.code(order(plain), toll.CodeDelegationRevoked)
		_, err := s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 1)
		s.code(err, toll.CodeDelegationRevoked)
		must.Do(s, s.disabled(1, plain))
		s.jobs(1)
		if a := s.account(p, holder); a.Seq != 0 || s.orders(p) != 0 || s.remaining(plain) != 1000 {
			s.Fatalf("%+v", a)
		}
		_, err = s.request(0, p, perm, s.ledgers[0].NewRequestID(perm.Account()), 1)
		if !ledger.IsRefused(err, ledger.PermissionRevoked) {
			s.Fatal(err)
		}
		late := s.delegate(input()).DelegationID
		s.now.Add(time.Hour.Microseconds())
		s.code(order(late), toll.CodeDelegationExpired)
		s.charges(0)
	})
}

// Units that were spent elsewhere count as soon as the chain says so, and whatever orders are under way meanwhile.
// T64
func TestSpentElsewhere(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.delegation(350)
		spent := func() toll.Cents {
			s.Helper()
			r := must.Get(s.at(1).Delegations.Read(s.ctx, holder, d))(s)
			return r.AmountSpentCents
		}
		order := func() (*toll.Order, error) {
			return s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: s.plan(usdc(100)), DelegationID: d, Wait: soon}, nil)
		}
		_, err := order()
		must.Do(s, err)
		// 1.20 went elsewhere, and a bit: the rail finds out when it simulates the next order, whose cents are reserved.
		s.rail.Behave(railtest.Behaviour{Steps: 1 << 20})
		o := s.begin(s.plan(usdc(100)), d)
		counted := toll.UnitsOf(1_000_000 + 1_200_001)
		for i := range 3 {
			must.Do(s, s.spent(i, d, counted))
		}
		if n := spent(); n != 121 { // it may have counted the order that is open
			s.Fatalf("%d cents are spent", n)
		}
		s.audit()
		s.rail.Undo(o.OrderID, toll.CodeDelegationInsufficient, "ERC20TransferAmountEnforcer:allowance-exceeded")
		must.Do(s, s.decides(s.at(0), o.OrderID, rail.Outcome{
			Status: toll.OrderFailed, FailureCode: toll.CodeDelegationInsufficient, FailureReason: "ERC20TransferAmountEnforcer:allowance-exceeded",
		}))
		if n := spent(); n != 221 || s.remaining(d) != 129 {
			s.Fatalf("%d cents are spent", n)
		}
		s.audit()
		s.rail.Behave(railtest.Behaviour{})
		must.Get(order())(s)
		if n := spent(); n != 321 {
			s.Fatalf("%d cents are spent", n)
		}
		_, err = order()
		s.code(err, toll.CodeDelegationInsufficient)
		if e := toll.AsError(err); e.HTTPStatus() != 402 {
			s.Fatalf("%+v", e)
		}
		// A reading that is all ours changes nothing; one of everything uses the delegation up.
		must.Do(s, s.spent(0, d, toll.UnitsOf(3_200_001)))
		if n := spent(); n != 321 {
			s.Fatalf("%d cents are spent", n)
		}
		must.Do(s, s.spent(0, d, toll.UnitsOf(3_500_000)))
		_, err = order()
		s.code(err, toll.CodeDelegationExhausted)
		if all := s.events(d); all[len(all)-1] != toll.EventDelegationExhausted || len(all) != 2 {
			s.Fatalf("events %v", all)
		}
		// Of what the chain undoes it says less.
		must.Do(s, s.spent(0, d, toll.UnitsOf(2_000_000)))
		if n := spent(); n != 200 {
			s.Fatalf("%d cents are spent", n)
		}
		s.code(s.spent(0, toll.NewUUID(), counted), toll.CodeUnknownDelegation)
	})
}

// Readings at any moment of any orders leave the sums right, and the limit unbroken.
// T64
func TestReadingsAmongOrders(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.delegation(1000)
		var paid atomic.Int64
		atOnce(30, func(i int) {
			if i%3 == 0 {
				must.Check(s, s.spent(i, d, toll.UnitsOf(2_000_000)))
				return
			}
			if i%5 == 0 {
				s.rail.Behave(railtest.Behaviour{DeclineNext: 1, Code: toll.CodeChainBalance})
			}
			if _, err := s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: s.plan(usdc(100)), DelegationID: d, Wait: soon}, nil); err == nil {
				paid.Add(1)
			}
		})
		s.audit()
		_, sum := s.rail.Charges()
		must.Do(s, s.spent(0, d, sum))
		r := must.Get(s.at(0).Delegations.Read(s.ctx, holder, d))(s)
		if r.AmountSpentCents != toll.Cents(100*paid.Load()) || r.TransactionCount != paid.Load() || paid.Load() > 10 {
			s.Fatalf("%d paid, %+v", paid.Load(), r)
		}
	})
}
