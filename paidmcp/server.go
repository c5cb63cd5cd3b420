package paidmcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/oauthmeta"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
)

// Defaults and bounds of a managed server.
const (
	DefaultHost    = "127.0.0.1"
	DefaultMaxBody = 1 << 20 // bytes of a request
	defaultVersion = "1.0.0"

	shutdownTime = 20 * time.Second
)

// ServerConfig configures a managed server, besides prices (wire contract, section 22).
type ServerConfig struct {
	// Description is shown at /. Version is the version of the server, default 1.0.0.
	Description, Version string
	// Host and Port are the listen address of ListenAndServe, default 127.0.0.1: other machines connect through a reverse proxy
	// that terminates TLS. The system chooses port 0.
	Host string
	Port int
	// BaseURL is the public address of the server without /mcp, for example "https://tools.example.com". Empty uses the address
	// of each request, which is right only on the local machine.
	BaseURL string
	// ServiceURL is the public address of the service that issues access tokens, for example "https://pay.example.com". Empty
	// uses the address of the facilitator, if it has one.
	ServiceURL string
	// Scopes are the scopes in the OAuth documents; nil for the default scopes and the scope of the agent. Clients request the
	// scope of the agent, so the consent page can offer its plans to people without a plan.
	Scopes []string
	// RequireSignIn rejects requests without a bearer token with 401, except paid calls of items that have a price.
	RequireSignIn bool
	// AllowedOrigins are the origins of web pages that may call, for example "https://chat.example.com"; nil for the local
	// machine and BaseURL.
	AllowedOrigins []string
	// AllowedHosts are the accepted Host headers, with or without a port; nil for the names of the local machine and of
	// BaseURL. "*" accepts all, for servers behind a proxy that checks them.
	AllowedHosts []string
	// MaxBody bounds a request in bytes, 0 for 1 MiB.
	MaxBody int64
	// MaxSessions bounds the open sessions, 0 for 10,000. At the bound, idle sessions end: first of subscribers and addresses with
	// more than a sixteenth of them, then of callers without a subscriber, and last sessions with an unfetched paid result.
	MaxSessions int
	// Stateless serves clients of protocol versions up to 2025-11-25 without sessions, so that replicas behind a load balancer share no
	// state. The server then sends nothing outside of calls, GET and DELETE return 405, and clients cannot resume streams.
	Stateless bool
	// ResumeBytes bounds the memory for streams that clients can resume, 0 for 64 MiB. A subscriber, or an address without a
	// subscriber, uses at most a quarter. At the bound, ended streams are dropped: unpaid before paid, oldest first. With a negative
	// value streams cannot be resumed, and a call whose client disconnects is cancelled.
	ResumeBytes int64
	// ResumeTime is the time in which a client can resume a stream, 0 for 5 minutes. Then the stream is dropped, and its call is
	// cancelled if it still runs.
	ResumeTime time.Duration
}

// Server is an MCP server over HTTP, for all protocol versions: the endpoint, its sessions, the OAuth documents and client
// registration. Register items with prices on its [Payments], and items without prices on the server of the SDK.
type Server struct {
	cfg      ServerConfig
	pay      *Payments
	mcp      *mcp.Server
	base     *url.URL // public address, nil for the address of each request
	service  string   // origin of the service, "" if unknown
	guard    guard
	bearers  *bearers
	sessions *sessions
	modern   http.Handler // for protocol versions without sessions
	register registrar
	bodies   *semaphore.Weighted
	log      *slog.Logger
	clock    func() time.Time

	ending context.Context // done once the server closes
	end    context.CancelFunc

	listed *seller.Cache[struct{}, items]
}

// NewServer returns a server that serves m over HTTP, and protects m with the payments p. Both may be used elsewhere as well.
func NewServer(p *Payments, m *mcp.Server, cfg ServerConfig) (*Server, error) {
	s := &Server{cfg: cfg, pay: p, mcp: m, log: p.seller.Log, clock: p.seller.Clock, bodies: semaphore.NewWeighted(maxBodies)}
	s.cfg.MaxBody = cmp.Or(max(cfg.MaxBody, 0), DefaultMaxBody)
	s.cfg.MaxSessions = cmp.Or(max(cfg.MaxSessions, 0), maxSessions)
	s.cfg.Host = cmp.Or(cfg.Host, DefaultHost)
	s.cfg.Version = cmp.Or(cfg.Version, defaultVersion)
	if s.cfg.Scopes == nil {
		s.cfg.Scopes = strings.Fields("openid profile credits mcp:read mcp:write mcp:tools")
		if agent := p.seller.AgentID; agent != "" {
			s.cfg.Scopes = append(s.cfg.Scopes, oauthmeta.AgentScope+string(agent))
		}
	}
	// The keys decide about access, so they come only from the configured address, without redirects.
	direct := &http.Client{
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	var err error
	if cfg.BaseURL != "" {
		if s.base, err = origin("BaseURL", cfg.BaseURL); err != nil {
			return nil, err
		}
	}
	near := ""
	if c, ok := p.seller.Facilitator.(interface{ URL() string }); ok {
		near = strings.TrimSuffix(c.URL(), "/")
	}
	s.service = near
	if cfg.ServiceURL != "" {
		u, err := origin("ServiceURL", strings.TrimSuffix(strings.TrimSuffix(cfg.ServiceURL, "/"), apiPrefix))
		if err != nil {
			return nil, err
		}
		s.service = u.String()
	}
	near = cmp.Or(near, s.service)
	if s.guard, err = newGuard(cfg.AllowedHosts, cfg.AllowedOrigins, s.base); err != nil {
		return nil, err
	}
	s.bearers = &bearers{
		f: p.seller.Facilitator, keys: &keys{url: near + "/.well-known/jwks.json", client: direct, clock: s.clock},
		agent: p.seller.AgentID, names: p.seller.Namespace, clock: s.clock, verdicts: cache.New[string, string](maxVerdicts),
	}
	s.register = registrar{to: near + "/oauth/register", client: direct, limit: perMinute[struct{}](registerRate)}
	s.sessions = &sessions{
		mcp: s.mcp, most: s.cfg.MaxSessions, backlog: newBacklog(cfg.ResumeBytes, cfg.ResumeTime), clock: s.clock, log: s.log,
		byID: make(map[string]*session), groups: make(map[string]*group),
	}
	s.listed = seller.NewCache[struct{}, items](nil, nil, itemsTime, s.clock)
	s.ending, s.end = context.WithCancel(context.Background())
	s.modern = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{
		// The configured lists check host and origin.
		Stateless: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: s.cfg.MaxBody, PropagateRequestCancellation: true,
	})
	p.Protect(m)
	m.AddReceivingMiddleware(s.sessions.backlog.closable, withoutCredentials, limitCompletions(s.clock))
	if p.cfg.EndpointURL == "" && s.base != nil {
		p.cfg.EndpointURL = s.base.String() + pathMCP
	}
	return s, nil
}

// apiPrefix is the path of the API, which is removed from ServiceURL: builders may paste the address of the API.
const apiPrefix = "/api/v1"

// origin parses an absolute http or https address. It keeps a path, without a trailing slash.
func origin(what, address string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(address, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("paidmcp: %s must be an absolute http or https URL", what)
	}
	return u, nil
}

// Handler serves all paths: /mcp, the documents, the registration, / and /health. Mount it in a web application under those
// paths; strip a prefix first.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Endpoint serves only the MCP endpoint, under any path.
func (s *Server) Endpoint() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pace.Body(w, r, s.cfg.MaxBody, patience, pace.MinRate)
		if s.admit(w, r) {
			seller.Pulsing(http.HandlerFunc(s.serveMCP)).ServeHTTP(w, r)
		}
	})
}

// Mount registers /mcp, the documents and the registration on a mux.
func (s *Server) Mount(mux *http.ServeMux) {
	for _, path := range []string{pathMCP, pathRegister, pathResource, pathResource + pathMCP, pathAuthorization, pathOpenID} {
		mux.Handle(path, s.Handler())
	}
}

const (
	pathMCP           = "/mcp"
	pathHealth        = "/health"
	pathRegister      = "/register"
	pathResource      = "/.well-known/oauth-protected-resource"
	pathAuthorization = "/.well-known/oauth-authorization-server"
	pathOpenID        = "/.well-known/openid-configuration"
)

// serve routes by the escaped path, without cleaning it, so that each path has only one interpretation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	pace.Body(w, r, s.cfg.MaxBody, patience, pace.MinRate)
	if !s.admit(w, r) {
		return
	}
	var document func(base string) any
	switch r.URL.EscapedPath() {
	case pathMCP:
		seller.Pulsing(http.HandlerFunc(s.serveMCP)).ServeHTTP(w, r)
		return
	case pathRegister:
		s.serveRegister(w, r)
		return
	case "/":
		document = s.info
	case pathHealth:
		document = s.health
	case pathResource:
		document = func(base string) any { return s.resource(base) }
	case pathResource + pathMCP:
		document = s.endpointDocument
	case pathAuthorization, pathOpenID:
		document = func(base string) any { return s.authorization(base) }
	}
	if document == nil || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		notFound(w, r)
		return
	}
	s.serveDocument(w, r, document)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	refuse(w, http.StatusNotFound, "not_found", "Endpoint not found: "+shown(r.Method)+" "+shown(r.URL.EscapedPath()))
}

// shown shortens a part of a request for an error message.
func shown(s string) string { return plain.Text(s, 200) }

// ListenAndServe serves until the context ends, and then lets running calls finish for up to 20 s.
func (s *Server) ListenAndServe(ctx context.Context) error {
	var c net.ListenConfig
	ln, err := c.Listen(ctx, "tcp", net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Port)))
	if err != nil {
		return fmt.Errorf("paidmcp: %w", err)
	}
	return s.Serve(ctx, ln)
}

// patience is the grace period before the minimum rate applies to a slow caller. Tests change it.
var patience = pace.Patience

// Serve is like [Server.ListenAndServe] on a listener, which it closes. It closes the connection of a client that sends a request
// or reads a response too slowly: 10 s are allowed, and one second more for each 16 KiB. Time without data does not count. While
// more than 128 MiB of large responses are unread, it closes the connection of the slowest reader.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: patience, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ConnState: pace.ConnState}
	ln = pace.Limit(pace.Listen(ln, patience, pace.MinRate), pace.MaxConns, pace.MaxConnsOf)
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(ln) }()
	select {
	case err := <-failed:
		return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	// Close ends the open streams, for which Shutdown would wait.
	return errors.Join(s.Close(end), h.Shutdown(end), s.pay.seller.Queue.Drain(end))
}

// Close ends all sessions and subscriptions, and waits for the calls of sessions.
func (s *Server) Close(ctx context.Context) error {
	s.end()
	return s.sessions.close(ctx)
}

// baseOf returns the address under which this request reached the server, "" if its Host is malformed.
func (s *Server) baseOf(r *http.Request) string {
	if s.base != nil {
		return s.base.String()
	}
	if !plainHost.MatchString(r.Host) {
		return ""
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
