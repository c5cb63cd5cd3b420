package client

import (
	"cmp"
	"encoding/json"

	"github.com/tollhq/toll"
)

// PlanParams is a plan to register (wire contract, sections 8 and 10).
type PlanParams struct {
	Metadata    toll.Metadata      `json:"metadataAttributes"`
	Price       toll.Price         `json:"-"`                     // the zero value is a free plan
	Credits     toll.CreditsConfig `json:"creditsConfig"`         // defaults: Amount 1, MinAmount 1, MaxAmount MinAmount, RedemptionType 4
	AccessLimit toll.AccessLimit   `json:"accessLimit,omitempty"` // "": time when Credits.DurationSecs is above 0, else credits
	MaxOrders   int64              `json:"maxOrders,omitzero"`    // 0 = no limit
	IsTrial     bool               `json:"isTrialPlan,omitzero"`
	// Nonce, a decimal uint256, makes the registration repeatable: the same caller, nonce, and content return the same plan.
	Nonce string `json:"nonce,omitempty"`
}

type planBody struct {
	PlanParams
	PriceConfig priceBody `json:"priceConfig"`
}

// priceBody omits unused members of a price.
type priceBody struct {
	toll.Price
	Receivers            []toll.Address `json:"receivers,omitempty"` // absent: the caller, if there is one amount
	ContractAddress      toll.Address   `json:"contractAddress,omitzero"`
	FeeController        toll.Address   `json:"feeController,omitzero"`
	ExternalPriceAddress toll.Address   `json:"externalPriceAddress,omitzero"`
}

func (p PlanParams) body() planBody {
	if p.Price.IsFree() {
		p.Price.IsCrypto, p.Price.Amounts, p.Price.Receivers = true, []toll.Units{}, nil
	}
	cr := &p.Credits
	cr.Amount, cr.MinAmount = cmp.Or(cr.Amount, 1), cmp.Or(cr.MinAmount, 1)
	cr.MaxAmount = cmp.Or(cr.MaxAmount, cr.MinAmount)
	// The constructors in package toll set the redemption type. A configuration without a type gets the defaults of the service.
	if cr.RedemptionType == 0 {
		cr.RedemptionType = toll.RedemptionSubscriber
		fixed := cr.MinAmount == cr.MaxAmount && p.AccessLimit.Kind().Charges() && cr.DurationSecs.IsZero()
		cr.IsRedemptionAmountFixed = cr.IsRedemptionAmountFixed || fixed
	}
	return planBody{p, priceBody{
		p.Price, p.Price.Receivers, p.Price.ContractAddress, p.Price.FeeController, p.Price.ExternalPriceAddress,
	}}
}

// AgentParams is an agent to register (wire contract, section 9).
type AgentParams struct {
	Metadata toll.Metadata
	API      toll.AgentAPI // HasCredentials is not sent
	// Credentials authenticate to the agent's upstream. The service never returns them.
	Credentials toll.Credentials
	Plans       []toll.PlanID // plans of the caller, for RegisterAgent
}

type agentBody struct {
	MetadataAttributes toll.Metadata `json:"metadataAttributes"`
	AgentAPIAttributes agentAPIBody  `json:"agentApiAttributes"`
	Plans              []toll.PlanID `json:"plans,omitempty"`
}

type agentAPIBody struct {
	Endpoints          toll.EndpointList `json:"endpoints"`
	OpenEndpoints      []string          `json:"openEndpoints,omitempty"`
	AgentDefinitionURL string            `json:"agentDefinitionUrl,omitempty"`
	AuthType           string            `json:"authType,omitempty"`
	toll.Credentials
	StrictEndpoints bool `json:"strictEndpoints,omitzero"`
}

func (p AgentParams) body() agentBody {
	return agentBody{p.Metadata, agentAPIBody{
		p.API.Endpoints, p.API.OpenEndpoints, p.API.AgentDefinitionURL, p.API.AuthType, p.Credentials, p.API.StrictEndpoints,
	}, p.Plans}
}

// Registered contains the ids of a newly registered plan, agent, or both.
type Registered struct {
	PlanID  toll.PlanID  `json:"planId"`  // "" when no plan was registered
	AgentID toll.AgentID `json:"agentId"` // "" when no agent was registered
	TxHash  toll.Hash    `json:"txHash"`
}

// Info describes the service.
type Info struct {
	Name        string           `json:"name"`
	Version     string           `json:"version"` // release
	Environment toll.Environment `json:"environment"`
	Network     string           `json:"network"`
	APIBase     string           `json:"apiBase"`
	APIVersion  struct {
		Current string `json:"current"`
		Floor   string `json:"floor"`
	} `json:"apiVersion"`
	Deployment json.RawMessage `json:"deployment,omitempty"`
}

// Health describes a running process.
type Health struct {
	Status    string    `json:"status"`
	Service   string    `json:"service"`
	Version   string    `json:"version"`
	Timestamp toll.Time `json:"timestamp"`
}

// Readiness reports the state of the parts of a service.
type Readiness struct {
	Status string            `json:"status"` // ready or not_ready
	Checks map[string]string `json:"checks"` // database, chain, and card: ok, failing, or off; Status depends on the database alone
}

// Versions are the API versions of the service and the effective version of this client.
type Versions struct {
	Current                 string   `json:"current"`
	Floor                   string   `json:"floor"`
	GatedVersions           []string `json:"gatedVersions"`
	YourPinnedVersion       string   `json:"yourPinnedVersion"`
	YourEffectiveVersion    string   `json:"yourEffectiveVersion"`
	YourVersionResolvedFrom string   `json:"yourVersionResolvedFrom"`
}
