package signer

import (
	"bytes"
	"math/big"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/must"
)

// same wants the signature of two other implementations, bit for bit.
func same(t rapid.TB, key []byte, hash common.Hash) {
	k := secp256k1.PrivKeyFromBytes(key)
	got := must.Get(sign(k, hash))(t)
	// RFC 6979 reduces the hash. One of the two does not.
	hash = common.BigToHash(new(big.Int).Mod(hash.Big(), secp256k1.Params().N))
	compact := ecdsa.SignCompact(k, hash[:], false)
	if want := append(compact[1:], compact[0]); !bytes.Equal(got, want) {
		t.Fatalf("key %x, hash %s: %x, want %x", key, hash, got, want)
	}
	theirs := must.Get(crypto.ToECDSA(key))(t)
	want := must.Get(crypto.Sign(hash[:], theirs))(t)
	if want[64] += 27; !bytes.Equal(got, want) {
		t.Fatalf("key %x, hash %s: %x, want %x", key, hash, got, want)
	}
}

func TestSign(t *testing.T) {
	order := secp256k1.Params().N
	edge := func(n *big.Int, plus int64) []byte {
		return new(big.Int).Add(n, big.NewInt(plus)).FillBytes(make([]byte, 32))
	}
	for _, key := range [][]byte{edge(new(big.Int), 1), edge(new(big.Int), 2), edge(order, -1), edge(new(big.Int).Rsh(order, 1), 0)} {
		for _, hash := range []common.Hash{{}, {31: 1}, common.Hash(edge(order, -1)), common.Hash(edge(order, 0)), common.Hash(edge(order, 1)), common.MaxHash} {
			same(t, key, hash)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 32, 32).Filter(func(b []byte) bool {
			n := new(big.Int).SetBytes(b)
			return n.Sign() > 0 && n.Cmp(order) < 0
		}).Draw(t, "key")
		same(t, key, common.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash")))
	})
	// rapid likes small numbers; these are of every size.
	for i := range 500 {
		same(t, crypto.Keccak256([]byte{byte(i), byte(i >> 8)}), crypto.Keccak256Hash([]byte{1, byte(i), byte(i >> 8)}))
	}
}
