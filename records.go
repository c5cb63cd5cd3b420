package toll

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
)

// PlanRecord is the wire form of a plan: nested for clients of dialect B, with flat copies for clients of dialect A (wire
// contract, section 7). A [Plan] reads and writes its JSON in this form. It is exported for the JSON schema.
type PlanRecord struct {
	ID               PlanID       `json:"id"`
	PlanID           PlanID       `json:"planId"`
	Name             string       `json:"name"`
	Description      string       `json:"description"`
	Owner            Address      `json:"owner"`
	IsListed         bool         `json:"isListed"`
	Version          int64        `json:"version"` // rises with each change; If-Match takes it
	AccessLimit      AccessLimit  `json:"accessLimit"`
	MaxOrders        *int64       `json:"maxOrders"`
	OrgID            *string      `json:"orgId"`            // always null
	OrganizationName *string      `json:"organizationName"` // always null
	PriceConfig      FlatPrice    `json:"priceConfig"`
	CreditsConfig    FlatCredits  `json:"creditsConfig"`
	Metadata         PlanMetadata `json:"metadata"`
	Registry         PlanRegistry `json:"registry"`
}

// FlatPrice is the copy of a price in dialect A. Amounts are JSON integers of up to 78 digits, to be read exactly.
type FlatPrice struct {
	PriceType    string     `json:"priceType"`
	TokenAddress Address    `json:"tokenAddress" doc:"Token of the price. The zero address is the native token, or no token if the price is free or paid by card: see metadata.plan.currency."`
	Amounts      []ExactInt `json:"amounts" doc:"Amounts in base units, one for each receiver: millionths for card prices, USDC, and EURC. The price is their sum."`
	Receivers    []Address  `json:"receivers"`
}

// FlatCredits is the copy of a credits configuration in dialect A. Its numbers are JSON integers, to be read exactly.
type FlatCredits struct {
	CreditsType       string   `json:"creditsType" doc:"EXPIRABLE if the credits expire, else FIXED, also for a plan whose requests burn different amounts."`
	Amount            int64    `json:"amount" doc:"Credits of one order."`
	MinAmount         int64    `json:"minAmount" doc:"Least credits of one request."`
	MaxAmount         int64    `json:"maxAmount" doc:"Most credits of one request."`
	DurationOfThePlan ExactInt `json:"durationOfThePlan" doc:"Life of the credits in seconds. 0 means that they never expire."`
}

// CurationRecord is metadata.curation.
type CurationRecord struct {
	IsListed bool `json:"isListed"`
}

// PlanMetadata is the metadata of a plan record.
type PlanMetadata struct {
	Main     MainRecord     `json:"main"`
	Plan     PlanFacts      `json:"plan"`
	Curation CurationRecord `json:"curation"`
}

// PlanFacts is metadata.plan. Currency is null for a free plan. FiatPaymentProvider is set only for fiat plans; clients
// then use it as the network.
type PlanFacts struct {
	AccessLimit         AccessLimit `json:"accessLimit"`
	IsTrialPlan         bool        `json:"isTrialPlan"`
	Currency            *string     `json:"currency" doc:"Currency of the price, or the address of another token. Null for a free plan."`
	FiatPaymentProvider string      `json:"fiatPaymentProvider,omitempty"`
}

// PlanRegistry is the stored form of a plan. LastUpdated is in epoch milliseconds.
type PlanRegistry struct {
	Owner       Address       `json:"owner"`
	Price       Price         `json:"price"`
	Credits     CreditsConfig `json:"credits"`
	LastUpdated int64         `json:"lastUpdated"`
}

// Record returns the wire form of the plan.
func (p *Plan) Record() PlanRecord {
	price := p.Price
	price.Amounts, price.Receivers = present(price.Amounts), present(price.Receivers)
	facts := PlanFacts{AccessLimit: p.AccessLimit, IsTrialPlan: p.IsTrial}
	if name := price.CurrencyName(); !price.IsFree() {
		facts.Currency = &name
	}
	if !price.IsCrypto {
		facts.FiatPaymentProvider = "stripe"
	}
	r := PlanRecord{
		ID: p.ID, PlanID: p.ID, Name: p.Metadata.Name, Description: p.Metadata.Description, Owner: p.Owner, IsListed: p.IsListed,
		Version: p.Version, AccessLimit: p.AccessLimit, PriceConfig: price.flat(), CreditsConfig: p.Credits.flat(),
		Metadata: PlanMetadata{Main: p.Metadata.record(p.CreatedAt), Plan: facts, Curation: CurationRecord{p.IsListed}},
		Registry: PlanRegistry{Owner: p.Owner, Price: price, Credits: p.Credits, LastUpdated: p.UpdatedAt.UnixMilli()},
	}
	if p.MaxOrders > 0 {
		r.MaxOrders = &p.MaxOrders
	}
	r.Metadata.Main.Price = price.Text()
	r.Metadata.Main.IsTrialPlan = &p.IsTrial
	return r
}

// present returns s, or an empty list for nil, because lists on the wire are never null.
func present[S ~[]E, E any](s S) S {
	if s == nil {
		return S{}
	}
	return s
}

func (p Price) flat() FlatPrice {
	f := FlatPrice{PriceType: "FIXED_PRICE", TokenAddress: p.TokenAddress, Receivers: p.Receivers, Amounts: make([]ExactInt, len(p.Amounts))}
	if p.IsFree() {
		f.PriceType = "FREE"
	}
	for i, a := range p.Amounts {
		f.Amounts[i] = ExactInt(a.String())
	}
	return f
}

func (c CreditsConfig) flat() FlatCredits {
	f := FlatCredits{
		CreditsType: "FIXED", Amount: int64(c.Amount), MinAmount: int64(c.MinAmount), MaxAmount: int64(c.MaxAmount),
		DurationOfThePlan: ExactInt(c.DurationSecs.String()),
	}
	if !c.DurationSecs.IsZero() {
		f.CreditsType = "EXPIRABLE"
	}
	return f
}

// MarshalJSON writes the record of the wire contract, section 7.
func (p Plan) MarshalJSON() ([]byte, error) { return encode(p.Record()) }

// UnmarshalJSON reads the record. It uses the flat id, access limit, and maxOrders, and ignores the other flat copies.
// CreatedAt is dateCreated, the only creation time in the record.
func (p *Plan) UnmarshalJSON(b []byte) error {
	var r PlanRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	*p = Plan{
		ID: cmp.Or(r.PlanID, r.ID), Owner: r.Registry.Owner, Metadata: r.Metadata.Main.metadata(), Price: r.Registry.Price,
		Credits: r.Registry.Credits, AccessLimit: cmp.Or(r.Metadata.Plan.AccessLimit, r.AccessLimit), IsTrial: r.Metadata.Plan.IsTrialPlan,
		IsListed: r.Metadata.Curation.IsListed, Version: r.Version,
		CreatedAt: r.Metadata.Main.DateCreated.Time, UpdatedAt: time.UnixMilli(r.Registry.LastUpdated).UTC(),
	}
	if r.MaxOrders != nil {
		p.MaxOrders = *r.MaxOrders
	}
	return nil
}

// AgentRecord is the wire form of an agent, with flat copies as in [PlanRecord].
type AgentRecord struct {
	ID                 AgentID       `json:"id"`
	AgentID            AgentID       `json:"agentId"`
	Name               string        `json:"name"`
	Description        string        `json:"description"`
	Tags               []string      `json:"tags"`
	Owner              Address       `json:"owner"`
	IsListed           bool          `json:"isListed"`
	Version            int64         `json:"version"` // rises with each change; If-Match takes it
	Endpoints          EndpointList  `json:"endpoints"`
	AgentDefinitionURL string        `json:"agentDefinitionUrl,omitempty"`
	Plans              []PlanRef     `json:"plans"`
	Metadata           AgentMetadata `json:"metadata"`
	Registry           AgentRegistry `json:"registry"`
}

// AgentMetadata is the metadata of an agent record.
type AgentMetadata struct {
	Main     MainRecord     `json:"main"`
	Agent    AgentAPI       `json:"agent"`
	Curation CurationRecord `json:"curation"`
}

// AgentRegistry names the owner and the plans of an agent. LastUpdated is in epoch milliseconds.
type AgentRegistry struct {
	Owner       Address  `json:"owner"`
	Plans       []PlanID `json:"plans"`
	LastUpdated int64    `json:"lastUpdated"`
}

// Record returns the wire form of the agent.
func (a *Agent) Record() AgentRecord {
	api := a.API
	api.Endpoints, api.OpenEndpoints, api.AuthType = present(api.Endpoints), present(api.OpenEndpoints), cmp.Or(api.AuthType, "none")
	main := a.Metadata.record(a.CreatedAt)
	r := AgentRecord{
		ID: a.ID, AgentID: a.ID, Name: a.Metadata.Name, Description: a.Metadata.Description, Tags: main.Tags, Owner: a.Owner,
		IsListed: a.IsListed, Version: a.Version, Endpoints: api.Endpoints, AgentDefinitionURL: api.AgentDefinitionURL, Plans: present(a.Plans),
		Metadata: AgentMetadata{Main: main, Agent: api, Curation: CurationRecord{a.IsListed}},
		Registry: AgentRegistry{Owner: a.Owner, Plans: make([]PlanID, len(a.Plans)), LastUpdated: a.UpdatedAt.UnixMilli()},
	}
	for i, p := range a.Plans {
		r.Registry.Plans[i] = p.PlanID
	}
	return r
}

// MarshalJSON writes the record of the wire contract, section 7.
func (a Agent) MarshalJSON() ([]byte, error) { return encode(a.Record()) }

// UnmarshalJSON reads the record. CreatedAt is dateCreated, as in [Plan.UnmarshalJSON].
func (a *Agent) UnmarshalJSON(b []byte) error {
	var r AgentRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	*a = Agent{
		ID: cmp.Or(r.AgentID, r.ID), Owner: r.Registry.Owner, Metadata: r.Metadata.Main.metadata(), API: r.Metadata.Agent, Plans: r.Plans,
		IsListed: r.Metadata.Curation.IsListed, Version: r.Version,
		CreatedAt: r.Metadata.Main.DateCreated.Time, UpdatedAt: time.UnixMilli(r.Registry.LastUpdated).UTC(),
	}
	return nil
}

// encode returns v as compact JSON without the HTML escapes of encoding/json, which would change URLs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
