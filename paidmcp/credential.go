package paidmcp

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

const (
	metaPayment     = x402.MetaPayment
	maxPaymentBytes = 64 << 10
	// plainPayload is the largest payload, in bytes, that is passed on complete as a token (x402.DecodeToken). Larger payloads are
	// reduced to the needed members.
	plainPayload = 16 << 10
)

// credential is the access token of a call.
type credential struct {
	token  string
	bearer bool // from the deprecated Authorization header
}

// takePayment removes the payment from _meta, so that no handler forwards it, and returns it as a token, or "".
func takePayment(params mcp.Params) (token string) {
	meta := params.GetMeta()
	v, there := meta[metaPayment]
	if !there {
		return ""
	}
	kept := maps.Clone(meta)
	delete(kept, metaPayment)
	params.SetMeta(kept)
	token, _ = paymentOf(v)
	return token
}

// takeCredential returns the payment of a call, or else the bearer token of its request. It removes both from the headers.
func takeCredential(ctx context.Context, req mcp.Request, token string) credential {
	bearer, _ := ctx.Value(bearerKey{}).(string)
	if extra := req.GetExtra(); extra != nil && extra.Header != nil {
		bearer = cmp.Or(bearer, bearerToken(extra.Header))
		h := extra.Header.Clone()
		h.Del("Authorization")
		h.Del(x402.HeaderSignature)
		extra.Header = h
	}
	if token == "" && bearer != "" {
		return credential{token: bearer, bearer: true}
	}
	return credential{token: token}
}

func bearerToken(h http.Header) string {
	kind, token, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// paymentOf returns a payment as the text of an access token. A value other than an object or string, above 64 KiB or nested
// deeper than 32 counts as absent.
func paymentOf(v any) (token string, ok bool) {
	switch v := v.(type) {
	case string:
		if v == "" || len(v) > maxPaymentBytes {
			return "", false
		}
		return v, true
	case map[string]any:
		b, err := x402.Encode(v)
		if err != nil || len(b) > maxPaymentBytes || x402.Decode(b, new(json.RawMessage)) != nil { // too deep
			return "", false
		}
		if len(b) > plainPayload {
			if b, err = x402.Encode(needed(v)); err != nil {
				return "", false
			}
		}
		return string(b), true
	}
	return "", false
}

// isPayment reports whether a member of _meta is a payment.
func isPayment(raw json.RawMessage) bool {
	if len(raw) == 0 || len(raw) > 2*maxPaymentBytes {
		return false
	}
	var v any
	if x402.Decode(raw, &v) != nil {
		return false
	}
	_, ok := paymentOf(v)
	return ok
}

// needed returns the members of a PaymentPayload that payments depend on.
func needed(v map[string]any) map[string]any {
	out := map[string]any{}
	for _, name := range []string{"x402Version", "accepted", "payload"} {
		if m, ok := v[name]; ok {
			out[name] = m
		}
	}
	if r, ok := v["resource"].(map[string]any); ok {
		out["resource"] = map[string]any{"url": r["url"]}
	}
	if e, ok := v["extensions"].(map[string]any); ok {
		if id, ok := e[x402.ExtensionPaymentIdentifier]; ok {
			out["extensions"] = map[string]any{x402.ExtensionPaymentIdentifier: id}
		}
	}
	return out
}
