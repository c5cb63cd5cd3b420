package api

import (
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// A rehearsal has these credits, and one of them stands for its work.
const (
	rehearsalCredits = 1000
	rehearsalWork    = 1
	// maxRehearsalName is in characters, maxRehearsalPrice in digits.
	maxRehearsalName  = 256
	maxRehearsalPrice = 40
)

// rehearsals rehearse a request and its settlement: nothing is stored and no money moves.
type rehearsals struct {
	ledger    *ledger.Ledger
	publicURL string
}

func (s rehearsals) routes() []route {
	const at = Base + "/protocol/agents/simulate"
	return []route{
		{
			op: "startSimulation", method: "POST", path: at + "/start", auth: keyed, right: toll.RightSell, tag: "Agents",
			summary: "Start the simulation of a paid request; nothing is stored",
			action:  takes(s.startSimulation), codes: []toll.Code{toll.CodeBadNumber},
		},
		{
			op: "finishSimulation", method: "POST", path: at + "/finish", auth: self, right: toll.RightSell, tag: "Agents",
			summary: "Calculate the credits that settling the simulated request would burn",
			action:  takes(s.finishSimulation), codes: []toll.Code{toll.CodeBadNumber, toll.CodeSubTaskRequestUnknown},
		},
	}
}

// SimulationInput describes the agent and the plan of a rehearsal.
type SimulationInput struct {
	AgentName      string          `json:"agentName,omitzero" maxLength:"256"`
	PlanName       string          `json:"planName,omitzero" maxLength:"256"`
	Batch          toll.Bool       `json:"batch,omitzero"`
	PricePerCredit json.RawMessage `json:"pricePerCredit,omitzero" doc:"A number of at least 0, returned unchanged. Defaults to 0.01."`
}

// Simulation is a rehearsed request, of no agent, as a real one is told.
type Simulation x402.AgentRequest

func (s rehearsals) startSimulation(c *call, in *SimulationInput) (*Simulation, error) {
	var faults []toll.Fault
	name := func(path, sent, usual string) string {
		if utf8.RuneCountInString(sent) > maxRehearsalName {
			faults = append(faults, toll.Fault{Path: path, Message: "must be at most 256 characters long"})
		}
		if sent == "" {
			return usual
		}
		return sent
	}
	plan := name("planName", in.PlanName, "Simulated plan")
	agent := name("agentName", in.AgentName, "Simulated agent")
	price, ok := simulatedPrice(in.PricePerCredit)
	if !ok {
		faults = append(faults, toll.Fault{
			Path: "pricePerCredit", Message: "must be a number of at least 0, with at most 40 characters",
		})
	}
	if len(faults) > 0 {
		return nil, toll.Faults(faults)
	}
	holder := c.caller.Address
	planID := simulatedPlan(holder)
	return &Simulation{
		AgentRequestID: s.ledger.NewRequestID(ledger.NewAccountID(planID, holder)), AgentName: agent, AgentID: toll.AgentID(simulatedID("agent", holder)),
		URLMatching: s.publicURL + c.route.path, VerbMatching: c.route.method, Batch: bool(in.Batch),
		Balance: toll.Balance{
			PlanID: planID, PlanName: plan, PlanType: toll.LimitCredits, HolderAddress: holder, Balance: rehearsalCredits, Available: rehearsalCredits,
			IsSubscriber: true, IsSubscriberAlias: true, PricePerCredit: price, Batch: bool(in.Batch), Total: rehearsalCredits, Remaining: rehearsalCredits,
		},
	}, nil
}

// simulatedPrice returns the JSON number in a member that may be a number or its text.
func simulatedPrice(sent json.RawMessage) (json.RawMessage, bool) {
	text := strings.Trim(string(sent), `" `)
	if text == "" || text == "null" {
		return json.RawMessage("0.01"), true
	}
	ok := len(text) <= maxRehearsalPrice && text[0] >= '0' && text[0] <= '9' && json.Valid([]byte(text))
	return json.RawMessage(text), ok
}

// simulatedPlan is the plan of an account's rehearsals. It depends on the account, so that an
// agentRequestId proves whose rehearsal it is although nothing is stored.
func simulatedPlan(holder toll.Address) toll.PlanID {
	return toll.PlanID(simulatedID("plan", holder))
}

func simulatedID(what string, holder toll.Address) string {
	sum := sha256.Sum256([]byte("simulated " + what + " " + holder.Lower()))
	return new(big.Int).SetBytes(sum[:]).String()
}

type SimulationEnd struct {
	AgentRequestID string       `json:"agentRequestId"`
	MarginPercent  *x402.Margin `json:"marginPercent,omitzero" doc:"As in settle. Defaults to 0.2."`
	Batch          toll.Bool    `json:"batch,omitzero"`
}

func (*SimulationEnd) required() []string { return []string{"agentRequestId"} }

// SimulationResult is what a settlement would burn.
type SimulationResult struct {
	Success         bool         `json:"success"`
	CreditsToRedeem toll.Credits `json:"creditsToRedeem"`
}

func (s rehearsals) finishSimulation(c *call, in *SimulationEnd) (*SimulationResult, error) {
	margin, err := x402.ParseMargin("0.2")
	if in.MarginPercent != nil {
		margin, err = *in.MarginPercent, nil
	}
	if err != nil {
		return nil, err
	}
	holder := c.caller.Address
	account, ours := s.ledger.AccountOfRequestID(in.AgentRequestID)
	if !ours || account != ledger.NewAccountID(simulatedPlan(holder), holder) {
		return nil, toll.NewError(toll.CodeSubTaskRequestUnknown).
			WithHint("Send the agentRequestId that POST /api/v1/protocol/agents/simulate/start returned.")
	}
	return &SimulationResult{Success: true, CreditsToRedeem: margin.On(rehearsalWork)}, nil
}
