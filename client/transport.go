package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// maxPaidBody bounds, in bytes, the request body that is buffered to send it again with a payment, if the request has no GetBody.
const maxPaidBody = 4 << 20

// maxRefusalBody bounds the body of a refusal, in bytes.
const maxRefusalBody = 64 << 10

// Payer pays entries of its schemes. [Client.Payer] pays with credits, evm.Wallet with tokens.
type Payer interface {
	// Quote returns the maximum cost of the entry. called is the URL of the request that requires the payment. An error explains
	// why this payer does not pay the entry, and is safe to show.
	Quote(ctx context.Context, called *url.URL, e *x402.Entry) (x402.Quote, error)
	// Pay creates a payment. Once it is sent, the server can settle it at any time.
	Pay(ctx context.Context, e *x402.Entry, q x402.Quote) (*x402.Payment, error)
}

// Transport is an [http.RoundTripper] that pays. When a server that speaks x402 responds with 402, the transport pays within the
// limits of a purse and sends the request once more. It works with any service.
//
//	purse := client.NewPurse(client.Limits{Hosts: []string{"agent.example.com"}, CreditsPerCall: 5, Credits: 100})
//	h := &http.Client{Transport: client.NewTransport(purse, c.Payer(planID))}
//
// A request is paid at most once, regardless of the response. If there is no response to the paid request, the outcome of the
// payment is unknown and the error is a [*PaymentError] with Sent set. The transport does not retry such a request, because the
// server may have done the work. http.Client follows redirects with a new request, which is paid only if the limits allow its host.
//
// The transport does not pay for a resource on another server: resource.url must be relative, or have the scheme, host, and port
// of the request. A dishonest server can still put its own URL into a copied 402. Therefore, a [CreditsPayer] also requires the
// agent to be registered at the server. Payments of wallets are bounded by [Limits] alone.
type Transport struct {
	base   http.RoundTripper
	purse  Purse
	payers []Payer
	now    func() time.Time
}

// NewTransport returns a transport over [http.DefaultTransport]. It tries the payers in order, each with the entries in the order
// of the server.
func NewTransport(purse Purse, payers ...Payer) *Transport {
	return &Transport{base: http.DefaultTransport, purse: purse, payers: payers, now: time.Now}
}

// Over returns a transport over base, nil for [http.DefaultTransport].
func (t *Transport) Over(base http.RoundTripper) *Transport {
	base = cmp.Or(base, http.DefaultTransport)
	o := *t
	o.base = base
	return &o
}

// PaymentError is the error of a request that required payment and has no response.
type PaymentError struct {
	Host      string
	Sent      bool            // a payment was sent, and its outcome may be unknown
	Payment   *Payment        // set if Sent
	Challenge *x402.Challenge // the server's demand
	Reason    error
}

func (e *PaymentError) Error() string {
	if e.Sent {
		return fmt.Sprintf("client: a payment to %s was sent, but its outcome is unknown: %v", e.Host, e.Reason)
	}
	return fmt.Sprintf("client: %s requires payment, but nothing was paid: %v", e.Host, e.Reason)
}

func (e *PaymentError) Unwrap() error { return e.Reason }

// RoundTrip sends the request and pays for it if the server demands payment. It returns a 402 without an x402 version 2 demand
// unchanged, and also any response to a request that already carries a payment. Errors: [*PaymentError], or from the base.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get(x402.HeaderSignature) != "" {
		return t.base.RoundTrip(req)
	}
	first, err := keep(req)
	if err != nil {
		req.Body.Close()
		return nil, err
	}
	res, err := t.base.RoundTrip(first)
	if err != nil || res.StatusCode != http.StatusPaymentRequired {
		return res, err
	}
	ask, res, err := challenged(res)
	if ask == nil || err != nil {
		return res, err
	}
	refuse := func(reason error) (*http.Response, error) {
		return nil, &PaymentError{Host: req.URL.Host, Challenge: ask, Reason: reason}
	}
	if first.GetBody == nil {
		return refuse(errors.New("the request body cannot be sent again with the payment: set GetBody on the request"))
	}
	p, err := t.pay(req, ask)
	if err != nil {
		return refuse(err)
	}
	second := first.Clone(req.Context())
	if second.Body, err = first.GetBody(); err != nil {
		return nil, err
	}
	second.Header.Set(x402.HeaderSignature, p.header)
	return t.finish(second, ask, p)
}

// payment is a payment in progress.
type payment struct {
	Payment
	header string
	spent  func(context.Context, *x402.Settlement) (toll.Units, bool)
}

// errSignIn skips wallet entries if the server supports sign-in with a wallet, to avoid paying twice for one purchase.
var errSignIn = errors.New("the server requires a wallet sign-in (sign-in-with-x), which this client does not support")

// pay selects an entry, reserves its maximum cost in the purse, and creates and records the payment.
func (t *Transport) pay(req *http.Request, ask *x402.Challenge) (*payment, error) {
	ctx := req.Context()
	if err := checkResource(req.URL, ask.URL); err != nil {
		return nil, err
	}
	var reasons []error
	for _, payer := range t.payers {
		for i := range ask.Entries {
			e := &ask.Entries[i]
			if e.Scheme == x402.SchemeExact && ask.Extensions[x402.ExtensionSignIn] != nil {
				reasons = append(reasons, errSignIn)
				continue
			}
			q, err := payer.Quote(ctx, req.URL, e)
			if err != nil {
				reasons = append(reasons, err)
				continue
			}
			p := &payment{Payment: Payment{
				ID: x402.NewPaymentIdentifier(), At: t.now(), Host: HostOf(req.URL), Method: req.Method, Path: req.URL.Path,
				Scheme: e.Scheme, Network: e.Network, Asset: e.Asset, PayTo: e.PayTo, PlanID: string(e.Plan()),
				Unit: q.Unit, Most: q.Amount, State: PaymentSent,
			}}
			if err := t.purse.Take(ctx, p.Payment); err != nil {
				reasons = append(reasons, err)
				continue
			}
			made, err := payer.Pay(ctx, e, q)
			if err == nil {
				p.spent, p.Authorization, p.Permission = made.Spent, made.Authorization, made.Permission
				p.header, err = ask.Answer(e, made.Payload, p.ID)
			}
			if err == nil && (p.Authorization != nil || p.Permission != nil) {
				err = t.purse.Close(ctx, p.Payment)
			}
			if err == nil {
				return p, nil
			}
			p.State = PaymentRefused
			if undone := t.purse.Close(ctx, p.Payment); undone != nil {
				return nil, errors.Join(err, undone)
			}
			reasons = append(reasons, err)
		}
	}
	if len(reasons) == 0 {
		reasons = append(reasons, errors.New("the response offers no way to pay"))
	}
	return nil, errors.Join(reasons...)
}

// finish sends the paid request and records the outcome. A payment without a known failure counts as spent.
func (t *Transport) finish(req *http.Request, ask *x402.Challenge, p *payment) (*http.Response, error) {
	// The record must survive a cancelled caller.
	ctx := context.WithoutCancel(req.Context())
	res, err := t.base.RoundTrip(req)
	p.State = PaymentUnknown
	if err == nil {
		p.settle(ctx, res)
	}
	if lost := t.purse.Close(ctx, p.Payment); lost != nil {
		if err == nil {
			res.Body.Close()
		}
		err = errors.Join(err, lost)
	}
	if err != nil {
		return nil, &PaymentError{Host: req.URL.Host, Sent: true, Payment: &p.Payment, Challenge: ask, Reason: err}
	}
	return res, nil
}

// settle sets the outcome from the response. If the cost is uncertain, the maximum counts as spent.
func (p *payment) settle(ctx context.Context, res *http.Response) {
	r, err := x402.ReadSettlement(res.Header)
	if err != nil {
		if res.StatusCode/100 == 2 {
			// A stream settles at its end. Reading the outcome now would revoke its access token.
			return
		}
		r = &x402.Settlement{}
	}
	p.Transaction = r.Transaction
	spent, sure := p.spent(ctx, r)
	switch {
	case sure && spent.IsZero() && !r.Success:
		p.State = PaymentRefused
	case sure:
		p.State, p.Spent = PaymentPaid, spent
	case r.Success:
		p.State, p.Spent = PaymentPaid, p.Most
	}
}

// challenged reads the demand in a 402 and closes its body. It returns a response without an x402 demand with its body intact.
func challenged(res *http.Response) (*x402.Challenge, *http.Response, error) {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxRefusalBody+1))
	if err != nil {
		res.Body.Close()
		return nil, nil, err
	}
	ask, err := x402.ReadChallenge(res.Header, text)
	if err != nil {
		res.Body = behind(text, res.Body)
		return nil, res, nil
	}
	return ask, res, res.Body.Close()
}

// behind returns a body that reads beginning, then rest, and closes rest.
func behind(beginning []byte, rest io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(beginning), rest), rest}
}

// keep returns a copy of the request with GetBody set, so that its body can be sent again. If the body exceeds maxPaidBody, GetBody
// stays nil.
func keep(req *http.Request) (*http.Request, error) {
	r := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		r.Body, r.GetBody = nil, func() (io.ReadCloser, error) { return nil, nil }
		return r, nil
	}
	if req.GetBody == nil {
		text, err := io.ReadAll(io.LimitReader(req.Body, maxPaidBody+1))
		if err != nil || len(text) > maxPaidBody {
			r.Body = behind(text, req.Body)
			return r, err
		}
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	}
	err := req.Body.Close()
	if err == nil {
		r.Body, err = r.GetBody()
	}
	return r, err
}

// HostOf returns the host in the form of [Limits]: without the default port of https.
func HostOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), portOf(u)
	switch {
	case port != "443" || u.Scheme != "https":
		return net.JoinHostPort(host, cmp.Or(port, "80"))
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	}
	return host
}
