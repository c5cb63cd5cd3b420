package userop

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
)

// customErrors of the EntryPoint, the DelegationManager, the account code, their libraries, the tokens and our contracts.
var customErrors = bySelector(
	"FailedOp(uint256,string)", "FailedOpWithRevert(uint256,string,bytes)", "PostOpReverted(bytes)",
	"SignatureValidationFailed(address)", "SenderAddressResult(address)", "DelegateAndRevert(bool,bytes)",
	"ReentrancyGuardReentrantCall()",

	"AlreadyDisabled()", "AlreadyEnabled()", "BatchDataLengthMismatch()", "CannotUseADisabledDelegation()", "EmptySignature()",
	"InvalidAuthority()", "InvalidDelegate()", "InvalidDelegator()", "InvalidEOASignature()", "InvalidERC1271Signature()",
	"EnforcedPause()", "ExpectedPause()", "OwnableInvalidOwner(address)", "OwnableUnauthorizedAccount(address)",
	"ECDSAInvalidSignature()", "ECDSAInvalidSignatureLength(uint256)", "ECDSAInvalidSignatureS(bytes32)",
	"InvalidShortString()", "StringTooLong(string)",

	"NotDelegationManager()", "NotEntryPoint()", "NotEntryPointOrSelf()", "NotSelf()", "ExecutionFailed()",
	"UnsupportedCallType(bytes1)", "UnsupportedExecType(bytes1)", "UnauthorizedCallContext()", "UUPSUnauthorizedCallContext()",
	"InvalidEIP712NameLength()", "InvalidEIP712VersionLength()",

	"AddressEmptyCode(address)", "AddressInsufficientBalance(address)", "FailedInnerCall()", "FailedCall()",
	"InsufficientBalance(uint256,uint256)", "SafeERC20FailedOperation(address)",
	"ERC20InsufficientBalance(address,uint256,uint256)", "ERC20InsufficientAllowance(address,uint256,uint256)",
	"ERC20InvalidReceiver(address)", "ERC20InvalidSender(address)",

	"NotOperator()", "PeriodNotAfter(uint64)",

	"Error(string)", "Panic(uint256)",
)

func bySelector(signatures ...string) map[[4]byte]string {
	m := make(map[[4]byte]string, len(signatures))
	for _, s := range signatures {
		m[[4]byte(selector(s))] = s
	}
	return m
}

const (
	maxReason = 512 // bytes of text that a contract may put into a reason
	maxDepth  = 4   // of reasons in reasons
)

// Reason is the text of revert data: the message of Error(string) as it is; a known custom error with its arguments, as in
// FailedOp(0, "AA25 invalid account nonce"), where inner revert data is decoded in the same way; the selector, as in
// 0x01020304, when the error is unknown or does not decode; "" for no data. Strange contracts choose this text: it is one
// line of printable UTF-8 of bounded length, and decides nothing by itself.
func Reason(data []byte) string { return reason(data, 0) }

func reason(data []byte, depth int) string {
	if len(data) == 0 {
		return ""
	}
	if len(data) < 4 || depth == maxDepth {
		return "0x" + hex.EncodeToString(data[:min(len(data), 4)])
	}
	unknown := "0x" + hex.EncodeToString(data[:4])
	signature, known := customErrors[[4]byte(data)]
	if !known {
		return unknown
	}
	name, types, _ := strings.Cut(strings.TrimSuffix(signature, ")"), "(")
	var arguments abi.Arguments
	if types != "" {
		for _, t := range strings.Split(types, ",") {
			of, err := abi.NewType(t, "", nil)
			if err != nil {
				return unknown
			}
			arguments = append(arguments, abi.Argument{Type: of})
		}
	}
	values, err := arguments.Unpack(data[4:])
	if err != nil && len(arguments) > 0 {
		return unknown
	}
	texts := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case string:
			v = printable(v)
			if name == "Error" {
				return v
			}
			texts[i] = `"` + v + `"`
		case []byte:
			texts[i] = reason(v, depth+1)
		case *big.Int:
			if texts[i] = v.String(); name == "Panic" {
				texts[i] = fmt.Sprintf("%#x", v)
			}
		case common.Address:
			texts[i] = v.Hex()
		case [32]byte:
			texts[i] = common.Hash(v).Hex()
		case [1]byte:
			texts[i] = fmt.Sprintf("%#x", v[0])
		default:
			texts[i] = fmt.Sprint(v)
		}
	}
	return name + "(" + strings.Join(texts, ", ") + ")"
}

// printable cuts a text at maxReason bytes and escapes what does not print.
func printable(s string) string {
	quoted := strconv.Quote(s[:min(len(s), maxReason)])
	return quoted[1 : len(quoted)-1]
}
