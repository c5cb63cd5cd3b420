package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

// own is the right of a row that is about the person of the session, whatever their role is anywhere.
const own toll.Right = "own"

// me stands in a path for the person of the session.
const me = "me"

type sessions struct{ people *people.People }

// members has the people of a workspace, their invitations and its audit log.
type members struct {
	store  *store.Store
	people *people.People
}

func (m members) routes(s sessions) []route {
	const tag = "People"
	memberCodes := []toll.Code{toll.CodePersonNotFound, toll.CodeForbidden, toll.CodeLastOwner, toll.CodeBadUUID}
	return []route{
		{
			op: "signUp", method: "POST", path: Base + "/people", auth: open, right: public, tag: tag, status: 201,
			summary: "Sign up with a password, and create a workspace and a session; requires an invitation link unless registration is open",
			action:  takes(s.signUp),
			codes:   []toll.Code{toll.CodePasswordsOff, toll.CodeForbidden, toll.CodeExists, toll.CodePersonNotFound, toll.CodeRateLimited},
		},
		{
			op: "signIn", method: "POST", path: Base + "/session", auth: open, right: public, tag: tag, status: 201,
			summary: "Sign in as a person with a password; the session token is returned only once and works in place of an API key for 12 hours",
			action:  takes(s.signIn), codes: []toll.Code{toll.CodePasswordsOff, toll.CodeNotAuthenticated, toll.CodeRateLimited},
		},
		{
			op: "readSession", method: "GET", path: Base + "/session", auth: person, right: own, tag: tag,
			summary: "Read the current session, its person, and their workspaces", action: reads(s.readSession),
		},
		{
			op: "proveSession", method: "POST", path: Base + "/session/proof", auth: person, right: own, tag: tag,
			summary: "Confirm your password again; for ten minutes the session can make calls that require a recent confirmation", action: takes(s.proveSession),
			codes: []toll.Code{toll.CodePasswordsOff, toll.CodeRateLimited},
		},
		{
			op: "signOut", method: "DELETE", path: Base + "/session", auth: person, right: own, tag: tag,
			summary: "Sign out: end the current session", action: reads(s.signOut),
		},
		{
			op: "listSessions", method: "GET", path: Base + "/sessions", auth: person, right: own, tag: tag,
			summary: "List your sessions in browsers and terminals", action: lists("SessionList", list.Sessions, s.listSessions),
			query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "endSession", method: "DELETE", path: Base + "/sessions/{sessionId}", auth: person, right: own, tag: tag,
			summary: "End one of your sessions", action: reads(by("sessionId", toll.ParseUUID, s.endSession)),
			codes: []toll.Code{toll.CodePersonNotFound, toll.CodeBadUUID},
		},
		{
			op: "listCredentials", method: "GET", path: Base + "/credentials", auth: person, right: own, tag: tag,
			summary: "List your sign-in credentials, including each unused recovery code", action: lists("CredentialList", list.Credentials, s.listCredentials),
			query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "removeCredential", method: "DELETE", path: Base + "/credentials/{credentialId}", auth: person, right: own, fresh: true, tag: tag,
			summary: "Delete a credential and end all your other sessions; you cannot delete the last credential that is sufficient to sign in", action: reads(s.removeCredential),
			codes: []toll.Code{toll.CodePersonNotFound, toll.CodeForbidden, toll.CodeBadUUID},
		},
		{
			op: "renewRecoveryCodes", method: "POST", path: Base + "/credentials/recovery-codes", auth: person, right: own, fresh: true, tag: tag,
			summary: "Create ten recovery codes that replace the previous ones; each code works once, and the codes are returned only once", action: reads(s.renewRecoveryCodes),
		},
		{
			op: "listMembers", method: "GET", path: Base + "/members", auth: person, right: toll.RightRead, tag: tag,
			summary: "List the members of the workspace", action: lists("MemberList", list.Members, m.listMembers), query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "setRole", method: "PATCH", path: Base + "/members/{userId}", auth: person, right: toll.RightMembers, fresh: true, tag: tag,
			summary: "Change the role of a member, up to your own role, or the spending limit of a developer. Within a second, the member's API keys lose all rights that the new role does not have",
			action:  takes(m.changeMember), codes: append([]toll.Code{toll.CodeBadNumber}, memberCodes...),
		},
		{
			op: "removeMember", method: "DELETE", path: Base + "/members/{userId}", auth: person, right: toll.RightMembers, fresh: true, ownUser: true, tag: tag,
			summary: "Remove a member and revoke the API keys, access tokens, and consents of the membership; the response counts them. Send `me` to leave the workspace; this requires neither the right nor a recent confirmation",
			action:  reads(byUser(m.removeMember)), codes: memberCodes,
			query: []query{{"keep", "true: the API keys and consents of the membership are transferred to you."}},
		},
		{
			op: "listMemberSessions", method: "GET", path: Base + "/members/{userId}/sessions", auth: person, right: toll.RightMembers, tag: tag,
			summary: "List the sessions in which a member used the workspace; your role must be allowed to manage that member", action: lists("SessionList", list.MemberSessions, m.listMemberSessions),
			query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodePersonNotFound, toll.CodeForbidden, toll.CodeBadUUID, toll.CodeBadPage},
		},
		{
			op: "endMemberSessions", method: "DELETE", path: Base + "/members/{userId}/sessions", auth: person, right: toll.RightMembers, fresh: true, tag: tag,
			summary: "Sign a member out of the workspace in all sessions; the member can sign in again and stays signed in to other workspaces", action: reads(byUser(m.endMemberSessions)),
			codes: []toll.Code{toll.CodePersonNotFound, toll.CodeForbidden, toll.CodeBadUUID},
		},
		{
			op: "listAuditLog", export: toll.RightMembers, method: "GET", path: Base + "/audit-log", auth: person, right: toll.RightMembers, tag: tag,
			summary: "List the changes in the workspace with their actors and sources; IP addresses of people are removed after 90 days", action: lists("AuditLog", list.AuditLog, m.listAuditLog),
			query: slices.Concat([]query{{"act", "Only entries with this action, such as member.removed."}}, between, sortedBy(store.SortCreated)),
			codes: []toll.Code{toll.CodeBadPage, toll.CodeBadRequest},
		},
		{
			op: "createInvitation", method: "POST", path: Base + "/invitations", auth: person, right: toll.RightMembers, fresh: true, tag: tag, status: 201,
			summary: "Create an invitation link for one person, valid for seven days; the link is returned only once", action: creates(m.createInvitation),
			codes: []toll.Code{toll.CodeForbidden, toll.CodeRateLimited},
		},
		{
			op: "listInvitations", method: "GET", path: Base + "/invitations", auth: person, right: toll.RightRead, tag: tag,
			summary: "List the open invitations to the workspace, without their links", action: lists("InvitationList", list.Invitations, m.listInvitations), query: sortedBy(store.SortCreated),
			codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "acceptInvitation", method: "POST", path: Base + "/invitations/accept", auth: person, right: own, tag: tag,
			summary: "Accept an invitation with its link or the secret in the link; an invitation works only once", action: takes(m.acceptInvitation),
			codes: []toll.Code{toll.CodePersonNotFound, toll.CodeExists, toll.CodeForbidden, toll.CodeRateLimited},
		},
		{
			op: "revokeInvitation", method: "DELETE", path: Base + "/invitations/{id}", auth: person, right: toll.RightMembers, fresh: true, tag: tag,
			summary: "Revoke an open invitation", action: reads(by("id", toll.ParseHash, m.revokeInvitation)),
			codes: []toll.Code{toll.CodePersonNotFound, toll.CodeForbidden},
		},
	}
}

// byUser is by for a person in the path, for whom [me] stands as well.
func byUser[Out any](f func(c *call, user toll.UUID) (Out, error)) func(c *call) (Out, error) {
	return func(c *call) (out Out, err error) {
		user, err := c.user()
		if err != nil {
			return out, err
		}
		return f(c, user)
	}
}

func (c *call) user() (id toll.UUID, err error) {
	text := c.param("userId")
	if text == me && c.signed != nil {
		return c.signed.Person.ID, nil
	}
	return id, id.UnmarshalText([]byte(text))
}

func (c *call) source() string { return Source(c.r, c.h.Limits.Proxies).String() }

// SignUpInput makes a person.
type SignUpInput struct {
	Name      string `json:"name,omitzero" maxLength:"100" doc:"Display name. Defaults to the login name."`
	Workspace string `json:"workspace,omitzero" maxLength:"100" doc:"Name of your new workspace: at most 100 printable characters. Without it, the workspace has no name."`
	Login     string `json:"login" doc:"3 to 64 characters from a-z, 0-9, and . _ + @ -."`
	Password  string `json:"password" doc:"At least 8 characters, at most 256 bytes, and not easy to guess."`
	Link      string `json:"link,omitzero" doc:"An invitation link or a link from the operator. You can also send only the secret in the link. Required if registration is not open."`
}

func (s sessions) signUp(c *call, in *SignUpInput) (*toll.SignedIn, error) {
	u, _, err := s.people.Passwords.SignUp(c.unnamed(), c.source(), people.SignUp{
		Name: in.Name, Workspace: in.Workspace, Login: in.Login, Secret: in.Password, Link: secretOf(in.Link),
	})
	if err != nil {
		return nil, err
	}
	return s.begin(c, u)
}

func secretOf(link string) string {
	if u, err := url.Parse(link); err == nil && u.Query().Has("link") {
		return u.Query().Get("link")
	}
	return link
}

type SignInInput struct {
	Login    string `json:"login"`
	Password string `json:"password"`
}

func (s sessions) signIn(c *call, in *SignInInput) (*toll.SignedIn, error) {
	u, err := s.people.Passwords.SignIn(c.unnamed(), c.source(), in.Login, in.Password)
	if err != nil {
		return nil, err
	}
	return s.begin(c, u)
}

// unnamed is the context of a call by somebody who is not known yet, with where it came from, for the audit log.
func (c *call) unnamed() context.Context {
	return store.WithActor(c.context, store.Actor{Kind: "local", Source: c.source(), Agent: c.r.UserAgent()})
}

func (s sessions) begin(c *call, u toll.Person) (*toll.SignedIn, error) {
	token, signed, err := s.people.Sessions.Begin(c.context, u, c.r.UserAgent())
	if err != nil {
		return nil, err
	}
	c.signed = signed
	out, err := s.readSession(c)
	if out != nil {
		out.Token = token
	}
	return out, err
}

func (s sessions) readSession(c *call) (*toll.SignedIn, error) {
	in, err := s.people.Organizations(c.context, c.signed.Person.ID)
	return &toll.SignedIn{Session: c.signed.Session, Person: c.signed.Person, Organizations: in}, err
}

// ProofInput proves a person once more.
type ProofInput struct {
	Password string `json:"password"`
}

func (s sessions) proveSession(c *call, in *ProofInput) (*toll.Session, error) {
	err := s.people.Sessions.Prove(c.context, c.signed, in.Password)
	return &c.signed.Session, err
}

// Done says that something was done of which there is nothing more to say.
type Done struct {
	Success bool `json:"success"`
}

func (s sessions) signOut(c *call) (*Done, error) {
	return &Done{true}, s.people.Sessions.End(c.context, c.signed.Person.ID, c.signed.Session.ID)
}

func (s sessions) listSessions(c *call, p store.Page, _ url.Values) (store.List[toll.Session], error) {
	list, err := s.people.Sessions.Page(c.context, c.signed.Person.ID, p)
	return markCurrent(c, list), err
}

func markCurrent(c *call, list store.List[toll.Session]) store.List[toll.Session] {
	for i := range list.Items {
		list.Items[i].Current = c.signed != nil && list.Items[i].ID == c.signed.Session.ID
	}
	return list
}

func (s sessions) endSession(c *call, id string) (*Done, error) {
	return &Done{true}, s.people.Sessions.End(c.context, c.signed.Person.ID, id)
}

func (m members) listMembers(c *call, p store.Page, _ url.Values) (store.List[toll.Member], error) {
	return m.people.Members.Page(c.context, c.caller.Address, p)
}

func (m members) listMemberSessions(c *call, p store.Page, _ url.Values) (none store.List[toll.Session], err error) {
	user, err := c.user()
	if err != nil {
		return none, err
	}
	list, err := m.people.Members.Sessions(c.context, c.caller, user, p)
	return markCurrent(c, list), err
}

type EndedSessions struct {
	Success bool  `json:"success"`
	Ended   int64 `json:"ended"`
}

func (m members) endMemberSessions(c *call, user toll.UUID) (*EndedSessions, error) {
	n, err := m.people.Members.EndSessions(c.context, c.caller, user)
	return &EndedSessions{true, n}, err
}

func (s sessions) listCredentials(c *call, p store.Page, _ url.Values) (none store.List[toll.Credential], err error) {
	all, err := s.people.Credentials.List(c.context, c.signed.Person.ID)
	if err != nil {
		return none, err
	}
	return shortList(p, all)
}

func (s sessions) removeCredential(c *call) (*Done, error) {
	var id toll.UUID
	if err := id.UnmarshalText([]byte(c.param("credentialId"))); err != nil {
		return nil, err
	}
	return &Done{true}, s.people.Credentials.Remove(c.context, c.signed.Person.ID, id, c.signed.Keep())
}

// RecoveryCodes are shown once.
type RecoveryCodes struct {
	Codes []string `json:"codes"`
}

func (s sessions) renewRecoveryCodes(c *call) (*RecoveryCodes, error) {
	codes, err := s.people.Credentials.NewRecoveryCodes(c.context, c.signed.Person.ID)
	return &RecoveryCodes{codes}, err
}

// RoleInput changes the role, the spending limit, or both.
type RoleInput struct {
	Role            *toll.Role              `json:"role,omitzero" enum:"owner,admin,developer,billing,viewer"`
	SpendLimitCents toll.Change[toll.Cents] `json:"spendLimitCents,omitzero" doc:"Maximum that the developer can spend from the workspace in a calendar month (UTC), in cents. One euro counts as one dollar. Null means no limit."`
}

func (m members) changeMember(c *call, in *RoleInput) (*toll.Member, error) {
	user, err := c.user()
	if err != nil {
		return nil, err
	}
	changed, err := m.people.Members.Change(c.context, c.caller, user, people.MemberChange{Role: in.Role, SpendLimit: in.SpendLimitCents})
	return &changed, err
}

func (m members) removeMember(c *call, user toll.UUID) (*toll.Removed, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	keep, err := flag(q, "keep")
	if err != nil {
		return nil, err
	}
	out, err := m.people.Members.Remove(c.context, c.caller, user, keep)
	return &out, err
}

// acts are words with dots between.
var acts = regexp.MustCompile(`^[a-z_]{1,32}(\.[a-z_]{1,32})?$`)

func (m members) listAuditLog(c *call, p store.Page, q url.Values) (none store.List[toll.Act], err error) {
	f := filters{q: q}
	act := filter(&f, "act", func(s string) (string, error) {
		if !acts.MatchString(s) {
			return "", fmt.Errorf("must be an action such as member.removed; got %.32q", s)
		}
		return s, nil
	})
	since, until := f.between()
	if f.err != nil {
		return none, f.err
	}
	rows, err := store.AuditList(c.context, m.store, c.caller.Address.Lower(), act, since, until, p)
	list := store.Map(rows, func(e store.AuditEntry) toll.Act {
		return toll.Act{
			Number: e.Number, At: toll.At(e.At), ActorKind: e.ActorKind, Actor: e.Actor, Act: e.Act, Object: e.Object, Source: e.Source,
			Detail: json.RawMessage(e.Detail),
		}
	})
	return list, err
}

type InvitationInput struct {
	Role toll.Role `json:"role" enum:"owner,admin,developer,billing,viewer"`
	Note string    `json:"note,omitzero" maxLength:"100" doc:"Note about the invited person."`
}

func (m members) createInvitation(c *call, in *InvitationInput, once *store.Once) (*toll.Invitation, error) {
	i, err := m.people.Links.Invite(c.context, c.caller, in.Role, in.Note, once)
	return &i, err
}

func (m members) listInvitations(c *call, p store.Page, _ url.Values) (none store.List[toll.Invitation], err error) {
	all, err := m.people.Links.Invitations(c.context, c.caller.Address)
	if err != nil {
		return none, err
	}
	return shortList(p, all)
}

// AcceptInput names an invitation.
type AcceptInput struct {
	Link string `json:"link" doc:"The invitation link, or the secret in it."`
}

func (m members) acceptInvitation(c *call, in *AcceptInput) (*toll.Organization, error) {
	at, err := m.people.Links.Join(c.context, c.source(), c.signed.Person.ID, secretOf(in.Link))
	if err != nil {
		return nil, err
	}
	all, err := m.people.Organizations(c.context, c.signed.Person.ID)
	i := slices.IndexFunc(all, func(o toll.Organization) bool { return o.ID == at.Lower() })
	if err != nil || i < 0 { // removed meanwhile
		return nil, toll.NewError(toll.CodePersonNotFound).WithCause(err)
	}
	return &all[i], nil
}

func (m members) revokeInvitation(c *call, id toll.Hash) (*Done, error) {
	return &Done{true}, m.people.Links.Withdraw(c.context, c.caller, id)
}

// shortList returns a page of a list that a bound keeps short, the oldest record first in all.
func shortList[T any](p store.Page, all []T) (store.List[T], error) {
	if p.Sort != "" && p.Sort != store.SortCreated {
		return store.List[T]{}, toll.NewError(toll.CodeBadPage).WithParam("parameter", "sortBy")
	}
	at := (p.Number - 1) * p.Size
	if p.Cursor != "" {
		order, number, _ := strings.Cut(p.Cursor, ".")
		n, ok := whole(number, 1<<20)
		if !ok || order != "asc" && order != "desc" {
			return store.List[T]{}, toll.NewError(toll.CodeBadPage).WithParam("parameter", "cursor")
		}
		at, p.Ascending = n, order == "asc"
	}
	order := "asc"
	if !p.Ascending {
		all, order = slices.Clone(all), "desc"
		slices.Reverse(all)
	}
	at = min(at, len(all))
	end := min(at+p.Size, len(all))
	list := store.List[T]{Items: append([]T{}, all[at:end]...), Total: int64(len(all))}
	if end < len(all) {
		list.Next = order + "." + strconv.Itoa(end)
	}
	return list, nil
}

// opened returns the session of a call. Errors: [toll.CodeNotAuthenticated], [toll.CodeForbidden] for a request of another site.
func (c *call) opened() (*people.Signed, error) {
	if h := c.h.people; h != nil {
		if text := c.sessionToken(); text != "" {
			return h.Sessions.OpenToken(c.context, text)
		}
		if len(c.r.Header["Authorization"]) > 0 {
			return nil, c.authErr
		}
		if cookie, err := c.r.Cookie(c.h.cookie); err == nil {
			if err := c.sameOrigin(); err != nil {
				return nil, err
			}
			return h.Sessions.OpenCookie(c.context, cookie.Value)
		}
	}
	return nil, c.authErr
}

// sessionToken returns the token of a session in a terminal that stands where an API key does, "" for none.
func (c *call) sessionToken() string {
	lines := c.r.Header["Authorization"]
	if len(lines) != 1 || len(lines[0]) > len("Bearer ")+len(people.TokenPrefix)+64 {
		return ""
	}
	scheme, text, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(text, people.TokenPrefix) {
		return ""
	}
	return text
}

var crossOrigin = http.NewCrossOriginProtection()

// sameOrigin refuses a call with the cookie of a browser that changes something and that no page of this service sent.
func (c *call) sameOrigin() error {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		return nil
	}
	named := len(c.r.Header["Origin"]) > 0 || len(c.r.Header["Sec-Fetch-Site"]) > 0 // every browser does
	if named && crossOrigin.Check(c.r) == nil {
		return nil
	}
	return toll.Errorf(toll.CodeForbidden, "This call uses a browser session but was not sent by a page of this service.")
}

// allowedPerson is [call.allowed] for the session of a person.
func (c *call) allowedPerson() error {
	r := c.route
	if r.right != own && !r.anywhere {
		named := c.r.Header["X-Current-Org-Id"]
		workspace := ""
		for i, w := range named {
			if i > 0 && !strings.EqualFold(w, workspace) {
				return toll.NewError(toll.CodeWrongWorkspace)
			}
			workspace = w
		}
		var err error
		if c.caller, err = c.h.people.Sessions.In(c.context, c.signed, workspace); err != nil {
			return err
		}
		c.known = true
	}
	self := r.ownUser && (c.param("userId") == me || strings.EqualFold(c.param("userId"), c.signed.Person.ID.String()))
	if c.known && !self && !c.caller.Rights.Has(r.right) && !c.mayOwnMail() {
		return c.missingRight()
	}
	if r.fresh && !self {
		if err := c.h.people.Sessions.Recent(c.signed.Session.Proof, c.signed.Session.ProvedAt.Time); err != nil {
			return err
		}
	}
	c.context = store.WithActor(c.context, store.Actor{Kind: "user", ID: c.signed.Person.ID.String(), Source: c.source()})
	return nil
}

// allowedOperator accepts a key of the operator on a route for people, until the workspace has people.
func (c *call) allowedOperator() error {
	if c.route.right == own || c.caller.MadeBy != toll.MadeLocally || c.h.people == nil {
		return toll.NewError(toll.CodePersonNeeded)
	}
	manned, err := store.AnyMember(c.context, c.h.store, c.caller.Address)
	if err == nil && manned {
		err = toll.NewError(toll.CodePersonNeeded)
	}
	return err
}
