package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/accounts/abi/abigen"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// encode makes contracts.gen.json, which the package contracts reads.
func encode(published []deployment, ours map[string]compiled) ([]byte, error) {
	type mirror struct {
		CreationCode hexutil.Bytes `json:"creationCode"`
		RuntimeCode  hexutil.Bytes `json:"runtimeCode"`
		Operator     []int         `json:"operator"` // offsets of the immutable in RuntimeCode
	}
	for _, token := range []string{"DevUSDC", "DevEURC"} {
		if len(ours[token].Runtime) == 0 || len(ours[token].Immutables) > 0 {
			return nil, fmt.Errorf("%s cannot be put into a genesis", token)
		}
	}
	m := ours["CreditMirror"]
	document := struct {
		Contracts    []deployment             `json:"contracts"`
		Tokens       map[string]hexutil.Bytes `json:"tokens"` // runtime code
		CreditMirror mirror                   `json:"creditMirror"`
	}{published, map[string]hexutil.Bytes{"USDC": ours["DevUSDC"].Runtime, "EURC": ours["DevEURC"].Runtime}, mirror{m.Creation, m.Runtime, m.Immutables}}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "\t")
	err := e.Encode(document)
	return out.Bytes(), err
}

// bound lists the functions, events and errors that the bindings have.
var bound = []struct {
	name  string
	names []string
}{
	{"EntryPoint", []string{"handleOps", "incrementNonce", "getNonce", "getUserOpHash", "UserOperationEvent", "UserOperationRevertReason",
		"FailedOp", "FailedOpWithRevert"}},
	{"DelegationManager", []string{"redeemDelegations", "disableDelegation", "disabledDelegations", "getDelegationHash", "getDomainHash",
		"paused", "RedeemedDelegation", "DisabledDelegation", "AlreadyDisabled", "BatchDataLengthMismatch", "CannotUseADisabledDelegation",
		"EnforcedPause", "InvalidDelegate", "InvalidEOASignature", "InvalidERC1271Signature"}},
	{"EIP7702StatelessDeleGator", []string{"execute", "disableDelegation", "isValidSignature", "getPackedUserOperationTypedDataHash",
		"NotEntryPointOrSelf", "ECDSAInvalidSignature", "ECDSAInvalidSignatureLength"}},
	{"ERC20TransferAmountEnforcer", []string{"spentMap", "IncreasedSpentMap"}},
	{"NativeTokenTransferAmountEnforcer", []string{"spentMap", "IncreasedSpentMap"}},
	{"LimitedCallsEnforcer", []string{"callCounts"}},
	{"Token", []string{"name", "symbol", "decimals", "version", "totalSupply", "balanceOf", "allowance", "nonces", "authorizationState",
		"DOMAIN_SEPARATOR", "mint", "transfer", "transferFrom", "approve", "permit", "transferWithAuthorization",
		"receiveWithAuthorization", "cancelAuthorization", "Transfer", "Approval", "AuthorizationUsed", "AuthorizationCanceled"}},
	{"CreditMirror", []string{"operator", "lastPeriod", "anchor", "check", "Anchored", "NotOperator", "PeriodNotAfter"}},
}

// bind makes the file that `abigen --v2` of this version of go-ethereum makes, from the bound part of each ABI.
func bind(abis map[string][]byte) ([]byte, error) {
	var types, texts, codes []string
	for _, b := range bound {
		var all []map[string]any
		if err := json.Unmarshal(abis[b.name], &all); err != nil {
			return nil, fmt.Errorf("ABI of %s: %w", b.name, err)
		}
		var kept []map[string]any
		seen := make(map[string]bool)
		for _, one := range all {
			name, _ := one["name"].(string)
			if slices.Contains(b.names, name) {
				kept = append(kept, one)
				seen[name] = true
			}
		}
		for _, name := range b.names {
			if !seen[name] {
				return nil, fmt.Errorf("ABI of %s has no %s", b.name, name)
			}
		}
		text, err := json.Marshal(kept)
		if err != nil {
			return nil, err
		}
		types, texts, codes = append(types, b.name), append(texts, string(text)), append(codes, "")
	}
	code, err := abigen.BindV2(types, texts, codes, "bindings", nil, nil)
	return []byte(code), err
}
