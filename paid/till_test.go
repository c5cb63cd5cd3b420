package paid_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

const receiver = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" // of the plan of a desk

// till is a desk that settles payments of wallets, too, as the service does: one verify of an authorization is valid, and what it opened
// is carried out once. Signatures are not looked at.
type till struct {
	*desk
	mu      sync.Mutex
	opened  map[toll.Hash]x402.Requirements
	settled map[toll.Hash]*x402.SettleResponse
	moved   toll.Credits // base units
	offered []x402.OffersRequest
	refuses *toll.Error            // the entries of wallets
	verdict *x402.VerifyResponse   // in place of the till's own
	answers []*x402.SettleResponse // to settles in place of its own, the last one again and again
	network string                 // of the plan, "" is that of the desk
}

func newTill() *till {
	return &till{desk: newDesk(100), opened: map[toll.Hash]x402.Requirements{}, settled: map[toll.Hash]*x402.SettleResponse{}}
}

func (f *till) Offers(_ context.Context, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offered = append(f.offered, *req)
	if f.refuses != nil {
		return nil, f.refuses
	}
	out := &x402.OffersResponse{ValidUntil: time.Now().Add(time.Hour).Unix()}
	for i, e := range req.PaymentRequired.Accepts {
		out.Offers = append(out.Offers, x402.SignedOffer{Format: "jws", AcceptIndex: i, Signature: e.Scheme + " " + e.Amount})
	}
	return out, nil
}

func (f *till) Terms(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
	terms, err := f.desk.Terms(ctx, id)
	if err == nil && f.network != "" {
		terms.Network = f.network
	}
	return terms, err
}

func (f *till) Verify(ctx context.Context, r *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	if r.Stock == nil {
		return f.desk.Verify(ctx, r)
	}
	if err := f.enter("verify"); err != nil {
		return nil, err
	}
	p, err := x402.DecodeExact(r.Stock.Payload)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	nonce := p.Authorization.Nonce
	switch _, open := f.opened[nonce]; {
	case f.verdict != nil:
		return f.verdict, nil
	case f.settled[nonce] != nil:
		return &x402.VerifyResponse{InvalidReason: x402.ReasonDuplicate, Code: toll.CodeRequestUsed}, nil
	case open:
		return &x402.VerifyResponse{InvalidReason: x402.ReasonInFlight, Code: toll.CodeRequestUsed}, nil
	case p.Authorization.Value.String() != r.Stock.Requirements.Amount:
		return &x402.VerifyResponse{InvalidReason: x402.ReasonExactValue, Code: toll.CodePaymentRequired}, nil
	}
	f.opened[nonce] = r.Stock.Requirements
	return &x402.VerifyResponse{IsValid: true, Payer: p.Authorization.From.String(), Network: r.Stock.Requirements.Network}, nil
}

func (f *till) Settle(ctx context.Context, r *x402.SettleRequest) (*x402.SettleResponse, error) {
	if r.Stock == nil {
		return f.desk.Settle(ctx, r)
	}
	if err := f.enter("settle"); err != nil {
		return nil, err
	}
	p, err := x402.DecodeExact(r.Stock.Payload)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.answers); n > 0 {
		next := f.answers[0]
		f.answers = f.answers[min(1, n-1):]
		return next, nil
	}
	nonce := p.Authorization.Nonce
	if s := f.settled[nonce]; s != nil {
		return s, nil
	}
	if f.opened[nonce] != r.Stock.Requirements {
		return &x402.SettleResponse{ErrorReason: x402.ReasonConflict, Code: toll.CodeSettleConflict, Network: r.Stock.Requirements.Network}, nil
	}
	amount, err := toll.ParseCredits(r.Stock.Requirements.Amount)
	if err != nil {
		return nil, err
	}
	f.moved += amount
	s := &x402.SettleResponse{
		Success: true, Transaction: nonce.String(), Network: r.Stock.Requirements.Network, Payer: p.Authorization.From.String(), Amount: &amount,
	}
	s.Raw, err = x402.Encode(s)
	f.settled[nonce] = s
	return s, err
}

// has compares what wallets paid, and how often the till was asked.
func (f *till) has(t *testing.T, moved toll.Credits, verifies, settles int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved != moved || f.count("verify") != verifies || f.count("settle") != settles || f.count("release") != 0 {
		t.Errorf("%d base units moved, %d verifies, %d settles, %d releases; want %d, %d, %d, 0", f.moved, f.count("verify"), f.count("settle"),
			f.count("release"), moved, verifies, settles)
	}
}

func (f *till) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

var cents = paid.PerCall(paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(20_000)})

// callServer serves the handler for 5 credits, or 2 cents of a wallet.
func callServer(t *testing.T, f x402.Facilitator, h *work, opts ...paid.Option) *httptest.Server {
	t.Helper()
	h.t = t
	return askServer(t, f, h, append([]paid.Option{cents}, opts...)...)
}

// asks returns what a server asks for.
func asks(t *testing.T, url string) *x402.Challenge {
	t.Helper()
	return challenge(t, send(t, "POST", url+"/ask"))
}

func challenge(t *testing.T, r reply) *x402.Challenge {
	t.Helper()
	c, err := x402.ReadChallenge(r.header, []byte(r.body))
	if err != nil || r.status != 402 {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return c
}

// walletOf returns a payment of a wallet for an entry: its authorization has this nonce, and is not signed.
func walletOf(t *testing.T, c *x402.Challenge, entry int, nonce byte, identifier string) string {
	t.Helper()
	e := &c.Entries[entry]
	amount := must.Get(toll.ParseUnits(e.Amount))(t)
	value, err := c.Answer(e, &x402.ExactPayload{
		Authorization: x402.ExactAuthorization{
			From: toll.MustAddress(payer), To: toll.MustAddress(e.PayTo), Value: amount, ValidBefore: toll.UnitsOf(1_795_230_000), Nonce: toll.Hash{31: nonce},
		},
		Signature: "0x00",
	}, identifier)
	must.Do(t, err)
	return value
}

// rewritten changes the JSON of a payment.
func rewritten(t *testing.T, value string, change func(p map[string]any)) string {
	t.Helper()
	text := must.Get(base64.StdEncoding.DecodeString(value))(t)
	var p map[string]any
	must.Do(t, json.Unmarshal(text, &p))
	change(p)
	text = must.Get(json.Marshal(p))(t)
	return base64.StdEncoding.EncodeToString(text)
}

// refusal returns status and begin of error of a 402, or the status alone.
func (r reply) refusal(t *testing.T) string {
	t.Helper()
	var p struct {
		Error string `json:"error"`
	}
	if r.status == 402 {
		must.Do(t, x402.DecodeHeader(r.header.Get("payment-required"), &p))
	}
	return fmt.Sprint(r.status, " ", p.Error)
}
