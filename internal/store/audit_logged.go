package store

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

const sqlLoggedActs = `SELECT workspace, act, object, detail FROM audit_log WHERE act IN ('plan.created', 'plan.updated', 'plan.listed',
	'plan.unlisted', 'agent.created', 'agent.updated', 'delegation.created', 'api_key.created', 'api_key.revoked', 'member.joined',
	'member.role', 'member.limit', 'member.removed', 'workspace.deleted', 'payout.marked') ORDER BY workspace, number`

// AuditLogged compares owners, prices, limits and rights of records, and payouts, with the last entries of the audit log about them;
// [AuditChains] proves the log. It returns the faults. A record that changes meanwhile is read again.
func AuditLogged(ctx context.Context, q Querier) ([]string, error) {
	return twice(func() ([]string, error) { return auditLogged(ctx, q) })
}

// logged has the last state of records in the audit log, by kind and id.
type logged struct {
	terms   map[string]string
	keys    map[string]*loggedKey
	members map[string]*loggedMember // by workspace and person
}

type loggedKey struct {
	toll.APIKey
	revoked bool
}

type loggedMember struct {
	role  toll.Role
	limit *toll.Cents
}

func auditLogged(ctx context.Context, q Querier) (found []string, err error) {
	l := &logged{map[string]string{}, map[string]*loggedKey{}, map[string]*loggedMember{}}
	type line struct{ workspace, act, object, detail string }
	err = eachRow(ctx, q, sqlLoggedActs, nil, func(scan func(dest ...any) error) (e line, err error) {
		return e, scan(&e.workspace, &e.act, &e.object, &e.detail)
	}, func(e line) error {
		var d struct{ After json.RawMessage }
		if json.Unmarshal([]byte(e.detail), &d) != nil || l.note(e.workspace, e.act, e.object, d.After) != nil {
			found = append(found, "an entry of the audit log cannot be read: "+e.act+" "+e.object)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	differs := func(what string) { found = append(found, "a record differs from the audit log: "+what) }
	check := func(key, terms string) error {
		if want, known := l.terms[key]; known && want != terms {
			differs(key)
		}
		delete(l.terms, key)
		return nil
	}
	plan := func(p *toll.Plan) error {
		text, err := json.Marshal(p) // as the log has it
		if err == nil {
			err = json.Unmarshal(text, p)
		}
		if err != nil {
			return err
		}
		return check("plan "+string(p.ID), planTerms(p))
	}
	if err := eachRow(ctx, q, "SELECT "+planColumns+" FROM plans p", nil, scanPlan, plan); err != nil {
		return nil, err
	}
	agent := func(scan func(dest ...any) error) (a [2]string, err error) { return a, scan(&a[0], &a[1]) }
	if err := eachRow(ctx, q, "SELECT agent_id, owner FROM agents", nil, agent, func(a [2]string) error {
		return check("agent "+a[0], a[1])
	}); err != nil {
		return nil, err
	}
	if err := eachRow(ctx, q, delegations.selects, nil, delegations.scan, func(d *Delegation) error {
		return check("delegation "+d.ID, delegationTerms(d.Owner.Lower(), &toll.Delegation{
			SpendingLimitCents: toll.Cents(d.Limit), Currency: d.Currency, PlanID: NonZero(d.Plan), APIKeyID: d.APIKeyID,
			MaxTransactions: NonZero(d.MaxTransactions), AllowedRecipients: d.AllowedReceivers, ExpiresAt: toll.At(d.ExpiresAt), Provider: d.Provider,
		}))
	}); err != nil {
		return nil, err
	}
	if err := eachRow(ctx, q, apiKeys.selects, nil, apiKeys.scan, func(k APIKey) error {
		if want := l.keys[k.ID.String()]; want != nil && !want.allows(&k) {
			differs("api_key " + k.ID.String())
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := eachRow(ctx, q, memberships.selects, nil, memberships.scan, func(m Membership) error {
		want := l.members[m.Workspace.Lower()+" "+m.UserID.String()]
		if want == nil { // made with the workspace, or claimed it
			want = &loggedMember{role: toll.RoleOwner}
		}
		if m.Role != want.role || textOf(m.SpendLimit) != textOf(want.limit) {
			differs("member " + m.UserID.String() + " of " + m.Workspace.Lower())
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := eachRow(ctx, q, cardPayouts.selects, nil, cardPayouts.scan, func(p *CardPayout) error {
		if l.terms["payout "+p.ID] == "" {
			differs("payout " + p.ID)
		}
		return check("payout "+p.ID, textOf(p.Seller, p.Month, p.Currency, p.Cents, p.Note, p.PaidAt.UnixMilli()))
	}); err != nil {
		return nil, err
	}
	for key := range l.terms { // no row had them
		found = append(found, "a record in the audit log does not exist: "+key)
	}
	slices.Sort(found)
	return found, nil
}

func (l *logged) note(workspace, act, object string, after json.RawMessage) error {
	kind, did, _ := strings.Cut(act, ".")
	switch kind {
	case "plan":
		var p toll.Plan
		err := json.Unmarshal(after, &p)
		l.terms["plan "+object] = planTerms(&p)
		return err
	case "agent":
		var a toll.Agent
		err := json.Unmarshal(after, &a)
		l.terms["agent "+object] = a.Owner.Lower()
		return err
	case "delegation":
		var d toll.Delegation
		err := json.Unmarshal(after, &d)
		l.terms["delegation "+object] = delegationTerms(workspace, &d)
		return err
	case "payout":
		var p struct {
			Builder         toll.Address
			Month, Currency string
			AmountCents     toll.Cents
			Note            string
			PaidAt          toll.Time
		}
		err := json.Unmarshal(after, &p)
		l.terms["payout "+object] = textOf(p.Builder, p.Month, p.Currency, int64(p.AmountCents), p.Note, p.PaidAt.UnixMilli())
		return err
	case "api_key":
		k := &loggedKey{revoked: did == "revoked"}
		if known := l.keys[object]; known != nil && k.revoked {
			known.revoked = true
			return nil
		}
		l.keys[object] = k
		return json.Unmarshal(after, &k.APIKey)
	}
	if did == "deleted" { // all members are gone
		maps.DeleteFunc(l.members, func(key string, _ *loggedMember) bool { return strings.HasPrefix(key, workspace+" ") })
		return nil
	}
	m := l.members[workspace+" "+object]
	if m == nil {
		m = &loggedMember{role: toll.RoleOwner}
		l.members[workspace+" "+object] = m
	}
	switch did {
	case "limit":
		m.limit = nil
		return json.Unmarshal(after, &m.limit)
	case "removed": // a person who comes back joins again
		*m = loggedMember{}
		return nil
	case "joined":
		m.limit = nil
	}
	return json.Unmarshal(after, &m.role)
}

// allows reports whether a key has no more than the log says: rights and end are only ever narrowed.
func (k *loggedKey) allows(row *APIKey) bool {
	later := k.ExpiresAt != nil && (row.ExpiresAt.IsZero() || row.ExpiresAt.Truncate(time.Millisecond).After(k.ExpiresAt.Time))
	return row.Address == k.Address && row.Rights.Missing(k.Rights) == "" && !later && !(k.revoked && row.RevokedAt.IsZero())
}

func planTerms(p *toll.Plan) string {
	return textOf(p.Owner, p.Price, p.Credits, p.AccessLimit, p.MaxOrders, p.IsTrial, p.IsListed)
}

func delegationTerms(owner string, d *toll.Delegation) string {
	return textOf(owner, d.Provider, d.SpendingLimitCents, d.Currency, d.PlanID, d.APIKeyID, d.MaxTransactions,
		append([]toll.Address{}, d.AllowedRecipients...), d.ExpiresAt.UnixMilli())
}

// textOf returns values as JSON: equal values have equal texts.
func textOf(v ...any) string {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v) // all of these can be encoded
	return b.String()
}
