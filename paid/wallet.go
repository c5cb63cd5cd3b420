package paid

import (
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// walletPayment is the payment of a wallet for one call.
type walletPayment struct {
	entry *x402.ExactRequirements
	nonce toll.Hash // of the authorization
}

// payExact verifies the payment of a wallet. It returns false after it wrote the response to an unpaid request.
func (x *exchange) payExact(value string) bool {
	p, err := x402.DecodeExact(value)
	if err != nil {
		return x.isPaid(seller.Undecodable(err))
	}
	if !x.extensionsFit(p.PaymentIdentifier, p.Extensions) {
		return false
	}
	verb := x.required.Accepts[0].Extra.HTTPVerb
	sale, entry, refusal := x.c.OpenExact(x.r.Context(), x.offer(), value, p, x.required.Resource.URL, verb, x.exact)
	x.sale, x.wallet = sale, &walletPayment{entry: entry, nonce: p.Authorization.Nonce}
	return x.isPaid(refusal)
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
