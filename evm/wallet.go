package evm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Decimals of the tokens that a [Wallet] pays with.
const Decimals = 6

const (
	schemeExact = "exact"
	// validBack is how far in the past an authorization begins, for chains whose clock is behind.
	validBack = 10 * time.Minute
	// validMost bounds how long an authorization can be used, whatever the server asks for.
	validMost = time.Hour
)

// Wallet pays entries of scheme exact (x402, EIP-3009) with USDC and EURC of Base and its test network: it signs an
// authorization for the amount, and the server has it carried out. It needs no gas and asks no chain. A server that has an
// authorization may use it until it ends, so what it says later proves nothing about the money: a payment counts in full
// from the moment it was signed.
type Wallet struct {
	key    *Key
	tokens map[string]map[toll.Address]string // symbols, by network and token
	now    func() time.Time
}

// NewWallet returns a wallet of a key. Its addresses hold the tokens; the key signs for nothing else.
func NewWallet(key *Key) *Wallet {
	return &Wallet{key: key, now: time.Now, tokens: map[string]map[toll.Address]string{
		toll.Sandbox.Network(): {toll.USDCSandbox: toll.CurrencyUSDC, toll.EURCSandbox: toll.CurrencyEURC},
		toll.Live.Network():    {toll.USDCLive: toll.CurrencyUSDC, toll.EURCLive: toll.CurrencyEURC},
	}}
}

// Address returns the address that pays.
func (w *Wallet) Address() toll.Address { return w.key.Address() }

// exactExtra is extra of an entry: the EIP-712 domain of the token.
type exactExtra struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Method  string `json:"assetTransferMethod"`
}

// terms is an entry, read.
type terms struct {
	symbol string
	amount *big.Int
	to     toll.Address
	domain Domain
}

func (w *Wallet) read(e *x402.Entry) (*terms, error) {
	if e.Scheme != schemeExact {
		return nil, fmt.Errorf("the scheme %.40q is not paid by a wallet", e.Scheme)
	}
	tokens := w.tokens[e.Network]
	if tokens == nil {
		return nil, fmt.Errorf("the wallet pays on %s and %s, and not on %.40q", toll.Live.Network(), toll.Sandbox.Network(), e.Network)
	}
	asset, err := toll.ParseAddress(e.Asset)
	if err != nil || tokens[asset] == "" {
		return nil, fmt.Errorf("the token %.64q on %s is neither USDC nor EURC", e.Asset, e.Network)
	}
	amount, err := toll.ParseUnits(e.Amount)
	if err != nil || amount.IsZero() {
		return nil, fmt.Errorf("the amount %.40q is no number of base units", e.Amount)
	}
	to, err := toll.ParseAddress(e.PayTo)
	if err != nil || to.IsZero() {
		return nil, fmt.Errorf("the receiver %.64q is no address", e.PayTo)
	}
	var extra exactExtra
	if len(e.Extra) > 0 && x402.Decode(e.Extra, &extra) != nil {
		return nil, fmt.Errorf("extra of the entry cannot be read")
	}
	if extra.Method != "" && extra.Method != "eip3009" {
		return nil, fmt.Errorf("it asks for a transfer by %.40q, and the wallet signs EIP-3009", extra.Method)
	}
	if extra.Name == "" || extra.Version == "" {
		return nil, fmt.Errorf("the entry does not name the EIP-712 domain of its token")
	}
	chain, _ := new(big.Int).SetString(strings.TrimPrefix(e.Network, "eip155:"), 10)
	return &terms{tokens[asset], amount.Int(), to, Domain{Name: extra.Name, Version: extra.Version, ChainID: chain, Contract: asset}}, nil
}

// Quote is part of client.Payer.
func (w *Wallet) Quote(_ context.Context, e *x402.Entry) (x402.Quote, error) {
	t, err := w.read(e)
	if err != nil {
		return x402.Quote{}, err
	}
	amount, err := toll.ParseUnits(t.amount.String())
	return x402.Quote{Unit: t.symbol, Amount: amount}, err
}

// exactPayload is the payload of scheme exact.
type exactPayload struct {
	Signature     string             `json:"signature"`
	Authorization exactAuthorization `json:"authorization"`
}

type exactAuthorization struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

// Pay is part of client.Payer: it signs the authorization.
func (w *Wallet) Pay(_ context.Context, e *x402.Entry, q x402.Quote) (*x402.Payment, error) {
	t, err := w.read(e)
	if err != nil {
		return nil, err
	}
	now := w.now()
	life := min(max(time.Duration(e.MaxTimeoutSeconds)*time.Second, time.Minute), validMost)
	a := Authorization{
		From: w.key.Address(), To: t.to, Value: t.amount,
		ValidAfter: uint64(now.Add(-validBack).Unix()), ValidBefore: uint64(now.Add(life).Unix()),
	}
	_, _ = rand.Read(a.Nonce[:]) // never fails since Go 1.24
	signature, err := a.Sign(w.key, t.domain)
	if err != nil {
		return nil, err
	}
	payload := exactPayload{Signature: "0x" + hex.EncodeToString(signature), Authorization: exactAuthorization{
		From: a.From.String(), To: a.To.String(), Value: a.Value.String(), ValidAfter: strconv.FormatUint(a.ValidAfter, 10),
		ValidBefore: strconv.FormatUint(a.ValidBefore, 10), Nonce: "0x" + hex.EncodeToString(a.Nonce[:]),
	}}
	return &x402.Payment{Payload: payload, Spent: func(_ context.Context, r *x402.Settlement) (toll.Units, bool) {
		return q.Amount, r.Success
	}}, nil
}
