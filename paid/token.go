package paid

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// owns reports whether a text is a payment for one of these gates, which handlers must not see: an access token of their service,
// or the payment of a wallet.
func owns(ctx context.Context, text string, gates ...*gate) bool {
	if len(text) < seller.MinTokenBytes {
		return false
	}
	perCall := func(g *gate) bool { return len(g.c.perCall) > 0 }
	if slices.ContainsFunc(gates, perCall) && seller.SchemeOf(text) == x402.SchemeExact {
		return true
	}
	c, ok := seller.AccessToken(text)
	return ok && (len(gates) == 0 || slices.ContainsFunc(gates, func(g *gate) bool {
		terms, err := g.c.Terms.Of(ctx, g.c.plan)
		if err != nil {
			terms = nil
		}
		return c.IsOf(terms)
	}))
}

// errTokenInURL rejects a request before its URL reaches more logs and the settlement record.
var errTokenInURL = toll.Errorf(toll.CodeBadRequest, "The URL contains an access token. URLs are logged, so revoke the token.").
	WithHint("Send the access token in the header " + x402.HeaderSignature + ".")

// urlCarries reports whether the path or query of a URL contains an access token.
func urlCarries(u *url.URL, owns func(string) bool) bool {
	return carries(u.Path, "/", owns) || carries(u.RawQuery, "", owns)
}

// carries reports whether a text contains an access token between separators or the separators of lists, cookies, and queries.
func carries(text, separators string, owns func(string) bool) bool {
	separators += " \t,;?&=\"'"
	for len(text) >= seller.MinTokenBytes {
		part, end := text, len(text)
		if i := strings.IndexAny(text, separators); i >= 0 {
			part, end = text[:i], i+1
		}
		if text = text[end:]; len(part) < seller.MinTokenBytes {
			continue
		}
		if plain, err := url.PathUnescape(part); err == nil {
			part = strings.TrimRight(plain, "=") // base64 padding
		}
		if owns(part) {
			return true
		}
	}
	return false
}

// stripTokens removes header values and cookies that contain an access token.
func stripTokens(h http.Header, owns func(string) bool) {
	for name, values := range h {
		kept := values[:0]
		for _, v := range values {
			switch {
			case !carries(v, "", owns):
			case name == "Cookie":
				v = withoutTokens(v, owns)
			default:
				v = ""
			}
			if v != "" {
				kept = append(kept, v)
			}
		}
		if len(kept) > 0 {
			h[name] = kept
		} else {
			delete(h, name)
		}
	}
}

// withoutTokens removes the cookies that contain an access token.
func withoutTokens(cookies string, owns func(string) bool) string {
	var kept []string
	for c := range strings.SplitSeq(cookies, ";") {
		if c = strings.TrimSpace(c); !carries(c, "", owns) {
			kept = append(kept, c)
		}
	}
	return strings.Join(kept, "; ")
}

// served returns the URL of the request with a normalized path and without a query.
func (x *exchange) served() string {
	p, _ := readPath(x.r.URL) // cannot fail: ServeHTTP or find has parsed it
	path := url.URL{Path: "/" + strings.Join(p.segments, "/")}
	return x.c.publicURL + path.EscapedPath()
}
