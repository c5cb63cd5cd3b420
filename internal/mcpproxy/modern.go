package mcpproxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tollhq/toll/internal/mcpwire"
)

// modernTime bounds the question whether a server behind speaks the newer era too.
const modernTime = 5 * time.Second

// modern is a second session with a server over HTTP, of the newer era, in which a result may ask its caller for input
// (MCP 2026-07-28, multi round-trip requests). It serves callers of that era. A process has one connection, and so one era, see
// [Upstream.connect].
type modern struct {
	once    sync.Once
	session atomic.Pointer[mcp.ClientSession] // nil: the server does not speak it
}

// sessionOf returns the session for a call with this _meta. In the newer era onward, the _meta that the server behind sees, names
// what the caller can do, so that it asks for nothing else.
func (u *Upstream) sessionOf(ctx context.Context, l *link, meta mcp.Meta, onward *mcp.Meta) *mcp.ClientSession {
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
		if *onward == nil {
			*onward = mcp.Meta{}
		}
		(*onward)[mcp.MetaKeyClientCapabilities] = can
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
		session, err := newClient(u.reread).Connect(ctx, u.dial(), nil)
		switch {
		case err != nil:
		case !isModern(session):
			_ = session.Close() // the SDK fell back to the older era
		default:
			l.modern.session.Store(session)
			l.modern.learnTools(ctx)
		}
	})
	return l.modern.session.Load()
}

// learnTools lists the tools over the second session. Its client sends arguments as headers (Mcp-Param-...) only for tools that it
// has listed, and the server refuses calls without them.
func (m *modern) learnTools(ctx context.Context) {
	session := m.session.Load()
	if session == nil {
		return
	}
	for _, err := range session.Tools(ctx, nil) {
		if err != nil {
			return // the server refuses calls that lack a header
		}
	}
}

// closeModern ends the second session, and keeps another from being made.
func (l *link) closeModern() {
	l.modern.once.Do(func() {})
	if session := l.modern.session.Load(); session != nil {
		_ = session.Close()
	}
}

// newClient returns a client that can do nothing by itself: questions of the server to its client could not be passed to one
// caller among many. changed is called when one of the lists has changed.
func newClient(changed func()) *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "toll", Version: "1.0.0"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{}, MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { changed() },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { changed() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { changed() },
	})
}
