package interop

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

type clientArgs struct {
	URL               string           `json:"url,omitempty"`
	Required          string           `json:"required,omitempty"`
	Token             string           `json:"token"`
	Scheme            string           `json:"scheme"`
	Network           string           `json:"network"`
	NoDefaultAsset    bool             `json:"noDefaultAsset,omitempty"`
	AnyPlan           bool             `json:"anyPlan,omitempty"`
	Nonce             *json.RawMessage `json:"nonce,omitempty"`
	PaymentIdentifier string           `json:"paymentIdentifier,omitempty"`
	SpendControls     any              `json:"spendControls,omitempty"`
}

// trip is a request of a client and its answer.
type trip struct {
	Status  int
	Headers map[string]string
	Payment string // header payment-signature that was sent
	Proof   string // header sign-in-with-x that was sent
}

// outcome is what became of a paid call.
type outcome struct {
	Trips   []trip
	Status  int
	Headers map[string]string
	Body    string
	Thrown  string
}

func (c *scene) args(p *party, change []func(*clientArgs)) clientArgs {
	a := clientArgs{URL: p.ask, Token: c.token, Scheme: c.scheme, Network: c.network}
	for _, f := range change {
		f(&a)
	}
	return a
}

// C asks with @x402/fetch and the plug-in.
func (c *scene) C(p *party, change ...func(*clientArgs)) *outcome { return c.asked("fetch", p, change) }

// axios asks with @x402/axios and the plug-in.
func (c *scene) axios(p *party, change ...func(*clientArgs)) *outcome {
	return c.asked("axios", p, change)
}

func (c *scene) asked(command string, p *party, change []func(*clientArgs)) *outcome {
	c.Helper()
	o := new(outcome)
	must.Do(c, c.clients.do(command, c.args(p, change), o))
	c.understood(o)
	return o
}

// understood gives all headers of a call to the schemas of other software.
func (c *scene) understood(o *outcome) {
	c.Helper()
	var headers []map[string]string
	for _, trip := range o.Trips {
		for name, value := range trip.Headers {
			if name == "payment-required" || name == "payment-response" {
				headers = append(headers, map[string]string{"name": name, "value": value})
			}
		}
		if trip.Payment != "" {
			headers = append(headers, map[string]string{"name": "payment-signature", "value": trip.Payment})
		}
	}
	c.faults(map[string]any{"headers": headers})
}

// pay makes the header with which the plug-in pays what a server asks for, and sends nothing.
func (c *scene) pay(p *party, change ...func(*clientArgs)) string {
	c.Helper()
	a := c.args(p, change)
	a.URL, a.Required = "", c.send(p, "").header.Get("Payment-Required")
	var header string
	must.Do(c, c.clients.do("pay", a, &header))
	return header
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// error is the text of a 402, from its header.
func (a *answer) error() string { return required(a.header.Get("Payment-Required")).Error }

func required(header string) *x402.PaymentRequired {
	p := new(x402.PaymentRequired)
	if b, err := base64.StdEncoding.DecodeString(header); err == nil {
		_ = json.Unmarshal(b, p) // what a server of others said; the scene looks at members
	}
	return p
}

// send asks with header lines as they are.
func (c *scene) send(p *party, payment ...string) *answer {
	c.Helper()
	return must.Get(post(c.Context(), p.ask, payment...))(c)
}

// sendAll asks with all payments at once.
func (c *scene) sendAll(p *party, payments []string) []*answer {
	c.Helper()
	answers := make([]*answer, len(payments))
	errs := make(chan error, len(payments))
	for i, payment := range payments {
		go func() {
			var err error
			answers[i], err = post(c.Context(), p.ask, payment)
			errs <- err
		}()
	}
	for range payments {
		if err := <-errs; err != nil {
			c.Fatal(err)
		}
	}
	return answers
}

// counted returns how many answers have each status.
func counted(answers []*answer) map[int]int {
	n := map[int]int{}
	for _, a := range answers {
		n[a.status]++
	}
	return n
}

// receipt is the one of a header payment-response.
func (c *scene) receipt(header string) *x402.SettleResponse {
	c.Helper()
	r := new(x402.SettleResponse)
	if err := x402.DecodeHeader(header, r); err != nil {
		c.Fatalf("receipt %q: %v", header, err)
	}
	return r
}

// paid makes sure that a call was answered after it was paid with so many credits.
func (c *scene) paid(o *outcome, credits toll.Credits) {
	c.Helper()
	if o.Thrown != "" || o.Status != http.StatusOK || !strings.Contains(o.Body, "42") {
		c.Fatalf("%d %q %s", o.Status, o.Body, o.Thrown)
	}
	r := c.receipt(o.Headers["payment-response"])
	if !r.Success || r.Transaction == "" || r.Extra == nil || r.Extra.CreditsRedeemed == nil || *r.Extra.CreditsRedeemed != credits {
		c.Errorf("receipt %+v", r)
	}
}

// refused makes sure that a call was answered with 402 without content, and returns its text.
func (c *scene) refused(o *outcome) string {
	c.Helper()
	if o.Thrown != "" || o.Status != http.StatusPaymentRequired || strings.Contains(o.Body, "42") {
		c.Fatalf("%d %q %s", o.Status, o.Body, o.Thrown)
	}
	return required(o.Headers["payment-required"]).Error
}

// begins makes sure that a text of a 402 begins with a reason.
func (c *scene) begins(text string, reason string) {
	c.Helper()
	if word, _, _ := strings.Cut(text, ":"); word != reason {
		c.Errorf("402 says %q, want %s", text, reason)
	}
}

// ends makes sure how the scene ended: runs of handlers, burns of all its parties, and the balance, of which nothing is held.
func (c *scene) ends(handled int, burned []int, balance toll.Credits) {
	c.Helper()
	var runs int
	var got []int
	seen := map[string]bool{}
	for _, p := range c.parties {
		runs += p.runs()
		for _, s := range p.of("settle") {
			if tx := s.text("transaction"); s.text("success") == "true" && !seen[tx] {
				seen[tx] = true
				n, err := strconv.Atoi(s.text("amount"))
				if err != nil {
					c.Errorf("amount %q", s.text("amount"))
				}
				got = append(got, n)
			}
		}
	}
	slices.Sort(got)
	if runs != handled || !slices.Equal(got, burned) {
		c.Errorf("%d runs with burns %v, want %d with %v", runs, got, handled, burned)
	}
	if b := c.balance(); b.Balance != balance || b.Available != balance {
		c.Errorf("balance %d, available %d, want %d", b.Balance, b.Available, balance)
	}
}
