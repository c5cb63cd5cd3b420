package paid

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Bounds and defaults of the middleware (wire contract, sections 1 and 21).
const (
	DefaultHoldSecs  = 60       // life of a hold
	MaxHoldSecs      = 900      // longest hold that the service gives
	DefaultMaxBuffer = 8 << 20  // bytes of an answer that waits for its settlement in memory
	DefaultMaxBody   = 10 << 20 // bytes of a request body
	DefaultTimeout   = 30 * time.Second
)

// Response is the response of a handler, for a function that prices it.
type Response struct {
	Status int
	Header http.Header // the handler's headers; changes have no effect
	// Body is the whole response; nil if Streamed.
	Body []byte
	// Size is the number of body bytes; of a stream, those before its end.
	Size     int64
	Streamed bool
}

// Option configures a paid route.
type Option func(*config)

type config struct {
	seller.Seller

	plan        toll.PlanID
	credits     toll.Credits
	creditsFunc func(*http.Request, Response) toll.Credits
	maxCredits  *toll.Credits
	scheme      string
	network     string
	description string
	mimeType    string
	publicURL   string

	identifierRequired bool
	offers             bool
	perCall            []Exact

	hold          bool
	maxBuffer     int64
	maxBody       int64
	expiredStatus int
	tokenHeaders  []string

	beforeVerify   func(*http.Request) error
	afterVerify    func(*http.Request, *x402.VerifyResponse)
	afterSettle    func(*http.Request, *x402.SettleResponse)
	onPaymentError func(http.ResponseWriter, *http.Request, *toll.Error) bool
	onClosed       func(http.ResponseWriter, *http.Request, *toll.Error)

	// flushEventsOnly is set for the proxy, whose reverse proxy flushes every response without a length: only event streams
	// stream there, so that other responses keep their receipt.
	flushEventsOnly bool
}

func newConfig(opts []Option) *config {
	c := &config{
		Seller:  seller.Seller{Room: "paid", Item: "correlationId"},
		credits: 1, hold: true, maxBuffer: DefaultMaxBuffer, maxBody: DefaultMaxBody,
		expiredStatus: http.StatusPaymentRequired, tokenHeaders: []string{x402.HeaderSignature},
	}
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	c.SetDefaults()
	return c
}

// Plan names the plan whose credits pay for the route. Every route needs it.
func Plan(id toll.PlanID) Option { return func(c *config) { c.plan = id } }

// Agent names the agent that serves the route. It binds payments to the agent's endpoints.
func Agent(id toll.AgentID) Option { return func(c *config) { c.AgentID = id } }

// Credits sets what one answer costs, default 1; 0 is free of charge, but still needs an access token. It should lie within the
// bounds of the plan. Otherwise it is brought into them, in the 402 as well: 7 credits of a plan that takes 1 to 5 a request
// are 5. The plan is not known before the first request, whose log line says so once per route; `toll gate` reads the
// plan at its start and refuses such a price.
func Credits(n toll.Credits) Option {
	return func(c *config) { c.credits, c.creditsFunc = max(n, 0), nil }
}

// CreditsFunc prices the answer after the handler ran. What it returns is capped at the held amount; 0 or less burns
// nothing. It must not block. Bound it with MaxCredits, else the maximum of the plan is held.
func CreditsFunc(f func(r *http.Request, resp Response) toll.Credits) Option {
	return func(c *config) { c.creditsFunc = f }
}

// MaxCredits bounds what a CreditsFunc may charge, and so what is held. Default: the maximum of the plan.
func MaxCredits(n toll.Credits) Option { return func(c *config) { c.maxCredits = max(n, 0).Ptr() } }

// Scheme overrides the payment scheme, by default the one of the plan.
func Scheme(s string) Option { return func(c *config) { c.scheme = s } }

// Network overrides the network, by default the one of the plan.
func Network(s string) Option { return func(c *config) { c.network = s } }

// Description describes the resource in a 402.
func Description(s string) Option { return func(c *config) { c.description = s } }

// MimeType names the type of the answer in a 402.
func MimeType(s string) Option { return func(c *config) { c.mimeType = s } }

// PublicURL is the absolute base under which the world reaches this server, for example "https://agent.example.com". A 402
// names this base with path and query; without a base it names the path alone. The Host header and forwarding headers are
// never used. A base that is not an absolute http or https URL panics.
//
// Subscribers may bind an access token to a resource (RFC 8707). It is taken here if that is the base, the URL of the
// request, or a URL between the two. Without a base no such token is taken, as its subscriber may mean another server.
func PublicURL(base string) Option {
	if err := CheckPublicURL(base); err != nil {
		panic("paid: PublicURL " + err.Error())
	}
	base = strings.TrimRight(base, "/")
	return func(c *config) { c.publicURL = base }
}

// CheckPublicURL returns why [PublicURL] would panic, as a rule to be put behind a name: "must be ...".
func CheckPublicURL(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(base, "?#") || u.User != nil {
		return fmt.Errorf("must be an absolute http or https URL without user, query and fragment; got %q", base)
	}
	return nil
}

// Namespace sets the brand words on the wire, default [x402.Default].
func Namespace(n x402.Namespace) Option { return func(c *config) { c.Namespace = n } }

// Hold says whether verify sets the credits aside before the handler runs, default true. Without it a settlement may be
// refused after the work is done, and answers never stream.
func Hold(on bool) Option { return func(c *config) { c.hold = on } }

// HoldSecs is the life of the hold in seconds, 1 to 900, default 60. While the handler works, the hold is renewed at half of its
// life, for 24 hours at most.
func HoldSecs(n int) Option {
	return func(c *config) { c.HoldSecs = min(max(n, 1), MaxHoldSecs) }
}

// MaxBuffer is how many bytes of an answer wait in memory for the settlement, default 8 MiB. A longer answer streams on
// its hold.
func MaxBuffer(n int64) Option { return func(c *config) { c.maxBuffer = max(n, 0) } }

// MaxBody is the largest request body in bytes, default 10 MiB; a larger one is 413. Less than 0 means no limit.
func MaxBody(n int64) Option { return func(c *config) { c.maxBody = n } }

// ExpiredStatus is the status for an expired, revoked or badly signed access token: 402 (default) or 401.
func ExpiredStatus(status int) Option {
	if status != http.StatusPaymentRequired && status != http.StatusUnauthorized {
		panic("paid: ExpiredStatus is 402 or 401")
	}
	return func(c *config) { c.expiredStatus = status }
}

// RequirePaymentIdentifier takes requests only whose client names them itself, by the x402 extension payment-identifier; one
// without is 400. Every route offers the extension: with it a request that is repeated is served once, whatever nonce it has.
// Clients that send a bare access token cannot use such a route.
func RequirePaymentIdentifier() Option { return func(c *config) { c.identifierRequired = true } }

// Offers adds an offer to every 402: its terms, signed by the service as who settles them (x402 extension offer-receipt). It
// makes a 402 0.8 KB longer, and the payments that repeat it, too. The facilitator must be an [x402.Offerer], as the Go client
// and the service are. An offer is asked for once for all requests of a resource and is good for minutes; a 402 goes without
// one while the service cannot be reached.
func Offers(on bool) Option { return func(c *config) { c.offers = on } }

// TokenHeaders lists the request headers that may carry the access token, default "payment-signature". They are removed from
// the request that the handler sees.
//
// "authorization" takes bearer tokens that are access tokens of the service; any other credential there is for the handler,
// which gets it unchanged. Listed or not, an access token of the service never reaches the handler in any header or cookie,
// and a paid request with one in its URL is 400.
func TokenHeaders(names ...string) Option {
	names = slices.Clone(names)
	return func(c *config) { c.tokenHeaders = names }
}

// Timeout bounds each call to the facilitator, default 30 s.
func Timeout(d time.Duration) Option { return func(c *config) { c.Timeout = d } }

// BeforeVerify runs before the payment is verified. An error refuses the request: a [*toll.Error] with its own status,
// anything else with 500. The request carries no access token.
func BeforeVerify(f func(r *http.Request) error) Option {
	return func(c *config) { c.beforeVerify = f }
}

// AfterVerify runs after every verdict, refusals included.
func AfterVerify(f func(r *http.Request, verdict *x402.VerifyResponse)) Option {
	return func(c *config) { c.afterVerify = f }
}

// AfterSettle runs after every settlement: a success, a refusal, or an outcome that is still unknown
// (errorReason settlement_pending). A stream that settles late from the queue comes here again.
func AfterSettle(f func(r *http.Request, receipt *x402.SettleResponse)) Option {
	return func(c *config) { c.afterSettle = f }
}

// OnPaymentError may answer in place of a 402. It returns whether it did; headers that it set without answering are kept.
// The payment-required and payment-response headers are set before it runs.
func OnPaymentError(f func(w http.ResponseWriter, r *http.Request, e *toll.Error) bool) Option {
	return func(c *config) { c.onPaymentError = f }
}

// OnClosed answers requests in place of the route while it cannot take payments as the builder set
// it up: its price lies outside the bounds of the plan, or the service refuses the key, the plan or
// the agent. why is for the builder alone. Nothing burned. Without it the price is brought into the
// bounds, see [Credits], and a refusal is answered like a service that is away.
func OnClosed(f func(w http.ResponseWriter, r *http.Request, why *toll.Error)) Option {
	return func(c *config) { c.onClosed = f }
}

// OnUnsettled is the alarm for streams that were delivered and could not be settled at once. It is called when a stream
// enters the queue, and once more, with Final set, when the queue gives up.
func OnUnsettled(f func(Unsettled)) Option { return func(c *config) { c.OnUnsettled = f } }

// WithQueue shares a queue of unsettled streams, so that a program can drain it before it exits.
func WithQueue(q *Queue) Option { return func(c *config) { c.Queue = q } }

// Log receives what the builder should know: above all, why the service refuses the agent's own key, plan or agent, which
// callers only see as 503. The default writes warnings and errors to stderr. Access tokens are never logged.
func Log(l *slog.Logger) Option {
	return func(c *config) {
		if l != nil {
			c.Log = l
		}
	}
}

// Clock replaces the clock, for tests.
func Clock(now func() time.Time) Option { return func(c *config) { c.Clock = now } }
