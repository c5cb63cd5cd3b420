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
	"github.com/tollhq/toll/internal/oauthmeta"
	"github.com/tollhq/toll/internal/store"
)

// Asked is what a program asks for, in a browser or for a device.
type Asked struct {
	Scope    string // words with blanks between; "" for none
	Resource string // what the access token is for; "" for the service alone
	PlanID   toll.PlanID
	AgentID  toll.AgentID
	Kind     string
	Rights   toll.Rights // with an API key: the rights that it is to have
}

// read reads the members that say what a program asks for.
func (o *OAuth) read(ctx context.Context, client *knownClient, q url.Values) (w Asked, err error) {
	if w.Scope, err = readScope(q.Get("scope")); err != nil {
		return w, err
	}
	if w.Kind, w.Resource, err = o.readResource(q["resource"]); err != nil {
		return w, err
	}
	if w.Kind == KindAPIKey {
		if q.Get("plan_id") != "" || q.Get("agent_id") != "" {
			return w, refused("invalid_request", "An API key is not limited to a plan or an agent: omit plan_id and agent_id.")
		}
		if client.Agent != nil {
			return w, refused("invalid_target", "Only a registered client can get an API key.")
		}
		isRight := func(word string) bool { return toll.AllRights().Has(toll.Right(word)) }
		if client.usual != nil && !slices.ContainsFunc(strings.Fields(w.Scope), isRight) {
			w.Scope = scopeOf(w.Scope, client.usual)
		}
		w.Rights, err = askedRights(w.Scope)
		return w, err
	}
	if client.Ours {
		return w, refused("invalid_target", "The resource must be "+o.Resource+".")
	}
	if text := cmp.Or(q.Get("agent_id"), string(agentOf(client.ID))); text != "" {
		agent, err := toll.ParseAgentID(text)
		if err == nil {
			_, err = store.AgentByID(ctx, o.Store, agent)
		}
		if err != nil {
			return w, unknownRecord(err, "agent_id does not match an agent.")
		}
		if client.Agent != nil && agent != client.Agent.ID {
			return w, refused("invalid_request", "agent_id must be the agent in client_id.")
		}
		w.AgentID = agent
	}
	if w.AgentID == "" && client.Agent == nil {
		if w.AgentID, err = o.agentIn(ctx, w.Scope); err != nil {
			return w, err
		}
	}
	if text := q.Get("plan_id"); text != "" {
		plan, err := toll.ParsePlanID(text)
		if err == nil {
			_, err = store.PlanByID(ctx, o.Store, plan)
		}
		if err != nil {
			return w, unknownRecord(err, "plan_id does not match a plan.")
		}
		w.PlanID = plan
	}
	return w, nil
}

// agentIn returns the agent that a word of a scope names, "" for none. A word of an MCP server that only looks like one names none.
func (o *OAuth) agentIn(ctx context.Context, scope string) (toll.AgentID, error) {
	for _, word := range strings.Fields(scope) {
		text, ok := strings.CutPrefix(word, oauthmeta.AgentScope)
		id, err := toll.ParseAgentID(text)
		if !ok || err != nil {
			continue
		}
		if _, err = store.AgentByID(ctx, o.Store, id); err == nil || !isNotFound(err) {
			return id, err
		}
	}
	return "", nil
}

// unknownRecord refuses a record that a program named and that is not there. Other errors stay as they are.
func unknownRecord(err error, text string) error {
	if e, ok := errors.AsType[*toll.Error](err); isNotFound(err) || ok && e.HTTPStatus() < http.StatusInternalServerError {
		return refused("invalid_request", text)
	}
	return err
}

// readScope reads words with single blanks between (RFC 6749, section 3.3). Any word is taken: what an MCP server calls its
// scopes is its own matter, and none of them widens what the person agrees to.
func readScope(scope string) (string, error) {
	words := strings.Fields(scope)
	for _, w := range words {
		if !visible(w) || strings.ContainsAny(w, `"\`) {
			return "", refused("invalid_scope", "scope contains an invalid character.")
		}
	}
	scope = strings.Join(words, " ")
	if len(scope) > maxScope {
		return "", refused("invalid_scope", "scope must be at most 256 characters.")
	}
	return scope, nil
}

// askedRights returns the rights that a scope asks for, of those that a program can have: without any, all four.
func askedRights(scope string) (toll.Rights, error) {
	words := strings.Fields(scope)
	asked := slices.DeleteFunc(toll.AllRights(), func(r toll.Right) bool { return !slices.Contains(words, string(r)) })
	can := toll.ProgramRights()
	if r := asked.Missing(can); r != "" {
		return nil, refused("invalid_scope", "An app cannot get the right "+string(r)+". It can request "+can.String()+".")
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
func mayLetIn(person auth.Caller, kind string) error {
	needs := toll.RightSpend
	if kind == KindAPIKey {
		needs = toll.RightKeys
	}
	if !person.Rights.Has(needs) {
		return auth.MissingRight(needs)
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
		return nil, auth.MissingRight(r)
	}
	return chosen, nil
}

// readResource reads what the access token is to be for (RFC 8707): the API, a server of somebody, or with none the service alone.
func (o *OAuth) readResource(values []string) (kind, resource string, err error) {
	if len(values) > 1 {
		return "", "", refused("invalid_target", "Send at most one resource.")
	}
	if len(values) == 0 || values[0] == "" {
		return KindPermission, "", nil
	}
	resource = values[0]
	if strings.TrimSuffix(resource, "/") == o.Resource {
		return KindAPIKey, o.Resource, nil
	}
	bad := refused("invalid_target", "The resource must be the https address of a server, or http on a loopback address, without a user or fragment.")
	u, err := url.Parse(resource)
	if err != nil || len(resource) > maxResource || !visible(resource) || u.Opaque != "" || u.User != nil || u.Hostname() == "" || strings.Contains(resource, "#") {
		return "", "", bad
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !toll.IsLoopback(u.Hostname())) {
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
