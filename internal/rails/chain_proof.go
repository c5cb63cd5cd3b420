package rails

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/mirror"
)

// ProofResult is what the chain says of a proof that holds.
type ProofResult struct {
	Holds       bool         `json:"holds"`
	Transaction toll.Hash    `json:"transaction"` // of the receipt
	Credits     toll.Credits `json:"credits"`
	PlanID      toll.PlanID  `json:"planId"`
	Holder      toll.Address `json:"holder"`
	Period      int64        `json:"period"`
	Block       uint64       `json:"block"`
	Final       bool         `json:"final"`
	Operator    toll.Address `json:"operator"`
	Contract    toll.Address `json:"contract"`
}

// VerifyProof checks a proof with JSON-RPC endpoints of the chain and nothing else.
func VerifyProof(ctx context.Context, urls []string, p *toll.BurnProof) (*ProofResult, error) {
	if p.Status == toll.ProofOpen {
		return nil, mirror.ErrOpen
	}
	id, ok := strings.CutPrefix(p.Network, "eip155:")
	chainID, err := strconv.ParseUint(id, 10, 64)
	if !ok || err != nil {
		return nil, fmt.Errorf("proofs of the network %q cannot be verified", p.Network)
	}
	pool, err := endpoints.New(endpoints.Config{URLs: urls, ChainID: chainID, Idle: true})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	v, err := mirror.Verify(ctx, pool, p)
	if err != nil {
		return nil, err
	}
	return &ProofResult{
		Holds: true, Transaction: p.Fields.Commitment, Credits: p.Fields.Credits, PlanID: p.Fields.PlanID, Holder: p.Fields.Holder, Period: p.Period,
		Block: v.Block, Final: v.Final, Operator: v.Operator, Contract: p.Contract,
	}, nil
}
