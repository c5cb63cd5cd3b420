package signer

import (
	"context"
	"log/slog"
	"time"

	"github.com/tollhq/toll/internal/alarm"
)

// Reason is why the signer refuses.
type Reason string

const (
	Malformed       Reason = "a part of the request is missing or out of range"
	ForeignAccount  Reason = "this account does not sign such requests"
	ForeignChain    Reason = "a signature in it is for another chain, or not the account's"
	ForeignCode     Reason = "it gives an account other code than ours"
	ForeignReceiver Reason = "a receiver is not one of the delegation's"
	ForeignDelegate Reason = "the delegation is not one of ours"
	OtherToken      Reason = "the delegation is of another token"
	ForeignToken    Reason = "the token is not one whose authorizations are carried out"
	ForeignWallet   Reason = "the authorization is not signed by its sender for this token on this chain"
	OverLimit       Reason = "it is more than the delegation allows"
	WrongTotal      Reason = "the total is not the sum of the transfers"
	OtherContent    Reason = "another request was signed for this order"
	OverCap         Reason = "it is above the hourly cap"
	ForeignForm     Reason = "an operation is not of the form that we sign"
)

// Refusal is the error of a request that is not signed. It says nothing of the content of the request.
type Refusal struct {
	Request    string // kind of the request, as in "order"
	Reason     Reason
	RetryAfter time.Duration // with OverCap: when the cap has room again; 0: it never will
}

func (r *Refusal) Error() string {
	return "signer: refused to sign (" + r.Request + "): " + string(r.Reason)
}

// refuse raises the alarm. The id of the order or the delegation, or the account, is all of the request that is logged.
func (s *Signer) refuse(ctx context.Context, request, id string, reason Reason) error {
	return s.refused(ctx, id, &Refusal{Request: request, Reason: reason})
}

func (s *Signer) refused(ctx context.Context, id string, r *Refusal) error {
	alarm.Log(ctx, s.log, alarm.SignerRefused, "the signer refused a request", slog.String("request", r.Request), slog.String("reason", string(r.Reason)), slog.String("id", id))
	return r
}
