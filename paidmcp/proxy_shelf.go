package paidmcp

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxItems bounds what is taken over of one kind. A server that lists without an end is cut.
const maxItems = 10_000

// Name returns what the server behind calls itself.
func (u *Upstream) Name() string {
	if u.first == nil || u.first.ServerInfo == nil {
		return ""
	}
	return u.first.ServerInfo.Name
}

// Items are what a server behind has of one type.
type Items struct {
	Type    Type
	Names   []string // of tools and prompts; uris of resources, and templates of uris
	Changes bool     // the server declares that there may be others later
}

// Has reports whether a price under this name, see [Payments.Price], counts for one of them. Of two templates of uris it is not
// known, and taken for granted.
func (i Items) Has(name string) bool {
	if name == anyName || slices.Contains(i.Names, name) {
		return true
	}
	return i.Type == Resources && slices.ContainsFunc(i.Names, func(own string) bool {
		switch isTemplate := expression.MatchString; {
		case isTemplate(own) && isTemplate(name):
			return true
		case isTemplate(own):
			return slices.ContainsFunc(spellings(name), templateRegexp(own).MatchString)
		case isTemplate(name):
			return slices.ContainsFunc(spellings(own), templateRegexp(name).MatchString)
		}
		return slices.Contains(spellings(own), name)
	})
}

// Items asks the server behind what it has of a type. [Upstream.Connect] was called before.
func (u *Upstream) Items(ctx context.Context, t Type) (Items, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	out := Items{Type: t}
	session := u.current()
	if session == nil || u.first == nil {
		return out, errBehind
	}
	caps := u.first.Capabilities
	var err error
	switch {
	case caps == nil:
	case t == Tools && caps.Tools != nil:
		out.Changes = caps.Tools.ListChanged
		out.Names, err = named(out.Names, session.Tools(ctx, nil), func(t *mcp.Tool) string { return t.Name })
	case t == Prompts && caps.Prompts != nil:
		out.Changes = caps.Prompts.ListChanged
		out.Names, err = named(out.Names, session.Prompts(ctx, nil), func(p *mcp.Prompt) string { return p.Name })
	case t == Resources && caps.Resources != nil:
		out.Changes = caps.Resources.ListChanged
		out.Names, err = named(out.Names, session.Resources(ctx, nil), func(r *mcp.Resource) string { return r.URI })
		if err == nil {
			out.Names, err = named(out.Names, templatesOf(ctx, session), func(t *mcp.ResourceTemplate) string { return t.URITemplate })
		}
	}
	return out, err
}

// templatesOf lists the templates of resources. A server that has resources and does not know the
// method has no templates: many servers leave it out.
func templatesOf(ctx context.Context, session *mcp.ClientSession) iter.Seq2[*mcp.ResourceTemplate, error] {
	return func(yield func(*mcp.ResourceTemplate, error) bool) {
		for t, err := range session.ResourceTemplates(ctx, nil) {
			if e, ok := wireError(err); ok && e.Code == jsonrpc.CodeMethodNotFound {
				return
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

func named[T any](names []string, listed iter.Seq2[*T, error], name func(*T) string) ([]string, error) {
	for item, err := range listed {
		if err != nil {
			return nil, err
		}
		if len(names) >= maxItems {
			break
		}
		if item != nil {
			names = append(names, name(item))
		}
	}
	return names, nil
}

// Server returns a server of the SDK for what the server behind has: the same name, instructions and completions, and no items
// yet. [Upstream.Connect] was called before.
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
			// Declared from the beginning, so that clients hear of items that come later.
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

// Offer puts on s whatever the server behind has, and returns once everything is there. Until the context ends, which ends
// the connection as well, s follows the server behind, and the connection is made again when it breaks. ended is closed when
// nothing of that runs any more.
func (u *Upstream) Offer(ctx context.Context, s *mcp.Server) (ended <-chan struct{}, err error) {
	sh := &shelf{u: u, s: s, tools: map[string]string{}, resources: map[string]string{}, templates: map[string]string{}, prompts: map[string]string{}}
	if err := sh.fill(ctx); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { u.keep(ctx) })
	running.Go(func() { sh.follow(ctx) })
	over := make(chan struct{})
	go func() {
		running.Wait()
		close(over)
	}()
	return over, nil
}

func (sh *shelf) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-sh.u.changed:
			if err := sh.fill(ctx); err != nil && ctx.Err() == nil {
				sh.u.log.Warn("mcp: the server behind could not be listed; its earlier items stay", "error", err)
			}
		}
	}
}

// shelf is what of an upstream is on a server: the text of each item by its name.
type shelf struct {
	u                                    *Upstream
	s                                    *mcp.Server
	tools, resources, templates, prompts map[string]string
}

// fill brings the shelf to what the server behind has now. What was listed whole is taken over whole, and nothing otherwise.
func (sh *shelf) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	session := sh.u.current()
	if session == nil {
		return errBehind
	}
	caps := session.InitializeResult().Capabilities
	if caps == nil {
		caps = &mcp.ServerCapabilities{}
	}
	if err := stock(sh, "tool", sh.tools, caps.Tools != nil, session.Tools(ctx, nil),
		func(t *mcp.Tool) string { return t.Name },
		func(t *mcp.Tool) { sh.s.AddTool(t, sh.u.callTool) }, sh.s.RemoveTools); err != nil {
		return err
	}
	if err := stock(sh, "resource", sh.resources, caps.Resources != nil, session.Resources(ctx, nil),
		func(r *mcp.Resource) string { return r.URI },
		func(r *mcp.Resource) { sh.s.AddResource(r, sh.u.readResource) }, sh.s.RemoveResources); err != nil {
		return err
	}
	if err := stock(sh, "resource template", sh.templates, caps.Resources != nil, templatesOf(ctx, session),
		func(t *mcp.ResourceTemplate) string { return t.URITemplate },
		func(t *mcp.ResourceTemplate) { sh.s.AddResourceTemplate(t, sh.u.readResource) }, sh.s.RemoveResourceTemplates); err != nil {
		return err
	}
	return stock(sh, "prompt", sh.prompts, caps.Prompts != nil, session.Prompts(ctx, nil),
		func(p *mcp.Prompt) string { return p.Name },
		func(p *mcp.Prompt) { sh.s.AddPrompt(p, sh.u.prompt) }, sh.s.RemovePrompts)
}

// stock brings one kind of items up to date. Only what changed is touched, as every change is told to the clients.
func stock[T any](sh *shelf, kind string, have map[string]string, has bool, listed iter.Seq2[*T, error], name func(*T) string,
	add func(*T), remove func(...string),
) error {
	now := map[string]string{}
	items := map[string]*T{}
	if has {
		for item, err := range listed {
			if err != nil {
				return fmt.Errorf("paidmcp: the %ss of the server behind: %w", kind, err)
			}
			if len(now) >= maxItems {
				sh.u.log.Warn("mcp: the server behind has too many items; the rest is left out", "kind", kind, "taken", maxItems)
				break
			}
			if item == nil {
				continue
			}
			text, err := json.Marshal(item)
			if err != nil {
				continue
			}
			now[name(item)], items[name(item)] = string(text), item
		}
	}
	for n := range have {
		if _, stays := now[n]; !stays {
			remove(n)
			delete(have, n)
		}
	}
	for n, text := range now {
		if have[n] == text {
			continue
		}
		if why := offered(func() { add(items[n]) }); why != nil {
			sh.u.log.Warn("mcp: an item of the server behind cannot be offered", "kind", kind, "name", shown(n), "error", why)
			remove(n)
			delete(have, n)
			continue
		}
		have[n] = text
	}
	return nil
}

// offered adds an item. The SDK panics over what a programmer wrote wrong, and here somebody else wrote it.
func offered(add func()) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	add()
	return nil
}
