package api

import (
	"bytes"
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// unknownMembers returns the paths of members of a creating request that were passed over.
func unknownMembers(body []byte, in any) []string {
	if own, ok := in.(interface{ UnknownMembers(data []byte) []string }); ok {
		return own.UnknownMembers(body)
	}
	return x402.UnknownMembers(body, in)
}

// warned returns an answer with the unknown members of its request in warnings, after those that it has. It keeps a typed
// nil out of the answer.
func (c *call) warned(out any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	warnings := c.warnings
	for _, path := range c.unknown {
		warnings = append(warnings, toll.Warning{Message: path})
	}
	if len(warnings) == 0 {
		return out, nil
	}
	if t, ok := out.(*toll.AccessToken); ok {
		token := *t
		token.Warnings = append(slices.Clip(t.Warnings), warnings...)
		return &token, nil
	}
	body, err := encode(out)
	if err != nil {
		return nil, err
	}
	list, err := x402.Encode(warnings)
	if err != nil {
		return nil, err
	}
	members, isObject := bytes.CutSuffix(body, []byte("}"))
	if !isObject || len(members) < 2 {
		return encoded(body), nil
	}
	return encoded(slices.Concat(members, []byte(`,"warnings":`), list, []byte("}"))), nil
}
