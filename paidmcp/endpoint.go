package paidmcp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/internal/pace"
)

const (
	// headerCaller carries the sender of a message inside the program. HTTP requests cannot contain such a name.
	headerCaller  = ":caller"
	headerVersion = "MCP-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
)

// serveMCP serves the MCP endpoint. It checks the origin, then the credential, then the message.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) {
	if !s.sameSite(w, r, "GET, POST, DELETE") {
		return
	}
	if r.Method != http.MethodPost && r.Method != http.MethodGet && r.Method != http.MethodDelete {
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "invalid_request", "The method is POST, GET or DELETE.")
		return
	}
	for _, name := range []string{headerVersion, headerSession, headerMethod, headerName} {
		if len(r.Header.Values(name)) > 1 {
			invalid(nil, name+" must be sent only once.").write(w)
			return
		}
	}
	version := r.Header.Get(headerVersion)
	modern := version >= mcpwire.FirstModern
	alone := modern || s.cfg.Stateless
	if version != "" && !modern && !slices.Contains(mcp.SupportedProtocolVersions(), version) {
		invalid(nil, "Unsupported protocol version. Supported versions: "+strings.Join(mcp.SupportedProtocolVersions(), ", ")+".").write(w)
		return
	}
	who, ok := s.signedIn(w, r)
	if !ok {
		return
	}
	if r.Method == http.MethodPost {
		s.servePOST(w, r, who, alone)
		return
	}
	switch {
	case who == nil && s.cfg.RequireSignIn:
		s.challenge(w, r, "", "Authorization header required")
	case alone:
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "invalid_request", "This server has no sessions. Use POST.")
	case r.Method == http.MethodGet:
		s.serveStream(w, r, who)
	default:
		s.endSession(w, r, who)
	}
}

// servePOST handles one message. alone means that it does not belong to a session.
func (s *Server) servePOST(w http.ResponseWriter, r *http.Request, who *caller, alone bool) {
	body, done, ok := s.readBody(w, r, s.cfg.MaxBody)
	if !ok {
		return
	}
	defer done()
	m, f := readMessage(body)
	if f == nil {
		f = m.agrees(r.Header)
	}
	if f != nil {
		f.write(w)
		return
	}
	if who == nil && s.cfg.RequireSignIn && !s.pays(m) {
		s.challenge(w, r, "", "Authorization header required")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	asJSON, asEvents := accepts(r.Header.Values("Accept"))
	answer := &reply{w: w, streams: asEvents, always: asEvents && !asJSON}
	r.Header[headerCaller] = []string{pace.Source(r)}
	if who != nil {
		r.Header[headerCaller] = []string{who.owner()}
	}
	// The SDK requires both types; reply chooses one.
	r.Header.Set("Accept", "application/json, text/event-stream")
	if alone || m.isNew {
		if m.method == methodListen {
			// It lasts until either side ends it.
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.ending, cancel)()
			r = r.WithContext(ctx)
		}
		s.modern.ServeHTTP(answer, r)
		answer.finish()
		return
	}
	s.serveSession(answer, r, who, m)
}

// pays reports whether a message carries a payment for an item with a price. The call itself verifies the payment.
func (s *Server) pays(m *message) bool {
	return m.isPaid && runs[m.method] != "" && s.pay.prices.isPriced(runs[m.method], m.name)
}

// agrees returns a fault if Mcp-Method or Mcp-Name, by which proxies route, differ from the message. From 2026-07-28 they are
// required, and the SDK rejects messages without them.
func (m *message) agrees(h http.Header) *messageFault {
	method, name := h.Values(headerMethod), h.Values(headerName)
	if len(method) == 1 && m.method != "" && method[0] != m.method || len(name) == 1 && runs[m.method] != "" && name[0] != m.name {
		return &messageFault{http.StatusBadRequest, mcp.CodeHeaderMismatch, "Mcp-Method and Mcp-Name must match the message.", m.id}
	}
	return nil
}

// codeNoSession is the code for an unknown session, as in other MCP servers.
const codeNoSession = -32001
