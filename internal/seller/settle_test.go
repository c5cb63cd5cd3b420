package seller_test

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
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

const plan toll.PlanID = "44742763076047497640080230236781474129970992727896593861997347135613135571071"

// desk is a payment service that answers as it is told, the last answer again and again.
type desk struct {
	x402.Facilitator
	settle  []func() (*x402.SettleResponse, error)
	release []error
	verdict *x402.VerifyResponse
	failed  error    // of verify
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

func (d *desk) Verify(ctx context.Context, _ *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	return d.verdict, errors.Join(ctx.Err(), d.failed)
}

func answers(s *x402.SettleResponse, err error) func() (*x402.SettleResponse, error) {
	return func() (*x402.SettleResponse, error) { return s, err }
}

func newSeller(d *desk, log *bytes.Buffer) *seller.Seller {
	d.start = time.Now()
	s := &seller.Seller{Facilitator: d, AgentID: "ours", Room: "room", Item: "item", Log: slog.New(slog.NewTextHandler(log, nil))}
	s.SetDefaults()
	return s
}

func offer() seller.Offer {
	return seller.Offer{PlanID: plan, Item: "one", Required: &x402.PaymentRequired{Accepts: []x402.Requirements{{Network: "eip155:84532"}}}}
}

func payment(d *desk, log *bytes.Buffer) *seller.Sale {
	return &seller.Sale{Seller: newSeller(d, log), Offer: offer(), Token: "a.b.c", AgentRequestID: "req_1", Payer: "0xabc"}
}

func TestSale_Settle(t *testing.T) {
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
		"paid":                     {way{answers(paid, nil)}, 5, seller.Tries, paid, true, "settle 0s"},
		"paid, no request named":   {way{answers(unnamed, nil)}, 5, seller.Tries, unnamed, true, "settle 0s"},
		"refused":                  {way{answers(refused, nil)}, 5, seller.Tries, refused, true, "settle 0s"},
		"back":                     {way{down, down, answers(paid, nil)}, 5, seller.Tries, paid, true, "settle 0s,settle 100ms,settle 500ms"},
		"away":                     {way{down}, 5, seller.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms"},
		"away, one try":            {way{down}, 5, 1, nil, false, "settle 0s"},
		"later":                    {way{later, answers(paid, nil)}, 5, seller.Tries, paid, true, "settle 0s,settle 1s"},
		"much later":               {way{muchLater}, 5, seller.Tries, nil, false, "settle 0s,settle 2s,settle 4s"},
		"pending":                  {way{answers(pending, nil)}, 5, seller.Tries, pending, false, "settle 0s,settle 100ms,settle 500ms"},
		"own key refused":          {way{answers(nil, toll.NewError(toll.CodeNotAuthenticated))}, 5, seller.Tries, nil, false, "settle 0s"},
		"nothing":                  {way{answers(nil, nil)}, 5, seller.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms"},
		"paid without transaction": {way{answers(bare, nil), answers(paid, nil)}, 5, seller.Tries, paid, true, "settle 0s,settle 100ms"},
		"paid for another request": {
			way{answers(&x402.SettleResponse{Success: true, Transaction: "0x1", Extra: &x402.SettleExtra{AgentRequestID: "req_2"}}, nil)},
			5, seller.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms",
		},
		"refused for another request": {
			way{answers(&x402.SettleResponse{ErrorReason: x402.ReasonConflict, Extra: &x402.SettleExtra{AgentRequestID: "req_2"}}, nil)},
			5, seller.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms",
		},
		"nothing to burn, no transaction": {way{answers(bare, nil)}, 0, seller.Tries, bare, true, "settle 0s"},
		"nothing to burn, another request": {
			way{answers(&x402.SettleResponse{Success: true, Extra: &x402.SettleExtra{AgentRequestID: "req_2"}}, nil)},
			0, seller.Tries, nil, false, "settle 0s,settle 100ms,settle 500ms",
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
			if text := log.String(); !strings.Contains(text, `msg="room: the outcome of a settlement is not known yet" item=one agentRequestId=req_1 error=`) ||
				strings.Contains(text, "a.b.c") {
				t.Errorf("%s: log %s", name, text)
			}
		})
	}
}

// A success counts for the payment of a wallet only when it names the payment, and once a try may have set it going a refusal only when
// it is the word of the chain.
func TestSale_SettleOfWallet(t *testing.T) {
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
			s, known := p.Settle(t.Context(), 5, seller.Tries)
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

func TestSale_Release(t *testing.T) {
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
			if told := strings.Contains(log.String(), `"room: a hold was not released and will expire" item=one agentRequestId=req_1 error=`); told != c.lapses {
				t.Errorf("%s: log %s", name, &log)
			}
			(&seller.Sale{Seller: p.Seller}).Release(ctx) // nothing was verified
			if got := strings.Join(d.calls, ","); got != c.calls {
				t.Errorf("%s: released what was never held: %s", name, got)
			}
		})
	}
}

func TestSeller_Open(t *testing.T) {
	five, three := toll.Credits(5).Ptr(), toll.Credits(3).Ptr()
	bad := func(reason string, code toll.Code) x402.VerifyResponse {
		return x402.VerifyResponse{InvalidReason: reason, Code: code, InvalidMessage: "No."}
	}
	for name, c := range map[string]struct {
		v      x402.VerifyResponse
		err    error
		unheld bool
		left   bool
		amount toll.Credits // of a sale
		class  seller.Class // of a refusal
		sold   bool
		calls  string
	}{
		"held":                      {v: x402.VerifyResponse{AgentRequestID: "r", Amount: five, Extra: &x402.VerifyExtra{HeldAmount: three}}, amount: 3, sold: true},
		"not asked for":             {v: x402.VerifyResponse{AgentRequestID: "r", Amount: five}, unheld: true, amount: 5, sold: true},
		"costs nothing":             {v: x402.VerifyResponse{AgentRequestID: "r", Amount: new(toll.Credits)}, sold: true},
		"no hold":                   {v: x402.VerifyResponse{AgentRequestID: "r", Amount: five, Extra: &x402.VerifyExtra{}}, class: seller.Unavailable, calls: "release 0s"},
		"no id":                     {v: x402.VerifyResponse{Amount: five, Extra: &x402.VerifyExtra{HeldAmount: five}}, class: seller.Unavailable},
		"no id, hold not asked for": {v: x402.VerifyResponse{Amount: five}, unheld: true, class: seller.Unavailable},
		"the caller left": {
			v: x402.VerifyResponse{AgentRequestID: "r", Amount: five, Extra: &x402.VerifyExtra{HeldAmount: five}}, left: true,
			class: seller.CallerLeft, calls: "release 0s",
		},
		"away":            {err: toll.NewError(toll.CodeUnavailable), class: seller.Unavailable},
		"not paid":        {v: bad(x402.ReasonInsufficientFunds, toll.CodePaymentRequired), class: seller.Unpaid},
		"no code":         {v: bad(x402.ReasonInsufficientFunds, ""), class: seller.Unpaid},
		"conflict":        {v: bad(x402.ReasonIdentifierConflict, toll.CodePaymentRequired), class: seller.Conflict},
		"too many":        {v: bad(x402.ReasonTooManyHolds, toll.CodePaymentRequired), class: seller.Limited},
		"not decided":     {v: bad(x402.ReasonPending, toll.CodeSettlementPending), class: seller.Pending},
		"own key refused": {v: bad(x402.ReasonUnauthorizedServer, toll.CodePaymentRequired), class: seller.Unavailable},
		"no such plan":    {v: bad(x402.ReasonInvalidPayload, toll.CodePaymentPlanNotFound), class: seller.Unavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.v.Payer, c.v.IsValid = "0xabc", c.v.InvalidReason == ""
			d := &desk{verdict: &c.v, failed: c.err, release: []error{nil}}
			var log bytes.Buffer
			o := offer()
			o.Unheld = c.unheld
			ctx, leave := context.WithCancel(t.Context())
			if c.left {
				leave()
			}
			defer leave()
			p, r := newSeller(d, &log).Open(ctx, o, "a.b.c")
			if got := strings.Join(d.calls, ","); got != c.calls {
				t.Errorf("%s: %s, want %s", name, got, c.calls)
			}
			told := strings.Contains(log.String(), `"room: a call to the facilitator failed" call=verify item=one`)
			if told != (!c.sold && c.class == seller.Unavailable) || strings.Contains(log.String(), "a.b.c") {
				t.Errorf("%s: log %s", name, &log)
			}
			if !c.sold {
				if p != nil || r.Class != c.class || r.Err == nil || r.Class == seller.Unpaid && r.Err.Code != toll.CodePaymentRequired {
					t.Errorf("%s: %+v, %+v", name, p, r)
				}
				return
			}
			keeper := p.Keep(ctx)
			held := keeper.Deliver(func() {})
			keeper.Stop()
			if r != nil || p.Amount != c.amount || p.Payer != "0xabc" || p.AgentID != "ours" || p.AgentRequestID != c.v.AgentRequestID ||
				held == c.unheld || p.Verdict != &c.v {
				t.Errorf("%s: %+v, %+v", name, p, r)
			}
			c.v.AgentID = "theirs"
			if p, _ := newSeller(d, &log).Open(ctx, o, "a.b.c"); p.AgentID != "theirs" {
				t.Errorf("%s: agent %s", name, p.AgentID)
			}
		})
	}
}

func TestPrice(t *testing.T) {
	plan := &x402.Terms{MinAmount: 2, MaxAmount: 5}
	period := &x402.Terms{MinAmount: 1, MaxAmount: 1, Kind: toll.LimitTime.Kind()}
	n := func(c toll.Credits) *toll.Credits { return &c }
	for name, c := range map[string]struct {
		terms                 *x402.Terms
		price, verified, asks *toll.Credits
	}{
		"inside":         {plan, n(3), n(3), n(3)},
		"below":          {plan, n(1), n(2), n(2)},
		"above":          {plan, n(9), n(5), n(5)},
		"free":           {plan, n(0), n(0), n(0)},
		"any":            {plan, nil, nil, n(5)},
		"period":         {period, n(3), n(3), n(0)},
		"any of period":  {period, nil, nil, n(0)},
		"unknown bounds": {&x402.Terms{}, n(3), n(3), n(3)},
		"unknown plan":   {nil, n(3), n(3), n(3)},
	} {
		verified, asks := seller.Price(c.terms, c.price)
		if (verified == nil) != (c.verified == nil) || verified != nil && *verified != *c.verified ||
			(asks == nil) != (c.asks == nil) || asks != nil && *asks != *c.asks {
			t.Errorf("%s: %v and %v", name, verified, asks)
		}
	}
}

// A demand says where the plan is bought: by wallets when credits are missing, and on the page of a refusal.
func TestOrderExtension(t *testing.T) {
	const page = "https://pay.example/checkout/1/again?t=a"
	sold := &x402.Terms{PlanID: "7", OrderURL: "https://pay.example/order"}
	refused := func(page string) *toll.Error { return seller.WithPage(toll.NewError(toll.CodeTopUpRefused), page) }
	for name, c := range map[string]struct {
		terms  *x402.Terms
		reason string
		e      *toll.Error
		want   string
	}{
		"nothing":             {nil, x402.ReasonInsufficientFunds, nil, ""},
		"not for wallets":     {&x402.Terms{PlanID: "7"}, x402.ReasonInsufficientFunds, refused(""), ""},
		"for wallets":         {sold, x402.ReasonInsufficientFunds, nil, `{"info":{"orderUrl":"https://pay.example/order","planId":"7"}}`},
		"credits do not help": {sold, x402.ReasonPaymentDeclined, refused(""), ""},
		"a page":              {sold, x402.ReasonPaymentDeclined, refused(page), `{"info":{"checkoutUrl":"` + page + `","planId":"7"}}`},
		"a page, terms away":  {nil, x402.ReasonPaymentDeclined, refused(page), `{"info":{"checkoutUrl":"` + page + `"}}`},
		"no page of browsers": {sold, x402.ReasonPaymentDeclined, refused("javascript:alert(1)"), ""},
		"a page for models":   {nil, "", refused("https://pay.example/\u202e"), ""},
		"a line more":         {nil, "", refused("https://pay.example/\nx"), ""},
		"the longest":         {nil, "", refused("https://" + strings.Repeat("x", 2040)), `{"info":{"checkoutUrl":"https://` + strings.Repeat("x", 2040) + `"}}`},
		"longer than allowed": {nil, "", refused("https://" + strings.Repeat("x", 2041)), ""},
	} {
		if got := string(seller.OrderExtension(c.terms, c.reason, c.e)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
