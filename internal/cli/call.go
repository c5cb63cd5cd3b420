package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

const (
	callTokenLife = 5 * time.Minute
	callTime      = 2 * time.Minute // default timeout of a call
)

type callFlags struct {
	method, data, token string
	headers             []string
	timeout             time.Duration
	pay                 bool
	in                  body // the others, by their names
}

func (f *callFlags) plan() toll.PlanID { return value[toll.PlanID](f.in, "plan") }

func callCommand(a *app) *cobra.Command {
	var f callFlags
	c := command("call URL", "Call a paid URL", nil)
	c.Long = `Call a paid URL. The response goes to stdout, the receipt to stderr. With -q, the command prints no receipt.

With --plan, the command creates an access token for this call only. With --token, it uses an existing access token.

With --pay, the command first sends the request without payment, and then pays the x402 price that the server requires, within your
limits. It pays with credits of your plans or, if you provide a wallet key, with ERC-20 tokens (scheme exact). toll payments list shows
these payments. Without any of these flags, the command sends no payment and shows the price that the server requires.

With --pay, the command spends credits only if an agent of the plan has an endpoint on the called server. If no endpoint of these
agents names a host, set --plan. Without --plan, the command may use any of your plans, within lower limits, which it shows. The
command does not pay a server for a resource on another host.`
	c.Example = `toll call https://agent.example.com/ask --plan 4474 --data '{"prompt":"hello"}'
toll call https://api.example.org/report --pay --wallet-key-file wallet.key --max-price 0.05`
	fl := c.Flags()
	fl.StringVarP(&f.method, "method", "X", "", "HTTP method; default GET, or POST with --data")
	fl.StringVarP(&f.data, "data", "d", "", "request body; @path reads it from a file, - from stdin")
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "additional header, as 'name: value'")
	fl.StringVar(&f.token, "token", "", "access token to pay with; - reads it from stdin, @path from a file")
	fl.DurationVar(&f.timeout, "timeout", callTime, "timeout of the whole call")
	fl.BoolVar(&f.pay, "pay", false, "pay the price that the server requires, within limits")
	named := append(payFlags,
		flag{"plan", "plan", planID, "plan whose credits pay for the call"},
		flag{"agent-id", "agent", agentID, "restrict the access token to one agent"},
		flag{"max-credits", "credits", credits, "maximum credits for the call; default the maximum per request of the plan, or 100 with --pay"})
	inputs := a.inputs(c, named)
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.in, err = inputs(); err != nil {
			return err
		}
		if err := a.resolveFlags(cmd.Context(), named, f.in); err != nil {
			return err
		}
		return callURL(cmd.Context(), a, args[0], f)
	}
	return c
}

func callURL(ctx context.Context, a *app, address string, f callFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := callRequest(ctx, &a.console, address, f)
	if err != nil {
		return err
	}
	h := callClient()
	var unit string // of what was paid
	if f.pay {
		closed := func(p client.Payment) {
			unit = p.Unit
			mayBeTaken(&a.console, p)
		}
		if h.Transport, err = payingTransport(a, req.URL, f, closed); err != nil {
			return err
		}
	} else {
		token, err := callToken(ctx, a, f)
		if err != nil {
			return err
		}
		if token != "" {
			req.Header.Set(x402.HeaderSignature, token)
		}
	}
	res, err := h.Do(req)
	if unpaid, ok := errors.AsType[*client.PaymentError](err); ok {
		return explainUnpaid(&a.console, unpaid)
	}
	if err != nil {
		return noAnswer(err)
	}
	defer res.Body.Close()
	return callAnswer(a, res, unit, func(p x402.PaymentRequired) string { return hintOf(a, p) })
}

// noAnswer describes the error of a call without a response.
func noAnswer(err error) error {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("the request was not sent: %w", cause(err))
	}
	return fmt.Errorf("the call failed, and its outcome is unknown: %w", err)
}

// callClient follows no redirect: a redirect would carry the token to another address, and the response would come from there.
func callClient() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func callRequest(ctx context.Context, con *console, address string, f callFlags) (*http.Request, error) {
	var content io.Reader
	kind := "text/plain; charset=utf-8"
	method := strings.ToUpper(f.method)
	if f.data != "" {
		data, _, err := con.argument(f.data, false)
		if err != nil {
			return nil, err
		}
		if json.Valid(data) {
			kind = "application/json"
		}
		content = bytes.NewReader(data)
		method = cmp.Or(method, http.MethodPost)
	}
	if _, err := httpURL(address); err != nil {
		return nil, usagef("URL %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(method, http.MethodGet), address, content)
	if err != nil {
		return nil, usageError{err}
	}
	req.Header.Set("User-Agent", "toll-cli/"+release())
	if content != nil {
		req.Header.Set("Content-Type", kind)
	}
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usagef("--header must be in the form 'name: value'")
		}
		req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return req, nil
}

func callToken(ctx context.Context, a *app, f callFlags) (string, error) {
	if f.token != "" {
		return a.textArgument(f.token)
	}
	plan := f.plan()
	if plan == "" {
		return "", nil
	}
	opts := []client.TokenOption{client.WithExpiry(callTokenLife)}
	if agent := value[toll.AgentID](f.in, "agent"); agent != "" {
		opts = append(opts, client.WithAgent(agent))
	}
	c := a.client()
	if f.in["credits"] != nil {
		opts = append(opts, client.WithRedemptionLimit(last[toll.Credits](f.in, "credits", 0)))
	} else {
		// The token goes to a server that may keep it; what it can burn is one request.
		terms, err := c.Terms(ctx, plan)
		if err != nil {
			return "", err
		}
		if terms.Kind.Charges() {
			opts = append(opts, client.WithRedemptionLimit(terms.MaxAmount))
		}
	}
	t, err := c.AccessToken(ctx, plan, opts...)
	if err != nil {
		return "", err
	}
	return t.AccessToken, nil
}

// callAnswer shows a response. unit is the unit of its payment, "" if unknown. hint returns the next step after a 402.
func callAnswer(a *app, res *http.Response, unit string, hint func(x402.PaymentRequired) string) error {
	if res.StatusCode >= 300 {
		return callRefused(a, res, unit, hint)
	}
	if _, err := io.Copy(a.out, res.Body); err != nil {
		return fmt.Errorf("the response was cut off: %w", err)
	}
	if a.set.output == formatQuiet {
		return nil
	}
	if !hasReceipt(&a.console, res.Header) {
		if unit == "" {
			a.say("note", "the server required no payment and sent no receipt")
			return nil
		}
		a.say("note", "the server sent no receipt")
		return nil
	}
	showReceipt(&a.console, res.Header, unit)
	return nil
}

// hasReceipt reports whether a response has a receipt, or the id of a request whose receipt follows.
func hasReceipt(con *console, h http.Header) bool {
	return h.Get(x402.HeaderResponse) != "" || h.Get(con.set.names.HeaderRequestID()) != ""
}

// showReceipt prints the cost of the call. A receipt does not name the unit of its amount: unit is the unit of the payment, "" if unknown.
func showReceipt(con *console, h http.Header, unit string) {
	value := h.Get(x402.HeaderResponse)
	if value == "" {
		if id := h.Get(con.set.names.HeaderRequestID()); id != "" {
			con.say("receipt", "request %s: see toll x402 settlement %s", id, id)
		}
		return
	}
	var s x402.SettleResponse
	if err := x402.DecodeHeader(value, &s); err != nil {
		con.say("warning", "the receipt cannot be read")
		return
	}
	if con.asJSON() {
		if b, err := x402.Encode(&s); err == nil {
			fmt.Fprintln(con.err, string(b))
		}
		return
	}
	if !s.Success {
		con.say("not paid", "%s", cmp.Or(s.ErrorMessage, s.ErrorReason))
		return
	}
	if s.CreditsRedeemed == nil && s.Amount != nil {
		con.say("receipt", "%s, transaction %s", taken(*s.Amount, unit), s.Transaction)
		return
	}
	none := new(toll.Credits)
	con.say("receipt", "%s, %s left, transaction %s", cmp.Or(s.CreditsRedeemed, none).Text(), cmp.Or(s.RemainingBalance, none), s.Transaction)
}

// taken is the amount of a receipt that speaks of no credits: base units of a token, or of whatever else the server took.
func taken(amount toll.Credits, unit string) string {
	switch unit {
	case "":
		return "amount " + amount.String()
	case x402.UnitCredits:
		return amount.Text()
	}
	return amountIn(unit, toll.UnitsOf(int64(amount))) + " " + unit
}

// hintOf names the next step after a 402 whose error begins with a reason word.
func hintOf(a *app, p x402.PaymentRequired) string {
	n := a.set.names
	plan := ""
	if len(p.Accepts) > 0 {
		plan = cmp.Or(p.Accepts[0].PlanID, p.Accepts[0].Extra.PlanID)
		a.about("PLAN", plan)
	}
	byCard := len(p.Accepts) > 0 && p.Accepts[0].Scheme == n.SchemeCard()
	switch word, _, _ := strings.Cut(p.Error, ":"); word {
	case x402.ReasonPaymentDeclined, x402.ReasonPaymentUnavailable:
		return "toll delegations list shows which delegations are Frozen and which card each charges; toll cards list shows the cards."
	case x402.ReasonDelegationNotFound, x402.ReasonDelegationRevoked, x402.ReasonDelegationExpired, x402.ReasonDelegationExhausted,
		x402.ReasonDelegationShort, x402.ReasonOrderLimit:
		return a.withIDs("toll delegations list shows the remaining limits. Create a delegation with toll delegations create, and then " +
			"an access token that uses this delegation with toll tokens create PLAN --delegation-id.")
	case x402.ReasonInsufficientFunds, x402.ReasonPlanExpired:
		if byCard {
			return a.withIDs("toll plans checkout PLAN shows the card payment page. To buy credits within a limit on a card, " +
				"create a delegation with toll delegations create, then use toll call with --pay and --delegation-id.")
		}
		return a.withIDs(
			"Get more credits with toll plans order PLAN. If the plan has a price, your wallet pays it.",
		)
	case x402.ReasonExactBalance:
		return "The balance of your wallet is below the price. Add funds to the wallet."
	case x402.ReasonRedemptionLimit, n.ReasonExpired(), n.ReasonRevoked(), n.ReasonSignature(), n.ReasonUnknown():
		return a.withIDs("Create a new access token with toll tokens create PLAN.")
	}
	if len(p.Accepts) > 0 && p.Accepts[0].Scheme == x402.SchemeExact {
		return "To pay from a wallet, use toll call with --pay and --wallet-key-file."
	}
	if len(p.Accepts) > 0 {
		return "The server accepts plan " + plan + ": to pay with your credits, use toll call with --plan " + plan + "."
	}
	return "To pay with credits of a plan, use toll call with --plan."
}

// pageOfCall is the page on which a person can pay instead, as a 402 names it, "" when it does not.
func pageOfCall(a *app, p x402.PaymentRequired) string {
	page := pageIn(at(p.Extensions[a.set.names.PlanExtension()], "info.checkoutUrl"))
	if page != "" && !isPageOf(page, a.client().URL()) {
		a.say("warning", "the payment page is not on %s: check the address of the page before you pay", a.client().URL())
	}
	return page
}

// isPageOf reports whether the URL of a page lies below the URL of the service. The names of this machine count as one.
func isPageOf(page, service string) bool {
	p, err1 := url.Parse(page)
	s, err2 := url.Parse(service)
	if err1 != nil || err2 != nil || p.Scheme != s.Scheme || p.Port() != s.Port() || p.User != nil {
		return false
	}
	sameHost := strings.EqualFold(p.Hostname(), s.Hostname()) || toll.IsLoopback(p.Hostname()) && toll.IsLoopback(s.Hostname())
	return sameHost && strings.HasPrefix(p.Path, strings.TrimSuffix(s.Path, "/")+"/")
}

// callRefused reports a response that is not a success. Its body is not data, so it goes to stderr.
func callRefused(a *app, res *http.Response, unit string, hint func(x402.PaymentRequired) string) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxArgument))
	if err != nil {
		return fmt.Errorf("the response was cut off: %w", err)
	}
	if a.asJSON() && json.Valid(text) {
		var b bytes.Buffer
		if json.Indent(&b, text, "", "  ") == nil {
			fmt.Fprintln(a.err, b.String())
		}
		return printed(exitOfStatus(res.StatusCode))
	}
	a.say("response", "%s", res.Status)
	var p x402.PaymentRequired
	if value := res.Header.Get(x402.HeaderRequired); value != "" && x402.DecodeHeader(value, &p) == nil {
		a.say("refused", "%s", cmp.Or(p.Error, "Payment required"))
		for _, r := range p.Accepts {
			if r.Scheme == x402.SchemeExact {
				a.say("requires", "%s to %s (%s on %s)", tokenAmount(r), r.PayTo, r.Scheme, r.Network)
				continue
			}
			most := cmp.Or(r.Amount, "?") + " credits"
			if n, err := toll.ParseCredits(r.Amount); err == nil {
				most = n.Text()
			}
			a.say("requires", "at most %s of plan %s (%s on %s)", most, cmp.Or(r.PlanID, r.Extra.PlanID), r.Scheme, r.Network)
		}
		if page := pageOfCall(a, p); page != "" {
			a.say("hint", "%s", pageHint)
			a.say("page", "%s", page)
		} else {
			a.say("hint", "%s", hint(p))
		}
		showReceipt(&a.console, res.Header, unit)
		return printed(exitOfStatus(res.StatusCode))
	}
	for line := range bytes.Lines(bytes.TrimSpace(text)) {
		a.say("", "  %s", bytes.TrimRight(line, "\r\n"))
	}
	code := exitOfStatus(res.StatusCode)
	if code == exitDone {
		return errors.New("the server returned an unexpected status")
	}
	return printed(code)
}

// tokenAmount returns the amount of an entry of scheme exact, in whole units for a token that is known on its network.
func tokenAmount(r x402.Requirements) string {
	amount, err := toll.ParseUnits(r.Amount)
	token, unknown := toll.ParseAddress(r.Asset)
	for _, e := range []toll.Environment{toll.Sandbox, toll.Live} {
		if err != nil || unknown != nil || r.Network != e.Network() {
			continue
		}
		switch token {
		case e.USDC():
			return amountIn(toll.CurrencyUSDC, amount) + " " + toll.CurrencyUSDC
		case e.EURC():
			return amountIn(toll.CurrencyEURC, amount) + " " + toll.CurrencyEURC
		}
	}
	return fmt.Sprintf("%s base units of the token %s", cmp.Or(r.Amount, "?"), r.Asset)
}
