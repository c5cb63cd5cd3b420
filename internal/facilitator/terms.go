package facilitator

import (
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/x402"
)

// sameTerms compares what the client accepted with what the server asks for, as far as both say it: asset and receiver. Neither
// moves credits; a payment for others was meant for another server.
func sameTerms(p *payment) *toll.Error {
	a, r := p.token.Accepted, p.entry
	switch {
	case a == nil:
		return nil
	case a.Asset != "" && r.Asset != "" && a.Asset != r.Asset:
		return otherTerms("accepted.asset")
	case a.PayTo != "" && r.PayTo != "" && !strings.EqualFold(a.PayTo, r.PayTo):
		return otherTerms("accepted.payTo")
	case !p.stock:
		return sameAmount(p)
	}
	return nil
}

// sameAmount is sameTerms for the amount, which in a stock settle is what is burned, and may be less.
func sameAmount(p *payment) *toll.Error {
	if a := p.token.Accepted; a != nil && a.Amount != "" && p.entry.Amount != "" && a.Amount != p.entry.Amount {
		return otherTerms("accepted.amount")
	}
	return nil
}

func otherTerms(path string) *toll.Error {
	return refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The client accepted other terms than the server asks for: "+path+".")
}

// withinAccepted refuses a settle above what the client accepted, whether or not a verify held it. nil is no amount.
func (f *Facilitator) withinAccepted(p *payment, n *toll.Credits) *toll.Error {
	a := p.token.Accepted
	if a == nil || a.Amount == "" || n == nil {
		return nil
	}
	most, err := toll.ParseCredits(a.Amount)
	if err != nil || *n > most {
		return refusal.By(f.brand.Names, &ledger.Refusal{Kind: ledger.ExceedsHold, Needed: *n, Available: most})
	}
	return nil
}
