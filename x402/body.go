package x402

import (
	"reflect"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
)

// Bounds of a hold.
const (
	DefaultHoldSecs = 60
	MaxHoldSecs     = 900
)

// ValidRequestID reports whether s can be an agentRequestId: 1 to 128 visible ASCII characters.
func ValidRequestID(s string) bool {
	return s != "" && len(s) <= 128 && visible(s)
}

// visible reports whether s has visible ASCII characters only.
func visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// requiredField decodes paymentRequired in its three forms without copying the text.
type requiredField struct {
	into *PaymentRequired
	set  bool
}

// UnmarshalJSONFrom implements the streaming form of json.Unmarshaler.
func (f *requiredField) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '{':
		f.set = true
		return jsonx.UnmarshalDecode(dec, f.into)
	case '"':
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		f.set = true
		return DecodeHeader(tok.String(), f.into)
	}
	if err := dec.SkipValue(); err != nil {
		return err
	}
	return errRequiredForm
}

var errRequiredForm = &toll.Error{
	Code: toll.CodeBadRequest, Message: "must be a JSON object, or a string with the JSON object or its base64",
}

func (f *requiredField) explain(raw []byte) error {
	switch raw[0] {
	case '{':
		var r report
		r.walk(raw, reflect.TypeFor[PaymentRequired](), "")
		return r.err()
	case '"':
		var s string
		if err := jsonx.Unmarshal(raw, &s); err != nil {
			return err
		}
		return DecodeHeader(s, new(PaymentRequired))
	}
	return errRequiredForm
}

// tokenField decodes x402AccessToken: a string, or a PaymentPayload, whose JSON text it keeps.
type tokenField struct {
	text string
	set  bool
}

// UnmarshalJSONFrom implements the streaming form of json.Unmarshaler.
func (f *tokenField) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '"':
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		f.text, f.set = tok.String(), true
		return nil
	case '{':
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		f.text, f.set = string(v), true
		return nil
	}
	if err := dec.SkipValue(); err != nil {
		return err
	}
	return errTokenForm
}

var errTokenForm = &toll.Error{Code: toll.CodeBadRequest, Message: "must be a string or a PaymentPayload object"}

func (f *tokenField) explain(raw []byte) error {
	if raw[0] == '"' || raw[0] == '{' {
		return nil
	}
	return errTokenForm
}

// presence records that a member is not null.
type presence bool

// UnmarshalJSONFrom implements the streaming form of json.Unmarshaler.
func (p *presence) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = dec.PeekKind() != 'n'
	return dec.SkipValue()
}

func (p *presence) explain([]byte) error { return nil }

// paymentBody has the common members of verify and settle.
type paymentBody struct {
	PaymentRequired requiredField `json:"paymentRequired"`
	AccessToken     tokenField    `json:"x402AccessToken"`
	PaymentPayload  presence      `json:"paymentPayload"` // a stock body, see decodeStock
	MaxAmount       *toll.Credits `json:"maxAmount"`
	AgentRequestID  *string       `json:"agentRequestId"`
}

// check reports faults beyond the types.
func (b *paymentBody) check(r *report) error {
	switch {
	case bool(b.PaymentPayload) && b.AccessToken.set:
		return toll.NewError(toll.CodeBodyDialect).WithHint("Omit paymentPayload.")
	case !b.AccessToken.set:
		return toll.NewError(toll.CodeBodyDialect).WithHint("Send paymentRequired and x402AccessToken, or paymentPayload and paymentRequirements.")
	}
	if !b.PaymentRequired.set {
		r.add("paymentRequired", errMissing)
	}
	if b.AgentRequestID != nil && !ValidRequestID(*b.AgentRequestID) {
		r.add("agentRequestId", toll.Errorf(toll.CodeBadRequest, "must be 1 to 128 visible ASCII characters"))
	}
	return nil
}

type verifyBody struct {
	paymentBody
	Hold     toll.Bool `json:"hold"`
	HoldSecs *toll.Int `json:"holdSecs"`
}

// UnmarshalJSON decodes the spec body or the stock body. Errors: [toll.CodeBodyDialect], [toll.CodeBadX402Version] and those of
// [Decode]; Stock is set beside an error of a stock body.
func (r *VerifyRequest) UnmarshalJSON(data []byte) error { return Decode(data, r) }

func (r *VerifyRequest) decodeBody(data []byte) error {
	*r = VerifyRequest{}
	var b verifyBody
	b.PaymentRequired.into = &r.PaymentRequired
	err := decode(data, &b)
	if isStock(data, &b.paymentBody, err) {
		*r = VerifyRequest{Stock: new(StockPayment)}
		return r.Stock.decodeBody(data)
	}
	if err != nil {
		return err
	}
	return r.take(&b)
}

// take checks a body and copies its members, except PaymentRequired, which was decoded in place.
func (r *VerifyRequest) take(b *verifyBody) error {
	var faults report
	if err := b.check(&faults); err != nil {
		return err
	}
	r.HoldSecs = faults.holdSecs(b.HoldSecs)
	if err := faults.err(); err != nil {
		return err
	}
	r.AccessToken, r.MaxAmount, r.Hold = b.AccessToken.text, b.MaxAmount, bool(b.Hold)
	if b.AgentRequestID != nil {
		r.AgentRequestID = *b.AgentRequestID
	}
	return r.PaymentRequired.check()
}

// holdSecs returns the life of a hold, 0 if absent, and reports one out of range.
func (r *report) holdSecs(n *toll.Int) int {
	switch {
	case n == nil:
		return 0
	case *n < 1 || *n > MaxHoldSecs:
		r.add("holdSecs", toll.Errorf(toll.CodeBadNumber, "must be 1 to 900"))
		return 0
	}
	return int(*n)
}

type settleBody struct {
	paymentBody
	Batch         toll.Bool `json:"batch"`
	MarginPercent *Margin   `json:"marginPercent"`

	Labels toll.UsageLabels `json:"labels"`
}

// UnmarshalJSON decodes the spec body or the stock body. Errors: [toll.CodeBodyDialect], [toll.CodeBadX402Version],
// [toll.CodeAmountAndMargin], and any error of [Decode]. Stock is set even when a stock body has an error.
func (r *SettleRequest) UnmarshalJSON(data []byte) error { return Decode(data, r) }

func (r *SettleRequest) decodeBody(data []byte) error {
	*r = SettleRequest{}
	var b settleBody
	b.PaymentRequired.into = &r.PaymentRequired
	err := decode(data, &b)
	if isStock(data, &b.paymentBody, err) {
		*r = SettleRequest{Stock: new(StockPayment)}
		return r.Stock.decodeBody(data)
	}
	if err != nil {
		return err
	}
	return r.take(&b)
}

// take checks a body and copies its members, except PaymentRequired, which was decoded in place.
func (r *SettleRequest) take(b *settleBody) error {
	var faults report
	if err := b.check(&faults); err != nil {
		return err
	}
	if err := faults.err(); err != nil {
		return err
	}
	if b.MarginPercent != nil && b.MaxAmount != nil {
		return toll.NewError(toll.CodeAmountAndMargin)
	}
	r.AccessToken, r.MaxAmount, r.MarginPercent, r.Batch, r.Labels = b.AccessToken.text, b.MaxAmount, b.MarginPercent, bool(b.Batch), b.Labels
	if b.AgentRequestID != nil {
		r.AgentRequestID = *b.AgentRequestID
	}
	return r.PaymentRequired.check()
}
