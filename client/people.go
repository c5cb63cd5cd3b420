package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/tollhq/toll"
)

// WithWorkspace sets the workspace of every call, an id from [Client.Organizations]. Sessions require it; API keys do not.
func WithWorkspace(id string) Option { return func(c *Client) { c.workspace = id } }

// SignUpParams is a new person.
type SignUpParams struct {
	Name      string `json:"name,omitzero"`      // display name; "" for the login name
	Workspace string `json:"workspace,omitzero"` // name of the new workspace, at most 100 printable characters; may be empty
	Login     string `json:"login"`              // 3 to 64 of a-z, 0-9 and . _ + @ -
	Password  string `json:"password"`
	Link      string `json:"link,omitzero"` // from the operator or an invitation; required where registration is closed
}

// SignUp creates a person with a password, their workspace, and a session. Only this response contains the session token, which
// works in place of an API key in [New] for 12 hours. Errors: [toll.CodeBadRequest], [toll.CodeExists] for a taken login name,
// [toll.CodeForbidden] if a link is required.
func (c *Client) SignUp(ctx context.Context, p SignUpParams) (*toll.SignedIn, error) {
	return fetch[toll.SignedIn](ctx, c, call{method: http.MethodPost, path: api("/people"), body: p})
}

// SignInPerson starts a session of a person with a password, as [Client.SignUp] does. Errors: [toll.CodeNotAuthenticated],
// [toll.CodeRateLimited].
func (c *Client) SignInPerson(ctx context.Context, login, password string) (*toll.SignedIn, error) {
	in := struct {
		Login    string `json:"login"`
		Password string `json:"password"`
	}{login, password}
	return fetch[toll.SignedIn](ctx, c, call{method: http.MethodPost, path: api("/session"), body: in, idempotent: true})
}

// Session returns the session of the client.
func (c *Client) Session(ctx context.Context) (*toll.SignedIn, error) {
	return get[toll.SignedIn](ctx, c, api("/session"))
}

// Prove verifies the password again. For ten minutes, the session can make calls that otherwise fail with [toll.CodeProofNeeded].
func (c *Client) Prove(ctx context.Context, password string) (*toll.Session, error) {
	in := struct {
		Password string `json:"password"`
	}{password}
	return fetch[toll.Session](ctx, c, call{method: http.MethodPost, path: api("/session/proof"), body: in, idempotent: true})
}

// SignOut ends the session of the client.
func (c *Client) SignOut(ctx context.Context) error {
	_, err := remove[struct{}](ctx, c, api("/session"))
	return err
}

// Organizations lists the workspaces of the person, or of the API key.
func (c *Client) Organizations(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Organization, error] {
	return list[toll.Organization](ctx, c, api("/organizations"), "organizations", opts)
}

// Workspace returns the workspace of the call, which must have this address.
func (c *Client) Workspace(ctx context.Context, workspace toll.Address) (*toll.WorkspaceRecord, error) {
	return fetch[toll.WorkspaceRecord](ctx, c, call{path: api("/workspaces/%s", workspace.Lower())})
}

// RenameWorkspace renames the workspace of the call; "" removes its name. It requires the session of a person.
func (c *Client) RenameWorkspace(ctx context.Context, workspace toll.Address, name string) (*toll.Organization, error) {
	in := struct {
		Name string `json:"name"`
	}{name}
	return fetch[toll.Organization](ctx, c, call{method: http.MethodPatch, path: api("/workspaces/%s", workspace.Lower()), body: in})
}

// DeleteWorkspace deletes the workspace of the call with its members, invitations, API keys, access tokens, consents and
// webhooks. Its records remain. Errors: [toll.CodeWorkspaceOwes] while it owes credits or has pending payments,
// [toll.CodePersonNeeded], [toll.CodeProofNeeded], [toll.CodePersonNotFound] for another workspace.
func (c *Client) DeleteWorkspace(ctx context.Context, workspace toll.Address) (*toll.WorkspaceDeleted, error) {
	return remove[toll.WorkspaceDeleted](ctx, c, api("/workspaces/%s", workspace.String()))
}

// Members lists the members of the workspace, newest membership first.
func (c *Client) Members(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Member, error] {
	return list[toll.Member](ctx, c, api("/members"), "members", opts)
}

// SetRole changes the role of a member. Errors: [toll.CodePersonNotFound], [toll.CodeLastOwner], [toll.CodeForbidden] for a
// role above the caller's, [toll.CodeProofNeeded].
func (c *Client) SetRole(ctx context.Context, user toll.UUID, role toll.Role) (*toll.Member, error) {
	in := struct {
		Role toll.Role `json:"role"`
	}{role}
	return fetch[toll.Member](ctx, c, call{method: http.MethodPatch, path: api("/members/%s", user.String()), body: in, idempotent: true})
}

// SetSpendLimit limits how much a developer may spend for the workspace in a calendar month (UTC), in cents; dollars and euros
// count alike. nil removes the limit. Errors: as [Client.SetRole], and [toll.CodeBadRequest] for a member with another role.
func (c *Client) SetSpendLimit(ctx context.Context, user toll.UUID, limit *toll.Cents) (*toll.Member, error) {
	in := struct {
		SpendLimitCents *toll.Cents `json:"spendLimitCents"`
	}{limit}
	return fetch[toll.Member](ctx, c, call{method: http.MethodPatch, path: api("/members/%s", user.String()), body: in, idempotent: true})
}

// RemoveMember ends a membership and revokes the records that depend on it; with keep, they move to the caller's membership
// instead. Errors: as [Client.SetRole].
func (c *Client) RemoveMember(ctx context.Context, user toll.UUID, keep bool) (*toll.Removed, error) {
	cl := call{method: http.MethodDelete, path: api("/members/%s", user.String()), idempotent: true, refused: true}
	if keep {
		cl.query = url.Values{"keep": {"true"}}
	}
	return fetch[toll.Removed](ctx, c, cl)
}

// Leave ends the caller's own membership and revokes the records that depend on it. Errors: [toll.CodeLastOwner].
func (c *Client) Leave(ctx context.Context) (*toll.Removed, error) {
	return remove[toll.Removed](ctx, c, api("/members/me"))
}

// Invite creates a link that lets one person join the workspace within seven days. note names the recipient. Errors:
// [toll.CodeForbidden] for a role above the caller's, [toll.CodeProofNeeded].
func (c *Client) Invite(ctx context.Context, role toll.Role, note string) (*toll.Invitation, error) {
	in := struct {
		Role toll.Role `json:"role"`
		Note string    `json:"note,omitzero"`
	}{role, note}
	return create[toll.Invitation](ctx, c, api("/invitations"), in)
}

// Invitations lists the open invitations, without their links.
func (c *Client) Invitations(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Invitation, error] {
	return list[toll.Invitation](ctx, c, api("/invitations"), "invitations", opts)
}

// RevokeInvitation revokes an open invitation. Errors: [toll.CodePersonNotFound].
func (c *Client) RevokeInvitation(ctx context.Context, id string) error {
	_, err := remove[struct{}](ctx, c, api("/invitations/%s", id))
	return err
}

// AcceptInvitation joins a workspace by an invitation link. Errors: [toll.CodePersonNotFound], [toll.CodeExists].
func (c *Client) AcceptInvitation(ctx context.Context, link string) (*toll.Organization, error) {
	in := struct {
		Link string `json:"link"`
	}{link}
	return fetch[toll.Organization](ctx, c, call{method: http.MethodPost, path: api("/invitations/accept"), body: in})
}

// Sessions lists the signed-in browsers and terminals of the person, newest first.
func (c *Client) Sessions(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Session, error] {
	return list[toll.Session](ctx, c, api("/sessions"), "sessions", opts)
}

// EndSession ends a session of the person. Errors: [toll.CodePersonNotFound].
func (c *Client) EndSession(ctx context.Context, id string) error {
	_, err := remove[struct{}](ctx, c, api("/sessions/%s", id))
	return err
}

// MemberSessions lists the sessions of a managed member. Errors: [toll.CodePersonNotFound], [toll.CodeForbidden].
func (c *Client) MemberSessions(ctx context.Context, user toll.UUID, opts ...ListOption) iter.Seq2[*toll.Session, error] {
	return list[toll.Session](ctx, c, api("/members/%s/sessions", user.String()), "sessions", opts)
}

// EndMemberSessions ends all sessions of a managed member and returns how many it ended. Errors: as [Client.MemberSessions], and
// [toll.CodeProofNeeded].
func (c *Client) EndMemberSessions(ctx context.Context, user toll.UUID) (int64, error) {
	out, err := fetch[struct {
		Ended int64 `json:"ended"`
	}](ctx, c, call{method: http.MethodDelete, path: api("/members/%s/sessions", user.String()), idempotent: true})
	if err != nil {
		return 0, err
	}
	return out.Ended, nil
}

// Credentials lists the sign-in methods of the person, newest first.
func (c *Client) Credentials(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Credential, error] {
	return list[toll.Credential](ctx, c, api("/credentials"), "credentials", opts)
}

// RemoveCredential removes a credential of the person and ends their other sessions. Errors: [toll.CodePersonNotFound],
// [toll.CodeForbidden] for the last credential, [toll.CodeProofNeeded].
func (c *Client) RemoveCredential(ctx context.Context, id toll.UUID) error {
	_, err := remove[struct{}](ctx, c, api("/credentials/%s", id.String()))
	return err
}

// RenewRecoveryCodes replaces the recovery codes with ten new codes and returns them. Errors: [toll.CodeProofNeeded].
func (c *Client) RenewRecoveryCodes(ctx context.Context) ([]string, error) {
	out, err := fetch[struct {
		Codes []string `json:"codes"`
	}](ctx, c, call{method: http.MethodPost, path: api("/credentials/recovery-codes")})
	if err != nil {
		return nil, err
	}
	return out.Codes, nil
}

// OfAct filters by action, such as "member.removed".
func OfAct(act string) ListOption { return Filter("act", act) }

// AuditLog lists the actions in the workspace, newest first. [OfAct], [Since], and [Until] filter it.
func (c *Client) AuditLog(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Act, error] {
	return list[toll.Act](ctx, c, api("/audit-log"), "acts", opts)
}
