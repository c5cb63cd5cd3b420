package userop_test

import (
	"bytes"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// revert is what a contract reverts with.
func revert(t testing.TB, signature string, args ...any) []byte {
	t.Helper()
	_, types, _ := strings.Cut(strings.TrimSuffix(signature, ")"), "(")
	var arguments abi.Arguments
	for _, name := range strings.FieldsFunc(types, func(r rune) bool { return r == ',' }) {
		of := must.Get(abi.NewType(name, "", nil))(t)
		arguments = append(arguments, abi.Argument{Type: of})
	}
	b := must.Get(arguments.Pack(args...))(t)
	return append(crypto.Keccak256([]byte(signature))[:4], b...)
}

func TestReason(t *testing.T) {
	zero := big.NewInt(0)
	invalid := revert(t, "ECDSAInvalidSignature()")
	for want, data := range map[string][]byte{
		"": nil,
		"ERC20TransferAmountEnforcer:allowance-exceeded": revert(t, "Error(string)", "ERC20TransferAmountEnforcer:allowance-exceeded"),
		"Panic(0x11)": revert(t, "Panic(uint256)", big.NewInt(0x11)),
		`FailedOp(0, "AA25 invalid account nonce")`:                       revert(t, "FailedOp(uint256,string)", zero, "AA25 invalid account nonce"),
		`FailedOp(1, "AA21 didn't pay prefund")`:                          revert(t, "FailedOp(uint256,string)", big.NewInt(1), "AA21 didn't pay prefund"),
		`FailedOpWithRevert(0, "AA23 reverted", ECDSAInvalidSignature())`: revert(t, "FailedOpWithRevert(uint256,string,bytes)", zero, "AA23 reverted", invalid),
		`FailedOpWithRevert(0, "AA23 reverted", )`:                        revert(t, "FailedOpWithRevert(uint256,string,bytes)", zero, "AA23 reverted", []byte{}),
		"ECDSAInvalidSignatureLength(0)":                                  revert(t, "ECDSAInvalidSignatureLength(uint256)", zero),
		"ECDSAInvalidSignature()":                                         invalid,
		"InvalidDelegate()":                                               revert(t, "InvalidDelegate()"),
		"CannotUseADisabledDelegation()":                                  revert(t, "CannotUseADisabledDelegation()"),
		"AlreadyDisabled()":                                               revert(t, "AlreadyDisabled()"),
		"NotEntryPointOrSelf()":                                           revert(t, "NotEntryPointOrSelf()"),
		"BatchDataLengthMismatch()":                                       revert(t, "BatchDataLengthMismatch()"),
		"InvalidERC1271Signature()":                                       revert(t, "InvalidERC1271Signature()"),
		"InvalidEOASignature()":                                           revert(t, "InvalidEOASignature()"),
		"EnforcedPause()":                                                 revert(t, "EnforcedPause()"),
		"UnsupportedCallType(0x2)":                                        revert(t, "UnsupportedCallType(bytes1)", [1]byte{2}),
		"NotOperator()":                                                   revert(t, "NotOperator()"),
		"PeriodNotAfter(7)":                                               revert(t, "PeriodNotAfter(uint64)", uint64(7)),
		"OwnableInvalidOwner(0x1111111111111111111111111111111111111111)": revert(t, "OwnableInvalidOwner(address)", receiver),
		"DelegateAndRevert(true, Panic(0x1))":                             revert(t, "DelegateAndRevert(bool,bytes)", true, revert(t, "Panic(uint256)", big.NewInt(1))),
		"0x01020304":                                                      {1, 2, 3, 4, 5, 6},
		"0x0102":                                                          {1, 2},
		"0x08c379a0":                                                      revert(t, "Error(string)", "cut off")[:40],
		`one\nline\x00 \"quoted\" \xff ` + "\u00e9":                       revert(t, "Error(string)", "one\nline\x00 \"quoted\" \xff \u00e9"),
		"ECDSAInvalidSignatureS(" + common.Hash{31: 1}.Hex() + ")":        revert(t, "ECDSAInvalidSignatureS(bytes32)", common.Hash{31: 1}),
		`FailedOp(0, "a \"quote\"")`:                                      revert(t, "FailedOp(uint256,string)", zero, `a "quote"`),
	} {
		if got := userop.Reason(data); got != want {
			t.Errorf("%x: %s, want %s", data, got, want)
		}
	}
}

// The selectors, as the published contracts have them.
func TestReason_Selectors(t *testing.T) {
	for data, want := range map[string]string{
		"05baa052": "CannotUseADisabledDelegation()", "f645eedf": "ECDSAInvalidSignature()", "d93c0665": "EnforcedPause()",
	} {
		b, _ := hex.DecodeString(data)
		if got := userop.Reason(b); got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
}

func TestReason_Bounded(t *testing.T) {
	long := userop.Reason(revert(t, "Error(string)", strings.Repeat("x", 1<<16)))
	if len(long) != 512 {
		t.Errorf("%d bytes", len(long))
	}
	data := revert(t, "NotSelf()")
	for range 1000 {
		data = revert(t, "PostOpReverted(bytes)", data)
	}
	if got, want := userop.Reason(data), "PostOpReverted(PostOpReverted(PostOpReverted(PostOpReverted("; !strings.HasPrefix(got, want) || len(got) > 100 {
		t.Errorf("%.200s", got)
	}
}

// Whatever a contract reverts with becomes a short line of text.
func FuzzReason(f *testing.F) {
	inner := revert(f, "Error(string)", "no")
	f.Add(revert(f, "FailedOpWithRevert(uint256,string,bytes)", big.NewInt(1), "AA23 reverted", inner))
	f.Add(inner[:67])
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := userop.Reason(data)
		if len(got) > 8*512 || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%x: %q", data, got)
		}
	})
}
