package api_test

import (
	"context"
	"testing"

	"github.com/tollhq/toll"
)

// Burns of a mirror that is not there: one is published, and one waits for the end of its period.
var mirroredBurn, openBurn = toll.Hash{0xb1}, toll.Hash{0xb2}

func proofOf(_ context.Context, transaction toll.Hash) (*toll.BurnProof, error) {
	switch transaction {
	case mirroredBurn:
		f := toll.BurnFields{
			Index: 2, Commitment: mirroredBurn, PlanID: "77", Holder: toll.Address{1}, RequestHash: toll.Hash{2}, Credits: 9007199254740993,
		}
		return &toll.BurnProof{
			Status: toll.ProofAnchored, Period: 495000, Root: toll.Hash{3}, Index: 2, Leaf: f.Leaf(), Fields: f, Proof: []toll.Hash{{4}, {5}},
			Network: "eip155:84532", Contract: toll.Address{6}, AnchorTransaction: toll.Hash{7},
		}, nil
	case openBurn:
		return &toll.BurnProof{Status: toll.ProofOpen}, nil
	}
	return nil, toll.NewError(toll.CodeBurnNotMirrored).WithDetails("transaction %s", transaction)
}

// A proof is for everybody; before it is there, the answer says only that.
func TestProof(t *testing.T) {
	s := newStack(t)
	at := base + "/credits/proofs/"
	a := s.do(actor{}, "GET", at+mirroredBurn.String(), "")
	if a.status != 200 || a.text(t, "fields.credits") != "9007199254740993" || a.text(t, "status") != "anchored" {
		t.Errorf("a proof: %d %s", a.status, a.body)
	}
	if a := s.do(actor{}, "GET", at+openBurn.String(), ""); a.status != 202 || string(a.body) != `{"status":"open"}` {
		t.Errorf("before it is there: %d %s", a.status, a.body)
	}
	if a := s.do(actor{}, "GET", at+toll.Hash{9}.String(), ""); a.status != 404 || a.code() != "BCK.CHAIN.0014" {
		t.Errorf("no burn of the mirror: %d %s", a.status, a.body)
	}
	if a := s.do(actor{}, "GET", at+"0x12", ""); a.status != 400 {
		t.Errorf("no hash: %d %s", a.status, a.body)
	}
}
