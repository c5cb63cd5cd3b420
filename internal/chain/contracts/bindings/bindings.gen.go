// Code generated via abigen V2 - DO NOT EDIT.
// This file is a generated binding and any manual changes will be lost.

package bindings

import (
	"bytes"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/accounts/abi/bind/v2"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// Reference imports to suppress errors if they are not otherwise used.
var (
	_ = bytes.Equal
	_ = errors.New
	_ = big.NewInt
	_ = common.Big1
	_ = types.BloomLookup
	_ = abi.ConvertType
)

// Caveat is an auto generated low-level Go binding around an user-defined struct.
type Caveat struct {
	Enforcer common.Address
	Terms    []byte
	Args     []byte
}

// Delegation is an auto generated low-level Go binding around an user-defined struct.
type Delegation struct {
	Delegate  common.Address
	Delegator common.Address
	Authority [32]byte
	Caveats   []Caveat
	Salt      *big.Int
	Signature []byte
}

// Execution is an auto generated low-level Go binding around an user-defined struct.
type Execution struct {
	Target   common.Address
	Value    *big.Int
	CallData []byte
}

// PackedUserOperation is an auto generated low-level Go binding around an user-defined struct.
type PackedUserOperation struct {
	Sender             common.Address
	Nonce              *big.Int
	InitCode           []byte
	CallData           []byte
	AccountGasLimits   [32]byte
	PreVerificationGas *big.Int
	GasFees            [32]byte
	PaymasterAndData   []byte
	Signature          []byte
}

// CreditMirrorMetaData contains all meta data concerning the CreditMirror contract.
var CreditMirrorMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[],\"name\":\"NotOperator\",\"type\":\"error\"},{\"inputs\":[{\"internalType\":\"uint64\",\"name\":\"last\",\"type\":\"uint64\"}],\"name\":\"PeriodNotAfter\",\"type\":\"error\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"uint64\",\"name\":\"period\",\"type\":\"uint64\"},{\"indexed\":false,\"internalType\":\"bytes32\",\"name\":\"root\",\"type\":\"bytes32\"},{\"indexed\":false,\"internalType\":\"uint64\",\"name\":\"leaves\",\"type\":\"uint64\"},{\"indexed\":false,\"internalType\":\"uint128\",\"name\":\"credits\",\"type\":\"uint128\"}],\"name\":\"Anchored\",\"type\":\"event\"},{\"inputs\":[{\"internalType\":\"uint64\",\"name\":\"period\",\"type\":\"uint64\"},{\"internalType\":\"bytes32\",\"name\":\"root\",\"type\":\"bytes32\"},{\"internalType\":\"uint64\",\"name\":\"leaves\",\"type\":\"uint64\"},{\"internalType\":\"uint128\",\"name\":\"credits\",\"type\":\"uint128\"}],\"name\":\"anchor\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"bytes32\",\"name\":\"root\",\"type\":\"bytes32\"},{\"internalType\":\"bytes32\",\"name\":\"leaf\",\"type\":\"bytes32\"},{\"internalType\":\"bytes32[]\",\"name\":\"proof\",\"type\":\"bytes32[]\"}],\"name\":\"check\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"pure\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"lastPeriod\",\"outputs\":[{\"internalType\":\"uint64\",\"name\":\"\",\"type\":\"uint64\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"operator\",\"outputs\":[{\"internalType\":\"address\",\"name\":\"\",\"type\":\"address\"}],\"stateMutability\":\"view\",\"type\":\"function\"}]",
	ID:  "CreditMirror",
}

// CreditMirror is an auto generated Go binding around an Ethereum contract.
type CreditMirror struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *CreditMirror) GetABI() abi.ABI {
	return c.abi
}

// NewCreditMirror creates a new instance of CreditMirror.
func NewCreditMirror() *CreditMirror {
	parsed, err := CreditMirrorMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &CreditMirror{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *CreditMirror) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackAnchor is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x66f10bf5.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function anchor(uint64 period, bytes32 root, uint64 leaves, uint128 credits) returns()
func (creditMirror *CreditMirror) PackAnchor(period uint64, root [32]byte, leaves uint64, credits *big.Int) []byte {
	enc, err := creditMirror.abi.Pack("anchor", period, root, leaves, credits)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackAnchor is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x66f10bf5.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function anchor(uint64 period, bytes32 root, uint64 leaves, uint128 credits) returns()
func (creditMirror *CreditMirror) TryPackAnchor(period uint64, root [32]byte, leaves uint64, credits *big.Int) ([]byte, error) {
	return creditMirror.abi.Pack("anchor", period, root, leaves, credits)
}

// PackCheck is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x26eedcd2.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function check(bytes32 root, bytes32 leaf, bytes32[] proof) pure returns(bool)
func (creditMirror *CreditMirror) PackCheck(root [32]byte, leaf [32]byte, proof [][32]byte) []byte {
	enc, err := creditMirror.abi.Pack("check", root, leaf, proof)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackCheck is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x26eedcd2.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function check(bytes32 root, bytes32 leaf, bytes32[] proof) pure returns(bool)
func (creditMirror *CreditMirror) TryPackCheck(root [32]byte, leaf [32]byte, proof [][32]byte) ([]byte, error) {
	return creditMirror.abi.Pack("check", root, leaf, proof)
}

// UnpackCheck is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x26eedcd2.
//
// Solidity: function check(bytes32 root, bytes32 leaf, bytes32[] proof) pure returns(bool)
func (creditMirror *CreditMirror) UnpackCheck(data []byte) (bool, error) {
	out, err := creditMirror.abi.Unpack("check", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackLastPeriod is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xd340ef8a.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function lastPeriod() view returns(uint64)
func (creditMirror *CreditMirror) PackLastPeriod() []byte {
	enc, err := creditMirror.abi.Pack("lastPeriod")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackLastPeriod is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xd340ef8a.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function lastPeriod() view returns(uint64)
func (creditMirror *CreditMirror) TryPackLastPeriod() ([]byte, error) {
	return creditMirror.abi.Pack("lastPeriod")
}

// UnpackLastPeriod is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0xd340ef8a.
//
// Solidity: function lastPeriod() view returns(uint64)
func (creditMirror *CreditMirror) UnpackLastPeriod(data []byte) (uint64, error) {
	out, err := creditMirror.abi.Unpack("lastPeriod", data)
	if err != nil {
		return *new(uint64), err
	}
	out0 := *abi.ConvertType(out[0], new(uint64)).(*uint64)
	return out0, nil
}

// PackOperator is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x570ca735.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function operator() view returns(address)
func (creditMirror *CreditMirror) PackOperator() []byte {
	enc, err := creditMirror.abi.Pack("operator")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackOperator is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x570ca735.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function operator() view returns(address)
func (creditMirror *CreditMirror) TryPackOperator() ([]byte, error) {
	return creditMirror.abi.Pack("operator")
}

// UnpackOperator is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x570ca735.
//
// Solidity: function operator() view returns(address)
func (creditMirror *CreditMirror) UnpackOperator(data []byte) (common.Address, error) {
	out, err := creditMirror.abi.Unpack("operator", data)
	if err != nil {
		return *new(common.Address), err
	}
	out0 := *abi.ConvertType(out[0], new(common.Address)).(*common.Address)
	return out0, nil
}

// CreditMirrorAnchored represents a Anchored event raised by the CreditMirror contract.
type CreditMirrorAnchored struct {
	Period  uint64
	Root    [32]byte
	Leaves  uint64
	Credits *big.Int
	Raw     *types.Log // Blockchain specific contextual infos
}

const CreditMirrorAnchoredEventName = "Anchored"

// ContractEventName returns the user-defined event name.
func (CreditMirrorAnchored) ContractEventName() string {
	return CreditMirrorAnchoredEventName
}

// UnpackAnchoredEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event Anchored(uint64 indexed period, bytes32 root, uint64 leaves, uint128 credits)
func (creditMirror *CreditMirror) UnpackAnchoredEvent(log *types.Log) (*CreditMirrorAnchored, error) {
	event := "Anchored"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != creditMirror.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(CreditMirrorAnchored)
	if len(log.Data) > 0 {
		if err := creditMirror.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range creditMirror.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// UnpackError attempts to decode the provided error data using user-defined
// error definitions.
func (creditMirror *CreditMirror) UnpackError(raw []byte) (any, error) {
	if bytes.Equal(raw[:4], creditMirror.abi.Errors["NotOperator"].ID.Bytes()[:4]) {
		return creditMirror.UnpackNotOperatorError(raw[4:])
	}
	if bytes.Equal(raw[:4], creditMirror.abi.Errors["PeriodNotAfter"].ID.Bytes()[:4]) {
		return creditMirror.UnpackPeriodNotAfterError(raw[4:])
	}
	return nil, errors.New("Unknown error")
}

// CreditMirrorNotOperator represents a NotOperator error raised by the CreditMirror contract.
type CreditMirrorNotOperator struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error NotOperator()
func CreditMirrorNotOperatorErrorID() common.Hash {
	return common.HexToHash("0x7c214f0474e418b49066b523b4b4fdaaeed28f6f33b3f87920010fb4856b27c9")
}

// UnpackNotOperatorError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error NotOperator()
func (creditMirror *CreditMirror) UnpackNotOperatorError(raw []byte) (*CreditMirrorNotOperator, error) {
	out := new(CreditMirrorNotOperator)
	if err := creditMirror.abi.UnpackIntoInterface(out, "NotOperator", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// CreditMirrorPeriodNotAfter represents a PeriodNotAfter error raised by the CreditMirror contract.
type CreditMirrorPeriodNotAfter struct {
	Last uint64
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error PeriodNotAfter(uint64 last)
func CreditMirrorPeriodNotAfterErrorID() common.Hash {
	return common.HexToHash("0x6cad1a0c06cfe074507dfa208fc775370876057c914b26312dae6ec27990e2be")
}

// UnpackPeriodNotAfterError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error PeriodNotAfter(uint64 last)
func (creditMirror *CreditMirror) UnpackPeriodNotAfterError(raw []byte) (*CreditMirrorPeriodNotAfter, error) {
	out := new(CreditMirrorPeriodNotAfter)
	if err := creditMirror.abi.UnpackIntoInterface(out, "PeriodNotAfter", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerMetaData contains all meta data concerning the DelegationManager contract.
var DelegationManagerMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"delegate\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"delegator\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"authority\",\"type\":\"bytes32\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"enforcer\",\"type\":\"address\"},{\"internalType\":\"bytes\",\"name\":\"terms\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"args\",\"type\":\"bytes\"}],\"internalType\":\"structCaveat[]\",\"name\":\"caveats\",\"type\":\"tuple[]\"},{\"internalType\":\"uint256\",\"name\":\"salt\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"internalType\":\"structDelegation\",\"name\":\"_delegation\",\"type\":\"tuple\"}],\"name\":\"disableDelegation\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"}],\"name\":\"disabledDelegations\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"isDisabled\",\"type\":\"bool\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"delegate\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"delegator\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"authority\",\"type\":\"bytes32\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"enforcer\",\"type\":\"address\"},{\"internalType\":\"bytes\",\"name\":\"terms\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"args\",\"type\":\"bytes\"}],\"internalType\":\"structCaveat[]\",\"name\":\"caveats\",\"type\":\"tuple[]\"},{\"internalType\":\"uint256\",\"name\":\"salt\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"internalType\":\"structDelegation\",\"name\":\"_input\",\"type\":\"tuple\"}],\"name\":\"getDelegationHash\",\"outputs\":[{\"internalType\":\"bytes32\",\"name\":\"\",\"type\":\"bytes32\"}],\"stateMutability\":\"pure\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"getDomainHash\",\"outputs\":[{\"internalType\":\"bytes32\",\"name\":\"\",\"type\":\"bytes32\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"paused\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"bytes[]\",\"name\":\"_permissionContexts\",\"type\":\"bytes[]\"},{\"internalType\":\"ModeCode[]\",\"name\":\"_modes\",\"type\":\"bytes32[]\"},{\"internalType\":\"bytes[]\",\"name\":\"_executionCallDatas\",\"type\":\"bytes[]\"}],\"name\":\"redeemDelegations\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"delegator\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"delegate\",\"type\":\"address\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"delegate\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"delegator\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"authority\",\"type\":\"bytes32\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"enforcer\",\"type\":\"address\"},{\"internalType\":\"bytes\",\"name\":\"terms\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"args\",\"type\":\"bytes\"}],\"internalType\":\"structCaveat[]\",\"name\":\"caveats\",\"type\":\"tuple[]\"},{\"internalType\":\"uint256\",\"name\":\"salt\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"indexed\":false,\"internalType\":\"structDelegation\",\"name\":\"delegation\",\"type\":\"tuple\"}],\"name\":\"DisabledDelegation\",\"type\":\"event\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"rootDelegator\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"redeemer\",\"type\":\"address\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"delegate\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"delegator\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"authority\",\"type\":\"bytes32\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"enforcer\",\"type\":\"address\"},{\"internalType\":\"bytes\",\"name\":\"terms\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"args\",\"type\":\"bytes\"}],\"internalType\":\"structCaveat[]\",\"name\":\"caveats\",\"type\":\"tuple[]\"},{\"internalType\":\"uint256\",\"name\":\"salt\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"indexed\":false,\"internalType\":\"structDelegation\",\"name\":\"delegation\",\"type\":\"tuple\"}],\"name\":\"RedeemedDelegation\",\"type\":\"event\"},{\"inputs\":[],\"name\":\"AlreadyDisabled\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"BatchDataLengthMismatch\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"CannotUseADisabledDelegation\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"EnforcedPause\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"InvalidDelegate\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"InvalidEOASignature\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"InvalidERC1271Signature\",\"type\":\"error\"}]",
	ID:  "DelegationManager",
}

// DelegationManager is an auto generated Go binding around an Ethereum contract.
type DelegationManager struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *DelegationManager) GetABI() abi.ABI {
	return c.abi
}

// NewDelegationManager creates a new instance of DelegationManager.
func NewDelegationManager() *DelegationManager {
	parsed, err := DelegationManagerMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &DelegationManager{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *DelegationManager) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackDisableDelegation is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x49934047.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function disableDelegation((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _delegation) returns()
func (delegationManager *DelegationManager) PackDisableDelegation(delegation Delegation) []byte {
	enc, err := delegationManager.abi.Pack("disableDelegation", delegation)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackDisableDelegation is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x49934047.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function disableDelegation((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _delegation) returns()
func (delegationManager *DelegationManager) TryPackDisableDelegation(delegation Delegation) ([]byte, error) {
	return delegationManager.abi.Pack("disableDelegation", delegation)
}

// PackDisabledDelegations is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x2d40d052.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function disabledDelegations(bytes32 delegationHash) view returns(bool isDisabled)
func (delegationManager *DelegationManager) PackDisabledDelegations(delegationHash [32]byte) []byte {
	enc, err := delegationManager.abi.Pack("disabledDelegations", delegationHash)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackDisabledDelegations is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x2d40d052.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function disabledDelegations(bytes32 delegationHash) view returns(bool isDisabled)
func (delegationManager *DelegationManager) TryPackDisabledDelegations(delegationHash [32]byte) ([]byte, error) {
	return delegationManager.abi.Pack("disabledDelegations", delegationHash)
}

// UnpackDisabledDelegations is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x2d40d052.
//
// Solidity: function disabledDelegations(bytes32 delegationHash) view returns(bool isDisabled)
func (delegationManager *DelegationManager) UnpackDisabledDelegations(data []byte) (bool, error) {
	out, err := delegationManager.abi.Unpack("disabledDelegations", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackGetDelegationHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x66134607.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function getDelegationHash((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _input) pure returns(bytes32)
func (delegationManager *DelegationManager) PackGetDelegationHash(input Delegation) []byte {
	enc, err := delegationManager.abi.Pack("getDelegationHash", input)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackGetDelegationHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x66134607.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function getDelegationHash((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _input) pure returns(bytes32)
func (delegationManager *DelegationManager) TryPackGetDelegationHash(input Delegation) ([]byte, error) {
	return delegationManager.abi.Pack("getDelegationHash", input)
}

// UnpackGetDelegationHash is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x66134607.
//
// Solidity: function getDelegationHash((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _input) pure returns(bytes32)
func (delegationManager *DelegationManager) UnpackGetDelegationHash(data []byte) ([32]byte, error) {
	out, err := delegationManager.abi.Unpack("getDelegationHash", data)
	if err != nil {
		return *new([32]byte), err
	}
	out0 := *abi.ConvertType(out[0], new([32]byte)).(*[32]byte)
	return out0, nil
}

// PackGetDomainHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x83ebb771.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function getDomainHash() view returns(bytes32)
func (delegationManager *DelegationManager) PackGetDomainHash() []byte {
	enc, err := delegationManager.abi.Pack("getDomainHash")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackGetDomainHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x83ebb771.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function getDomainHash() view returns(bytes32)
func (delegationManager *DelegationManager) TryPackGetDomainHash() ([]byte, error) {
	return delegationManager.abi.Pack("getDomainHash")
}

// UnpackGetDomainHash is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x83ebb771.
//
// Solidity: function getDomainHash() view returns(bytes32)
func (delegationManager *DelegationManager) UnpackGetDomainHash(data []byte) ([32]byte, error) {
	out, err := delegationManager.abi.Unpack("getDomainHash", data)
	if err != nil {
		return *new([32]byte), err
	}
	out0 := *abi.ConvertType(out[0], new([32]byte)).(*[32]byte)
	return out0, nil
}

// PackPaused is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x5c975abb.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function paused() view returns(bool)
func (delegationManager *DelegationManager) PackPaused() []byte {
	enc, err := delegationManager.abi.Pack("paused")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackPaused is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x5c975abb.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function paused() view returns(bool)
func (delegationManager *DelegationManager) TryPackPaused() ([]byte, error) {
	return delegationManager.abi.Pack("paused")
}

// UnpackPaused is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x5c975abb.
//
// Solidity: function paused() view returns(bool)
func (delegationManager *DelegationManager) UnpackPaused(data []byte) (bool, error) {
	out, err := delegationManager.abi.Unpack("paused", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackRedeemDelegations is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xcef6d209.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function redeemDelegations(bytes[] _permissionContexts, bytes32[] _modes, bytes[] _executionCallDatas) returns()
func (delegationManager *DelegationManager) PackRedeemDelegations(permissionContexts [][]byte, modes [][32]byte, executionCallDatas [][]byte) []byte {
	enc, err := delegationManager.abi.Pack("redeemDelegations", permissionContexts, modes, executionCallDatas)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackRedeemDelegations is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xcef6d209.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function redeemDelegations(bytes[] _permissionContexts, bytes32[] _modes, bytes[] _executionCallDatas) returns()
func (delegationManager *DelegationManager) TryPackRedeemDelegations(permissionContexts [][]byte, modes [][32]byte, executionCallDatas [][]byte) ([]byte, error) {
	return delegationManager.abi.Pack("redeemDelegations", permissionContexts, modes, executionCallDatas)
}

// DelegationManagerDisabledDelegation represents a DisabledDelegation event raised by the DelegationManager contract.
type DelegationManagerDisabledDelegation struct {
	DelegationHash [32]byte
	Delegator      common.Address
	Delegate       common.Address
	Delegation     Delegation
	Raw            *types.Log // Blockchain specific contextual infos
}

const DelegationManagerDisabledDelegationEventName = "DisabledDelegation"

// ContractEventName returns the user-defined event name.
func (DelegationManagerDisabledDelegation) ContractEventName() string {
	return DelegationManagerDisabledDelegationEventName
}

// UnpackDisabledDelegationEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event DisabledDelegation(bytes32 indexed delegationHash, address indexed delegator, address indexed delegate, (address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) delegation)
func (delegationManager *DelegationManager) UnpackDisabledDelegationEvent(log *types.Log) (*DelegationManagerDisabledDelegation, error) {
	event := "DisabledDelegation"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != delegationManager.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(DelegationManagerDisabledDelegation)
	if len(log.Data) > 0 {
		if err := delegationManager.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range delegationManager.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// DelegationManagerRedeemedDelegation represents a RedeemedDelegation event raised by the DelegationManager contract.
type DelegationManagerRedeemedDelegation struct {
	RootDelegator common.Address
	Redeemer      common.Address
	Delegation    Delegation
	Raw           *types.Log // Blockchain specific contextual infos
}

const DelegationManagerRedeemedDelegationEventName = "RedeemedDelegation"

// ContractEventName returns the user-defined event name.
func (DelegationManagerRedeemedDelegation) ContractEventName() string {
	return DelegationManagerRedeemedDelegationEventName
}

// UnpackRedeemedDelegationEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event RedeemedDelegation(address indexed rootDelegator, address indexed redeemer, (address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) delegation)
func (delegationManager *DelegationManager) UnpackRedeemedDelegationEvent(log *types.Log) (*DelegationManagerRedeemedDelegation, error) {
	event := "RedeemedDelegation"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != delegationManager.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(DelegationManagerRedeemedDelegation)
	if len(log.Data) > 0 {
		if err := delegationManager.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range delegationManager.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// UnpackError attempts to decode the provided error data using user-defined
// error definitions.
func (delegationManager *DelegationManager) UnpackError(raw []byte) (any, error) {
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["AlreadyDisabled"].ID.Bytes()[:4]) {
		return delegationManager.UnpackAlreadyDisabledError(raw[4:])
	}
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["BatchDataLengthMismatch"].ID.Bytes()[:4]) {
		return delegationManager.UnpackBatchDataLengthMismatchError(raw[4:])
	}
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["CannotUseADisabledDelegation"].ID.Bytes()[:4]) {
		return delegationManager.UnpackCannotUseADisabledDelegationError(raw[4:])
	}
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["EnforcedPause"].ID.Bytes()[:4]) {
		return delegationManager.UnpackEnforcedPauseError(raw[4:])
	}
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["InvalidDelegate"].ID.Bytes()[:4]) {
		return delegationManager.UnpackInvalidDelegateError(raw[4:])
	}
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["InvalidEOASignature"].ID.Bytes()[:4]) {
		return delegationManager.UnpackInvalidEOASignatureError(raw[4:])
	}
	if bytes.Equal(raw[:4], delegationManager.abi.Errors["InvalidERC1271Signature"].ID.Bytes()[:4]) {
		return delegationManager.UnpackInvalidERC1271SignatureError(raw[4:])
	}
	return nil, errors.New("Unknown error")
}

// DelegationManagerAlreadyDisabled represents a AlreadyDisabled error raised by the DelegationManager contract.
type DelegationManagerAlreadyDisabled struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error AlreadyDisabled()
func DelegationManagerAlreadyDisabledErrorID() common.Hash {
	return common.HexToHash("0x005ecddb5482acc23c937d56f3176c6d313378cb4442669bedf79950fd4146ad")
}

// UnpackAlreadyDisabledError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error AlreadyDisabled()
func (delegationManager *DelegationManager) UnpackAlreadyDisabledError(raw []byte) (*DelegationManagerAlreadyDisabled, error) {
	out := new(DelegationManagerAlreadyDisabled)
	if err := delegationManager.abi.UnpackIntoInterface(out, "AlreadyDisabled", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerBatchDataLengthMismatch represents a BatchDataLengthMismatch error raised by the DelegationManager contract.
type DelegationManagerBatchDataLengthMismatch struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error BatchDataLengthMismatch()
func DelegationManagerBatchDataLengthMismatchErrorID() common.Hash {
	return common.HexToHash("0x1bcaf69f4d21718f8566fe50167a6a8fb0a65dc7e00159e91f5a84aa81d38744")
}

// UnpackBatchDataLengthMismatchError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error BatchDataLengthMismatch()
func (delegationManager *DelegationManager) UnpackBatchDataLengthMismatchError(raw []byte) (*DelegationManagerBatchDataLengthMismatch, error) {
	out := new(DelegationManagerBatchDataLengthMismatch)
	if err := delegationManager.abi.UnpackIntoInterface(out, "BatchDataLengthMismatch", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerCannotUseADisabledDelegation represents a CannotUseADisabledDelegation error raised by the DelegationManager contract.
type DelegationManagerCannotUseADisabledDelegation struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error CannotUseADisabledDelegation()
func DelegationManagerCannotUseADisabledDelegationErrorID() common.Hash {
	return common.HexToHash("0x05baa05277e8eccf854cad30e2db806a0eba152b36697c89c636d375cccec4a0")
}

// UnpackCannotUseADisabledDelegationError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error CannotUseADisabledDelegation()
func (delegationManager *DelegationManager) UnpackCannotUseADisabledDelegationError(raw []byte) (*DelegationManagerCannotUseADisabledDelegation, error) {
	out := new(DelegationManagerCannotUseADisabledDelegation)
	if err := delegationManager.abi.UnpackIntoInterface(out, "CannotUseADisabledDelegation", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerEnforcedPause represents a EnforcedPause error raised by the DelegationManager contract.
type DelegationManagerEnforcedPause struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error EnforcedPause()
func DelegationManagerEnforcedPauseErrorID() common.Hash {
	return common.HexToHash("0xd93c0665d6c96d04a8f174024fc4ddd66c250604aff22bbec808de86dd3637e3")
}

// UnpackEnforcedPauseError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error EnforcedPause()
func (delegationManager *DelegationManager) UnpackEnforcedPauseError(raw []byte) (*DelegationManagerEnforcedPause, error) {
	out := new(DelegationManagerEnforcedPause)
	if err := delegationManager.abi.UnpackIntoInterface(out, "EnforcedPause", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerInvalidDelegate represents a InvalidDelegate error raised by the DelegationManager contract.
type DelegationManagerInvalidDelegate struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error InvalidDelegate()
func DelegationManagerInvalidDelegateErrorID() common.Hash {
	return common.HexToHash("0xb586360471a7eb6ea5d582cccfa02c084edced2a2f8845574db217111c06df11")
}

// UnpackInvalidDelegateError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error InvalidDelegate()
func (delegationManager *DelegationManager) UnpackInvalidDelegateError(raw []byte) (*DelegationManagerInvalidDelegate, error) {
	out := new(DelegationManagerInvalidDelegate)
	if err := delegationManager.abi.UnpackIntoInterface(out, "InvalidDelegate", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerInvalidEOASignature represents a InvalidEOASignature error raised by the DelegationManager contract.
type DelegationManagerInvalidEOASignature struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error InvalidEOASignature()
func DelegationManagerInvalidEOASignatureErrorID() common.Hash {
	return common.HexToHash("0x3db6791c92f2f98a4c5089ae0c38ec143756a2d11113818f50a7533a0dff173e")
}

// UnpackInvalidEOASignatureError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error InvalidEOASignature()
func (delegationManager *DelegationManager) UnpackInvalidEOASignatureError(raw []byte) (*DelegationManagerInvalidEOASignature, error) {
	out := new(DelegationManagerInvalidEOASignature)
	if err := delegationManager.abi.UnpackIntoInterface(out, "InvalidEOASignature", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// DelegationManagerInvalidERC1271Signature represents a InvalidERC1271Signature error raised by the DelegationManager contract.
type DelegationManagerInvalidERC1271Signature struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error InvalidERC1271Signature()
func DelegationManagerInvalidERC1271SignatureErrorID() common.Hash {
	return common.HexToHash("0x155ff4271db2b04401232840748b0b704a56b802ddf9e0085c7d2b28b0a289f9")
}

// UnpackInvalidERC1271SignatureError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error InvalidERC1271Signature()
func (delegationManager *DelegationManager) UnpackInvalidERC1271SignatureError(raw []byte) (*DelegationManagerInvalidERC1271Signature, error) {
	out := new(DelegationManagerInvalidERC1271Signature)
	if err := delegationManager.abi.UnpackIntoInterface(out, "InvalidERC1271Signature", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// EIP7702StatelessDeleGatorMetaData contains all meta data concerning the EIP7702StatelessDeleGator contract.
var EIP7702StatelessDeleGatorMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"delegate\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"delegator\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"authority\",\"type\":\"bytes32\"},{\"components\":[{\"internalType\":\"address\",\"name\":\"enforcer\",\"type\":\"address\"},{\"internalType\":\"bytes\",\"name\":\"terms\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"args\",\"type\":\"bytes\"}],\"internalType\":\"structCaveat[]\",\"name\":\"caveats\",\"type\":\"tuple[]\"},{\"internalType\":\"uint256\",\"name\":\"salt\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"internalType\":\"structDelegation\",\"name\":\"_delegation\",\"type\":\"tuple\"}],\"name\":\"disableDelegation\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"target\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"callData\",\"type\":\"bytes\"}],\"internalType\":\"structExecution\",\"name\":\"_execution\",\"type\":\"tuple\"}],\"name\":\"execute\",\"outputs\":[],\"stateMutability\":\"payable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"ModeCode\",\"name\":\"_mode\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"_executionCalldata\",\"type\":\"bytes\"}],\"name\":\"execute\",\"outputs\":[],\"stateMutability\":\"payable\",\"type\":\"function\"},{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"nonce\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"initCode\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"callData\",\"type\":\"bytes\"},{\"internalType\":\"bytes32\",\"name\":\"accountGasLimits\",\"type\":\"bytes32\"},{\"internalType\":\"uint256\",\"name\":\"preVerificationGas\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"gasFees\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"paymasterAndData\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"internalType\":\"structPackedUserOperation\",\"name\":\"_userOp\",\"type\":\"tuple\"}],\"name\":\"getPackedUserOperationTypedDataHash\",\"outputs\":[{\"internalType\":\"bytes32\",\"name\":\"\",\"type\":\"bytes32\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"bytes32\",\"name\":\"_hash\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"_signature\",\"type\":\"bytes\"}],\"name\":\"isValidSignature\",\"outputs\":[{\"internalType\":\"bytes4\",\"name\":\"magicValue_\",\"type\":\"bytes4\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"ECDSAInvalidSignature\",\"type\":\"error\"},{\"inputs\":[{\"internalType\":\"uint256\",\"name\":\"length\",\"type\":\"uint256\"}],\"name\":\"ECDSAInvalidSignatureLength\",\"type\":\"error\"},{\"inputs\":[],\"name\":\"NotEntryPointOrSelf\",\"type\":\"error\"}]",
	ID:  "EIP7702StatelessDeleGator",
}

// EIP7702StatelessDeleGator is an auto generated Go binding around an Ethereum contract.
type EIP7702StatelessDeleGator struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *EIP7702StatelessDeleGator) GetABI() abi.ABI {
	return c.abi
}

// NewEIP7702StatelessDeleGator creates a new instance of EIP7702StatelessDeleGator.
func NewEIP7702StatelessDeleGator() *EIP7702StatelessDeleGator {
	parsed, err := EIP7702StatelessDeleGatorMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &EIP7702StatelessDeleGator{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *EIP7702StatelessDeleGator) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackDisableDelegation is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x49934047.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function disableDelegation((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _delegation) returns()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) PackDisableDelegation(delegation Delegation) []byte {
	enc, err := eIP7702StatelessDeleGator.abi.Pack("disableDelegation", delegation)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackDisableDelegation is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x49934047.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function disableDelegation((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes) _delegation) returns()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) TryPackDisableDelegation(delegation Delegation) ([]byte, error) {
	return eIP7702StatelessDeleGator.abi.Pack("disableDelegation", delegation)
}

// PackExecute is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x5c1c6dcd.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function execute((address,uint256,bytes) _execution) payable returns()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) PackExecute(execution Execution) []byte {
	enc, err := eIP7702StatelessDeleGator.abi.Pack("execute", execution)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackExecute is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x5c1c6dcd.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function execute((address,uint256,bytes) _execution) payable returns()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) TryPackExecute(execution Execution) ([]byte, error) {
	return eIP7702StatelessDeleGator.abi.Pack("execute", execution)
}

// PackExecute0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xe9ae5c53.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function execute(bytes32 _mode, bytes _executionCalldata) payable returns()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) PackExecute0(mode [32]byte, executionCalldata []byte) []byte {
	enc, err := eIP7702StatelessDeleGator.abi.Pack("execute0", mode, executionCalldata)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackExecute0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xe9ae5c53.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function execute(bytes32 _mode, bytes _executionCalldata) payable returns()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) TryPackExecute0(mode [32]byte, executionCalldata []byte) ([]byte, error) {
	return eIP7702StatelessDeleGator.abi.Pack("execute0", mode, executionCalldata)
}

// PackGetPackedUserOperationTypedDataHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x06394d67.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function getPackedUserOperationTypedDataHash((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes) _userOp) view returns(bytes32)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) PackGetPackedUserOperationTypedDataHash(userOp PackedUserOperation) []byte {
	enc, err := eIP7702StatelessDeleGator.abi.Pack("getPackedUserOperationTypedDataHash", userOp)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackGetPackedUserOperationTypedDataHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x06394d67.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function getPackedUserOperationTypedDataHash((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes) _userOp) view returns(bytes32)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) TryPackGetPackedUserOperationTypedDataHash(userOp PackedUserOperation) ([]byte, error) {
	return eIP7702StatelessDeleGator.abi.Pack("getPackedUserOperationTypedDataHash", userOp)
}

// UnpackGetPackedUserOperationTypedDataHash is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x06394d67.
//
// Solidity: function getPackedUserOperationTypedDataHash((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes) _userOp) view returns(bytes32)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) UnpackGetPackedUserOperationTypedDataHash(data []byte) ([32]byte, error) {
	out, err := eIP7702StatelessDeleGator.abi.Unpack("getPackedUserOperationTypedDataHash", data)
	if err != nil {
		return *new([32]byte), err
	}
	out0 := *abi.ConvertType(out[0], new([32]byte)).(*[32]byte)
	return out0, nil
}

// PackIsValidSignature is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x1626ba7e.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function isValidSignature(bytes32 _hash, bytes _signature) view returns(bytes4 magicValue_)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) PackIsValidSignature(hash [32]byte, signature []byte) []byte {
	enc, err := eIP7702StatelessDeleGator.abi.Pack("isValidSignature", hash, signature)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackIsValidSignature is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x1626ba7e.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function isValidSignature(bytes32 _hash, bytes _signature) view returns(bytes4 magicValue_)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) TryPackIsValidSignature(hash [32]byte, signature []byte) ([]byte, error) {
	return eIP7702StatelessDeleGator.abi.Pack("isValidSignature", hash, signature)
}

// UnpackIsValidSignature is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x1626ba7e.
//
// Solidity: function isValidSignature(bytes32 _hash, bytes _signature) view returns(bytes4 magicValue_)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) UnpackIsValidSignature(data []byte) ([4]byte, error) {
	out, err := eIP7702StatelessDeleGator.abi.Unpack("isValidSignature", data)
	if err != nil {
		return *new([4]byte), err
	}
	out0 := *abi.ConvertType(out[0], new([4]byte)).(*[4]byte)
	return out0, nil
}

// UnpackError attempts to decode the provided error data using user-defined
// error definitions.
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) UnpackError(raw []byte) (any, error) {
	if bytes.Equal(raw[:4], eIP7702StatelessDeleGator.abi.Errors["ECDSAInvalidSignature"].ID.Bytes()[:4]) {
		return eIP7702StatelessDeleGator.UnpackECDSAInvalidSignatureError(raw[4:])
	}
	if bytes.Equal(raw[:4], eIP7702StatelessDeleGator.abi.Errors["ECDSAInvalidSignatureLength"].ID.Bytes()[:4]) {
		return eIP7702StatelessDeleGator.UnpackECDSAInvalidSignatureLengthError(raw[4:])
	}
	if bytes.Equal(raw[:4], eIP7702StatelessDeleGator.abi.Errors["NotEntryPointOrSelf"].ID.Bytes()[:4]) {
		return eIP7702StatelessDeleGator.UnpackNotEntryPointOrSelfError(raw[4:])
	}
	return nil, errors.New("Unknown error")
}

// EIP7702StatelessDeleGatorECDSAInvalidSignature represents a ECDSAInvalidSignature error raised by the EIP7702StatelessDeleGator contract.
type EIP7702StatelessDeleGatorECDSAInvalidSignature struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error ECDSAInvalidSignature()
func EIP7702StatelessDeleGatorECDSAInvalidSignatureErrorID() common.Hash {
	return common.HexToHash("0xf645eedf0193584640b6b90cb9477e4c95b98636c148a891d4c0a146dc46e75a")
}

// UnpackECDSAInvalidSignatureError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error ECDSAInvalidSignature()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) UnpackECDSAInvalidSignatureError(raw []byte) (*EIP7702StatelessDeleGatorECDSAInvalidSignature, error) {
	out := new(EIP7702StatelessDeleGatorECDSAInvalidSignature)
	if err := eIP7702StatelessDeleGator.abi.UnpackIntoInterface(out, "ECDSAInvalidSignature", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// EIP7702StatelessDeleGatorECDSAInvalidSignatureLength represents a ECDSAInvalidSignatureLength error raised by the EIP7702StatelessDeleGator contract.
type EIP7702StatelessDeleGatorECDSAInvalidSignatureLength struct {
	Length *big.Int
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error ECDSAInvalidSignatureLength(uint256 length)
func EIP7702StatelessDeleGatorECDSAInvalidSignatureLengthErrorID() common.Hash {
	return common.HexToHash("0xfce698f7e8e5342cd615f641317bc45fe7e1e4a8b0a14dd1383ff8dc9c41917f")
}

// UnpackECDSAInvalidSignatureLengthError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error ECDSAInvalidSignatureLength(uint256 length)
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) UnpackECDSAInvalidSignatureLengthError(raw []byte) (*EIP7702StatelessDeleGatorECDSAInvalidSignatureLength, error) {
	out := new(EIP7702StatelessDeleGatorECDSAInvalidSignatureLength)
	if err := eIP7702StatelessDeleGator.abi.UnpackIntoInterface(out, "ECDSAInvalidSignatureLength", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// EIP7702StatelessDeleGatorNotEntryPointOrSelf represents a NotEntryPointOrSelf error raised by the EIP7702StatelessDeleGator contract.
type EIP7702StatelessDeleGatorNotEntryPointOrSelf struct {
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error NotEntryPointOrSelf()
func EIP7702StatelessDeleGatorNotEntryPointOrSelfErrorID() common.Hash {
	return common.HexToHash("0x0796d945a1177283fb5cd45bed74b80f226fc875c95cc6c6dce7fcb8f3a8d05d")
}

// UnpackNotEntryPointOrSelfError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error NotEntryPointOrSelf()
func (eIP7702StatelessDeleGator *EIP7702StatelessDeleGator) UnpackNotEntryPointOrSelfError(raw []byte) (*EIP7702StatelessDeleGatorNotEntryPointOrSelf, error) {
	out := new(EIP7702StatelessDeleGatorNotEntryPointOrSelf)
	if err := eIP7702StatelessDeleGator.abi.UnpackIntoInterface(out, "NotEntryPointOrSelf", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// ERC20TransferAmountEnforcerMetaData contains all meta data concerning the ERC20TransferAmountEnforcer contract.
var ERC20TransferAmountEnforcerMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[{\"internalType\":\"address\",\"name\":\"delegationManager\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"}],\"name\":\"spentMap\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"amount\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"redeemer\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"limit\",\"type\":\"uint256\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"spent\",\"type\":\"uint256\"}],\"name\":\"IncreasedSpentMap\",\"type\":\"event\"}]",
	ID:  "ERC20TransferAmountEnforcer",
}

// ERC20TransferAmountEnforcer is an auto generated Go binding around an Ethereum contract.
type ERC20TransferAmountEnforcer struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *ERC20TransferAmountEnforcer) GetABI() abi.ABI {
	return c.abi
}

// NewERC20TransferAmountEnforcer creates a new instance of ERC20TransferAmountEnforcer.
func NewERC20TransferAmountEnforcer() *ERC20TransferAmountEnforcer {
	parsed, err := ERC20TransferAmountEnforcerMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &ERC20TransferAmountEnforcer{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *ERC20TransferAmountEnforcer) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackSpentMap is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x9dd5d9ab.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function spentMap(address delegationManager, bytes32 delegationHash) view returns(uint256 amount)
func (eRC20TransferAmountEnforcer *ERC20TransferAmountEnforcer) PackSpentMap(delegationManager common.Address, delegationHash [32]byte) []byte {
	enc, err := eRC20TransferAmountEnforcer.abi.Pack("spentMap", delegationManager, delegationHash)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackSpentMap is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x9dd5d9ab.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function spentMap(address delegationManager, bytes32 delegationHash) view returns(uint256 amount)
func (eRC20TransferAmountEnforcer *ERC20TransferAmountEnforcer) TryPackSpentMap(delegationManager common.Address, delegationHash [32]byte) ([]byte, error) {
	return eRC20TransferAmountEnforcer.abi.Pack("spentMap", delegationManager, delegationHash)
}

// UnpackSpentMap is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x9dd5d9ab.
//
// Solidity: function spentMap(address delegationManager, bytes32 delegationHash) view returns(uint256 amount)
func (eRC20TransferAmountEnforcer *ERC20TransferAmountEnforcer) UnpackSpentMap(data []byte) (*big.Int, error) {
	out, err := eRC20TransferAmountEnforcer.abi.Unpack("spentMap", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// ERC20TransferAmountEnforcerIncreasedSpentMap represents a IncreasedSpentMap event raised by the ERC20TransferAmountEnforcer contract.
type ERC20TransferAmountEnforcerIncreasedSpentMap struct {
	Sender         common.Address
	Redeemer       common.Address
	DelegationHash [32]byte
	Limit          *big.Int
	Spent          *big.Int
	Raw            *types.Log // Blockchain specific contextual infos
}

const ERC20TransferAmountEnforcerIncreasedSpentMapEventName = "IncreasedSpentMap"

// ContractEventName returns the user-defined event name.
func (ERC20TransferAmountEnforcerIncreasedSpentMap) ContractEventName() string {
	return ERC20TransferAmountEnforcerIncreasedSpentMapEventName
}

// UnpackIncreasedSpentMapEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event IncreasedSpentMap(address indexed sender, address indexed redeemer, bytes32 indexed delegationHash, uint256 limit, uint256 spent)
func (eRC20TransferAmountEnforcer *ERC20TransferAmountEnforcer) UnpackIncreasedSpentMapEvent(log *types.Log) (*ERC20TransferAmountEnforcerIncreasedSpentMap, error) {
	event := "IncreasedSpentMap"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != eRC20TransferAmountEnforcer.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(ERC20TransferAmountEnforcerIncreasedSpentMap)
	if len(log.Data) > 0 {
		if err := eRC20TransferAmountEnforcer.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range eRC20TransferAmountEnforcer.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// EntryPointMetaData contains all meta data concerning the EntryPoint contract.
var EntryPointMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[{\"internalType\":\"uint256\",\"name\":\"opIndex\",\"type\":\"uint256\"},{\"internalType\":\"string\",\"name\":\"reason\",\"type\":\"string\"}],\"name\":\"FailedOp\",\"type\":\"error\"},{\"inputs\":[{\"internalType\":\"uint256\",\"name\":\"opIndex\",\"type\":\"uint256\"},{\"internalType\":\"string\",\"name\":\"reason\",\"type\":\"string\"},{\"internalType\":\"bytes\",\"name\":\"inner\",\"type\":\"bytes\"}],\"name\":\"FailedOpWithRevert\",\"type\":\"error\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"userOpHash\",\"type\":\"bytes32\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"paymaster\",\"type\":\"address\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"nonce\",\"type\":\"uint256\"},{\"indexed\":false,\"internalType\":\"bool\",\"name\":\"success\",\"type\":\"bool\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"actualGasCost\",\"type\":\"uint256\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"actualGasUsed\",\"type\":\"uint256\"}],\"name\":\"UserOperationEvent\",\"type\":\"event\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"userOpHash\",\"type\":\"bytes32\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"nonce\",\"type\":\"uint256\"},{\"indexed\":false,\"internalType\":\"bytes\",\"name\":\"revertReason\",\"type\":\"bytes\"}],\"name\":\"UserOperationRevertReason\",\"type\":\"event\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"internalType\":\"uint192\",\"name\":\"key\",\"type\":\"uint192\"}],\"name\":\"getNonce\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"nonce\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"nonce\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"initCode\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"callData\",\"type\":\"bytes\"},{\"internalType\":\"bytes32\",\"name\":\"accountGasLimits\",\"type\":\"bytes32\"},{\"internalType\":\"uint256\",\"name\":\"preVerificationGas\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"gasFees\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"paymasterAndData\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"internalType\":\"structPackedUserOperation\",\"name\":\"userOp\",\"type\":\"tuple\"}],\"name\":\"getUserOpHash\",\"outputs\":[{\"internalType\":\"bytes32\",\"name\":\"\",\"type\":\"bytes32\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"components\":[{\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"nonce\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"initCode\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"callData\",\"type\":\"bytes\"},{\"internalType\":\"bytes32\",\"name\":\"accountGasLimits\",\"type\":\"bytes32\"},{\"internalType\":\"uint256\",\"name\":\"preVerificationGas\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"gasFees\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"paymasterAndData\",\"type\":\"bytes\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"internalType\":\"structPackedUserOperation[]\",\"name\":\"ops\",\"type\":\"tuple[]\"},{\"internalType\":\"addresspayable\",\"name\":\"beneficiary\",\"type\":\"address\"}],\"name\":\"handleOps\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"uint192\",\"name\":\"key\",\"type\":\"uint192\"}],\"name\":\"incrementNonce\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"}]",
	ID:  "EntryPoint",
}

// EntryPoint is an auto generated Go binding around an Ethereum contract.
type EntryPoint struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *EntryPoint) GetABI() abi.ABI {
	return c.abi
}

// NewEntryPoint creates a new instance of EntryPoint.
func NewEntryPoint() *EntryPoint {
	parsed, err := EntryPointMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &EntryPoint{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *EntryPoint) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackGetNonce is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x35567e1a.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function getNonce(address sender, uint192 key) view returns(uint256 nonce)
func (entryPoint *EntryPoint) PackGetNonce(sender common.Address, key *big.Int) []byte {
	enc, err := entryPoint.abi.Pack("getNonce", sender, key)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackGetNonce is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x35567e1a.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function getNonce(address sender, uint192 key) view returns(uint256 nonce)
func (entryPoint *EntryPoint) TryPackGetNonce(sender common.Address, key *big.Int) ([]byte, error) {
	return entryPoint.abi.Pack("getNonce", sender, key)
}

// UnpackGetNonce is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x35567e1a.
//
// Solidity: function getNonce(address sender, uint192 key) view returns(uint256 nonce)
func (entryPoint *EntryPoint) UnpackGetNonce(data []byte) (*big.Int, error) {
	out, err := entryPoint.abi.Unpack("getNonce", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// PackGetUserOpHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x22cdde4c.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function getUserOpHash((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes) userOp) view returns(bytes32)
func (entryPoint *EntryPoint) PackGetUserOpHash(userOp PackedUserOperation) []byte {
	enc, err := entryPoint.abi.Pack("getUserOpHash", userOp)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackGetUserOpHash is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x22cdde4c.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function getUserOpHash((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes) userOp) view returns(bytes32)
func (entryPoint *EntryPoint) TryPackGetUserOpHash(userOp PackedUserOperation) ([]byte, error) {
	return entryPoint.abi.Pack("getUserOpHash", userOp)
}

// UnpackGetUserOpHash is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x22cdde4c.
//
// Solidity: function getUserOpHash((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes) userOp) view returns(bytes32)
func (entryPoint *EntryPoint) UnpackGetUserOpHash(data []byte) ([32]byte, error) {
	out, err := entryPoint.abi.Unpack("getUserOpHash", data)
	if err != nil {
		return *new([32]byte), err
	}
	out0 := *abi.ConvertType(out[0], new([32]byte)).(*[32]byte)
	return out0, nil
}

// PackHandleOps is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x765e827f.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function handleOps((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)[] ops, address beneficiary) returns()
func (entryPoint *EntryPoint) PackHandleOps(ops []PackedUserOperation, beneficiary common.Address) []byte {
	enc, err := entryPoint.abi.Pack("handleOps", ops, beneficiary)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackHandleOps is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x765e827f.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function handleOps((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)[] ops, address beneficiary) returns()
func (entryPoint *EntryPoint) TryPackHandleOps(ops []PackedUserOperation, beneficiary common.Address) ([]byte, error) {
	return entryPoint.abi.Pack("handleOps", ops, beneficiary)
}

// PackIncrementNonce is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x0bd28e3b.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function incrementNonce(uint192 key) returns()
func (entryPoint *EntryPoint) PackIncrementNonce(key *big.Int) []byte {
	enc, err := entryPoint.abi.Pack("incrementNonce", key)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackIncrementNonce is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x0bd28e3b.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function incrementNonce(uint192 key) returns()
func (entryPoint *EntryPoint) TryPackIncrementNonce(key *big.Int) ([]byte, error) {
	return entryPoint.abi.Pack("incrementNonce", key)
}

// EntryPointUserOperationEvent represents a UserOperationEvent event raised by the EntryPoint contract.
type EntryPointUserOperationEvent struct {
	UserOpHash    [32]byte
	Sender        common.Address
	Paymaster     common.Address
	Nonce         *big.Int
	Success       bool
	ActualGasCost *big.Int
	ActualGasUsed *big.Int
	Raw           *types.Log // Blockchain specific contextual infos
}

const EntryPointUserOperationEventEventName = "UserOperationEvent"

// ContractEventName returns the user-defined event name.
func (EntryPointUserOperationEvent) ContractEventName() string {
	return EntryPointUserOperationEventEventName
}

// UnpackUserOperationEventEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event UserOperationEvent(bytes32 indexed userOpHash, address indexed sender, address indexed paymaster, uint256 nonce, bool success, uint256 actualGasCost, uint256 actualGasUsed)
func (entryPoint *EntryPoint) UnpackUserOperationEventEvent(log *types.Log) (*EntryPointUserOperationEvent, error) {
	event := "UserOperationEvent"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != entryPoint.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(EntryPointUserOperationEvent)
	if len(log.Data) > 0 {
		if err := entryPoint.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range entryPoint.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// EntryPointUserOperationRevertReason represents a UserOperationRevertReason event raised by the EntryPoint contract.
type EntryPointUserOperationRevertReason struct {
	UserOpHash   [32]byte
	Sender       common.Address
	Nonce        *big.Int
	RevertReason []byte
	Raw          *types.Log // Blockchain specific contextual infos
}

const EntryPointUserOperationRevertReasonEventName = "UserOperationRevertReason"

// ContractEventName returns the user-defined event name.
func (EntryPointUserOperationRevertReason) ContractEventName() string {
	return EntryPointUserOperationRevertReasonEventName
}

// UnpackUserOperationRevertReasonEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event UserOperationRevertReason(bytes32 indexed userOpHash, address indexed sender, uint256 nonce, bytes revertReason)
func (entryPoint *EntryPoint) UnpackUserOperationRevertReasonEvent(log *types.Log) (*EntryPointUserOperationRevertReason, error) {
	event := "UserOperationRevertReason"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != entryPoint.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(EntryPointUserOperationRevertReason)
	if len(log.Data) > 0 {
		if err := entryPoint.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range entryPoint.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// UnpackError attempts to decode the provided error data using user-defined
// error definitions.
func (entryPoint *EntryPoint) UnpackError(raw []byte) (any, error) {
	if bytes.Equal(raw[:4], entryPoint.abi.Errors["FailedOp"].ID.Bytes()[:4]) {
		return entryPoint.UnpackFailedOpError(raw[4:])
	}
	if bytes.Equal(raw[:4], entryPoint.abi.Errors["FailedOpWithRevert"].ID.Bytes()[:4]) {
		return entryPoint.UnpackFailedOpWithRevertError(raw[4:])
	}
	return nil, errors.New("Unknown error")
}

// EntryPointFailedOp represents a FailedOp error raised by the EntryPoint contract.
type EntryPointFailedOp struct {
	OpIndex *big.Int
	Reason  string
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error FailedOp(uint256 opIndex, string reason)
func EntryPointFailedOpErrorID() common.Hash {
	return common.HexToHash("0x220266b6eadfd2488e398d00abc1c765e1f119da6226c1b55ec9cc0186560475")
}

// UnpackFailedOpError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error FailedOp(uint256 opIndex, string reason)
func (entryPoint *EntryPoint) UnpackFailedOpError(raw []byte) (*EntryPointFailedOp, error) {
	out := new(EntryPointFailedOp)
	if err := entryPoint.abi.UnpackIntoInterface(out, "FailedOp", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// EntryPointFailedOpWithRevert represents a FailedOpWithRevert error raised by the EntryPoint contract.
type EntryPointFailedOpWithRevert struct {
	OpIndex *big.Int
	Reason  string
	Inner   []byte
}

// ErrorID returns the hash of canonical representation of the error's signature.
//
// Solidity: error FailedOpWithRevert(uint256 opIndex, string reason, bytes inner)
func EntryPointFailedOpWithRevertErrorID() common.Hash {
	return common.HexToHash("0x65c8fd4dd32f2bb83f7d57728e1afa231e9956aaf4bdeea76c78b967426acb8c")
}

// UnpackFailedOpWithRevertError is the Go binding used to decode the provided
// error data into the corresponding Go error struct.
//
// Solidity: error FailedOpWithRevert(uint256 opIndex, string reason, bytes inner)
func (entryPoint *EntryPoint) UnpackFailedOpWithRevertError(raw []byte) (*EntryPointFailedOpWithRevert, error) {
	out := new(EntryPointFailedOpWithRevert)
	if err := entryPoint.abi.UnpackIntoInterface(out, "FailedOpWithRevert", raw); err != nil {
		return nil, err
	}
	return out, nil
}

// LimitedCallsEnforcerMetaData contains all meta data concerning the LimitedCallsEnforcer contract.
var LimitedCallsEnforcerMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[{\"internalType\":\"address\",\"name\":\"delegationManager\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"}],\"name\":\"callCounts\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"count\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"}]",
	ID:  "LimitedCallsEnforcer",
}

// LimitedCallsEnforcer is an auto generated Go binding around an Ethereum contract.
type LimitedCallsEnforcer struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *LimitedCallsEnforcer) GetABI() abi.ABI {
	return c.abi
}

// NewLimitedCallsEnforcer creates a new instance of LimitedCallsEnforcer.
func NewLimitedCallsEnforcer() *LimitedCallsEnforcer {
	parsed, err := LimitedCallsEnforcerMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &LimitedCallsEnforcer{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *LimitedCallsEnforcer) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackCallCounts is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x19054d89.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function callCounts(address delegationManager, bytes32 delegationHash) view returns(uint256 count)
func (limitedCallsEnforcer *LimitedCallsEnforcer) PackCallCounts(delegationManager common.Address, delegationHash [32]byte) []byte {
	enc, err := limitedCallsEnforcer.abi.Pack("callCounts", delegationManager, delegationHash)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackCallCounts is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x19054d89.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function callCounts(address delegationManager, bytes32 delegationHash) view returns(uint256 count)
func (limitedCallsEnforcer *LimitedCallsEnforcer) TryPackCallCounts(delegationManager common.Address, delegationHash [32]byte) ([]byte, error) {
	return limitedCallsEnforcer.abi.Pack("callCounts", delegationManager, delegationHash)
}

// UnpackCallCounts is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x19054d89.
//
// Solidity: function callCounts(address delegationManager, bytes32 delegationHash) view returns(uint256 count)
func (limitedCallsEnforcer *LimitedCallsEnforcer) UnpackCallCounts(data []byte) (*big.Int, error) {
	out, err := limitedCallsEnforcer.abi.Unpack("callCounts", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// NativeTokenTransferAmountEnforcerMetaData contains all meta data concerning the NativeTokenTransferAmountEnforcer contract.
var NativeTokenTransferAmountEnforcerMetaData = bind.MetaData{
	ABI: "[{\"inputs\":[{\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"}],\"name\":\"spentMap\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"amount\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"sender\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"redeemer\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"delegationHash\",\"type\":\"bytes32\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"limit\",\"type\":\"uint256\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"spent\",\"type\":\"uint256\"}],\"name\":\"IncreasedSpentMap\",\"type\":\"event\"}]",
	ID:  "NativeTokenTransferAmountEnforcer",
}

// NativeTokenTransferAmountEnforcer is an auto generated Go binding around an Ethereum contract.
type NativeTokenTransferAmountEnforcer struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *NativeTokenTransferAmountEnforcer) GetABI() abi.ABI {
	return c.abi
}

// NewNativeTokenTransferAmountEnforcer creates a new instance of NativeTokenTransferAmountEnforcer.
func NewNativeTokenTransferAmountEnforcer() *NativeTokenTransferAmountEnforcer {
	parsed, err := NativeTokenTransferAmountEnforcerMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &NativeTokenTransferAmountEnforcer{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *NativeTokenTransferAmountEnforcer) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackSpentMap is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x9dd5d9ab.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function spentMap(address sender, bytes32 delegationHash) view returns(uint256 amount)
func (nativeTokenTransferAmountEnforcer *NativeTokenTransferAmountEnforcer) PackSpentMap(sender common.Address, delegationHash [32]byte) []byte {
	enc, err := nativeTokenTransferAmountEnforcer.abi.Pack("spentMap", sender, delegationHash)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackSpentMap is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x9dd5d9ab.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function spentMap(address sender, bytes32 delegationHash) view returns(uint256 amount)
func (nativeTokenTransferAmountEnforcer *NativeTokenTransferAmountEnforcer) TryPackSpentMap(sender common.Address, delegationHash [32]byte) ([]byte, error) {
	return nativeTokenTransferAmountEnforcer.abi.Pack("spentMap", sender, delegationHash)
}

// UnpackSpentMap is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x9dd5d9ab.
//
// Solidity: function spentMap(address sender, bytes32 delegationHash) view returns(uint256 amount)
func (nativeTokenTransferAmountEnforcer *NativeTokenTransferAmountEnforcer) UnpackSpentMap(data []byte) (*big.Int, error) {
	out, err := nativeTokenTransferAmountEnforcer.abi.Unpack("spentMap", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// NativeTokenTransferAmountEnforcerIncreasedSpentMap represents a IncreasedSpentMap event raised by the NativeTokenTransferAmountEnforcer contract.
type NativeTokenTransferAmountEnforcerIncreasedSpentMap struct {
	Sender         common.Address
	Redeemer       common.Address
	DelegationHash [32]byte
	Limit          *big.Int
	Spent          *big.Int
	Raw            *types.Log // Blockchain specific contextual infos
}

const NativeTokenTransferAmountEnforcerIncreasedSpentMapEventName = "IncreasedSpentMap"

// ContractEventName returns the user-defined event name.
func (NativeTokenTransferAmountEnforcerIncreasedSpentMap) ContractEventName() string {
	return NativeTokenTransferAmountEnforcerIncreasedSpentMapEventName
}

// UnpackIncreasedSpentMapEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event IncreasedSpentMap(address indexed sender, address indexed redeemer, bytes32 indexed delegationHash, uint256 limit, uint256 spent)
func (nativeTokenTransferAmountEnforcer *NativeTokenTransferAmountEnforcer) UnpackIncreasedSpentMapEvent(log *types.Log) (*NativeTokenTransferAmountEnforcerIncreasedSpentMap, error) {
	event := "IncreasedSpentMap"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != nativeTokenTransferAmountEnforcer.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(NativeTokenTransferAmountEnforcerIncreasedSpentMap)
	if len(log.Data) > 0 {
		if err := nativeTokenTransferAmountEnforcer.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range nativeTokenTransferAmountEnforcer.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// TokenMetaData contains all meta data concerning the Token contract.
var TokenMetaData = bind.MetaData{
	ABI: "[{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"owner\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"spender\",\"type\":\"address\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"}],\"name\":\"Approval\",\"type\":\"event\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"authorizer\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"}],\"name\":\"AuthorizationCanceled\",\"type\":\"event\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"authorizer\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"}],\"name\":\"AuthorizationUsed\",\"type\":\"event\"},{\"anonymous\":false,\"inputs\":[{\"indexed\":true,\"internalType\":\"address\",\"name\":\"from\",\"type\":\"address\"},{\"indexed\":true,\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"indexed\":false,\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"}],\"name\":\"Transfer\",\"type\":\"event\"},{\"inputs\":[],\"name\":\"DOMAIN_SEPARATOR\",\"outputs\":[{\"internalType\":\"bytes32\",\"name\":\"\",\"type\":\"bytes32\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"\",\"type\":\"address\"}],\"name\":\"allowance\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"spender\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"}],\"name\":\"approve\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"\",\"type\":\"bytes32\"}],\"name\":\"authorizationState\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"\",\"type\":\"address\"}],\"name\":\"balanceOf\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"authorizer\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"},{\"internalType\":\"uint8\",\"name\":\"v\",\"type\":\"uint8\"},{\"internalType\":\"bytes32\",\"name\":\"r\",\"type\":\"bytes32\"},{\"internalType\":\"bytes32\",\"name\":\"s\",\"type\":\"bytes32\"}],\"name\":\"cancelAuthorization\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"authorizer\",\"type\":\"address\"},{\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"name\":\"cancelAuthorization\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"decimals\",\"outputs\":[{\"internalType\":\"uint8\",\"name\":\"\",\"type\":\"uint8\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"amount\",\"type\":\"uint256\"}],\"name\":\"mint\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"name\",\"outputs\":[{\"internalType\":\"string\",\"name\":\"\",\"type\":\"string\"}],\"stateMutability\":\"pure\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"\",\"type\":\"address\"}],\"name\":\"nonces\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"owner\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"spender\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"deadline\",\"type\":\"uint256\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"name\":\"permit\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"owner\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"spender\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"deadline\",\"type\":\"uint256\"},{\"internalType\":\"uint8\",\"name\":\"v\",\"type\":\"uint8\"},{\"internalType\":\"bytes32\",\"name\":\"r\",\"type\":\"bytes32\"},{\"internalType\":\"bytes32\",\"name\":\"s\",\"type\":\"bytes32\"}],\"name\":\"permit\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"from\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validAfter\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validBefore\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"name\":\"receiveWithAuthorization\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"from\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validAfter\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validBefore\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"},{\"internalType\":\"uint8\",\"name\":\"v\",\"type\":\"uint8\"},{\"internalType\":\"bytes32\",\"name\":\"r\",\"type\":\"bytes32\"},{\"internalType\":\"bytes32\",\"name\":\"s\",\"type\":\"bytes32\"}],\"name\":\"receiveWithAuthorization\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"symbol\",\"outputs\":[{\"internalType\":\"string\",\"name\":\"\",\"type\":\"string\"}],\"stateMutability\":\"pure\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"totalSupply\",\"outputs\":[{\"internalType\":\"uint256\",\"name\":\"\",\"type\":\"uint256\"}],\"stateMutability\":\"view\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"}],\"name\":\"transfer\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"from\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"}],\"name\":\"transferFrom\",\"outputs\":[{\"internalType\":\"bool\",\"name\":\"\",\"type\":\"bool\"}],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"from\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validAfter\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validBefore\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"},{\"internalType\":\"bytes\",\"name\":\"signature\",\"type\":\"bytes\"}],\"name\":\"transferWithAuthorization\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[{\"internalType\":\"address\",\"name\":\"from\",\"type\":\"address\"},{\"internalType\":\"address\",\"name\":\"to\",\"type\":\"address\"},{\"internalType\":\"uint256\",\"name\":\"value\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validAfter\",\"type\":\"uint256\"},{\"internalType\":\"uint256\",\"name\":\"validBefore\",\"type\":\"uint256\"},{\"internalType\":\"bytes32\",\"name\":\"nonce\",\"type\":\"bytes32\"},{\"internalType\":\"uint8\",\"name\":\"v\",\"type\":\"uint8\"},{\"internalType\":\"bytes32\",\"name\":\"r\",\"type\":\"bytes32\"},{\"internalType\":\"bytes32\",\"name\":\"s\",\"type\":\"bytes32\"}],\"name\":\"transferWithAuthorization\",\"outputs\":[],\"stateMutability\":\"nonpayable\",\"type\":\"function\"},{\"inputs\":[],\"name\":\"version\",\"outputs\":[{\"internalType\":\"string\",\"name\":\"\",\"type\":\"string\"}],\"stateMutability\":\"view\",\"type\":\"function\"}]",
	ID:  "Token",
}

// Token is an auto generated Go binding around an Ethereum contract.
type Token struct {
	abi abi.ABI
}

// GetABI returns the ABI associated with this contract binding.
func (c *Token) GetABI() abi.ABI {
	return c.abi
}

// NewToken creates a new instance of Token.
func NewToken() *Token {
	parsed, err := TokenMetaData.ParseABI()
	if err != nil {
		panic(errors.New("invalid ABI: " + err.Error()))
	}
	return &Token{abi: *parsed}
}

// Instance creates a wrapper for a deployed contract instance at the given address.
// Use this to create the instance object passed to abigen v2 library functions Call, Transact, etc.
func (c *Token) Instance(backend bind.ContractBackend, addr common.Address) *bind.BoundContract {
	return bind.NewBoundContract(addr, c.abi, backend, backend, backend)
}

// PackDOMAINSEPARATOR is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x3644e515.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function DOMAIN_SEPARATOR() view returns(bytes32)
func (token *Token) PackDOMAINSEPARATOR() []byte {
	enc, err := token.abi.Pack("DOMAIN_SEPARATOR")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackDOMAINSEPARATOR is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x3644e515.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function DOMAIN_SEPARATOR() view returns(bytes32)
func (token *Token) TryPackDOMAINSEPARATOR() ([]byte, error) {
	return token.abi.Pack("DOMAIN_SEPARATOR")
}

// UnpackDOMAINSEPARATOR is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x3644e515.
//
// Solidity: function DOMAIN_SEPARATOR() view returns(bytes32)
func (token *Token) UnpackDOMAINSEPARATOR(data []byte) ([32]byte, error) {
	out, err := token.abi.Unpack("DOMAIN_SEPARATOR", data)
	if err != nil {
		return *new([32]byte), err
	}
	out0 := *abi.ConvertType(out[0], new([32]byte)).(*[32]byte)
	return out0, nil
}

// PackAllowance is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xdd62ed3e.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function allowance(address , address ) view returns(uint256)
func (token *Token) PackAllowance(arg0 common.Address, arg1 common.Address) []byte {
	enc, err := token.abi.Pack("allowance", arg0, arg1)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackAllowance is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xdd62ed3e.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function allowance(address , address ) view returns(uint256)
func (token *Token) TryPackAllowance(arg0 common.Address, arg1 common.Address) ([]byte, error) {
	return token.abi.Pack("allowance", arg0, arg1)
}

// UnpackAllowance is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0xdd62ed3e.
//
// Solidity: function allowance(address , address ) view returns(uint256)
func (token *Token) UnpackAllowance(data []byte) (*big.Int, error) {
	out, err := token.abi.Unpack("allowance", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// PackApprove is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x095ea7b3.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function approve(address spender, uint256 value) returns(bool)
func (token *Token) PackApprove(spender common.Address, value *big.Int) []byte {
	enc, err := token.abi.Pack("approve", spender, value)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackApprove is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x095ea7b3.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function approve(address spender, uint256 value) returns(bool)
func (token *Token) TryPackApprove(spender common.Address, value *big.Int) ([]byte, error) {
	return token.abi.Pack("approve", spender, value)
}

// UnpackApprove is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x095ea7b3.
//
// Solidity: function approve(address spender, uint256 value) returns(bool)
func (token *Token) UnpackApprove(data []byte) (bool, error) {
	out, err := token.abi.Unpack("approve", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackAuthorizationState is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xe94a0102.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function authorizationState(address , bytes32 ) view returns(bool)
func (token *Token) PackAuthorizationState(arg0 common.Address, arg1 [32]byte) []byte {
	enc, err := token.abi.Pack("authorizationState", arg0, arg1)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackAuthorizationState is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xe94a0102.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function authorizationState(address , bytes32 ) view returns(bool)
func (token *Token) TryPackAuthorizationState(arg0 common.Address, arg1 [32]byte) ([]byte, error) {
	return token.abi.Pack("authorizationState", arg0, arg1)
}

// UnpackAuthorizationState is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0xe94a0102.
//
// Solidity: function authorizationState(address , bytes32 ) view returns(bool)
func (token *Token) UnpackAuthorizationState(data []byte) (bool, error) {
	out, err := token.abi.Unpack("authorizationState", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackBalanceOf is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x70a08231.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function balanceOf(address ) view returns(uint256)
func (token *Token) PackBalanceOf(arg0 common.Address) []byte {
	enc, err := token.abi.Pack("balanceOf", arg0)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackBalanceOf is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x70a08231.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function balanceOf(address ) view returns(uint256)
func (token *Token) TryPackBalanceOf(arg0 common.Address) ([]byte, error) {
	return token.abi.Pack("balanceOf", arg0)
}

// UnpackBalanceOf is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x70a08231.
//
// Solidity: function balanceOf(address ) view returns(uint256)
func (token *Token) UnpackBalanceOf(data []byte) (*big.Int, error) {
	out, err := token.abi.Unpack("balanceOf", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// PackCancelAuthorization is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x5a049a70.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) PackCancelAuthorization(authorizer common.Address, nonce [32]byte, v uint8, r [32]byte, s [32]byte) []byte {
	enc, err := token.abi.Pack("cancelAuthorization", authorizer, nonce, v, r, s)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackCancelAuthorization is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x5a049a70.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) TryPackCancelAuthorization(authorizer common.Address, nonce [32]byte, v uint8, r [32]byte, s [32]byte) ([]byte, error) {
	return token.abi.Pack("cancelAuthorization", authorizer, nonce, v, r, s)
}

// PackCancelAuthorization0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xb7b72899.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature) returns()
func (token *Token) PackCancelAuthorization0(authorizer common.Address, nonce [32]byte, signature []byte) []byte {
	enc, err := token.abi.Pack("cancelAuthorization0", authorizer, nonce, signature)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackCancelAuthorization0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xb7b72899.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature) returns()
func (token *Token) TryPackCancelAuthorization0(authorizer common.Address, nonce [32]byte, signature []byte) ([]byte, error) {
	return token.abi.Pack("cancelAuthorization0", authorizer, nonce, signature)
}

// PackDecimals is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x313ce567.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function decimals() view returns(uint8)
func (token *Token) PackDecimals() []byte {
	enc, err := token.abi.Pack("decimals")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackDecimals is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x313ce567.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function decimals() view returns(uint8)
func (token *Token) TryPackDecimals() ([]byte, error) {
	return token.abi.Pack("decimals")
}

// UnpackDecimals is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x313ce567.
//
// Solidity: function decimals() view returns(uint8)
func (token *Token) UnpackDecimals(data []byte) (uint8, error) {
	out, err := token.abi.Unpack("decimals", data)
	if err != nil {
		return *new(uint8), err
	}
	out0 := *abi.ConvertType(out[0], new(uint8)).(*uint8)
	return out0, nil
}

// PackMint is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x40c10f19.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function mint(address to, uint256 amount) returns(bool)
func (token *Token) PackMint(to common.Address, amount *big.Int) []byte {
	enc, err := token.abi.Pack("mint", to, amount)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackMint is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x40c10f19.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function mint(address to, uint256 amount) returns(bool)
func (token *Token) TryPackMint(to common.Address, amount *big.Int) ([]byte, error) {
	return token.abi.Pack("mint", to, amount)
}

// UnpackMint is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x40c10f19.
//
// Solidity: function mint(address to, uint256 amount) returns(bool)
func (token *Token) UnpackMint(data []byte) (bool, error) {
	out, err := token.abi.Unpack("mint", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackName is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x06fdde03.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function name() pure returns(string)
func (token *Token) PackName() []byte {
	enc, err := token.abi.Pack("name")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackName is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x06fdde03.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function name() pure returns(string)
func (token *Token) TryPackName() ([]byte, error) {
	return token.abi.Pack("name")
}

// UnpackName is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x06fdde03.
//
// Solidity: function name() pure returns(string)
func (token *Token) UnpackName(data []byte) (string, error) {
	out, err := token.abi.Unpack("name", data)
	if err != nil {
		return *new(string), err
	}
	out0 := *abi.ConvertType(out[0], new(string)).(*string)
	return out0, nil
}

// PackNonces is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x7ecebe00.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function nonces(address ) view returns(uint256)
func (token *Token) PackNonces(arg0 common.Address) []byte {
	enc, err := token.abi.Pack("nonces", arg0)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackNonces is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x7ecebe00.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function nonces(address ) view returns(uint256)
func (token *Token) TryPackNonces(arg0 common.Address) ([]byte, error) {
	return token.abi.Pack("nonces", arg0)
}

// UnpackNonces is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x7ecebe00.
//
// Solidity: function nonces(address ) view returns(uint256)
func (token *Token) UnpackNonces(data []byte) (*big.Int, error) {
	out, err := token.abi.Unpack("nonces", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// PackPermit is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x9fd5a6cf.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function permit(address owner, address spender, uint256 value, uint256 deadline, bytes signature) returns()
func (token *Token) PackPermit(owner common.Address, spender common.Address, value *big.Int, deadline *big.Int, signature []byte) []byte {
	enc, err := token.abi.Pack("permit", owner, spender, value, deadline, signature)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackPermit is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x9fd5a6cf.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function permit(address owner, address spender, uint256 value, uint256 deadline, bytes signature) returns()
func (token *Token) TryPackPermit(owner common.Address, spender common.Address, value *big.Int, deadline *big.Int, signature []byte) ([]byte, error) {
	return token.abi.Pack("permit", owner, spender, value, deadline, signature)
}

// PackPermit0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xd505accf.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) PackPermit0(owner common.Address, spender common.Address, value *big.Int, deadline *big.Int, v uint8, r [32]byte, s [32]byte) []byte {
	enc, err := token.abi.Pack("permit0", owner, spender, value, deadline, v, r, s)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackPermit0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xd505accf.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) TryPackPermit0(owner common.Address, spender common.Address, value *big.Int, deadline *big.Int, v uint8, r [32]byte, s [32]byte) ([]byte, error) {
	return token.abi.Pack("permit0", owner, spender, value, deadline, v, r, s)
}

// PackReceiveWithAuthorization is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x88b7ab63.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature) returns()
func (token *Token) PackReceiveWithAuthorization(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, signature []byte) []byte {
	enc, err := token.abi.Pack("receiveWithAuthorization", from, to, value, validAfter, validBefore, nonce, signature)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackReceiveWithAuthorization is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x88b7ab63.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature) returns()
func (token *Token) TryPackReceiveWithAuthorization(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, signature []byte) ([]byte, error) {
	return token.abi.Pack("receiveWithAuthorization", from, to, value, validAfter, validBefore, nonce, signature)
}

// PackReceiveWithAuthorization0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xef55bec6.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) PackReceiveWithAuthorization0(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, v uint8, r [32]byte, s [32]byte) []byte {
	enc, err := token.abi.Pack("receiveWithAuthorization0", from, to, value, validAfter, validBefore, nonce, v, r, s)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackReceiveWithAuthorization0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xef55bec6.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function receiveWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) TryPackReceiveWithAuthorization0(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, v uint8, r [32]byte, s [32]byte) ([]byte, error) {
	return token.abi.Pack("receiveWithAuthorization0", from, to, value, validAfter, validBefore, nonce, v, r, s)
}

// PackSymbol is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x95d89b41.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function symbol() pure returns(string)
func (token *Token) PackSymbol() []byte {
	enc, err := token.abi.Pack("symbol")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackSymbol is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x95d89b41.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function symbol() pure returns(string)
func (token *Token) TryPackSymbol() ([]byte, error) {
	return token.abi.Pack("symbol")
}

// UnpackSymbol is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x95d89b41.
//
// Solidity: function symbol() pure returns(string)
func (token *Token) UnpackSymbol(data []byte) (string, error) {
	out, err := token.abi.Unpack("symbol", data)
	if err != nil {
		return *new(string), err
	}
	out0 := *abi.ConvertType(out[0], new(string)).(*string)
	return out0, nil
}

// PackTotalSupply is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x18160ddd.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function totalSupply() view returns(uint256)
func (token *Token) PackTotalSupply() []byte {
	enc, err := token.abi.Pack("totalSupply")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackTotalSupply is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x18160ddd.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function totalSupply() view returns(uint256)
func (token *Token) TryPackTotalSupply() ([]byte, error) {
	return token.abi.Pack("totalSupply")
}

// UnpackTotalSupply is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x18160ddd.
//
// Solidity: function totalSupply() view returns(uint256)
func (token *Token) UnpackTotalSupply(data []byte) (*big.Int, error) {
	out, err := token.abi.Unpack("totalSupply", data)
	if err != nil {
		return new(big.Int), err
	}
	out0 := abi.ConvertType(out[0], new(big.Int)).(*big.Int)
	return out0, nil
}

// PackTransfer is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xa9059cbb.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function transfer(address to, uint256 value) returns(bool)
func (token *Token) PackTransfer(to common.Address, value *big.Int) []byte {
	enc, err := token.abi.Pack("transfer", to, value)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackTransfer is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xa9059cbb.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function transfer(address to, uint256 value) returns(bool)
func (token *Token) TryPackTransfer(to common.Address, value *big.Int) ([]byte, error) {
	return token.abi.Pack("transfer", to, value)
}

// UnpackTransfer is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0xa9059cbb.
//
// Solidity: function transfer(address to, uint256 value) returns(bool)
func (token *Token) UnpackTransfer(data []byte) (bool, error) {
	out, err := token.abi.Unpack("transfer", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackTransferFrom is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x23b872dd.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function transferFrom(address from, address to, uint256 value) returns(bool)
func (token *Token) PackTransferFrom(from common.Address, to common.Address, value *big.Int) []byte {
	enc, err := token.abi.Pack("transferFrom", from, to, value)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackTransferFrom is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x23b872dd.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function transferFrom(address from, address to, uint256 value) returns(bool)
func (token *Token) TryPackTransferFrom(from common.Address, to common.Address, value *big.Int) ([]byte, error) {
	return token.abi.Pack("transferFrom", from, to, value)
}

// UnpackTransferFrom is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x23b872dd.
//
// Solidity: function transferFrom(address from, address to, uint256 value) returns(bool)
func (token *Token) UnpackTransferFrom(data []byte) (bool, error) {
	out, err := token.abi.Unpack("transferFrom", data)
	if err != nil {
		return *new(bool), err
	}
	out0 := *abi.ConvertType(out[0], new(bool)).(*bool)
	return out0, nil
}

// PackTransferWithAuthorization is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xcf092995.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature) returns()
func (token *Token) PackTransferWithAuthorization(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, signature []byte) []byte {
	enc, err := token.abi.Pack("transferWithAuthorization", from, to, value, validAfter, validBefore, nonce, signature)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackTransferWithAuthorization is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xcf092995.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature) returns()
func (token *Token) TryPackTransferWithAuthorization(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, signature []byte) ([]byte, error) {
	return token.abi.Pack("transferWithAuthorization", from, to, value, validAfter, validBefore, nonce, signature)
}

// PackTransferWithAuthorization0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xe3ee160e.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) PackTransferWithAuthorization0(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, v uint8, r [32]byte, s [32]byte) []byte {
	enc, err := token.abi.Pack("transferWithAuthorization0", from, to, value, validAfter, validBefore, nonce, v, r, s)
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackTransferWithAuthorization0 is the Go binding used to pack the parameters required for calling
// the contract method with ID 0xe3ee160e.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s) returns()
func (token *Token) TryPackTransferWithAuthorization0(from common.Address, to common.Address, value *big.Int, validAfter *big.Int, validBefore *big.Int, nonce [32]byte, v uint8, r [32]byte, s [32]byte) ([]byte, error) {
	return token.abi.Pack("transferWithAuthorization0", from, to, value, validAfter, validBefore, nonce, v, r, s)
}

// PackVersion is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x54fd4d50.  This method will panic if any
// invalid/nil inputs are passed.
//
// Solidity: function version() view returns(string)
func (token *Token) PackVersion() []byte {
	enc, err := token.abi.Pack("version")
	if err != nil {
		panic(err)
	}
	return enc
}

// TryPackVersion is the Go binding used to pack the parameters required for calling
// the contract method with ID 0x54fd4d50.  This method will return an error
// if any inputs are invalid/nil.
//
// Solidity: function version() view returns(string)
func (token *Token) TryPackVersion() ([]byte, error) {
	return token.abi.Pack("version")
}

// UnpackVersion is the Go binding that unpacks the parameters returned
// from invoking the contract method with ID 0x54fd4d50.
//
// Solidity: function version() view returns(string)
func (token *Token) UnpackVersion(data []byte) (string, error) {
	out, err := token.abi.Unpack("version", data)
	if err != nil {
		return *new(string), err
	}
	out0 := *abi.ConvertType(out[0], new(string)).(*string)
	return out0, nil
}

// TokenApproval represents a Approval event raised by the Token contract.
type TokenApproval struct {
	Owner   common.Address
	Spender common.Address
	Value   *big.Int
	Raw     *types.Log // Blockchain specific contextual infos
}

const TokenApprovalEventName = "Approval"

// ContractEventName returns the user-defined event name.
func (TokenApproval) ContractEventName() string {
	return TokenApprovalEventName
}

// UnpackApprovalEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event Approval(address indexed owner, address indexed spender, uint256 value)
func (token *Token) UnpackApprovalEvent(log *types.Log) (*TokenApproval, error) {
	event := "Approval"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != token.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(TokenApproval)
	if len(log.Data) > 0 {
		if err := token.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range token.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// TokenAuthorizationCanceled represents a AuthorizationCanceled event raised by the Token contract.
type TokenAuthorizationCanceled struct {
	Authorizer common.Address
	Nonce      [32]byte
	Raw        *types.Log // Blockchain specific contextual infos
}

const TokenAuthorizationCanceledEventName = "AuthorizationCanceled"

// ContractEventName returns the user-defined event name.
func (TokenAuthorizationCanceled) ContractEventName() string {
	return TokenAuthorizationCanceledEventName
}

// UnpackAuthorizationCanceledEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)
func (token *Token) UnpackAuthorizationCanceledEvent(log *types.Log) (*TokenAuthorizationCanceled, error) {
	event := "AuthorizationCanceled"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != token.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(TokenAuthorizationCanceled)
	if len(log.Data) > 0 {
		if err := token.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range token.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// TokenAuthorizationUsed represents a AuthorizationUsed event raised by the Token contract.
type TokenAuthorizationUsed struct {
	Authorizer common.Address
	Nonce      [32]byte
	Raw        *types.Log // Blockchain specific contextual infos
}

const TokenAuthorizationUsedEventName = "AuthorizationUsed"

// ContractEventName returns the user-defined event name.
func (TokenAuthorizationUsed) ContractEventName() string {
	return TokenAuthorizationUsedEventName
}

// UnpackAuthorizationUsedEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)
func (token *Token) UnpackAuthorizationUsedEvent(log *types.Log) (*TokenAuthorizationUsed, error) {
	event := "AuthorizationUsed"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != token.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(TokenAuthorizationUsed)
	if len(log.Data) > 0 {
		if err := token.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range token.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}

// TokenTransfer represents a Transfer event raised by the Token contract.
type TokenTransfer struct {
	From  common.Address
	To    common.Address
	Value *big.Int
	Raw   *types.Log // Blockchain specific contextual infos
}

const TokenTransferEventName = "Transfer"

// ContractEventName returns the user-defined event name.
func (TokenTransfer) ContractEventName() string {
	return TokenTransferEventName
}

// UnpackTransferEvent is the Go binding that unpacks the event data emitted
// by contract.
//
// Solidity: event Transfer(address indexed from, address indexed to, uint256 value)
func (token *Token) UnpackTransferEvent(log *types.Log) (*TokenTransfer, error) {
	event := "Transfer"
	if len(log.Topics) == 0 {
		return nil, bind.ErrNoEventSignature
	}
	if log.Topics[0] != token.abi.Events[event].ID {
		return nil, bind.ErrEventSignatureMismatch
	}
	out := new(TokenTransfer)
	if len(log.Data) > 0 {
		if err := token.abi.UnpackIntoInterface(out, event, log.Data); err != nil {
			return nil, err
		}
	}
	var indexed abi.Arguments
	for _, arg := range token.abi.Events[event].Inputs {
		if arg.Indexed {
			indexed = append(indexed, arg)
		}
	}
	if err := abi.ParseTopics(out, indexed, log.Topics[1:]); err != nil {
		return nil, err
	}
	out.Raw = log
	return out, nil
}
