package chain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/rail"
)

// centUnits are the base units of a cent of USDC and EURC.
const centUnits = 10_000

// delegatorOf is the account whose money a delegation is about.
func delegatorOf(d *rail.Delegation) common.Address {
	return common.Address(cmp.Or(d.OwnerAccount, d.Owner))
}

// delegations lets holders of accounts limit what the service spends.
type delegations struct {
	cfg     *Config
	chain   *reader
	records *records
	chainID *big.Int

	mu    sync.Mutex
	known map[common.Hash]struct{} // to be stored; a cache
}

// onChain is the delegation that the delegator signs. Everything in it follows from the record, so that it can be made again
// at any time, with the same hash.
func (r *delegations) onChain(d *rail.Delegation) (*userop.Delegation, error) {
	t := userop.Terms{
		ID: d.ID, Delegate: r.cfg.Service, Delegator: delegatorOf(d), Token: r.cfg.token(d.Currency),
		Limit:  new(big.Int).Mul(big.NewInt(d.LimitCents), big.NewInt(centUnits)),
		Before: uint64(max(d.ExpiresAt.Unix(), 0)),
	}
	switch {
	case d.ID == "" || t.Delegator == common.Address{} || t.Before == 0:
		return nil, errors.New("chain: a delegation must have an id, an account, and an expiry")
	case t.Token == common.Address{} || d.LimitCents <= 0:
		return nil, fmt.Errorf("chain: delegation %s must limit exactly one token", d.ID)
	}
	if len(d.AllowedRecipients) == 1 {
		t.Receiver = new(common.Address(d.AllowedRecipients[0]))
	}
	return userop.NewDelegation(t), nil
}

// signed is the delegation with its signature: the one that was given, or one by the key that the service holds.
func (r *delegations) signed(ctx context.Context, d *rail.Delegation, made *userop.Delegation) (*userop.SignedDelegation, error) {
	switch {
	case len(d.Signature) > 0:
		return &userop.SignedDelegation{Delegation: *made, Signature: d.Signature}, nil
	case !d.OwnerAccount.IsZero():
		return nil, signer.ErrNoKey
	}
	return r.cfg.Signer.Delegation(ctx, signer.Delegation{Delegation: made})
}

// SignatureRequest returns what the holder of the account signs for a delegation. It reads the chain and sends nothing.
// Errors: [toll.CodeChainForeignCode], and those with status 503.
func (r *delegations) SignatureRequest(ctx context.Context, d *rail.Delegation) (*rail.SignatureRequest, error) {
	if err := r.cfg.Start(ctx); err != nil {
		return nil, err
	}
	made, err := r.onChain(d)
	if err != nil {
		return nil, err
	}
	all, err := r.chain.accounts(ctx, made.Delegator)
	if err != nil {
		return nil, err
	}
	is := all[made.Delegator]
	if is.code == codeForeign {
		return nil, unsupportedCode(made.Delegator)
	}
	return &rail.SignatureRequest{
		TypedData: made.TypedData(r.chainID), Account: toll.Address(made.Delegator), CodeRequired: is.code == codeNone,
	}, nil
}

func unsupportedCode(account common.Address) *toll.Error {
	return toll.NewError(toll.CodeChainForeignCode).WithDetails("address %s", toll.Address(account)).
		WithParam("address", toll.Address(account).String())
}

// CheckSignature verifies the signature of a delegation, and its authorization where the account has no code, as the chain would: it tries
// a payment of nothing with it. Errors: [toll.CodeChainSignature] when one of them does not verify, [toll.CodeChainForeignCode] when the
// account does not have our code and the authorization does not give it, and those with status 503.
func (r *delegations) CheckSignature(ctx context.Context, d *rail.Delegation) error {
	if err := r.cfg.Start(ctx); err != nil {
		return err
	}
	made, err := r.onChain(d)
	if err != nil {
		return err
	}
	signed := &userop.SignedDelegation{Delegation: *made, Signature: d.Signature}
	if err := signed.Check(r.chainID); err != nil {
		return toll.NewError(toll.CodeChainSignature).WithDetails("delegationId %s", d.ID).WithCause(err)
	}
	all, err := r.chain.accounts(ctx, made.Delegator, r.cfg.Service)
	if err != nil {
		return err
	}
	switch all[made.Delegator].code {
	case codeForeign:
		return unsupportedCode(made.Delegator)
	case codeNone:
		if len(d.Authorization) == 0 {
			return unsupportedCode(made.Delegator).WithHint("The account has no code yet: also submit a signed EIP-7702 authorization.")
		}
		if _, err := r.authorization(d, all[made.Delegator].nonce); err != nil {
			return err
		}
	}
	return r.redeems(ctx, signed, d, all)
}

// redeems tries to pay the smallest amount with a delegation. The manager checks the signature first, so that an account
// without money shows it as well.
func (r *delegations) redeems(ctx context.Context, by *userop.SignedDelegation, d *rail.Delegation, all map[common.Address]account) error {
	op := &Op{
		ID: d.ID, Sender: r.cfg.Service, Payer: by.Delegator, Token: r.cfg.token(d.Currency), DelegationID: d.ID,
		Payments: []Payment{{To: r.cfg.Service, Amount: big.NewInt(1)}},
	}
	if len(d.AllowedRecipients) > 0 {
		op.Payments[0].To = common.Address(d.AllowedRecipients[0])
	}
	callData, err := userop.DelegatedCall(op.Token, transfersOf(op.Payments), by)
	if err != nil {
		return err
	}
	m := message{From: contracts.EntryPoint, To: r.cfg.Service, Gas: maxCallGas, Data: callData}
	err = r.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		var answer hexutil.Bytes
		return try(ctx, c, "eth_call", &answer, m, overrides(all))
	})
	v, reverts := errors.AsType[*reverted](err)
	switch {
	case errors.Is(err, errNoOverrides):
		return nil // the signature is good, and nothing more can be known before the code is there
	case !reverts:
		return err
	case v.reason == paused:
		return unusable(toll.CodeChainPaused, err)
	}
	code := codeOfReason(v.reason, true)
	if code == toll.CodeChainBalance || code == toll.CodeChainFailed {
		err := checkBalance(ctx, r.chain, op)
		if _, low := errors.AsType[*Failure](err); low {
			return nil
		}
		if err != nil {
			return err
		}
		code = toll.CodeChainSignature
	}
	return toll.NewError(code).WithDetails("delegationId %s: %s", d.ID, v.reason).WithCause(err)
}

// authorization reads the one that was handed in with a delegation and checks that it gives the account our code on this
// chain when its nonce is this.
func (r *delegations) authorization(d *rail.Delegation, nonce uint64) (*types.SetCodeAuthorization, error) {
	if len(d.Authorization) == 0 {
		e := unsupportedCode(delegatorOf(d))
		e.Message = "The account has no contract code, and the delegation includes no EIP-7702 authorization."
		return nil, e
	}
	a, err := ParseAuthorization(d.Authorization)
	if err != nil {
		return nil, err
	}
	by, err := a.Authority()
	if err != nil || by != delegatorOf(d) {
		return nil, toll.NewError(toll.CodeChainSignature).WithDetails("the authorization is not signed by %s", toll.Address(delegatorOf(d))).WithCause(err)
	}
	wrong := ""
	switch {
	case a.ChainID.CmpBig(r.chainID) != 0:
		wrong = fmt.Sprintf("the authorization is for chain %s, not %s", a.ChainID.Dec(), r.chainID)
	case a.Address != contracts.AccountCode:
		wrong = fmt.Sprintf("the authorization is for the contract %s, not %s", a.Address, contracts.AccountCode)
	case a.Nonce != nonce:
		wrong = fmt.Sprintf("the authorization is for nonce %d, but the nonce of the account is %d", a.Nonce, nonce)
	default:
		return a, nil
	}
	e := unsupportedCode(delegatorOf(d))
	e.Details = wrong
	return nil, e
}

// ParseAuthorization reads a signed EIP-7702 authorization as wallets give it: {"chainId", "address", "nonce", "yParity" or
// "v", "r", "s"}, numbers as JSON numbers, decimal strings or hexadecimal strings. Error: [toll.CodeChainSignature].
func ParseAuthorization(text json.RawMessage) (*types.SetCodeAuthorization, error) {
	bad := toll.NewError(toll.CodeChainSignature).WithDetails("the authorization must have a valid chainId, address, nonce, yParity, r, and s")
	var in struct {
		ChainID, Nonce, YParity, V, R, S any
		Address                          *common.Address
		Contract                         *common.Address `json:"contractAddress"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		return nil, bad.WithCause(err)
	}
	in.Address = cmp.Or(in.Address, in.Contract)
	parity, ok := number(in.YParity)
	if !ok && in.YParity == nil {
		if parity, ok = number(in.V); ok && parity.IsUint64() && parity.Uint64() >= 27 {
			parity.Sub(parity, big.NewInt(27))
		}
	}
	chainID, a := number(in.ChainID)
	nonce, b := number(in.Nonce)
	r, c := number(in.R)
	s, d := number(in.S)
	if !ok || !a || !b || !c || !d || in.Address == nil || !nonce.IsUint64() || !parity.IsUint64() || parity.Uint64() > 1 {
		return nil, bad
	}
	out := &types.SetCodeAuthorization{Address: *in.Address, Nonce: nonce.Uint64(), V: uint8(parity.Uint64())}
	out.ChainID.SetFromBig(chainID)
	out.R.SetFromBig(r)
	out.S.SetFromBig(s)
	return out, nil
}

// number reads a number below 2^256.
func number(v any) (*big.Int, bool) {
	text := ""
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	base := 10
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		text, base = hex, 16
	}
	if text == "" || len(text) > 78 || strings.ContainsAny(text, "+-_ ") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(text, base)
	return n, ok && n.BitLen() <= 256
}
