package api

import (
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

// Limits of a request (wire contract, section 1).
const (
	maxHeaderBytes = 16 << 10
	maxHeaderLines = 200
	maxURLBytes    = 8 << 10
	maxBodyBytes   = 1 << 20
	// answerTimeout bounds a request from its head to the end of its answer.
	answerTimeout = 2 * time.Minute
)

// NewServer returns an HTTP server for the handler of [New]. Its own limits lie above those that the handler enforces, as
// what net/http refuses by itself has no error body and no version headers. Serve it on a listener of [pace.Listen], which
// cuts off readers that are too slow.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:                      h,
		MaxHeaderBytes:               64 << 10,
		ReadHeaderTimeout:            pace.Patience,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  2 * time.Minute,
		ConnState:                    pace.ConnState,
		DisableGeneralOptionsHandler: true,
	}
}

// Values of headers that never change. The slices are shared by all answers and never written to.
var (
	jsonType     = []string{"application/json"}
	htmlType     = []string{"text/html; charset=utf-8"}
	noStore      = []string{"no-store"}
	publicHour   = []string{"public, max-age=3600"}
	anyOrigin    = []string{"*"}
	bearer       = []string{"Bearer"}
	noSniff      = []string{"nosniff"}
	yes          = []string{"true"}
	closing      = []string{"close"}
	preflightAge = []string{"86400"}
)

// ServeHTTP is the outermost layer: whatever happens inside, the answer has the headers of every answer, and an error
// has the one shape of errors.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{h: h, w: w, r: r, browser: auth.PageOf(r.Context())}
	c.correlation = traces.Context{Context: r.Context(), ID: c.correlationID()}
	c.context = &c.correlation
	defer c.remember()
	defer c.rescue()
	header := w.Header()
	header["X-Correlation-Id"] = []string{c.correlation.ID}
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	if c.browser == nil { // pages are for the origin of the service alone
		header["Access-Control-Allow-Origin"] = anyOrigin
		header["Access-Control-Expose-Headers"] = h.exposed
	}
	c.resource = h.routes.find(r.URL.EscapedPath(), c)
	if c.union() == unionNone { // verify and settle are not remembered, and do not pay for it
		c.began = time.Now()
	}
	c.apply(apiversion.Floor, apiversion.FromFallback)

	asked := r.Header[h.versionHeader]
	pace.Body(c.w, r, maxBodyBytes, h.BodyTimeout, pace.MinRate)
	if closeAfter(r) {
		header["Connection"] = closing
	}
	if err := checkMessage(r); err != nil {
		version, from, _ := apiversion.Resolve(asked, "")
		c.apply(version, from)
		c.w.Header()["Connection"] = closing
		c.fail(err)
		return
	}
	c.authenticate()
	version, from, err := apiversion.Resolve(asked, c.caller.Version)
	c.apply(version, from)
	if h.gatekeeper != nil {
		if err := h.gatekeeper.admit(c); err != nil {
			c.fail(err)
			return
		}
	}
	if r.Method == http.MethodOptions {
		c.preflight()
		return
	}
	if err != nil && !c.resource.anyVersion() {
		c.fail(badVersion(err))
		return
	}
	c.serve()
}

func (c *call) serve() {
	if c.resource == nil {
		c.notServed(toll.CodePathNotFound)
		return
	}
	route := c.resource.route(c.r.Method)
	if route == nil {
		c.w.Header()["Allow"] = c.resource.allow
		c.notServed(toll.CodeMethodNotAllowed)
		return
	}
	c.route = route
	if c.h.Traced && c.browser == nil { // the span of a page keeps its name
		traces.Request(c.context, route.op, c.correlation.ID)
	}
	if route.op == "readInfo" && c.fromPerson() {
		c.toPages()
		return
	}
	if !c.known && route.session && c.browser == nil {
		c.signed, c.authErr = c.opened()
	}
	if c.authErr != nil && (route.auth != open || c.badRequest()) {
		c.fail(c.authErr)
		return
	}
	if err := c.allowed(); err != nil {
		c.fail(err)
		return
	}
	if err := c.count(); err != nil {
		c.fail(err)
		return
	}
	answer, err := route.action.run(c)
	if err != nil {
		c.fail(err)
		return
	}
	c.reply(answer)
}

// toPages leads a person who opened the address of the service in a browser to its pages.
func (c *call) toPages() {
	header := c.w.Header()
	header["Vary"] = []string{"Accept"}
	header["Location"] = []string{"/explore"}
	if c.h.CloseReads {
		header["Location"] = []string{"/w"}
	}
	c.w.WriteHeader(http.StatusSeeOther)
}

// allowed refuses a call whose API key lacks the right of the route, or is of another workspace than the call names.
func (c *call) allowed() error {
	if c.signed != nil {
		return c.allowedPerson()
	}
	if !c.known {
		return nil // a public route
	}
	for _, workspace := range c.r.Header["X-Current-Org-Id"] {
		if workspace != "" && !c.h.IgnoreOrganizations && !strings.EqualFold(workspace, c.caller.Address.Lower()) {
			return toll.NewError(toll.CodeWrongWorkspace)
		}
	}
	switch {
	case c.route.right == own:
		return c.allowedOperator()
	case c.route.right == public, c.caller.Rights.Has(c.route.right), c.mayOwnMail():
		c.act()
		if c.browser != nil && (c.route.auth != person || c.caller.KeyID.IsZero()) {
			return c.allowedPage()
		}
		if c.route.auth == person || c.route.right == toll.RightExport {
			return c.allowedOperator()
		}
		return nil
	case c.route.ownKey && strings.EqualFold(c.param("id"), c.caller.KeyID.String()):
		return nil
	}
	return c.missingRight()
}

func (c *call) missingRight() error {
	if c.caller.KeyID.IsZero() {
		return toll.Errorf(toll.CodeRightMissing, "Your role lacks the right %s.", c.route.right).WithParam("right", string(c.route.right))
	}
	return auth.MissingRight(c.route.right)
}

// allowedPage is [call.allowed] for a page of the service. An API key that signed in a browser makes no keys there and exports nothing.
func (c *call) allowedPage() error {
	switch {
	case !c.caller.KeyID.IsZero() && (c.route.right == toll.RightKeys || c.route.right == toll.RightExport):
		return toll.NewError(toll.CodePersonNeeded)
	case c.route.fresh:
		return c.h.people.Sessions.Recent(c.browser.Proof, c.browser.AuthenticatedAt)
	}
	return nil
}

// act records the actor for the audit log. Reads and sales are not logged. For a page, the actor is already known.
func (c *call) act() {
	if c.browser != nil || c.r.Method == http.MethodGet || c.route.right == public || c.route.right == toll.RightSell {
		return
	}
	c.context = store.WithActor(c.context, store.Actor{
		Kind: "key", ID: c.caller.KeyID.String(), Source: Source(c.r, c.h.Limits.Proxies).String(),
	})
}

// badRequest reports whether the credentials are not merely wrong but make the request ambiguous, which no route takes.
func (c *call) badRequest() bool {
	var e *toll.Error
	return errors.As(c.authErr, &e) && e.HTTPStatus() == http.StatusBadRequest
}

// authenticate looks the API key up, once. Routes without one read the outcome only for its version.
func (c *call) authenticate() {
	if c.browser != nil {
		c.caller, c.known, c.authErr = c.browser.Caller, true, nil
		if c.caller.Address.IsZero() {
			c.known, c.authErr = false, errNoKey
		}
		return
	}
	lines := c.r.Header["Authorization"]
	if len(lines) == 0 {
		c.authErr = errNoKey
		return
	}
	c.caller, c.authErr = c.h.authenticate(c.context, lines)
	c.known = c.authErr == nil
}

var errNoKey error = toll.NewError(toll.CodeNotAuthenticated)

func (c *call) apply(v apiversion.Version, from apiversion.From) {
	c.version, c.from = v, from
	header := c.w.Header()
	if header[c.h.versionHeader] = c.h.versionTexts[v]; header[c.h.versionHeader] == nil {
		header[c.h.versionHeader] = []string{v.String()}
	}
	header[c.h.fromHeader] = fromText[from]
}

var fromText = map[apiversion.From][]string{
	apiversion.FromHeader:   {string(apiversion.FromHeader)},
	apiversion.FromKey:      {string(apiversion.FromKey)},
	apiversion.FromFallback: {string(apiversion.FromFallback)},
}

func badVersion(err error) *toll.Error {
	return toll.NewError(toll.CodeVersionUnknown).WithCause(err).
		WithHint("Versions " + apiversion.Floor.String() + " to " + apiversion.Current.String() + " are supported; GET /api/v1/meta/versions lists them.")
}

// preflight answers OPTIONS of every path alike: browsers ask before they send, and read errors only of what they sent.
func (c *call) preflight() {
	header := c.w.Header()
	header["Access-Control-Allow-Methods"] = c.h.corsMethods
	header["Access-Control-Allow-Headers"] = c.h.corsHeaders
	header["Access-Control-Max-Age"] = preflightAge
	if c.resource != nil {
		header["Allow"] = c.resource.allow
	}
	c.w.WriteHeader(http.StatusNoContent)
}

// rescue turns a panic into a 500. Nothing is written before a handler returns, so the answer is still ours.
func (c *call) rescue() {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { // net/http compares it like this too
		panic(p)
	}
	c.h.Log.ErrorContext(c.context, "panic", "panic", p, "stack", string(debug.Stack()), "op", c.op())
	if c.written {
		panic(http.ErrAbortHandler)
	}
	c.fail(toll.NewError(toll.CodeInternal))
}

// checkMessage refuses what [Listen] did, and what is larger than the documented limits. The request line is no part of
// the header block; Host is.
func checkMessage(r *http.Request) error {
	if e := refusal(r.RequestURI); e != nil {
		return e
	}
	if len(r.RequestURI) > maxURLBytes {
		return toll.NewError(toll.CodeURITooLong)
	}
	const separators = len(": ") + len("\r\n")
	lines, size := 0, 0
	if r.Host != "" {
		lines, size = 1, len("Host")+len(r.Host)+separators
	}
	for name, values := range r.Header {
		lines += len(values)
		for _, v := range values {
			size += len(name) + len(v) + separators
		}
	}
	if lines > maxHeaderLines || size > maxHeaderBytes {
		return toll.NewError(toll.CodeHeadersTooLarge)
	}
	return nil
}

// correlationID returns the caller's id when it is 1 to 128 visible ASCII characters, sent once, else a new one. The calls
// of a page have the id of the request for the page.
func (c *call) correlationID() string {
	if c.browser != nil {
		if id := traces.ID(c.r.Context()); id != "" {
			return id
		}
	}
	values, ok := c.r.Header["X-Correlation-Id"]
	if !ok {
		values = c.r.Header["X-Request-Id"]
	}
	if len(values) == 1 && len(values[0]) > 0 && len(values[0]) <= 128 && strings.IndexFunc(values[0], invisible) < 0 {
		return values[0]
	}
	return toll.NewUUID()
}

func invisible(r rune) bool { return r <= ' ' || r > '~' }

func (h *handler) prepareHeaders() {
	h.versionHeader = http.CanonicalHeaderKey(h.Namespace.HeaderVersion())
	h.fromHeader = http.CanonicalHeaderKey(h.Namespace.HeaderResolvedFrom())
	h.versionTexts = map[apiversion.Version][]string{}
	for _, v := range append(apiversion.Gated(), apiversion.Floor, apiversion.Current) {
		h.versionTexts[v] = []string{v.String()}
	}
	h.corsMethods = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	h.corsHeaders = []string{strings.Join([]string{
		"Authorization", "Content-Type", "Accept", h.Namespace.HeaderVersion(), "x-correlation-id", "x-request-id",
		"Idempotency-Key", "If-Match", "Last-Event-ID", "X-Current-Org-Id",
		"payment-signature", "sign-in-with-x",
		// MCP clients in browsers send it with each request, also to the authorization server.
		"mcp-protocol-version",
		// Standard clients in browsers send this one as if it were a request header.
		"Access-Control-Expose-Headers",
	}, ", ")}
	h.exposed = []string{strings.Join(slices.Concat([]string{
		h.Namespace.HeaderVersion(), h.Namespace.HeaderResolvedFrom(), "x-correlation-id", "Cache-Control", "Deprecation",
	}, []string{
		"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After", "Location", "Idempotency-Replayed",
		"payment-required", "payment-response",
	}), ", ")}
}
