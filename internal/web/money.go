package web

import (
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
)

// moneyPages are what a workspace pays with: delegations, cards, its wallet.
func moneyPages() []areaPage {
	return []areaPage{
		{
			Path: "/delegations", Title: "Delegations", Template: "sheet", Group: groupBuy, Nav: "Delegations", Icon: "hand-coins", Key: "d",
			Right: toll.RightRead, Get: listDelegations,
		},
		{
			Path: "/delegations/new", Title: "Make a delegation", Template: "sheet", Under: "/delegations", Right: toll.RightSpend,
			Get: askDelegation, Post: makeDelegation,
		},
		{
			Path: "/delegations/{delegation}", Template: "sheet", Under: "/delegations", Right: toll.RightRead, Act: toll.RightSpend,
			Get: showDelegation, Post: changeDelegation,
		},
		{
			Path: "/cards", Title: "Cards", Template: "sheet", Group: groupBuy, Nav: "Cards", Icon: "credit-card", Key: "c",
			Right: toll.RightRead, Get: listCards,
		},
		{
			Path: "/cards/{card}", Template: "sheet", Under: "/cards", Right: toll.RightRead, Act: toll.RightSpend,
			Get: showCard, Post: changeCard,
		},
		{
			Path: "/wallet", Title: "Wallet", Template: "sheet", Group: groupBuy, Nav: "Wallet", Icon: "wallet", Key: "b",
			Right: toll.RightRead, Get: showWallet, Post: useWallet,
		},
	}
}

func listDelegations(v *visit) {
	list, err := listOf[*toll.Delegation](v, "/delegation", "delegations", url.Values{})
	if v.narrowed(err) {
		return
	}
	t := &table{
		Caption: "Delegations",
		Head:    []column{{Text: "Delegation"}, {Text: "Pays from"}, {Text: "State"}, {Text: "Spent", Num: true}, {Text: "Limit", Num: true}, {Text: "Ends"}},
		Empty: &empty{
			"hand-coins", "No delegations", "A delegation lets access tokens buy plans by themselves, up to a limit of money.", "", "",
			"toll delegations create --help",
		},
		Pager: v.pagerOf(list.Total, list.Next, "delegation"),
	}
	for _, d := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{ID: d.DelegationID, To: v.to("delegations", d.DelegationID)}, {Text: paysFrom(d)}, {State: stateOf(d.Status)},
			{Text: centsText(d.AmountSpentCents, d.Currency), Num: true}, {Text: centsText(d.SpendingLimitCents, d.Currency), Num: true},
			{At: d.ExpiresAt.Time},
		})
	}
	s := sheet{Lead: "Limits of money within which access tokens buy plans again by themselves.", Table: t}
	if v.person.Rights.Has(toll.RightSpend) {
		s.begin("Make a delegation", v.to("delegations", "new"))
	}
	v.sheet("Delegations", s)
}

// paysFrom says where the money of a delegation comes from.
func paysFrom(d *toll.Delegation) string {
	if d.Provider == toll.ProviderCard {
		return "card"
	}
	return "wallet"
}

// methodName is a payment method as its owner knows it.
func methodName(m toll.PaymentMethod) string {
	name := plain.Name(m.Brand) + " ending in " + plain.Name(m.Last4)
	if m.Type == toll.PaymentWallet {
		name = "The wallet of this workspace"
	}
	if m.Alias != nil && *m.Alias != "" {
		name = plain.Name(*m.Alias) + ": " + name
	}
	return name
}

func askDelegation(v *visit) {
	methods, err := v.w.API.PaymentMethods(v.acting(), client.Accessible())
	if v.failed("payment method", err) {
		return
	}
	from := field{Name: "method", Label: "Pays from", Members: []string{"providerPaymentMethodId", "provider"}}
	for _, m := range methods {
		if m.Type == toll.PaymentWallet && v.person.External() {
			continue
		}
		from.Options = append(from.Options, option{Value: string(m.Provider) + " " + m.ID, Text: methodName(m)})
	}
	if len(from.Options) == 0 {
		v.sheet("Make a delegation", sheet{
			Note:  "This workspace has no card, and its wallet is yours alone: the service cannot make it pay. Enrol a card first.",
			Links: []link{{Text: "Enrol a card", To: PathEnroll}},
		})
		return
	}
	f := v.formOf("make", "Make the delegation", group{Fields: []field{
		from,
		{Name: "limit", Label: "Limit", Value: "10.00", Mode: "decimal", Hint: "The most that it may spend.", Members: []string{"spendingLimitCents"}},
		{Name: "currency", Label: "Currency", Options: []option{
			{Value: "", Text: "Dollar: USDC from the wallet, USD from a card"}, {Value: "eur", Text: "Euro: EURC from the wallet, EUR from a card"},
		}},
		{Name: "ends", Label: "Ends", Options: tokenLives, Value: "2592000", Members: []string{"durationSecs"}},
		{Name: "plan", Label: "Plan", Max: 80, Hint: "The id of the only plan that it may buy. Empty: every plan.", Members: []string{"planId"}},
		{Name: "orders", Label: "Most orders", Mode: "numeric", Hint: "Empty: no limit.", Members: []string{"maxTransactions"}},
	}})
	f.Cancel = v.to("delegations")
	v.sheet("Make a delegation", sheet{Lead: "Nothing is paid now. An access token with this delegation buys a plan when its credits run out.", Forms: []*form{f}})
}

func makeDelegation(v *visit) {
	v.finish(func() (outcome, error) {
		life, err1 := seconds(v, "ends", tokenLives)
		cents, err2 := cents(v, "limit")
		orders, err3 := number(v, "orders")
		if err := together(err1, err2, err3); err != nil {
			return outcome{}, err
		}
		provider, method, _ := strings.Cut(v.form.Get("method"), " ")
		in := client.DelegationParams{
			Provider: toll.Provider(provider), SpendingLimit: cents, Lifetime: life, PlanID: toll.PlanID(v.text("plan")), MaxTransactions: int64(orders),
		}
		euro := v.form.Get("currency") == "eur"
		switch {
		case in.Provider == toll.ProviderCard:
			in.PaymentMethodID, in.Currency = method, "usd"
			if euro {
				in.Currency = "eur"
			}
		case euro:
			in.Currency = "eurc"
		default:
			in.Currency = "usdc"
		}
		d, err := v.w.API.CreateDelegation(v.once(), in)
		if err != nil {
			return outcome{}, err
		}
		return outcome{To: v.to("delegations", d.DelegationID), Done: "The delegation is made."}, nil
	})
}

func showDelegation(v *visit) {
	d, err := v.w.API.Delegation(v.acting(), v.param("delegation"))
	if v.failed("delegation", err) {
		return
	}
	list, err := listOf[*toll.DelegationTransaction](v, "/delegation/"+url.PathEscape(d.DelegationID)+"/transactions", "transactions", url.Values{})
	if v.narrowed(err) {
		return
	}
	s := sheet{
		Facts: []fact{
			{"Id", cell{ID: d.DelegationID}}, {"State", cell{State: stateOf(d.Status)}}, {"Pays from", cell{Text: paysFrom(d)}},
			{"Left", cell{Text: centsText(d.RemainingBudgetCents, d.Currency)}}, {"Plan", cell{Text: "every plan"}}, {"Made", at(d.CreatedAt.Time)},
			{"Last used", atOr(d.LastUsedAt, "not yet")}, {"Ends", cell{At: d.ExpiresAt.Time}},
		},
		Bars: []bar{spentOf("Spent", d)},
	}
	if list.Total > 0 {
		s.Links = file(v, "delegation-payments", url.Values{"delegation": {d.DelegationID}})
	}
	if d.PlanID != nil {
		s.Facts[4].cell = cell{ID: string(*d.PlanID)}
	}
	if d.MaxTransactions != nil {
		s.Bars = append(s.Bars, bar{"Orders", d.TransactionCount, *d.MaxTransactions, count(d.TransactionCount, "order") + " of " + count(*d.MaxTransactions, "order")})
	}
	t := &table{
		Caption: "Payments", Head: []column{{Text: "Order"}, {Text: "State"}, {Text: "Amount", Num: true}, {Text: "Time"}},
		Empty: &empty{Icon: "receipt", Title: "Nothing paid yet", Text: "Each order that the delegation pays appears here."},
		Pager: v.pagerOf(list.Total, list.Next, "payment"),
	}
	for _, p := range list.Items {
		c := cell{State: stateOfPayment(p.Status)}
		if p.FailureReason != nil {
			c.Sub = plain.Name(*p.FailureReason)
		}
		t.Rows = append(t.Rows, []cell{
			{ID: p.OrderID, To: v.to("orders", p.OrderID)}, c, {Text: centsText(p.AmountCents, p.Currency), Num: true}, {At: p.CreatedAt.Time},
		})
	}
	s.Parts = []part{{"Payments", t}}
	if v.person.Rights.Has(toll.RightSpend) {
		switch d.Status {
		case toll.StatusFrozen:
			s.Note = "It is frozen: the card was declined three times in a row, or a payment is disputed."
			s.Acts = []dialog{v.dialogOf("unfreeze", "Unfreeze", "It may pay again. While a payment is disputed it stays frozen.")}
			fallthrough
		case toll.StatusActive, toll.StatusPending:
			s.Acts = append(s.Acts, v.dangerOf("revoke", "Revoke", "It pays nothing from now on. Access tokens that use it end with it."))
		}
	}
	v.sheet("Delegation "+short(d.DelegationID), s)
}

// spentOf is how much of its limit a delegation spent.
func spentOf(label string, d *toll.Delegation) bar {
	return bar{
		label, int64(d.AmountSpentCents), int64(d.SpendingLimitCents),
		centsText(d.AmountSpentCents, d.Currency) + " of " + centsText(d.SpendingLimitCents, d.Currency),
	}
}

func stateOfPayment(s toll.TransactionStatus) *state {
	switch s {
	case toll.TransactionSucceeded:
		return &state{string(s), "good"}
	case toll.TransactionFailed:
		return &state{string(s), "bad"}
	}
	return &state{string(s), "warn"}
}

func changeDelegation(v *visit) {
	id := v.param("delegation")
	v.finish(func() (outcome, error) {
		out := outcome{To: v.to("delegations", id)}
		var err error
		switch v.form.Get("act") {
		case "revoke":
			out.Done = "The delegation is revoked."
			_, err = v.w.API.RevokeDelegation(v.acting(), id)
		case "unfreeze":
			out.Done = "The delegation may pay again."
			_, err = v.w.API.UnfreezeDelegation(v.acting(), id)
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func listCards(v *visit) {
	methods, err := v.w.API.PaymentMethods(v.acting())
	if v.failed("payment method", err) {
		return
	}
	t := &table{
		Caption: "Cards", Head: []column{{Text: "Card"}, {Text: "Number"}, {Text: "State"}, {Text: "Valid until"}},
		Empty: &empty{Icon: "credit-card", Title: "No cards yet", Text: "Enrol a card, and delegations can pay plans with it. The service never sees its number.", Command: "toll cards enroll --help"},
	}
	for _, m := range methods {
		if m.Type != toll.PaymentCard {
			continue
		}
		t.Rows = append(t.Rows, []cell{
			{Text: methodName(m), To: v.to("cards", m.ID)}, {Text: "…" + plain.Name(m.Last4)}, {State: stateOf(m.Status)}, {Text: validUntil(m)},
		})
	}
	s := sheet{Lead: "Cards with which delegations of this workspace pay.", Table: t}
	switch {
	case v.w.Cards == nil:
		s.Note = "This service takes no cards."
	case v.person.Rights.Has(toll.RightSpend):
		s.begin("Enrol a card", PathEnroll)
	}
	v.sheet("Cards", s)
}

func validUntil(m toll.PaymentMethod) string {
	if m.ExpMonth == 0 {
		return "not known"
	}
	return time.Date(int(m.ExpYear), time.Month(m.ExpMonth), 1, 0, 0, 0, 0, time.UTC).Format("01/2006")
}

// card returns the card of the page. It has answered when ok is false.
func card(v *visit) (m toll.PaymentMethod, ok bool) {
	methods, err := v.w.API.PaymentMethods(v.acting())
	if v.failed("card", err) {
		return m, false
	}
	for _, m := range methods {
		if m.ID == v.param("card") && m.Type == toll.PaymentCard {
			return m, true
		}
	}
	v.missing("card")
	return m, false
}

func showCard(v *visit) {
	m, ok := card(v)
	if !ok {
		return
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: m.ID}}, {"Card", cell{Text: plain.Name(m.Brand) + " …" + plain.Name(m.Last4)}}, {"State", cell{State: stateOf(m.Status)}},
		{"Valid until", cell{Text: validUntil(m)}}, {"May be used by", cell{Text: "every API key"}},
	}}
	if m.AllowedAPIKeyIDs != nil && len(*m.AllowedAPIKeyIDs) > 0 {
		s.Facts[4].cell = cell{Text: count(int64(len(*m.AllowedAPIKeyIDs)), "API key")}
	}
	if m.Status == toll.StatusActive && v.person.Rights.Has(toll.RightSpend) {
		name := ""
		if m.Alias != nil {
			name = *m.Alias
		}
		s.Acts = []dialog{
			v.dialogOf("name", "Name the card", "", field{Name: "alias", Label: "Name", Value: name, Max: 100}),
			v.dangerOf("remove", "Remove the card", "It pays nothing from now on. The delegations on it end, with their access tokens."),
		}
	}
	v.sheet(methodName(m), s)
}

func changeCard(v *visit) {
	m, ok := card(v)
	if !ok {
		return
	}
	v.finish(func() (outcome, error) {
		switch v.form.Get("act") {
		case "name":
			_, err := v.w.API.UpdatePaymentMethod(v.acting(), m.ID, client.PaymentMethodUpdate{Alias: toll.SetTo(v.text("alias"))})
			return outcome{To: v.to("cards", m.ID), Done: "The card is named."}, err
		case "remove":
			return outcome{To: v.to("cards"), Done: "The card is removed."}, v.w.API.RemovePaymentMethod(v.acting(), m.ID)
		}
		return outcome{}, toll.NewError(toll.CodeBadRequest)
	})
}

// custodyTexts say who has the key of a wallet.
var custodyTexts = map[toll.Custody]string{
	toll.CustodyService:  "the service alone has the key",
	toll.CustodyShared:   "the key was exported: anybody who has it can move the money as well",
	toll.CustodyExternal: "you alone have the key: the service cannot make it pay, and cannot export it",
}

func showWallet(v *visit) {
	w, err := v.w.API.Wallet(v.acting())
	if v.failed("wallet", err) {
		return
	}
	s := sheet{
		Lead: "The account of this workspace on the chain. Crypto plans are paid from it, and sales to it.",
		Facts: []fact{
			{"Address", cell{ID: w.Address.String()}}, {"Network", cell{Text: w.Network}}, {"Custody", cell{Text: custodyTexts[w.Custody]}},
		},
	}
	for _, b := range w.Balances {
		s.Stats = append(s.Stats, stat{Label: b.Symbol, Value: grouped(toll.FormatAmount(b.Amount, int(b.Decimals)))})
	}
	if len(w.Balances) == 0 {
		s.Note = "The chain cannot be read now, so the balances are not known."
	}
	if w.ExportedAt != nil {
		s.Facts = append(s.Facts, fact{"Exported", cell{At: w.ExportedAt.Time}})
	}
	if w.Explorer != nil {
		s.Links = []link{{Text: "Open the explorer", To: *w.Explorer, Plain: true}}
	}
	if v.w.Environment != toll.Live && v.person.Rights.Has(toll.RightSpend) && len(w.Balances) > 0 {
		s.Acts = append(s.Acts, v.dialogOf("faucet", "Fill it from the faucet", "Money of the sandbox, which is worth nothing: 100 USDC, 100 EURC and 0.1 ETH."))
	}
	if w.Custody == toll.CustodyService && v.person.HasName() && v.person.Rights.Has(toll.RightExport) {
		s.Acts = append(s.Acts, v.dangerOf("export", "Export the private key",
			"The key is shown once. Anybody who has it can move the money, for ever. The service keeps it as well, and cannot take it back."))
	}
	v.sheet("Wallet", s)
}

func useWallet(v *visit) {
	export := v.form.Get("act") == "export"
	if export && !hasProof(v, "The private key moves the money of this workspace. Prove first that it is you: the proof counts for ten minutes.") {
		return
	}
	v.finish(func() (outcome, error) {
		out := outcome{To: v.to("wallet")}
		switch {
		case export:
			key, err := v.w.API.ExportWallet(v.acting())
			if err != nil {
				return out, err
			}
			out.Done, out.Secret = "The private key is exported.", &secret{"The private key", key.PrivateKey}
			return out, nil
		case v.form.Get("act") == "faucet":
			_, err := v.w.API.Faucet(v.acting(), client.FaucetParams{})
			out.Done = "The money is in the wallet."
			return out, err
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
