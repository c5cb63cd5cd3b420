package hold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/hold"
	"github.com/tollhq/toll/x402"
)

const plan toll.PlanID = "44742763076047497640080230236781474129970992727896593861997347135613135571071"

// desk is a payment service that answers as it is told, the last answer again and again.
type desk struct {
	x402.Facilitator
	settle  []func() (*x402.SettleResponse, error)
	release []error
	calls   []string // "settle" or "release", and when
	asked   []x402.SettleRequest
	start   time.Time
}

func (d *desk) called(what string) {
	d.calls = append(d.calls, fmt.Sprintf("%s %v", what, time.Since(d.start)))
}

func (d *desk) Settle(ctx context.Context, r *x402.SettleRequest) (*x402.SettleResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.called("settle")
	d.asked = append(d.asked, *r)
	return d.settle[min(len(d.asked), len(d.settle))-1]()
}

func (d *desk) Release(ctx context.Context, r *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.called("release")
	if err := d.release[min(len(d.calls), len(d.release))-1]; err != nil {
		return nil, err
	}
	return &x402.ReleaseResponse{Success: true, AgentRequestID: r.AgentRequestID, Status: "released"}, nil
}

func answers(s *x402.SettleResponse, err error) func() (*x402.SettleResponse, error) {
	return func() (*x402.SettleResponse, error) { return s, err }
}

func payment(d *desk, log *bytes.Buffer) *hold.Payment {
	d.start = time.Now()
	return &hold.Payment{
		Facilitator: d, Timeout: 30 * time.Second, Token: "a.b.c", PlanID: plan, AgentRequestID: "req_1", Payer: "0xabc",
		Required: &x402.PaymentRequired{Accepts: []x402.Requirements{{Network: "eip155:84532"}}},
		Log:      slog.New(slog.NewTextHandler(log, nil)), Room: "room", About: []any{"item", "one"},
	}
}

func TestPayment_Settle(t *testing.T) {
	unnamed := &x402.SettleResponse{Success: true, Transaction: "0x1"}
	bare := &x402.SettleResponse{Success: true}
	paid := &x402.SettleResponse{Success: true, Transaction: "0x1", Extra: &x402.SettleExtra{AgentRequestID: "req_1"}}
	refused := &x402.SettleResponse{ErrorReason: x402.ReasonHoldExpired}
	pending := &x402.SettleResponse{ErrorReason: x402.ReasonPending, Transaction: "0x2"}
	down := answers(nil, toll.NewError(toll.CodeUnavailable))
	later := answers(nil, &toll.Error{Code: toll.CodeRateLimited, RetryAfterSecs: 1})
	muchLater := answers(nil, &toll.Error{Code: toll.CodeRateLimited, RetryAfterSecs: 7200})
	type way = []func() (*x402.SettleResponse, error)
	for name, c := range map[string]struct {
		answers way
		amount  toll.Credits
		tries   int
		want    *x402.SettleResponse // nil: settlement_pending of our own
		known   bool
		calls   string
	}{
		"paid":                     {way{answers(paid, nil)}, 5, hold.Tries, paid, true, "settle 0s"},
		"paid, no request named":   {way{answers(unnamed, nil)}, 5, hold.Tries, unnamed, true, "settle 0s"},
		"refused":                  {way{answers(refused, nil)}, 5, hold.Tries, refused, true, "settle 0s"},
		"back":                     {way{down, down, answers(paid, nil)}, 5, hold.Tries, paid, true, "settle 0s,settle 100ms,settle 500ms"},
		"away":                     {way{down}, 5, hold.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms"},
		"away, one try":            {way{down}, 5, 1, nil, false, "settle 0s"},
		"later":                    {way{later, answers(paid, nil)}, 5, hold.Tries, paid, true, "settle 0s,settle 1s"},
		"much later":               {way{muchLater}, 5, hold.Tries, nil, false, "settle 0s,settle 2s,settle 4s"},
		"pending":                  {way{answers(pending, nil)}, 5, hold.Tries, pending, false, "settle 0s,settle 100ms,settle 500ms"},
		"own key refused":          {way{answers(nil, toll.NewError(toll.CodeNotAuthenticated))}, 5, hold.Tries, nil, false, "settle 0s"},
		"nothing":                  {way{answers(nil, nil)}, 5, hold.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms"},
		"paid without transaction": {way{answers(bare, nil), answers(paid, nil)}, 5, hold.Tries, paid, true, "settle 0s,settle 100ms"},
		"paid for another request": {
			way{answers(&x402.SettleResponse{Success: true, Transaction: "0x1", Extra: &x402.SettleExtra{AgentRequestID: "req_2"}}, nil)},
			5, hold.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms",
		},
		"refused for another request": {
			way{answers(&x402.SettleResponse{ErrorReason: x402.ReasonConflict, Extra: &x402.SettleExtra{AgentRequestID: "req_2"}}, nil)},
			5, hold.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms",
		},
		"nothing to burn, no transaction": {way{answers(bare, nil)}, 0, hold.Tries, bare, true, "settle 0s"},
		"nothing to burn, another request": {
			way{answers(&x402.SettleResponse{Success: true, Extra: &x402.SettleExtra{AgentRequestID: "req_2"}}, nil)},
			0, hold.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{settle: c.answers}
			var log bytes.Buffer
			p := payment(d, &log)
			ctx, leave := context.WithCancel(t.Context())
			leave() // what is delivered is settled, whoever waits
			s, known := p.Settle(ctx, c.amount, c.tries)
			if known != c.known || (c.want != nil) != (s == c.want) {
				t.Errorf("%s: %+v, known %v", name, s, known)
			}
			if got := strings.Join(d.calls, ","); got != c.calls {
				t.Errorf("%s: %s, want %s", name, got, c.calls)
			}
			for _, r := range d.asked {
				if r.AgentRequestID != "req_1" || *r.MaxAmount != c.amount || r.AccessToken != "a.b.c" {
					t.Errorf("%s: asked %+v", name, r)
				}
			}
			if c.want != nil {
				return
			}
			if s.Success || s.ErrorReason != x402.ReasonPending || s.Code != toll.CodeSettlementPending || s.Transaction != "" ||
				s.Network != "eip155:84532" || s.Payer != "0xabc" || s.Extra.AgentRequestID != "req_1" || s.Extra.PlanID != plan {
				t.Errorf("%s: %+v", name, s)
			}
			if text := log.String(); !strings.Contains(text, `msg="room: a settlement has no outcome yet" item=one agentRequestId=req_1 error=`) ||
				strings.Contains(text, "a.b.c") {
				t.Errorf("%s: log %s", name, text)
			}
		})
	}
}

// A success counts for the payment of a wallet only when it names the payment, and once a try may have set it going a refusal only when
// it is the word of the chain.
func TestPayment_SettleOfWallet(t *testing.T) {
	const network = "eip155:84532"
	says := func(change func(*x402.SettleResponse)) func() (*x402.SettleResponse, error) {
		s := &x402.SettleResponse{Success: true, Transaction: "0x1", Network: network, Payer: "0xABC", Amount: toll.Credits(5).Ptr()}
		change(s)
		return answers(s, nil)
	}
	refused := func(reason string) func() (*x402.SettleResponse, error) {
		return answers(&x402.SettleResponse{ErrorReason: reason, Network: network, Raw: []byte("{}")}, nil)
	}
	paid := says(func(*x402.SettleResponse) {})
	down := answers(nil, toll.NewError(toll.CodeUnavailable))
	type way = []func() (*x402.SettleResponse, error)
	for name, c := range map[string]struct {
		answers way
		reason  string // "": success
		known   bool
		tries   int
	}{
		"paid":                           {way{paid}, "", true, 1},
		"paid later":                     {way{down, refused(x402.ReasonPending), paid}, "", true, 3},
		"no transaction":                 {way{says(func(s *x402.SettleResponse) { s.Transaction = "" })}, x402.ReasonPending, false, 3},
		"another payer":                  {way{says(func(s *x402.SettleResponse) { s.Payer = "0xdef" })}, x402.ReasonPending, false, 3},
		"another network":                {way{says(func(s *x402.SettleResponse) { s.Network = "eip155:8453" })}, x402.ReasonPending, false, 3},
		"another amount":                 {way{says(func(s *x402.SettleResponse) { s.Amount = toll.Credits(6).Ptr() })}, x402.ReasonPending, false, 3},
		"no amount":                      {way{says(func(s *x402.SettleResponse) { s.Amount = nil })}, x402.ReasonPending, false, 3},
		"refused":                        {way{refused(x402.ReasonUnauthorizedServer)}, x402.ReasonUnauthorizedServer, true, 1},
		"refused by the chain":           {way{refused(x402.ReasonExactBalance)}, x402.ReasonExactBalance, true, 1},
		"pending, then the chain":        {way{refused(x402.ReasonPending), refused(x402.ReasonExactNonceUsed)}, x402.ReasonExactNonceUsed, true, 2},
		"away, then the chain":           {way{down, refused(x402.ReasonTransactionState)}, x402.ReasonTransactionState, true, 2},
		"away, then the call is refused": {way{down, refused(x402.ReasonUnauthorizedServer)}, x402.ReasonPending, false, 2},
		"pending, then unknown":          {way{refused(x402.ReasonPending), refused(x402.ReasonInvalidPayload)}, x402.ReasonPending, false, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{settle: c.answers}
			var log bytes.Buffer
			p := payment(d, &log)
			p.Token, p.AgentRequestID, p.Stock = "", "", &x402.StockPayment{Payload: "{}", Requirements: x402.Requirements{Network: network, Amount: "5"}}
			s, known := p.Settle(t.Context(), 5, hold.Tries)
			if s.Success != (c.reason == "") || s.ErrorReason != c.reason || known != c.known || len(d.asked) != c.tries || s.Network != network {
				t.Errorf("%s: %+v, known %v after %d tries", name, s, known, len(d.asked))
			}
			if s.ErrorReason == x402.ReasonPending && len(s.Raw) > 0 && len(d.asked) == 2 {
				t.Errorf("%s: the receipt is still that of the refusal: %s", name, s.Raw)
			}
			for _, r := range d.asked {
				if r.Stock != p.Stock || r.AccessToken != "" || r.MaxAmount != nil {
					t.Errorf("%s: asked %+v", name, r)
				}
			}
		})
	}
}

func TestPayment_Release(t *testing.T) {
	down, gone := toll.NewError(toll.CodeUnavailable), toll.NewError(toll.CodeReleaseOfSettled)
	for name, c := range map[string]struct {
		answers []error
		calls   string
		lapses  bool
	}{
		"released": {[]error{nil}, "release 0s", false},
		"back":     {[]error{down, nil}, "release 0s,release 100ms", false},
		"away":     {[]error{down}, "release 0s,release 100ms", true},
		"settled":  {[]error{gone}, "release 0s", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{release: c.answers}
			var log bytes.Buffer
			p := payment(d, &log)
			ctx, leave := context.WithCancel(t.Context())
			leave()
			p.Release(ctx)
			if got := strings.Join(d.calls, ","); got != c.calls {
				t.Errorf("%s: %s, want %s", name, got, c.calls)
			}
			if told := strings.Contains(log.String(), `"room: a hold was not released and will lapse" item=one agentRequestId=req_1 error=`); told != c.lapses {
				t.Errorf("%s: log %s", name, &log)
			}
			(&hold.Payment{Facilitator: d}).Release(ctx) // nothing was verified
			if got := strings.Join(d.calls, ","); got != c.calls {
				t.Errorf("%s: released what was never held: %s", name, got)
			}
		})
	}
}

func TestPayment_Accept(t *testing.T) {
	five, three := toll.Credits(5).Ptr(), toll.Credits(3).Ptr()
	for name, c := range map[string]struct {
		v      x402.VerifyResponse
		held   bool
		amount toll.Credits
		err    error
	}{
		"held":                      {x402.VerifyResponse{AgentRequestID: "r", Amount: five, Extra: &x402.VerifyExtra{HeldAmount: three}}, true, 3, nil},
		"not asked for":             {x402.VerifyResponse{AgentRequestID: "r", Amount: five}, false, 5, nil},
		"costs nothing":             {x402.VerifyResponse{AgentRequestID: "r", Amount: new(toll.Credits)}, true, 0, nil},
		"no hold":                   {x402.VerifyResponse{AgentRequestID: "r", Amount: five, Extra: &x402.VerifyExtra{}}, true, 5, hold.ErrNoHold},
		"no id":                     {x402.VerifyResponse{Amount: five, Extra: &x402.VerifyExtra{HeldAmount: five}}, true, 5, hold.ErrNoHold},
		"no id, hold not asked for": {x402.VerifyResponse{Amount: five}, false, 5, hold.ErrNoHold},
	} {
		c.v.Payer = "0xabc"
		p := hold.Payment{AgentID: "ours"}
		if err := p.Accept(&c.v, c.held); !errors.Is(err, c.err) || p.Amount != c.amount || p.Payer != "0xabc" || p.AgentID != "ours" || p.AgentRequestID != c.v.AgentRequestID {
			t.Errorf("%s: %v, %+v", name, err, p)
		}
		c.v.AgentID = "theirs"
		if _ = p.Accept(&c.v, c.held); p.AgentID != "theirs" {
			t.Errorf("%s: agent %s", name, p.AgentID)
		}
	}
}
