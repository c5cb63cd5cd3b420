package api

import (
	"maps"
	"net/http"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
)

type service struct {
	Service
	auth  *auth.Auth
	chain *Chain
	clock clock
}

func (s service) routes() []route {
	return []route{
		{op: "readInfo", method: "GET", path: "/", auth: open, right: public, tag: "Service", summary: "Read information about this service", action: reads(s.info)},
		{op: "readHealth", method: "GET", path: "/health", auth: open, right: public, unlimited: true, tag: "Service", summary: "Check that the process is running", action: reads(s.health)},
		{op: "readReady", method: "GET", path: "/ready", auth: open, right: public, unlimited: true, further: 503, tag: "Service", summary: "Check whether the service is ready: 200, or 503 if not", action: reads(s.ready)},
		{op: "readJWKS", method: "GET", path: "/.well-known/jwks.json", auth: open, right: public, tag: "Service", summary: "Read the public keys that verify API keys and access tokens", action: readsAs[JWKS](s.jwks)},
		{op: "readOpenAPI", method: "GET", path: "/openapi.json", auth: open, right: public, tag: "Service", summary: "Read the API reference as an OpenAPI document", action: page((*documents).openAPIPage)},
		{op: "readDocs", method: "GET", path: "/docs", auth: open, right: public, tag: "Service", summary: "Show the API reference as a page", action: page((*documents).docsPage)},
		{op: "readErrorDocs", method: "GET", path: "/docs/errors", auth: open, right: public, tag: "Service", summary: "Show every error code on a page", action: page((*documents).errorsPage)},
		{
			op: "readVersions", method: "GET", path: Base + "/meta/versions", auth: keyed, right: toll.RightRead, tag: "Service", anyVersion: true,
			summary: "Read the supported API versions and the version of your calls", action: reads(s.versions),
		},
	}
}

// Info says what a service is (wire contract, section 5).
type Info struct {
	Name        string           `json:"name"`
	Version     string           `json:"version"`
	Environment toll.Environment `json:"environment"`
	Network     string           `json:"network"`
	APIBase     string           `json:"apiBase"`
	APIVersion  VersionRange     `json:"apiVersion"`
	Deployment  Deployment       `json:"deployment"`
}

type VersionRange struct {
	Current string `json:"current"`
	Floor   string `json:"floor"`
}

// Deployment names the chain and the contracts that are used. The address of a contract is zero where nothing is deployed.
// Markers are names under contracts that are no contracts.
type Deployment struct {
	Version   string                  `json:"version"`
	ChainID   int64                   `json:"chainId"`
	Contracts map[string]toll.Address `json:"contracts"`
	Markers   []string                `json:"markers"`
}

// expected are names of contracts that strict clients look for before their first call. This service has none of them but
// the marker PayAsYouGoTemplate.
var expected = []string{
	"AccessManager", "AgreementsStore", "AssetsRegistry", "DistributePaymentsCondition", "FiatPaymentTemplate", "FiatSettlementCondition",
	"FixedPaymentTemplate", "LinearPricing", "LockPaymentCondition", "NFT1155Credits", "NFT1155ExpirableCredits", "NFT1155ExpirableCreditsV2",
	"OneTimeCreatorHook", "PayAsYouGoTemplate", "PaymentsVault", "ProtocolStandardFees", "TokenUtils", "TransferCreditsCondition",
}

func (s service) info(*call) (*Info, error) {
	contracts := map[string]toll.Address{s.Namespace.ConfigContract(): {}}
	for _, name := range expected {
		contracts[name] = toll.Address{}
	}
	contracts["PayAsYouGoTemplate"], contracts["USDC"], contracts["EURC"] = toll.PayAsYouGoTemplate, s.Environment.USDC(), s.Environment.EURC()
	if s.chain != nil {
		maps.Copy(contracts, s.chain.Contracts)
	}
	return &Info{
		Name: "toll", Version: s.Release, Environment: s.Environment, Network: s.Environment.Network(), APIBase: s.PublicURL + Base,
		APIVersion: VersionRange{Current: apiversion.Current.String(), Floor: apiversion.Floor.String()},
		Deployment: Deployment{
			Version: s.Release, ChainID: s.Environment.ChainID(), Markers: []string{"PayAsYouGoTemplate"},
			Contracts: contracts,
		},
	}, nil
}

// Health is the answer of a living process.
type Health struct {
	Status    string    `json:"status"`
	Service   string    `json:"service"`
	Version   string    `json:"version"`
	Timestamp toll.Time `json:"timestamp"`
}

func (s service) health(*call) (*Health, error) {
	return &Health{Status: "ok", Service: "toll", Version: s.Release, Timestamp: toll.At(s.clock())}, nil
}

// CheckShutdown is the check that is present while the service shuts down.
const CheckShutdown = "shutdown"

// Readiness tells what works. Only the database, and a shutdown, decide the status.
type Readiness struct {
	Status string            `json:"status" enum:"ready,not_ready"`
	Checks map[string]string `json:"checks"`
}

func (s service) ready(c *call) (*Readiness, error) {
	checks := s.Ready(c.context)
	if checks["database"] != "ok" || checks[CheckShutdown] != "" {
		c.status = http.StatusServiceUnavailable
		c.w.Header()["Retry-After"] = []string{"1"}
		return &Readiness{Status: "not_ready", Checks: checks}, nil
	}
	return &Readiness{Status: "ready", Checks: checks}, nil
}

// JWKS is a set of public keys (RFC 7517).
type JWKS struct {
	Keys []JWK `json:"keys"`
}

// JWK is one public key.
type JWK struct {
	KeyType   string `json:"kty"`
	Curve     string `json:"crv"`
	X         string `json:"x"`
	KeyID     string `json:"kid"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
}

func (s service) jwks(c *call) (stored, error) {
	c.w.Header()["Cache-Control"] = publicHour
	return s.auth.JWKS(), nil
}

// Versions is what a caller can ask about API versions. It has no older shapes.
type Versions struct {
	Current                 string          `json:"current"`
	Floor                   string          `json:"floor"`
	GatedVersions           []string        `json:"gatedVersions"`
	YourPinnedVersion       string          `json:"yourPinnedVersion"`
	YourEffectiveVersion    string          `json:"yourEffectiveVersion"`
	YourVersionResolvedFrom apiversion.From `json:"yourVersionResolvedFrom" enum:"header,apiKey,fallback"`
}

func (service) versions(c *call) (*Versions, error) {
	v := &Versions{
		Current: apiversion.Current.String(), Floor: apiversion.Floor.String(), GatedVersions: []string{}, YourPinnedVersion: c.caller.Version,
		YourEffectiveVersion: c.version.String(), YourVersionResolvedFrom: c.from,
	}
	for _, g := range apiversion.Gated() {
		v.GatedVersions = append(v.GatedVersions, g.String())
	}
	return v, nil
}
