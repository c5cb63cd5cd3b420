package mcpproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/paidmcp"
)

// maxItems is the maximum number of items of one kind. A longer, perhaps endless, list is cut.
const maxItems = 10_000

// Name returns the name of the upstream server.
func (u *Upstream) Name() string {
	if u.first == nil || u.first.ServerInfo == nil {
		return ""
	}
	return u.first.ServerInfo.Name
}

// Items are the items of one type.
type Items struct {
	Type    paidmcp.Type
	Names   []string // names of tools or prompts; uris and uri templates of resources
	Changes bool     // the server declares that it announces changes of the list
}

// Has reports whether a price under this name applies to one of the items, see [paidmcp.Payments.Price]. If the name and an item
// are both uri templates, it returns true.
func (i Items) Has(name string) bool {
	if name == mcpwire.AnyName || slices.Contains(i.Names, name) {
		return true
	}
	return i.Type == paidmcp.Resources && slices.ContainsFunc(i.Names, func(own string) bool {
		switch isTemplate := mcpwire.IsTemplate; {
		case isTemplate(own) && isTemplate(name):
			return true
		case isTemplate(own):
			return slices.ContainsFunc(mcpwire.Spellings(name), mcpwire.TemplateRegexp(own).MatchString)
		case isTemplate(name):
			return slices.ContainsFunc(mcpwire.Spellings(own), mcpwire.TemplateRegexp(name).MatchString)
		}
		return slices.Contains(mcpwire.Spellings(own), name)
	})
}

// Items lists the items of a type. Call [Upstream.Connect] first.
func (u *Upstream) Items(ctx context.Context, t paidmcp.Type) (Items, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	out := Items{Type: t}
	l := u.connected()
	if l == nil {
		return out, errBehind
	}
	list, changes, err := u.list(ctx, l.session, t)
	for _, it := range list {
		out.Names = append(out.Names, it.name)
	}
	out.Changes = changes
	return out, err
}

// item is one item of the upstream server.
type item struct {
	kind, name string
	text       string // JSON of the listed item
	add        func(*mcp.Server)
	remove     func(s *mcp.Server, names ...string)
}

// list returns the items of a type, and whether the server announces changes.
func (u *Upstream) list(ctx context.Context, session *mcp.ClientSession, t paidmcp.Type) (items []item, changes bool, err error) {
	switch caps := session.InitializeResult().Capabilities; {
	case caps == nil:
	case t == paidmcp.Tools && caps.Tools != nil:
		changes = caps.Tools.ListChanged
		items, err = take(u, "tool", session.Tools(ctx, nil), func(t *mcp.Tool) item {
			return item{name: t.Name, add: func(s *mcp.Server) { s.AddTool(t, u.callTool) }, remove: (*mcp.Server).RemoveTools}
		})
	case t == paidmcp.Prompts && caps.Prompts != nil:
		changes = caps.Prompts.ListChanged
		items, err = take(u, "prompt", session.Prompts(ctx, nil), func(p *mcp.Prompt) item {
			return item{name: p.Name, add: func(s *mcp.Server) { s.AddPrompt(p, u.prompt) }, remove: (*mcp.Server).RemovePrompts}
		})
	case t == paidmcp.Resources && caps.Resources != nil:
		changes = caps.Resources.ListChanged
		items, err = take(u, "resource", session.Resources(ctx, nil), func(r *mcp.Resource) item {
			return item{name: r.URI, add: func(s *mcp.Server) { s.AddResource(r, u.readResource) }, remove: (*mcp.Server).RemoveResources}
		})
		if err != nil {
			break
		}
		var templates []item
		templates, err = take(u, "resource template", session.ResourceTemplates(ctx, nil), func(t *mcp.ResourceTemplate) item {
			add := func(s *mcp.Server) { s.AddResourceTemplate(t, u.readResource) }
			return item{name: t.URITemplate, add: add, remove: (*mcp.Server).RemoveResourceTemplates}
		})
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == jsonrpc.CodeMethodNotFound {
			err = nil // many servers with resources do not implement the method
		}
		items = append(items, templates...)
	}
	return items, changes, err
}

// take returns the items of a list, at most [maxItems]. On an error it returns the items before it.
func take[T any](u *Upstream, kind string, listed iter.Seq2[*T, error], read func(*T) item) (items []item, err error) {
	for one, err := range listed {
		if err != nil {
			return items, err
		}
		if len(items) >= maxItems {
			u.log.Warn("mcp: the upstream server has too many items of one kind; the remaining items are ignored",
				"kind", kind, "taken", maxItems)
			break
		}
		text, err := json.Marshal(one)
		if one == nil || err != nil {
			continue
		}
		it := read(one)
		it.kind, it.text = kind, string(text)
		items = append(items, it)
	}
	return items, nil
}

// Server returns a server of the SDK with the name, instructions and completions of the upstream server, and no items yet. Call
// [Upstream.Connect] first.
func (u *Upstream) Server() *mcp.Server {
	var about mcp.Implementation
	options := &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}}
	if u.first != nil {
		if u.first.ServerInfo != nil {
			about = *u.first.ServerInfo
		}
		options.Instructions = u.first.Instructions
		if c := u.first.Capabilities; c != nil {
			if c.Completions != nil {
				options.CompletionHandler = u.complete
			}
			// Declared from the start, so that clients are notified of later items.
			if c.Tools != nil {
				options.Capabilities.Tools = &mcp.ToolCapabilities{ListChanged: true}
			}
			if c.Resources != nil {
				options.Capabilities.Resources = &mcp.ResourceCapabilities{ListChanged: true}
			}
			if c.Prompts != nil {
				options.Capabilities.Prompts = &mcp.PromptCapabilities{ListChanged: true}
			}
		}
	}
	return mcp.NewServer(&about, options)
}

// Offer adds the items of the upstream server to s, and returns. In the background it follows changes and reconnects until the
// context ends, which also closes the connection. Then it closes ended.
func (u *Upstream) Offer(ctx context.Context, s *mcp.Server) (ended <-chan struct{}, err error) {
	o := &offer{u: u, s: s, have: map[string]item{}}
	if err := o.fill(ctx); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { u.keep(ctx) })
	running.Go(func() { o.follow(ctx) })
	over := make(chan struct{})
	go func() {
		running.Wait()
		close(over)
	}()
	return over, nil
}

func (o *offer) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.u.changed:
			if err := o.fill(ctx); err != nil && ctx.Err() == nil {
				o.u.log.WarnContext(ctx, "mcp: the tools, resources, or prompts of the upstream server could not be listed; "+
					"the previous list stays in use", "error", err)
			}
		}
	}
}

// offer tracks the items of an upstream that were added to a server.
type offer struct {
	u    *Upstream
	s    *mcp.Server
	have map[string]item // by kind and name
}

// fill updates the offer to the current lists, or leaves it unchanged on an error. It replaces only changed items, because each
// replacement notifies the clients.
func (o *offer) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	l := o.u.connected()
	if l == nil {
		return errBehind
	}
	l.modern.learnTools(ctx)
	now := map[string]item{}
	for _, t := range []paidmcp.Type{paidmcp.Tools, paidmcp.Resources, paidmcp.Prompts} {
		list, _, err := o.u.list(ctx, l.session, t)
		if err != nil {
			return fmt.Errorf("mcpproxy: list the %s of the upstream server: %w", t, err)
		}
		for _, it := range list {
			if o.u.Offers == nil || o.u.Offers(t, it.name) {
				now[it.kind+" "+it.name] = it
			}
		}
	}
	for key, old := range o.have {
		if _, stays := now[key]; !stays {
			old.remove(o.s, old.name)
			delete(o.have, key)
		}
	}
	for key, it := range now {
		if o.have[key].text == it.text {
			continue
		}
		if why := offered(func() { it.add(o.s) }); why != nil {
			o.u.log.WarnContext(ctx, "mcp: a tool, resource, or prompt of the upstream server cannot be offered",
				"kind", it.kind, "name", plain.Text(it.name, 200), "error", why)
			it.remove(o.s, it.name)
			delete(o.have, key)
			continue
		}
		o.have[key] = it
	}
	return nil
}

// offered calls add and returns its panic as an error: the SDK panics for an invalid item, and the upstream server is untrusted.
func offered(add func()) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	add()
	return nil
}
