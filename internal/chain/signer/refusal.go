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
	ForeignAccount  Reason = "the account does not sign requests of this kind"
	ForeignChain    Reason = "a signature is for another chain or from another account"
	ForeignCode     Reason = "the authorization is for a contract that does not belong to this service"
	ForeignReceiver Reason = "the delegation does not allow one of the receivers"
	ForeignDelegate Reason = "the delegation was not issued by this service"
	OtherToken      Reason = "the delegation is for another token"
	ForeignToken    Reason = "authorizations of this token are not supported"
	ForeignWallet   Reason = "the authorization is not signed by its sender for this token on this chain"
	OverLimit       Reason = "the amount exceeds the limit of the delegation"
	WrongTotal      Reason = "the total is not the sum of the transfers"
	OtherContent    Reason = "a different request was already signed for this order"
	OverCap         Reason = "the amount exceeds the hourly cap"
	ForeignForm     Reason = "an operation does not have the required form"
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
