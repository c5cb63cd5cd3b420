package pay

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// Content is the input of the content hash, for the test that holds it still.
type Content struct {
	Hash   toll.Hash
	Max    *toll.Credits
	Margin *x402.Margin
	Batch  bool
	Card   bool // card scheme, no agent, no url
}

// Sum returns the hash of a settle for plan 11 and agent 12 at https://agent.example.com/ask.
func (c Content) Sum() []byte {
	f := &Facilitator{brand: catalogue.Brand{Names: x402.Default, Environment: toll.Sandbox}}
	p := &payment{
		plan: &toll.Plan{ID: "11"}, agentID: "12", url: "https://agent.example.com/ask",
		claims: &auth.Claims{Hash: c.Hash, Scheme: "svc:erc4337", Network: "eip155:84532"},
	}
	if c.Card {
		p.agentID, p.url, p.claims.Scheme, p.claims.Network = "", "", "svc:card-delegation", catalogue.CardNetwork
	}
	sum := p.content(f.brand, c.Max, c.Margin, c.Batch)
	return sum[:]
}

// Settled is what the answer to a settlement says.
type Settled struct {
	ledger.Receipt
	Payer   toll.Address
	Plan    toll.PlanID
	Agent   toll.AgentID
	Network string
	Raised  *toll.Credits
	URL     string
}

// Stored returns what the ledger keeps of an answer.
func (f *Facilitator) Stored(s Settled) []byte {
	p := &payment{
		plan: &toll.Plan{ID: s.Plan}, agentID: s.Agent, url: s.URL, claims: &auth.Claims{Subscriber: s.Payer, Network: s.Network},
	}
	return f.storedAnswer(context.Background(), p, s.Raised)(s.Receipt)
}

// Answer returns the answer to a repeat, for which the ledger knows nothing but its entry.
func (f *Facilitator) Answer(stored []byte, s Settled) (*x402.SettleResponse, error) {
	s.Ended, s.OrderTx = 0, ""
	return answerOf(f.brand.Names, stored, settled{Receipt: s.Receipt, payer: s.Payer, plan: s.Plan, agent: s.Agent})
}

// Kept returns what is kept of an account and a permission, and whether both are.
func Kept(f *Facilitator, account ledger.AccountID, hash toll.Hash) (ledger.Account, ledger.Permission, bool) {
	a, known, _ := f.snapshots.Account(context.Background(), account)
	p, both, _ := f.snapshots.Permission(context.Background(), tokens.Key{Account: account, Hash: hash})
	return a, p, known && both
}

// Count counts a refusal of a plan's owner.
func (f *Facilitator) Count(plan *toll.Plan, reason string) {
	f.refused.count(&payment{plan: plan, caller: plan.Owner}, toll.NewError(toll.CodeBadRequest), reason, f.Clock())
}

// Bounds of what is counted between two writes.
const (
	MaxRefusals = maxRefusals
	MaxReasons  = maxReasons
)
