package gate

import (
	"cmp"
	"context"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/modelapi"
	"github.com/tollhq/toll/internal/rates"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// call is one request of a priced route. The goroutine of the request owns it, except for receipt.
type call struct {
	route  *route
	start  time.Time
	sent   http.Header // headers of the request
	intake int64       // bytes of the body that [intake] counts
	leave  func()      // ends the count of [Limits]; nil if it was not counted
	spare  bool        // it may only wait for the response of an equal call

	caller  context.Context // ends when the caller disconnects
	key     string          // Idempotency-Key
	request digest          // of the request; zero for a stream without a key
	// identified reports whether key and request are set. Otherwise, identifyLater returns the id of the flight once the SHA-256 of the
	// body is known.
	identified    bool
	identifyLater func(body []byte) digest
	flight        *flight     // nil if its response is not sent again
	unwatch       func() bool // ends the watch of the caller
	unsettled     atomic.Bool // the outcome of a settlement is unknown
	replayed      bool        // it got the response of an earlier call
	returned      bool        // the response is complete

	row    *rates.Row
	model  *modelapi.Call // of a preset
	bounds rates.Bounds
	inputs rates.Usage // what the meter found in the request

	held     toll.Credits // set before the upstream is called
	usage    rates.Usage  // complete once the response was read
	answered bool         // the upstream responded with 2xx
	upstream time.Duration
	bytes    int64 // of the response
	price    toll.Credits
	over     toll.Credits // cost above the hold

	receipt atomic.Pointer[x402.SettleResponse]
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// maxPrice implements [paid.MaxCreditsFunc]: it reads the request, finds its row, and returns the hold.
func maxPrice(r *http.Request, available *toll.Credits) (toll.Credits, error) {
	c := callOf(r.Context())
	if available != nil {
		return c.lower(*available)
	}
	if err := c.read(r); err != nil {
		return 0, err
	}
	return c.row.Hold(c.bounds), nil
}

// read parses the request.
func (c *call) read(r *http.Request) error {
	if err := c.route.intake.enter(c, r); err != nil {
		return err
	}
	body, err := paid.ReadBody(r)
	if err != nil {
		return err
	}
	members := map[string]string{}
	switch o := c.route.operation; {
	case o != nil:
		if c.model, err = o.Parse(r.Header, body); err != nil {
			return err
		}
		members = c.model.Members
	case c.route.readsRequest:
		var v any
		if len(body) > 0 {
			if !sendsJSON(r.Header) {
				return toll.Errorf(toll.CodeBadRequest, "The body must be JSON in UTF-8 without a content coding.")
			}
			if v = parseJSON(body); v == nil {
				return toll.Errorf(toll.CodeBadRequest, "The body must be JSON without duplicate names.")
			}
		}
		if members, c.inputs, err = c.route.inputs(r.URL.Query(), r.Header, v); err != nil {
			return err
		}
	}
	if c.row = c.route.table.Find(members); c.row == nil {
		if model, ok := members["model"]; ok && c.model != nil {
			return modelNotFound(model)
		}
		return noRow()
	}
	if c.model != nil {
		for _, name := range c.model.Surcharges {
			if _, priced := c.row.When[name]; !priced {
				return toll.Errorf(toll.CodeBadRequest, "%s: the seller has no price for this parameter.", name)
			}
		}
		c.model.LimitName, c.model.Omit = cmp.Or(c.route.OutputLimit, c.model.LimitName), c.route.Omit
	}
	c.bound()
	return c.identify(r, body)
}

// inputs returns the members that `when` can name, and the quantities, of a request with a query, headers, and a JSON body.
func (r *route) inputs(query url.Values, h http.Header, body any) (members map[string]string, u rates.Usage, err error) {
	if err = r.checkNames(body); err != nil {
		return nil, u, err
	}
	if members, err = membersOf(query, body, r.named); err != nil {
		return nil, u, err
	}
	u.Counts = map[rates.Quantity]int64{}
	if r.meter.read(&u, true, h, body); u.Bad {
		return nil, u, toll.Errorf(toll.CodeBadRequest, "Each quantity of the request must be a whole number of 0 or more.")
	}
	return members, u, nil
}

// noRow is the error for a request that no row of the table fits.
func noRow() error {
	return toll.Errorf(toll.CodeBadRequest, "The seller has no price for these parameters.").
		WithHint("Ask the seller which values the parameters can have.")
}

func modelNotFound(model string) error {
	e := toll.Errorf(toll.CodePathNotFound, "The model %q does not exist, or the seller does not offer it.", shorten(model))
	e.Status = http.StatusNotFound
	return e.WithHint("Use a model that the seller lists.")
}

// shorten bounds a text of the caller in a message.
func shorten(text string) string {
	if len(text) > 100 {
		return strings.ToValidUTF8(text[:100], "") + "..."
	}
	return text
}

// boundsOf returns the bounds of a call of which only these quantities are known.
func boundsOf(inputs rates.Usage) rates.Bounds {
	b := rates.Bounds{N: 1, Own: map[rates.Quantity]int64{rates.Requests: 1}}
	maps.Copy(b.Own, inputs.Counts)
	return b
}

// bound sets the bounds of the call.
func (c *call) bound() {
	c.bounds = boundsOf(c.inputs)
	m := c.model
	if m == nil {
		return
	}
	c.bounds.N, c.bounds.Input = m.N, m.Input
	if image := c.row.Image; m.Files > 0 && image > 0 {
		if image > (1<<62)/m.Files {
			c.bounds.Input = c.row.MaxInput
		} else {
			c.bounds.Input += m.Files * image
		}
	}
	c.bounds.Input = min(c.bounds.Input, c.row.MaxInput)
	if m.HasOutput {
		c.bounds.Output = c.row.MaxOutput
		if m.Output > 0 {
			c.bounds.Output = min(c.bounds.Output, m.Output)
		}
	}
}

// lower lowers the output limit to what the available credits pay, and returns the new hold. The error names both figures.
func (c *call) lower(available toll.Credits) (toll.Credits, error) {
	needed := c.row.Hold(c.bounds)
	output, ok := c.row.Afford(c.bounds, available)
	if !ok || c.model == nil || !c.model.HasOutput {
		b := c.bounds
		if c.model != nil && c.model.HasOutput {
			b.Output = min(b.Output, c.row.MinOutput)
			needed = c.row.Hold(b)
		}
		return 0, toll.Errorf(toll.CodeInsufficientCredits, "This request needs %s credits, and %s are available.", needed, available)
	}
	c.bounds.Output = output
	return c.row.Hold(c.bounds), nil
}

// priceOf implements [paid.CreditsFunc].
func priceOf(r *http.Request, resp paid.Response) toll.Credits {
	c := callOf(r.Context())
	price, over, err := c.row.Price(c.usage, c.held)
	if err != nil { // a stream that was delivered; a whole response was refused before
		price = c.held
	}
	c.price, c.over = price, over
	return price
}

// settled implements [paid.AfterSettle].
func settled(r *http.Request, s *x402.SettleResponse) {
	c := callOf(r.Context())
	switch {
	case c == nil:
	case s.Success:
		c.receipt.Store(s)
	case s.ErrorReason == x402.ReasonPending:
		c.unsettled.Store(true)
	}
}

// labelsOf implements [paid.Labels].
func labelsOf(r *http.Request) toll.UsageLabels {
	c := callOf(r.Context())
	l := toll.UsageLabels{Upstream: label(c.route.upstream.name), Route: label(c.route.Match)}
	if c.model != nil {
		l.Model = label(c.model.Members["model"])
	}
	return l
}

// label brings a text, which may come from the caller, into the bounds of a label: a settlement with another one is refused.
func label(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), toll.MaxLabelBytes)], "")
}

// measure completes the usage with the quantities that need no report of the upstream.
func (c *call) measure() { complete(&c.usage, c.inputs, c.upstream, c.bytes) }

// complete adds the quantities of the request, and the measured quantities: requests, seconds, and bytes of the response.
func complete(u *rates.Usage, inputs rates.Usage, took time.Duration, size int64) {
	if u.Counts == nil {
		u.Counts = map[rates.Quantity]int64{}
	}
	maps.Copy(u.Counts, inputs.Counts)
	u.Counts[rates.Requests] = 1
	u.Counts[rates.Seconds] = int64((took + time.Second - 1) / time.Second)
	u.Counts[rates.Bytes] = size
}

// sendsJSON reports whether a request has one Content-Type, of JSON in UTF-8, and no content coding. With another charset or a second
// Content-Type, the upstream could read another body than the gate.
func sendsJSON(h http.Header) bool {
	kinds := h.Values("Content-Type")
	if len(kinds) != 1 || len(h.Values("Content-Encoding")) > 0 || !isJSON(kinds[0]) {
		return false
	}
	_, params, err := mime.ParseMediaType(kinds[0])
	charset := params["charset"]
	return err == nil && (charset == "" || strings.EqualFold(charset, "utf-8"))
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	kind = strings.TrimSpace(kind)
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}
