package purchases

import (
	"bytes"
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// signatures checks what wallets sign, by their keys or by their code on the chain.
type signatures struct {
	store    *store.Store
	checkout *checkout.Checkout
	chainID  int64
}

// signedSale returns what the wallet has signed, when it signed it for this chain and this token. Where its key has not, code of
// the wallet is asked; errors of that have status 503.
func (s signatures) signed(ctx context.Context, t *saleTerms, p *x402.ExactPayment) (*evm.Authorization, *toll.Error) {
	switch asset, err := toll.ParseAddress(p.Accepted.Asset); {
	case p.Accepted.Scheme != x402.SchemeExact:
		return nil, refusal.New(toll.CodeUnsupportedScheme, x402.ReasonUnsupportedScheme, "The scheme must be exact.")
	case p.Accepted.Network != t.entry.Network:
		return nil, refusal.New(toll.CodeUnsupportedScheme, x402.ReasonInvalidNetwork, "The network must be "+t.entry.Network+".")
	case err != nil || asset != t.token:
		return nil, refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The payment must use the token of the price.")
	}
	a := &p.Authorization
	after, before := a.ValidAfter.Int(), a.ValidBefore.Int()
	switch {
	case !after.IsUint64():
		return nil, refusal.New(toll.CodePaymentRequired, x402.ReasonExactValidAfter, "The authorization is not valid yet.")
	case !before.IsUint64():
		return nil, refusal.New(toll.CodePaymentRequired, x402.ReasonExactValidBefore, "The authorization must expire within an hour.")
	}
	signed := &evm.Authorization{
		From: a.From, To: a.To, Value: a.Value.Int(), ValidAfter: after.Uint64(), ValidBefore: before.Uint64(), Nonce: a.Nonce,
	}
	if signer, err := evm.Recover(signed.Digest(t.domain), p.Signature); err == nil && signer == a.From {
		return signed, nil
	}
	if e := s.byCode(ctx, t, signed, p.Signature); e != nil {
		return nil, e
	}
	return signed, nil
}

// signedByCode refuses an authorization that code of its payer does not take (ERC-1271). Code is not asked again about what it
// took before: what is paid stays paid, whatever it says later.
func (s signatures) byCode(ctx context.Context, t *saleTerms, a *evm.Authorization, signature []byte) *toll.Error {
	if evm.Wrapped(signature) {
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactSignature, "The account that signed is not on the chain yet (ERC-6492).").
			WithHint("Deploy the account, then sign without the ERC-6492 wrapper.")
	}
	digest := a.Digest(t.domain)
	known, err := store.AuthorizationByNonce(ctx, s.store, s.chainID, t.token, a.From, a.Nonce)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return toll.AsError(err)
	}
	if err == nil && bytes.Equal(known.Signature, signature) {
		if was := checkout.SaleOf(known).Authorization; was.Digest(t.domain) == digest {
			return nil
		}
	}
	ok, err := s.accepts(ctx, a.From, digest, signature)
	switch {
	case err != nil:
		return toll.AsError(err)
	case !ok:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactSignature, "The signature does not match the account that pays.")
	}
	return nil
}

// accepts asks the chain whether code of an account takes a signature for its own. Without a chain none does.
func (s signatures) accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	seller := s.checkout.Seller()
	if seller == nil || len(signature) > evm.MaxSignature {
		return false, nil
	}
	return seller.Accepts(ctx, account, digest, signature)
}
