package x402

import (
	stdjson "encoding/json"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhq/toll"
)

// looseRequirements accepts integers as amounts, checks ids, and accepts "" or 0 as sent by clients for a minimal entry (wire
// contract, section 15).
type looseRequirements struct {
	Scheme            string              `json:"scheme"`
	Network           string              `json:"network"`
	Amount            looseAmount         `json:"amount"`
	Asset             string              `json:"asset"`
	PayTo             string              `json:"payTo"`
	MaxTimeoutSeconds orNone[toll.Int]    `json:"maxTimeoutSeconds"`
	PlanID            orNone[toll.PlanID] `json:"planId"`
	Extra             looseRequExtra      `json:"extra"`
}

type looseRequExtra struct {
	Version     string               `json:"version"`
	PlanID      orNone[toll.PlanID]  `json:"planId"`
	AgentID     orNone[toll.AgentID] `json:"agentId"`
	HTTPVerb    string               `json:"httpVerb"`
	PaymentFlow string               `json:"paymentFlow"`
	PlanURL     looseText            `json:"planUrl"`
	OrderURL    looseText            `json:"orderUrl"`
	SignInURL   looseText            `json:"signInUrl"`
}

// UnmarshalJSONFrom implements the streaming form of json.Unmarshaler.
func (r *Requirements) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var l looseRequirements
	if err := json.UnmarshalDecode(dec, &l); err != nil {
		return err
	}
	*r = Requirements{
		Scheme: l.Scheme, Network: l.Network, Amount: string(l.Amount), Asset: l.Asset, PayTo: l.PayTo,
		MaxTimeoutSeconds: l.MaxTimeoutSeconds.v, PlanID: string(l.PlanID.v),
		Extra: RequirementsExtra{
			Version: l.Extra.Version, PlanID: string(l.Extra.PlanID.v), AgentID: string(l.Extra.AgentID.v),
			HTTPVerb: l.Extra.HTTPVerb, PaymentFlow: l.Extra.PaymentFlow,
			PlanURL: string(l.Extra.PlanURL), OrderURL: string(l.Extra.OrderURL), SignInURL: string(l.Extra.SignInURL),
		},
	}
	return nil
}

func (r *Requirements) explain(raw []byte) error {
	var rep report
	rep.walk(raw, reflect.TypeFor[looseRequirements](), "")
	return rep.err()
}

func isBlank(b []byte) bool { return string(b) == "null" || string(b) == `""` }

type looseAmount string

// UnmarshalJSON accepts a decimal string or an integer below 2^256, or "".
func (a *looseAmount) UnmarshalJSON(b []byte) error {
	if isBlank(b) {
		return nil
	}
	if len(b) > 1 && b[0] == '"' {
		b = b[1 : len(b)-1]
	}
	if c, err := toll.ParseCredits(string(b)); err == nil {
		*a = looseAmount(c.String())
		return nil
	}
	u, err := toll.ParseUnits(string(b)) // entries of other schemes count in base units
	if err == nil {
		*a = looseAmount(u.String())
	}
	return err
}

type looseText string

// UnmarshalJSON accepts a string. Anything else counts as "", since the member has no effect.
func (s *looseText) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*s = looseText(text)
	}
	return nil
}

// orNone is a T, or zero for "" or null.
type orNone[T any] struct{ v T }

// UnmarshalJSON implements json.Unmarshaler.
func (o *orNone[T]) UnmarshalJSON(b []byte) error {
	if isBlank(b) {
		return nil
	}
	return any(&o.v).(stdjson.Unmarshaler).UnmarshalJSON(b)
}
