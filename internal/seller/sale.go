// Package seller implements the seller's side of a paid call for any transport. It verifies a payment with a hold, classifies
// refusals, settles or releases, queues delivered work for settlement if the service is unreachable, and bounds work without a
// caller. The middlewares for HTTP, MCP, and A2A are built on it.
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

// ErrNoHold means that the facilitator accepted a payment without a request id or without the requested hold.
var ErrNoHold = errors.New("the facilitator verified a payment, but returned no request id or no hold")

// Seller is the configuration that the sales of a transport share. After [Seller.SetDefaults], its fields must not change, and it
// is safe for concurrent use.
type Seller struct {
	Facilitator  x402.Facilitator
	Terms        *TermsCache
	AgentID      toll.AgentID
	HoldSecs     int           // life of a hold in seconds, 1 to 900
	Timeout      time.Duration // of each call to the facilitator
	Namespace    x402.Namespace
	OnDisconnect Disconnect
	Queue        *Queue
	OnUnsettled  func(Unsettled) // alarm for delivered but unsettled streams; may be nil
	Log          *slog.Logger
	Clock        func() time.Time

	Room string // package name, which begins each log message
	Item string // key of the log attribute whose value is [Offer].Item

	// unbound caches hashes of access tokens without a resource. Claims never change, and decoding them again would take 4 us for
	// each request.
	unbound *cache.Cache[[32]byte, struct{}]
}

// SetDefaults sets defaults for empty optional fields and clamps HoldSecs to its bounds. It panics for an unknown OnDisconnect.
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

// Price clamps a price to the bounds of its plan, and returns the credits to verify and the credits to show. nil means the maximum of
// the plan. For a plan that does not charge credits, such as a plan for a period, the credits to show are 0.
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

// Offer is the demand for payment of one call.
type Offer struct {
	Required *x402.PaymentRequired
	PlanID   toll.PlanID
	Max      *toll.Credits // credits to verify, within the bounds of the plan; nil: its maximum
	Item     string        // id of the sold call, for the log
	// Unheld sells without a hold: the settlement may be refused after the work is done.
	Unheld bool
	// Elsewhere is a second resource URL, tried if the payment does not match the resource of Required; "" to not retry.
	Elsewhere string
	// Verified is called with every verdict, Settled with every outcome of a settlement, even a late one. Both may be nil.
	Verified func(*x402.VerifyResponse)
	Settled  func(context.Context, *x402.SettleResponse)
	Labels   toll.UsageLabels
}

// Sale is a verified payment, until it is settled or released.
type Sale struct {
	*Seller
	Offer
	Token string
	// Stock is the payment of a wallet (scheme exact), in place of Token. Amount is then in base units of the token.
	Stock *x402.StockPayment
	About []any // additional attributes of each log line

	Payer          string
	AgentID        toll.AgentID
	AgentRequestID string       // "" for the payment of a wallet
	Amount         toll.Credits // credits on hold, the maximum cost of the call; for a wallet, the exact price
	Verdict        *x402.VerifyResponse
	// end is the end of the hold in nanoseconds since 1970, or nil without a hold.
	end *atomic.Int64

	tries int // settlement attempts
}

// Open verifies a payment with a hold. It continues after a disconnect, so that every hold is known, and then releases the hold and
// returns the refusal [CallerLeft].
func (s *Seller) Open(ctx context.Context, o Offer, token string) (*Sale, *Refusal) {
	p := &Sale{Seller: s, Offer: o, Token: token, AgentID: s.AgentID}
	req := &x402.VerifyRequest{PaymentRequired: *o.Required, AccessToken: token, MaxAmount: o.Max, Hold: !o.Unheld}
	if !o.Unheld {
		req.HoldSecs = s.HoldSecs
		// The service measures the life of the hold with its clock. Measured from before the call, our end is never later.
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

// OpenStock is [Seller.Open] for the payment of a wallet, which cannot be held. p contains Stock, Payer, Amount, and optionally
// About. A refusal of the seller's own terms is [Unavailable], because every payment would be refused.
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
		err = toll.Errorf(toll.CodeInternal, "The response is for another payment.")
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

// accept stores a valid verdict. It returns [ErrNoHold] if the verdict lacks a request id or the requested hold. The caller must
// then release the payment.
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

// Class is the kind of a refusal. It determines the response.
type Class int

// Classes of refusals. A transport without a separate response for Conflict, Limited, and Pending responds as for Unpaid.
const (
	Unpaid      Class = iota // the payment is refused: respond with the price
	Conflict                 // the id was used before for different content
	Limited                  // too many requests or holds: retry later
	Pending                  // an earlier request with this id is still in progress: retry later
	Unavailable              // the service is unreachable or refuses the seller; the log contains the reason
	CallerLeft               // the caller disconnected
)

// Refusal is the reason why a call is unpaid.
type Refusal struct {
	Class  Class
	Reason string      // x402 reason code, may be empty
	Err    *toll.Error // code and message; params.checkoutUrl is a page where a person can pay instead
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

// Unavailable returns the refusal for a failed call to the service, which is not the caller's fault. It logs the error, except 429.
func (s *Seller) Unavailable(what string, o *Offer, err error) *Refusal {
	e := toll.AsError(err)
	if e.HTTPStatus() != http.StatusTooManyRequests {
		s.Log.Error(s.Room+": a call to the facilitator failed", "call", what, s.Item, o.Item, "plan", string(o.PlanID),
			"error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)
	}
	return &Refusal{Class: Unavailable, Err: e}
}

// RefusesSeller reports whether a refusal concerns the seller or its entry rather than the payment of the wallet.
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

// ChallengeError returns the error text of a 402: begin, followed by the sentence if that contains a URL, because some clients show
// only this text. It has at most 300 bytes: a sentence that does not fit is omitted, and begin is cut between characters. The
// SDKs do the same (testdata/conformance/tables/challenges.json).
func ChallengeError(begin, sentence string) string {
	between := ": "
	if strings.HasSuffix(begin, ".") {
		between = " "
	}
	if whole := begin + between + sentence; strings.Contains(sentence, "://") && len(whole) <= maxChallengeError {
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
	paramPage = "checkoutUrl" // error parameter with the URL of a page where a person can pay
	maxPage   = 2048          // bytes of this URL
)

// WithPage returns e with the URL of a page where a person can pay instead, and the hint to open it. It returns e unchanged unless
// page is an http or https URL of at most 2048 visible ASCII characters.
func WithPage(e *toll.Error, page string) *toll.Error {
	visible := strings.IndexFunc(page, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
	if !visible || len(page) > maxPage || !strings.HasPrefix(page, "https://") && !strings.HasPrefix(page, "http://") {
		return e
	}
	return e.WithParam(paramPage, page).WithHint(toll.CodeCardAuthentication.Info().Hint)
}

// OrderExtension returns the extension with the URLs to buy the plan: orderUrl for wallets, if credits are missing, and checkoutUrl
// of the refusal e. It returns nil without either URL. t and e may be nil.
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

// Receipt encodes a settlement. It uses the exact bytes from the service if available, so that it equals the stored receipt.
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
