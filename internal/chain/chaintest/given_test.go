package chaintest

import (
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/userop"
)

// What a journal gives is what was stored, and shares nothing with it.
func TestGiven(t *testing.T) {
	whole := func() *chain.Op {
		return &chain.Op{
			ID: "a", Payments: []chain.Payment{{To: common.Address{1}, Amount: big.NewInt(1 << 40)}}, Sale: &chain.SaleTerms{Signature: []byte{1, 2}},
			Authorization: &types.SetCodeAuthorization{Nonce: 7}, CreatedAt: time.Now(),
			Operation: &userop.Operation{Nonce: big.NewInt(5), CallData: []byte{3, 4}, PreVerificationGas: big.NewInt(6), Signature: []byte{5}},
			Failure:   &chain.Failure{Reason: "x", Params: map[string]any{"a": "b", "list": []any{"c", 1.5, map[string]any{"d": true}}}},
		}
	}
	op := whole()
	got := given(op)
	same := cmp.Options{cmp.AllowUnexported(big.Int{})}
	if diff := cmp.Diff(op, got, same); diff != "" {
		t.Fatalf("it is not what was stored:\n%s", diff)
	}
	got.Payments[0].Amount.SetInt64(2)
	got.Payments[0].To[0]++
	got.Sale.Signature[0]++
	got.Authorization.Nonce++
	got.Operation.Nonce.SetInt64(6)
	got.Operation.CallData[0]++
	got.Failure.Reason = "y"
	got.Failure.Params["a"] = "c"
	list := got.Failure.Params["list"].([]any)
	list[0], list[2].(map[string]any)["d"] = "e", false
	want := whole()
	want.CreatedAt = op.CreatedAt
	if diff := cmp.Diff(want, op, same); diff != "" {
		t.Errorf("what is stored has changed:\n%s", diff)
	}
}
