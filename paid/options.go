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
	DefaultHoldSecs  = 60       // life of a hold, in seconds
	MaxHoldSecs      = 900      // maximum life of a hold, in seconds
	DefaultMaxBuffer = 8 << 20  // bytes of a response that waits in memory for its settlement
	DefaultMaxBody   = 10 << 20 // bytes of a request body
	DefaultTimeout   = 30 * time.Second
)

// Response is the response of a handler, for a function that prices it.
type Response struct {
	Status int
	Header http.Header // the handler's headers; changes have no effect
	// Body is the complete body, or nil if Streamed.
	Body []byte
	// Size is the number of body bytes, for a stream the number of delivered bytes.
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
	maxFunc     func(r *http.Request, available *toll.Credits) (toll.Credits, error)
	scheme      string
	network     string
	description string
	mimeType    string
	publicURL   string
	upstream    *url.URL // of this route of a [Proxy]
	transport   http.RoundTripper

	identifierRequired bool
	offers             bool
	perCall            []Exact

	hold          bool
	maxBuffer     int64
	maxBody       int64
	expiredStatus int
	tokenHeaders  []string

	beforeVerify   func(*http.Request) error
	replay         func(r *http.Request, token string) (respond func(http.ResponseWriter) bool, err error)
	afterVerify    func(*http.Request, *x402.VerifyResponse)
	afterSettle    func(*http.Request, *x402.SettleResponse)
	labels         func(*http.Request) toll.UsageLabels
	onPaymentError func(http.ResponseWriter, *http.Request, *toll.Error) bool
	onError        func(http.ResponseWriter, *http.Request, *toll.Error) bool
	onClosed       func(http.ResponseWriter, *http.Request, *toll.Error)

	// flushEventsOnly restricts streaming to event streams and JSON lines. [Proxy] sets it because its reverse proxy flushes every response without
	// a length, and other responses should carry their receipt.
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

// Plan sets the plan whose credits pay for the route. Every paid route requires it.
func Plan(id toll.PlanID) Option { return func(c *config) { c.plan = id } }

// Agent sets the agent that serves the route. It binds payments to the agent's endpoints.
func Agent(id toll.AgentID) Option { return func(c *config) { c.AgentID = id } }

// Credits sets the price of one response, default 1. A price of 0 is free, but the request still needs an access token. Any other price
// outside the bounds of the plan is clamped to them, in the 402 too: with a plan of 1 to 5 credits per request, 7 becomes 5. The
// route logs this once, on the first request, because it does not know the plan earlier. `toll gate` reads the plan when it starts
// and rejects such a price.
func Credits(n toll.Credits) Option {
	return func(c *config) { c.credits, c.creditsFunc = max(n, 0), nil }
}

// CreditsFunc sets a function that prices the response after the handler ran. A positive result is clamped to the bounds of the plan
// and to the held amount; 0 or less burns nothing. f must not block. Bound it with MaxCredits, or the plan's maximum is held.
func CreditsFunc(f func(r *http.Request, resp Response) toll.Credits) Option {
	return func(c *config) { c.creditsFunc = f }
}

// MaxCredits bounds the price from a CreditsFunc, and therefore the hold. Default: the maximum of the plan.
func MaxCredits(n toll.Credits) Option { return func(c *config) { c.maxCredits = max(n, 0).Ptr() } }

// MaxCreditsFunc bounds the price of each paid request, and therefore its hold, by a function of the request. f may read the
// body with [ReadBody]. available is nil in the first call. If the subscriber has fewer credits than f returned, f is
// called a second time with the available credits, and may return a lower bound that the subscriber can pay. An error of f rejects
// the request: a [*toll.Error] with its own status, any other error with 500; in the second call with 402. Requests without a payment
// do not reach f: their 402 contains [MaxCredits].
func MaxCreditsFunc(f func(r *http.Request, available *toll.Credits) (toll.Credits, error)) Option {
	return func(c *config) { c.maxFunc = f }
}

// Upstream sets the server to which a [Proxy] sends the requests of a route, and the transport that sends them. The default is
// the upstream of the proxy. transport may be nil; a transport of the route sees the request as the upstream does, with the context of
// the work, from which [FromContext] returns the payment. Upstream panics unless u is an absolute http or https URL.
func Upstream(u *url.URL, transport http.RoundTripper) Option {
	checkUpstream(u)
	return func(c *config) { c.upstream, c.transport = u, transport }
}

// Scheme overrides the payment scheme of the plan.
func Scheme(s string) Option { return func(c *config) { c.scheme = s } }

// Network overrides the network of the plan.
func Network(s string) Option { return func(c *config) { c.network = s } }

// Description describes the resource in a 402.
func Description(s string) Option { return func(c *config) { c.description = s } }

// MimeType sets the media type of the response in a 402.
func MimeType(s string) Option { return func(c *config) { c.mimeType = s } }

// PublicURL sets the public base URL of this server, for example "https://agent.example.com". The resource in a 402 is this base
// with path and query, or the path alone without a base. The route never uses the Host header or forwarding headers. PublicURL
// panics unless base is an absolute http or https URL.
//
// Subscribers may bind an access token to a resource (RFC 8707). The route accepts it if the resource is the base, the URL of the
// request, or a URL between the two. Without a base, it rejects such tokens, which may be intended for another server.
func PublicURL(base string) Option {
	if err := CheckPublicURL(base); err != nil {
		panic("paid: PublicURL " + err.Error())
	}
	base = strings.TrimRight(base, "/")
	return func(c *config) { c.publicURL = base }
}

// CheckPublicURL returns an error if [PublicURL] would panic. Its text follows a field name: "must be ...".
func CheckPublicURL(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(base, "?#") || u.User != nil {
		return fmt.Errorf("must be an absolute http or https URL without user, query, or fragment; got %q", base)
	}
	return nil
}

// Namespace sets the brand words on the wire, default [x402.Default].
func Namespace(n x402.Namespace) Option { return func(c *config) { c.Namespace = n } }

// Hold sets whether verify holds the credits before the handler runs, default true. Without a hold, a settlement may be refused
// after the work is done, and responses never stream.
func Hold(on bool) Option { return func(c *config) { c.hold = on } }

// HoldSecs sets the life of the hold in seconds, 1 to 900, default 60; other values are clamped. While the handler works, the hold
// is renewed at half of its life, for at most 24 hours.
func HoldSecs(n int) Option {
	return func(c *config) { c.HoldSecs = min(max(n, 1), MaxHoldSecs) }
}

// MaxBuffer bounds the bytes of a response that wait in memory for the settlement, default 8 MiB. A longer response streams, or
// fails with [ErrTooLarge] if it cannot.
func MaxBuffer(n int64) Option { return func(c *config) { c.maxBuffer = max(n, 0) } }

// MaxBody bounds the request body in bytes, default 10 MiB. A larger body gets 413. A negative value means no limit.
func MaxBody(n int64) Option { return func(c *config) { c.maxBody = n } }

// ExpiredStatus sets the status for an expired, revoked, or incorrectly signed access token: 402 (default) or 401. It panics for
// other values.
func ExpiredStatus(status int) Option {
	if status != http.StatusPaymentRequired && status != http.StatusUnauthorized {
		panic("paid: ExpiredStatus must be 402 or 401")
	}
	return func(c *config) { c.expiredStatus = status }
}

// RequirePaymentIdentifier rejects requests without a payment identifier (x402 extension payment-identifier) with 400. Every route
// supports the extension, which serves repeated requests with one identifier only once, regardless of their nonce. Clients that
// send a bare access token cannot use a route that requires it.
func RequirePaymentIdentifier() Option { return func(c *config) { c.identifierRequired = true } }

// Offers adds signed offers to every 402: its terms, signed by the service that settles them (x402 extension offer-receipt). They
// add 0.8 KB to the 402 and to payments that repeat it. The facilitator must be an [x402.Offerer], as the Go client and the service
// are. Offers of a resource are cached for minutes. While the service is unreachable, the 402 omits them.
func Offers(on bool) Option { return func(c *config) { c.offers = on } }

// TokenHeaders lists the request headers that may carry the access token, default "payment-signature". They are removed from
// the request that the handler sees.
//
// In "authorization", only bearer tokens that the service issued count as access tokens; the handler receives other credentials
// unchanged. No header or cookie, listed or not, passes an access token of the service to the handler, and a paid request with
// an access token in its URL gets 400.
func TokenHeaders(names ...string) Option {
	names = slices.Clone(names)
	return func(c *config) { c.tokenHeaders = names }
}

// Timeout bounds each call to the facilitator, default 30 s.
func Timeout(d time.Duration) Option { return func(c *config) { c.Timeout = d } }

// BeforeVerify sets a function that runs before the payment is verified. An error rejects the request: a [*toll.Error] with its
// own status, any other error with 500. The request does not contain the access token.
func BeforeVerify(f func(r *http.Request) error) Option {
	return func(c *config) { c.beforeVerify = f }
}

// Replay sets a function that may respond to a request in place of the handler, without burning credits, for example with the kept
// response of an equal request. f runs after MaxCreditsFunc and before the verification, and may read the body with [ReadBody]. token is
// the unverified access token, a compact JWS. If f returns a function, the route verifies the token without a hold and then
// calls that function, which returns false to continue with the request as usual. The token may lack credits at that point. An error of f
// rejects the request, like an error of BeforeVerify. Payments of wallets do not reach f.
func Replay(f func(r *http.Request, token string) (respond func(w http.ResponseWriter) bool, err error)) Option {
	return func(c *config) { c.replay = f }
}

// AfterVerify sets a function that runs after every verdict, including refusals.
func AfterVerify(f func(r *http.Request, verdict *x402.VerifyResponse)) Option {
	return func(c *config) { c.afterVerify = f }
}

// AfterSettle sets a function that runs after every settlement: a success, a refusal, or a still unknown outcome (errorReason
// settlement_pending). It runs again for a stream that the queue settles later.
func AfterSettle(f func(r *http.Request, receipt *x402.SettleResponse)) Option {
	return func(c *config) { c.afterSettle = f }
}

// Labels sets a function that returns the labels of a request, by which the seller and the buyer see its usage. It runs after
// [MaxCreditsFunc] and before verify. The service rejects a settlement with other labels than [toll.UsageLabels] allows.
func Labels(f func(r *http.Request) toll.UsageLabels) Option {
	return func(c *config) { c.labels = f }
}

// OnPaymentError sets a function that may respond in place of the 402. It returns true if it has responded; otherwise the 402 keeps
// the headers that it set. The payment-required and payment-response headers are set before it runs.
func OnPaymentError(f func(w http.ResponseWriter, r *http.Request, e *toll.Error) bool) Option {
	return func(c *config) { c.onPaymentError = f }
}

// OnError sets a function that may write the response to an error of the route other than a 402: a malformed or too large request, an
// error of BeforeVerify or MaxCreditsFunc, a conflict, or an unreachable service. It returns true if it has responded.
func OnError(f func(w http.ResponseWriter, r *http.Request, e *toll.Error) bool) Option {
	return func(c *config) { c.onError = f }
}

// OnClosed sets a function that responds while the route cannot accept payments because of its configuration: the price lies
// outside the bounds of the plan, or the service rejects the key, the plan, or the agent. No credits were burned. why is for the
// builder and must not be sent to callers. Without OnClosed, the price is clamped, see [Credits], and a rejection gets the same
// response as an unreachable service.
func OnClosed(f func(w http.ResponseWriter, r *http.Request, why *toll.Error)) Option {
	return func(c *config) { c.onClosed = f }
}

// OnUnsettled sets an alarm for streams that were delivered but could not be settled immediately. It is called when a stream enters
// the queue, and again, with Final set, if the queue gives up.
func OnUnsettled(f func(Unsettled)) Option { return func(c *config) { c.OnUnsettled = f } }

// WithQueue sets the queue of unsettled streams, so that routes can share it and a program can drain it before it exits.
func WithQueue(q *Queue) Option { return func(c *config) { c.Queue = q } }

// Log sets the log for the builder. It contains the reason when the service rejects the builder's key, plan, or agent, which
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
