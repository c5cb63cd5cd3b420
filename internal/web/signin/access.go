package signin

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/workspace"
)

// mostGranted is how many programs the page lists, those that came last first.
const mostGranted = 100

type granted struct {
	workspace.Program
	Since, Until, Ticket string
}

type accessPage struct {
	Done    string // what has just been done
	Granted []granted
}

// access is GET and POST /account/access: what programs can do for a person, and its end.
func (w *Consent) access() page.Route {
	return route(page.PathAccess,
		func(c *page.Context) (page.View, error) { return w.showAccess(c, http.StatusOK, "", "") },
		func(c *page.Context) (page.View, error) {
			c.At = page.PathAccess
			id := c.Form.Get("grant")
			if c.Person == nil || !c.Holds(c.Form.Get("ticket"), formRevoke, id) {
				return w.showAccess(c, http.StatusForbidden, "", "This form belongs to another session. Submit it again.")
			}
			grant, err := toll.ParseHash(id)
			var ended toll.Ended
			if err == nil {
				ended, err = w.OAuth.EndGrant(c.Ctx(), c.Person.Caller, grant)
			}
			if e := toll.AsError(err); err != nil && e.Code == toll.CodeRightMissing {
				return w.showAccess(c, e.HTTPStatus(), "", e.Text())
			}
			if err != nil {
				return nil, err
			}
			return w.showAccess(c, http.StatusOK, page.EndedText(ended), "")
		},
	)
}

func (w *Consent) showAccess(c *page.Context, status int, done, fault string) (page.View, error) {
	if c.Person == nil {
		return c.SignIn.Ask(c, http.StatusOK, "Sign in to see which apps can use your workspace.", page.PathAccess, "")
	}
	programs, err := w.Programs(c.Ctx(), c.Person.Address)
	if err != nil {
		return nil, err
	}
	body := accessPage{Done: done}
	for _, p := range programs {
		body.Granted = append(body.Granted, granted{p, page.Date(p.CreatedAt), page.Date(p.EndsAt), c.Ticket(formRevoke, p.ID.String())})
	}
	return c.Show(status, "access", page.Layout{Title: "Connected apps", Fault: fault, Body: body}, "")
}

// Programs returns the programs of a workspace, those that came last first.
func (w *Consent) Programs(ctx context.Context, owner toll.Address) ([]workspace.Program, error) {
	all, err := w.Records.Programs(ctx, owner, mostGranted)
	out := make([]workspace.Program, len(all))
	for i, g := range all {
		out[i] = workspace.Program{
			ID: g.ID, Name: cmp.Or(plain.Name(g.ClientName), "Unnamed app"), ClientID: g.ClientID, Resource: page.AddressText(g.Resource),
			CreatedAt: g.CreatedAt, EndsAt: g.EndsAt, LastUse: "Never", Has: "API key with the rights " + strings.Join(strings.Fields(g.Rights.String()), ", "),
		}
		if !g.LastUsedAt.IsZero() {
			out[i].LastUse = page.Date(g.LastUsedAt)
		}
		if g.Kind == oauth.KindPermission {
			out[i].Has = tokenText(&g)
		}
	}
	return out, err
}

// EndGrant ends the access of a program.
func (w *Consent) EndGrant(ctx context.Context, c auth.Caller, id toll.Hash) (toll.Ended, error) {
	return w.OAuth.EndGrant(ctx, c, id)
}

func tokenText(g *records.Program) string {
	text := "Plan " + cmp.Or(plain.Name(g.Plan), string(g.PlanID))
	if g.Left != nil {
		text += ", can spend " + g.Left.String() + " more of " + g.RedemptionLimit.Text()
	}
	if g.DelegationID != "" {
		text += ", can order the plan again"
	}
	return text
}
