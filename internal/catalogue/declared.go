package catalogue

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
	// declaredEvery is how often payments may change the description of one endpoint, because each change costs a write.
	declaredEvery = time.Minute
	declaredBound = 1 << 14
	maxMimeType   = 100
)

// declaredKey names an endpoint as registered.
type declaredKey struct {
	agent     toll.AgentID
	verb, url string
}

// Declaration is what a verify says about its resource.
type Declaration struct {
	Valid     bool   // the payment was not refused
	Agent     *Agent // nil: the payment names none
	Verb, URL string
	Extension json.RawMessage
	MimeType  string
	// Owner says that the owner of the agent describes it. A payer may have written any other declaration.
	Owner bool
}

// Declare adds what a payment says about its resource to the listing, and returns the outcome as a server reads it in the header
// extension-responses. It takes the description of input and output only, and only for an endpoint that the agent has: URL, price,
// and names are those of the registration.
func (c *Catalogue) Declare(ctx context.Context, d *Declaration) json.RawMessage {
	var status struct {
		Status string `json:"status"`
		Reason string `json:"rejectedReason,omitempty"`
	}
	status.Status = "success"
	if err := c.declare(ctx, d); err != nil {
		e := toll.AsError(err)
		status.Status, status.Reason = "rejected", e.Text()
		if e.HTTPStatus() >= 500 {
			c.log.WarnContext(ctx, "cannot save the resource description of a payment", "error", err)
			status.Reason = "the catalogue is unavailable"
		}
	}
	b, err := x402.Encode(map[string]any{x402.ExtensionBazaar: status})
	if err != nil {
		return nil
	}
	return b
}

func rejected(why string) error { return toll.Errorf(toll.CodeBadRequest, "%s", why) }

func (c *Catalogue) declare(ctx context.Context, d *Declaration) error {
	if !d.Valid {
		return rejected("the payment was refused")
	}
	if d.Agent == nil || !IsAbsolute(d.URL) {
		return rejected("the payment does not name a registered resource")
	}
	url, verb, ok := d.Agent.Endpoints.Match(d.URL, d.Verb)
	if !ok || !IsAbsolute(url) {
		return rejected("the resource is not registered")
	}
	b, err := x402.ReadBazaar(d.Extension)
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
	said := store.Discovered{Agent: d.Agent.ID, Verb: verb, URL: url, MimeType: d.mimeType(), Info: string(info), UpdatedAt: c.clock()}
	known, _, err := c.declarations.Get(ctx, declaredKey{said.Agent, verb, url})
	if err != nil {
		return err
	}
	shown := known.Info == said.Info && known.MimeType == said.MimeType
	if known.Info != "" && !shown && !d.Owner {
		return errOwners
	}
	if err := fitsSchema(b.Schema, b.Info); err != nil || shown {
		return err
	}
	return c.putDeclared(ctx, said, d.Owner)
}

// mimeType returns the MIME type of a declaration, "" when it cannot be shown.
func (d *Declaration) mimeType() string {
	odd := func(r rune) bool { return r < ' ' || r > '~' }
	if len(d.MimeType) > maxMimeType || strings.ContainsFunc(d.MimeType, odd) {
		return ""
	}
	return d.MimeType
}

// IsAbsolute reports whether a resource has a scheme that endpoints have.
func IsAbsolute(url string) bool {
	scheme, _, ok := strings.Cut(url, ":")
	switch strings.ToLower(scheme) {
	case "http", "https", "mcp":
		return ok
	}
	return false
}

// errOwners refuses a payer that describes a described endpoint. The first description lets standard servers appear as they describe
// themselves with their first payment; only the owner may change it.
var errOwners = rejected("only the owner of the agent can change its description")

func (c *Catalogue) putDeclared(ctx context.Context, d store.Discovered, owner bool) error {
	err := c.store.Tx(ctx, func(tx *store.Tx) error {
		if !owner {
			if first, err := store.InsertDiscovered(ctx, tx, d); err != nil || first {
				return err
			}
		}
		now, err := store.DiscoveredOf(ctx, tx, d.Agent, d.Verb, d.URL)
		switch {
		case errors.Is(err, store.ErrNotFound) && owner:
		case err != nil:
			return err
		case now.Info == d.Info && now.MimeType == d.MimeType:
			return nil
		case !owner:
			return errOwners
		case d.UpdatedAt.Sub(now.UpdatedAt) < declaredEvery:
			return rejected("another payment described the resource less than a minute ago")
		}
		return store.PutDiscovered(ctx, tx, d)
	})
	c.declarations.Forget(declaredKey{d.Agent, d.Verb, d.URL})
	if err == nil {
		c.noteChange(string(d.Agent))
	}
	return err
}

// fitsSchema checks a value against a JSON Schema. A payer may have written both, so package schema bounds the work.
func fitsSchema(text, value json.RawMessage) error {
	var tree, v any
	if x402.Decode(text, &tree) != nil || x402.Decode(value, &v) != nil {
		return rejected("the schema is malformed")
	}
	if _, ok := tree.(map[string]any); !ok {
		return rejected("the schema must be an object")
	}
	err := schema.Check(tree, v, schema.Budget)
	switch {
	case errors.Is(err, schema.ErrMisfit):
		return rejected("info does not match its schema")
	case err != nil:
		return rejected(err.Error())
	}
	return nil
}
