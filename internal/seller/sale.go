// Package seller is the seller's side of a paid call on any transport: it verifies a payment with a hold, explains refusals,
// settles or releases, settles delivered work later if the service was unreachable, and bounds work without a caller. The
// middlewares for HTTP, MCP and A2A translate that to their protocols.
package seller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/x402"
)

// DefaultTimeout bounds each call to the facilitator.
const DefaultTimeout = 30 * time.Second

// ErrNoHold means that the payment is valid, but no credits were held for it.
var ErrNoHold = errors.New("the facilitator confirmed a payment without an id or without its hold")

// Seller is shared by the sales of one transport. Its fields do not change after [Seller.SetDefaults]; then it is safe for
// concurrent use.
type Seller struct {
	Facilitator  x402.Facilitator
	Terms        *TermsCache
	AgentID      toll.AgentID
	HoldSecs     int           // life of a hold, 1 to 900
	Timeout      time.Duration // of each call to the facilitator
	Namespace    x402.Namespace
	OnDisconnect Disconnect
	Queue        *Queue
	OnUnsettled  func(Unsettled) // alarm for what was delivered and is not settled; may be nil
	Log          *slog.Logger
	Clock        func() time.Time

	Room string // begins each line of the log
	Item string // name of the attribute that says what is sold, see [Offer]

	// unbound are hashes of access tokens that name no resource. That never changes, and reading their claims again would cost
	// 4 us for each request.
	unbound *cache.Cache[[32]byte, struct{}]
}

// SetDefaults sets defaults and brings HoldSecs within its bounds. It panics for an unknown OnDisconnect.
func (s *Seller) SetDefaults() {
	s.OnDisconnect.Check(s.Room)
	s.HoldSecs = min(max(cmp.Or(s.HoldSecs, x402.DefaultHoldSecs), 1), x402.MaxHoldSecs)
	s.Timeout = cmp.Or(max(s.Timeout, 0), DefaultTimeout)
	s.Namespace = cmp.Or(s.Namespace, x402.Default)
	s.unbound = cache.OfHashes[struct{}](maxUnbound)
	s.Queue = cmp.Or(s.Queue, NewQueue())
	s.Log = cmp.Or(s.Log, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if s.Clock == nil {
		s.Clock = time.Now
	}
}

// Price clamps a price to the bounds of its plan and returns the credits to verify and those to show; nil is the plan's maximum.
// A plan for a period takes no credits.
func Price(t *x402.Terms, most *toll.Credits) (verified, asked *toll.Credits) {
	if most != nil {
		most = t.InBounds(*most).Ptr()
	}
	switch {
	case t != nil && !t.Kind.Charges():
		return most, new(toll.Credits)
	case t != nil && t.MaxAmount != 0 && most == nil:
		return nil, t.MaxAmount.Ptr()
	}
	return most, most
}

// Offer is what one caller has to pay.
type Offer struct {
	Required *x402.PaymentRequired
	PlanID   toll.PlanID
	Max      *toll.Credits // credits to verify, within the bounds of the plan; nil: its maximum
	Item     string        // what is sold, for the log
	// Unheld sells without a hold: a settlement may then be refused after the work is done.
	Unheld bool
	// Elsewhere is a second url for which the payment is verified if the agent does not know the first one; "" for none.
	Elsewhere string
	// Verified is called with every verdict, Settled with every outcome of a settlement, also a late one. Both may be nil.
	Verified func(*x402.VerifyResponse)
	Settled  func(context.Context, *x402.SettleResponse)
}

// Sale is a verified payment, until it is settled or released.
type Sale struct {
	*Seller
	Offer
	Token string
	// Stock is the payment of a wallet (scheme exact), in place of Token. Amount is in base units then.
	Stock *x402.StockPayment
	About []any // more attributes of each line of the log

	Payer          string
	AgentID        toll.AgentID
	AgentRequestID string       // "" when there is nothing to settle and to release
	Amount         toll.Credits // credits set aside, the most that the call can cost; of a wallet what it pays
	Verdict        *x402.VerifyResponse
	// end is until when the seller may rely on the hold, in nanoseconds since 1970; nil without a hold.
	end *atomic.Int64

	tries int // of a settlement
}

// Open verifies a payment with a hold. It continues after a disconnect, so that every hold is known; the hold is then released,
// and the refusal is [CallerLeft].
func (s *Seller) Open(ctx context.Context, o Offer, token string) (*Sale, *Refusal) {
	p := &Sale{Seller: s, Offer: o, Token: token, AgentID: s.AgentID}
	req := &x402.VerifyRequest{PaymentRequired: *o.Required, AccessToken: token, MaxAmount: o.Max, Hold: !o.Unheld}
	if !o.Unheld {
		req.HoldSecs = s.HoldSecs
		// The hold ends by the clock of the service. Counted from before the call, our end is never later.
		p.end = new(atomic.Int64)
		p.end.Store(s.Clock().Add(p.life()).UnixNano())
	}
	v, err := p.verify(ctx, req)
	if err == nil && !v.IsValid && v.InvalidReason == s.Namespace.ReasonResourceMismatch() && o.Elsewhere != "" {
		required := *o.Required
		required.Resource.URL = o.Elsewhere
		p.Required, req.PaymentRequired = &required, required
		v, err = p.verify(ctx, req)
	}
	switch {
	case err != nil:
		return nil, p.Unavailable("verify", &p.Offer, err)
	case !v.IsValid:
		return nil, p.refused(v)
	}
	if err := p.accept(v); err != nil {
		p.Release(ctx)
		return nil, p.Unavailable("verify", &p.Offer, err)
	}
	return p.unlessLeft(ctx)
}

// OpenStock is [Seller.Open] for the payment of a wallet, which cannot be held. p has Stock, Payer, Amount and optionally
// About. A refusal of the seller's own terms is [Unavailable]: no payment would be accepted.
func (s *Seller) OpenStock(ctx context.Context, o Offer, p Sale) (*Sale, *Refusal) {
	p.Seller, p.Offer, p.AgentID = s, o, s.AgentID
	v, err := p.verify(ctx, &x402.VerifyRequest{Stock: p.Stock})
	switch {
	case err != nil:
	case !v.IsValid && RefusesSeller(v.InvalidReason):
		err = toll.Errorf(toll.CodeBadRequirements, "PerCall: %s %s", v.InvalidReason, v.InvalidMessage)
	case !v.IsValid:
		return nil, p.refused(v)
	case !strings.EqualFold(v.Payer, p.Payer) || v.Network != p.Stock.Requirements.Network:
		err = toll.Errorf(toll.CodeInternal, "The verdict is not about this payment.")
	}
	if err != nil {
		return nil, p.Unavailable("verify", &p.Offer, err)
	}
	p.Verdict = v
	return p.unlessLeft(ctx)
}

func (p *Sale) verify(ctx context.Context, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	v, err := p.Facilitator.Verify(ctx, req)
	if err == nil && p.Verified != nil {
		p.Verified(v)
	}
	return v, err
}

func (p *Sale) unlessLeft(ctx context.Context) (*Sale, *Refusal) {
	if ctx.Err() == nil {
		return p, nil
	}
	p.Release(ctx)
	return nil, &Refusal{Class: CallerLeft, Err: toll.AsError(ctx.Err())}
}

// accept stores a valid verdict. It returns [ErrNoHold], and the payment must be released, if the verdict names no request, or
// has no hold although one was requested.
func (p *Sale) accept(v *x402.VerifyResponse) error {
	p.Verdict, p.Payer, p.AgentRequestID = v, v.Payer, v.AgentRequestID
	if v.AgentID != "" {
		p.AgentID = v.AgentID
	}
	if v.Amount != nil {
		p.Amount = *v.Amount
	}
	there := v.Extra != nil && v.Extra.HeldAmount != nil
	if there {
		p.Amount = *v.Extra.HeldAmount
	}
	if v.AgentRequestID == "" || !p.Unheld && !there && p.Amount > 0 {
		return ErrNoHold
	}
	return nil
}

// Class says how to respond to a caller without a valid payment.
type Class int

// Classes of refusals. A transport without its own form of Conflict, Limited and Pending responds as for Unpaid.
const (
	Unpaid      Class = iota // the payment is refused: answer with the price
	Conflict                 // the request was made before with other content
	Limited                  // too many requests or holds: retry later
	Pending                  // an earlier request with this id is not decided yet: retry later
	Unavailable              // the service is unreachable, or refuses the seller; only the log says why
	CallerLeft               // the caller disconnected
)

// Refusal explains why a call is not paid.
type Refusal struct {
	Class  Class
	Reason string      // x402 reason word, may be empty
	Err    *toll.Error // code and sentence; params.checkoutUrl is a page on which a person can pay instead
	Payer  string
}

// refused classifies an invalid verdict.
func (p *Sale) refused(v *x402.VerifyResponse) *Refusal {
	e := toll.NewError(v.Code)
	if v.Code == "" {
		e.Code = toll.CodePaymentRequired
	}
	e.Message = v.InvalidMessage
	if v.Extra != nil {
		e = WithPage(e, v.Extra.CheckoutURL)
	}
	r := &Refusal{Reason: v.InvalidReason, Err: e, Payer: v.Payer}
	switch reason := v.InvalidReason; {
	case reason == x402.ReasonConflict, reason == x402.ReasonIdentifierConflict:
		r.Class = Conflict
	case reason == x402.ReasonTooManyHolds, reason == x402.ReasonRateLimited:
		r.Class = Limited
	case reason == x402.ReasonPending:
		r.Class = Pending
	case reason == x402.ReasonUnauthorizedServer, reason == x402.ReasonVerifyFault,
		v.Code == toll.CodePaymentPlanNotFound, v.Code == toll.CodePaymentAgentNotFound:
		return p.Unavailable("verify", &p.Offer, e.WithReason(reason))
	}
	return r
}

// Unavailable returns the refusal for a failed call to the service, which is not the caller's fault. The reason is in the log.
func (s *Seller) Unavailable(what string, o *Offer, err error) *Refusal {
	e := toll.AsError(err)
	if e.HTTPStatus() != http.StatusTooManyRequests {
		s.Log.Error(s.Room+": a call to the facilitator failed", "call", what, s.Item, o.Item, "plan", string(o.PlanID),
			"error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)
	}
	return &Refusal{Class: Unavailable, Err: e}
}

// RefusesSeller reports whether a refusal is about the entry of the seller, not about the payment of the wallet.
func RefusesSeller(reason string) bool {
	switch reason {
	case x402.ReasonInvalidRequirements, x402.ReasonInvalidNetwork, x402.ReasonUnsupportedScheme, x402.ReasonUnauthorizedServer,
		x402.ReasonVerifyFault:
		return true
	}
	return false
}

// maxChallengeError bounds the error of a 402, in bytes.
const maxChallengeError = 300

// ChallengeError returns the error of a 402: begin, and the sentence if that contains an address, since some clients show
// nothing else. It has at most 300 bytes: a sentence that does not fit is left out, and begin is cut between characters. The
// SDKs do the same (testdata/conformance/tables/challenges.json).
func ChallengeError(begin, sentence string) string {
	if whole := begin + ": " + sentence; strings.Contains(sentence, "://") && len(whole) <= maxChallengeError {
		return whole
	}
	if len(begin) <= maxChallengeError {
		return begin
	}
	n := maxChallengeError
	for !utf8.RuneStart(begin[n]) {
		n--
	}
	return begin[:n]
}

// IsShortfall reports whether the payer lacks credits, or a delegation to buy them.
func IsShortfall(reason string) bool {
	switch reason {
	case x402.ReasonInsufficientFunds, x402.ReasonRedemptionLimit, x402.ReasonOrderLimit, x402.ReasonPlanExpired,
		x402.ReasonDelegationExhausted, x402.ReasonDelegationShort, x402.ReasonDelegationExpired, x402.ReasonDelegationRevoked,
		x402.ReasonDelegationNotFound:
		return true
	}
	return false
}

const (
	paramPage = "checkoutUrl" // parameter of an error with the page on which a person can pay
	maxPage   = 2048          // bytes of such an address
)

// WithPage returns e with the address of a page on which a person can pay instead, if page is a URL in visible ASCII, and with
// the hint to open it.
func WithPage(e *toll.Error, page string) *toll.Error {
	visible := strings.IndexFunc(page, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
	if !visible || len(page) > maxPage || !strings.HasPrefix(page, "https://") && !strings.HasPrefix(page, "http://") {
		return e
	}
	return e.WithParam(paramPage, page).WithHint(toll.CodeCardAuthentication.Info().Hint)
}

// OrderExtension returns the extension that names where to buy the plan: orderUrl for wallets, if credits are missing, and the
// page of the refusal e. It returns nil without either. t and e may be nil.
func OrderExtension(t *x402.Terms, reason string, e *toll.Error) json.RawMessage {
	info := map[string]string{}
	if t != nil && t.OrderURL != "" && IsShortfall(reason) {
		info["orderUrl"] = t.OrderURL
	}
	if e != nil {
		if page, ok := e.Params[paramPage].(string); ok {
			info[paramPage] = page
		}
	}
	if len(info) == 0 {
		return nil
	}
	if t != nil {
		info["planId"] = string(t.PlanID)
	}
	raw, err := x402.Encode(map[string]any{"info": info})
	if err != nil {
		return nil
	}
	return raw
}

// Receipt returns the response of the service, with its exact bytes if they are known, so that it equals the stored one.
func Receipt(r *x402.SettleResponse) json.RawMessage {
	if json.Valid(r.Raw) {
		return r.Raw
	}
	b, err := x402.Encode(r)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}
