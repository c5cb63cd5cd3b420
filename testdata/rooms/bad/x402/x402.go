package x402

import (
	"encoding/json"

	"example.com/allowed/below" // want `x402 must not import example.com/allowed/below`
	"example.org/bad"
	"example.org/bad/internal/api" // want `x402 must not import internal/api`
)

const (
	Name   = bad.Name
	scheme = "svc:erc4337"     // want `a brand word outside of x402/namespace.go`
	header = "Service-Version" // want `a brand word outside of x402/namespace.go`
	prose  = "The service is not there."
)

func read(b []byte, v any) error {
	_ = api.Name
	_ = below.Word
	return json.Unmarshal(b, v) // want `messages are read by x402.Decode`
}
