package oauth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// want is what a program asks for, in a browser or for a device.
type want struct {
	scope, resource string
	plan            toll.PlanID
	agent           toll.AgentID
	kind            Kind
	rights          toll.Rights // of an API key
}

// want reads the members that say what a program asks for.
func (o *OAuth) want(ctx context.Context, client *knownClient, q url.Values) (want, *refusal) {
	var w want
	var no *refusal
	if w.scope, no = readScope(q.Get("scope")); no != nil {
		return w, no
	}
	if w.kind, w.resource, no = o.readResource(q["resource"]); no != nil {
		return w, no
	}
	if w.kind == KindAPIKey {
		if q.Get("plan_id") != "" || q.Get("agent_id") != "" {
			return w, refused("invalid_request", "An API key is for no plan and no agent.")
		}
		if client.Agent != nil {
			return w, refused("invalid_target", "A program that is not registered gets no API key.")
		}
		w.rights, no = askedRights(w.scope)
		return w, no
	}
	if client.Ours {
		return w, refused("invalid_target", "The resource must be "+o.Resource+".")
	}
	if text := cmp.Or(q.Get("agent_id"), string(agentOf(client.ID))); text != "" {
		agent, err := toll.ParseAgentID(text)
		if err == nil {
			_, err = store.AgentByID(ctx, o.Store, agent)
		}
		if no := o.asked(ctx, err, "agent_id names no agent."); no != nil {
			return w, no
		}
		if client.Agent != nil && agent != client.Agent.ID {
			return w, refused("invalid_request", "agent_id must be the agent that client_id names.")
		}
		w.agent = agent
	}
	if text := q.Get("plan_id"); text != "" {
		plan, err := toll.ParsePlanID(text)
		if err == nil {
			_, err = store.PlanByID(ctx, o.Store, plan)
		}
		if no := o.asked(ctx, err, "plan_id names no plan."); no != nil {
			return w, no
		}
		w.plan = plan
	}
	return w, nil
}

// asked turns the error of a record that a program named into a refusal.
func (o *OAuth) asked(ctx context.Context, err error, text string) *refusal {
	var e *toll.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound), errors.As(err, &e) && e.HTTPStatus() < http.StatusInternalServerError:
		return refused("invalid_request", text)
	}
	return o.failed(ctx, err)
}

// readScope reads words with single blanks between (RFC 6749, section 3.3). Any word is taken: what an MCP server calls its
// scopes is its own matter, and none of them widens what the person agrees to.
func readScope(scope string) (string, *refusal) {
	words := strings.Fields(scope)
	for _, w := range words {
		if !visible(w) || strings.ContainsAny(w, `"\`) {
			return "", refused("invalid_scope", "scope has a character that it must not have.")
		}
	}
	scope = strings.Join(words, " ")
	if len(scope) > maxScope {
		return "", refused("invalid_scope", "scope is longer than 256 characters.")
	}
	return scope, nil
}

// askedRights returns the rights that a scope asks for, of those that a program can have: without any, all four.
func askedRights(scope string) (toll.Rights, *refusal) {
	words := strings.Fields(scope)
	asked := slices.DeleteFunc(toll.AllRights(), func(r toll.Right) bool { return !slices.Contains(words, string(r)) })
	can := toll.ProgramRights()
	if r := asked.Missing(can); r != "" {
		return nil, refused("invalid_scope", "No program can have the right "+string(r)+". It can ask for "+can.String()+".")
	}
	if len(asked) == 0 {
		return can, nil
	}
	return asked, nil
}

// scopeOf returns a scope with the rights that were given in place of those that were asked for.
func scopeOf(scope string, rights toll.Rights) string {
	can := toll.ProgramRights()
	words := slices.DeleteFunc(strings.Fields(scope), func(w string) bool { return can.Has(toll.Right(w)) })
	return strings.Join(append(words, strings.Fields(rights.String())...), " ")
}

// mayLetIn returns nil when a person has the right to let programs in that get this.
func mayLetIn(person auth.Caller, kind Kind) error {
	needs := toll.RightSpend
	if kind == KindAPIKey {
		needs = toll.RightKeys
	}
	if !person.Rights.Has(needs) {
		return auth.Lacks(needs)
	}
	return nil
}

// rightsOf returns the rights that a person gives a program that asked for some; chosen nil are all that the person has.
func rightsOf(person auth.Caller, asked, chosen toll.Rights) (toll.Rights, error) {
	can := asked.Within(person.Gives())
	if chosen == nil {
		chosen = can
	}
	if len(chosen) == 0 {
		return nil, toll.Errorf(toll.CodeBadRequest, "Choose at least one right.")
	}
	if r := chosen.Missing(can); r != "" {
		return nil, auth.Lacks(r)
	}
	return chosen, nil
}

// readResource reads what the access token is to be for (RFC 8707): the API, a server of somebody, or with none the
// service alone.
func (o *OAuth) readResource(values []string) (Kind, string, *refusal) {
	if len(values) > 1 {
		return "", "", refused("invalid_target", "Only one resource can be asked for.")
	}
	if len(values) == 0 || values[0] == "" {
		return KindPermission, "", nil
	}
	resource := values[0]
	if strings.TrimSuffix(resource, "/") == o.Resource {
		return KindAPIKey, o.Resource, nil
	}
	bad := refused("invalid_target", "The resource must be the https address of a server, or http on this computer, without user and fragment.")
	u, err := url.Parse(resource)
	if err != nil || len(resource) > maxResource || !visible(resource) || u.Opaque != "" || u.User != nil || u.Hostname() == "" || strings.Contains(resource, "#") {
		return "", "", bad
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return "", "", bad
	}
	// What lies at this service is for its API alone: an access token for another part of it would be for a door that is not
	// there, or for one that is not the program's.
	own, err := url.Parse(o.Issuer)
	if err != nil || strings.EqualFold(u.Host, own.Host) {
		return "", "", refused("invalid_target", "At this service the resource must be "+o.Resource+".")
	}
	return KindPermission, resource, nil
}
