package paid

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Limits of a request (wire contract, section 1).
const (
	maxURLBytes    = 8 << 10
	maxHeaderBytes = 16 << 10
	maxHeaderLines = 200
	maxTokenBytes  = 8 << 10
)

const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// checkRequest returns an error (405, 413, 414, or 431) for a request that no paid route accepts. A negative maxBody means no limit.
func checkRequest(r *http.Request, maxBody int64) *toll.Error {
	target := r.RequestURI
	if target == "" {
		target = r.URL.RequestURI()
	}
	if len(target) > maxURLBytes {
		return toll.NewError(toll.CodeURITooLong)
	}
	size, lines := len(r.Host)+len("Host: \r\n"), 1
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
			lines++
		}
	}
	if size > maxHeaderBytes || lines > maxHeaderLines {
		return toll.NewError(toll.CodeHeadersTooLarge)
	}
	switch {
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace:
		return toll.NewError(toll.CodeMethodNotAllowed)
	case upgrades(r.Header):
		// Data after an upgrade cannot be priced.
		return toll.Errorf(toll.CodeMethodNotAllowed, "Paid routes do not support protocol upgrades.")
	case maxBody >= 0 && r.ContentLength > maxBody:
		return toll.NewError(toll.CodeBodyTooLarge)
	}
	return nil
}

// upgrades reports whether a request offers a protocol upgrade. It ignores offers of h2c, which some clients send by default.
func upgrades(h http.Header) bool {
	for _, v := range h.Values("Upgrade") {
		for p := range strings.SplitSeq(v, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.EqualFold(p, "h2c") {
				return true
			}
		}
	}
	return false
}

// credential is the payment of a request.
type credential struct {
	token string // "" if the request is unpaid
	// v1 is set if the request has a payment of x402 version 1.
	v1 bool
}

// takeCredential returns the payment in these headers. In Authorization and X-Api-Key, which may contain other credentials, only
// tokens that owns accepts count. Errors: 400 for a repeated header or contradicting payments, 431 for a token above 8 KiB.
func takeCredential(h http.Header, names []string, owns func(string) bool) (credential, *toll.Error) {
	var c credential
	for _, name := range names {
		values := h.Values(name)
		if len(values) > 1 {
			return c, toll.Errorf(toll.CodeBadRequest, "The header %s must be sent only once.", strings.ToLower(name))
		}
		if len(values) == 0 {
			continue
		}
		v := strings.TrimSpace(values[0])
		if isShared(name) {
			if strings.EqualFold(name, "authorization") {
				v, _ = bearer(v)
			}
			if !owns(v) {
				continue
			}
		}
		switch {
		case v == "":
		case len(v) > maxTokenBytes:
			return c, toll.Errorf(toll.CodeHeadersTooLarge, "The access token is longer than 8 KiB.")
		case c.token == "":
			c.token = v
		case !sameToken(c.token, v):
			return c, toll.Errorf(toll.CodeBadRequest, "The request contains two different access tokens.")
		}
	}
	c.v1 = len(h.Values("X-Payment")) > 0
	if c.v1 && c.token != "" {
		return c, toll.Errorf(toll.CodeBadRequest, "The request contains payments of two protocol versions.")
	}
	return c, nil
}

// isShared reports whether a header may also contain credentials for the handler, which must not be removed.
func isShared(name string) bool { n := dashed(name); return n == "authorization" || n == "x-api-key" }

func bearer(v string) (string, bool) {
	i := strings.IndexAny(v, " \t")
	if i < 0 || !strings.EqualFold(v[:i], "Bearer") {
		return "", false
	}
	return strings.TrimSpace(v[i:]), true
}

// sameToken reports whether two tokens are equal, or are forms of one token: with the same signature, and nonces that do not differ.
func sameToken(a, b string) bool {
	if a == b {
		return true
	}
	ta, errA := x402.DecodeToken(a)
	tb, errB := x402.DecodeToken(b)
	return errA == nil && errB == nil && ta.JWS == tb.JWS && (ta.Nonce == tb.Nonce || ta.Nonce == "" || tb.Nonce == "")
}

// Headers of payments and settlement overrides, and headers that change how a router reads path and method. They are removed with
// "_" in place of "-" too, because CGI-like servers treat both alike.
var strippedAnswer = map[string]bool{
	"payment-signature": true, "payment-required": true, "payment-response": true, "x-payment": true,
	"x-payment-response": true, "settlement-overrides": true, "extension-responses": true,
}

var strippedRequest = map[string]bool{
	"x-http-method-override": true, "x-http-method": true, "x-method-override": true, "x-original-url": true,
	"x-rewrite-url": true, "x-original-uri": true, "upgrade": true, "http2-settings": true,
	// A 304 would reveal for free that the paid response is unchanged.
	"if-none-match": true, "if-modified-since": true,
}

func dashed(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

func stripAnswer(h http.Header) {
	for name := range h {
		n := dashed(strings.TrimPrefix(name, http.TrailerPrefix))
		if strippedAnswer[n] {
			delete(h, name)
		}
	}
}

// stripRequest removes the headers that a paid handler must not see. tokenHeaders are the headers that may contain the access token.
func stripRequest(h http.Header, tokenHeaders []string, owns func(string) bool) {
	for name := range h {
		if strippedRequest[dashed(name)] {
			delete(h, name)
		}
	}
	stripPayment(h, tokenHeaders, owns)
}

// stripPayment removes payment headers and access tokens. Other credentials in Authorization and X-Api-Key remain.
func stripPayment(h http.Header, tokenHeaders []string, owns func(string) bool) {
	for name := range h {
		n := dashed(name)
		if strippedAnswer[n] || !isShared(n) && slices.ContainsFunc(tokenHeaders, func(t string) bool { return n == dashed(t) }) {
			delete(h, name)
		}
	}
	stripTokens(h, owns)
}

// correlationID returns the id for logs and error bodies: the caller's id if it has 1 to 128 visible ASCII characters, else a new id.
func correlationID(h http.Header) string {
	for _, name := range []string{"X-Correlation-Id", "X-Request-Id"} {
		v := h.Get(name)
		if v != "" && len(v) <= 128 && !strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return v
		}
	}
	return toll.NewUUID()
}

// ReadBody returns the complete body of a request and puts it back, so that the handler reads it again. The route bounds it ([MaxBody]).
// The error is a [*toll.Error]: 400 for a body that cannot be read, 408 after the read deadline, 413 for a body above the bound.
func ReadBody(r *http.Request) ([]byte, error) {
	b, err := readBody(r, math.MaxInt64-1)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// readBody is [ReadBody] with a bound in bytes.
func readBody(r *http.Request, bound int64) ([]byte, *toll.Error) {
	if r.Body == nil {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, bound+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, toll.NewError(toll.CodeRequestTimeout)
	case errors.As(err, &tooLarge), err == nil && int64(len(b)) > bound:
		return nil, toll.NewError(toll.CodeBodyTooLarge)
	case err != nil:
		return nil, toll.Errorf(toll.CodeBadRequest, "The body could not be read.")
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(b), r.Body}
	return b, nil
}

// body is a request body that records why reading failed. A transport may read it concurrently with the handler.
type body struct {
	io.ReadCloser
	tooLarge atomic.Bool
	cut      atomic.Bool // reading failed before the end of the body
	late     atomic.Bool // reading failed because its deadline passed
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var m *http.MaxBytesError
	switch {
	case err == nil, err == io.EOF, errors.Is(err, http.ErrBodyReadAfterClose):
	case errors.As(err, &m):
		b.tooLarge.Store(true)
	default:
		b.cut.Store(true)
		b.late.Store(errors.Is(err, os.ErrDeadlineExceeded))
	}
	return n, err
}
