package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
)

const (
	stripeKey  = "sk_test_scene0123456789abcdef"
	hookSecret = "whsec_scene0123456789abcdef"
)

// bank is toll card-double as a process, in the place of Stripe.
type bank struct {
	*testing.T
	url, listen, file string
	hooks             []string // addresses of webhooks
	cmd               *exec.Cmd
	exited            chan struct{}
	log               *servertest.Log
}

func newBank(t *testing.T, hooks ...string) *bank {
	t.Helper()
	file := filepath.Join(t.TempDir(), "double.json")
	b := &bank{T: t, listen: servertest.FreeAddress(t), file: file, hooks: hooks}
	b.url = "http://" + b.listen
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *bank) start() {
	b.Helper()
	args := []string{"card-double", "--listen", b.listen, "--file", b.file, "--secret-key", stripeKey}
	for _, u := range b.hooks {
		args = append(args, "--webhook", u, "--webhook-secret", hookSecret)
	}
	b.cmd = exec.Command(servertest.Program(b.T), args...)
	b.exited, b.log = make(chan struct{}), &servertest.Log{}
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	must.Do(b, b.cmd.Start())
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(b.cmd, b.exited)
	eventually(b.T, "the double answers", func() bool {
		select {
		case <-b.exited:
			b.Fatalf("toll card-double has ended:\n%s", b.log)
		default:
		}
		res, err := http.Get(b.url + "/dahlia/stripe.js")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return true
	})
}

func (b *bank) kill() {
	_ = b.cmd.Process.Kill() // it may have ended
	<-b.exited
}

// call sends a command of an operator to the double.
func (b *bank) call(method, path string, in, out any) error {
	body := &bytes.Buffer{}
	if in != nil {
		if err := json.NewEncoder(body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(b.Context()), method, b.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+stripeKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %d %s, %w", method, path, res.StatusCode, text, err)
	}
	return json.Unmarshal(text, out)
}

// post asks the API for a new object.
func (b *bank) post(path string, form url.Values) (made struct {
	ID   string
	Card struct{ Last4, Fingerprint string }
}) {
	b.Helper()
	servertest.PostForm(b.T, b.url+"/v1/"+path, stripeKey, form, &made)
	return made
}

// fault is a command to the double.
func (b *bank) fault(f double.Fault) {
	b.Helper()
	must.Do(b, b.call(http.MethodPost, "/_double/faults", f, new(any)))
}

func (b *bank) books() (books double.Books) {
	b.Helper()
	must.Do(b, b.call(http.MethodGet, "/_double/books", nil, &books))
	return books
}

// cashier is a service whose card rail asks a bank, and a plan of 100 credits for 5.00 USD.
type cashier struct {
	*testing.T
	o        servertest.Options
	bank     *bank
	services []*servertest.Process
	builder  toll.APIKey
	operator toll.APIKey
	plan     toll.PlanID
	program  string // in the place of toll
	orphans  bool   // payments that no order explains are no fault
}

// newCashier starts n processes on a database.
func newCashier(t *testing.T, o servertest.Options, n int, args ...string) *cashier {
	t.Helper()
	dir := t.TempDir()
	o.Listen = servertest.FreeAddress(t)
	secrets := filepath.Join(dir, "hook.secret")
	must.Do(t, os.WriteFile(secrets, []byte(hookSecret+"\n"), 0o600))
	c := &cashier{T: t, bank: newBank(t, "http://"+o.Listen+"/api/v1/fiat/stripe/webhook")}
	o.Args = append([]string{"--stripe-url", c.bank.url, "--stripe-webhook-secret-file", secrets}, args...)
	o.Env = append(o.Env, "TOLL_STRIPE_SECRET_KEY="+stripeKey)
	o.Args = append(o.Args, "--public-url", "http://"+o.Listen) // where the shoppers have their cookies
	c.o = o
	c.builder = servertest.Key(t, o, "builder")
	c.operator = servertest.Key(t, o, "operator", "--operator")
	t.Cleanup(c.audit)
	for i := range n {
		c.services = append(c.services, nil)
		c.start(i)
	}
	c.plan = c.sells(toll.CreditsDynamic(100, 1, 100))
	return c
}

// start starts a process of the service: the first one listens where webhooks arrive.
func (c *cashier) start(i int) {
	c.Helper()
	o := c.o
	if i > 0 {
		o.Listen = ""
	}
	c.services[i] = servertest.StartProgram(c.T, cmp.Or(c.program, servertest.Program(c.T)), o)
}

func (c *cashier) as(k toll.APIKey, opts ...client.Option) *client.Client {
	return c.services[0].Client(k.Key, append([]client.Option{servertest.Patient}, opts...)...)
}

// hasty returns a client without retries.
func (c *cashier) hasty(k toll.APIKey, process int) *client.Client {
	return c.services[process].Client(k.Key, client.WithRetries(0))
}

func (c *cashier) sells(credits toll.CreditsConfig) toll.PlanID {
	c.Helper()
	price := must.Get(toll.PriceFiat(toll.UnitsOf(5_000_000), c.builder.Address, "USD"))(c)
	r := must.Get(c.as(c.builder).RegisterPlan(c.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Five dollars"}, Price: price, Credits: credits,
	}))(c)
	return r.PlanID
}

// shops makes a buyer with an enrolled card.
func (c *cashier) shops(name, number string) (k toll.APIKey, method string) {
	c.Helper()
	k = servertest.Key(c.T, c.o, name)
	return k, c.enrolled(k, number)
}

// enrolled writes the records of an enrolled card of a buyer. The pages would limit how many cards
// an account and an address enrol in ten minutes.
func (c *cashier) enrolled(k toll.APIKey, number string) (method string) {
	c.Helper()
	customer := c.bank.post("customers", nil).ID
	card := c.bank.post("payment_methods/"+testCards[number]+"/attach", url.Values{"customer": {customer}})
	id, now := toll.NewUUID(), time.Now()
	st := c.store()
	defer st.Close()
	must.Get(insist(func() (any, error) {
		return nil, st.Tx(c.Context(), func(tx *store.Tx) error {
			err := store.PutCardMethod(c.Context(), tx, &store.CardMethod{
				Owner:       k.Address,
				ID:          id,
				StripeID:    card.ID,
				Customer:    customer,
				Fingerprint: card.Card.Fingerprint,
				CheckedAt:   now,
			})
			if err != nil {
				return err
			}
			return store.PutPaymentMethod(c.Context(), tx, &store.PaymentMethod{
				Owner:     k.Address,
				ID:        id,
				Provider:  toll.ProviderCard,
				Brand:     "visa",
				Last4:     card.Card.Last4,
				ExpMonth:  12,
				ExpYear:   2034,
				CreatedAt: now,
			})
		})
	}))(c)
	return id
}

// testCards are what the double calls the numbers of its cards.
var testCards = map[string]string{
	plainCard: "pm_card_visa", secureCard: "pm_card_authenticationRequiredOnSetup",
	askingCard: "pm_card_authenticationRequired", emptyCard: "pm_card_chargeCustomerFail",
}

// limit makes a card delegation.
func (c *cashier) limit(k toll.APIKey, method string, cents toll.Cents) string {
	c.Helper()
	d := must.Get(c.as(k).CreateDelegation(c.Context(), client.DelegationParams{
		Provider:        toll.ProviderCard,
		PaymentMethodID: method,
		SpendingLimit:   cents,
		Lifetime:        24 * time.Hour,
		Currency:        "usd",
	}))(c)
	return d.DelegationID
}

// store opens the database of the service.
func (c *cashier) store() *store.Store {
	c.Helper()
	return must.Get(insist(func() (*store.Store, error) {
		return store.Open(context.Background(), store.Config{Data: c.o.Data, Database: c.o.Database, Admin: true})
	}))(c)
}

func (c *cashier) count(statement string, args ...any) (n int64) {
	c.Helper()
	st := c.store()
	defer st.Close()
	must.Do(c, st.QueryRow(context.Background(), statement, args...).Scan(&n))
	return n
}

// audit proves at the end of a test that credits, orders and both books agree to the cent.
func (c *cashier) audit() {
	for _, s := range c.services {
		if s != nil {
			s.Kill()
		}
	}
	auditAfter(c.T, c.o)
	st := c.store()
	defer st.Close()
	sum := func(statement string, args ...any) (n int64) {
		must.Check(c, st.QueryRow(context.Background(), statement, args...).Scan(&n), statement)
		return n
	}
	books := c.bank.books()
	sums := books.Currencies["usd"]
	if sums == nil {
		sums = &double.Sums{}
	}
	net := sum(`SELECT CAST(COALESCE(SUM(cents - fee), 0) AS BIGINT) FROM card_moves
		WHERE currency = 'usd'`)
	if net != sums.Net && !c.orphans {
		c.Errorf("the moves make %d cents, the double has %d", net, sums.Net)
	}
	// I13: each captured payment is that of one order, or goes back.
	for _, p := range books.Payments {
		paid := sum("SELECT COUNT(*) FROM card_payments WHERE intent_id = $1 AND state = 'paid'", p.PaymentIntent)
		back := sum("SELECT COUNT(*) FROM card_refunds WHERE intent_id = $1 AND origin = 'rejected'", p.PaymentIntent)
		orphan := sum("SELECT COUNT(*) FROM card_orphans WHERE object_id = $1 AND COALESCE(resolution, '') <> 'granted'", p.PaymentIntent)
		if paid+back+orphan != 1 {
			c.Errorf("the payment %+v is that of %d orders, %d go back, %d are orphans", p, paid, back, orphan)
		}
	}
	// I12: each paid order has one mint, and each mint of an order is paid.
	if n := sum(`SELECT COUNT(*) FROM card_payments p JOIN orders o ON o.order_id = p.order_id
		WHERE NOT p.undecided AND (p.state = 'paid') <> (o.status = 'confirmed')`); n != 0 {
		c.Errorf("%d payments and orders disagree", n)
	}
	if c.Failed() {
		for i, s := range c.services {
			if s == nil {
				continue
			}
			c.Logf("service %d:\n%s", i, tail(s.Log.String()))
		}
		c.Logf("double:\n%s", tail(c.bank.log.String()))
	}
}

func tail(text string) string { return text[max(0, len(text)-20_000):] }

// shopper is a person with a browser, who fills in the forms of pages, ours and those of the bank.
type shopper struct {
	client *http.Client
	at     *url.URL
	status int
	body   string
}

func newShopper(t *testing.T) *shopper {
	t.Helper()
	jar := must.Get(cookiejar.New(nil))(t)
	transport := &http.Transport{DisableKeepAlives: true}
	return &shopper{client: &http.Client{Jar: jar, Transport: transport, Timeout: patience}}
}

// send asks for a page, follows where it leads, and keeps what comes.
func (p *shopper) send(method, address string, form url.Values) error {
	req, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.at.Scheme+"://"+p.at.Host)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	p.at, p.status, p.body = res.Request.URL, res.StatusCode, string(text)
	return nil
}

func (p *shopper) open(address string) error { return p.send(http.MethodGet, address, nil) }

var (
	errNoForm  = errors.New("the page has no form") // that is looked for, or no link
	errDecided = errors.New("the order is decided")
)

var (
	anyForm  = regexp.MustCompile(`(?s)<form ([^>]*)>(.*?)</form>`)
	anyInput = regexp.MustCompile(`<(?:input|button) ?([^>]*)>`)
)

// submit sends the form of the page whose action holds a text. Fields that the page has keep their
// values.
func (p *shopper) submit(action string, fill map[string]string) error {
	for _, form := range anyForm.FindAllStringSubmatch(p.body, -1) {
		attrs := attributesOf(form[1])
		if !strings.EqualFold(attrs["method"], "post") || !strings.Contains(attrs["action"], action) {
			continue
		}
		to, err := p.at.Parse(attrs["action"])
		if err != nil {
			return err
		}
		values := url.Values{}
		for _, in := range anyInput.FindAllStringSubmatch(form[2], -1) {
			a := attributesOf(in[1])
			chosen := a["type"] != "radio" || strings.Contains(in[1], "checked")
			if name := a["name"]; name != "" && name != "result" && chosen {
				values.Set(name, a["value"])
			}
		}
		for name, value := range fill {
			values.Set(name, value)
		}
		return p.send(http.MethodPost, to.String(), values)
	}
	return fmt.Errorf("%w for %q: %d at %s: %s", errNoForm, action, p.status, p.at.Path, textOf(p.body))
}

func attributesOf(tag string) map[string]string {
	a := map[string]string{}
	for _, m := range attributes.FindAllStringSubmatch(tag, -1) {
		a[m[1]] = html.UnescapeString(m[2])
	}
	return a
}

var tags = regexp.MustCompile(`(?s)<style.*?</style>|<[^>]*>`)

func textOf(page string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(page, " ")), " ")
}

// types fills in a card on a page of the bank, and approves 3-D Secure.
func (p *shopper) types(number string) error {
	err := p.submit("/c/pay/", map[string]string{"number": number, "expiry": "12/34", "cvc": "123"})
	if err == nil && strings.Contains(p.body, "Your bank asks") {
		err = p.submit("/c/authenticate/", map[string]string{"result": "approve"})
	}
	return err
}

// follow opens the page of the bank to which a page links.
func (p *shopper) follow() error {
	link := bankLink.FindStringSubmatch(p.body)
	if link == nil {
		return fmt.Errorf("%w of the bank: %d at %s: %s", errNoForm, p.status, p.at.Path, textOf(p.body))
	}
	return p.open(html.UnescapeString(link[1]))
}

var bankLink = regexp.MustCompile(`href="([^"]*/c/pay/[^"]*)"`)

// pays pays an order by its link. An order that is decided is errDecided.
func (p *shopper) pays(link, number string) error {
	if err := p.open(link); err != nil {
		return err
	}
	if strings.Contains(p.body, "Pay on the card processor's page") { // in the place of a frame
		if err := p.submit("/checkout/", nil); err != nil {
			return err
		}
	}
	for _, title := range []string{"Order paid", "Order not paid"} {
		if strings.Contains(p.body, "<h1>"+title+"</h1>") {
			return errDecided
		}
	}
	if err := p.follow(); err != nil {
		return err
	}
	return p.types(number)
}

// enrols signs in and enrols a card.
func (p *shopper) enrols(service, key, number string) error {
	if err := p.open(service + "/cards/enroll"); err != nil {
		return err
	}
	if strings.Contains(p.body, `name="api_key"`) {
		if err := p.submit("/sign-in", map[string]string{"api_key": key}); err != nil {
			return err
		}
	}
	if err := p.submit("/cards/enroll", nil); err != nil {
		return err
	}
	if err := p.follow(); err != nil {
		return err
	}
	if err := p.types(number); err != nil {
		return err
	}
	if !strings.Contains(p.body, "<h1>Card enrolled</h1>") {
		return fmt.Errorf("%d at %s: %s", p.status, p.at.Path, textOf(p.body))
	}
	return nil
}
