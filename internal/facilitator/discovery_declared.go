package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/schema"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// declaredEvery is how often what payments say of one endpoint may change: it costs a write.
	declaredEvery = time.Minute
	declaredBound = 1 << 14
	maxMimeType   = 100
)

// declaredKey names an endpoint as registered.
type declaredKey struct {
	agent     toll.AgentID
	verb, url string
}

// bazaarStatus is what a server reads about the extension bazaar in the header extension-responses.
type bazaarStatus struct {
	Status string `json:"status"`
	Reason string `json:"rejectedReason,omitempty"`
}

// declaration is what a verify says of its resource.
type declaration struct {
	extension json.RawMessage
	mimeType  string
	owners    bool // who says it owns the agent; a payer may have written what others seem to say
}

// declarationOf returns what a verify that has been read says of its resource, nil when that is nothing. In our own body the
// server says it itself. In that of standard software all there is came back from the payer.
func declarationOf(req *x402.VerifyRequest, p *payment) *declaration {
	d := &declaration{owners: true}
	resource := &req.PaymentRequired.Resource
	var ok bool
	if d.extension, ok = req.PaymentRequired.Extensions[x402.ExtensionBazaar]; !ok || p.stock {
		if d.extension, ok = p.token.Extensions[x402.ExtensionBazaar]; !ok {
			return nil
		}
		resource, d.owners = p.token.Resource, p.agent != nil && p.claims.Subscriber == p.agent.Owner
	}
	odd := func(r rune) bool { return r < ' ' || r > '~' }
	if resource != nil && len(resource.MimeType) <= maxMimeType && !strings.ContainsFunc(resource.MimeType, odd) {
		d.mimeType = resource.MimeType
	}
	return d
}

// declared takes what is said of a resource into the catalogue, and returns what became of it. Only what describes the input
// and the output is taken, and only of an endpoint that the agent has: url, price and names are those of the registration.
func (f *Facilitator) declared(ctx context.Context, p *payment, valid bool, d *declaration) json.RawMessage {
	status := bazaarStatus{Status: "success"}
	if err := f.declare(ctx, p, valid, d); err != nil {
		status = bazaarStatus{Status: "rejected", Reason: toll.AsError(err).Text()}
		if toll.AsError(err).HTTPStatus() >= 500 {
			f.Log.WarnContext(ctx, "the catalogue did not take what a payment said", "error", err)
			status.Reason = "the catalogue is out of reach"
		}
	}
	b, err := x402.Encode(map[string]bazaarStatus{x402.ExtensionBazaar: status})
	if err != nil {
		return nil
	}
	return b
}

func rejected(why string) error { return toll.Errorf(toll.CodeBadRequest, "%s", why) }

func (f *Facilitator) declare(ctx context.Context, p *payment, valid bool, d *declaration) error {
	if !valid {
		return rejected("the payment was refused")
	}
	if p.agent == nil || !isAbsolute(p.url) {
		return rejected("the payment names no registered resource")
	}
	url, verb, ok := p.agent.endpoints.Match(p.url, p.entry.Extra.HTTPVerb)
	if !ok || !isAbsolute(url) {
		return rejected("the resource is not registered")
	}
	b, err := x402.ReadBazaar(d.extension)
	if err != nil {
		return err
	}
	tool, isTool := x402.ToolOf(url)
	switch {
	case b.Type == x402.ResourceMCP && (!isTool || b.Tool != tool):
		return rejected("the tool is not registered")
	case b.Type == x402.ResourceHTTP && (isTool || b.Method != verb):
		return rejected("the method is not registered")
	}
	info, err := x402.Encode(b.Info) // without blanks
	if err != nil {
		return rejected("info is malformed")
	}
	k := declaredKey{p.agent.ID, verb, url}
	known, _, err := f.declarations.get(ctx, k)
	if err != nil {
		return err
	}
	shown := known.Info == string(info) && known.MimeType == d.mimeType
	if known.Info != "" && !shown && !d.owners {
		return errOwners
	}
	if err := fitsSchema(b.Schema, b.Info); err != nil || shown {
		return err
	}
	return f.putDeclared(ctx, store.Discovered{
		Agent: k.agent, Verb: verb, URL: url, MimeType: d.mimeType, Info: string(info), UpdatedAt: f.Clock(),
	}, d.owners)
}

// errOwners is what a payer hears who describes what is described: a first description makes standard servers appear as they
// say they are, with their first payment, and nobody but the owner rewrites one.
var errOwners = rejected("only the owner of the agent describes it anew")

func (f *Facilitator) putDeclared(ctx context.Context, d store.Discovered, owners bool) error {
	err := f.Store.Tx(ctx, func(tx *store.Tx) error {
		if !owners {
			if first, err := store.InsertDiscovered(ctx, tx, d); err != nil || first {
				return err
			}
		}
		now, err := store.DiscoveredOf(ctx, tx, d.Agent, d.Verb, d.URL)
		switch {
		case errors.Is(err, store.ErrNotFound) && owners:
		case err != nil:
			return err
		case now.Info == d.Info && now.MimeType == d.MimeType:
			return nil
		case !owners:
			return errOwners
		case d.UpdatedAt.Sub(now.UpdatedAt) < declaredEvery:
			return rejected("another payment described the resource less than a minute ago")
		}
		return store.PutDiscovered(ctx, tx, d)
	})
	f.declarations.forget(declaredKey{d.Agent, d.Verb, d.URL})
	if err == nil {
		f.forgetListed(string(d.Agent))
	}
	return err
}

// readDeclared is the zero value for an endpoint of which no payment said anything.
func (f *Facilitator) readDeclared(ctx context.Context, k declaredKey) (store.Discovered, error) {
	d, err := store.DiscoveredOf(ctx, f.Store, k.agent, k.verb, k.url)
	return d, store.NotFoundAs(err, nil)
}

// fitsSchema checks a value against a JSON Schema when a payer may have written both, so the work is bounded (package schema).
func fitsSchema(text, value json.RawMessage) error {
	var tree, v any
	if x402.Decode(text, &tree) != nil || x402.Decode(value, &v) != nil {
		return rejected("the schema is malformed")
	}
	if _, ok := tree.(map[string]any); !ok {
		return rejected("the schema is no object")
	}
	err := schema.Check(tree, v, schema.Budget)
	switch {
	case errors.Is(err, schema.ErrMisfit):
		return rejected("info does not fit its schema")
	case err != nil:
		return rejected(err.Error())
	}
	return nil
}
