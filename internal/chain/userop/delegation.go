package userop

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
)

// Root is the authority of a delegation that does not rest on another one.
var Root = common.MaxHash

// Caveat is a condition of a delegation: a contract that checks it, and what it is told.
type Caveat struct {
	Enforcer common.Address
	Terms    []byte
}

// Delegation lets a delegate act for a delegator within its caveats (ERC-7710, Delegation Framework v1.3).
type Delegation struct {
	Delegate, Delegator common.Address
	Authority           common.Hash
	Caveats             []Caveat
	Salt                *big.Int
}

// Terms are the limit that a delegation of ours puts on money.
type Terms struct {
	ID                  string         // of the delegation; one id has one salt
	Delegate, Delegator common.Address // who may pay, and whose money it is
	Token               common.Address // an ERC-20 token
	Limit               *big.Int       // base units in total, up to 2^256-1
	After, Before       uint64         // Unix seconds, both exclusive; 0: open
	Receiver            *common.Address
}

// NewDelegation makes the delegation of a limit on an ERC-20 token. With a Receiver the chain lets it pay nobody else.
func NewDelegation(t Terms) *Delegation {
	amount := append(t.Token.Bytes(), uint256(t.Limit).data...)
	times := GasLimits(t.After, t.Before) // the same packing: two numbers of 16 bytes
	caveats := []Caveat{{contracts.ERC20TransferAmountEnforcer, amount}, {contracts.TimestampEnforcer, times[:]}}
	if t.Receiver != nil {
		// The first argument of transfer(address,uint256) stands behind the selector.
		caveats = append(caveats, Caveat{contracts.AllowedCalldataEnforcer, append(length(4), address(*t.Receiver).data...)})
	}
	return &Delegation{Delegate: t.Delegate, Delegator: t.Delegator, Authority: Root, Caveats: caveats, Salt: Salt(t.ID)}
}

func Salt(delegationID string) *big.Int {
	return new(big.Int).SetBytes(crypto.Keccak256([]byte("delegation:" + delegationID)))
}

// ErrTerms says that a delegation is not one that [NewDelegation] makes.
var ErrTerms = errors.New("userop: the delegation was not issued by this service")

// Terms reads the limit of a delegation back, all but its id. It takes only what [NewDelegation] makes, byte for byte; else [ErrTerms].
func (d *Delegation) Terms() (Terms, error) {
	if len(d.Caveats) < 2 || len(d.Caveats[0].Terms) != 52 || len(d.Caveats[1].Terms) != 32 || d.Salt == nil || d.Salt.Sign() < 0 ||
		d.Salt.BitLen() > 256 {
		return Terms{}, ErrTerms
	}
	amount := d.Caveats[0].Terms
	t := Terms{
		Delegate: d.Delegate, Delegator: d.Delegator, Token: common.Address(amount[:20]), Limit: new(big.Int).SetBytes(amount[20:]),
	}
	if len(d.Caveats) > 2 && len(d.Caveats[2].Terms) == 64 {
		t.Receiver = new(common.BytesToAddress(d.Caveats[2].Terms[32:]))
	}
	times := Operation{AccountGasLimits: [32]byte(d.Caveats[1].Terms)}
	t.After, t.Before = times.Gas()
	same := NewDelegation(t)
	same.Salt = d.Salt
	if !same.equal(d) {
		return Terms{}, ErrTerms
	}
	return t, nil
}

func (d *Delegation) equal(e *Delegation) bool {
	return d.Delegate == e.Delegate && d.Delegator == e.Delegator && d.Authority == e.Authority && d.Salt.Cmp(e.Salt) == 0 &&
		slices.EqualFunc(d.Caveats, e.Caveats, func(a, b Caveat) bool { return a.Enforcer == b.Enforcer && bytes.Equal(a.Terms, b.Terms) })
}

const (
	caveatType     = "Caveat(address enforcer,bytes terms)"
	delegationType = "Delegation(address delegate,address delegator,bytes32 authority,Caveat[] caveats,uint256 salt)" + caveatType
	managerDomain  = "DelegationManager"
)

// Hash names the delegation on the chain: its EIP-712 struct hash, without any chain id.
func (d *Delegation) Hash() common.Hash {
	var caveats []byte
	for _, c := range d.Caveats {
		caveats = append(caveats, crypto.Keccak256(tuple(word(crypto.Keccak256([]byte(caveatType))), address(c.Enforcer), hashed(c.Terms)))...)
	}
	return crypto.Keccak256Hash(tuple(
		word(crypto.Keccak256([]byte(delegationType))),
		address(d.Delegate), address(d.Delegator), word(d.Authority[:]), hashed(caveats), uint256(d.Salt)))
}

// SigningHash is what the delegator signs: EIP-712 in the domain of the DelegationManager.
func (d *Delegation) SigningHash(chainID *big.Int) common.Hash {
	hash := d.Hash()
	return typedHash(managerDomain, chainID, contracts.DelegationManager, hash[:])
}

// TypedData is the delegation as wallets take it for eth_signTypedData_v4 (EIP-712, "Specification of the eth_signTypedData
// JSON RPC"). The salt is a decimal string, as it does not fit into a number of JavaScript.
func (d *Delegation) TypedData(chainID *big.Int) map[string]any {
	type member struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	caveats := make([]map[string]any, len(d.Caveats))
	for i, c := range d.Caveats {
		caveats[i] = map[string]any{"enforcer": c.Enforcer.Hex(), "terms": hexutil.Encode(c.Terms)}
	}
	return map[string]any{
		"types": map[string][]member{
			"EIP712Domain": {{"name", "string"}, {"version", "string"}, {"chainId", "uint256"}, {"verifyingContract", "address"}},
			"Caveat":       {{"enforcer", "address"}, {"terms", "bytes"}},
			"Delegation": {
				{"delegate", "address"}, {"delegator", "address"}, {"authority", "bytes32"}, {"caveats", "Caveat[]"}, {"salt", "uint256"},
			},
		},
		"primaryType": "Delegation",
		"domain": map[string]any{
			"name": managerDomain, "version": "1", "chainId": chainID.Uint64(), "verifyingContract": contracts.DelegationManager.Hex(),
		},
		"message": map[string]any{
			"delegate": d.Delegate.Hex(), "delegator": d.Delegator.Hex(), "authority": d.Authority.Hex(), "caveats": caveats,
			"salt": d.Salt.String(),
		},
	}
}

// structure is the delegation as the contracts take it. The arguments of caveats are always empty.
func (d *Delegation) structure(signature []byte) part {
	caveats := make([]part, len(d.Caveats))
	for i, c := range d.Caveats {
		caveats[i] = structure(address(c.Enforcer), octets(c.Terms), octets(nil))
	}
	return structure(address(d.Delegate), address(d.Delegator), word(d.Authority[:]), array(caveats...), uint256(d.Salt), octets(signature))
}

type SignedDelegation struct {
	Delegation
	Signature []byte
}

// Context is the permission context with which the DelegationManager redeems the delegation.
func (s *SignedDelegation) Context() []byte { return tuple(array(s.structure(s.Signature))) }

// Check reports an error unless the signature is the delegator's, on this chain.
func (s *SignedDelegation) Check(chainID *big.Int) error {
	by, err := evm.Recover(s.SigningHash(chainID), s.Signature)
	if err == nil && common.Address(by) != s.Delegator {
		err = fmt.Errorf("userop: the signature of the delegation is from %s instead of %s, or is for another chain", by, s.Delegator)
	}
	return err
}
