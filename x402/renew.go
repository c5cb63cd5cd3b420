package x402

import (
	"context"

	"github.com/tollhq/toll"
)

// RenewRequest changes the expiry of an open hold.
type RenewRequest struct {
	AgentRequestID string
	HoldSecs       int // life from now, 1 to 900; 0 = 60
}

// RenewResponse is the response to a renewal. A hold lives at most 24 hours, so HoldExpiresAt may be earlier than
// requested. It is never earlier than before.
type RenewResponse struct {
	Success        bool         `json:"success"`
	AgentRequestID string       `json:"agentRequestId"`
	HeldAmount     toll.Credits `json:"heldAmount"`
	HoldExpiresAt  toll.Time    `json:"holdExpiresAt"`
}

// Renewer is a [Facilitator] that renews holds, such as the Go client and the service.
type Renewer interface {
	Renew(ctx context.Context, req *RenewRequest) (*RenewResponse, error)
}

// renewBody is the wire form of [RenewRequest].
type renewBody struct {
	AgentRequestID *string   `json:"agentRequestId"`
	HoldSecs       *toll.Int `json:"holdSecs,omitempty"`
}

// UnmarshalJSON reads agentRequestId, which is required, and holdSecs. It returns the errors of [Decode].
func (r *RenewRequest) UnmarshalJSON(data []byte) error { return Decode(data, r) }

func (r *RenewRequest) decodeBody(data []byte) error {
	*r = RenewRequest{}
	var b renewBody
	if err := decode(data, &b); err != nil {
		return err
	}
	var faults report
	if b.AgentRequestID == nil {
		faults.add("agentRequestId", errMissing)
	} else {
		r.AgentRequestID = *b.AgentRequestID
	}
	r.HoldSecs = faults.holdSecs(b.HoldSecs)
	return faults.err()
}

// MarshalJSON writes the wire form.
func (r *RenewRequest) MarshalJSON() ([]byte, error) {
	b := renewBody{AgentRequestID: &r.AgentRequestID}
	if r.HoldSecs != 0 {
		b.HoldSecs = new(toll.Int(r.HoldSecs))
	}
	return Encode(&b)
}
