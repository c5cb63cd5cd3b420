package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// Options configures a [Core]. Only Dir is required.
type Options struct {
	Config Config // from the core's file and environment
	// Dir is the data directory: core token, key store, and its master key. New creates it with mode 0700.
	Dir string
	// Names are the words used on the wire. The zero value means [x402.Default].
	Names x402.Namespace
	// Handler answers paid requests if the core is part of another program. It takes precedence over Config.AgentHandler. Its
	// result is encoded as JSON. At most 32 requests call it at once. After 120 s ctx ends and the request fails; a call that
	// ignores ctx keeps its goroutine until it returns, in addition to the 32.
	Handler func(ctx context.Context, r PaidRequest) (any, error)
	// CoreToken is the core token. If it is "", the core reads the token from Dir, where New creates it if it does not exist.
	CoreToken string
	// Listen is the address of the core, such as 127.0.0.1:8791. Requests to agents at this address are refused.
	Listen string
	// Hosts are allowed Host headers in addition to loopback.
	Hosts   []string
	Version string           // program version, returned by /gateway/v1/health
	Log     *slog.Logger     // nil discards
	Now     func() time.Time // nil means time.Now
	// ServiceClient sends the requests to the service; nil means the default client. For tests.
	ServiceClient *http.Client
}

// Core is the core of the chat gateway. It is safe for concurrent use.
type Core struct {
	opts  Options
	now   func() time.Time
	log   *slog.Logger
	rows  []*tool          // in documented order
	tools map[string]*tool // by full name
	hash  string           // of the registry

	instance string // random id of this core
	mcp      *mcp.Server
	reach    reach
	endpoint endpoint
	contexts contexts

	mu       sync.Mutex
	greeted  bool     // a plugin has sent a hello since the core started
	guards   guards   // from the last hello
	settings settings // Options.Config and the plugin's configuration from the last hello, resolved
	signIn   signIn
	// current is the cached account, or nil. After a change of settings set it to nil, so that account creates it again.
	current *account

	acts       acts            // confirmations
	delegated  delegated       // delegations that the core created
	registered map[string]pair // last registration of a conversation, by [conversation]; guarded by mu
}

// guards reports which guards of a host keep keys away from models and transcripts (design 11).
type guards struct {
	Write bool `json:"write"` // removes keys from messages before they are stored
	Run   bool `json:"run"`   // stops prompts that contain a key
}

// New returns a core. It creates the data directory and, unless Options.CoreToken is set, the core token. Errors name the
// configuration field or the file.
func New(opts Options) (*Core, error) {
	if opts.Dir == "" {
		return nil, errors.New("gateway: Options.Dir is required")
	}
	if opts.Names == (x402.Namespace{}) {
		opts.Names = x402.Default
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s, err := opts.Config.resolve(opts.Names)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if err := makeDir(opts.Dir); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	c := &Core{
		opts:     opts,
		now:      opts.Now,
		log:      redactLog(opts.Log),
		rows:     registry(),
		settings: s,
		tools:    map[string]*tool{},
		instance: rand.Text(),
		endpoint: endpoint{handlerTime: maxHandlerTime},
		signIn:   signIn{pause: backoff.Sleep},
	}
	for _, t := range c.rows {
		c.tools[opts.Names.Tool(t.name)] = t
	}
	c.mcp = c.newMCPServer()
	if c.hash, err = registryHash(opts.Names); err != nil {
		return nil, err
	}
	if opts.CoreToken == "" {
		_, err = CoreToken(opts.Dir)
	}
	return c, err
}

// configure applies the configuration from a plugin's hello and returns the fields that it ignored, see [Config.within]. After
// an error the settings are unchanged.
func (c *Core) configure(plugin Config, g guards) (ignored []string, err error) {
	merged, ignored, err := plugin.within(c.opts.Config, c.opts.Names)
	if err != nil {
		return nil, err
	}
	s, err := merged.resolve(c.opts.Names)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted, c.guards, c.settings, c.current = true, g, s, nil
	return ignored, nil
}

// isGreeted reports whether a plugin has sent its configuration since the core started.
func (c *Core) isGreeted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greeted
}

// set returns the current settings.
func (c *Core) set() settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings
}

// callTime limits a tool that spends or writes. It exceeds the 120 s that an agent may take.
const callTime = 150 * time.Second

// Call runs a tool by its full name. params is empty or one JSON object. The result is one JSON object that includes any
// warnings. Every error is an [*Error]. The end of ctx does not cancel a tool that spends or writes, because a host
// that has disconnected could not learn its outcome.
func (c *Core) Call(
	ctx context.Context, name string, params []byte, callID string, caller Caller,
) (json.RawMessage, error) {
	result, err := c.call(ctx, name, params, callID, caller)
	if err != nil {
		e := asError(err)
		c.log.Info("tool", "name", plain.Text(name, maxNameRunes), "error", string(e.Code))
		return nil, e
	}
	return result, nil
}

func (c *Core) call(
	ctx context.Context, name string, params []byte, callID string, caller Caller,
) (result json.RawMessage, err error) {
	// A panic in one call must not stop a core that serves paid requests.
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a tool panicked", "name", name, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = errorf(ServiceUnavailable, "The tool failed. See the gateway log for the cause.")
		}
	}()
	t := c.tools[name]
	if t == nil {
		return nil, errorf(UnknownTool, "The tool %q does not exist.", plain.Text(name, maxNameRunes))
	}
	if err := caller.check(callID); err != nil {
		return nil, err
	}
	if err := c.allow(t, caller); err != nil {
		return nil, err
	}
	a, err := c.account()
	if err != nil {
		return nil, err
	}
	args, warnings, err := t.check(params)
	if err != nil {
		return nil, err
	}
	if t.effect != EffectRead {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), callTime)
		defer cancel()
	}
	one := &call{core: c, account: a, args: args, id: callID, caller: caller, warnings: warnings}
	if t.effect != EffectRead {
		if one.address, err = a.service.Address(ctx); err != nil {
			return nil, err
		}
	}
	value, err := t.run(ctx, one)
	if err != nil {
		return nil, err
	}
	return resultOf(value, append(one.warnings, c.announcement(caller)...))
}

// allow returns [NotOwner] if ownerOnlySpending is set and a caller other than the owner uses a tool that spends or writes.
func (c *Core) allow(t *tool, caller Caller) error {
	if t.effect == EffectRead || caller.SenderIsOwner || !c.set().ownerOnly {
		return nil
	}
	return errorf(NotOwner, "Only the owner of this gateway can use tools that spend money or credits, or that create agents or plans.").
		withHint("Ask the owner to make the call or to set ownerOnlySpending to false.")
}

// resultOf encodes a result and adds the warnings, without duplicates, as its last member.
func resultOf(value any, warnings []string) (json.RawMessage, error) {
	b, err := x402.Encode(value)
	if err != nil || len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("gateway: the result is not a JSON object: %w", err)
	}
	if len(warnings) == 0 {
		return b, nil
	}
	var unique []string
	for _, w := range warnings {
		if !slices.Contains(unique, w) {
			unique = append(unique, w)
		}
	}
	more, err := x402.Encode(unique)
	if err != nil {
		return nil, err
	}
	comma := ","
	if string(b) == "{}" {
		comma = ""
	}
	return slices.Concat(b[:len(b)-1], []byte(comma+`"warnings":`), more, []byte("}")), nil
}

// Limits on the description of a caller, in bytes.
const (
	maxSession = 256
	maxSender  = 256
	maxChannel = 64
	maxCallID  = 256
)

// check returns [InvalidParams] if callID or a field of the caller is too long.
func (c Caller) check(callID string) error {
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"callId", callID, maxCallID},
		{"caller.sessionKey", c.SessionKey, maxSession},
		{"caller.senderId", c.SenderID, maxSender},
		{"caller.channel", c.Channel, maxChannel},
	} {
		if len(f.value) > f.most {
			return invalid(f.name, "must be at most %d bytes", f.most)
		}
	}
	return nil
}
