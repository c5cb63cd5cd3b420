package workspace

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

func listDelegations(c *page.Context) (page.View, error) {
	delegations, err := page.ListOf[*toll.Delegation](c, list.Delegations, url.Values{})
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	of := list.Delegations.Show("delegationId", "provider", "status", "amountSpentCents", "spendingLimitCents", "expiresAt")
	t := page.TableOf(c, of, "delegation", delegations, func(d *toll.Delegation, cell page.Cells) {
		cell["delegationId"].To, *cell["provider"] = c.To("delegations", d.DelegationID), page.Cell{Text: paysFrom(d)}
	})
	t.Empty = &page.Empty{
		Icon: "hand-coins", Title: "No delegations yet", Text: "A delegation lets access tokens buy plans automatically, up to a spending limit.", To: "", Button: "",
		Command: "toll delegations create --help",
	}
	s := page.Record{Lead: "Delegations let access tokens order plans again automatically, up to a spending limit.", Table: t}
	if c.Person.Rights.Has(toll.RightSpend) {
		s.Begin("Create delegation", c.To("delegations", "new"))
	}
	return c.Record("Delegations", s)
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
		name = "This workspace's wallet"
	}
	if m.Alias != nil && *m.Alias != "" {
		name = plain.Name(*m.Alias) + ": " + name
	}
	return name
}

func askDelegation(c *page.Context) (page.View, error) {
	methods, err := c.API.PaymentMethods(c.Acting(), client.Accessible())
	if err != nil {
		return nil, c.Failed("payment method", err)
	}
	from := page.Field{Name: "method", Label: "Pays from", Members: []string{"providerPaymentMethodId", "provider"}}
	for _, m := range methods {
		if m.Type == toll.PaymentWallet && c.Person.External() {
			continue
		}
		from.Options = append(from.Options, page.Option{Value: string(m.Provider) + " " + m.ID, Text: methodName(m)})
	}
	if len(from.Options) == 0 {
		return c.Record("Create delegation", page.Record{
			Note:  "This workspace has no card, and the service cannot pay from its wallet because only you have the key. Enroll a card first.",
			Links: []page.Link{{Text: "Enroll card", To: page.PathEnroll}},
		})
	}
	f := c.FormOf("make", "Create delegation", page.Group{Fields: []page.Field{
		from,
		{Name: "limit", Label: "Spending limit", Value: "10.00", Mode: "decimal", Hint: "The highest total that the delegation can spend.", Members: []string{"spendingLimitCents"}},
		{Name: "currency", Label: "Currency", Options: []page.Option{
			{Value: "", Text: "US dollars (USDC or USD)"}, {Value: "eur", Text: "Euros (EURC or EUR)"},
		}},
		{Name: "ends", Label: "Expires", Options: tokenLives, Value: "2592000", Members: []string{"durationSecs"}},
		{Name: "plan", Label: "Plan (optional)", Max: 80, Hint: "Enter the id of a plan to restrict the delegation to it. Leave empty to allow all plans.", Members: []string{"planId"}},
		{Name: "orders", Label: "Maximum orders (optional)", Mode: "numeric", Hint: "Leave empty for no limit.", Members: []string{"maxTransactions"}},
	}})
	f.Cancel = c.To("delegations")
	return c.Record("Create delegation", page.Record{Lead: "Nothing is charged now. An access token with this delegation orders its plan again when the credits run out.", Forms: []*page.Form{f}})
}

func makeDelegation(c *page.Context) (page.View, error) {
	return c.Finish(func() (page.Outcome, error) {
		life, err1 := seconds(c, "ends", tokenLives)
		cents, err2 := cents(c, "limit")
		orders, err3 := number(c, "orders")
		if err := page.Together(err1, err2, err3); err != nil {
			return page.Outcome{}, err
		}
		provider, method, _ := strings.Cut(c.Form.Get("method"), " ")
		in := client.DelegationParams{
			Provider: toll.Provider(provider), SpendingLimit: cents, Lifetime: life, PlanID: toll.PlanID(c.Text("plan")), MaxTransactions: int64(orders),
		}
		euro := c.Form.Get("currency") == "eur"
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
		d, err := c.API.CreateDelegation(c.Once(), in)
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{To: c.To("delegations", d.DelegationID), Done: "Delegation created."}, nil
	})
}

func showDelegation(c *page.Context) (page.View, error) {
	d, err := c.API.Delegation(c.Acting(), c.Param("delegation"))
	if err != nil {
		return nil, c.Failed("delegation", err)
	}
	payments, err := page.ListOf[*toll.DelegationTransaction](c, list.DelegationTransactions.Under(d.DelegationID), url.Values{})
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	s := page.Record{
		Facts: []page.Fact{
			{Label: "ID", Cell: page.Cell{ID: d.DelegationID}}, {Label: "Status", Cell: page.Cell{State: page.StateOf(d.Status)}}, {Label: "Pays from", Cell: page.Cell{Text: paysFrom(d)}},
			{Label: "Left", Cell: page.Cell{Text: centsText(d.RemainingBudgetCents, d.Currency)}}, {Label: "Plan", Cell: page.Cell{Text: "all plans"}}, {Label: "Created", Cell: page.At(d.CreatedAt.Time)},
			{Label: "Last used", Cell: page.AtOr(d.LastUsedAt, "never")}, {Label: "Expires", Cell: page.Cell{At: d.ExpiresAt.Time}},
		},
		Bars: []page.Bar{spentOf("Spent", d)},
	}
	if payments.Total > 0 {
		s.Links = file(c, "delegation-payments", url.Values{"delegation": {d.DelegationID}})
	}
	if d.PlanID != nil {
		s.Facts[4].Cell = page.Cell{ID: string(*d.PlanID)}
	}
	if d.MaxTransactions != nil {
		s.Bars = append(s.Bars, page.Bar{Label: "Orders", Value: d.TransactionCount, Max: *d.MaxTransactions, Text: page.Count(d.TransactionCount, "order") + " of " + page.Count(*d.MaxTransactions, "order")})
	}
	of := list.DelegationTransactions.Show("orderId", "status", "amountCents", "createdAt")
	t := page.TableOf(c, of, "payment", payments, func(p *toll.DelegationTransaction, cell page.Cells) {
		cell["orderId"].To = c.To("orders", p.OrderID)
		if p.FailureReason != nil {
			cell["status"].Sub = plain.Name(*p.FailureReason)
		}
	})
	t.Empty = &page.Empty{Icon: "receipt", Title: "No payments yet", Text: "Orders paid with this delegation appear here."}
	s.Parts = []page.Part{{Title: "Payments", Table: t}}
	if c.Person.Rights.Has(toll.RightSpend) {
		switch d.Status {
		case toll.StatusFrozen:
			s.Note = "This delegation is frozen because the card was declined three times in a row or a payment is disputed."
			s.Acts = []page.Dialog{c.DialogOf("unfreeze", "Unfreeze", "The delegation can pay again. You cannot unfreeze it while a payment is disputed.")}
			fallthrough
		case toll.StatusActive, toll.StatusPending:
			s.Acts = append(s.Acts, c.DangerOf("revoke", "Revoke", "The delegation can no longer pay. Access tokens that use it are revoked too."))
		}
	}
	return c.Record("Delegation "+page.Short(d.DelegationID), s)
}

// spentOf returns the bar that shows how much of its limit a delegation spent.
func spentOf(label string, d *toll.Delegation) page.Bar {
	return page.Bar{
		Label: label, Value: int64(d.AmountSpentCents), Max: int64(d.SpendingLimitCents),
		Text: centsText(d.AmountSpentCents, d.Currency) + " of " + centsText(d.SpendingLimitCents, d.Currency),
	}
}

func changeDelegation(c *page.Context) (page.View, error) {
	id := c.Param("delegation")
	return c.Finish(func() (page.Outcome, error) {
		out := page.Outcome{To: c.To("delegations", id)}
		var err error
		switch c.Form.Get("act") {
		case "revoke":
			out.Done = "Delegation revoked."
			_, err = c.API.RevokeDelegation(c.Acting(), id)
		case "unfreeze":
			out.Done = "Delegation unfrozen."
			_, err = c.API.UnfreezeDelegation(c.Acting(), id)
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func (w *pages) listCards(c *page.Context) (page.View, error) {
	methods, err := c.API.PaymentMethods(c.Acting())
	if err != nil {
		return nil, c.Failed("payment method", err)
	}
	methods = slices.DeleteFunc(methods, func(m toll.PaymentMethod) bool { return m.Type != toll.PaymentCard })
	of := list.PaymentMethods.And(list.Text("expires")).Show("alias", "last4", "status", "expires")
	t := page.TableOf(c, of, "card", page.List[toll.PaymentMethod]{Items: methods}, func(m toll.PaymentMethod, cell page.Cells) {
		*cell["alias"] = page.Cell{Text: methodName(m), To: c.To("cards", m.ID)}
		cell["last4"].Text, cell["expires"].Text = "…"+plain.Name(m.Last4), validUntil(m)
	})
	t.Empty = &page.Empty{Icon: "credit-card", Title: "No cards yet", Text: "Enroll a card so that delegations can pay with it. The service never sees the card number.", Command: "toll cards enroll --help"}
	s := page.Record{Lead: "Cards that the delegations of this workspace can charge.", Table: t}
	switch {
	case !w.Cards:
		s.Note = "Card payments are not available."
	case c.Person.Rights.Has(toll.RightSpend):
		s.Begin("Enroll card", page.PathEnroll)
	}
	return c.Record("Cards", s)
}

func validUntil(m toll.PaymentMethod) string {
	if m.ExpMonth == 0 {
		return "unknown"
	}
	return time.Date(int(m.ExpYear), time.Month(m.ExpMonth), 1, 0, 0, 0, 0, time.UTC).Format("01/2006")
}

// card returns the card of the page.
func card(c *page.Context) (m toll.PaymentMethod, err error) {
	methods, err := c.API.PaymentMethods(c.Acting())
	if err != nil {
		return m, c.Failed("card", err)
	}
	for _, m := range methods {
		if m.ID == c.Param("card") && m.Type == toll.PaymentCard {
			return m, nil
		}
	}
	return m, c.Missing("card")
}

func showCard(c *page.Context) (page.View, error) {
	m, err := card(c)
	if err != nil {
		return nil, err
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: m.ID}}, {Label: "Card", Cell: page.Cell{Text: plain.Name(m.Brand) + " …" + plain.Name(m.Last4)}}, {Label: "Status", Cell: page.Cell{State: page.StateOf(m.Status)}},
		{Label: "Valid until", Cell: page.Cell{Text: validUntil(m)}}, {Label: "Available to", Cell: page.Cell{Text: "all API keys"}},
	}}
	if m.AllowedAPIKeyIDs != nil && len(*m.AllowedAPIKeyIDs) > 0 {
		s.Facts[4].Cell = page.Cell{Text: page.Count(int64(len(*m.AllowedAPIKeyIDs)), "API key")}
	}
	if m.Status == toll.StatusActive && c.Person.Rights.Has(toll.RightSpend) {
		name := ""
		if m.Alias != nil {
			name = *m.Alias
		}
		s.Acts = []page.Dialog{
			c.DialogOf("name", "Rename card", "", page.Field{Name: "alias", Label: "Name", Value: name, Max: 100}),
			c.DangerOf("remove", "Remove card", "The card can no longer pay. The delegations that use the card, and their access tokens, are revoked."),
		}
	}
	return c.Record(methodName(m), s)
}

func changeCard(c *page.Context) (page.View, error) {
	m, err := card(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		switch c.Form.Get("act") {
		case "name":
			_, err := c.API.UpdatePaymentMethod(c.Acting(), m.ID, client.PaymentMethodUpdate{Alias: toll.SetTo(c.Text("alias"))})
			return page.Outcome{To: c.To("cards", m.ID), Done: "Card renamed."}, err
		case "remove":
			return page.Outcome{To: c.To("cards"), Done: "Card removed."}, c.API.RemovePaymentMethod(c.Acting(), m.ID)
		}
		return page.Outcome{}, toll.NewError(toll.CodeBadRequest)
	})
}

// custodyTexts describe the custody of the key of a wallet.
var custodyTexts = map[toll.Custody]string{
	toll.CustodyService:  "only the service has the key",
	toll.CustodyShared:   "the key was exported: anyone with a copy can move the money too",
	toll.CustodyExternal: "only you have the key: the service cannot pay from this wallet or export its key",
}

func showWallet(c *page.Context) (page.View, error) {
	w, err := c.API.Wallet(c.Acting())
	if err != nil {
		return nil, c.Failed("wallet", err)
	}
	s := page.Record{
		Lead: "The blockchain wallet of this workspace. It pays for crypto plans and receives crypto payments for your own plans.",
		Facts: []page.Fact{
			{Label: "Address", Cell: page.Cell{ID: w.Address.String()}}, {Label: "Network", Cell: page.Cell{Text: w.Network}}, {Label: "Custody", Cell: page.Cell{Text: custodyTexts[w.Custody]}},
		},
	}
	for _, b := range w.Balances {
		s.Stats = append(s.Stats, page.Stat{Label: b.Symbol, Value: page.Grouped(toll.FormatAmount(b.Amount, int(b.Decimals)))})
	}
	if len(w.Balances) == 0 {
		s.Note = "Balances are not available because the chain cannot be read right now."
	}
	if w.ExportedAt != nil {
		s.Facts = append(s.Facts, page.Fact{Label: "Exported", Cell: page.Cell{At: w.ExportedAt.Time}})
	}
	if w.Explorer != nil {
		s.Links = []page.Link{{Text: "View in explorer", To: *w.Explorer, Plain: true}}
	}
	if c.Environment != toll.Live && c.Person.Rights.Has(toll.RightSpend) && len(w.Balances) > 0 {
		s.Acts = append(s.Acts, c.DialogOf("faucet", "Get test money", "Adds sandbox money without real value: 100 USDC, 100 EURC, and 0.1 ETH."))
	}
	if w.Custody == toll.CustodyService && c.Person.HasName() && c.Person.Rights.Has(toll.RightExport) {
		s.Acts = append(s.Acts, c.DangerOf("export", "Export private key",
			"You can see the key only once. Anyone with a copy can move the money at any time. The service keeps the key too, and you cannot undo the export."))
	}
	return c.Record("Wallet", s)
}

func useWallet(c *page.Context) (page.View, error) {
	export := c.Form.Get("act") == "export"
	if export {
		if err := page.NeedProof(c, "The private key can move the money of this workspace. First, confirm that it is you. The confirmation is valid for ten minutes."); err != nil {
			return nil, err
		}
	}
	return c.Finish(func() (page.Outcome, error) {
		out := page.Outcome{To: c.To("wallet")}
		switch {
		case export:
			key, err := c.API.ExportWallet(c.Acting())
			if err != nil {
				return out, err
			}
			out.Done, out.Secret = "Private key exported.", &page.Secret{Label: "Private key", Text: key.PrivateKey}
			return out, nil
		case c.Form.Get("act") == "faucet":
			_, err := c.API.Faucet(c.Acting(), client.FaucetParams{})
			out.Done = "Test money added to the wallet."
			return out, err
		}
		return out, toll.NewError(toll.CodeBadRequest)
	})
}
