package paida2a

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Members of the metadata of a message (A2A transport of x402).
const (
	metaPrefix   = "x402.payment."
	metaStatus   = metaPrefix + "status"
	metaRequired = metaPrefix + "required"
	metaPayload  = metaPrefix + "payload"
	metaReceipts = metaPrefix + "receipts"
	metaError    = metaPrefix + "error"
)

// Values of the status.
const (
	statusRequired  = "payment-required"
	statusRejected  = "payment-rejected"
	statusSubmitted = "payment-submitted"
	statusVerified  = "payment-verified"
	statusCompleted = "payment-completed"
	statusFailed    = "payment-failed"
)

// Payment describes the payment for a task to its agent. It does not contain the access token.
type Payment struct {
	Payer          string // address of the subscriber
	PlanID         toll.PlanID
	AgentID        toll.AgentID // "" if the configuration has no agent
	AgentRequestID string       // id of this run, its settlement, and its receipt
	Amount         toll.Credits // credits on hold, the maximum cost of this run
	// Verdict is the facilitator's response to verify. It is shared: treat it as read-only.
	Verdict *x402.VerifyResponse
}

func paymentOf(p *seller.Sale) Payment {
	return Payment{Payer: p.Payer, PlanID: p.PlanID, AgentID: p.AgentID, AgentRequestID: p.AgentRequestID, Amount: p.Amount, Verdict: p.Verdict}
}

type paymentKey struct{}

// FromContext returns the payment for the task of an agent's context, or false for other contexts.
func FromContext(ctx context.Context) (Payment, bool) {
	p, ok := ctx.Value(paymentKey{}).(Payment)
	return p, ok
}

// credential is the payment data of a message.
type credential struct {
	status string
	token  string // the payload, as the text of an access token
	digest string // of the token
	claim  string // identifies the only request that the payload pays for; "" for a bare access token
	parsed *x402.Token
	broken *seller.Refusal // set if the payload cannot be decoded
}

// takePayment splits a message into a copy without payment metadata, for the agent and the history, and the payment.
func takePayment(m *a2a.Message) (*a2a.Message, credential) {
	out := *m
	var c credential
	c.status, _ = m.Metadata[metaStatus].(string)
	payload := m.Metadata[metaPayload]
	out.Metadata = withoutPayment(m.Metadata)
	if c.status == statusSubmitted {
		c.read(payload)
	}
	return &out, c
}

func withoutPayment(meta map[string]any) map[string]any {
	if len(meta) == 0 {
		return nil
	}
	meta = maps.Clone(meta)
	maps.DeleteFunc(meta, func(name string, _ any) bool { return strings.HasPrefix(name, metaPrefix) })
	return meta
}

func (c *credential) read(payload any) {
	switch v := payload.(type) {
	case string:
		c.token = v
	case map[string]any:
		if b, err := x402.Encode(v); err == nil {
			c.token = string(b)
		}
	}
	t, broken := seller.ReadToken(c.token)
	if c.parsed, c.broken = t, broken; broken != nil {
		return
	}
	c.digest = digest(c.token)
	// A bare access token pays for any task within its limits, so it has no claim.
	switch {
	case t.PaymentIdentifier != "":
		c.claim = digest(t.JWS, "identifier", t.PaymentIdentifier)
	case t.Nonce != "" && t.Nonce != idOf(t):
		c.claim = digest(t.JWS, "nonce", t.Nonce)
	}
}

func digest(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:])
}

// idOf returns the unverified jti of an access token.
func idOf(t *x402.Token) string {
	c, _ := seller.ClaimsOf(t)
	return c.ID
}
