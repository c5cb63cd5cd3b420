package paid

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	maxRequiredBytes = 6 << 10 // of a payment-required value (x402 page, section 4.3)
	maxErrorText     = 300     // characters
	defaultRetrySecs = 5
)

// writeError writes the error body of the wire contract, section 3.
func writeError(w http.ResponseWriter, e *toll.Error, correlation string) {
	b, err := x402.Encode(e.Body(correlation, ""))
	if err != nil {
		b = []byte(`{"code":"` + string(toll.CodeInternal) + `"}`)
	}
	h := w.Header()
	if e.HTTPStatus() == http.StatusMethodNotAllowed {
		h.Set("Allow", allowed)
	}
	retryAfter(h, e)
	writeJSON(w, e.HTTPStatus(), b, correlation)
}

func retryAfter(h http.Header, e *toll.Error) {
	secs := e.RetryAfterSecs
	if s := e.HTTPStatus(); secs <= 0 && (s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable) {
		secs = defaultRetrySecs
	}
	if secs > 0 {
		h.Set("Retry-After", strconv.Itoa(secs))
	}
}

func writeJSON(w http.ResponseWriter, status int, b []byte, correlation string) {
	write(w, status, "application/json", b, correlation)
}

func write(w http.ResponseWriter, status int, media string, b []byte, correlation string) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Correlation-Id", correlation)
	w.WriteHeader(status)
	_, _ = w.Write(b) // fails only if the client has disconnected
}

// challenge is an [x402.PaymentRequired] that may also have entries for wallets.
type challenge struct {
	X402Version toll.Int                   `json:"x402Version"`
	Error       string                     `json:"error,omitempty"`
	Resource    x402.Resource              `json:"resource"`
	Accepts     []any                      `json:"accepts"`
	Extensions  map[string]json.RawMessage `json:"extensions"`
}

// encoded is an encoded challenge: json for the body, which people and simple clients read, and header for other programs.
type encoded struct {
	json   []byte
	header string
}

func encodeChallenge(p *challenge) (*encoded, error) {
	text, err := x402.Encode(p)
	if err != nil {
		return nil, err
	}
	header, err := requiredHeader(p, text)
	return &encoded{text, header}, err
}

// with returns one JSON object with the members of the challenge and of the error body.
func (c *encoded) with(e toll.ErrorBody) ([]byte, error) {
	b, err := x402.Encode(e)
	if err != nil {
		return nil, err
	}
	return slices.Concat(c.json[:len(c.json)-1], []byte{','}, b[1:]), nil
}

// requiredHeader returns the PAYMENT-REQUIRED header of a challenge, whose JSON is text. Proxies reject long headers, so it omits
// parts until the header fits: signed offers, the query of the resource, the resource, texts, and extensions.
func requiredHeader(p *challenge, text []byte) (string, error) {
	if base64.StdEncoding.EncodedLen(len(text)) <= maxRequiredBytes {
		return base64.StdEncoding.EncodeToString(text), nil
	}
	short := *p
	for _, cut := range []func(){
		func() {
			short.Extensions = maps.Clone(short.Extensions)
			delete(short.Extensions, x402.ExtensionOfferReceipt)
		},
		func() { short.Resource.URL, _, _ = strings.Cut(short.Resource.URL, "?") },
		func() { short.Resource.URL = "" },
		func() { short.Resource.Description, short.Error = "", "Payment required" },
		func() { short.Extensions = map[string]json.RawMessage{} },
	} {
		cut()
		v, err := x402.EncodeHeader(&short)
		if err != nil || len(v) <= maxRequiredBytes {
			return v, err
		}
	}
	return x402.EncodeHeader(&short)
}

// receiptHeader encodes a settlement. It uses the exact bytes from the service if available, so that it equals the stored receipt.
func receiptHeader(s *x402.SettleResponse) string {
	if len(s.Raw) > 0 && len(s.Raw) <= maxRequiredBytes {
		return base64.StdEncoding.EncodeToString(s.Raw)
	}
	v, err := x402.EncodeHeader(s)
	if err != nil {
		return ""
	}
	return v
}

func setReceipt(h http.Header, s *x402.SettleResponse) {
	h.Set(x402.HeaderResponse, receiptHeader(s))
	expose(h)
}

// expose lets scripts of an allowed origin read the payment headers, if the response has CORS headers.
func expose(h http.Header) {
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Add("Access-Control-Expose-Headers", x402.HeaderRequired+", "+x402.HeaderResponse)
	}
}

// keepPrivate keeps a paid response out of shared caches, even if the handler allowed them.
func keepPrivate(h http.Header) {
	var directives []string
	for _, v := range h.Values("Cache-Control") {
		for _, d := range splitQuoted(v) {
			name, _, _ := strings.Cut(strings.ToLower(d), "=")
			switch strings.TrimSpace(name) {
			case "", "public", "s-maxage", "proxy-revalidate", "private":
			default:
				directives = append(directives, d)
			}
		}
	}
	h.Set("Cache-Control", strings.Join(append([]string{"private"}, directives...), ", "))
	for name := range h {
		// CDN caches prefer these headers to Cache-Control (RFC 9213 and its predecessors).
		n := strings.ToLower(name)
		if strings.HasSuffix(n, "cdn-cache-control") || n == "surrogate-control" || n == "edge-control" || n == "x-accel-expires" {
			delete(h, name)
		}
	}
	vary := h.Values("Vary")
	for _, name := range []string{x402.HeaderSignature, "authorization"} {
		if !slices.ContainsFunc(vary, func(v string) bool {
			return slices.ContainsFunc(strings.Split(v, ","), func(s string) bool {
				s = strings.TrimSpace(s)
				return s == "*" || strings.EqualFold(s, name)
			})
		}) {
			vary = append(vary, name)
		}
	}
	h["Vary"] = []string{strings.Join(vary, ", ")}
}

// splitQuoted splits a list at commas outside quotes and trims its items.
func splitQuoted(v string) []string {
	var out []string
	quoted, start := false, 0
	for i := 0; i < len(v); i++ {
		switch {
		case v[i] == '\\' && quoted:
			i++
		case v[i] == '"':
			quoted = !quoted
		case v[i] == ',' && !quoted:
			out = append(out, strings.TrimSpace(v[start:i]))
			start = i + 1
		}
	}
	return append(out, strings.TrimSpace(v[start:]))
}
