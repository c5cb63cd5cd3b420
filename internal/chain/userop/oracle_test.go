package userop_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/contracts/bindings"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/chain/userop"
)

// The contracts themselves make the same hashes.
func TestHashes_OnChain(t *testing.T) {
	c, err := devchain.Start(t.Context(), devchain.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ask := func(t rapid.TB, to common.Address, data []byte) common.Hash {
		var answer hexutil.Bytes
		code := map[common.Address]any{to: map[string]any{"code": hexutil.Bytes(userop.AccountCode())}}
		if to == contracts.EntryPoint || to == contracts.DelegationManager {
			code = nil
		}
		err := c.Client().Call(&answer, "eth_call", map[string]any{"to": to, "data": hexutil.Bytes(data)}, "latest", code)
		if err != nil || len(answer) != 32 {
			t.Fatalf("%x, %v", answer, err)
		}
		return common.Hash(answer)
	}
	check := func(t rapid.TB, op *userop.Operation, d *userop.Delegation) {
		packed := bindings.PackedUserOperation(*op)
		if got, want := op.Hash(chainID), ask(t, contracts.EntryPoint, bindings.NewEntryPoint().PackGetUserOpHash(packed)); got != want {
			t.Fatalf("userOpHash %s, want %s", got, want)
		}
		account := bindings.NewEIP7702StatelessDeleGator()
		if got, want := op.SigningHash(chainID), ask(t, op.Sender, account.PackGetPackedUserOperationTypedDataHash(packed)); got != want {
			t.Fatalf("the account wants a signature of %s, we make one of %s", want, got)
		}
		theirs := bindings.Delegation{Delegate: d.Delegate, Delegator: d.Delegator, Authority: d.Authority, Salt: d.Salt}
		for _, c := range d.Caveats {
			theirs.Caveats = append(theirs.Caveats, bindings.Caveat{Enforcer: c.Enforcer, Terms: c.Terms})
		}
		if got, want := d.Hash(), ask(t, contracts.DelegationManager, bindings.NewDelegationManager().PackGetDelegationHash(theirs)); got != want {
			t.Fatalf("the hash of the delegation is %s, want %s", got, want)
		}
	}
	check(t, vectorOrder(t), vectorDelegation())
	rapid.Check(t, func(t *rapid.T) {
		op := operations.Draw(t, "operation")
		op.Sender[0] = 0xaa // no precompile
		check(t, op, &signed.Draw(t, "delegation").Delegation)
	})
}
