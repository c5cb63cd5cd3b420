package x402

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
)

// The bodies of verify and settle are written by hand, as every paid call sends two of them. Tests
// compare them with what [Encode] makes of the same members.

// appender is a body that [Encode] has write itself, or that returns errUnusual for the generic
// encoder. Structs that embed one would lose their own members: do not embed it.
type appender interface {
	appendJSON(b []byte) ([]byte, error)
}

var errUnusual = errors.New("x402: the value requires the generic encoder")

// MarshalJSON writes the stock body when Stock is set, else the spec body.
func (r *VerifyRequest) MarshalJSON() ([]byte, error) { return Encode(r) }

func (r *VerifyRequest) appendJSON(b []byte) ([]byte, error) {
	if r.Stock != nil {
		return r.Stock.MarshalJSON()
	}
	b, err := appendAsked(b, &r.PaymentRequired, r.AccessToken, r.MaxAmount)
	if r.Hold {
		b = append(b, `,"hold":true`...)
	}
	if r.HoldSecs != 0 {
		b = strconv.AppendInt(append(b, `,"holdSecs":`...), int64(r.HoldSecs), 10)
	}
	b = appendText(b, `,"agentRequestId":`, r.AgentRequestID)
	return append(b, '}'), err
}

// MarshalJSON writes the stock body when Stock is set, else the spec body.
func (r *SettleRequest) MarshalJSON() ([]byte, error) { return Encode(r) }

func (r *SettleRequest) appendJSON(b []byte) ([]byte, error) {
	if r.Stock != nil {
		return r.Stock.MarshalJSON()
	}
	b, err := appendAsked(b, &r.PaymentRequired, r.AccessToken, r.MaxAmount)
	if r.MarginPercent != nil && err == nil {
		var margin []byte
		margin, err = Encode(r.MarginPercent)
		b = append(append(b, `,"marginPercent":`...), margin...)
	}
	b = appendText(b, `,"agentRequestId":`, r.AgentRequestID)
	if r.Batch {
		b = append(b, `,"batch":true`...)
	}
	if l := &r.Labels; *l != (toll.UsageLabels{}) {
		b = append(b, `,"labels":{`...)
		first := len(b)
		b = appendText(appendText(appendText(b, `,"upstream":`, l.Upstream), `,"route":`, l.Route), `,"model":`, l.Model)
		b = append(append(b[:first], b[first+1:]...), '}') // no comma before the first member
	}
	return append(b, '}'), err
}

// appendAsked appends the shared members of verify and settle, without the closing brace of the object. It omits the
// addresses for payers in p, which verify and settle ignore.
func appendAsked(b []byte, p *PaymentRequired, token string, most *toll.Credits) ([]byte, error) {
	if b == nil {
		b = make([]byte, 0, len(token)+1280) // an entry has about 700 bytes, and ids have 78 digits
	}
	b = append(b, `{"paymentRequired":{"x402Version":`...)
	b = strconv.AppendInt(b, int64(p.X402Version), 10)
	b = appendText(b, `,"error":`, p.Error)
	b = append(b, `,"resource":{"url":`...)
	b = quote(b, p.Resource.URL)
	b = appendText(b, `,"description":`, p.Resource.Description)
	b = appendText(b, `,"mimeType":`, p.Resource.MimeType)
	b = append(b, `},"accepts":[`...)
	for i := range p.Accepts {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.Accepts[i].appendAsked(b)
	}
	b = append(b, `],"extensions":`...)
	b, err := appendRawMap(b, p.Extensions)
	b = append(b, `},"x402AccessToken":`...)
	b = quote(b, token)
	if most != nil {
		b = append(strconv.AppendInt(append(b, `,"maxAmount":"`...), int64(*most), 10), '"')
	}
	return b, err
}

func (r *Requirements) appendAsked(b []byte) []byte {
	b = quote(append(b, `{"scheme":`...), r.Scheme)
	b = quote(append(b, `,"network":`...), r.Network)
	b = appendText(b, `,"amount":`, r.Amount)
	b = appendText(b, `,"asset":`, r.Asset)
	b = appendText(b, `,"payTo":`, r.PayTo)
	if r.MaxTimeoutSeconds != 0 {
		b = strconv.AppendInt(append(b, `,"maxTimeoutSeconds":`...), int64(r.MaxTimeoutSeconds), 10)
	}
	b = quote(append(b, `,"planId":`...), r.PlanID)
	b = append(b, `,"extra":{`...)
	first := len(b)
	b = appendText(b, `,"version":`, r.Extra.Version)
	b = appendText(b, `,"planId":`, r.Extra.PlanID)
	b = appendText(b, `,"agentId":`, r.Extra.AgentID)
	b = appendText(b, `,"httpVerb":`, r.Extra.HTTPVerb)
	b = appendText(b, `,"paymentFlow":`, r.Extra.PaymentFlow)
	if len(b) > first {
		b = append(b[:first], b[first+1:]...) // no comma before the first member
	}
	return append(b, "}}"...)
}

// appendText writes a member, name with comma and colon, unless the text is empty.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return quote(append(b, name...), text)
}

// quote writes a string. Invalid UTF-8 is replaced, as [Encode] does.
func quote(b []byte, text string) []byte {
	if isPlain(text) {
		return append(append(append(b, '"'), text...), '"')
	}
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

// appendRawMap appends an object whose members are raw JSON.
func appendRawMap(b []byte, m map[string]json.RawMessage) ([]byte, error) {
	if len(m) == 0 {
		return append(b, "{}"...), nil
	}
	text, err := Encode(m)
	return append(b, text...), err
}
