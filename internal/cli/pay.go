package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/evm"
)

// payFlags say what toll call --pay may spend.
type payFlags struct {
	on              bool
	keyFile         string
	creditsDay      string
	price, priceDay string
	delegation      string
	names           []string // of flags that say something about paying
	flags           *pflag.FlagSet
}

func (p *payFlags) add(fl *pflag.FlagSet) {
	p.flags = fl
	fl.BoolVar(&p.on, "pay", false, "pay what the server asks for, within limits")
	fl.StringVar(&p.keyFile, "wallet-key-file", "", "file with the private key of a wallet that pays tokens; default TOLL_WALLET_KEY")
	fl.StringVar(&p.price, "max-price", "1.00", "most that the call may cost in a token, in whole units, with --pay")
	fl.StringVar(&p.priceDay, "max-price-per-day", "10.00", "the same for all calls of a day")
	fl.StringVar(&p.creditsDay, "max-credits-per-day", "", "most credits that all calls of a day "+
		"may cost, with --pay; default "+planCreditsPerDay+", and "+payCreditsPerDay+" without --plan")
	fl.StringVar(&p.delegation, "delegation-id", "", "delegation that buys credits of --plan when they are short, with --pay: one order at most, at the price of the plan")
	p.names = []string{"wallet-key-file", "max-price", "max-price-per-day", "max-credits-per-day", "delegation-id"}
}

// Limits of credits with --pay that hold unless a flag says otherwise.
const (
	payCreditsPerCall = "100"
	payCreditsPerDay  = "1000"  // when any plan may pay
	planCreditsPerDay = "10000" // when the caller names the plan
)

func (p *payFlags) check(f callFlags) error {
	if !p.on {
		for _, name := range p.names {
			if p.flags.Changed(name) {
				return usagef("--%s goes with --pay", name)
			}
		}
		return nil
	}
	if f.token != "" {
		return usagef("give --pay or --token, not both")
	}
	if p.delegation != "" && f.plan == "" {
		return usagef("--delegation-id goes with --plan: a server must not choose what it buys")
	}
	return nil
}

// payingTransport returns the transport that pays for a call to this url, and tells of each payment that has ended.
func (a *app) payingTransport(to *url.URL, f callFlags, closed func(client.Payment)) (http.RoundTripper, error) {
	limits, err := f.pay.limits(f)
	if err != nil {
		return nil, err
	}
	path, err := a.pursePath()
	if err != nil {
		return nil, err
	}
	host := client.HostOf(to)
	limits.Hosts = []string{host}
	var payers []client.Payer
	if a.set.key != "" {
		var plans []toll.PlanID
		if f.plan != "" {
			plan, err := toll.ParsePlanID(f.plan)
			if err != nil {
				return nil, flagError("plan", err)
			}
			plans = []toll.PlanID{plan}
		}
		payer := a.client().Payer(plans...)
		if f.plan != "" {
			payer = payer.At(host) // the caller names both
		}
		if f.pay.delegation != "" {
			payer = payer.Topped(f.pay.delegation)
		}
		payers = append(payers, payer)
	}
	key, err := a.walletKey(f.pay.keyFile)
	if err != nil {
		return nil, err
	}
	if key != nil {
		payers = append(payers, evm.NewWallet(key))
	}
	if len(payers) == 0 {
		return nil, usagef("there is nothing to pay with: sign in with toll login, or give --wallet-key-file")
	}
	f.pay.sayDefaults(a, f, &limits, a.set.key != "", key != nil)
	return client.NewTransport(&filePurse{path: path, limits: limits, now: time.Now, closed: closed}, payers...), nil
}

// sayDefaults tells which limits hold that the caller has not chosen: those of credits when any
// plan may pay, and those of a wallet.
func (p *payFlags) sayDefaults(a *app, f callFlags, l *client.Limits, credits, wallet bool) {
	if a.asJSON() {
		return
	}
	if credits && f.plan == "" && (f.limit == "" || p.creditsDay == "") {
		a.say("note", "without --plan any of your plans may pay: "+
			"at most %s for this call, %s in 24 hours", l.CreditsPerCall.Text(), l.Credits.Text())
	}
	if wallet && !(p.flags.Changed("max-price") && p.flags.Changed("max-price-per-day")) {
		call, day := l.MoneyPerCall, l.Money
		a.say("note", "the wallet may pay at most %s USDC or EURC for this call, %s of each in 24 hours",
			toll.FormatAmount(call, evm.Decimals), toll.FormatAmount(day, evm.Decimals))
	}
}

// mayBeTaken tells of a payment that the server can take although it was not seen to be taken.
func (a *app) mayBeTaken(p client.Payment) {
	if p.State != client.PaymentUnknown || a.asJSON() {
		return
	}
	switch {
	case p.Authorization != nil:
		a.say("note", "%s %s count as spent for 24 hours, as the server has an authorization; "+
			"when that has ended, toll payments check --rpc URL asks the chain",
			amountIn(p.Unit, p.Most), p.Unit)
	case p.Permission != nil:
		a.say("note", "%s count as spent for 24 hours, as the server can still take them; "+
			"toll payments check asks the service", creditsText(p.Most))
	}
}

func creditsText(n toll.Units) string {
	c, err := toll.ParseCredits(n.String())
	if err != nil {
		return n.String() + " credits"
	}
	return c.Text()
}

// walletKey reads the key of a wallet, nil when there is none. Its text is in no error.
func (a *app) walletKey(file string) (*evm.Key, error) {
	text := a.getenv("TOLL_WALLET_KEY")
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

func (p *payFlags) limits(f callFlags) (client.Limits, error) {
	var l client.Limits
	perDay := payCreditsPerDay
	if f.plan != "" {
		perDay = planCreditsPerDay
	}
	for _, n := range []struct {
		flag, value string
		into        *toll.Credits
	}{
		{"max-credits", cmp.Or(f.limit, payCreditsPerCall), &l.CreditsPerCall},
		{"max-credits-per-day", cmp.Or(p.creditsDay, perDay), &l.Credits},
	} {
		var err error
		if *n.into, err = toll.ParseCredits(n.value); err != nil {
			return l, flagError(n.flag, err)
		}
	}
	for _, n := range []struct {
		flag, value string
		into        *toll.Units
	}{{"max-price", p.price, &l.MoneyPerCall}, {"max-price-per-day", p.priceDay, &l.Money}} {
		var err error
		if *n.into, err = wholeUnits(n.flag, n.value, evm.Decimals); err != nil {
			return l, err
		}
	}
	return l, nil
}

// wholeUnits reads the value of a flag that is an amount in whole units.
func wholeUnits(flag, value string, decimals int) (toll.Units, error) {
	n, err := toll.ParseAmount(value, decimals)
	if err != nil {
		return n, usagef("--%s is an amount in whole units with at most %d decimals, such as 0.05, and not %.40q", flag, decimals, value)
	}
	return n, nil
}

// unpaid reports a call that asked for payment and has no answer.
func (a *app) unpaid(e *client.PaymentError) error {
	if e.Sent {
		a.say("hint", "Do not repeat the call without a look at toll payments list: it may have been paid.")
		return fmt.Errorf("a payment was sent, and its outcome is not known: %w", cause(e.Reason))
	}
	for line := range strings.Lines(e.Reason.Error()) {
		a.say("not paid", "%s", strings.TrimSpace(line))
	}
	a.say("hint", "--max-credits and --max-price are the limits of a call, --max-credits-per-day and --max-price-per-day those of 24 hours; "+
		"toll payments list shows what counts.")
	return printed(exitPayment)
}
