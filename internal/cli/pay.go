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

// payFlags go with toll call --pay, and say what it may spend.
var payFlags = []flag{
	{"wallet-key-file", "keyFile", word, "file with the private key of a wallet that pays tokens; default TOLL_WALLET_KEY"},
	{"max-price", "price", money(evm.Decimals), "most that the call may cost in a token, in whole units, with --pay; default 1.00"},
	{"max-price-per-day", "priceDay", money(evm.Decimals), "the same for all calls of a day; default 10.00"},
	{"max-credits-per-day", "creditsDay", credits, fmt.Sprintf("most credits that all calls of a day may cost, with --pay; "+
		"default %d, and %d without --plan", planCreditsPerDay, payCreditsPerDay)},
	{"delegation-id", "delegation", word, "delegation that buys credits of --plan when they are short, with --pay: one order at most, at the price of the plan"},
}

// Limits with --pay that hold unless a flag says otherwise.
const (
	payCreditsPerCall = 100
	payCreditsPerDay  = 1000  // when any plan may pay
	planCreditsPerDay = 10000 // when the caller names the plan
)

func (f *callFlags) check() error {
	if f.plan() != "" && f.token != "" {
		return usagef("give --plan or --token, not both")
	}
	for _, p := range payFlags {
		if !f.pay && f.in[p.member] != nil {
			return usagef("--%s goes with --pay", p.name)
		}
	}
	if f.pay && f.token != "" {
		return usagef("give --pay or --token, not both")
	}
	if f.in["delegation"] != nil && f.plan() == "" {
		return usagef("--delegation-id goes with --plan: a server must not choose what it buys")
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

// payingTransport returns the transport that pays for a call to this url, and tells of each payment that has ended.
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
		return nil, usagef("there is nothing to pay with: sign in with toll login, or give --wallet-key-file")
	}
	f.sayDefaults(a, limits, a.set.key != "", key != nil)
	return client.NewTransport(&filePurse{path: path, limits: limits, now: time.Now, closed: closed}, payers...), nil
}

// sayDefaults tells which limits hold that the caller has not chosen: those of credits when any plan may pay, and those of a wallet.
func (f *callFlags) sayDefaults(a *app, l client.Limits, credits, wallet bool) {
	if a.asJSON() {
		return
	}
	if credits && f.plan() == "" && (f.in["credits"] == nil || f.in["creditsDay"] == nil) {
		a.say("note", "without --plan any of your plans may pay: "+
			"at most %s for this call, %s in 24 hours", l.CreditsPerCall.Text(), l.Credits.Text())
	}
	if wallet && (f.in["price"] == nil || f.in["priceDay"] == nil) {
		a.say("note", "the wallet may pay at most %s USDC or EURC for this call, %s of each in 24 hours",
			toll.FormatAmount(l.MoneyPerCall, evm.Decimals), toll.FormatAmount(l.Money, evm.Decimals))
	}
}

// mayBeTaken tells of a payment that the server can take although it was not seen to be taken.
func mayBeTaken(con *console, p client.Payment) {
	if p.State != client.PaymentUnknown || con.asJSON() {
		return
	}
	switch {
	case p.Authorization != nil:
		con.say("note", "%s %s count as spent for 24 hours, as the server has an authorization; "+
			"when that has ended, toll payments check --rpc URL asks the chain",
			amountIn(p.Unit, p.Most), p.Unit)
	case p.Permission != nil:
		con.say("note", "%s count as spent for 24 hours, as the server can still take them; "+
			"toll payments check asks the service", count(p.Most.String(), "credit"))
	}
}

// walletKey reads the key of a wallet, nil when there is none. Its text is in no error.
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
		return nil, usagef("the key of the wallet is not 64 hexadecimal digits")
	}
	return key, nil
}

// money is an amount in whole units.
func money(decimals int) kind {
	return kind{name: "amount", read: func(_ *app, flag string, given []string) (any, error) {
		text := given[len(given)-1]
		n, err := toll.ParseAmount(text, decimals)
		if err != nil {
			return nil, usagef("--%s is an amount in whole units with at most %d decimals, such as 0.05, and not %.40q", flag, decimals, text)
		}
		return n, nil
	}}
}

// unpaid reports a call that asked for payment and has no answer.
func explainUnpaid(con *console, e *client.PaymentError) error {
	if e.Sent {
		con.say("hint", "Do not repeat the call without a look at toll payments list: it may have been paid.")
		return fmt.Errorf("a payment was sent, and its outcome is not known: %w", cause(e.Reason))
	}
	for line := range strings.Lines(e.Reason.Error()) {
		con.say("not paid", "%s", strings.TrimSpace(line))
	}
	con.say("hint", "--max-credits and --max-price are the limits of a call, --max-credits-per-day and --max-price-per-day those of 24 hours; "+
		"toll payments list shows what counts.")
	return printed(exitPayment)
}
