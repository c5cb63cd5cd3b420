package main

import (
	"bytes"
	"encoding/json"
	"fmt"

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
