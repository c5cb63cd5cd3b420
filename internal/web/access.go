package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/workspace"
)

// formRevoke is the first word of what the ticket of that form says.
const formRevoke = "revoke"

// mostGranted is how many programs the page lists, those that came last first.
const mostGranted = 100

// granted is a row of the page.
type granted struct {
	workspace.Program
	Since, Until, Ticket string
}

// accessPage is the list of programs that a person let in.
type accessPage struct {
	Done    string // what has just been done
	Granted []granted
}

// Access is GET and POST /account/access: what programs can do for a person, and its end.
func (w *Web) Access() page.Route {
	return w.page(
		func(c *page.Context) (page.View, error) { return showAccess(c, http.StatusOK, "", "") },
		func(c *page.Context) (page.View, error) {
			c.At = page.PathAccess
			id := c.Form.Get("grant")
			if c.Person == nil || !c.Holds(c.Form.Get("ticket"), formRevoke, id) {
				return showAccess(c, http.StatusForbidden, "", "The form is not one of this session. Send it once more.")
			}
			grant, err := toll.ParseHash(id)
			var ended toll.Ended
			if err == nil {
				ended, err = w.OAuth.EndGrant(c.Ctx(), c.Person.Caller, grant)
			}
			if e := toll.AsError(err); err != nil && e.Code == toll.CodeRightMissing {
				return showAccess(c, e.HTTPStatus(), "", e.Text())
			}
			if err != nil {
				return nil, err
			}
			return showAccess(c, http.StatusOK, page.EndedText(ended), "")
		},
	)
}

func showAccess(c *page.Context, status int, done, fault string) (page.View, error) {
	if c.Person == nil {
		return c.SignIn.Ask(c, http.StatusOK, "Sign in to read which programs can use your account.", page.PathAccess, "")
	}
	all, err := programs{deps(c)}.Programs(c.Ctx(), c.Person.Address)
	if err != nil {
		return nil, err
	}
	body := accessPage{Done: done}
	for _, p := range all {
		body.Granted = append(body.Granted, granted{p, page.Date(p.CreatedAt), page.Date(p.EndsAt), c.Ticket(formRevoke, p.ID.String())})
	}
	return c.Show(status, "access", page.Layout{Title: "Programs with access", Fault: fault, Body: body}, "")
}

// programs reads what people let into a workspace.
type programs struct{ *Web }

// Programs returns the programs of a workspace, those that came last first.
func (w programs) Programs(ctx context.Context, owner toll.Address) ([]workspace.Program, error) {
	grants, err := w.OAuth.Grants(ctx, owner, mostGranted)
	out := make([]workspace.Program, len(grants))
	for i, g := range grants {
		if out[i], err = w.program(ctx, g); err != nil {
			return nil, err
		}
	}
	return out, err
}

// EndGrant ends the access of a program.
func (w programs) EndGrant(ctx context.Context, c auth.Caller, id toll.Hash) (toll.Ended, error) {
	return w.OAuth.EndGrant(ctx, c, id)
}

func (w programs) program(ctx context.Context, g oauth.Grant) (workspace.Program, error) {
	out := workspace.Program{
		ID: g.ID, Name: cmp.Or(plain.Name(g.ClientName), "A program without a name"), ClientID: g.ClientID, Resource: page.AddressText(g.Resource),
		CreatedAt: g.CreatedAt, EndsAt: g.EndsAt, LastUse: "not yet",
	}
	used := func(t time.Time) {
		if !t.IsZero() {
			out.LastUse = page.Date(t)
		}
	}
	if g.Kind == oauth.KindAPIKey {
		key, err := w.Auth.Key(ctx, g.Owner, g.Access)
		rights := key.Rights
		if err != nil { // none was issued yet
			rights = g.Rights
		}
		out.Has = "an API key with the rights " + strings.Join(strings.Fields(rights.String()), ", ")
		if err == nil && key.LastUsedAt != nil {
			used(key.LastUsedAt.Time)
		}
		if err != nil && toll.AsError(err).Code == toll.CodeKeyNotFound {
			err = nil
		}
		return out, err
	}
	plan, err := store.PlanByID(ctx, w.Store, g.PlanID)
	if err != nil {
		return out, err
	}
	p, err := w.Ledger.PermissionByHash(ctx, g.Access)
	if errors.Is(err, store.ErrNotFound) {
		p, err = ledger.Permission{RedemptionLimit: g.RedemptionLimit}, nil
	}
	if err != nil {
		return out, err
	}
	out.Has = "the plan " + cmp.Or(plain.Name(plan.Metadata.Name), string(plan.ID))
	if g.RedemptionLimit != nil && p.RedemptionLimit != nil {
		out.Has += ", of which it may burn " + (*p.RedemptionLimit - p.Redeemed).String() + " more of " + g.RedemptionLimit.Text()
	}
	if g.DelegationID != "" {
		out.Has += ", and may buy it again"
	}
	uses, err := w.Ledger.PermissionUses(ctx, p.Account(), g.Access, 1)
	if len(uses) > 0 {
		used(uses[0].CreatedAt.Time)
	}
	return out, err
}
