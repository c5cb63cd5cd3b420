package userop

import (
	"errors"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
)

// MaxTransfers is the largest number of receivers of one operation.
const MaxTransfers = 10

// ErrTransfers says that transfers are no payment: an amount is negative or above 2^256-1, none is above 0, or more than
// [MaxTransfers] are.
var ErrTransfers = errors.New("userop: a payment needs 1 to 10 transfers of a positive amount")

// Transfer is what one receiver gets, in base units.
type Transfer struct {
	To     common.Address
	Amount *big.Int
}

// execution is one call that an account makes.
type execution struct {
	target common.Address
	value  *big.Int
	data   []byte
}

// executions of transfers of a token, or of the native token for the zero address. Receivers of nothing are left out; equal
// receivers stay apart, as the price lists them.
func executions(token common.Address, transfers []Transfer) ([]execution, error) {
	var out []execution
	for _, t := range transfers {
		switch {
		case t.Amount == nil || t.Amount.Sign() < 0 || t.Amount.BitLen() > 256:
			return nil, ErrTransfers
		case t.Amount.Sign() == 0:
		case token == common.Address{}:
			out = append(out, execution{t.To, t.Amount, nil})
		default:
			out = append(out, execution{token, new(big.Int), call("transfer(address,uint256)", address(t.To), uint256(t.Amount))})
		}
	}
	if len(out) == 0 || len(out) > MaxTransfers {
		return nil, ErrTransfers
	}
	return out, nil
}

func (e execution) structure() part {
	return structure(address(e.target), uint256(e.value), octets(e.data))
}

// execute is the calldata with which an account makes one call.
func execute(e execution) []byte { return call("execute((address,uint256,bytes))", e.structure()) }

// DirectCall is the calldata with which an account pays: of a token, or of the native one for the zero address. All
// transfers happen, or none. Transfers of nothing are left out; [ErrTransfers].
func DirectCall(token common.Address, transfers []Transfer) ([]byte, error) {
	list, err := executions(token, transfers)
	if err != nil {
		return nil, err
	}
	if len(list) == 1 {
		return execute(list[0]), nil
	}
	parts := make([]part, len(list))
	for i, e := range list {
		parts[i] = e.structure()
	}
	batch := [32]byte{0x01} // ERC-7579: batch call, revert on failure
	return call("execute(bytes32,bytes)", word(batch[:]), octets(tuple(array(parts...)))), nil
}

// DelegatedCall is the calldata with which the delegate of a delegation pays out of the delegator's account. The enforcers
// of amounts take single calls only, so each transfer is a redemption of its own; all happen, or none. [ErrTransfers].
func DelegatedCall(token common.Address, transfers []Transfer, by *SignedDelegation) ([]byte, error) {
	list, err := executions(token, transfers)
	if err != nil {
		return nil, err
	}
	context := octets(by.Context())
	contexts, modes, calls := make([]part, len(list)), make([]part, len(list)), make([]part, len(list))
	for i, e := range list {
		single := slices.Concat(e.target.Bytes(), uint256(e.value).data, e.data) // the packed form of ERC-7579
		contexts[i], modes[i], calls[i] = context, word(nil), octets(single)
	}
	return execute(execution{contracts.DelegationManager, new(big.Int), call("redeemDelegations(bytes[],bytes32[],bytes[])",
		array(contexts...), array(modes...), array(calls...))}), nil
}

// ErrAuthorization says that an authorization cannot be carried out: its value is not in [0, 2^256), or its signature is longer
// than [evm.MaxSignature].
var ErrAuthorization = errors.New("userop: the signed authorization is invalid")

// AuthorizedTransfer is the calldata with which anybody lets a token carry out what a holder has signed: transferWithAuthorization
// (EIP-3009), in the form of FiatToken v2.2 that takes any bytes where the signature is not 65 bytes. [ErrAuthorization].
func AuthorizedTransfer(a *evm.Authorization, signature []byte) ([]byte, error) {
	if a.Value == nil || a.Value.Sign() < 0 || a.Value.BitLen() > 256 || len(signature) > evm.MaxSignature {
		return nil, ErrAuthorization
	}
	seconds := func(n uint64) part { return uint256(new(big.Int).SetUint64(n)) }
	parts := []part{
		address(common.Address(a.From)), address(common.Address(a.To)), uint256(a.Value), seconds(a.ValidAfter), seconds(a.ValidBefore), word(a.Nonce[:]),
	}
	if len(signature) != 65 {
		return call("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)", append(parts, octets(signature))...), nil
	}
	return call("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
		append(parts, word(signature[64:]), word(signature[:32]), word(signature[32:64]))...), nil
}

// SignatureCall is the calldata that asks an account with code whether a signature of a digest is its own: isValidSignature (ERC-1271).
func SignatureCall(digest common.Hash, signature []byte) []byte {
	return call("isValidSignature(bytes32,bytes)", word(digest[:]), octets(signature))
}

// SaleCall is the calldata with which an account has a token carry out an authorization of somebody else. [ErrAuthorization].
func SaleCall(token common.Address, a *evm.Authorization, signature []byte) ([]byte, error) {
	data, err := AuthorizedTransfer(a, signature)
	if err != nil {
		return nil, err
	}
	return execute(execution{token, new(big.Int), data}), nil
}

// RevokeCall is the calldata with which the delegator's account disables a delegation. The DelegationManager takes the
// same calldata from a delegator without code.
func RevokeCall(d Delegation) []byte {
	return call("disableDelegation((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes))", d.structure(nil))
}

// VoidCall is the calldata with which an account uses up the nonce of a key, so that the operation with that nonce can never run.
func VoidCall(key [24]byte) []byte {
	return execute(execution{contracts.EntryPoint, new(big.Int), call("incrementNonce(uint192)", word(key[:]))})
}

// HandleOps is the calldata with which anybody lets the EntryPoint run signed operations. The beneficiary gets their fees,
// which are zero in this rail.
func HandleOps(ops []*Operation, beneficiary common.Address) []byte {
	parts := make([]part, len(ops))
	for i, o := range ops {
		parts[i] = structure(
			address(o.Sender), uint256(o.Nonce), octets(o.InitCode), octets(o.CallData), word(o.AccountGasLimits[:]),
			uint256(o.PreVerificationGas), word(o.GasFees[:]), octets(o.PaymasterAndData), octets(o.Signature))
	}
	return call("handleOps((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)[],address)", array(parts...), address(beneficiary))
}
