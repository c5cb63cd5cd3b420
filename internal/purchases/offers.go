package purchases

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

// sign signs an offer or a receipt, neither of which is a credential.
func (s *Purchases) sign(statement any) (string, error) {
	payload, err := x402.Encode(statement)
	if err != nil {
		return "", err
	}
	return s.Auth.SignStatement(payload)
}

// Offers signs what a server asks for, an offer for each entry of accepts, which must be that of plans of the caller, or one that a
// wallet pays to the caller and whose payments are settled here: terms of others are not ours to promise. Errors: those of a malformed
// body, [toll.CodePaymentPlanNotFound], [toll.CodeNotPlanOwner], and for wallets [toll.CodeUnsupportedScheme],
// [toll.CodeBadRequirements], [toll.CodeChainUnreachable].
func (s *Purchases) Offers(ctx context.Context, caller toll.Address, req *x402.OffersRequest) (*x402.OffersResponse, error) {
	required := &req.PaymentRequired
	switch {
	case required.X402Version != x402.Version:
		return nil, refusal.New(toll.CodeBadX402Version, x402.ReasonInvalidVersion, "")
	case len(required.Accepts) == 0 || len(required.Accepts) > x402.MaxOffers:
		return nil, refusal.Malformed("paymentRequired.accepts", "must have 1 to 8 entries")
	}
	if e := refusal.BadURL(required.Resource.URL); e != nil {
		return nil, e
	}
	resp := &x402.OffersResponse{Offers: []x402.SignedOffer{}, ValidUntil: s.Clock().Add(offerLife).Unix()}
	for i := range required.Accepts {
		r := &required.Accepts[i]
		if e := s.mayOffer(ctx, caller, r); e != nil {
			return nil, e
		}
		offer := x402.OfferOf(required.Resource.URL, r, resp.ValidUntil)
		jws, err := s.sign(&offer)
		if err != nil {
			return nil, toll.AsError(err)
		}
		resp.Offers = append(resp.Offers, x402.SignedOffer{Format: x402.FormatJWS, AcceptIndex: i, Signature: jws})
	}
	return resp, nil
}

// mayOffer refuses an entry whose terms are not those of the caller.
func (s *Purchases) mayOffer(ctx context.Context, caller toll.Address, r *x402.Requirements) *toll.Error {
	if r.Scheme == x402.SchemeExact {
		_, e := s.Exact.terms(ctx, caller, r)
		return e
	}
	plan, e := s.Catalogue.Plan(ctx, toll.PlanID(cmp.Or(r.PlanID, r.Extra.PlanID)), toll.CodePaymentPlanNotFound)
	if e != nil {
		return e
	}
	if plan.Owner != caller {
		return toll.NewError(toll.CodeNotPlanOwner)
	}
	if scheme, network := s.brand.Scheme(plan); r.Scheme != scheme || !x402.SameNetwork(r.Network, network, s.brand.Environment) || r.Asset != s.brand.Names.Asset() {
		return refusal.Malformed("paymentRequired.accepts", "has an entry that does not match its plan")
	}
	return nil
}

// offerSale adds the offers of a sale to what a wallet is asked for. Without a key that signs it goes without them.
func (s *Purchases) offerSale(ctx context.Context, r *x402.SaleRequired) {
	var offers []x402.SignedOffer
	for i, e := range r.Accepts {
		jws, err := s.sign(&x402.Offer{
			Version: 1, ResourceURL: r.Resource.URL, Scheme: e.Scheme, Network: e.Network, Asset: e.Asset, PayTo: e.PayTo, Amount: e.Amount,
			ValidUntil: s.Clock().Add(offerLife).Unix(),
		})
		if err != nil {
			s.Log.ErrorContext(ctx, "cannot sign an offer", "error", err)
			return
		}
		offers = append(offers, x402.SignedOffer{Format: x402.FormatJWS, AcceptIndex: i, Signature: jws})
	}
	r.Extensions[x402.ExtensionOfferReceipt] = x402.OffersExtension(offers)
}

// Receipt returns the extension with a signed receipt, nil where receipts are off or nothing can be signed.
func (s *Purchases) Receipt(ctx context.Context, url, network, payer, transaction string, at time.Time) map[string]json.RawMessage {
	if !s.Receipts {
		return nil
	}
	jws, err := s.sign(&x402.Receipt{
		Version: 1, Network: network, ResourceURL: url, Payer: payer, IssuedAt: at.Unix(), Transaction: transaction,
	})
	if err != nil {
		s.Log.ErrorContext(ctx, "cannot sign a receipt", "error", err)
		return nil
	}
	return map[string]json.RawMessage{x402.ExtensionOfferReceipt: x402.ReceiptExtension(x402.SignedReceipt{Format: x402.FormatJWS, Signature: jws})}
}
