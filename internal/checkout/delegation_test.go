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

var me = checkout.Owner{Address: holder, KeyID: toll.Hash{7}}

func ptr[T any](v T) *T { return &v }

// input asks for 1,000 cents of USDC for an hour, as fs change it.
func input(fs ...func(in *toll.DelegationInput)) toll.DelegationInput {
	in := toll.DelegationInput{
		Provider: ptr("erc4337"), SpendingLimitCents: ptr(toll.Cents(1000)), DurationSecs: ptr(toll.Int(3600)), Currency: ptr("usdc"),
	}
	for _, f := range fs {
		f(&in)
	}
	return in
}

func (s *shop) delegate(in toll.DelegationInput) *toll.DelegationCreated {
	s.Helper()
	return must.Get(s.at(0).Delegations.Create(s.ctx, me, in, nil))(s)
}

// delegation makes one of this many cents that holds for the length of a test.
func (s *shop) delegation(cents int64) string {
	s.Helper()
	return s.delegate(input(func(in *toll.DelegationInput) {
		in.SpendingLimitCents, in.DurationSecs = ptr(toll.Cents(cents)), ptr(toll.Int(30*toll.DaySecs))
	})).DelegationID
}

func (s *shop) card(id string, f func(m *store.PaymentMethod)) {
	s.Helper()
	m := &store.PaymentMethod{
		Owner: holder, ID: id, Provider: toll.ProviderCard, Brand: "visa", Last4: "4242", ExpMonth: 12, ExpYear: 2030, CreatedAt: s.clock(),
	}
	if f != nil {
		f(m)
	}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.PutPaymentMethod(s.ctx, tx, m) }))
}

func (s *shop) key(owner toll.Address) toll.Hash {
	s.Helper()
	k := store.APIKey{ID: toll.NewHash(), Address: owner, Hash: []byte{1}, Prefix: "sandbox", Tail: "abcdef", Version: "1.1", CreatedAt: s.clock()}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertAPIKey(s.ctx, tx, k) }))
	return k.ID
}

func TestCreateDelegation(t *testing.T) {
	eachRail(t, func(s *shop) {
		key := s.key(holder)
		p := s.plan(usdc(100))
		d := s.delegate(input(func(in *toll.DelegationInput) {
			in.PlanID, in.MaxTransactions, in.APIKeyID, in.AllowedRecipients = &p.ID, ptr(toll.Int(3)), &key, []toll.Address{owner}
			in.Currency, in.Provider, in.SpendingLimitCents, in.SpendingLimitCentsSnake = ptr("USDC"), ptr("ERC4337"), nil, ptr(toll.Cents(700))
		}))
		if d.DelegationID != d.DelegationIDAlias || d.DelegationToken != nil || d.Status != toll.StatusActive || !d.ExpiresAt.Equal(start.Add(time.Hour)) {
			s.Fatalf("%+v", d)
		}
		r, err := s.at(1).Delegations.Read(s.ctx, holder, d.DelegationID)
		must.Do(s, err)
		if r.Provider != toll.ProviderCrypto || r.ProviderPaymentMethodID != holder.String() || r.Status != toll.StatusActive || r.SpendingLimitCents != 700 ||
			r.RemainingBudgetCents != 700 || r.Currency != "usdc" || *r.APIKeyID != key || *r.PlanID != p.ID || *r.MaxTransactions != 3 ||
			r.AllowedRecipients[0] != owner || r.LastUsedAt != nil || r.MerchantAccountID != nil {
			s.Fatalf("%+v", r)
		}
		_, err = s.at(0).Delegations.Read(s.ctx, other, d.DelegationID)
		s.code(err, toll.CodeUnknownDelegation)
		_, err = s.at(0).Delegations.Read(s.ctx, holder, "x")
		s.code(err, toll.CodeBadUUID)

		s.card("pm_1", nil)
		card := s.delegate(input(func(in *toll.DelegationInput) {
			in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("eur"), ptr("pm_1")
			in.MerchantAccountID = ptr("acct_1")
		}))
		if card.DelegationToken == nil {
			s.Fatal("no reference")
		}
		id := must.Get(s.at(1).Delegations.ID(holder, *card.DelegationToken))(s)
		if id != card.DelegationID {
			s.Fatal(id)
		}
		_, err = s.at(0).Delegations.ID(other, *card.DelegationToken)
		s.code(err, toll.CodeDelegationNotFound)
		_, err = s.at(0).Delegations.ID(holder, "other.use.x")
		s.code(err, toll.CodeDelegationNotFound)
		_, err = s.at(0).Delegations.ID(holder, "not.known.now")
		s.code(err, toll.CodeDatabaseUnavailable)

		no := errors.New("no")
		_, err = s.at(0).Delegations.Create(s.ctx, me, input(), refusing(no))
		if !errors.Is(err, no) {
			s.Fatal(err)
		}
		list := must.Get(s.at(0).Delegations.List(s.ctx, me, false, store.Page{}))(s)
		if list.Total != 2 {
			s.Fatalf("%+v", list)
		}
		// The first is kept for another key.
		list = must.Get(s.at(0).Delegations.List(s.ctx, me, true, store.Page{}))(s)
		if list.Total != 1 || list.Items[0].DelegationID != card.DelegationID {
			s.Fatalf("%+v", list)
		}
	})
}

func TestCreateDelegation_Refusals(t *testing.T) {
	each(t, func(s *shop) {
		s.card("pm_1", nil)
		s.card("pm_gone", func(m *store.PaymentMethod) { m.RevokedAt = s.clock() })
		s.card("pm_old", func(m *store.PaymentMethod) { m.ExpiredAt = s.clock() })
		s.card("pm_kept", func(m *store.PaymentMethod) { m.AllowedKeys = []toll.Hash{{9}} })
		foreign := s.key(other)
		dollars, wei := s.plan(usdc(250)), s.plan(func(p *toll.Plan) { p.Price.Amounts = []toll.Units{toll.UnitsOf(1)} })
		card := func(id string) func(in *toll.DelegationInput) {
			return func(in *toll.DelegationInput) {
				in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("usd"), &id
			}
		}
		for _, c := range []struct {
			want   toll.Code
			faults int
			f      func(in *toll.DelegationInput)
		}{
			{toll.CodeDelegationIncomplete, 3, func(in *toll.DelegationInput) { *in = toll.DelegationInput{} }},
			{toll.CodeDelegationIncomplete, 1, func(in *toll.DelegationInput) { in.Provider, in.Currency = ptr("stripe"), ptr("usd") }},
			{toll.CodeBadProvider, 0, func(in *toll.DelegationInput) { in.Provider = ptr("paypal") }},
			{toll.CodeBadNumber, 3, func(in *toll.DelegationInput) {
				in.SpendingLimitCents, in.DurationSecs, in.MaxTransactions = ptr(toll.Cents(1_000_001)), ptr(toll.Int(59)), ptr(toll.Int(0))
			}},
			{toll.CodeBadNumber, 1, func(in *toll.DelegationInput) { in.SpendingLimitCents = ptr(toll.Cents(0)) }},
			{toll.CodeBadNumber, 1, func(in *toll.DelegationInput) { in.DurationSecs = ptr(toll.Int(365*toll.DaySecs + 1)) }},
			{toll.CodeUnsupportedScheme, 0, func(in *toll.DelegationInput) { in.Currency = ptr("usd") }},
			{toll.CodeUnsupportedScheme, 0, func(in *toll.DelegationInput) { card("pm_1")(in); in.Currency = ptr("usdc") }},
			{toll.CodePaymentMethodNotFound, 0, card("pm_2")},
			{toll.CodePaymentMethodNotFound, 0, func(in *toll.DelegationInput) { in.ProviderPaymentMethodID = ptr(other.String()) }},
			{toll.CodeProviderMismatch, 0, card(holder.String())},
			{toll.CodeProviderMismatch, 0, func(in *toll.DelegationInput) { in.ProviderPaymentMethodID = ptr("pm_1") }},
			{toll.CodePaymentMethodRevoked, 0, card("pm_gone")},
			{toll.CodePaymentMethodUnusable, 0, card("pm_old")},
			{toll.CodePaymentMethodNotAllowed, 0, card("pm_kept")},
			{toll.CodePlanNotFound, 0, func(in *toll.DelegationInput) { in.PlanID = ptr(toll.NewPlanID()) }},
			{toll.CodeUnsupportedScheme, 0, func(in *toll.DelegationInput) { in.PlanID, in.Currency = &dollars.ID, ptr("eurc") }},
			{toll.CodeUnsupportedScheme, 0, func(in *toll.DelegationInput) { in.PlanID = &wei.ID }},
			{toll.CodeUnsupportedScheme, 0, func(in *toll.DelegationInput) { card("pm_1")(in); in.PlanID = &dollars.ID }},
			{toll.CodeKeyNotFound, 0, func(in *toll.DelegationInput) { in.APIKeyID = &foreign }},
			{toll.CodeChainUnreachable, 0, func(in *toll.DelegationInput) { in.OwnerAccount = &other }},
			{toll.CodeBadRequest, 2, func(in *toll.DelegationInput) {
				card("pm_1")(in)
				in.AllowedRecipients, in.OwnerAccount = []toll.Address{owner}, &other
			}},
			{toll.CodeBadRequest, 1, func(in *toll.DelegationInput) { in.MerchantAccountID = ptr("acct") }},
			{toll.CodeBadRequest, 1, func(in *toll.DelegationInput) { in.DurationSecsSnake = ptr(toll.Int(61)) }},
		} {
			_, err := s.at(0).Delegations.Create(s.ctx, me, input(c.f), nil)
			s.code(err, c.want)
			if faults, _ := toll.AsError(err).Params["errors"].([]toll.Fault); len(faults) != c.faults {
				s.Errorf("%s: %+v", c.want, faults)
			}
		}
		if list, err := s.at(0).Delegations.List(s.ctx, me, false, store.Page{}); err != nil || list.Total != 0 {
			s.Fatalf("refusals left %+v, %v", list, err)
		}
	})
}

func TestUsableDelegation(t *testing.T) {
	eachRail(t, func(s *shop) {
		key := s.key(holder)
		p := s.plan(usdc(250))
		eurc := s.plan(both(usdc(250), func(p *toll.Plan) { p.Price.TokenAddress = toll.EURCSandbox }))
		native := s.plan(func(p *toll.Plan) { p.Price.Amounts = []toll.Units{toll.UnitsOf(1)} })
		odd := s.plan(both(usdc(250), func(p *toll.Plan) { p.Price.TokenAddress = other }))
		card := s.plan(fiat)
		plain := s.delegation(1000)
		bound := s.delegate(input(func(in *toll.DelegationInput) { in.PlanID = &s.plan(usdc(250)).ID })).DelegationID
		kept := s.delegate(input(func(in *toll.DelegationInput) { in.APIKeyID = &key })).DelegationID
		narrow := s.delegate(input(func(in *toll.DelegationInput) { in.AllowedRecipients = []toll.Address{other} })).DelegationID
		small := s.delegation(249)
		revoked := s.delegation(1000)
		_, err := s.at(0).Delegations.Revoke(s.ctx, holder, revoked)
		must.Do(s, err)
		full := s.delegate(input(func(in *toll.DelegationInput) { in.MaxTransactions = ptr(toll.Int(1)) })).DelegationID
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: full, Wait: soon}, nil))(s)

		for _, c := range []struct {
			name string
			id   string
			plan *toll.Plan
			key  *toll.Hash
			who  toll.Address
			want toll.Code
		}{
			{"fits", plain, p, nil, holder, ""},
			{"of another", plain, p, nil, other, toll.CodeDelegationNotFound},
			{"unknown", toll.NewUUID(), p, nil, holder, toll.CodeDelegationNotFound},
			{"malformed", "x", p, nil, holder, toll.CodeBadUUID},
			{"other token", plain, eurc, nil, holder, toll.CodeUnsupportedScheme},
			{"native", plain, native, nil, holder, toll.CodeUnsupportedScheme},
			{"token without a name", plain, odd, nil, holder, toll.CodeUnsupportedScheme},
			{"fiat", plain, card, nil, holder, toll.CodeUnsupportedScheme},
			{"other plan", bound, p, nil, holder, toll.CodeDelegationPlanMismatch},
			{"own key", kept, p, &key, holder, ""},
			{"other key", kept, p, &toll.Hash{5}, holder, toll.CodePaymentMethodNotAllowed},
			{"no key", kept, p, nil, holder, toll.CodePaymentMethodNotAllowed},
			{"other receiver", narrow, p, nil, holder, toll.CodeDelegationPlanMismatch},
			{"too small", small, p, nil, holder, toll.CodeDelegationInsufficient},
			{"revoked", revoked, p, nil, holder, toll.CodeDelegationRevoked},
			{"used up", full, p, nil, holder, toll.CodeDelegationExhausted},
		} {
			err := s.at(0).Delegations.Usable(s.ctx, c.who, c.key, c.id, c.plan)
			if c.want == "" {
				must.Do(s, err)
				continue
			}
			if !errors.Is(err, toll.NewError(c.want)) {
				s.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		}
		// An order says the same, and takes nothing.
		for id, want := range map[string]toll.Code{small: toll.CodeDelegationInsufficient, revoked: toll.CodeDelegationRevoked, kept: toll.CodePaymentMethodNotAllowed} {
			_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: id, Wait: soon}, nil)
			s.code(err, want)
		}
		_, err = s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: native, DelegationID: plain, Wait: soon}, nil)
		s.code(err, toll.CodeChainNativeDelegation)
		s.now.Add(time.Hour.Microseconds())
		s.code(s.at(0).Delegations.Usable(s.ctx, holder, nil, bound, eurc), toll.CodeDelegationExpired)
		s.charges(1)
	})
}

// T64
func TestDelegationOverrun(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.delegation(350)
		plans := make([]*toll.Plan, 50)
		for i := range plans {
			plans[i] = s.plan(usdc(100))
		}
		var paid, refused atomic.Int64
		atOnce(len(plans), func(i int) {
			_, err := s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: plans[i], DelegationID: d, Wait: soon}, nil)
			switch {
			case err == nil:
				paid.Add(1)
			case errors.Is(err, toll.NewError(toll.CodeDelegationInsufficient)):
				refused.Add(1)
			default:
				s.Error(err)
			}
		})
		r, err := s.at(0).Delegations.Read(s.ctx, holder, d)
		must.Do(s, err)
		if paid.Load() != 3 || refused.Load() != 47 || r.AmountSpentCents != 300 || r.RemainingBudgetCents != 50 || r.TransactionCount != 3 {
			s.Fatalf("%d paid, %+v", paid.Load(), r)
		}
		s.charges(3)
		list := must.Get(s.at(1).Delegations.Transactions(s.ctx, holder, d, store.Page{}))(s)
		for _, tx := range list.Items {
			if tx.Status != toll.TransactionSucceeded || tx.AmountCents != 100 || tx.Currency != "usdc" || tx.ProviderTransactionID != s.state(tx.OrderID).TxHash {
				s.Errorf("%+v", tx)
			}
		}
		if list.Total != 3 {
			s.Fatalf("%+v", list)
		}
		_, err = s.at(1).Delegations.Transactions(s.ctx, other, d, store.Page{})
		s.code(err, toll.CodeUnknownDelegation)
	})
}

// What an order costs is rounded up to a cent of the delegation, and a failed order gives all of it back.
func TestDelegationReservation(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(func(p *toll.Plan) {
			usdc(0)(p)
			p.Price.Amounts, p.Price.Receivers = []toll.Units{toll.UnitsOf(1_000_000), toll.UnitsOf(1)}, []toll.Address{owner, other}
		})
		d := s.delegation(150)
		s.rail.Behave(railtest.Behaviour{Hang: true})
		o, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: 20 * time.Millisecond}, nil)
		must.Do(s, err)
		r := must.Get(s.at(1).Delegations.Read(s.ctx, holder, d))(s)
		if r.RemainingBudgetCents != 49 || r.AmountSpentCents != 0 || r.TransactionCount != 1 {
			s.Fatalf("%+v", r)
		}
		// An order that was made before the revocation is finished; nothing new begins.
		must.Get(s.at(1).Delegations.Revoke(s.ctx, holder, d))(s)
		s.rail.Behave(railtest.Behaviour{Decline: true, Reason: "no"})
		s.settleDown(0)
		if r, err = s.at(1).Delegations.Read(s.ctx, holder, d); err != nil || r.RemainingBudgetCents != 150 || r.TransactionCount != 0 {
			s.Fatalf("%+v %v", r, err)
		}
		list := must.Get(s.at(0).Delegations.Transactions(s.ctx, holder, d, store.Page{}))(s)
		if list.Total != 1 || list.Items[0].Status != toll.TransactionFailed || *list.Items[0].FailureReason != "no" || list.Items[0].OrderID != o.OrderID {
			s.Fatalf("%+v", list.Items)
		}
	})
}

// A delegation is revoked, and the process dies before each of its permissions is.
func TestRevokeDelegation(t *testing.T) {
	eachRail(t, func(s *shop) {
		p, q := s.plan(usdc(100)), s.plan(usdc(100))
		d := s.delegation(1000)
		perms := []ledger.Permission{s.permission(p, d, nil), s.permission(q, d, nil), s.permission(p, d, nil)}
		free := s.permission(p, s.delegation(1000), nil)
		for _, step := range []string{"revoked", "permission revoked"} {
			dying := s.start(s.store, s.ledgers[len(s.ledgers)-1])
			dying.Failpoint(func(at string) {
				if at == step {
					panic("killed")
				}
			})
			func() {
				defer func() { _ = recover() }()
				_, err := dying.Delegations.Revoke(s.ctx, holder, d)
				s.Errorf("%s was not reached: %v", step, err)
			}()
			s.code(s.at(0).Delegations.Usable(s.ctx, holder, nil, d, p), toll.CodeDelegationRevoked)
		}
		s.now.Add(time.Minute.Microseconds())
		s.jobs(0)
		for _, want := range append(perms, free) {
			got := must.Get(s.ledgers[0].PermissionByHash(s.ctx, want.Hash))(s)
			if got.RevokedAt.IsZero() != (want.Hash == free.Hash) {
				s.Errorf("%+v", got)
			}
		}
		first, err := s.at(1).Delegations.Revoke(s.ctx, holder, d)
		must.Do(s, err)
		s.now.Add(time.Minute.Microseconds())
		if n := s.jobs(1); n != 0 {
			s.Errorf("%d jobs are left", n)
		}
		again := must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, d))(s)
		if first.TxHash != again.TxHash || !first.When.Equal(again.When.Time) || first.TxHash.IsZero() || !first.When.Equal(start) {
			s.Fatalf("%+v %+v", first, again)
		}
		_, err = s.at(0).Delegations.Revoke(s.ctx, other, d)
		s.code(err, toll.CodeUnknownDelegation)
	})
}

func TestPaymentMethods(t *testing.T) {
	eachRail(t, func(s *shop) {
		key, foreign := s.key(holder), s.key(other)
		s.card("pm_1", nil)
		s.now.Add(1000)
		s.card("pm_2", nil)
		all, err := s.at(0).PaymentMethods.List(s.ctx, me, false, "")
		must.Do(s, err)
		if len(all) != 3 || all[0].ID != "pm_1" || all[0].Type != "card" || all[2].ID != holder.String() || all[2].Type != "crypto_wallet" ||
			all[2].Brand != "ethereum" || all[2].Last4 != holder.String()[38:] || all[2].AllowedAPIKeyIDs != nil || all[2].Status != toll.StatusActive {
			s.Fatalf("%+v", all)
		}
		change := func(id, alias, keys string) (*toll.PaymentMethod, error) {
			return s.at(1).PaymentMethods.Change(s.ctx, me, id, toll.PaymentMethodChange{Alias: []byte(alias), AllowedAPIKeyIDs: []byte(keys)})
		}
		m := must.Get(change(holder.Lower(), `"mine"`, `["`+key.String()+`"]`))(s)
		if m.ID != holder.String() || *m.Alias != "mine" || len(*m.AllowedAPIKeyIDs) != 1 {
			s.Fatalf("%+v", m)
		}
		// The wallet is now for that key alone, which every delegation of it feels.
		d := s.plan(usdc(100))
		if _, err := s.at(0).Delegations.Create(s.ctx, me, input(), nil); !errors.Is(err, toll.NewError(toll.CodePaymentMethodNotAllowed)) {
			s.Fatal(err)
		}
		mine := must.Get(s.at(0).Delegations.Create(s.ctx, checkout.Owner{Address: holder, KeyID: key}, input(), nil))(s)
		s.code(s.at(0).Delegations.Usable(s.ctx, holder, &me.KeyID, mine.DelegationID, d), toll.CodePaymentMethodNotAllowed)
		must.Do(s, s.at(0).Delegations.Usable(s.ctx, holder, &key, mine.DelegationID, d))
		if list, err := s.at(0).Delegations.List(s.ctx, me, true, store.Page{}); err != nil || list.Total != 0 {
			s.Fatalf("%+v %v", list, err)
		}
		if usable, err := s.at(0).PaymentMethods.List(s.ctx, me, true, toll.ProviderCrypto); err != nil || len(usable) != 0 {
			s.Fatalf("%+v %v", usable, err)
		}
		m = must.Get(change(holder.String(), `null`, `[]`))(s)
		if m.Alias != nil || m.AllowedAPIKeyIDs != nil {
			s.Fatalf("%+v", m)
		}
		m = must.Get(change("pm_1", `"a"`, ``))(s)
		if *m.Alias != "a" {
			s.Fatalf("%+v", m)
		}
		_, err = change("pm_3", `"a"`, ``)
		s.code(err, toll.CodePaymentMethodNotFound)
		_, err = change("pm_1", `7`, `["x"]`)
		s.code(err, toll.CodeBadRequest)
		_, err = change("pm_1", ``, `["`+foreign.String()+`"]`)
		s.code(err, toll.CodeKeyNotFound)

		card := s.delegate(input(func(in *toll.DelegationInput) {
			in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("usd"), ptr("pm_1")
		}))
		perm := s.permission(s.plan(fiat), card.DelegationID, nil)
		s.code(s.at(0).PaymentMethods.Remove(s.ctx, me, holder.String()), toll.CodeForbidden)
		s.code(s.at(0).PaymentMethods.Remove(s.ctx, checkout.Owner{Address: other}, "pm_1"), toll.CodePaymentMethodNotFound)
		must.Do(s, s.at(0).PaymentMethods.Remove(s.ctx, me, "pm_1"))
		must.Do(s, s.at(1).PaymentMethods.Remove(s.ctx, me, "pm_1"))
		if r, err := s.at(0).Delegations.Read(s.ctx, holder, card.DelegationID); err != nil || r.Status != toll.StatusRevoked {
			s.Fatalf("%+v %v", r, err)
		}
		if got, err := s.ledgers[0].PermissionByHash(s.ctx, perm.Hash); err != nil || got.RevokedAt.IsZero() {
			s.Fatalf("%+v %v", got, err)
		}
		left := must.Get(s.at(0).PaymentMethods.List(s.ctx, me, true, toll.ProviderCard))(s)
		if len(left) != 1 || left[0].ID != "pm_2" {
			s.Fatalf("%+v", left)
		}
	})
}

// A payment method is removed, and the process dies before the permissions of its delegations are revoked.
func TestRemovePaymentMethod_Killed(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.card("pm_1", nil)
		d := s.delegate(input(func(in *toll.DelegationInput) {
			in.Provider, in.Currency, in.ProviderPaymentMethodID = ptr("stripe"), ptr("usd"), ptr("pm_1")
		}))
		perm := s.permission(s.plan(fiat), d.DelegationID, nil)
		dying := s.start(s.store, s.ledgers[len(s.ledgers)-1])
		dying.Failpoint(func(at string) {
			if at == "revoked" {
				panic("killed")
			}
		})
		func() {
			defer func() { _ = recover() }()
			s.Errorf("the step was not reached: %v", dying.PaymentMethods.Remove(s.ctx, me, "pm_1"))
		}()
		if n := s.jobs(0); n != 0 {
			s.Errorf("%d jobs of a call that may still be at work", n)
		}
		s.now.Add(time.Minute.Microseconds())
		for _, want := range []int{1, 0} {
			if n := s.jobs(1); n != want {
				s.Errorf("%d jobs, want %d", n, want)
			}
		}
		if got, err := s.ledgers[0].PermissionByHash(s.ctx, perm.Hash); err != nil || got.RevokedAt.IsZero() {
			s.Errorf("%+v %v", got, err)
		}
	})
}
