package evm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Decimals of the tokens that a [Wallet] pays with.
const Decimals = 6

const (
	// validBack is how far in the past an authorization begins, for chains with a slow clock.
	validBack = 10 * time.Minute
	// validLeast and validMost bound the life of an authorization, in seconds.
	validLeast, validMost = 60, 3600
)

// Wallet pays entries of scheme exact (x402, EIP-3009) with USDC and EURC on Base and its test network: it signs an
// authorization for the amount, and the server submits it. The wallet needs no gas and no chain connection. A server can
// use an authorization until it expires, so its later responses prove nothing about the money: a payment counts in full
// once it is signed, and only the chain can show that its authorization expired unused.
type Wallet struct {
	key    *Key
	tokens map[string]map[toll.Address]string // symbols, by network and token
	now    func() time.Time
}

// NewWallet returns the wallet of a key, whose address holds the tokens. It signs only transfer authorizations.
func NewWallet(key *Key) *Wallet {
	return &Wallet{key: key, now: time.Now, tokens: map[string]map[toll.Address]string{
		toll.Sandbox.Network(): {toll.USDCSandbox: toll.CurrencyUSDC, toll.EURCSandbox: toll.CurrencyEURC},
		toll.Live.Network():    {toll.USDCLive: toll.CurrencyUSDC, toll.EURCLive: toll.CurrencyEURC},
	}}
}

// Address returns the address that pays.
func (w *Wallet) Address() toll.Address { return w.key.Address() }

// exactExtra is the EIP-712 domain of the token in extra of an entry. Other members of [x402.ExactExtra] are untrusted.
type exactExtra struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Method  string `json:"assetTransferMethod"`
}

// terms is a parsed entry.
type terms struct {
	symbol string
	amount toll.Units
	to     toll.Address
	domain Domain
}

func (w *Wallet) read(e *x402.Entry) (*terms, error) {
	if e.Scheme != x402.SchemeExact {
		return nil, fmt.Errorf("the scheme %.40q cannot be paid by a wallet", e.Scheme)
	}
	tokens := w.tokens[e.Network]
	if tokens == nil {
		return nil, fmt.Errorf("the wallet supports the networks %s and %s, but not %.40q",
			toll.Live.Network(), toll.Sandbox.Network(), e.Network)
	}
	asset, err := toll.ParseAddress(e.Asset)
	if err != nil || tokens[asset] == "" {
		return nil, fmt.Errorf("the token %.64q on %s is neither USDC nor EURC", e.Asset, e.Network)
	}
	amount, err := toll.ParseUnits(e.Amount)
	if err != nil || amount.IsZero() {
		return nil, fmt.Errorf("the amount %.40q is not a positive number of base units", e.Amount)
	}
	to, err := toll.ParseAddress(e.PayTo)
	if err != nil || to.IsZero() {
		return nil, fmt.Errorf("the receiver %.64q is not a valid address", e.PayTo)
	}
	var extra exactExtra
	if len(e.Extra) > 0 && x402.Decode(e.Extra, &extra) != nil {
		return nil, errors.New("the member extra of the payment option is malformed")
	}
	if extra.Method != "" && extra.Method != x402.MethodEIP3009 {
		return nil, fmt.Errorf("the transfer method %.40q is not supported, only EIP-3009", extra.Method)
	}
	if extra.Name == "" || extra.Version == "" {
		return nil, errors.New("the payment option has no EIP-712 domain for its token")
	}
	chain, _ := new(big.Int).SetString(strings.TrimPrefix(e.Network, "eip155:"), 10)
	return &terms{tokens[asset], amount, to, Domain{Name: extra.Name, Version: extra.Version, ChainID: chain, Contract: asset}}, nil
}

// Quote implements client.Payer.
func (w *Wallet) Quote(_ context.Context, _ *url.URL, e *x402.Entry) (x402.Quote, error) {
	t, err := w.read(e)
	if err != nil {
		return x402.Quote{}, err
	}
	return x402.Quote{Unit: t.symbol, Amount: t.amount}, nil
}

// Pay implements client.Payer by signing the authorization.
func (w *Wallet) Pay(_ context.Context, e *x402.Entry, q x402.Quote) (*x402.Payment, error) {
	t, err := w.read(e)
	if err != nil {
		return nil, err
	}
	now := w.now()
	life := time.Duration(min(max(e.MaxTimeoutSeconds, validLeast), validMost)) * time.Second
	a := Authorization{
		From: w.key.Address(), To: t.to, Value: t.amount.Int(),
		ValidAfter: uint64(now.Add(-validBack).Unix()), ValidBefore: uint64(now.Add(life).Unix()),
	}
	_, _ = rand.Read(a.Nonce[:]) // never fails since Go 1.24
	signature, err := a.Sign(w.key, t.domain)
	if err != nil {
		return nil, err
	}
	payload := &x402.ExactPayload{Signature: "0x" + hex.EncodeToString(signature), Authorization: x402.ExactAuthorization{
		From: a.From, To: a.To, Value: t.amount, ValidAfter: toll.UnitsOf(int64(a.ValidAfter)),
		ValidBefore: toll.UnitsOf(int64(a.ValidBefore)), Nonce: a.Nonce,
	}}
	return &x402.Payment{
		Payload:       payload,
		Authorization: &payload.Authorization,
		Spent:         func(_ context.Context, r *x402.Settlement) (toll.Units, bool) { return q.Amount, r.Success },
	}, nil
}
