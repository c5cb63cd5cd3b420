package paidmcp

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauthmeta"
)

// serveDocument serves a public document, to web pages of any origin as well.
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
		refuse(w, http.StatusBadRequest, "invalid_request", "The Host header is invalid.")
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

func (s *Server) resource(base string) oauthmeta.Resource {
	servers := []string{}
	if s.service != "" {
		servers = append(servers, s.service)
	}
	return oauthmeta.Resource{
		Resource: base, Servers: servers, Scopes: s.cfg.Scopes, Methods: []string{"header"}, Documentation: base + "/",
	}
}

// endpointDocument describes the MCP endpoint as a protected resource.
func (s *Server) endpointDocument(base string) any {
	r := s.resource(base)
	r.Resource += pathMCP
	return struct {
		oauthmeta.Resource
		Required     []string       `json:"scopes_required,omitempty"`
		Capabilities map[string]any `json:"mcp_capabilities"`
	}{r, s.cfg.Scopes, map[string]any{"tools": s.items().tools, "protocol_version": mcp.SupportedProtocolVersions()[0]}}
}

// authorization describes the authorization server. The MCP server serves it as well, for clients of older protocol versions,
// which look for it and register here.
func (s *Server) authorization(base string) oauthmeta.Server {
	scopes := s.cfg.Scopes
	if !slices.Contains(scopes, "openid") {
		scopes = append([]string{"openid"}, scopes...)
	}
	d := oauthmeta.Of(s.service, scopes)
	d.RegistrationEndpoint = base + pathRegister
	return d
}

func (s *Server) health(string) any {
	return map[string]any{"status": "ok", "service": s.pay.cfg.ServerName, "timestamp": toll.At(s.clock())}
}

// info describes the server.
func (s *Server) info(base string) any {
	as, items := s.authorization(base), s.items()
	oauth := map[string]any{
		"authorization_server_metadata": base + pathAuthorization,
		"protected_resource_metadata":   base + pathResource,
		"openid_configuration":          base + pathOpenID,
		"authorization_endpoint":        as.AuthorizationEndpoint,
		"token_endpoint":                as.TokenEndpoint,
		"jwks_uri":                      as.JWKSURI,
		"registration_endpoint":         as.RegistrationEndpoint,
		"scopes":                        s.cfg.Scopes,
	}
	if agent := s.pay.seller.AgentID; agent != "" {
		oauth["client_id"] = agent
	}
	return map[string]any{
		"name":        s.pay.cfg.ServerName,
		"version":     s.cfg.Version,
		"description": s.cfg.Description,
		"endpoints":   map[string]string{"mcp": base + pathMCP, "health": base + pathHealth, "register": base + pathRegister},
		"oauth":       oauth,
		"tools":       items.tools,
		"resources":   items.resources,
		"prompts":     items.prompts,
	}
}

// items are the names of the items of a server.
type items struct{ tools, resources, prompts []string }

const (
	// itemsLife is the minimum time between two listings for the documents, and itemsTime bounds one listing.
	itemsLife = 5 * time.Second
	itemsTime = 30 * time.Second
)

// items lists the items as a client would see them. If the server does not answer in time, the previous list is used.
func (s *Server) items() items {
	it, err := s.listed.By(context.Background(), struct{}{}, func(ctx context.Context, _ struct{}) (items, time.Duration, error) {
		it := s.list(ctx)
		return it, itemsLife, ctx.Err()
	})
	if err != nil {
		return noItems
	}
	return it
}

var noItems = items{[]string{}, []string{}, []string{}}

func (s *Server) list(ctx context.Context) items {
	it := noItems
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
	it.tools = named(client.Tools(ctx, nil), func(t *mcp.Tool) string { return t.Name })
	it.resources = named(client.Resources(ctx, nil), func(r *mcp.Resource) string { return r.URI })
	it.prompts = named(client.Prompts(ctx, nil), func(p *mcp.Prompt) string { return p.Name })
	return it
}

// named returns the names in a list, up to the first error.
func named[T any](listed iter.Seq2[*T, error], name func(*T) string) []string {
	names := []string{}
	for one, err := range listed {
		if err != nil {
			break
		}
		names = append(names, name(one))
	}
	return names
}
