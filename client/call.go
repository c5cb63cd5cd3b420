package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/x402"
)

const (
	maxAnswer = 16 << 20 // bytes
	maxSized  = 64 << 10 // bytes; the largest Content-Length for which the buffer is allocated in advance
)

// jsonType is shared by all requests, and read-only.
var jsonType = []string{"application/json"}

var errTooLong = errors.New("the response of the service is longer than 16 MiB")

func parseBase(address string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The error does not contain the address, which may hold a password.
		return nil, errors.New("the service URL must be an absolute http or https URL without user, query, or fragment")
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/api/v1")
	u.RawPath, u.Host = "", strings.TrimSuffix(u.Host, ":")
	return u, nil
}

// call is one call of the API.
type call struct {
	method string
	path   string // below the base, path segments escaped
	query  url.Values
	body   any
	form   url.Values // in place of body
	// idempotent allows retries: for reads, and changes with an idempotency key or id.
	idempotent bool
	// refused restricts retries to responses that rule out an effect: not after a lost response.
	refused bool
	// key is the Idempotency-Key, or "". A call that still runs under it is polled.
	key string
	// exempt omits the version header.
	exempt bool
	// ifMatch is the required version of the record, 0 for any. A lost response is not retried, since the retry of an executed
	// change would be refused.
	ifMatch int64
}

// answer is the response of the service with any status.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func api(format string, segments ...string) string {
	args := make([]any, len(segments))
	for i, s := range segments {
		args[i] = url.PathEscape(s)
	}
	return "/api/v1" + fmt.Sprintf(format, args...)
}

// do sends the call, decodes a 2xx body into out (nil: ignored), and returns other responses as a *toll.Error.
func (c *Client) do(ctx context.Context, cl call, out any) (*answer, error) {
	a, err := c.send(ctx, cl)
	if err != nil {
		return nil, err
	}
	if a.status < 200 || a.status > 299 {
		return a, a.err()
	}
	if a.header.Get("Deprecation") == "true" && c.deprecated.CompareAndSwap(false, true) {
		c.log.WarnContext(ctx, "the service accepted a deprecated request", "method", cl.method, "path", cl.path)
	}
	if out == nil || len(a.body) == 0 {
		return a, nil
	}
	if err := x402.Decode(a.body, out); err != nil {
		return a, unreadable(a, err)
	}
	return a, nil
}

func unreadable(a *answer, err error) *toll.Error {
	e := toll.NewError(toll.CodeInternal).WithCause(err)
	e.Message = "The service sent a response that cannot be read."
	e.Status = http.StatusBadGateway
	e.CorrelationID = a.correlationID()
	return e
}

func (c *Client) send(ctx context.Context, cl call) (*answer, error) {
	if c.baseErr != nil {
		return nil, toll.NewError(toll.CodeBadRequest).WithDetails("%s", c.baseErr).WithCause(c.baseErr)
	}
	var body []byte
	if cl.body != nil {
		var err error
		if body, err = x402.Encode(cl.body); err != nil {
			return nil, toll.AsError(err)
		}
	} else if cl.form != nil {
		body = []byte(cl.form.Encode())
	}
	for attempt := 0; ; attempt++ {
		a, err := c.once(ctx, cl, body)
		wait, ok := c.retryDelay(ctx, cl, attempt, a, err)
		if !ok {
			return a, err
		}
		status := 0
		if a != nil {
			status = a.status
		}
		c.log.InfoContext(ctx, "retrying a call", "method", cl.method, "attempt", attempt+1, "status", status, "wait", wait)
		select {
		case <-ctx.Done():
			return a, err
		case <-c.sleep(wait):
		}
	}
}

// backoff is the default wait after an attempt, counted from 0.
func (c *Client) backoff(attempt int) time.Duration {
	return backoff.Delay(100*time.Millisecond, c.maxWait, 2*attempt+1)
}

// retryDelay returns whether to retry the call, and after how long.
func (c *Client) retryDelay(ctx context.Context, cl call, attempt int, a *answer, err error) (time.Duration, bool) {
	if attempt >= c.retries || ctx.Err() != nil {
		return 0, false
	}
	wait := c.backoff(attempt)
	if err == nil && a.status == http.StatusRequestTimeout {
		return wait, true // the request did not arrive in time, so the call had no effect
	}
	if !cl.idempotent {
		return 0, false
	}
	refused := cl.refused || cl.ifMatch > 0
	if err != nil {
		return wait, !refused
	}
	if refused && (a.status == http.StatusBadGateway || a.status == http.StatusGatewayTimeout) {
		return 0, false
	}
	if !transient(a.status) {
		return wait, a.status == http.StatusConflict && cl.key != "" && a.err().Code == toll.CodeIdempotencyRunning
	}
	if secs := a.retryAfter(); secs > 0 {
		wait = time.Duration(secs) * time.Second
		if wait > c.maxWait {
			return 0, false
		}
	}
	end, ok := ctx.Deadline()
	return wait, !ok || time.Until(end) > wait
}

func (c *Client) once(ctx context.Context, cl call, body []byte) (*answer, error) {
	if end, ok := ctx.Deadline(); c.timeout > 0 && (!ok || time.Until(end) > c.timeout) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	req, err := c.request(ctx, cl, body)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer res.Body.Close()
	if res.ContentLength > maxAnswer {
		return nil, c.unreachable(errTooLong)
	}
	var b bytes.Buffer
	if n := res.ContentLength; n > 0 && n <= maxSized {
		b.Grow(int(n) + bytes.MinRead) // ReadFrom grows the buffer unless it has MinRead bytes left
	}
	if _, err := b.ReadFrom(io.LimitReader(res.Body, maxAnswer+1)); err != nil {
		return nil, c.unreachable(err)
	}
	if b.Len() > maxAnswer {
		return nil, c.unreachable(errTooLong)
	}
	return &answer{status: res.StatusCode, header: res.Header, body: b.Bytes()}, nil
}

// request returns the HTTP request of a call.
func (c *Client) request(ctx context.Context, cl call, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	address := "/" // most paths need no parsing
	plain := len(cl.query) == 0 && !strings.ContainsAny(cl.path, "%?#")
	if !plain {
		address = c.base.String() + cl.path
		if len(cl.query) > 0 {
			address += "?" + cl.query.Encode()
		}
	}
	req, err := http.NewRequestWithContext(ctx, cl.method, address, r)
	if err != nil {
		return nil, toll.NewError(toll.CodeBadRequest).WithCause(err)
	}
	if plain {
		u := *c.base
		u.Path += cl.path
		req.URL, req.Host = &u, u.Host
	}
	h := maps.Clone(c.header)
	req.Header = h
	switch {
	case cl.form != nil:
		h.Set("Content-Type", "application/x-www-form-urlencoded")
		h.Del("Authorization") // forms go to the authorization server, which identifies programs by client_id
	case body != nil:
		h["Content-Type"] = jsonType
	}
	if cl.exempt {
		h.Del(c.names.HeaderVersion())
	}
	if cl.key != "" {
		h.Set("Idempotency-Key", cl.key)
	}
	if cl.ifMatch > 0 {
		h.Set("If-Match", strconv.FormatInt(cl.ifMatch, 10))
	}
	return req, nil
}

// unreachable returns the error of a call without a response, whose outcome is unknown.
func (c *Client) unreachable(err error) *toll.Error {
	e := toll.NewError(toll.CodeUnavailable)
	e.Message = "The service did not answer."
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // its URL may contain ids, which must not be logged
	}
	return e.WithCause(err)
}

func (a *answer) correlationID() string {
	id := a.header.Get("x-correlation-id")
	if len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return id
}

// retryAfter returns the seconds in Retry-After, else 0.
func (a *answer) retryAfter() int {
	v := strings.TrimSpace(a.header.Get("Retry-After"))
	if n, err := strconv.Atoi(v); err == nil && n > 0 {
		return min(n, 86400)
	}
	return 0
}

// err returns the typed error of a response other than 2xx. For the body of another server, such as a proxy, only its status counts.
func (a *answer) err() *toll.Error {
	var b toll.ErrorBody
	var e *toll.Error
	if x402.Decode(a.body, &b) == nil && b.Code != "" {
		e = b.Err()
	} else {
		e = toll.NewError(codeOfStatus(a.status))
		e.Message = fmt.Sprintf("The service responded with status %d but without an error object.", a.status)
	}
	e.Status = a.status
	e.RetryAfterSecs = a.retryAfter()
	if e.CorrelationID == "" {
		e.CorrelationID = a.correlationID()
	}
	return e
}

// codeOfStatus returns the code for a response whose body is not an error of the service.
func codeOfStatus(status int) toll.Code {
	return cmp.Or(map[int]toll.Code{
		http.StatusBadRequest:            toll.CodeBadRequest,
		http.StatusUnauthorized:          toll.CodeNotAuthenticated,
		http.StatusForbidden:             toll.CodeForbidden,
		http.StatusPaymentRequired:       toll.CodePaymentRequired,
		http.StatusNotFound:              toll.CodePathNotFound,
		http.StatusMethodNotAllowed:      toll.CodeMethodNotAllowed,
		http.StatusRequestEntityTooLarge: toll.CodeBodyTooLarge,
		http.StatusTooManyRequests:       toll.CodeRateLimited,
		http.StatusBadGateway:            toll.CodeUnavailable,
		http.StatusServiceUnavailable:    toll.CodeUnavailable,
		http.StatusGatewayTimeout:        toll.CodeUnavailable,
	}[status], toll.CodeInternal)
}
