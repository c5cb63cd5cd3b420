package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/modelapi"
	"github.com/tollhq/toll/internal/rates"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
)

// Bounds of a response whose caller has disconnected: the gate reads on for the usage, up to these bounds.
const (
	maxDrainTime  = time.Minute
	maxDrainBytes = 8 << 20
	maxDrains     = 64
)

const defaultTimeout = Duration(10 * time.Minute) // of [Upstream]

// HeaderHeld is the response header of a stream with the credits on hold, the most that the stream can cost. HeaderUsed and
// HeaderRemaining are headers of a whole response.
const (
	HeaderHeld      = "X-Credits-Held"
	HeaderUsed      = "X-Credits-Used"
	HeaderRemaining = "X-Credits-Remaining"
)

// transport sends the requests of one route to its upstream, and counts the usage of the responses.
type transport struct {
	base   http.RoundTripper
	route  *route
	drains chan struct{} // bounds the responses that are read for a disconnected caller
	// drainTime bounds the time of such a response. It ends before the hold does.
	drainTime time.Duration
	log       *slog.Logger
}

// newBase returns the transport to an upstream.
func newBase(u *Upstream) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.ResponseHeaderTimeout = time.Duration(orElse(u.Timeout, defaultTimeout))
	t.MaxIdleConnsPerHost = 64
	t.Proxy = nil
	return t
}

func orElse(d, other Duration) Duration {
	if d > 0 {
		return d
	}
	return other
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	if c == nil {
		return nil, errors.New("gate: the request has no call")
	}
	c.route = t.route
	p, paidCall := paid.FromContext(r.Context())
	r = r.Clone(r.Context())
	if t.route.api != nil {
		maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return !forwarded[name] })
	}
	if c.model != nil {
		maps.Copy(r.Header, c.model.Header())
	}
	maps.Copy(r.Header, t.route.upstream.header)
	t.joinPath(r)
	if host := t.route.upstream.header.Get("Host"); host != "" {
		r.Host = host
	}
	if !paidCall {
		res, err := t.send(r)
		if err == nil {
			t.clean(res)
		}
		return res, err
	}
	t.route.intake.paid(c)
	t.route.replays.watch(c, r)
	c.upstreamKey(r.Header)
	c.held = p.Held
	r.Header.Del("Accept-Encoding") // the transport decodes gzip; the gate reads the response
	if c.model != nil {
		body, err := c.model.Body(c.bounds.Output)
		if err != nil {
			return refusal(t.route, err), nil
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		u := *r.URL
		query := u.Query()
		maps.DeleteFunc(query, func(name string, _ []string) bool { return !forwardedQuery[name] })
		u.RawQuery = query.Encode()
		r.URL = &u
	}
	work := r.Context()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(work))
	unwatch := context.AfterFunc(work, func() { cancel(context.Cause(work)) })
	end := func() { c.upstream = time.Since(c.start); unwatch(); cancel(nil) }
	res, err := t.send(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	t.clean(res)
	res.Body = t.watch(res.Body, cancel, end)
	c.answered = res.StatusCode >= 200 && res.StatusCode <= 299
	switch {
	case !c.answered && c.model != nil:
		return t.failure(res, cancel), nil
	case !c.answered:
		return res, nil
	case c.row == nil: // a fixed price
		c.price = p.Held
		return res, nil
	}
	var meter *modelapi.Meter
	if c.model != nil {
		meter = c.model.Meter(res.StatusCode, res.Header)
	}
	if !seller.IsStream(res.Header) && !(c.model != nil && c.model.Stream) {
		return t.whole(c, res, meter, cancel)
	}
	unwatch()
	res.Header.Set(HeaderHeld, p.Held.String())
	t.route.replays.streams(c, res)
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = newStream(t, c, res, meter, work, cancel)
	return res, nil
}

// joinPath removes the path of the upstream if the path of the request began with it: /v1/chat at the upstream http://host/v1 is
// http://host/v1/chat.
func (t *transport) joinPath(r *http.Request) {
	base := strings.TrimRight(t.route.upstream.address.Path, "/")
	if base == "" || !strings.HasPrefix(r.URL.Path, base+base+"/") {
		return
	}
	u := *r.URL
	u.Path = u.Path[len(base):]
	if u.RawPath != "" {
		u.RawPath = strings.TrimPrefix(u.RawPath, base)
	}
	r.URL = &u
}

// forwarded lists the headers of a caller that a model server receives, besides [modelapi.Call.Header]. The caller's credentials are for
// the gate only.
var forwarded = map[string]bool{"Accept": true, "User-Agent": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true}

// forwardedQuery lists the query parameters that a model server receives with a priced call. Others can change its response: with
// "fields", Gemini omits figures from its usage.
var forwardedQuery = map[string]bool{"alt": true, "beta": true, "api-version": true}

// send sends a request, twice if the upstream refuses the connection.
func (t *transport) send(r *http.Request) (*http.Response, error) {
	res, err := t.base.RoundTrip(r)
	if !errors.Is(err, syscall.ECONNREFUSED) || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return res, err
	}
	if r.GetBody != nil {
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	time.Sleep(100 * time.Millisecond)
	return t.base.RoundTrip(r)
}

// clean removes what a response says about the seller's account. An upstream that refuses the seller's credentials has failed.
func (t *transport) clean(res *http.Response) {
	if t.route.api != nil {
		for name := range res.Header {
			if t.route.isSellers(name) {
				delete(res.Header, name)
			}
		}
	}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		if len(t.route.upstream.header) == 0 {
			return
		}
		t.log.Error("gate: the upstream refuses the gate's credentials", "upstream", t.route.upstream.URL, "status", res.StatusCode, "route", t.route.Match)
		_ = res.Body.Close()
		*res = *refusal(t.route, badGateway("The upstream server rejected the request of the gate."))
	}
}

// maxFailure bounds the error of a model server, in bytes.
const maxFailure = 64 << 10

// accountIDs match ids of the seller's account in error texts.
var accountIDs = regexp.MustCompile(`\b(org|proj|user|acct|key|sk|req)[-_][A-Za-z0-9_-]{4,}`)

// errorObject begins an error in JSON. In the text of a model, the quotes are escaped.
var errorObject = regexp.MustCompile(`"error"\s*:\s*\{`)

// withoutAccount removes ids of the seller's account from a response, or events of a stream, that contain an error.
func withoutAccount(b []byte) []byte {
	if !bytes.Contains(b, []byte(`"error"`)) || !errorObject.Match(b) {
		return b
	}
	return accountIDs.ReplaceAll(b, []byte("$1-..."))
}

// failure returns the error of a model server. Errors about the request keep their text without ids of the seller's account. The text of
// other errors is about the seller, such as its rate limit, and is replaced.
func (t *transport) failure(res *http.Response, cancel context.CancelCauseFunc) *http.Response {
	body, err := t.readAll(res, maxFailure, cancel)
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		if err == nil && len(body) <= maxFailure {
			body = accountIDs.ReplaceAll(body, []byte("$1-...")) // in any form, also plain text
			res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			res.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return res
		}
	}
	e := toll.Errorf(toll.CodeInternal, "The model server failed. No credits were burned.")
	e.Status = res.StatusCode
	if e.Status < 400 {
		e.Status = http.StatusBadGateway
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 && s <= 3600 {
		e.RetryAfterSecs = s
	}
	if e.Status == http.StatusTooManyRequests {
		e.Code, e.Message = toll.CodeRateLimited, "The model server is busy. No credits were burned."
	}
	return refusal(t.route, e)
}

func badGateway(message string) error {
	e := toll.Errorf(toll.CodeInternal, "%s", message)
	e.Status = http.StatusBadGateway
	return e
}

// refusal returns a response with an error of the gate, in the shape of the API.
func refusal(r *route, err error) *http.Response {
	w := &recorder{header: http.Header{}}
	r.writeError(w, toll.AsError(err))
	return &http.Response{
		StatusCode: w.status, Status: strconv.Itoa(w.status), ProtoMajor: 1, ProtoMinor: 1, Header: w.header,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()),
	}
}

// recorder is a [http.ResponseWriter] that keeps a small response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// whole reads a complete response and its usage.
func (t *transport) whole(c *call, res *http.Response, meter *modelapi.Meter, cancel context.CancelCauseFunc) (*http.Response, error) {
	body, err := t.readAll(res, paid.DefaultMaxBuffer, cancel)
	switch {
	case err != nil:
		return nil, err
	case len(body) > paid.DefaultMaxBuffer:
		t.log.Error("gate: a response is larger than 8 MiB", "route", t.route.Match)
		return refusal(t.route, badGateway("The response of the upstream server is too large.")), nil
	}
	c.bytes = int64(len(body))
	if meter != nil {
		out := meter.Write(body)
		rest, u, _ := meter.End()
		body = withoutAccount(append(slices.Clip(out), rest...))
		c.usage = usageOf(u)
	} else {
		c.usage = rates.Usage{Counts: map[rates.Quantity]int64{}}
		var v any
		if t.route.meter.readsBody() && isJSON(res.Header.Get("Content-Type")) {
			v = parseJSON(body)
		}
		t.route.meter.read(&c.usage, false, res.Header, v)
	}
	c.measure()
	if _, _, err := c.row.Price(c.usage, c.held); err != nil {
		t.log.Error("gate: a response does not report its usage", "route", t.route.Match, "error", err)
		return refusal(t.route, badGateway("The upstream server did not report its usage, so the response cannot be priced.")), nil
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	res.TransferEncoding = nil
	return res, nil
}

// usageOf converts the usage that a model server reported.
func usageOf(u modelapi.Usage) rates.Usage {
	out := rates.Usage{Bad: u.Bad, Counts: make(map[rates.Quantity]int64, len(u.Counts)+3)}
	for name, n := range u.Counts {
		out.Counts[rates.Quantity(name)] = n
	}
	return out
}

// watched is the body of a response to a paid call. It cancels the request if a read takes longer than the idle time of the upstream.
type watched struct {
	io.ReadCloser
	time time.Duration
	idle *time.Timer
	end  func() // called by Close
}

// watch returns the watched body. cancel ends the request to the upstream, and end runs when the body is closed.
func (t *transport) watch(body io.ReadCloser, cancel context.CancelCauseFunc, end func()) io.ReadCloser {
	w := &watched{ReadCloser: body, time: time.Duration(orElse(t.route.upstream.Idle, Duration(2*time.Minute))), end: end}
	w.idle = time.AfterFunc(w.time, func() { cancel(errIdle) })
	return w
}

func (w *watched) Read(p []byte) (int, error) {
	w.idle.Reset(w.time)
	defer w.idle.Stop()
	return w.ReadCloser.Read(p)
}

func (w *watched) Close() error {
	w.idle.Stop()
	defer w.end()
	return w.ReadCloser.Close()
}

// readAll reads up to most+1 bytes of a response, within the time-out of the upstream, and closes it.
func (t *transport) readAll(res *http.Response, most int64, cancel context.CancelCauseFunc) ([]byte, error) {
	late := time.AfterFunc(time.Duration(orElse(t.route.upstream.Timeout, defaultTimeout)), func() { cancel(errLate) })
	defer late.Stop()
	defer res.Body.Close()
	return io.ReadAll(io.LimitReader(res.Body, most+1))
}

// stream is the body of a streamed response. After the caller has disconnected, it reads on up to the bounds, so that the usage at the
// end of the stream is known.
type stream struct {
	t      *transport
	c      *call
	header http.Header
	body   io.ReadCloser
	meter  *modelapi.Meter
	cancel context.CancelCauseFunc // ends the request to the upstream
	watch  func() bool             // stops the watch of the caller

	pending []byte
	buf     []byte
	err     error // of the upstream, io.EOF at the end
	ended   bool

	left  sync.Once
	slot  atomic.Bool // this stream has one of the drains
	timer *time.Timer
}

// newStream returns the body for a caller whose context is work. cancel ends the request to the upstream.
func newStream(t *transport, c *call, res *http.Response, meter *modelapi.Meter, work context.Context, cancel context.CancelCauseFunc) *stream {
	s := &stream{t: t, c: c, header: res.Header.Clone(), body: res.Body, meter: meter, cancel: cancel, buf: make([]byte, 32<<10)}
	s.watch = context.AfterFunc(work, s.callerLeft)
	return s
}

var (
	errIdle    = errors.New("gate: the upstream has sent nothing for too long")
	errLate    = errors.New("gate: the response of the upstream took too long")
	errDrained = errors.New("gate: the caller disconnected, and the stream did not end in time")
)

// callerLeft bounds the rest of the stream. It may be called more than once.
func (s *stream) callerLeft() {
	s.left.Do(func() {
		select {
		case s.t.drains <- struct{}{}:
			s.slot.Store(true)
			s.timer = time.AfterFunc(s.t.drainTime, func() { s.cancel(errDrained) })
		default:
			s.cancel(errDrained)
		}
	})
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	for len(s.pending) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.next()
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// next reads the next bytes of the upstream through the meter.
func (s *stream) next() {
	n, err := s.body.Read(s.buf)
	s.c.bytes += int64(n)
	s.pending = s.buf[:n]
	if s.meter != nil {
		s.pending = withoutAccount(s.meter.Write(s.buf[:n]))
	}
	if err != nil {
		s.err = err
		s.end()
	}
	s.t.route.replays.record(s.c, s.pending)
}

// end completes the usage.
func (s *stream) end() {
	if s.ended {
		return
	}
	s.ended = true
	c := s.c
	c.upstream = time.Since(c.start)
	c.usage = rates.Usage{Counts: map[rates.Quantity]int64{}}
	s.t.route.meter.read(&c.usage, false, s.header, nil)
	complete := errors.Is(s.err, io.EOF)
	if s.meter != nil {
		rest, u, whole := s.meter.End()
		s.pending = withoutAccount(append(bytes.Clone(s.pending), rest...))
		c.usage = usageOf(u)
		complete = complete && whole
	}
	if c.flight != nil {
		c.flight.whole = complete
	}
	c.measure()
	if !complete && !c.row.IsKnown(c.usage) {
		c.usage.Bad = true // an interrupted stream without its usage costs its hold, whatever the row says about missing quantities
	}
}

// Close implements [io.Closer]. After a failed write to the caller, it reads the rest of the stream.
func (s *stream) Close() error {
	if s.err == nil {
		s.callerLeft()
		for start := s.c.bytes; s.err == nil && s.c.bytes-start < maxDrainBytes; {
			s.next()
		}
	}
	s.watch()
	s.left.Do(func() {}) // from here on, the watch has no effect
	if s.slot.Load() {
		s.timer.Stop()
		<-s.t.drains
	}
	s.end()
	return s.body.Close()
}
