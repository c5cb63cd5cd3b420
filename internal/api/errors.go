package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

// fail writes every error body but that of an unpaid call (demand). Whatever is not a *toll.Error leaves as a 500 that says nothing of
// its cause; the log has the cause under the same correlation id.
func (c *call) fail(err error) {
	if u, ok := errors.AsType[*purchases.Unpaid](err); ok {
		c.demand(u)
		return
	}
	e := toll.AsError(err)
	if e.Code == toll.CodeInternal && errors.Is(err, context.DeadlineExceeded) {
		e = toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err)
	}
	status := e.HTTPStatus()
	c.code = e.Code
	c.log(e, status)
	c.h.Refused(e.Code)
	header := c.w.Header()
	switch {
	case status == http.StatusUnauthorized:
		header["Www-Authenticate"] = bearer
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		header["Retry-After"] = []string{strconv.Itoa(max(e.RetryAfterSecs, 1))}
	}
	body, err := x402.Encode(c.errorBody(e))
	if err != nil { // params that cannot be written, for example
		c.h.Log.ErrorContext(c.context, "writing an error body failed", "err", err)
		body = []byte(`{"code":"` + string(toll.CodeInternal) + `","httpStatus":500}`)
	}
	c.write(status, jsonType, body)
}

func (c *call) log(e *toll.Error, status int) {
	if e.Err == nil && (status < http.StatusInternalServerError || e.Code == toll.CodeSettlementPending || e.Code == toll.CodeMPPOff) {
		return // a protocol that is not served is no fault, nor a settlement that takes its time; one whose outcome was lost is logged where its cause is known
	}
	level := slog.LevelDebug
	if status >= http.StatusInternalServerError && !errors.Is(e.Err, context.Canceled) {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("code", string(e.Code)), slog.Int("status", status), slog.String("method", c.r.Method), slog.String("op", c.op()),
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	c.h.Log.LogAttrs(c.context, level, "call failed", attrs...)
}

// verdict is the part of an error body that x402 clients read; stock servers would otherwise hand the whole body on to
// the subscriber (wire contract, end of section 16).
type verdict struct {
	toll.ErrorBody
	IsValid       *bool   `json:"isValid,omitzero"`
	InvalidReason string  `json:"invalidReason,omitzero"`
	Success       *bool   `json:"success,omitzero"`
	ErrorReason   string  `json:"errorReason,omitzero"`
	ErrorMessage  string  `json:"errorMessage,omitzero"`
	Transaction   *string `json:"transaction,omitzero"`
	Network       *string `json:"network,omitzero"`
	Payer         string  `json:"payer,omitzero"`
	// Extra names the request that an unknown outcome is about.
	Extra *x402.SettleExtra `json:"extra,omitzero"`
}

func (c *call) errorBody(e *toll.Error) any {
	body := e.Body(c.correlation.ID, c.h.docsBase)
	no := false
	switch c.union() {
	case unionVerify:
		v := verdict{ErrorBody: body, IsValid: &no, InvalidReason: x402.ReasonOf(c.h.Namespace, e, x402.ActVerify)}
		if id, ok := e.Params["agentRequestId"].(string); ok {
			v.Extra = &x402.SettleExtra{AgentRequestID: id}
		}
		return v
	case unionSettle:
		v := verdict{
			ErrorBody: body, Success: &no, ErrorReason: x402.ReasonOf(c.h.Namespace, e, x402.ActSettle), ErrorMessage: body.Message,
			Transaction: new(string), Network: &c.h.network,
		}
		if s := c.refused; s != nil {
			v.Transaction, v.Payer, v.Extra = &s.Transaction, s.Payer, s.Extra
			if s.Network != "" {
				v.Network = &s.Network
			}
		}
		return v
	}
	return body
}
