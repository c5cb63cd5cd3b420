package facilitator

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

// signedByCode refuses an authorization that code of its payer does not take (ERC-1271). Code is not asked again about what it
// took before: what is paid stays paid, whatever it says later.
func (f *Facilitator) signedByCode(ctx context.Context, t *saleTerms, a *evm.Authorization, signature []byte) *toll.Error {
	if evm.Wrapped(signature) {
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactSignature, "The signature is one of an account that is not on the chain yet (ERC-6492).").
			WithHint("Deploy the account, and sign without the wrapper.")
	}
	digest := a.Digest(t.domain)
	known, err := store.AuthorizationByNonce(ctx, f.Store, f.brand.Environment.ChainID(), t.token, a.From, a.Nonce)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return toll.AsError(err)
	}
	if err == nil && bytes.Equal(known.Signature, signature) {
		if was := checkout.SaleOf(known).Authorization; was.Digest(t.domain) == digest {
			return nil
		}
	}
	ok, err := f.accepts(ctx, a.From, digest, signature)
	switch {
	case err != nil:
		return toll.AsError(err)
	case !ok:
		return refusal.New(toll.CodePaymentRequired, x402.ReasonExactSignature, "The signature is not that of the account that pays.")
	}
	return nil
}

// accepts asks the chain whether code of an account takes a signature for its own. Without a chain none does.
func (f *Facilitator) accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	seller := f.Checkout.Seller()
	if seller == nil || len(signature) > evm.MaxSignature {
		return false, nil
	}
	return seller.Accepts(ctx, account, digest, signature)
}
