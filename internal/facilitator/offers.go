package facilitator

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/x402"
)

// offerLife is how long a signed offer is good, beyond the time that a request may take: a client reads, decides and pays.
const offerLife = 5 * time.Minute

// signOffer signs the terms of an entry of accepts, index counting from 0. An offer is no credential.
func (f *Facilitator) signOffer(o x402.Offer, index int) (x402.SignedOffer, error) {
	jws, err := f.signStatement(&o)
	return x402.SignedOffer{Format: x402.FormatJWS, AcceptIndex: index, Signature: jws}, err
}

func (f *Facilitator) signStatement(statement any) (string, error) {
	payload, err := x402.Encode(statement)
	if err != nil {
		return "", err
	}
	return f.Auth.SignStatement(payload)
}

// Offers signs what a server asks for, an offer for each entry of accepts, which must be that of plans of the caller, or one that a
// wallet pays to the caller and whose payments are settled here: terms of others are not ours to promise. Errors: those of a malformed
// body, [toll.CodePaymentPlanNotFound], [toll.CodeNotPlanOwner], and for wallets [toll.CodeUnsupportedScheme],
// [toll.CodeBadRequirements], [toll.CodeChainUnreachable].
func (f *Facilitator) Offers(ctx context.Context, caller toll.Address, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	required := &req.PaymentRequired
	switch {
	case required.X402Version != x402.Version:
		return nil, refusal.New(toll.CodeBadX402Version, x402.ReasonInvalidVersion, "")
	case len(required.Accepts) == 0 || len(required.Accepts) > x402.MaxOffers:
		return nil, refusal.Malformed("paymentRequired.accepts", "must have 1 to 8 entries")
	}
	if e := checkURL(required.Resource.URL); e != nil {
		return nil, e
	}
	resp := &x402.OffersResponse{Offers: []x402.SignedOffer{}, ValidUntil: f.Clock().Add(offerLife).Unix()}
	for i := range required.Accepts {
		r := &required.Accepts[i]
		if e := f.mayOffer(ctx, caller, r); e != nil {
			return nil, e
		}
		signed, err := f.signOffer(x402.OfferOf(required.Resource.URL, r, resp.ValidUntil), i)
		if err != nil {
			return nil, toll.AsError(err)
		}
		resp.Offers = append(resp.Offers, signed)
	}
	return resp, nil
}

// mayOffer refuses an entry whose terms are not those of the caller.
func (f *Facilitator) mayOffer(ctx context.Context, caller toll.Address, r *x402.Requirements) *toll.Error {
	if r.Scheme == x402.SchemeExact {
		_, e := f.exactTerms(ctx, caller, r)
		return e
	}
	plan, e := f.Catalogue.Plan(ctx, toll.PlanID(cmp.Or(r.PlanID, r.Extra.PlanID)), toll.CodePaymentPlanNotFound)
	if e != nil {
		return e
	}
	if plan.Owner != caller {
		return toll.NewError(toll.CodeNotPlanOwner)
	}
	if scheme, network := f.brand.Scheme(plan); r.Scheme != scheme || !x402.SameNetwork(r.Network, network, f.brand.Environment) || r.Asset != f.brand.Names.Asset() {
		return refusal.Malformed("paymentRequired.accepts", "has an entry that is not that of its plan")
	}
	return nil
}

// offerSale adds the offers of a sale to what a wallet is asked for. Without a key that signs it goes without them.
func (f *Facilitator) offerSale(ctx context.Context, r *x402.SaleRequired) {
	var offers []x402.SignedOffer
	for i, e := range r.Accepts {
		signed, err := f.signOffer(x402.Offer{
			Version: 1, ResourceURL: r.Resource.URL, Scheme: e.Scheme, Network: e.Network, Asset: e.Asset, PayTo: e.PayTo, Amount: e.Amount,
			ValidUntil: f.Clock().Add(offerLife).Unix(),
		}, i)
		if err != nil {
			f.Log.ErrorContext(ctx, "an offer cannot be signed", "error", err)
			return
		}
		offers = append(offers, signed)
	}
	r.Extensions[x402.ExtensionOfferReceipt] = x402.OffersExtension(offers)
}

// receiptOf returns the extension with a signed receipt, nil where receipts are off or nothing can be signed.
func (f *Facilitator) receiptOf(ctx context.Context, url, network, payer, transaction string, at time.Time) map[string]json.RawMessage {
	if !f.Receipts {
		return nil
	}
	jws, err := f.signStatement(&x402.Receipt{ // no credential
		Version: 1, Network: network, ResourceURL: url, Payer: payer, IssuedAt: at.Unix(), Transaction: transaction,
	})
	if err != nil {
		f.Log.ErrorContext(ctx, "a receipt cannot be signed", "error", err)
		return nil
	}
	return map[string]json.RawMessage{x402.ExtensionOfferReceipt: x402.ReceiptExtension(x402.SignedReceipt{Format: x402.FormatJWS, Signature: jws})}
}
