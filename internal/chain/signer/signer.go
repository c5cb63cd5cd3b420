// Package signer is the only part of the crypto rail that sees private keys. It takes requests that say what is meant, builds
// the bytes from their fields itself and signs those: there is no way to have a hash signed. What it refuses is a
// [*Refusal], and an alarm in the log. Decision 18 says why.
//
// Signatures are deterministic (RFC 6979) with s in the lower half. Key bytes are zeroed before a method returns.
package signer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/alarm"
)

// ErrNoKey is what [Keys] return for an account whose key they do not hold.
var ErrNoKey = errors.New("signer: no key for this account")

// Keys open sealed private keys.
type Keys interface {
	// Open returns the 32 bytes of the key of an account, in memory of the caller's own: the signer zeroes it. [ErrNoKey] when
	// there is none. An error holds no key material.
	Open(ctx context.Context, account common.Address) ([]byte, error)
}

// Config is what a signer is bound to.
type Config struct {
	ChainID     *big.Int // of the environment; it is part of every signature
	Keys        Keys
	Service     common.Address   // the account that is the delegate of every delegation
	Relayers    []common.Address // accounts that send transactions; they sign nothing else
	Mirror      common.Address   // operator of the mirror of burns, which signs its transactions alone; zero: none
	HourlyCents int64            // of all orders of any 3600 seconds, in this process; 0: no cap
	Clock       func() time.Time
	Log         *slog.Logger
}

// Signer signs for the accounts of one environment. It is safe for concurrent use.
type Signer struct {
	chainID  *big.Int
	keys     Keys
	service  common.Address
	relayers []common.Address
	mirror   common.Address
	log      *slog.Logger
	limits   *limits
}

// New returns a signer, or an error when the configuration lacks something.
func New(c Config) (*Signer, error) {
	zero := common.Address{}
	switch {
	case c.ChainID == nil || c.ChainID.Sign() <= 0 || !c.ChainID.IsUint64():
		return nil, errors.New("signer: a chain id is required")
	case c.Keys == nil || c.Clock == nil || c.Log == nil:
		return nil, errors.New("signer: keys, a clock, and a log are required")
	case c.Service == zero || slices.Contains(c.Relayers, zero) || slices.Contains(c.Relayers, c.Service):
		return nil, errors.New("signer: the service account and the relayers must be different accounts")
	case c.Mirror != zero && (c.Mirror == c.Service || slices.Contains(c.Relayers, c.Mirror)):
		return nil, errors.New("signer: the mirror must have its own account")
	case c.HourlyCents < 0:
		return nil, errors.New("signer: the hourly cap must not be negative")
	}
	return &Signer{
		new(big.Int).Set(c.ChainID), c.Keys, c.Service, slices.Clone(c.Relayers), c.Mirror, c.Log,
		&limits{hourly: c.HourlyCents, clock: c.Clock, orders: map[[24]byte]common.Hash{}},
	}, nil
}

// sends reports whether an account sends transactions: then it signs nothing for users and has no code.
func (s *Signer) sends(account common.Address) bool {
	return account == s.mirror || slices.Contains(s.relayers, account)
}

// key opens the key of an account. The caller zeroes it.
func (s *Signer) key(ctx context.Context, account common.Address) (*secp256k1.PrivateKey, error) {
	b, err := s.keys.Open(ctx, account)
	defer clear(b)
	if err != nil {
		return nil, fmt.Errorf("signer: key of %s: %w", account, err)
	}
	k := new(secp256k1.PrivateKey)
	if len(b) != 32 || k.Key.SetByteSlice(b) || k.Key.IsZero() ||
		common.BytesToAddress(crypto.Keccak256(k.PubKey().SerializeUncompressed()[1:])) != account {
		k.Zero()
		alarm.Log(ctx, s.log, alarm.KeyMismatch, "a stored key does not match its account", "account", account)
		return nil, fmt.Errorf("signer: the stored key of %s does not match the account", account)
	}
	return k, nil
}

func (s *Signer) signature(ctx context.Context, account common.Address, hash common.Hash) ([]byte, error) {
	k, err := s.key(ctx, account)
	if err != nil {
		return nil, err
	}
	defer k.Zero()
	return sign(k, hash)
}
