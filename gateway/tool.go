package gateway

import (
	"context"
)

// Effect is what a tool can change. Tools that spend or write need the owner ([Config.OwnerOnlySpending]).
type Effect string

// Effects.
const (
	EffectRead  Effect = "read"
	EffectSpend Effect = "spend" // may pay, or make something that can pay
	EffectWrite Effect = "write" // registers agents and plans
)

// kind is the type of an argument. Every kind also accepts the text of its value, since hosts differ in what they coerce.
type kind int

const (
	kindText    kind = iota // a string of 1 to param.most characters
	kindID                  // a decimal uint256, as text
	kindInteger             // an integer from param.least to param.most
	kindFlag                // true, false, "true", "false"; nothing else
	kindList                // an array of texts, or one text with commas
	kindURL                 // an agent URL, see agentURL
)

// param is one argument of a tool.
type param struct {
	name        string
	kind        kind
	required    bool
	description string
	oneOf       []string // values of a text; nil for any
	least, most int64    // bounds of an integer; most characters of a text, 0: 2,000
	fallback    any      // is the documented default; nil when it comes from the configuration, or there is none
}

// tool is one row of the registry.
type tool struct {
	name        string // without the word of the namespace, for example "checkBalance"
	title       string
	description string // at most 500 characters; names no other tool, since hosts rename tools
	effect      Effect
	params      []param
	output      any // zero value of the result: its schema is derived from the type
	run         func(ctx context.Context, c *call) (any, error)
}

// Caller is the person behind a call, as the host reports it.
type Caller struct {
	SessionKey    string `json:"sessionKey"`    // at most 256 characters; names one conversation
	SenderID      string `json:"senderId"`      // at most 256 characters
	SenderIsOwner bool   `json:"senderIsOwner"` // false for an unknown sender
	Channel       string `json:"channel"`       // at most 64 characters
}

// call is one call of a tool while it runs.
type call struct {
	core     *Core
	account  *account
	args     arguments
	id       string // of the host; "" when it gives none
	caller   Caller
	warnings []string // go into the result
}

// warn adds a sentence to the warnings of the result.
func (c *call) warn(sentence string) { c.warnings = append(c.warnings, sentence) }
