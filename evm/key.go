package evm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"github.com/tollhq/toll"
)

// Key is the private key of a wallet. It prints as its address, with any verb.
type Key struct {
	private *secp256k1.PrivateKey
	address toll.Address
}

// errKey contains nothing of the input.
var errKey = errors.New("evm: a private key must be 64 hexadecimal digits, above 0 and below the order of secp256k1")

// NewKey returns a key of 32 random bytes.
func NewKey() (*Key, error) {
	private, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		return nil, fmt.Errorf("evm: create a key: %w", err)
	}
	return newKey(private), nil
}

// ParseKey parses 64 hexadecimal digits, with or without 0x. Errors do not contain the input.
func ParseKey(s string) (*Key, error) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	defer clear(b)
	if err != nil || len(b) != 32 {
		return nil, errKey
	}
	private := new(secp256k1.PrivateKey)
	if overflow := private.Key.SetByteSlice(b); overflow || private.Key.IsZero() {
		return nil, errKey
	}
	return newKey(private), nil
}

func newKey(private *secp256k1.PrivateKey) *Key { return &Key{private, addressOf(private.PubKey())} }

func addressOf(public *secp256k1.PublicKey) toll.Address {
	hash := toll.Keccak256(public.SerializeUncompressed()[1:])
	return toll.Address(hash[12:])
}

// Address is the account of the key.
func (k *Key) Address() toll.Address { return k.address }

// String is the address of the key.
func (k *Key) String() string { return k.address.String() }

// Format writes the address, so that no verb shows the key.
func (k *Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

// Sign signs a digest deterministically (RFC 6979). A digest without a 65-byte signature, one in 2^127, is an error.
func (k *Key) Sign(digest [32]byte) ([]byte, error) {
	compact := ecdsa.SignCompact(k.private, digest[:], false)
	if v := compact[0]; v != 27 && v != 28 {
		return nil, errors.New("evm: the signature of this digest has a v other than 27 or 28")
	}
	return append(compact[1:], compact[0]), nil
}
