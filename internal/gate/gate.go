package gate

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// Deps are the dependencies of a gate.
type Deps struct {
	Facilitator x402.Facilitator
	Plan        toll.PlanID
	Agent       toll.AgentID // optional
	Options     []paid.Option
	Queue       *paid.Queue // of streams that could not be settled yet; survives a reload
	Replays     *Replays    // responses for repeated requests; survives a reload; nil: only of this handler
	Metrics     *Metrics    // nil counts nothing
	Log         *slog.Logger
	BuyAt       string // address where the plan can be bought, for error messages; optional
}

// route is a route of the configuration with what the gate derives from it.
type route struct {
	*Route
	buyAt        string
	named        []string // members that `when` names
	readsRequest bool     // the price depends on the request
	sellers      []string // response headers of the preset about the seller
	intake       *intake
	limits       *limiter
	replays      *Replays
}

// tokenHeaders are the headers in which SDKs send their API key.
var tokenHeaders = []string{x402.HeaderSignature, "authorization", "x-api-key", "x-goog-api-key"}

// New returns the handler of a configuration that [Load] has checked.
func New(c *Config, d Deps) http.Handler {
	drainTime := min(maxDrainTime, time.Duration(c.HoldSecs)*time.Second/2)
	drains := make(chan struct{}, maxDrains)
	shared := append([]paid.Option{
		paid.Plan(d.Plan), paid.Agent(d.Agent), paid.HoldSecs(c.HoldSecs), paid.Log(d.Log), paid.WithQueue(d.Queue),
		paid.TokenHeaders(tokenHeaders...), paid.AfterSettle(settled), paid.Labels(labelsOf),
	}, d.Options...)
	if c.PublicURL != "" {
		shared = append(shared, paid.PublicURL(c.PublicURL))
	}
	limits, intake, replays := newLimiter(c.Limits), newIntake(), cmp.Or(d.Replays, NewReplays(nil))
	shared = append(shared, paid.Replay(replays.respond))
	bases := map[*Upstream]http.RoundTripper{}
	list := []paid.Route{paid.With(shared...)}
	for _, r := range c.Routes {
		if bases[r.upstream] == nil {
			bases[r.upstream] = newBase(r.upstream)
		}
		own := newRoute(r, d.BuyAt)
		own.intake, own.limits, own.replays = intake, limits, replays
		to := paid.Upstream(r.upstream.address, &transport{base: bases[r.upstream], route: own, drains: drains, drainTime: drainTime, log: d.Log})
		if r.Free {
			list = append(list, paid.Free(r.Match, to, paid.OnError(own.onError)))
			continue
		}
		opts := []paid.Option{to, paid.OnError(own.onError), paid.BeforeVerify(func(req *http.Request) error {
			c := callOf(req.Context())
			c.route = own
			return limits.enter(c, c.sent)
		})}
		if r.Credits != nil {
			opts = append(opts, paid.Credits(toll.Credits(*r.Credits)))
		} else {
			opts = append(opts, paid.MaxCreditsFunc(maxPrice), paid.CreditsFunc(priceOf))
		}
		if own.api != nil {
			opts = append(opts, paid.ExpiredStatus(http.StatusUnauthorized), paid.OnPaymentError(own.onPaymentError))
		}
		if r.exact != nil {
			opts = append(opts, paid.PerCall(*r.exact))
		}
		list = append(list, paid.At(r.Match, opts...))
	}
	first := c.Routes[0].upstream.address // each route has its own
	h := handler{
		replays: replays, next: paid.Proxy(d.Facilitator, first, list...), metrics: d.Metrics, log: d.Log, accessLog: c.AccessLog, cors: len(c.CORS) > 0,
	}
	if h.cors {
		return paid.CORS(h, c.CORS...)
	}
	return h
}

func newRoute(r *Route, buyAt string) *route {
	own := &route{Route: r, buyAt: buyAt}
	for i := range r.table {
		for name := range r.table[i].When {
			own.named = append(own.named, name)
		}
	}
	own.readsRequest = len(own.named) > 0
	for _, m := range r.meter {
		own.readsRequest = own.readsRequest || m.Request != "" || m.RequestHeader != ""
	}
	if r.api != nil {
		own.sellers = r.api.SellerHeaders()
	}
	return own
}

// isSellers reports whether a response header is about the account of the seller. A pattern may end in "*".
func (r *route) isSellers(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(r.sellers, func(p string) bool {
		prefix, wild := strings.CutSuffix(p, "*")
		return name == p || wild && strings.HasPrefix(name, prefix)
	})
}

// writeError writes an error in the shape of the API.
func (r *route) writeError(w http.ResponseWriter, e *toll.Error) {
	var status int
	var kind string
	var body []byte
	if r.api != nil {
		status, kind, body = r.api.Error(e, r.buyAt)
	} else {
		status, kind = e.HTTPStatus(), "application/json"
		body, _ = x402.Encode(e.Body(toll.NewUUID(), ""))
	}
	h := w.Header()
	if e.RetryAfterSecs > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (r *route) onError(w http.ResponseWriter, _ *http.Request, e *toll.Error) bool {
	if r.api == nil {
		return false
	}
	r.writeError(w, e)
	return true
}

func (r *route) onPaymentError(w http.ResponseWriter, _ *http.Request, e *toll.Error) bool {
	r.writeError(w, e)
	return true
}

// handler gives each request its call, and adds the headers with the credits to its response.
type handler struct {
	next      http.Handler
	replays   *Replays
	metrics   *Metrics
	log       *slog.Logger
	accessLog bool
	cors      bool // scripts read the headers with the credits
}

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{start: time.Now(), sent: r.Header, caller: r.Context()}
	a := &answer{ResponseWriter: w, call: c, replays: h.replays, cors: h.cors}
	defer func() {
		if c.leave != nil {
			c.leave()
		}
		h.replays.end(c) // a request that waits may run now
		if c.route != nil {
			c.route.intake.done(c)
		}
		h.metrics.count(c, a.status)
		if c.over > 0 {
			h.log.Warn("gate: a call used more than its hold", "route", c.route.Match, "held", c.held.String(), "uncovered", c.over.String())
		}
		if h.accessLog {
			h.log.Info("gate: request", accessLine(c, a, r)...)
		}
	}()
	h.next.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	c.returned = true
}

func accessLine(c *call, a *answer, r *http.Request) []any {
	line := []any{"method", r.Method, "path", r.URL.Path, "status", a.status, "ms", time.Since(c.start).Milliseconds()}
	if c.route != nil {
		line = append(line, "route", c.route.Match)
	}
	if c.model != nil {
		line = append(line, "model", shorten(c.model.Members["model"]), "stream", c.model.Stream)
	}
	if c.answered {
		line = append(line, "upstreamMs", c.upstream.Milliseconds(), "held", c.held.String(), "credits", c.price.String())
		for _, q := range slices.Sorted(maps.Keys(c.usage.Counts)) {
			line = append(line, string(q), c.usage.Counts[q])
		}
	}
	if c.over > 0 {
		line = append(line, "uncovered", c.over.String())
	}
	if c.replayed {
		line = append(line, "replayed", true)
	}
	if s := c.receipt.Load(); s != nil && s.Extra != nil {
		line = append(line, "agentRequestId", s.Extra.AgentRequestID)
	}
	return line
}

// answer is the response of a call. It adds the credits that were used and that remain to a settled response.
type answer struct {
	http.ResponseWriter
	call    *call
	replays *Replays
	status  int
	cors    bool
}

// Unwrap supports [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if status >= 200 {
		a.status = cmp.Or(a.status, status)
	}
	if a.cors && status >= 200 {
		a.Header().Add("Access-Control-Expose-Headers", strings.ToLower(HeaderUsed+", "+HeaderRemaining+", "+HeaderHeld))
	}
	if s := a.call.receipt.Load(); s != nil {
		if s.CreditsRedeemed != nil {
			a.Header().Set(HeaderUsed, s.CreditsRedeemed.String())
		}
		if s.RemainingBalance != nil {
			a.Header().Set(HeaderRemaining, s.RemainingBalance.String())
		}
	}
	if f := a.call.flight; f != nil && status >= 200 {
		f.status, f.header = status, a.Header().Clone()
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	a.status = cmp.Or(a.status, http.StatusOK)
	n, err := a.ResponseWriter.Write(p)
	if f := a.call.flight; f != nil && !f.source {
		a.replays.record(a.call, p)
	}
	return n, err
}

// FlushError implements flushing for [http.ResponseController].
func (a *answer) FlushError() error {
	return http.NewResponseController(a.ResponseWriter).Flush()
}
