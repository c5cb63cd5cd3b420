package paid

import (
	"errors"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// walletPayment is the payment of a wallet for one call.
type walletPayment struct {
	entry *x402.ExactRequirements
	nonce toll.Hash // of the authorization
}

// schemeOf returns the scheme of the accepted entry of a payment, or "" for a bare access token or a malformed payment.
func schemeOf(value string) string {
	var p struct {
		Accepted struct {
			Scheme string `json:"scheme"`
		} `json:"accepted"`
	}
	if x402.DecodeHeader(value, &p) != nil {
		return ""
	}
	return p.Accepted.Scheme
}

// payExact verifies the payment of a wallet. The accepted entry in the payment only selects an entry of the route, which sets the
// terms. payExact returns false after it wrote the response to an unpaid request.
func (x *exchange) payExact(value string) bool {
	p, err := x402.DecodeExact(value)
	if err != nil {
		return x.isPaid(seller.Undecodable(err))
	}
	if !x.extensionsFit(p.PaymentIdentifier, p.Extensions) {
		return false
	}
	entry := x.accepted(p)
	if entry == nil {
		return false
	}
	amount, err := toll.ParseCredits(entry.Amount)
	if err != nil {
		x.fail(toll.AsError(err))
		return false
	}
	from, nonce := p.Authorization.From.String(), p.Authorization.Nonce
	var refusal *seller.Refusal
	x.sale, refusal = x.c.OpenStock(x.r.Context(), x.offer(), seller.Sale{
		Stock: &x402.StockPayment{Payload: value, Requirements: x.asRequirements(entry)}, Payer: from, Amount: amount,
		About: []any{"payer", from, "nonce", nonce.String()},
	})
	x.wallet = &walletPayment{entry: entry, nonce: nonce}
	return x.isPaid(refusal)
}

// accepted returns the entry of the route that a payment selects. If there is no such entry, it writes a 402 and returns nil.
func (x *exchange) accepted(p *x402.ExactPayment) *x402.ExactRequirements {
	bad := func(why string) *x402.ExactRequirements {
		x.refuse(x402.ReasonInvalidRequirements, toll.Errorf(toll.CodeBadRequirements, "%s", why), nil)
		return nil
	}
	// A shortened 402 names the resource without its query.
	ours := x.required.Resource.URL
	short, _, _ := strings.Cut(ours, "?")
	if p.ResourceURL != "" && p.ResourceURL != ours && p.ResourceURL != short {
		return bad("The payment is for another resource.")
	}
	for i := range x.exact {
		if x.exact[i].Pays(&p.Accepted) {
			return &x.exact[i]
		}
	}
	return bad("This route does not offer the payment option in accepted.")
}

// ErrNotSettled means that the payment for a stream was not settled, so no part of the stream is sent.
var ErrNotSettled = errors.New("paid: the payment for this answer was not settled")

// isPriced reports whether the price is known before the response.
func (x *exchange) isPriced() bool { return x.wallet != nil || x.c.creditsFunc == nil }

// settleFirst settles a stream with a known price before its first byte, so that it does not depend on a hold. For a status other
// than 2xx, it releases the hold and returns nil, because such a response is free.
func (x *exchange) settleFirst(status int) error {
	if !success(status) {
		x.sale.Release(x.r.Context())
		return nil
	}
	x.first, x.known = x.sale.Settle(x.r.Context(), x.amount(Response{}), seller.Tries)
	if x.first.Success {
		return nil
	}
	if x.known {
		x.sale.Release(x.r.Context())
	}
	return ErrNotSettled
}

// unsettled reports whether a stream could not begin because its payment was not settled.
func (x *exchange) unsettled() bool { return x.first != nil && !x.first.Success }

// notSettled responds to a failed settlement.
func (x *exchange) notSettled(s *x402.SettleResponse, known bool) {
	if !known {
		x.pending(s)
		return
	}
	x.settleRefused(s)
}
