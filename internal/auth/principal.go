package auth

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// CreatePrincipal returns the address of the principal of this name, which is made on first use: a fresh secp256k1
// wallet key, sealed, whose address it is. An empty name makes a principal without one, a new one each time. A name is
// at most 100 printable characters. One that begins with 0x is the address of a principal that exists. Errors: [toll.CodeBadAddress] for
// another text that begins so, [store.ErrNotFound] for an unknown address.
func (a *Auth) CreatePrincipal(ctx context.Context, name string) (toll.Address, error) {
	if !validName(name) {
		return toll.Address{}, toll.Errorf(toll.CodeBadRequest, "A name must be at most 100 printable characters.")
	}
	if name != "" {
		if addr, err := a.Principal(ctx, name); isAddress(name) || !errors.Is(err, store.ErrNotFound) {
			return addr, err
		}
	}
	p, err := a.NewPrincipal(name)
	if err != nil {
		return toll.Address{}, err
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error { return store.InsertPrincipal(ctx, tx, p) })
	if store.IsUnique(err) {
		return a.PrincipalByName(ctx, name) // another process made it meanwhile
	}
	if err != nil {
		return toll.Address{}, err
	}
	return p.Address, nil
}

// NewPrincipal returns the record of a principal with a fresh wallet key, sealed, which the caller stores.
func (a *Auth) NewPrincipal(name string) (store.Principal, error) {
	key, addr, err := NewWalletKey()
	if err != nil {
		return store.Principal{}, err
	}
	defer clear(key)
	sealed, err := a.ring.Seal(key, a.aad("wallet", addr.Lower()))
	return store.Principal{Address: addr, Name: name, SealedKey: sealed, CreatedAt: a.clock()}, err
}

// NewWalletKey makes a secp256k1 key of 32 bytes, which the caller clears, and returns its address.
func NewWalletKey() ([]byte, toll.Address, error) {
	key, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		return nil, toll.Address{}, err
	}
	defer key.Zero()
	return key.Serialize(), walletAddress(key.PubKey()), nil
}

func isAddress(name string) bool { return len(name) > 1 && strings.EqualFold(name[:2], "0x") }

// Principal returns the address of a principal that is known by its name or its address, or [store.ErrNotFound]. Errors:
// [toll.CodeBadAddress].
func (a *Auth) Principal(ctx context.Context, name string) (toll.Address, error) {
	if !isAddress(name) {
		return a.PrincipalByName(ctx, name)
	}
	at, err := toll.ParseAddress(name)
	if err == nil {
		_, err = store.PrincipalByAddress(ctx, a.store, at)
	}
	return at, err
}

// PrincipalByName returns the address of a principal, or store.ErrNotFound.
func (a *Auth) PrincipalByName(ctx context.Context, name string) (toll.Address, error) {
	p, err := store.PrincipalByName(ctx, a.store, name)
	return p.Address, err
}

// MakeOperator makes a principal an operator, who may move the clock of a sandbox. It cannot be asked for over the network.
func (a *Auth) MakeOperator(ctx context.Context, owner toll.Address) error {
	return a.store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.MakeOperator(ctx, tx, owner); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.Act{Act: "operator.made", Object: owner.Lower(), At: a.clock()})
	})
}

func (a *Auth) IsOperator(ctx context.Context, owner toll.Address) (bool, error) {
	p, err := store.PrincipalByAddress(ctx, a.store, owner)
	return p.Operator, store.NotFoundAs(err, nil)
}

// walletAddress returns the last 20 bytes of the Keccak-256 hash of the uncompressed public key without its first byte.
func walletAddress(pub *secp256k1.PublicKey) toll.Address {
	h := toll.Keccak256(pub.SerializeUncompressed()[1:])
	return toll.Address(h[12:])
}

func validName(s string) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
