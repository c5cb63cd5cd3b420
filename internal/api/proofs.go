package api

import (
	"net/http"

	"github.com/tollhq/toll"
)

func proofRoutes() []route {
	return []route{{
		op: "readProof", method: "GET", path: Base + "/credits/proofs/{transaction}", auth: open, right: public, tag: "Payments", further: http.StatusAccepted,
		summary: "Proof that a burn is in the mirror on the chain; 202 before it is", action: readsAs[toll.BurnProof](by("transaction", toll.ParseHash, (*handler).readProof)),
		codes: []toll.Code{toll.CodeBurnNotMirrored},
	}}
}

// openProof is the answer before there is a proof.
type openProof struct {
	Status toll.ProofStatus `json:"status"`
}

func (h *handler) readProof(c *call, transaction toll.Hash) (any, error) {
	if h.Proof == nil {
		return nil, toll.NewError(toll.CodeBurnNotMirrored).WithDetails("transaction %s", transaction).
			WithHint("This service mirrors nothing now; its operator can switch the mirror on.")
	}
	p, err := h.Proof(c.context, transaction)
	if err != nil {
		return nil, err
	}
	if p.Status == toll.ProofOpen {
		c.status = http.StatusAccepted
		return openProof{p.Status}, nil
	}
	return p, nil
}
