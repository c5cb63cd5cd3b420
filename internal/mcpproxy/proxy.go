// Package mcpproxy connects to an upstream MCP server for toll mcp: a command that speaks over standard input and output, or a
// URL. [Upstream.Offer] adds the items of that server to a server of the Go SDK, whose calls package paidmcp prices. Calls,
// progress, errors and requests for input are forwarded. A process that ends is restarted, and callers who crash it are delayed.
package mcpproxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/paidmcp"
)

const (
	// connectTime bounds an attempt to connect, and a listing of items. A command may first download its program from a registry.
	connectTime = time.Minute
	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
)

// Upstream is an MCP server behind a price: a command that speaks over standard input and output, or a url. All callers share
// one connection, and the state that the server keeps for it. The server cannot identify them: credentials, payments and headers
// are not forwarded.
type Upstream struct {
	ProbeTime time.Duration // maximum time for a process to start and to answer server/discover, default 20 s
	// Offers reports whether [Upstream.Offer] offers an item; nil for all items. After a change, call [Upstream.Reread].
	Offers func(t paidmcp.Type, name string) bool
	// Accepts returns an error for a tool result that cannot be sold, a *mcp.CallToolResult; nil accepts all results.
	Accepts func(tool string, args json.RawMessage, result any) error

	dial func() mcp.Transport
	log  *slog.Logger

	first   *mcp.InitializeResult // result of the first connection
	changed chan struct{}         // requests to read the lists again

	crashes crashes
	blames  bool // the upstream is a process, so a call may have caused the end of a connection
	isOlder bool // this process failed to answer server/discover

	mu     sync.Mutex
	link   *link         // nil while there is no connection
	ready  chan struct{} // closed except during an immediate reconnect
	serial int64
	asking map[string]chan<- *mcp.ProgressNotificationParams // progress of running calls, by our token
}

// link is one connection to the upstream server, with its callers.
type link struct {
	session *mcp.ClientSession
	began   time.Time
	modern  modern

	mu      sync.Mutex
	callers map[string]int       // number of running calls, by caller
	left    map[string]time.Time // time of the last abandoned call, by caller
}

func (l *link) enter(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callers[who]++
}

// leave ends a call. It remembers the caller of an unanswered call, which may still crash the process.
func (l *link) leave(who string, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callers[who]--; l.callers[who] == 0 {
		delete(l.callers, who)
	}
	if answered {
		return
	}
	maps.DeleteFunc(l.left, func(_ string, at time.Time) bool { return len(l.left) >= maxLeft && time.Since(at) > blameTime })
	if len(l.left) < maxLeft {
		l.left[who] = time.Now()
	}
}

// recentCallers returns the callers whose calls may have crashed the process. It is called once, at the end of the link.
func (l *link) recentCallers() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for who, at := range l.left {
		if time.Since(at) <= blameTime {
			l.callers[who]++
		}
	}
	delete(l.callers, "")
	return slices.Collect(maps.Keys(l.callers))
}

// Command returns an upstream that runs as a process, with a new command from make for each connection. The process gets the Stderr
// and the environment of the command (by default of this process), without our settings (TOLL_*).
func Command(log *slog.Logger, make func() *exec.Cmd) *Upstream {
	u := newUpstream(log)
	u.blames = true
	u.dial = func() mcp.Transport {
		c := make()
		if c.Env == nil {
			c.Env = os.Environ()
		}
		// Our settings, such as API key and master key, must not reach other programs.
		c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(strings.ToUpper(e), "TOLL_") })
		return &processTransport{command: c, log: u.log, came: u.came}
	}
	return u
}

// Remote returns an upstream over streamable HTTP at a url, which gets the headers of the builder.
func Remote(log *slog.Logger, endpoint string, header http.Header) *Upstream {
	u := newUpstream(log)
	h := remoteClient(endpoint, header, u.came)
	u.dial = func() mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: h, MaxEventSize: -1}
	}
	return u
}

func newUpstream(log *slog.Logger) *Upstream {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	u := &Upstream{ProbeTime: 20 * time.Second, log: log, changed: make(chan struct{}, 1), ready: make(chan struct{}), asking: make(map[string]chan<- *mcp.ProgressNotificationParams)}
	u.crashes.byName, u.crashes.turn = cache.New[string, *crasher](maxCrashers), make(chan struct{}, 1)
	close(u.ready)
	return u
}

// Connect opens the first connection, and stores the name, instructions and capabilities of the server.
func (u *Upstream) Connect(ctx context.Context) error {
	l, err := u.connect(ctx)
	if err != nil {
		return err
	}
	u.first = l.session.InitializeResult()
	return nil
}

// connect negotiates the protocol version. A process speaks one version until it ends, so connect sends server/discover first,
// as the protocol requires. Some older processes do not answer, and some exit: connect restarts them and initializes a session.
// A server over HTTP gets a session first and, if a caller needs it, a second connection, see [modern].
func (u *Upstream) connect(ctx context.Context) (l *link, err error) {
	if u.blames && !u.isOlder {
		l, err = u.open(ctx, u.ProbeTime, "")
	}
	if l == nil {
		l, err = u.open(ctx, connectTime, mcpwire.LastWithSessions)
		u.isOlder = err == nil
		if said := (*jsonrpc.Error)(nil); errors.As(err, &said) {
			l, err = u.open(ctx, connectTime, "")
		}
	}
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.link = l
	u.mu.Unlock()
	u.Reread()
	return l, nil
}

// open opens a connection with this protocol version. Without a version it sends server/discover, and initializes a session if
// the server refuses.
func (u *Upstream) open(ctx context.Context, limit time.Duration, version string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l := &link{began: time.Now(), callers: make(map[string]int), left: make(map[string]time.Time)}
	t := u.dial()
	if p, ok := t.(*processTransport); ok {
		p.broken = func() { u.leave(l) } // calls see at once that it is broken
	}
	var err error
	if l.session, err = newClient(u.Reread).Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version}); err != nil {
		return nil, err
	}
	return l, nil
}

// Reread requests another reading of the lists of the upstream server, without blocking.
func (u *Upstream) Reread() {
	select {
	case u.changed <- struct{}{}:
	default: // a request is already pending
	}
}

// leave removes a connection, so that calls wait for the next connection.
func (u *Upstream) leave(l *link) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.link == l {
		u.link, u.ready = nil, make(chan struct{})
	}
}

// keep reconnects until the context ends, and then closes the connection. It reconnects at once, or after a pause of 1 to 30 s if
// an attempt failed or the connection was short and without a call.
func (u *Upstream) keep(ctx context.Context) {
	l := u.connected()
	for wait := time.Duration(0); ; {
		if l != nil {
			ended := make(chan struct{})
			go func() {
				_ = l.session.Wait() // the next attempt to connect reports the cause
				close(ended)
			}()
			select {
			case <-ctx.Done():
				_ = l.session.Close() // ends the process, if it still runs
				l.closeModern()
				return
			case <-ended:
			}
			wait = u.ended(l, wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		var err error
		l, err = u.connect(ctx)
		u.stopWaiting()
		if err != nil {
			u.log.WarnContext(ctx, "mcp: the upstream server cannot be reached", "error", err)
			wait = min(max(2*wait, firstRetry), lastRetry)
		}
	}
}

// ended handles the end of a connection. It returns the pause before the next attempt, given the previous pause.
func (u *Upstream) ended(l *link, wait time.Duration) time.Duration {
	var names []string
	held := 0
	if u.blames {
		names = l.recentCallers()
		held = u.crashes.blame(names)
	}
	if len(names) > 0 || time.Since(l.began) >= lastRetry {
		wait = 0
	} else {
		wait = min(max(2*wait, firstRetry), lastRetry)
	}
	u.log.Warn("mcp: the connection to the upstream server ended", "callers", len(names), "held_back", held)
	u.leave(l)
	l.closeModern()
	if wait > 0 {
		u.stopWaiting()
	}
	return wait
}

// stopWaiting resumes calls that wait for a connection.
func (u *Upstream) stopWaiting() {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.ready:
	default:
		close(u.ready)
	}
}

func (u *Upstream) connected() *link {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.link
}

// restartTime bounds how long a call waits for a restart.
const restartTime = 10 * time.Second

// ask makes a call to the upstream server, and waits up to 10 s for a restart. It rejects callers that are delayed for crashes.
func ask[R any](ctx context.Context, u *Upstream, do func(*link) (R, error)) (R, error) {
	var none R
	awaitRestart(ctx, u)
	who := mcpwire.Caller(ctx)
	done, err := u.crashes.admit(ctx, who)
	if err != nil {
		return none, err
	}
	defer done()
	awaitRestart(ctx, u) // another suspect may have crashed the server
	l := u.connected()
	if l == nil {
		return none, errBehind
	}
	l.enter(who)
	res, err := do(l)
	isAnswer := err == nil
	if err != nil {
		err = u.failed(err)
		isAnswer = !errors.Is(err, errBehind)
	}
	l.leave(who, isAnswer)
	if !isAnswer {
		return none, err
	}
	u.crashes.answered(who)
	return res, err
}

// awaitRestart waits for a connection, for the next failed attempt to connect, or for 10 s.
func awaitRestart(ctx context.Context, u *Upstream) {
	u.mu.Lock()
	l, ready := u.link, u.ready
	u.mu.Unlock()
	if l != nil {
		return
	}
	select {
	case <-ready:
	case <-ctx.Done():
	case <-time.After(restartTime):
	}
}

// errBehind is the only error that a caller receives about an unreachable server.
var errBehind = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "The upstream server did not answer."}

// failed returns an error sent by the server unchanged. It logs every other error and returns errBehind.
func (u *Upstream) failed(err error) error {
	if said, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return said
	}
	u.log.Warn("mcp: a call to the upstream server failed", "error", err)
	return errBehind
}

// toServer returns the _meta of a call without payments, protocol version, client data and progress token, which are only for the proxy.
func toServer(meta mcp.Meta) mcp.Meta {
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

// toCaller removes our members from _meta and returns it: an upstream server must not forge receipts.
func toCaller(meta mcp.Meta) mcp.Meta {
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
	p := &mcp.CallToolParams{
		Meta: toServer(req.Params.Meta), Name: req.Params.Name, InputResponses: req.Params.InputResponses, RequestState: req.Params.RequestState,
	}
	if len(req.Params.Arguments) > 0 {
		p.Arguments = req.Params.Arguments
	}
	defer u.track(ctx, req.Session, req.Params, p)()
	res, err := ask(ctx, u, func(l *link) (*mcp.CallToolResult, error) {
		return u.sessionOf(ctx, l, req.Params.Meta, &p.Meta).CallTool(ctx, p)
	})
	if err != nil {
		return nil, err
	}
	restoreExact(res)
	res.Meta = toCaller(res.Meta)
	if u.Accepts != nil && !res.IsError && res.InputRequests == nil {
		if err := u.Accepts(p.Name, req.Params.Arguments, res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (u *Upstream) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	p := &mcp.ReadResourceParams{
		Meta: toServer(req.Params.Meta), URI: req.Params.URI, InputResponses: req.Params.InputResponses, RequestState: req.Params.RequestState,
	}
	defer u.track(ctx, req.Session, req.Params, p)()
	res, err := ask(ctx, u, func(l *link) (*mcp.ReadResourceResult, error) {
		return u.sessionOf(ctx, l, req.Params.Meta, &p.Meta).ReadResource(ctx, p)
	})
	if err != nil {
		return nil, err
	}
	// The SDK may cache the result for other callers.
	out := *res
	out.Meta = toCaller(maps.Clone(res.Meta))
	out.Contents = make([]*mcp.ResourceContents, len(res.Contents))
	for i, c := range res.Contents {
		one := *c
		out.Contents[i] = &one
	}
	return &out, nil
}

func (u *Upstream) prompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	p := &mcp.GetPromptParams{
		Meta: toServer(req.Params.Meta), Name: req.Params.Name, Arguments: req.Params.Arguments,
		InputResponses: req.Params.InputResponses, RequestState: req.Params.RequestState,
	}
	defer u.track(ctx, req.Session, req.Params, p)()
	res, err := ask(ctx, u, func(l *link) (*mcp.GetPromptResult, error) {
		return u.sessionOf(ctx, l, req.Params.Meta, &p.Meta).GetPrompt(ctx, p)
	})
	if err != nil {
		return nil, err
	}
	res.Meta = toCaller(res.Meta)
	return res, nil
}

func (u *Upstream) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := *req.Params
	p.Meta = toServer(p.Meta)
	return ask(ctx, u, func(l *link) (*mcp.CompleteResult, error) { return l.session.Complete(ctx, &p) })
}
