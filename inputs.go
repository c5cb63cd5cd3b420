package toll

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// PlanInput is the body that registers a plan, in both dialects: name, description, and tags are flat in dialect A and in
// metadataAttributes in dialect B, which takes precedence. A nil member was absent or null.
type PlanInput struct {
	Name          *string        `json:"name,omitzero"`
	Description   *string        `json:"description,omitzero"`
	Tags          []string       `json:"tags,omitzero"`
	Metadata      *MetadataInput `json:"metadataAttributes,omitzero"`
	PlanMetadata  *MetadataInput `json:"planMetadata,omitzero"` // alias of metadataAttributes, which takes precedence
	PriceConfig   *PriceInput    `json:"priceConfig,omitzero"`
	CreditsConfig *CreditsInput  `json:"creditsConfig,omitzero"`
	AccessLimit   *LimitInput    `json:"accessLimit,omitzero"`
	MaxOrders     *Int           `json:"maxOrders,omitzero"`
	IsTrialPlan   *Bool          `json:"isTrialPlan,omitzero"`
	Trial         *Bool          `json:"trial,omitzero"` // alias of isTrialPlan; the plan is a trial when either is true
	// Nonce makes the registration idempotent: the same caller, nonce, and body return the same plan.
	Nonce *Units `json:"nonce,omitzero"`
	// Currency is the currency of the price when priceConfig.currency is absent.
	Currency *string `json:"currency,omitzero"`
}

// Plan returns the plan that the body registers, listed and with a new id. caller is its owner and the default receiver.
//
// Errors are 400: [CodeBadRequest] with every missing and malformed member, [CodeBadCreditsConfig], or an error of [NormalizePrice].
func (in PlanInput) Plan(caller Address, now time.Time) (Plan, error) {
	var f faultList
	p := in.plan(planPaths{metadata: in.metadataPath(), root: ""}, caller, now, &f)
	if p.Metadata.Name == "" {
		f.add(at(in.metadataPath(), "name"), "is required")
	}
	if err := f.err(); err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (in PlanInput) metadataPath() string {
	if in.Metadata == nil && in.PlanMetadata != nil {
		return "planMetadata"
	}
	return pathIf("metadataAttributes", in.Metadata != nil)
}

type planPaths struct{ metadata, root string }

func (in PlanInput) plan(paths planPaths, caller Address, now time.Time, f *faultList) Plan {
	meta := orZero(cmp.Or(in.Metadata, in.PlanMetadata)).or(in.Name, in.Description, in.Tags)
	p := Plan{
		ID: NewPlanID(), Owner: caller, Metadata: meta.normalize(paths.metadata, now, f), IsListed: true,
		IsTrial:   bool(orZero(in.IsTrialPlan) || orZero(in.Trial) || orZero(meta.IsTrialPlan) || orZero(meta.Trial)),
		CreatedAt: now.UTC(), UpdatedAt: now.UTC(),
	}
	limit, maxOrders := in.limits(meta, paths, f)
	p.MaxOrders = maxOrders

	pricePath, creditsPath := at(paths.root, "priceConfig"), at(paths.root, "creditsConfig")
	if in.PriceConfig == nil {
		f.add(pricePath, "is required")
	}
	if in.CreditsConfig == nil {
		f.add(creditsPath, "is required")
	}
	if in.PriceConfig == nil || in.CreditsConfig == nil {
		return p
	}
	price := *in.PriceConfig
	price.Currency = cmp.Or(price.Currency, in.Currency)
	p.Price = normalizePrice(price, caller, pricePath, f)
	p.Credits, p.AccessLimit = normalizeCredits(*in.CreditsConfig, price.AmountOfCredits, limit, creditsPath, f)
	checkTopUp(&p, creditsPath, f)
	return p
}

// limits returns the access limit and the maximum number of orders (0 for no limit) from every member that may hold them.
func (in PlanInput) limits(meta MetadataInput, paths planPaths, f *faultList) (AccessLimit, int64) {
	var limit AccessLimit
	orders := in.MaxOrders
	for _, l := range []struct {
		path  string
		value *LimitInput
	}{{at(paths.root, "accessLimit"), in.AccessLimit}, {at(paths.metadata, "accessLimit"), meta.AccessLimit}} {
		if l.value == nil {
			continue
		}
		limit = cmp.Or(limit, l.value.Limit)
		if n := l.value.MaxOrders; n != nil {
			if orders != nil && *orders != *n {
				f.contradiction(CodeBadCreditsConfig, l.path, "The number in accessLimit must equal maxOrders.")
			}
			orders = n
		}
	}
	if orders != nil && *orders < 1 {
		f.contradiction(CodeBadNumber, at(paths.root, "maxOrders"), "The maximum number of orders must be at least 1.")
	}
	return limit, int64(orZero(orders))
}

// checkTopUp checks that the most expensive request of a pay-as-you-go plan costs less than 2^256 base units.
func checkTopUp(p *Plan, path string, f *faultList) {
	if p.Kind().Prepaid() || f.err() != nil {
		return
	}
	n := p.Price.Total().Int()
	if n.Mul(n, UnitsOf(int64(p.Credits.MaxAmount)).Int()).Cmp(maxUint256) > 0 {
		f.contradiction(CodeBadNumber, at(path, "maxAmount"), "The price of maxAmount credits must be less than 2^256 base units.")
	}
}

// AgentAPIInput is [AgentAPI] in a request. Username, Password, Token, APIKey, and Headers are upstream secrets.
type AgentAPIInput struct {
	Endpoints          EndpointList      `json:"endpoints,omitzero"`
	OpenEndpoints      []string          `json:"openEndpoints,omitzero"`
	AgentDefinitionURL *string           `json:"agentDefinitionUrl,omitzero"`
	AuthType           *string           `json:"authType,omitzero"`
	Username           *string           `json:"username,omitzero"`
	Password           *string           `json:"password,omitzero"`
	Token              *string           `json:"token,omitzero"`
	APIKey             *string           `json:"apiKey,omitzero"`
	Headers            map[string]string `json:"headers,omitzero"`
	StrictEndpoints    *Bool             `json:"strictEndpoints,omitzero"`
}

// PlanIDs is a list of plan ids: an array, or one comma-separated string.
type PlanIDs []PlanID

// UnmarshalJSON accepts both forms; an invalid id is an error with [CodeBadID].
func (l *PlanIDs) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var texts []string
	if s, _, err := jsonString(b, "planId"); err == nil {
		for t := range strings.SplitSeq(s, ",") {
			if t = strings.TrimSpace(t); t != "" {
				texts = append(texts, t)
			}
		}
	} else if err := json.Unmarshal(b, &texts); err != nil {
		return badID("planId", string(b))
	}
	out := make(PlanIDs, 0, len(texts))
	for _, t := range texts {
		id, err := ParsePlanID(t)
		if err != nil {
			return err
		}
		out = append(out, id)
	}
	*l = out
	return nil
}

// AgentInput is the body that registers an agent, in both dialects: flat in A, in metadataAttributes and agentApiAttributes
// in B, which takes precedence. A nil member was absent or null.
type AgentInput struct {
	Name               *string        `json:"name,omitzero"`
	Description        *string        `json:"description,omitzero"`
	Tags               []string       `json:"tags,omitzero"`
	Endpoints          EndpointList   `json:"endpoints,omitzero"`
	OpenEndpoints      []string       `json:"openEndpoints,omitzero"`
	AgentDefinitionURL *string        `json:"agentDefinitionUrl,omitzero"`
	AuthType           *string        `json:"authType,omitzero"`
	StrictEndpoints    *Bool          `json:"strictEndpoints,omitzero"`
	Metadata           *MetadataInput `json:"metadataAttributes,omitzero"`
	API                *AgentAPIInput `json:"agentApiAttributes,omitzero"`
	Plans              PlanIDs        `json:"plans,omitzero"`
}

// Agent returns the agent that the body registers, listed and with a new id, and its upstream secrets or nil. Its plans
// have no names yet: only the store can check that the caller owns each plan.
//
// Errors are 400: [CodeBadRequest] with every missing and malformed member.
func (in AgentInput) Agent(caller Address, now time.Time) (Agent, *Credentials, error) {
	var f faultList
	paths := agentPaths{metadata: in.metadataPath(), api: in.apiPath()}
	a, secrets := in.agent(paths, caller, now, &f)
	a.checkPlans("plans", &f)
	if a.Metadata.Name == "" {
		f.add(at(paths.metadata, "name"), "is required")
	}
	if err := f.err(); err != nil {
		return Agent{}, nil, err
	}
	return a, secrets, nil
}

func (in AgentInput) metadataPath() string { return pathIf("metadataAttributes", in.Metadata != nil) }

func (in AgentInput) apiPath() string { return pathIf("agentApiAttributes", in.API != nil) }

type agentPaths struct{ metadata, api string }

func (in AgentInput) agent(paths agentPaths, caller Address, now time.Time, f *faultList) (Agent, *Credentials) {
	api := orZero(in.API)
	if api.Endpoints == nil {
		api.Endpoints = in.Endpoints
	}
	if api.OpenEndpoints == nil {
		api.OpenEndpoints = in.OpenEndpoints
	}
	api.AgentDefinitionURL = cmp.Or(api.AgentDefinitionURL, in.AgentDefinitionURL)
	api.AuthType = cmp.Or(api.AuthType, in.AuthType)
	api.StrictEndpoints = cmp.Or(api.StrictEndpoints, in.StrictEndpoints)
	secrets := api.credentials()
	a := Agent{
		ID: NewAgentID(), Owner: caller, IsListed: true, CreatedAt: now.UTC(), UpdatedAt: now.UTC(),
		Metadata: orZero(in.Metadata).or(in.Name, in.Description, in.Tags).normalize(paths.metadata, now, f),
		API:      api.normalize(paths.api, f),
		Plans:    make([]PlanRef, 0, len(in.Plans)),
	}
	a.API.HasCredentials = secrets != nil
	for _, id := range in.Plans {
		if !a.HasPlan(id) {
			a.Plans = append(a.Plans, PlanRef{PlanID: id})
		}
	}
	return a, secrets
}

func (a *Agent) checkPlans(path string, f *faultList) {
	if len(a.Plans) > MaxPlansPerAgent {
		f.add(path, "must have at most %d plans", MaxPlansPerAgent)
	}
}

func (in AgentAPIInput) credentials() *Credentials {
	c := Credentials{
		Username: orZero(in.Username), Password: orZero(in.Password), Token: orZero(in.Token), APIKey: orZero(in.APIKey), Headers: in.Headers,
	}
	if c.Username == "" && c.Password == "" && c.Token == "" && c.APIKey == "" && len(c.Headers) == 0 {
		return nil
	}
	return &c
}

func (in AgentAPIInput) normalize(path string, f *faultList) AgentAPI {
	a := AgentAPI{
		Endpoints: in.Endpoints, OpenEndpoints: in.OpenEndpoints, AgentDefinitionURL: orZero(in.AgentDefinitionURL),
		AuthType: strings.ToLower(orZero(in.AuthType)), StrictEndpoints: bool(orZero(in.StrictEndpoints)),
	}
	if a.Endpoints == nil {
		a.Endpoints = EndpointList{}
	}
	if a.OpenEndpoints == nil {
		a.OpenEndpoints = []string{}
	}
	if len(a.Endpoints) > MaxEndpoints {
		f.add(at(path, "endpoints"), "must have at most %d endpoints", MaxEndpoints)
	}
	if len(a.OpenEndpoints) > MaxEndpoints {
		f.add(at(path, "openEndpoints"), "must have at most %d endpoints", MaxEndpoints)
	}
	for i, e := range a.Endpoints {
		checkURL(e.URL, at(path, index("endpoints", i)), f)
	}
	for i, u := range a.OpenEndpoints {
		checkURL(u, at(path, index("openEndpoints", i)), f)
	}
	if a.AgentDefinitionURL != "" {
		checkURL(a.AgentDefinitionURL, at(path, "agentDefinitionUrl"), f)
	}
	switch a.AuthType {
	case "":
		a.AuthType = "none"
	case "none", "basic", "oauth", "bearer":
	default:
		f.add(at(path, "authType"), "must be none, basic, oauth, or bearer")
	}
	in.checkSecrets(path, f)
	return a
}

// checkSecrets checks that the upstream secrets are valid in headers and at most MaxCredentialsBytes long.
func (in AgentAPIInput) checkSecrets(path string, f *faultList) {
	size := 0
	check := func(member, s string) {
		size += len(s)
		if strings.ContainsFunc(s, unicode.IsControl) {
			f.add(at(path, member), "must not contain control characters")
		}
	}
	check("username", orZero(in.Username))
	check("password", orZero(in.Password))
	check("token", orZero(in.Token))
	check("apiKey", orZero(in.APIKey))
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		if name == "" || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") != "" {
			f.add(at(path, "headers"), "must contain only valid header names")
			continue
		}
		check("headers."+name, name+in.Headers[name])
	}
	if size > MaxCredentialsBytes {
		f.add(path, "must have at most %d bytes of upstream secrets", MaxCredentialsBytes)
	}
}

// AgentPlanInput is the body that registers an agent and its plan in one call. Dialect A has five objects without required
// members; dialect B has plan and agent. An object of B overrides the same object of A.
type AgentPlanInput struct {
	AgentMetadata *MetadataInput `json:"agentMetadata,omitzero"`
	AgentAPI      *AgentAPIInput `json:"agentApi,omitzero"`
	PlanMetadata  *MetadataInput `json:"planMetadata,omitzero"`
	PriceConfig   *PriceInput    `json:"priceConfig,omitzero"`
	CreditsConfig *CreditsInput  `json:"creditsConfig,omitzero"`
	AccessLimit   *LimitInput    `json:"accessLimit,omitzero"`
	MaxOrders     *Int           `json:"maxOrders,omitzero"`
	IsTrialPlan   *Bool          `json:"isTrialPlan,omitzero"`
	Trial         *Bool          `json:"trial,omitzero"`
	Nonce         *Units         `json:"nonce,omitzero"`
	Currency      *string        `json:"currency,omitzero"`
	Plan          *PlanInput     `json:"plan,omitzero"`
	Agent         *AgentInput    `json:"agent,omitzero"`
}

// Registration holds the records that the combined call creates. The plan is attached to the agent.
type Registration struct {
	Agent       Agent
	Plan        Plan
	Credentials *Credentials // upstream secrets of the agent, or nil
	Nonce       *Units
	Warnings    []Warning // of the credits, see [CreditsInput.Warnings]
}

// Registration returns the agent and the plan that the body registers.
//
// Errors are 400: [CodeBadRequest] with every missing and malformed member, [CodeBadCreditsConfig], or an error of [NormalizePrice].
func (in AgentPlanInput) Registration(caller Address, now time.Time) (Registration, error) {
	var f faultList
	nested := in.Plan != nil || in.Agent != nil
	paths := planPaths{metadata: "planMetadata"}
	agentAt := agentPaths{metadata: "agentMetadata", api: "agentApi"}
	if nested {
		paths = planPaths{metadata: at("plan", orZero(in.Plan).metadataPath()), root: "plan"}
		agentAt = agentPaths{metadata: at("agent", orZero(in.Agent).metadataPath()), api: at("agent", orZero(in.Agent).apiPath())}
	}
	need := func(member string, there bool) {
		if !there {
			f.add(member, "is required")
		}
	}
	if nested {
		need("plan", in.Plan != nil || in.PriceConfig != nil && in.CreditsConfig != nil)
		need("agent", in.Agent != nil || in.AgentMetadata != nil || in.AgentAPI != nil)
	} else {
		need("agentMetadata", in.AgentMetadata != nil)
		need("agentApi", in.AgentAPI != nil)
		need("planMetadata", in.PlanMetadata != nil)
	}

	plan := in.planInput()
	r := Registration{Nonce: plan.Nonce}
	r.Plan = plan.plan(paths, caller, now, &f)
	agent := orZero(in.Agent)
	agent.Metadata, agent.API = cmp.Or(agent.Metadata, in.AgentMetadata), cmp.Or(agent.API, in.AgentAPI)
	r.Agent, r.Credentials = agent.agent(agentAt, caller, now, &f)
	r.Agent.Plans = append(r.Agent.Plans, PlanRef{PlanID: r.Plan.ID, Name: r.Plan.Metadata.Name})
	r.Agent.checkPlans("agent.plans", &f)
	if err := f.err(); err != nil {
		return Registration{}, err
	}
	r.Warnings = plan.CreditsConfig.Warnings(r.Plan.Credits)
	return r, nil
}

func (in AgentPlanInput) planInput() PlanInput {
	p := orZero(in.Plan)
	p.Metadata = cmp.Or(p.Metadata, p.PlanMetadata, in.PlanMetadata)
	p.PriceConfig = cmp.Or(p.PriceConfig, in.PriceConfig)
	p.CreditsConfig = cmp.Or(p.CreditsConfig, in.CreditsConfig)
	p.AccessLimit = cmp.Or(p.AccessLimit, in.AccessLimit)
	p.MaxOrders = cmp.Or(p.MaxOrders, in.MaxOrders)
	if !orZero(p.IsTrialPlan) {
		p.IsTrialPlan = in.IsTrialPlan // the plan is a trial when either is true
	}
	if !orZero(p.Trial) {
		p.Trial = in.Trial
	}
	p.Nonce = cmp.Or(p.Nonce, in.Nonce)
	p.Currency = cmp.Or(p.Currency, in.Currency)
	return p
}
