package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/page"
)

// formRevoke is the first word of what the ticket of that form says.
const formRevoke = "revoke"

// mostGranted is how many programs the page lists, those that came last first.
const mostGranted = 100

// granted is what a program was let in for, as a person reads it.
type granted struct {
	ID       toll.Hash
	Name     string
	ClientID string
	Has      string
	Resource string
	Since    string
	Until    string
	LastUse  string
	Ticket   string
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
			return showAccess(c, http.StatusOK, endedText(ended), "")
		},
	)
}

// endedText says what ended with the access of a program.
func endedText(e toll.Ended) string {
	return "The access is revoked." + endedWith(e)
}

// removedWith is [endedWith] for a member, with the webhooks by name.
func removedWith(r toll.Removed) string {
	text := endedWith(r.Ended)
	if len(r.Webhooks) > 0 {
		state := "paused"
		if r.Kept != nil {
			state = "yours now"
		}
		names := store.Mapped(r.Webhooks, func(w toll.WebhookLeft) string { return plain.Name(w.URL) })
		text += " These webhooks are " + state + ": " + strings.Join(names, ", ") + "."
	}
	return text
}

// endedWith is a sentence on what ended with something, after a blank; "" for nothing.
func endedWith(e toll.Ended) string {
	var also []string
	for _, of := range []struct {
		n    int64
		what string
	}{{e.APIKeys, "API key"}, {e.AccessTokens, "access token"}, {e.Grants, "access of another program"}} {
		switch {
		case of.n == 1:
			also = append(also, "1 "+of.what)
		case of.n > 1:
			also = append(also, strconv.FormatInt(of.n, 10)+" × "+of.what)
		}
	}
	if len(also) == 0 {
		return ""
	}
	return " With it ended: " + strings.Join(also, ", ") + "."
}

func showAccess(c *page.Context, status int, done, fault string) (page.View, error) {
	if c.Person == nil {
		return c.SignIn.Ask(c, http.StatusOK, "Sign in to read which programs can use your account.", page.PathAccess, "")
	}
	grants, err := deps(c).OAuth.Grants(c.Ctx(), c.Person.Address, mostGranted)
	body := accessPage{Done: done}
	for _, g := range grants {
		var one granted
		if one, err = deps(c).granted(c.Ctx(), g); err != nil {
			break
		}
		one.Ticket = c.Ticket(formRevoke, one.ID.String())
		body.Granted = append(body.Granted, one)
	}
	if err != nil {
		return nil, err
	}
	return c.Show(status, "access", page.Layout{Title: "Programs with access", Fault: fault, Body: body}, "")
}

func (w *Web) granted(ctx context.Context, g oauth.Grant) (granted, error) {
	out := granted{
		ID: g.ID, Name: cmp.Or(plain.Name(g.ClientName), "A program without a name"), ClientID: g.ClientID, Resource: page.AddressText(g.Resource),
		Since: page.Date(g.CreatedAt), Until: page.Date(g.EndsAt), LastUse: "not yet",
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
