// Package userop builds what the accounts of the crypto rail sign: ERC-4337 operations for the EntryPoint v0.7 and their
// calldata, delegations of the Delegation Framework v1.3 (ERC-7710), and authorizations of EIP-7702. It holds no key and no
// state: everything here is a function of its arguments. Decision 18 says why operations have no fees and one nonce key per order.
//
// Numbers that go into words of the contract ABI are in [0, 2^256); a function that returns no error panics for others.
package userop

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
)

// VerificationGas is the verification gas of every operation: the account needs less than half of it.
const VerificationGas = 100_000

// Operation is a PackedUserOperation of EntryPoint v0.7 (ERC-4337, "EntryPoint Interface"). Fees, InitCode and
// PaymasterAndData are zero in all that this rail signs.
type Operation struct {
	Sender             common.Address
	Nonce              *big.Int // key (192 bits) and sequence (64 bits)
	InitCode           []byte
	CallData           []byte
	AccountGasLimits   [32]byte // see [GasLimits]
	PreVerificationGas *big.Int
	GasFees            [32]byte
	PaymasterAndData   []byte
	Signature          []byte // r, s, v
}

// New returns the unsigned operation of a nonce key: sequence 0, verification gas [VerificationGas], no fees.
func New(sender common.Address, key [24]byte, callData []byte, callGas uint64) *Operation {
	return &Operation{
		Sender: sender, Nonce: Nonce(key), CallData: callData,
		AccountGasLimits: GasLimits(VerificationGas, callGas), PreVerificationGas: new(big.Int),
	}
}

// Hash is the userOpHash, with which the EntryPoint names the operation in its events. The signature is not part of it. It
// is not what the account signs: see [Operation.SigningHash].
func (o *Operation) Hash(chainID *big.Int) common.Hash {
	inner := crypto.Keccak256(tuple(
		address(o.Sender), uint256(o.Nonce), hashed(o.InitCode), hashed(o.CallData), word(o.AccountGasLimits[:]),
		uint256(o.PreVerificationGas), word(o.GasFees[:]), hashed(o.PaymasterAndData)))
	return crypto.Keccak256Hash(tuple(word(inner), address(contracts.EntryPoint), uint256(chainID)))
}

const operationType = "PackedUserOperation(address sender,uint256 nonce,bytes initCode,bytes callData,bytes32 accountGasLimits," +
	"uint256 preVerificationGas,bytes32 gasFees,bytes paymasterAndData,address entryPoint)"

// SigningHash is what the key of the sender signs: EIP-712 in the domain of the account itself
// (EIP7702StatelessDeleGator.getPackedUserOperationTypedDataHash).
func (o *Operation) SigningHash(chainID *big.Int) common.Hash {
	inner := crypto.Keccak256(tuple(
		word(crypto.Keccak256([]byte(operationType))),
		address(o.Sender), uint256(o.Nonce), hashed(o.InitCode), hashed(o.CallData), word(o.AccountGasLimits[:]),
		uint256(o.PreVerificationGas), word(o.GasFees[:]), hashed(o.PaymasterAndData), address(contracts.EntryPoint)))
	return typedHash("EIP7702StatelessDeleGator", chainID, o.Sender, inner)
}

func hashed(b []byte) part { return word(crypto.Keccak256(b)) }

// typedHash is the digest of EIP-712 for a struct hash in a domain of version 1.
func typedHash(domain string, chainID *big.Int, contract common.Address, inner []byte) common.Hash {
	separator := evm.Domain{Name: domain, Version: "1", ChainID: chainID, Contract: toll.Address(contract)}.Separator()
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, separator[:], inner)
}

// GasLimits packs the gas of the verification and of the inner call.
func GasLimits(verification, call uint64) (packed [32]byte) {
	binary.BigEndian.PutUint64(packed[8:], verification)
	binary.BigEndian.PutUint64(packed[24:], call)
	return packed
}

// Gas is the reverse of [GasLimits]. A limit above 2^64-1, which none of ours is, counts as that.
func (o *Operation) Gas() (verification, call uint64) {
	half := func(b []byte) uint64 {
		if n := new(big.Int).SetBytes(b); !n.IsUint64() {
			return 1<<64 - 1
		}
		return binary.BigEndian.Uint64(b[8:])
	}
	return half(o.AccountGasLimits[:16]), half(o.AccountGasLimits[16:])
}

// OrderKey is the nonce key of the operation of an order: the EntryPoint runs one operation of a key and sequence, ever.
func OrderKey(orderID string) [24]byte { return key("order:", orderID) }

// VoidKey is the nonce key of the operation that makes the one of an order impossible.
func VoidKey(orderID string) [24]byte { return key("void:", orderID) }

// RevokeKey is the nonce key of the operation that disables a delegation after this many others have failed to.
func RevokeKey(delegationID string, failed int) [24]byte {
	if failed > 0 {
		delegationID += ":" + strconv.Itoa(failed)
	}
	return key("revoke:", delegationID)
}

func key(of, id string) [24]byte { return [24]byte(crypto.Keccak256([]byte(of + id))) }

func Nonce(key [24]byte) *big.Int { return new(big.Int).Lsh(new(big.Int).SetBytes(key[:]), 64) }

func KeyOf(nonce *big.Int) [24]byte { return [24]byte(uint256(nonce).data) }

// operationJSON is the form of an operation in the journal, with the names of ERC-4337. Bytes and words are hexadecimal
// with 0x and full length, numbers hexadecimal without leading zeros.
type operationJSON struct {
	Sender             *common.Address `json:"sender"`
	Nonce              *hexutil.Big    `json:"nonce"`
	InitCode           hexutil.Bytes   `json:"initCode"`
	CallData           hexutil.Bytes   `json:"callData"`
	AccountGasLimits   *common.Hash    `json:"accountGasLimits"`
	PreVerificationGas *hexutil.Big    `json:"preVerificationGas"`
	GasFees            *common.Hash    `json:"gasFees"`
	PaymasterAndData   hexutil.Bytes   `json:"paymasterAndData"`
	Signature          hexutil.Bytes   `json:"signature"`
}

// MarshalJSON writes {"sender", "nonce", "initCode", "callData", "accountGasLimits", "preVerificationGas", "gasFees",
// "paymasterAndData", "signature"}, all hexadecimal strings. The form is stored and does not change.
func (o Operation) MarshalJSON() ([]byte, error) {
	return json.Marshal(operationJSON{
		&o.Sender, (*hexutil.Big)(o.Nonce), o.InitCode, o.CallData, (*common.Hash)(&o.AccountGasLimits),
		(*hexutil.Big)(o.PreVerificationGas), (*common.Hash)(&o.GasFees), o.PaymasterAndData, o.Signature,
	})
}

var errOperation = errors.New("userop: the operation is missing required fields")

// UnmarshalJSON reads what [Operation.MarshalJSON] writes. Every member is required, and numbers are below 2^256.
func (o *Operation) UnmarshalJSON(b []byte) error {
	var j operationJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("userop: operation: %w", err)
	}
	if j.Sender == nil || j.Nonce == nil || j.InitCode == nil || j.CallData == nil || j.AccountGasLimits == nil ||
		j.PreVerificationGas == nil || j.GasFees == nil || j.PaymasterAndData == nil || j.Signature == nil {
		return errOperation
	}
	*o = Operation{
		*j.Sender, j.Nonce.ToInt(), j.InitCode, j.CallData, *j.AccountGasLimits, j.PreVerificationGas.ToInt(), *j.GasFees,
		j.PaymasterAndData, j.Signature,
	}
	return nil
}
