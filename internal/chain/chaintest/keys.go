package chaintest

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/must"
)

// Keys are private keys in memory. The zero value holds none.
type Keys struct {
	mu   sync.Mutex
	keys map[common.Address][]byte
}

func (k *Keys) New(t testing.TB) common.Address {
	t.Helper()
	key := must.Get(crypto.GenerateKey())(t)
	return k.Add(t, crypto.FromECDSA(key))
}

// Add takes a key of 32 bytes and returns its account.
func (k *Keys) Add(t testing.TB, key []byte) common.Address {
	t.Helper()
	private := must.Get(crypto.ToECDSA(key))(t)
	account := crypto.PubkeyToAddress(private.PublicKey)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[common.Address][]byte{}
	}
	k.keys[account] = bytes.Clone(key)
	return account
}

// Open returns a copy of the key of an account.
func (k *Keys) Open(_ context.Context, account common.Address) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok := k.keys[account]; ok {
		return bytes.Clone(key), nil
	}
	return nil, signer.ErrNoKey
}

// Sign signs a hash as the signer never would: whatever it is. It returns r, s, v with v 27 or 28.
func (k *Keys) Sign(t testing.TB, account common.Address, hash common.Hash) []byte {
	t.Helper()
	key := must.Get(k.Open(t.Context(), account))(t)
	private := must.Get(crypto.ToECDSA(key))(t)
	signature := must.Get(crypto.Sign(hash[:], private))(t)
	signature[64] += 27
	return signature
}
