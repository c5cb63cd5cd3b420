package paidmcp

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauthmeta"
)

// serveDocument answers with a document that anybody may read, from any page.
func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request, document func(base string) any) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET")
		h.Set("Access-Control-Allow-Headers", "mcp-protocol-version")
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	base := s.baseOf(r)
	if base == "" {
		refuse(w, http.StatusBadRequest, "invalid_request", "The Host cannot be read.")
		return
	}
	if r.URL.EscapedPath() == pathHealth {
		h.Set("Cache-Control", "no-store")
	} else {
		h.Set("Cache-Control", "public, max-age=3600")
		h.Add("Vary", "Host")
	}
	writeJSON(w, http.StatusOK, document(base))
}

// endpointDocument is the document of the MCP endpoint as a protected resource.
type endpointDocument struct {
	oauthmeta.Resource
	Required     []string     `json:"scopes_required,omitempty"`
	Capabilities capabilities `json:"mcp_capabilities"`
}

type capabilities struct {
	Tools           []string `json:"tools"`
	ProtocolVersion string   `json:"protocol_version"` // the newest
}

func (s *Server) resource(base string) oauthmeta.Resource {
	servers := []string{}
	if s.service != "" {
		servers = append(servers, s.service)
	}
	return oauthmeta.Resource{
		Resource: base, Servers: servers, Scopes: s.cfg.Scopes, Methods: []string{"header"}, Documentation: base + "/",
	}
}

func (s *Server) resourceDocument(base string) any { return s.resource(base) }

func (s *Server) endpointDocument(base string) any {
	r := s.resource(base)
	r.Resource += pathMCP
	return endpointDocument{
		Resource: r, Required: s.cfg.Scopes, Capabilities: capabilities{Tools: s.items().tools, ProtocolVersion: mcp.SupportedProtocolVersions()[0]},
	}
}

// authorization is the document of the authorization server. It is served here too for clients of the older era, which look for
// it at the MCP server, and register with that.
func (s *Server) authorization(base string) oauthmeta.Server {
	scopes := s.cfg.Scopes
	if !slices.Contains(scopes, "openid") {
		scopes = append([]string{"openid"}, scopes...)
	}
	d := oauthmeta.Of(s.service, scopes)
	d.RegistrationEndpoint = base + pathRegister
	return d
}

func (s *Server) authorizationDocument(base string) any { return s.authorization(base) }

// healthDocument is the answer of a server that lives.
type healthDocument struct {
	Status    string    `json:"status"`
	Service   string    `json:"service"`
	Timestamp toll.Time `json:"timestamp"`
}

func (s *Server) health(string) any {
	return healthDocument{"ok", s.pay.cfg.ServerName, toll.At(s.clock())}
}

// infoDocument says what a server is.
type infoDocument struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Description string   `json:"description"`
	Endpoints   infoURLs `json:"endpoints"`
	OAuth       infoAuth `json:"oauth"`
	Tools       []string `json:"tools"`
	Resources   []string `json:"resources"`
	Prompts     []string `json:"prompts"`
}

type infoURLs struct {
	MCP      string `json:"mcp"`
	Health   string `json:"health"`
	Register string `json:"register"`
}

type infoAuth struct {
	Authorization         string       `json:"authorization_server_metadata"`
	Resource              string       `json:"protected_resource_metadata"`
	OpenID                string       `json:"openid_configuration"`
	AuthorizationEndpoint string       `json:"authorization_endpoint"`
	TokenEndpoint         string       `json:"token_endpoint"`
	JWKS                  string       `json:"jwks_uri"`
	RegistrationEndpoint  string       `json:"registration_endpoint"`
	ClientID              toll.AgentID `json:"client_id,omitempty"`
	Scopes                []string     `json:"scopes"`
}

func (s *Server) info(base string) any {
	as, items := s.authorization(base), s.items()
	return infoDocument{
		Name: s.pay.cfg.ServerName, Version: s.cfg.Version, Description: s.cfg.Description,
		Endpoints: infoURLs{base + pathMCP, base + pathHealth, base + pathRegister},
		OAuth: infoAuth{
			Authorization: base + pathAuthorization, Resource: base + pathResource, OpenID: base + pathOpenID,
			AuthorizationEndpoint: as.AuthorizationEndpoint, TokenEndpoint: as.TokenEndpoint, JWKS: as.JWKSURI,
			RegistrationEndpoint: as.RegistrationEndpoint, ClientID: s.pay.seller.AgentID, Scopes: s.cfg.Scopes,
		},
		Tools: items.tools, Resources: items.resources, Prompts: items.prompts,
	}
}

// items are the names of what the server has.
type items struct {
	tools, resources, prompts []string
	until                     time.Time
}

const (
	// itemsLife bounds how often the documents ask the server what it has, and itemsTime how long.
	itemsLife = 5 * time.Second
	itemsTime = 30 * time.Second
)

// items lists what the server has as a client would see it, whoever registered it. While it does not answer in time, what it said
// before serves on.
func (s *Server) items() items {
	s.listing.Lock()
	defer s.listing.Unlock()
	now := s.clock()
	if now.Before(s.listed.until) {
		return s.listed
	}
	ctx, cancel := context.WithTimeout(context.Background(), itemsTime)
	defer cancel()
	if it := s.list(ctx); ctx.Err() == nil || s.listed.until.IsZero() {
		s.listed = it
	}
	s.listed.until = now.Add(itemsLife)
	return s.listed
}

func (s *Server) list(ctx context.Context) items {
	it := items{tools: []string{}, resources: []string{}, prompts: []string{}}
	near, far := mcp.NewInMemoryTransports()
	server, err := s.mcp.Connect(ctx, far, nil)
	if err != nil {
		return it
	}
	defer server.Close()
	client, err := mcp.NewClient(&mcp.Implementation{Name: s.pay.cfg.ServerName, Version: s.cfg.Version}, nil).Connect(ctx, near, nil)
	if err != nil {
		return it
	}
	defer client.Close()
	for tool, err := range client.Tools(ctx, nil) {
		if err != nil {
			break
		}
		it.tools = append(it.tools, tool.Name)
	}
	for resource, err := range client.Resources(ctx, nil) {
		if err != nil {
			break
		}
		it.resources = append(it.resources, resource.URI)
	}
	for prompt, err := range client.Prompts(ctx, nil) {
		if err != nil {
			break
		}
		it.prompts = append(it.prompts, prompt.Name)
	}
	return it
}
