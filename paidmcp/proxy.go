package paidmcp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// connectTime bounds the first contact with a server, and the listing of what it has. Commands that fetch themselves from
	// a registry take their time.
	connectTime = time.Minute
	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
)

// Upstream is an MCP server of somebody, behind a price: a command that speaks over its standard input and output, or a url.
// All callers share one connection to it, and so what the server keeps for its client. It never sees who they are: nothing
// of their credentials, payments or headers is passed on.
type Upstream struct {
	dial func() mcp.Transport
	log  *slog.Logger

	first   *mcp.InitializeResult // what the server said of itself at the first contact
	changed chan struct{}         // its lists are to be read again

	mu      sync.Mutex
	session *mcp.ClientSession // nil while there is no connection
	serial  int64
	asking  map[string]*asker // by progress token
}

// Command returns an upstream that is started as a process, with this environment but for the settings of this program. What
// the process writes to its standard error goes to that of the command.
func Command(log *slog.Logger, make func() *exec.Cmd) *Upstream {
	u := newUpstream(log)
	u.dial = func() mcp.Transport {
		c := make()
		if c.Env == nil {
			c.Env = os.Environ()
		}
		c.Env = withoutSecrets(c.Env)
		return &processTransport{c, u.log, u.came}
	}
	return u
}

// withoutSecrets removes our own settings, API key and master key among them, from the environment of somebody else's process.
func withoutSecrets(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(strings.ToUpper(e), "TOLL_") {
			out = append(out, e)
		}
	}
	return out
}

// Remote returns an upstream with streamable HTTP at a url. A token that is not empty is sent to it as a bearer token; it is
// the builder's, never a caller's.
func Remote(log *slog.Logger, endpoint, token string) *Upstream {
	u := newUpstream(log)
	h := remoteClient(endpoint, token, u.came)
	u.dial = func() mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: h, MaxEventSize: -1}
	}
	return u
}

func newUpstream(log *slog.Logger) *Upstream {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Upstream{log: log, changed: make(chan struct{}, 1), asking: make(map[string]*asker)}
}

// Connect makes the first connection. What the server says of itself is known then.
func (u *Upstream) Connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	session, err := u.connect(ctx)
	if err != nil {
		return err
	}
	u.first = session.InitializeResult()
	return nil
}

func (u *Upstream) connect(ctx context.Context) (*mcp.ClientSession, error) {
	changed := func() {
		select {
		case u.changed <- struct{}{}:
		default: // it will be read again anyhow
		}
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "toll", Version: defaultVersion}, &mcp.ClientOptions{
		// Questions of the server to its client could not be passed to one caller among many.
		Capabilities:                &mcp.ClientCapabilities{},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed() },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { changed() },
		ResourceListChangedHandler:  func(context.Context, *mcp.ResourceListChangedRequest) { changed() },
		ProgressNotificationHandler: u.progress,
	})
	// Servers of the older era need not know the question with which the newer one begins, and some never answer it.
	session, err := c.Connect(ctx, u.dial(), &mcp.ClientSessionOptions{ProtocolVersion: lastWithSessions})
	if said := (*jsonrpc.Error)(nil); errors.As(err, &said) {
		session, err = c.Connect(ctx, u.dial(), nil)
	}
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.session = session
	u.mu.Unlock()
	changed()
	return session, nil
}

// keep connects again whenever the connection ended, until the context does, which ends it.
func (u *Upstream) keep(ctx context.Context) {
	for wait := firstRetry; ; {
		if session := u.current(); session != nil {
			ended := make(chan struct{})
			go func() {
				_ = session.Wait() // why it ended shows when it is made again
				close(ended)
			}()
			select {
			case <-ctx.Done():
				_ = session.Close() // the process is gone, or will be
				return
			case <-ended:
			}
			u.mu.Lock()
			u.session = nil
			u.mu.Unlock()
			u.log.Warn("mcp: the connection to the server behind ended")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		again, cancel := context.WithTimeout(ctx, connectTime)
		_, err := u.connect(again)
		cancel()
		if err == nil {
			wait = firstRetry
			continue
		}
		u.log.Warn("mcp: the server behind cannot be reached", "error", err)
		wait = min(2*wait, lastRetry)
	}
}

func (u *Upstream) current() *mcp.ClientSession {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.session
}

// errBehind is all that a caller learns of a server that is not there.
var errBehind = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "The server behind did not answer."}

// failed is the error of the server as it said it, and errBehind for everything else.
func (u *Upstream) failed(err error) error {
	var said *jsonrpc.Error
	if errors.As(err, &said) {
		return said
	}
	u.log.Warn("mcp: a call to the server behind failed", "error", err)
	return errBehind
}

// onward is the _meta of a call without what is between the caller and us: payments, the version of the protocol and the
// client, the progress token.
func onward(meta mcp.Meta) mcp.Meta {
	var out mcp.Meta
	for name, value := range meta {
		if isOurs(name) || name == "progressToken" {
			continue
		}
		if out == nil {
			out = mcp.Meta{}
		}
		out[name] = value
	}
	return out
}

// homeward takes away what only we may say: a server behind cannot write receipts.
func homeward(meta mcp.Meta) mcp.Meta {
	for name := range meta {
		if isOurs(name) {
			delete(meta, name)
		}
	}
	return meta
}

func isOurs(name string) bool {
	return strings.HasPrefix(name, "x402/") || strings.HasPrefix(name, "io.modelcontextprotocol/") || name == metaExact || strings.HasSuffix(name, "/credits")
}

func (u *Upstream) callTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	session := u.current()
	if session == nil {
		return nil, errBehind
	}
	p := &mcp.CallToolParams{Meta: onward(req.Params.Meta), Name: req.Params.Name}
	if len(req.Params.Arguments) > 0 {
		p.Arguments = req.Params.Arguments
	}
	defer u.track(ctx, req.Session, req.Params, p)()
	res, err := session.CallTool(ctx, p)
	if err != nil {
		return nil, u.failed(err)
	}
	restoreExact(res)
	res.Meta = homeward(res.Meta)
	return res, nil
}

func (u *Upstream) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	session := u.current()
	if session == nil {
		return nil, errBehind
	}
	p := &mcp.ReadResourceParams{Meta: onward(req.Params.Meta), URI: req.Params.URI}
	defer u.track(ctx, req.Session, req.Params, p)()
	res, err := session.ReadResource(ctx, p)
	if err != nil {
		return nil, u.failed(err)
	}
	// The SDK may keep what it returned, and others get the same.
	out := *res
	out.Meta = homeward(maps.Clone(res.Meta))
	out.Contents = make([]*mcp.ResourceContents, len(res.Contents))
	for i, c := range res.Contents {
		one := *c
		out.Contents[i] = &one
	}
	return &out, nil
}

func (u *Upstream) prompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	session := u.current()
	if session == nil {
		return nil, errBehind
	}
	p := &mcp.GetPromptParams{Meta: onward(req.Params.Meta), Name: req.Params.Name, Arguments: req.Params.Arguments}
	defer u.track(ctx, req.Session, req.Params, p)()
	res, err := session.GetPrompt(ctx, p)
	if err != nil {
		return nil, u.failed(err)
	}
	res.Meta = homeward(res.Meta)
	return res, nil
}

func (u *Upstream) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	session := u.current()
	if session == nil {
		return nil, errBehind
	}
	p := *req.Params
	p.Meta = onward(p.Meta)
	res, err := session.Complete(ctx, &p)
	if err != nil {
		return nil, u.failed(err)
	}
	return res, nil
}
