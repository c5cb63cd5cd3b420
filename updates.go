package toll

import (
	"bytes"
	"slices"
	"strings"
)

// PlanUpdate is the body that changes a plan, in both dialects: name, description, and tags are flat in A and in metadataAttributes in B,
// which takes precedence. Price and credits of a plan never change: their members are accepted only when they equal the stored values.
type PlanUpdate struct {
	Name        Change[string]   `json:"name,omitzero"`
	Description Change[string]   `json:"description,omitzero"`
	Tags        Change[[]string] `json:"tags,omitzero"`
	Metadata    MetadataUpdate   `json:"metadataAttributes,omitzero"`
	// MaxOrders is the maximum number of orders of the plan; null removes the limit.
	MaxOrders     Change[Int]   `json:"maxOrders,omitzero"`
	AccessLimit   *LimitInput   `json:"accessLimit,omitzero"`
	PriceConfig   *PriceInput   `json:"priceConfig,omitzero"`
	CreditsConfig *CreditsInput `json:"creditsConfig,omitzero"`
	IsTrialPlan   *Bool         `json:"isTrialPlan,omitzero"`
	Currency      *string       `json:"currency,omitzero"`
}

// Apply returns the plan with the changes. It leaves UpdatedAt unchanged: the caller checks whether anything changed.
//
// Errors: 400 [CodeBadRequest] with every malformed member, 400 [CodeBadNumber], 409 [CodePlanTermsFixed] with params.path.
func (in PlanUpdate) Apply(p Plan) (Plan, error) {
	var f faultList
	path := pathIf("metadataAttributes", in.Metadata != (MetadataUpdate{}))
	u := in.Metadata
	u.Name, u.Description, u.Tags = u.Name.or(in.Name), u.Description.or(in.Description), u.Tags.or(in.Tags)
	orders := in.MaxOrders
	for _, l := range []*LimitInput{in.AccessLimit, u.AccessLimit} {
		if l != nil && l.MaxOrders != nil && !orders.IsSet {
			orders = SetTo(*l.MaxOrders)
		}
	}
	if orders.IsSet {
		if orders.Value != nil && *orders.Value < 1 {
			f.contradiction(CodeBadNumber, "maxOrders", "The maximum number of orders must be at least 1. Null removes the limit.")
		}
		p.MaxOrders = int64(orZero(orders.Value))
	}
	p.Metadata = u.apply(p.Metadata, path, p.CreatedAt, &f)
	if err := f.err(); err != nil {
		return Plan{}, err
	}
	if member := in.otherTerms(&p); member != "" {
		return Plan{}, NewError(CodePlanTermsFixed).WithDetails("planId %s", p.ID).WithParam("path", member)
	}
	return p, nil
}

// otherTerms returns the first member of price, credits, or kind that differs from the plan, or "".
func (in PlanUpdate) otherTerms(p *Plan) string {
	limit := func(l *LimitInput) bool { return l == nil || l.Limit == "" || l.Limit == p.AccessLimit }
	trial := func(b *Bool) bool { return b == nil || bool(*b) == p.IsTrial }
	for _, c := range []struct {
		member string
		same   bool
	}{
		{"accessLimit", limit(in.AccessLimit)}, {"metadataAttributes.accessLimit", limit(in.Metadata.AccessLimit)},
		{"isTrialPlan", trial(in.IsTrialPlan)}, {"metadataAttributes.isTrialPlan", trial(in.Metadata.IsTrialPlan)},
		{"currency", in.Currency == nil || strings.EqualFold(*in.Currency, p.Price.CurrencyName())},
	} {
		if !c.same {
			return c.member
		}
	}
	if in.PriceConfig != nil {
		if m := in.PriceConfig.differs(p); m != "" && !in.PriceConfig.registers(p) {
			return "priceConfig." + m
		}
	}
	if in.CreditsConfig != nil {
		if m := in.CreditsConfig.differs(p); m != "" && !in.CreditsConfig.registers(p, in) {
			return "creditsConfig." + m
		}
	}
	return ""
}

// registers reports whether registering a plan with this price would store the price of p.
func (in PriceInput) registers(p *Plan) bool {
	var f faultList
	return equalJSON(normalizePrice(in, p.Owner, "", &f), p.Price) && f.err() == nil
}

// registers reports whether registering a plan with these credits and the rest of the body would store the credits of p.
func (in CreditsInput) registers(p *Plan, rest PlanUpdate) bool {
	var f faultList
	c, limit := normalizeCredits(in, orZero(rest.PriceConfig).AmountOfCredits, orZero(rest.AccessLimit).Limit, "", &f)
	return limit == p.AccessLimit && equalJSON(c, p.Credits) && f.err() == nil
}

func equalJSON(a, b any) bool {
	x, err := encode(a)
	y, err2 := encode(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

func same[T comparable](sent *T, stored T) bool { return sent == nil || *sent == stored }

func sameUnits(sent *Units, stored Units) bool { return sent == nil || sent.Cmp(stored) == 0 }

// differs returns the first member, in any dialect, that differs from the plan, or "".
func (in PriceInput) differs(p *Plan) string {
	amounts := in.Amounts == nil || (Price{Amounts: in.Amounts}).IsFree() && p.Price.IsFree() ||
		slices.EqualFunc(in.Amounts, p.Price.Amounts, func(a, b Units) bool { return a.Cmp(b) == 0 })
	receivers := in.Receivers == nil || slices.Equal(in.Receivers, p.Price.Receivers)
	kind := "FIXED_PRICE"
	if p.Price.IsFree() {
		kind = "FREE"
	}
	for _, c := range []struct {
		member string
		same   bool
	}{
		{"tokenAddress", same(in.TokenAddress, p.Price.TokenAddress)}, {"amounts", amounts}, {"receivers", receivers},
		{"priceType", in.PriceType == nil || strings.EqualFold(*in.PriceType, kind)}, {"isCrypto", same(in.IsCrypto, Bool(p.Price.IsCrypto))},
		{"currency", in.Currency == nil || strings.EqualFold(*in.Currency, p.Price.CurrencyName())},
		{"templateAddress", same(in.TemplateAddress, p.Price.TemplateAddress)}, {"contractAddress", same(in.ContractAddress, p.Price.ContractAddress)},
		{"feeController", same(in.FeeController, p.Price.FeeController)},
		{"externalPriceAddress", same(in.ExternalPriceAddress, p.Price.ExternalPriceAddress)},
		{"price", sameUnits(in.Price, p.Price.Total())}, {"amountOfCredits", same(in.AmountOfCredits, p.Credits.Amount)},
	} {
		if !c.same {
			return c.member
		}
	}
	return ""
}

// differs returns the first member, in any dialect, that differs from the plan, or "".
func (in CreditsInput) differs(p *Plan) string {
	c := p.Credits
	limit := func(s *string) bool { return s == nil || strings.EqualFold(*s, string(p.AccessLimit)) }
	kind := in.RedemptionType
	for _, m := range []struct {
		member string
		same   bool
	}{
		{"amount", same(in.Amount, c.Amount)}, {"minAmount", same(in.MinAmount, c.MinAmount)}, {"maxAmount", same(in.MaxAmount, c.MaxAmount)},
		{"creditsType", in.CreditsType == nil || strings.EqualFold(*in.CreditsType, c.flat().CreditsType)},
		{"durationOfThePlan", sameUnits(in.DurationOfThePlan, c.DurationSecs)}, {"durationSecs", sameUnits(in.DurationSecs, c.DurationSecs)},
		{"duration", sameUnits(in.Duration, c.DurationSecs)},
		{"isRedemptionAmountFixed", same(in.IsRedemptionAmountFixed, Bool(c.IsRedemptionAmountFixed))},
		{"redemptionType", kind == nil || kind.Type == c.RedemptionType && (kind.Word == "" || (kind.Word == "fixed") == c.IsRedemptionAmountFixed)},
		{"onchainMirror", same(in.OnchainMirror, Bool(c.OnchainMirror))},
		{"nftAddress", in.NFTAddress == nil || *in.NFTAddress == orZero(c.NFTAddress)},
		{"subscriptionType", limit(in.SubscriptionType)}, {"accessType", limit(in.AccessType)},
		{"minCreditsToCharge", same(in.MinCreditsToCharge, c.MinAmount)}, {"maxCreditsToCharge", same(in.MaxCreditsToCharge, c.MaxAmount)},
	} {
		if !m.same {
			return m.member
		}
	}
	return ""
}

// AgentAPIUpdate changes how an agent is reached. Null for the whole object clears every member, including the upstream secrets.
type AgentAPIUpdate struct {
	Endpoints          Change[EndpointList]      `json:"endpoints,omitzero"`
	OpenEndpoints      Change[[]string]          `json:"openEndpoints,omitzero"`
	AgentDefinitionURL Change[string]            `json:"agentDefinitionUrl,omitzero"`
	AuthType           Change[string]            `json:"authType,omitzero"`
	Username           Change[string]            `json:"username,omitzero"`
	Password           Change[string]            `json:"password,omitzero"`
	Token              Change[string]            `json:"token,omitzero"`
	APIKey             Change[string]            `json:"apiKey,omitzero"`
	Headers            Change[map[string]string] `json:"headers,omitzero"`
	StrictEndpoints    Change[Bool]              `json:"strictEndpoints,omitzero"`
}

// UnmarshalJSON distinguishes null from absent, for the object and for its members.
func (u *AgentAPIUpdate) UnmarshalJSON(b []byte) error { return decodeChanges(b, u) }

// AgentUpdate is the body that changes an agent, in both dialects: flat in A, in metadataAttributes and agentApiAttributes
// in B, which takes precedence.
type AgentUpdate struct {
	Name               Change[string]       `json:"name,omitzero"`
	Description        Change[string]       `json:"description,omitzero"`
	Tags               Change[[]string]     `json:"tags,omitzero"`
	Endpoints          Change[EndpointList] `json:"endpoints,omitzero"`
	OpenEndpoints      Change[[]string]     `json:"openEndpoints,omitzero"`
	AgentDefinitionURL Change[string]       `json:"agentDefinitionUrl,omitzero"`
	AuthType           Change[string]       `json:"authType,omitzero"`
	StrictEndpoints    Change[Bool]         `json:"strictEndpoints,omitzero"`
	Metadata           MetadataUpdate       `json:"metadataAttributes,omitzero"`
	API                AgentAPIUpdate       `json:"agentApiAttributes,omitzero"`
}

// ChangesCredentials reports whether [AgentUpdate.Apply] needs the stored upstream secrets.
func (in AgentUpdate) ChangesCredentials() bool {
	u := in.API
	return u.Username.IsSet || u.Password.IsSet || u.Token.IsSet || u.APIKey.IsSet || u.Headers.IsSet
}

// Apply returns the agent with the changes, and its upstream secrets or nil. stored holds the current secrets, used only
// when [AgentUpdate.ChangesCredentials]. UpdatedAt is unchanged: the caller checks whether anything changed.
//
// Errors are 400: [CodeBadRequest] with every malformed member.
func (in AgentUpdate) Apply(a Agent, stored *Credentials) (Agent, *Credentials, error) {
	var f faultList
	metadataPath := pathIf("metadataAttributes", in.Metadata != (MetadataUpdate{}))
	apiPath := pathIf("agentApiAttributes", in.API != (AgentAPIUpdate{}))
	m, u := in.Metadata, in.API
	m.Name, m.Description, m.Tags = m.Name.or(in.Name), m.Description.or(in.Description), m.Tags.or(in.Tags)
	a.Metadata = m.apply(a.Metadata, metadataPath, a.CreatedAt, &f)

	secrets := orZero(stored)
	strict := Bool(a.API.StrictEndpoints)
	api := AgentAPIInput{
		Endpoints: a.API.Endpoints, OpenEndpoints: a.API.OpenEndpoints, AgentDefinitionURL: &a.API.AgentDefinitionURL, AuthType: &a.API.AuthType,
		StrictEndpoints: &strict, Username: &secrets.Username, Password: &secrets.Password, Token: &secrets.Token, APIKey: &secrets.APIKey,
		Headers: secrets.Headers,
	}
	assign(u.Endpoints.or(in.Endpoints), &api.Endpoints)
	assign(u.OpenEndpoints.or(in.OpenEndpoints), &api.OpenEndpoints)
	u.AgentDefinitionURL.or(in.AgentDefinitionURL).onto(&api.AgentDefinitionURL)
	u.AuthType.or(in.AuthType).onto(&api.AuthType)
	u.StrictEndpoints.or(in.StrictEndpoints).onto(&api.StrictEndpoints)
	u.Username.onto(&api.Username)
	u.Password.onto(&api.Password)
	u.Token.onto(&api.Token)
	u.APIKey.onto(&api.APIKey)
	assign(u.Headers, &api.Headers)

	had := a.API.HasCredentials
	a.API = api.normalize(apiPath, &f)
	changed := api.credentials()
	a.API.HasCredentials = changed != nil
	if !in.ChangesCredentials() {
		a.API.HasCredentials, changed = had, stored
	}
	if err := f.err(); err != nil {
		return Agent{}, nil, err
	}
	return a, changed, nil
}

// EndpointsInput is the body that adds endpoints to an agent.
type EndpointsInput struct {
	Endpoints     EndpointList `json:"endpoints,omitzero"`
	OpenEndpoints []string     `json:"openEndpoints,omitzero"` // URLs that are free to call
}

// Apply returns the agent with the endpoints appended, and reports whether it changed. An endpoint with a known verb and
// URL is not added again. UpdatedAt and Version are unchanged.
//
// Errors are 400: [CodeBadRequest] when the input has no endpoint or a malformed endpoint, or when the agent would have
// more than [MaxEndpoints] of a kind.
func (in EndpointsInput) Apply(a Agent) (_ Agent, changed bool, _ error) {
	var f faultList
	if len(in.Endpoints)+len(in.OpenEndpoints) == 0 {
		f.add("endpoints", "is required and must contain at least one endpoint")
	}
	all := addNew(a.API.Endpoints, in.Endpoints, "endpoints", func(e Endpoint) string { return e.URL }, &f)
	open := addNew(a.API.OpenEndpoints, in.OpenEndpoints, "openEndpoints", func(u string) string { return u }, &f)
	if err := f.err(); err != nil {
		return Agent{}, false, err
	}
	changed = len(all) > len(a.API.Endpoints) || len(open) > len(a.API.OpenEndpoints)
	a.API.Endpoints, a.API.OpenEndpoints = all, open
	return a, changed, nil
}

// addNew returns has with the endpoints of more appended, without duplicates.
func addNew[S ~[]E, E comparable](has, more S, member string, urlOf func(E) string, f *faultList) S {
	if len(more) > MaxEndpoints {
		f.add(member, "must have at most %d endpoints", MaxEndpoints)
		return has
	}
	all := slices.Clone(has)
	for i, e := range more {
		checkURL(urlOf(e), index(member, i), f)
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	if len(all) > MaxEndpoints {
		f.add(member, "would give the agent %d endpoints, but the maximum is %d", len(all), MaxEndpoints)
	}
	return all
}
