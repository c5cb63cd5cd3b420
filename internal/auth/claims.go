package auth

import (
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/tollhq/toll"
)

// Claims are what an access token says (wire contract, section 14). Each value stands once here; on the wire some are
// repeated, and the repeats agree.
type Claims struct {
	Issuer     string       // {base_url}; [Auth.SignToken] fills it in when empty
	Audience   []string     // holds {Issuer}/x402; SignToken adds it when missing
	Subscriber toll.Address // sub, subscriberAddress, authorization.from
	Hash       toll.Hash    // jti, the permission hash
	IssuedAt   time.Time    // whole seconds
	NotBefore  time.Time    // whole seconds; zero = not set
	ExpiresAt  time.Time    // whole seconds
	PlanID     toll.PlanID
	AgentID    toll.AgentID // empty = not bound to one agent
	// RedemptionLimit is the most credits that the token may burn in its life, nil = no limit.
	RedemptionLimit *toll.Credits
	// OrderLimit is the most top-up orders that the token may cause, nil = no limit.
	OrderLimit *int64
	// PlanMin and PlanMax are the least and the most credits that a request of the plan burns, PerOrder is what an order of
	// it grants; nil when the token does not say.
	PlanMin, PlanMax, PerOrder *toll.Credits

	Scheme  string // for example "svc:erc4337"
	Network string // CAIP-2 id, or the card network
}

// lastSecond is 9999-12-31T23:59:59Z, the last moment that the wire format of times can write.
const lastSecond = 253402300799

var errContradiction = errors.New("auth: the claims are incomplete or contradict each other")

// wireClaims is the payload in the member order of the wire contract.
type wireClaims struct {
	Issuer        string            `json:"iss"`
	Subject       toll.Address      `json:"sub"`
	Audience      audience          `json:"aud"`
	ID            toll.Hash         `json:"jti"`
	IssuedAt      *int64            `json:"iat"`
	ExpiresAt     *int64            `json:"exp"`
	NotBefore     *int64            `json:"nbf,omitempty"`
	PlanID        toll.PlanID       `json:"planId"`
	AgentID       toll.AgentID      `json:"agentId,omitempty"`
	Subscriber    toll.Address      `json:"subscriberAddress"`
	Authorization wireAuthorization `json:"authorization"`
	Credits       wireCredits       `json:"credits"`
	X402Version   int64             `json:"x402Version"`
	Accepted      wireAccepted      `json:"accepted"`
}

type wireAuthorization struct {
	From    toll.Address `json:"from"`
	PlanID  toll.PlanID  `json:"planId"`
	AgentID toll.AgentID `json:"agentId,omitempty"`
}

type wireCredits struct {
	RedemptionLimit *toll.Credits `json:"redemptionLimit,omitempty"`
	OrderLimit      *int64        `json:"orderLimit,omitempty"`
	PlanMin         *toll.Credits `json:"planMin,omitempty"`
	PlanMax         *toll.Credits `json:"planMax,omitempty"`
	PerOrder        *toll.Credits `json:"perOrder,omitempty"`
}

type wireAccepted struct {
	Scheme  string      `json:"scheme"`
	Network string      `json:"network"`
	PlanID  toll.PlanID `json:"planId"`
	Extra   struct {
		Version string       `json:"version"`
		AgentID toll.AgentID `json:"agentId,omitempty"`
	} `json:"extra"`
}

// audience is one string or an array of strings.
type audience []string

func (a audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return encodeExact(a[0])
	}
	return encodeExact([]string(a))
}

func (a *audience) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(a))
	}
	var one *string
	if err := json.Unmarshal(b, &one); err != nil || one == nil {
		return errMalformedText
	}
	*a = audience{*one}
	return nil
}

func unixPtr(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	s := t.Unix()
	return &s
}

func (c *Claims) encode() ([]byte, error) {
	w := wireClaims{
		Issuer: c.Issuer, Subject: c.Subscriber, Audience: c.Audience, ID: c.Hash,
		IssuedAt: unixPtr(c.IssuedAt), ExpiresAt: unixPtr(c.ExpiresAt), NotBefore: unixPtr(c.NotBefore),
		PlanID: c.PlanID, AgentID: c.AgentID, Subscriber: c.Subscriber,
		Authorization: wireAuthorization{c.Subscriber, c.PlanID, c.AgentID},
		Credits:       wireCredits{c.RedemptionLimit, c.OrderLimit, c.PlanMin, c.PlanMax, c.PerOrder},
		X402Version:   2,
		Accepted:      wireAccepted{Scheme: c.Scheme, Network: c.Network, PlanID: c.PlanID},
	}
	w.Accepted.Extra.Version = "1"
	w.Accepted.Extra.AgentID = c.AgentID
	return encodeExact(w)
}

// decodeClaims reads a payload: types, presence and inner agreement. It trusts nobody: issuer, audience and time are checked by the caller.
func decodeClaims(payload []byte) (*Claims, error) {
	var w wireClaims
	if err := decodeStrict(payload, &w); err != nil {
		return nil, err
	}
	switch {
	case w.Issuer == "", len(w.Audience) == 0, w.Subject.IsZero(), w.ID.IsZero(), w.PlanID == "",
		w.Subscriber != w.Subject, w.Authorization.From != w.Subject,
		w.Authorization.PlanID != w.PlanID, w.Accepted.PlanID != w.PlanID,
		w.Authorization.AgentID != w.AgentID, w.Accepted.Extra.AgentID != w.AgentID,
		w.X402Version != 2, w.Accepted.Scheme == "", w.Accepted.Network == "", w.Accepted.Extra.Version != "1",
		w.IssuedAt == nil, w.ExpiresAt == nil,
		w.Credits.OrderLimit != nil && *w.Credits.OrderLimit < 0:
		return nil, errContradiction
	case *w.IssuedAt < 0, *w.ExpiresAt <= *w.IssuedAt, *w.ExpiresAt > lastSecond,
		w.NotBefore != nil && (*w.NotBefore < 0 || *w.NotBefore > lastSecond):
		return nil, errContradiction
	}
	// The repeats share the memory of the first; a cached token holds each id once.
	c := &Claims{
		Issuer: w.Issuer, Audience: w.Audience, Subscriber: w.Subject, Hash: w.ID,
		IssuedAt: time.Unix(*w.IssuedAt, 0).UTC(), ExpiresAt: time.Unix(*w.ExpiresAt, 0).UTC(),
		PlanID: w.PlanID, AgentID: w.AgentID,
		RedemptionLimit: w.Credits.RedemptionLimit, OrderLimit: w.Credits.OrderLimit,
		PlanMin: w.Credits.PlanMin, PlanMax: w.Credits.PlanMax, PerOrder: w.Credits.PerOrder,
		Scheme: w.Accepted.Scheme, Network: w.Accepted.Network,
	}
	if w.NotBefore != nil {
		c.NotBefore = time.Unix(*w.NotBefore, 0).UTC()
	}
	return c, nil
}

// DecodeUnverified reads the claims of an access token in its JWS form without a look at its signature, issuer or
// time, for software that holds a token and has no keys. The error is a *toll.Error with [toll.CodeTokenUndecodable].
func DecodeUnverified(jws string) (Claims, error) {
	_, payload, _, ok := splitCompact(jws)
	if ok {
		var body []byte
		if body, ok = decodeSegment(payload); ok {
			c, err := decodeClaims(body)
			if err == nil {
				return *c, nil
			}
		}
	}
	return Claims{}, toll.NewError(toll.CodeTokenUndecodable)
}
