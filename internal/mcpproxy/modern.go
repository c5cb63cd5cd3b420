package mcpproxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tollhq/toll/internal/mcpwire"
)

// modernTime bounds the attempt to open a session of version 2026-07-28.
const modernTime = 5 * time.Second

// modern is a second session with a server over HTTP, of protocol version 2026-07-28, in which a result may request input from its caller
// (multi round-trip requests). It serves callers of that version. A process has one connection and one version, see [Upstream.connect].
type modern struct {
	once    sync.Once
	session atomic.Pointer[mcp.ClientSession] // nil if it was not opened, or the server does not support the version
}

// sessionOf returns the session for a call with this _meta. From version 2026-07-28 it copies the capabilities of the caller to
// upstreamMeta, the _meta for the upstream server, so that the server requests only supported input.
func (u *Upstream) sessionOf(ctx context.Context, l *link, meta mcp.Meta, upstreamMeta *mcp.Meta) *mcp.ClientSession {
	if version, _ := meta[mcp.MetaKeyProtocolVersion].(string); version < mcpwire.FirstModern {
		return l.session
	}
	session := l.session
	if !isModern(session) {
		session = u.modernOf(ctx, l)
	}
	if session == nil {
		return l.session
	}
	if can := meta[mcp.MetaKeyClientCapabilities]; can != nil {
		if *upstreamMeta == nil {
			*upstreamMeta = mcp.Meta{}
		}
		(*upstreamMeta)[mcp.MetaKeyClientCapabilities] = can
	}
	return session
}

func isModern(s *mcp.ClientSession) bool {
	return s.InitializeResult().ProtocolVersion >= mcpwire.FirstModern
}

func (u *Upstream) modernOf(ctx context.Context, l *link) *mcp.ClientSession {
	if u.blames {
		return nil
	}
	l.modern.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), modernTime)
		defer cancel()
		session, err := newClient(u.Reread).Connect(ctx, u.dial(), nil)
		switch {
		case err != nil:
		case !isModern(session):
			_ = session.Close() // the SDK fell back to an older version
		default:
			l.modern.session.Store(session)
			l.modern.learnTools(ctx)
		}
	})
	return l.modern.session.Load()
}

// learnTools lists the tools over the second session. Its client sends arguments as headers (Mcp-Param-...) only for listed
// tools, and the server refuses calls without them.
func (m *modern) learnTools(ctx context.Context) {
	session := m.session.Load()
	if session == nil {
		return
	}
	for _, err := range session.Tools(ctx, nil) {
		if err != nil {
			return // then the server refuses calls without their headers
		}
	}
}

// closeModern closes the second session, and prevents that it is opened later.
func (l *link) closeModern() {
	l.modern.once.Do(func() {})
	if session := l.modern.session.Load(); session != nil {
		_ = session.Close()
	}
}

// newClient returns a client without capabilities, because requests of the server could not be assigned to one of many callers.
// It calls changed when a list has changed.
func newClient(changed func()) *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "toll", Version: "1.0.0"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{}, MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { changed() },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { changed() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { changed() },
	})
}
