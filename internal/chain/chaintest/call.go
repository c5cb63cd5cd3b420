package chaintest

import (
	"bytes"
	"encoding/json"

	"github.com/ethereum/go-ethereum/accounts/abi"
)

// Call encodes the call of a function, named by its signature, with the encoder of go-ethereum, which shares nothing with the
// rooms under test. A tuple is a struct with the fields Name0, Name1 and so on. It panics when the arguments do not fit.
func Call(signature string, args ...any) []byte {
	function, err := abi.ParseSelector(signature)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal([]abi.SelectorMarshaling{function})
	if err != nil {
		panic(err)
	}
	contract, err := abi.JSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	data, err := contract.Pack(function.Name, args...)
	if err != nil {
		panic(err)
	}
	return data
}
