package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/x402"
)

const (
	devText = "The service records each paid call as an entry in the ledger. An entry on disk is never lost and never counted twice. The " +
		"ledger holds credits, the agent does its work, and the ledger burns the credits. A repeated call gets the same response."
	devTokenHours = 1
)

// stage prints the demonstration.
type stage struct {
	out    io.Writer
	colour bool
	step   int
}

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	green = lipgloss.NewStyle().Foreground(lipgloss.Green)
	red   = lipgloss.NewStyle().Foreground(lipgloss.Red)
)

func (s *stage) style(text string, as lipgloss.Style) string {
	if !s.colour {
		return text
	}
	return as.Render(text)
}

func (s *stage) title(text string) { fmt.Fprintf(s.out, "\n%s\n\n", s.style(text, bold)) }

func (s *stage) heading(text string) {
	s.step++
	s.title(fmt.Sprintf("%d  %s", s.step, text))
}

// facts prints names and values, aligned.
func (s *stage) facts(pairs ...string) {
	var width int
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(s.out, "   %s  %s\n", s.style(pairs[i]+strings.Repeat(" ", width-len(pairs[i])), faint), pairs[i+1])
	}
}

// during prints a line before it calls start, and another when a part of the demo is ready.
func (s *stage) during(part, text string, start func() error) error {
	part = fmt.Sprintf("%-12s", part)
	s.facts(part, text)
	began := time.Now()
	err := start()
	if err == nil {
		s.facts(part, fmt.Sprintf("ready after %.1f s", time.Since(began).Seconds()))
	}
	return err
}

func (s *stage) block(text string) {
	fmt.Fprintf(s.out, "   %s\n", strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   "))
}

func (s *stage) status(res *answer) {
	paint := red
	if res.status < 300 {
		paint = green
	}
	fmt.Fprintf(s.out, "   %s\n", s.style(fmt.Sprintf("%d %s", res.status, http.StatusText(res.status)), paint))
}

// answer is what the agent said.
type answer struct {
	status  int
	body    []byte
	terms   x402.PaymentRequired // what it asks for
	receipt x402.SettleResponse
}

// ask calls the agent at an address. An empty token pays nothing.
func (m *market) ask(ctx context.Context, url, token string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(devText))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	if token != "" {
		req.Header.Set(x402.HeaderSignature, token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	out := &answer{status: res.StatusCode}
	if out.body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	for name, into := range map[string]any{x402.HeaderRequired: &out.terms, x402.HeaderResponse: &out.receipt} {
		if v := res.Header.Get(name); v != "" {
			err = errors.Join(err, x402.DecodeHeader(v, into))
		}
	}
	return out, err
}

// demonstrate shows paid and refused calls. It returns an error if a step does not have the result that it shows, so that the
// demonstration is also a test.
func demonstrate(ctx context.Context, m *market, s *stage) error {
	s.title("A demo on this machine: a service, a builder, a paid agent, and a subscriber")
	s.facts(
		"service", m.url()+"   docs "+m.url()+"/docs",
		"pages", m.url()+"/w/"+m.builder.address.String()+"   sign in as bob or alice, with the password "+m.password,
		"agent", "POST "+m.agentURL()+"   text statistics, 1 credit per 200 characters, rounded up",
		"plan", string(m.planID)+"   100 credits for 1.00 USDC",
		"agent id", string(m.agentID),
		"card plan", string(m.cardPlan)+"   "+toll.Credits(devCardCredits).Text()+" for 5.00 USD, at "+m.cardURL(),
		"chain", m.chain(),
		"cards", "a test double of Stripe in this process   "+m.service.Cards().Double(),
		"builder", m.builder.address.String()+"   owns the plan and the agent",
		"subscriber", m.subscriber.address.String()+"   buys the plan",
		"data", m.dir,
	)
	for _, act := range []func(context.Context, *stage) error{
		m.showUnpaid, m.showOrder, m.showPaid, m.showBroke, m.showPage, m.showTopUp, m.showDeclined,
	} {
		if err := act(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// refused calls the agent and shows its 402. worked is the number of calls for which the agent has worked.
func (m *market) refused(ctx context.Context, s *stage, heading, url, token string, worked int32) (*x402.PaymentRequired, error) {
	s.heading(heading)
	res, err := m.ask(ctx, url, token)
	if err != nil {
		return nil, err
	}
	s.status(res)
	if res.status != http.StatusPaymentRequired || len(res.terms.Accepts) == 0 || m.worked.Load() != worked {
		return nil, fmt.Errorf("the call without payment returned status %d", res.status)
	}
	return &res.terms, nil
}

func (m *market) showUnpaid(ctx context.Context, s *stage) error {
	asks, err := m.refused(ctx, s, "A call without payment returns the price", m.agentURL(), "", 0)
	if err != nil {
		return err
	}
	r := asks.Accepts[0]
	s.facts("error", asks.Error, "scheme", r.Scheme+" on "+r.Network, "amount", "at most "+r.Amount+" "+r.Asset,
		"pay to", r.PayTo, "plan", shortID(cmp.Or(r.PlanID, r.Extra.PlanID)), "resource", asks.Resource.URL)
	return nil
}

func (m *market) showPaid(ctx context.Context, s *stage) error {
	s.heading("The subscriber creates an access token, and the same call is paid")
	token, err := m.token(ctx, m.subscriber)
	if err != nil {
		return err
	}
	before, err := m.subscriber.client.Balance(ctx, m.planID)
	if err != nil {
		return err
	}
	s.facts("access token", shortToken(token.AccessToken), "permission", token.PermissionHash.String(), "balance before", before.Balance.Text())
	fmt.Fprintln(s.out)
	res, err := m.ask(ctx, m.agentURL(), token.AccessToken)
	if err != nil {
		return err
	}
	s.status(res)
	s.block(string(res.body))
	after, err := m.subscriber.client.Balance(ctx, m.planID)
	if err != nil {
		return err
	}
	r := res.receipt
	if res.status != http.StatusOK || !r.Success || r.CreditsRedeemed == nil || r.Extra == nil || m.worked.Load() != 1 {
		return fmt.Errorf("the paid call returned status %d", res.status)
	}
	fmt.Fprintln(s.out)
	s.facts("receipt", r.CreditsRedeemed.Text(), "transaction", r.Transaction, "request", r.Extra.AgentRequestID, "balance after", after.Balance.Text())
	if *r.CreditsRedeemed < 1 || before.Balance-after.Balance != *r.CreditsRedeemed {
		return errors.New("the change of the balance does not match the receipt")
	}
	return nil
}

func (m *market) showBroke(ctx context.Context, s *stage) error {
	token, err := m.token(ctx, m.visitor)
	if err != nil {
		return err
	}
	asks, err := m.refused(ctx, s, "A visitor without credits is refused, and the agent does not run", m.agentURL(), token.AccessToken, 1)
	if err == nil {
		s.facts("error", asks.Error, "agent ran", "once, for the paid call")
	}
	return err
}

func (m *market) token(ctx context.Context, p person) (*toll.AccessToken, error) {
	return p.client.AccessToken(ctx, m.planID, client.WithAgent(m.agentID), client.WithExpiry(devTokenHours*time.Hour))
}

// showCommands prints commands. The access token in the first one and the keys that the others read are made for this market only.
func (m *market) showCommands(ctx context.Context, s *stage) error {
	token, err := m.token(ctx, m.subscriber)
	if err != nil {
		return err
	}
	s.title("Paste these commands into another terminal, in this directory")
	access := fmt.Sprintf(" --url %s --api-key-file %s", m.url(), quote(m.subscriber.keyFile))
	if n := m.service.Namespace(); n != x402.Default {
		access += " --namespace " + n.String()
	}
	for _, c := range []struct{ what, line string }{
		{"a paid call with an access token that is valid for an hour", fmt.Sprintf("curl -sS -X POST %s -H 'content-type: text/plain' -H '%s: %s' --data %s",
			m.agentURL(), x402.HeaderSignature, token.AccessToken, quote("Any text will do. Try your own!"))},
		{"the same with the command line, which creates a token and shows the receipt", fmt.Sprintf("%s call %s --plan %s --data %s%s",
			program(), m.agentURL(), m.planID, quote("Any text will do. Try your own!"), access)},
		{"the page on which you pay for the plan in dollars, with the test card " + devCard,
			fmt.Sprintf("%s plans checkout %s%s", program(), m.cardPlan, access)},
		{"a call that buys this plan within the limit on the card if credits are short", fmt.Sprintf("%s call %s --pay --plan %s --delegation-id %s --data %s%s",
			program(), m.cardURL(), m.cardPlan, m.cardLimit, quote("Any text will do. Try your own!"), access)},
		{"the remaining balance", fmt.Sprintf("%s plans balance %s%s", program(), m.planID, access)},
	} {
		fmt.Fprintf(s.out, "%s\n%s\n\n", s.style("# "+c.what, faint), c.line)
	}
	return nil
}

func shortID(id string) string {
	return id[:min(5, len(id))] + "…" + id[max(0, len(id)-5):]
}

func shortToken(t string) string {
	return fmt.Sprintf("%s…%s   %d characters, for this plan and agent, valid for an hour", t[:min(24, len(t))], t[max(0, len(t)-6):], len(t))
}

const (
	devFunds      = "5"       // whole USDC that the faucet gives
	devPrice      = 1_000_000 // base units of USDC that the plan costs
	devLimitCents = 300       // of the delegation
	devLimitTime  = time.Hour
	devChainWait  = time.Minute // until the chain runs
)

// chain describes where the chain runs.
func (m *market) chain() string {
	text := fmt.Sprintf("in this process, id %d", m.service.Environment().ChainID())
	if url := m.service.Chain().URL(); url != "" {
		text += "   JSON-RPC " + url
	}
	return text
}

// awaitChain returns when the chain runs: reading a wallet needs it.
func (m *market) awaitChain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devChainWait)
	defer cancel()
	for {
		w, err := m.subscriber.client.Wallet(ctx)
		if err != nil {
			return err
		}
		if len(w.Balances) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the embedded chain did not start; --log-level info shows more")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// showOrder has the subscriber buy the plan on the chain, through a delegation.
func (m *market) showOrder(ctx context.Context, s *stage) error {
	s.heading("The subscriber buys the plan on the chain, through a delegation")
	subscriber := m.subscriber
	if _, err := subscriber.client.Faucet(ctx, client.FaucetParams{USDC: devFunds}); err != nil {
		return err
	}
	d, err := subscriber.client.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCrypto, Currency: "usdc", SpendingLimit: devLimitCents, Lifetime: devLimitTime,
	})
	if err != nil {
		return err
	}
	before, err := m.holdings(ctx)
	if err != nil {
		return err
	}
	s.facts("faucet", devFunds+".00 USDC for the wallet "+subscriber.address.String(), "delegation", d.DelegationID+"   the service may spend 3.00 USDC within an hour")
	fmt.Fprintln(s.out)
	start := time.Now()
	order, err := subscriber.client.OrderPlan(ctx, m.planID, client.PaidBy(d.DelegationID))
	if err != nil {
		return err
	}
	took := time.Since(start)
	if order, err = subscriber.client.WaitOrder(ctx, order.OrderID); err != nil {
		return err
	}
	tx, err := toll.ParseHash(order.TxHash)
	if err != nil {
		return fmt.Errorf("the order has no transaction: %w", err)
	}
	block, err := m.service.Chain().BlockOf(ctx, tx)
	if err != nil {
		return fmt.Errorf("the transaction of the order is not on the chain: %w", err)
	}
	after, err := m.holdings(ctx)
	if err != nil {
		return err
	}
	change := func(before, after toll.Units) string {
		return toll.FormatAmount(before, usdcDecimals) + " USDC  ->  " + toll.FormatAmount(after, usdcDecimals) + " USDC"
	}
	s.facts("order", fmt.Sprintf("%s   %s after %d ms", order.OrderID, order.Status, took.Milliseconds()),
		"transaction", tx.String(), "block", fmt.Sprint(block), "credits", order.CreditsGranted.Text(),
		"subscriber", change(before.subscriber, after.subscriber), "builder", change(before.builder, after.builder))
	price := big.NewInt(devPrice)
	paid := new(big.Int).Sub(before.subscriber.Int(), after.subscriber.Int())
	got := new(big.Int).Sub(after.builder.Int(), before.builder.Int())
	if paid.Cmp(price) != 0 || got.Cmp(price) != 0 {
		return fmt.Errorf("the plan costs %s, the subscriber paid %s, and the builder got %s", price, paid, got)
	}
	return nil
}

// holdings are balances of wallets, in base units of USDC.
type holdings struct{ subscriber, builder toll.Units }

func (m *market) holdings(ctx context.Context) (h holdings, err error) {
	for p, into := range map[*person]*toll.Units{&m.subscriber: &h.subscriber, &m.builder: &h.builder} {
		w, err := p.client.Wallet(ctx)
		if err != nil {
			return h, err
		}
		i := slices.IndexFunc(w.Balances, func(b toll.TokenBalance) bool { return b.Symbol == toll.CurrencyUSDC })
		if i < 0 {
			return h, errors.New("the balances of the wallet cannot be read")
		}
		*into = w.Balances[i].Amount
	}
	return h, nil
}

const (
	devCardPrice   = 5_000_000 // of the plan in dollars, with six decimals
	devCardCredits = 5
	devCardLimit   = 1200 // cents, of the delegation

	// Test cards.
	devCard       = "4242 4242 4242 4242"
	devAskingCard = "4000 0025 0000 3155" // its bank asks for the owner when it is enrolled
	devPoorCard   = "4000 0000 0000 0341" // it is enrolled, and declined when it is charged
)

// showPage has the subscriber buy the plan in dollars on its page.
func (m *market) showPage(ctx context.Context, s *stage) error {
	s.heading("Another plan costs 5.00 USD: a person pays by card, on a payment page")
	page, err := m.subscriber.client.Checkout(ctx, m.cardPlan, client.CheckoutParams{SessionType: "hosted"})
	if err != nil {
		return err
	}
	s.facts("page", page.Result.URL, "card", devCard+"   entered on the page of the test double")
	if err := m.service.Cards().FillPage(ctx, page.OrderID, devCard); err != nil {
		return err
	}
	order, err := m.subscriber.client.WaitOrder(ctx, page.OrderID)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out)
	s.facts("order", order.OrderID+"   "+string(order.Status), "credits", order.CreditsGranted.Text())
	if order.Status != toll.OrderConfirmed {
		return fmt.Errorf("the order that was paid on the page has the status %s", order.Status)
	}
	return nil
}

// limited enrols a test card of a person, and returns an access token that may charge it.
func (m *market) limited(ctx context.Context, p person, number string) (delegation string, token *toll.AccessToken, err error) {
	card, err := m.service.Cards().FillEnrolment(ctx, p.address, number)
	if err != nil {
		return "", nil, err
	}
	d, err := p.client.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCard, PaymentMethodID: card, Currency: "usd", SpendingLimit: devCardLimit, Lifetime: devLimitTime,
	})
	if err != nil {
		return "", nil, err
	}
	token, err = p.client.AccessToken(ctx, m.cardPlan, client.WithAgent(m.cardAgent), client.WithDelegation(d.DelegationID), client.WithExpiry(devTokenHours*time.Hour))
	return d.DelegationID, token, err
}

// showTopUp has calls spend the credits until one buys more of them.
func (m *market) showTopUp(ctx context.Context, s *stage) error {
	s.heading("A call that is short of credits buys more automatically, within a limit on the card")
	delegation, token, err := m.limited(ctx, m.subscriber, devAskingCard)
	if err != nil {
		return err
	}
	m.cardLimit = delegation
	s.facts("card", devAskingCard+"   enrolled once, with 3-D Secure",
		"delegation", delegation+"   the service may charge 12.00 USD within an hour", "access token", shortToken(token.AccessToken))
	for range 2 {
		fmt.Fprintln(s.out)
		res, err := m.ask(ctx, m.cardURL(), token.AccessToken)
		if err != nil {
			return err
		}
		s.status(res)
		r := res.receipt
		if res.status != http.StatusOK || !r.Success || r.CreditsRedeemed == nil {
			return fmt.Errorf("the call that is paid by card returned status %d", res.status)
		}
		after, err := m.subscriber.client.Balance(ctx, m.cardPlan)
		if err != nil {
			return err
		}
		s.facts("receipt", r.CreditsRedeemed.Text(), "balance after", after.Balance.Text())
	}
	d, err := m.subscriber.client.Delegation(ctx, delegation)
	if err != nil {
		return err
	}
	s.facts("charged", list.CentsToWhole(d.AmountSpentCents.String())+" USD, "+list.CentsToWhole(d.RemainingBudgetCents.String())+" USD of the limit remain")
	if d.AmountSpentCents != 500 {
		return errors.New("the second call did not buy the plan exactly once")
	}
	return nil
}

// showDeclined has the bank decline a card, as the agent and its caller see it.
func (m *market) showDeclined(ctx context.Context, s *stage) error {
	_, token, err := m.limited(ctx, m.visitor, devPoorCard)
	if err != nil {
		return err
	}
	worked := m.worked.Load()
	asks, err := m.refused(ctx, s, "A visitor's card is declined: the agent does not run, and nothing is charged", m.cardURL(), token.AccessToken, worked)
	if err == nil {
		s.facts("card", devPoorCard, "error", asks.Error, "scheme", asks.Accepts[0].Scheme, "agent ran", fmt.Sprintf("%d times, for the paid calls", worked))
	}
	if err == nil && asks.Accepts[0].Scheme != cmp.Or(m.service.Namespace(), x402.Default).SchemeCard() {
		err = errors.New("the response of the agent does not offer card payment")
	}
	return err
}
