package signer_test

import (
	"bytes"
	"crypto/rand"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// dump returns all that is on the heap and on the stacks. What is garbage is in it while no collection has run.
func dump(t *testing.T) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "heap")
	f := must.Get(os.Create(name))(t)
	debug.WriteHeapDump(f.Fd())
	must.Do(t, f.Close())
	return must.Get(os.ReadFile(name))(t)
}

// TestMemory looks for keys and signatures in a dump of the memory of the process, garbage included: no key is there after
// it was used, and no signature of what was refused. A key that is kept on purpose and signatures that were given are found, so
// the search works.
// T66
func TestMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	random := func(byte) []byte {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		return key
	}
	b := newBenchOf(t, random, func(c *signer.Config) { c.HourlyCents = 100 })
	op := b.operation(t)
	d := must.Get(b.Delegation(t.Context(), signer.Delegation{Delegation: userop.NewDelegation(b.terms())}))(t)
	tx := must.Get(b.RelayerTx(t.Context(), b.transaction(op)))(t)
	must.Get(b.Void(t.Context(), signer.Void{OrderID: "order-1", Sender: b.service}))(t)
	must.Get(b.Authorization(t.Context(), signer.Authorization{Account: b.subscriber}))(t)
	foreign := userop.NewDelegation(b.terms())
	foreign.Delegate = receiver
	if _, err := b.Delegation(t.Context(), signer.Delegation{Delegation: foreign}); err == nil {
		t.Fatal("a delegation to somebody else was signed")
	}
	if _, err := b.Order(t.Context(), b.priced("order-2", 10_000, 1)); err == nil {
		t.Fatal("an order above the cap was signed")
	}
	kept := random(0)
	clean(t, b, nil)

	memory := dump(t)
	if !bytes.Contains(memory, kept) || !bytes.Contains(memory, op.Signature) || !bytes.Contains(memory, d.Signature) {
		t.Fatal("the dump is not one of all memory")
	}
	chain := big.NewInt(contracts.BaseSepolia)
	refusals := map[string]common.Hash{"the foreign delegation": foreign.SigningHash(chain), "the order above the cap": overCap(b).SigningHash(chain)}
	signed := map[string]common.Hash{"the order": op.SigningHash(chain), "the delegation": d.SigningHash(chain), "the transaction": types.LatestSignerForChainID(chain).Hash(tx)}
	for _, account := range []common.Address{b.subscriber, b.service, b.relayer} {
		key := mask(b.keys.masked[account])
		turned := slices.Clone(key) // the words of a number, lowest first
		slices.Reverse(turned)
		if bytes.Contains(memory, key) || bytes.Contains(memory, turned) {
			t.Errorf("the key of %s is in memory", account)
		}
		k := secp256k1.PrivKeyFromBytes(key)
		for name, hash := range refusals {
			if bytes.Contains(memory, ecdsa.SignCompact(k, hash[:], false)[1:33]) {
				t.Errorf("a signature of %s is in memory", name)
			}
		}
		for name, hash := range signed {
			if nonce := secp256k1.NonceRFC6979(key, hash[:], nil, nil, 0).Bytes(); bytes.Contains(memory, nonce[:]) {
				t.Errorf("the nonce of %s by %s is in memory", name, account)
			}
		}
	}
	runtime.KeepAlive([]any{kept, op, d, tx, b})
}

func overCap(b *bench) *userop.Operation {
	o := b.priced("order-2", 10_000, 1)
	callData, err := userop.DirectCall(o.Token, o.Transfers)
	if err != nil {
		panic(err)
	}
	return userop.New(o.Sender, userop.OrderKey(o.OrderID), callData, o.CallGas)
}
