package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/evm"
)

// payFlags limit the spending of toll call --pay.
var payFlags = []flag{
	{"wallet-key-file", "keyFile", word, "file with the private key of the wallet that pays in tokens; default the key in TOLL_WALLET_KEY"},
	{"max-price", "price", money(evm.Decimals), "with --pay: maximum price of the call in USDC or EURC, such as 0.05; default 1.00"},
	{"max-price-per-day", "priceDay", money(evm.Decimals), "with --pay: maximum price of all calls in 24 hours; default 10.00"},
	{"max-credits-per-day", "creditsDay", credits, fmt.Sprintf("with --pay: maximum credits of all calls in 24 hours; "+
		"default %d, and %d without --plan", planCreditsPerDay, payCreditsPerDay)},
	{"delegation-id", "delegation", delegationID,
		"with --pay: delegation that buys missing credits of --plan, with at most one order at the price of the plan"},
}

// Limits with --pay that hold unless a flag says otherwise.
const (
	payCreditsPerCall = 100
	payCreditsPerDay  = 1000  // when any plan may pay
	planCreditsPerDay = 10000 // when the caller names the plan
)

func (f *callFlags) check() error {
	if f.plan() != "" && f.token != "" {
		return usagef("set --plan or --token, not both")
	}
	for _, p := range payFlags {
		if !f.pay && f.in[p.member] != nil {
			return usagef("--%s needs --pay", p.name)
		}
	}
	if f.pay && f.token != "" {
		return usagef("set --pay or --token, not both")
	}
	if f.in["delegation"] != nil && f.plan() == "" {
		return usagef("--delegation-id needs --plan: the server must not choose the plan to buy")
	}
	return nil
}

// limits bound what a call to this host may cost.
func (f *callFlags) limits(host string) client.Limits {
	perDay := toll.Credits(payCreditsPerDay)
	if f.plan() != "" {
		perDay = planCreditsPerDay
	}
	price := func(member string, otherwise int64) toll.Units {
		if n, ok := f.in[member].(toll.Units); ok {
			return n
		}
		return toll.UnitsOf(otherwise)
	}
	return client.Limits{
		Hosts: []string{host}, CreditsPerCall: last[toll.Credits](f.in, "credits", payCreditsPerCall),
		Credits: last(f.in, "creditsDay", perDay), MoneyPerCall: price("price", 1_000_000), Money: price("priceDay", 10_000_000),
	}
}

// payingTransport returns the transport that pays for a call to this URL. It calls closed for each payment that has ended.
func payingTransport(a *app, to *url.URL, f callFlags, closed func(client.Payment)) (http.RoundTripper, error) {
	path, err := pursePath(&a.console)
	if err != nil {
		return nil, err
	}
	host := client.HostOf(to)
	limits := f.limits(host)
	var payers []client.Payer
	if a.set.key != "" {
		payer := a.client().Payer()
		if plan := f.plan(); plan != "" {
			payer = a.client().Payer(plan).At(host) // the caller names both
		}
		if id := value[string](f.in, "delegation"); id != "" {
			payer = payer.Topped(id)
		}
		payers = append(payers, payer)
	}
	key, err := walletKey(&a.console, value[string](f.in, "keyFile"))
	if err != nil {
		return nil, err
	}
	if key != nil {
		payers = append(payers, evm.NewWallet(key))
	}
	if len(payers) == 0 {
		return nil, usagef("no means of payment: sign in with toll login, or set --wallet-key-file")
	}
	f.sayDefaults(a, limits, a.set.key != "", key != nil)
	return client.NewTransport(&filePurse{path: path, limits: limits, now: time.Now, closed: closed}, payers...), nil
}

// sayDefaults prints the default limits that apply: for credits if any plan may pay, and for a wallet.
func (f *callFlags) sayDefaults(a *app, l client.Limits, credits, wallet bool) {
	if a.asJSON() || a.set.output == formatQuiet {
		return
	}
	if credits && f.plan() == "" && (f.in["credits"] == nil || f.in["creditsDay"] == nil) {
		a.say("note", "without --plan, any of your plans may pay: "+
			"at most %s for this call and %s in 24 hours", l.CreditsPerCall.Text(), l.Credits.Text())
	}
	if wallet && (f.in["price"] == nil || f.in["priceDay"] == nil) {
		a.say("note", "the wallet may pay at most %s USDC or EURC for this call, and %s of each token in 24 hours",
			toll.FormatAmount(l.MoneyPerCall, evm.Decimals), toll.FormatAmount(l.Money, evm.Decimals))
	}
}

// mayBeTaken prints a note about a payment whose outcome is unknown, because the server can still take it.
func mayBeTaken(con *console, p client.Payment) {
	if p.State != client.PaymentUnknown || con.asJSON() {
		return
	}
	switch {
	case p.Authorization != nil:
		con.say("note", "%s %s count as spent for 24 hours because the server has a signed authorization; "+
			"after the authorization expires, check the chain with toll payments check --rpc URL",
			amountIn(p.Unit, p.Most), p.Unit)
	case p.Permission != nil:
		con.say("note", "%s count as spent for 24 hours because the server can still take them; "+
			"check with toll payments check", count(p.Most.String(), "credit"))
	}
}

// walletKey reads the key of a wallet, nil if none is set. Errors never contain the key.
func walletKey(con *console, file string) (*evm.Key, error) {
	text := con.getenv("TOLL_WALLET_KEY")
	if file != "" {
		var err error
		if text, err = readKey("wallet key", file); err != nil {
			return nil, err
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	key, err := evm.ParseKey(text)
	if err != nil {
		return nil, usagef("the key of the wallet must be 64 hexadecimal digits")
	}
	return key, nil
}

// money is an amount in whole units.
func money(decimals int) kind {
	return kind{name: "amount", read: func(_ *app, flag string, given []string) (any, error) {
		text := given[len(given)-1]
		n, err := toll.ParseAmount(text, decimals)
		if err != nil {
			return nil, usagef("--%s must be an amount with at most %d decimals, such as 0.05; got %.40q", flag, decimals, text)
		}
		return n, nil
	}}
}

// explainUnpaid reports a call that required a payment and has no response.
func explainUnpaid(con *console, e *client.PaymentError) error {
	if e.Sent {
		con.say("hint", "The call may have been paid: check toll payments list before you repeat it.")
		return fmt.Errorf("a payment was sent, and its outcome is unknown: %w", cause(e.Reason))
	}
	for line := range strings.Lines(e.Reason.Error()) {
		con.say("not paid", "%s", strings.TrimSpace(line))
	}
	con.say("hint", "--max-credits and --max-price limit a call; --max-credits-per-day and --max-price-per-day limit all calls in 24 hours. "+
		"toll payments list shows the payments that count toward the limits.")
	return printed(exitPayment)
}
