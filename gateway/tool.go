package gateway

import (
	"context"

	"github.com/tollhq/toll"
)

// Effect classifies the changes that a tool can make. Tools that spend or write require the owner, see [Config.OwnerOnlySpending].
type Effect string

// Values of [Effect].
const (
	EffectRead  Effect = "read"
	EffectSpend Effect = "spend" // may pay, or create something that can pay
	EffectWrite Effect = "write" // registers agents and plans
)

// kind is the type of an argument. Every kind also accepts its value as a string, because hosts convert arguments differently.
type kind int

const (
	kindText    kind = iota // a string of 1 to param.most characters
	kindID                  // a decimal uint256, as text
	kindInteger             // an integer from param.least to param.most
	kindFlag                // true, false, "true", "false"; any other value counts as false
	kindList                // an array of texts, or one text with commas
	kindURL                 // an agent URL, see agentURL
)

// param is one argument of a tool.
type param struct {
	name        string
	kind        kind
	required    bool
	description string
	oneOf       []string // accepted values of a text; nil means any
	least, most int64    // range of an integer; most is also the length limit of a text, 0 means 2,000
	fallback    any      // documented default; nil if the configuration sets it or there is none
}

// tool is an entry of the registry.
type tool struct {
	name        string // without the word of the namespace, for example "checkBalance"
	title       string
	description string // at most 500 characters, without names of other tools, because hosts rename tools
	effect      Effect
	params      []param
	output      any // zero value of the result; its type determines the output schema
	run         func(ctx context.Context, c *call) (any, error)
}

// Caller describes the sender of a call, as reported by the host.
type Caller struct {
	SessionKey    string `json:"sessionKey"`    // at most 256 bytes; identifies one conversation
	SenderID      string `json:"senderId"`      // at most 256 bytes
	SenderIsOwner bool   `json:"senderIsOwner"` // false for an unknown sender
	Channel       string `json:"channel"`       // at most 64 bytes
}

// call is a running call of a tool.
type call struct {
	core     *Core
	account  *account
	address  toll.Address // of the account; zero for a tool that only reads
	args     arguments
	id       string // from the host, or ""
	caller   Caller
	warnings []string // added to the result
}

// warn adds a sentence to the warnings of the result.
func (c *call) warn(sentence string) { c.warnings = append(c.warnings, sentence) }
