package client

import (
	"encoding/json"

	"github.com/tollhq/toll"
)

// PlanParams is a plan to register (wire contract, sections 8 and 10).
type PlanParams struct {
	Metadata    toll.Metadata
	Price       toll.Price         // the zero value is a free plan
	Credits     toll.CreditsConfig // zero Amount, MinAmount and MaxAmount: 1; zero RedemptionType: 4
	AccessLimit toll.AccessLimit   // "": time when Credits.DurationSecs is above 0, else credits
	MaxOrders   int64              // 0 = no limit
	IsTrial     bool
	// Nonce makes the registration repeatable: the same caller, nonce and content gives the same plan. A decimal uint256.
	Nonce string
}

type planBody struct {
	MetadataAttributes toll.Metadata      `json:"metadataAttributes"`
	PriceConfig        priceBody          `json:"priceConfig"`
	CreditsConfig      toll.CreditsConfig `json:"creditsConfig"`
	AccessLimit        toll.AccessLimit   `json:"accessLimit,omitempty"`
	MaxOrders          int64              `json:"maxOrders,omitzero"`
	IsTrialPlan        bool               `json:"isTrialPlan,omitzero"`
	Nonce              string             `json:"nonce,omitempty"`
}

type priceBody struct {
	TokenAddress         toll.Address   `json:"tokenAddress"`
	Amounts              []toll.Units   `json:"amounts"`
	Receivers            []toll.Address `json:"receivers,omitempty"` // absent: the caller, when there is one amount
	ContractAddress      toll.Address   `json:"contractAddress,omitzero"`
	FeeController        toll.Address   `json:"feeController,omitzero"`
	ExternalPriceAddress toll.Address   `json:"externalPriceAddress,omitzero"`
	TemplateAddress      toll.Address   `json:"templateAddress"`
	IsCrypto             bool           `json:"isCrypto"`
	Currency             string         `json:"currency,omitempty"`
}

func (p *PlanParams) body() planBody {
	price := priceBody{
		TokenAddress: p.Price.TokenAddress, Amounts: p.Price.Amounts, Receivers: p.Price.Receivers,
		ContractAddress: p.Price.ContractAddress, FeeController: p.Price.FeeController, ExternalPriceAddress: p.Price.ExternalPriceAddress,
		TemplateAddress: p.Price.TemplateAddress, IsCrypto: p.Price.IsCrypto, Currency: p.Price.Currency,
	}
	if p.Price.IsFree() {
		price.IsCrypto = true
		price.Amounts, price.Receivers = []toll.Units{}, []toll.Address{}
	}
	cr := p.Credits
	if cr.Amount == 0 {
		cr.Amount = 1
	}
	if cr.MinAmount == 0 {
		cr.MinAmount = 1
	}
	if cr.MaxAmount == 0 {
		cr.MaxAmount = cr.MinAmount
	}
	// The builders of package toll set the redemption type, and so what they made goes as it is; a configuration that was
	// written by hand gets what the service would take for its missing members.
	byHand := cr.RedemptionType == 0
	if byHand {
		cr.RedemptionType = toll.RedemptionSubscriber
	}
	if byHand && cr.MinAmount == cr.MaxAmount && p.AccessLimit != toll.LimitTime && cr.DurationSecs.IsZero() {
		cr.IsRedemptionAmountFixed = true
	}
	return planBody{
		MetadataAttributes: p.Metadata, PriceConfig: price, CreditsConfig: cr, AccessLimit: p.AccessLimit,
		MaxOrders: p.MaxOrders, IsTrialPlan: p.IsTrial, Nonce: p.Nonce,
	}
}

// AgentParams is an agent to register (wire contract, section 9).
type AgentParams struct {
	Metadata toll.Metadata
	API      toll.AgentAPI // HasCredentials is not sent
	// Credentials are what a caller of the agent needs; the service keeps them and never returns them.
	Credentials toll.Credentials
	Plans       []toll.PlanID // plans of the caller, for RegisterAgent
}

type agentBody struct {
	MetadataAttributes toll.Metadata `json:"metadataAttributes"`
	AgentAPIAttributes agentAPIBody  `json:"agentApiAttributes"`
	Plans              []toll.PlanID `json:"plans,omitempty"`
}

type agentAPIBody struct {
	Endpoints          []map[string]string `json:"endpoints"`
	OpenEndpoints      []string            `json:"openEndpoints,omitempty"`
	AgentDefinitionURL string              `json:"agentDefinitionUrl,omitempty"`
	AuthType           string              `json:"authType,omitempty"`
	Username           string              `json:"username,omitempty"`
	Password           string              `json:"password,omitempty"`
	Token              string              `json:"token,omitempty"`
	APIKey             string              `json:"apiKey,omitempty"`
	Headers            map[string]string   `json:"headers,omitempty"`
	StrictEndpoints    bool                `json:"strictEndpoints,omitzero"`
}

func (p *AgentParams) body() agentBody {
	b := agentBody{MetadataAttributes: p.Metadata, Plans: p.Plans, AgentAPIAttributes: agentAPIBody{
		Endpoints: []map[string]string{}, OpenEndpoints: p.API.OpenEndpoints, AgentDefinitionURL: p.API.AgentDefinitionURL,
		AuthType: p.API.AuthType, StrictEndpoints: p.API.StrictEndpoints, Username: p.Credentials.Username,
		Password: p.Credentials.Password, Token: p.Credentials.Token, APIKey: p.Credentials.APIKey, Headers: p.Credentials.Headers,
	}}
	for _, e := range p.API.Endpoints {
		b.AgentAPIAttributes.Endpoints = append(b.AgentAPIAttributes.Endpoints, map[string]string{e.Verb: e.URL})
	}
	return b
}

// Registered names what a registration made.
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

// Health is the answer of a process that lives.
type Health struct {
	Status    string    `json:"status"`
	Service   string    `json:"service"`
	Version   string    `json:"version"`
	Timestamp toll.Time `json:"timestamp"`
}

// Readiness tells what works.
type Readiness struct {
	Status string            `json:"status"` // ready or not_ready
	Checks map[string]string `json:"checks"` // ok, failing or off by database, chain and card; the database alone decides
}

// Versions says which API versions there are, and which one this client gets.
type Versions struct {
	Current                 string   `json:"current"`
	Floor                   string   `json:"floor"`
	GatedVersions           []string `json:"gatedVersions"`
	YourPinnedVersion       string   `json:"yourPinnedVersion"`
	YourEffectiveVersion    string   `json:"yourEffectiveVersion"`
	YourVersionResolvedFrom string   `json:"yourVersionResolvedFrom"`
}
