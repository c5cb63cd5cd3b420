package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// encode makes contracts.gen.json, which the package contracts reads.
func encode(published []contracts.Artifact, ours map[string]compiled) ([]byte, error) {
	for _, token := range []string{"DevUSDC", "DevEURC"} {
		if len(ours[token].Runtime) == 0 || len(ours[token].Immutables) > 0 {
			return nil, fmt.Errorf("%s cannot be put into a genesis", token)
		}
	}
	document := contracts.Artifacts{
		Contracts: published, Tokens: map[string]hexutil.Bytes{"USDC": ours["DevUSDC"].Runtime, "EURC": ours["DevEURC"].Runtime},
	}
	m, mirror := ours["CreditMirror"], &document.CreditMirror
	mirror.CreationCode, mirror.RuntimeCode, mirror.Operator = m.Creation, m.Runtime, m.Immutables
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "\t")
	err := e.Encode(document)
	return out.Bytes(), err
}
