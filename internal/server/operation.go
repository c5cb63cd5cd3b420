package server

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/operator"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/workspace"
)

// Operation is what the page of the operators shows: what toll doctor and the metrics find.
func (s *Server) Operation(ctx context.Context) (o operator.Operation, err error) {
	for name, is := range s.ready(ctx) {
		if is == "failing" {
			o.Checks.Add(name, check.Failed, "Failing. See the log for the cause.")
		}
	}
	var backups sync.WaitGroup
	backups.Go(func() { o.Backups = s.backups(ctx) })
	checks, _ := Inspect(ctx, s.cfg)
	backups.Wait()
	o.Checks = append(o.Checks, checks...)
	for _, l := range s.jobs.Status() {
		o.Loops = append(o.Loops, operator.Loop{Name: l.Name, Runs: l.Runs, Last: l.Last, Failing: l.Failing, Error: l.Error})
	}
	keys, err := store.SigningKeys(ctx, s.base.store)
	if err != nil {
		return o, err
	}
	for _, k := range keys {
		o.Keys = append(o.Keys, operator.SigningKey{
			ID: k.KID, Made: k.CreatedAt, Retired: k.RetiredAt,
			For: map[string]string{"": "API keys and access tokens", store.StatementKey: "offers and receipts"}[k.Purpose],
		})
	}
	unmatched, err := store.CountOrphans(ctx, s.base.store)
	if err != nil {
		return o, err
	}
	o.Unmatched.Cards, o.Unmatched.Crypto = unmatched[store.RailCard], unmatched[store.RailCrypto]
	o.Alarms = s.alarms.recent()
	each := func(name string, n int, of string) {
		text := "no limit"
		if n > 0 {
			text = strconv.Itoa(n) + " " + of
		}
		o.Limits = append(o.Limits, operator.Limit{Name: name, Text: text})
	}
	o.Limits = append(o.Limits,
		operator.Limit{Name: "Release", Text: cmp.Or(s.cfg.Release, "unknown")}, operator.Limit{Name: "Database", Text: string(s.base.store.Engine())},
		operator.Limit{Name: "Public address", Text: s.PublicURL()}, operator.Limit{Name: "Sign-up", Text: string(s.people.SignUps.Registration)},
		operator.Limit{Name: "Passwords", Text: map[bool]string{true: "off (--no-passwords)", false: "on"}[s.people.Credentials.NoPasswords]},
		operator.Limit{Name: "Mail sender", Text: cmp.Or(s.cfg.Mail.From, "none: no mail server is set (--smtp-url)")}, operator.Limit{Name: "Branding", Text: s.cfg.Brand.Text()},
	)
	each("Rate limit per API key", s.cfg.RateLimitKey, "requests per second")
	each("Rate limit per IP address", s.cfg.RateLimitIP, "requests per second")
	return o, nil
}

// operatorPages does what the pages of operators ask for.
type operatorPages struct{ *Server }

// Workspaces lists all workspaces.
func (s operatorPages) Workspaces(ctx context.Context, p page.Listing) (out page.List[operator.Workspace], err error) {
	list, err := store.PrincipalList(ctx, s.base.store, store.Page{Size: p.Size, Cursor: p.Cursor, Ascending: p.Ascending})
	out.Total, out.Next = list.Total, list.Next
	for _, w := range list.Items {
		members, err := store.MembersOf(ctx, s.base.store, w.Address)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, operator.Workspace{
			WorkspaceRecord: toll.WorkspaceRecord{ID: w.Address.Lower(), Name: w.Shown(), Address: w.Address, CreatedAt: toll.At(w.CreatedAt)},
			Members:         len(members), Custody: people.CustodyOf(w),
		})
	}
	return out, err
}

// Suspend suspends or resumes a workspace, a plan, or an API key. It reports whether the id is known.
func (s operatorPages) Suspend(ctx context.Context, id string, suspend bool) (known bool, err error) {
	if _, err = s.base.auth.Suspend(ctx, id, suspend); errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return true, err
}

// changesSince are the changes of the API after a version.
func changesSince(version string) (out []workspace.Change) {
	v, err := apiversion.Parse(version)
	for _, c := range apiversion.Changes() {
		if err == nil && v.Before(c.Since) {
			out = append(out, workspace.Change{Since: c.Since.String(), Summary: c.Summary})
		}
	}
	return out
}
