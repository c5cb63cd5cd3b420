package x402

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/tollhq/toll"
)

// StockPayment is the body of standard x402 software: the payment as sent by the client, and the entry of the server.
type StockPayment struct {
	// Payload is the PaymentPayload: its JSON text, or another form that [DecodeToken] accepts.
	Payload string
	// Requirements set the payment. Verify holds Amount and settle burns it; "" is the maximum of the plan, or the held amount.
	Requirements Requirements
}

type stockBody struct {
	X402Version         *toll.Int     `json:"x402Version"`
	PaymentPayload      tokenField    `json:"paymentPayload"`
	PaymentRequirements *Requirements `json:"paymentRequirements"`
}

// isStock reports whether a body that was decoded into b, or failed to, is a stock body.
func isStock(data []byte, b *paymentBody, err error) bool {
	if err == nil {
		return bool(b.PaymentPayload) && !b.AccessToken.set
	}
	// A misfit in the spec body may be an unknown member of a stock body; invalid JSON is neither.
	if e, ok := errors.AsType[*toll.Error](err); ok && e.Hint == syntaxHint {
		return false
	}
	return isPresent(data, "paymentPayload") && !isPresent(data, "x402AccessToken")
}

// UnmarshalJSON reads the stock body. Errors: [toll.CodeBadX402Version] and any error of [Decode].
func (p *StockPayment) UnmarshalJSON(data []byte) error { return Decode(data, p) }

func (p *StockPayment) decodeBody(data []byte) error {
	*p = StockPayment{}
	var b stockBody
	if err := decode(data, &b); err != nil {
		return err
	}
	var faults report
	if !b.PaymentPayload.set {
		faults.add("paymentPayload", errMissing)
	}
	if b.PaymentRequirements == nil {
		faults.add("paymentRequirements", errMissing)
	}
	if err := faults.err(); err != nil {
		return err
	}
	if b.X402Version != nil && *b.X402Version != Version {
		return toll.NewError(toll.CodeBadX402Version)
	}
	p.Payload, p.Requirements = b.PaymentPayload.text, *b.PaymentRequirements
	return nil
}

// MarshalJSON writes the stock body.
func (p *StockPayment) MarshalJSON() ([]byte, error) {
	body := struct {
		X402Version         int           `json:"x402Version"`
		PaymentPayload      any           `json:"paymentPayload"`
		PaymentRequirements *Requirements `json:"paymentRequirements"`
	}{Version, p.Payload, &p.Requirements}
	if strings.HasPrefix(p.Payload, "{") {
		body.PaymentPayload = json.RawMessage(p.Payload)
	}
	return Encode(&body)
}

// UnmarshalJSON decodes an agentRequestId, or without one the stock body. It returns the errors of [Decode].
func (r *ReleaseRequest) UnmarshalJSON(data []byte) error { return Decode(data, r) }

func (r *ReleaseRequest) decodeBody(data []byte) error {
	*r = ReleaseRequest{}
	if isPresent(data, "paymentPayload") && !isPresent(data, "agentRequestId") {
		r.Stock = new(StockPayment)
		return r.Stock.decodeBody(data)
	}
	var b struct {
		AgentRequestID *string `json:"agentRequestId"`
	}
	if err := decode(data, &b); err != nil {
		return err
	}
	if b.AgentRequestID == nil {
		var faults report
		faults.add("agentRequestId", errMissing)
		return faults.err()
	}
	r.AgentRequestID = *b.AgentRequestID
	return nil
}

// MarshalJSON writes the stock body when Stock is set, else the agentRequestId.
func (r *ReleaseRequest) MarshalJSON() ([]byte, error) {
	if r.Stock != nil {
		return r.Stock.MarshalJSON()
	}
	return Encode(&struct {
		AgentRequestID string `json:"agentRequestId"`
	}{r.AgentRequestID})
}

var (
	_ json.Unmarshaler = (*StockPayment)(nil)
	_ json.Unmarshaler = (*ReleaseRequest)(nil)
)
