package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// TestPeople_Paths: each call of people asks its own path, in the workspace of the client.
func TestPeople_Paths(t *testing.T) {
	user := toll.UUID{1}
	ctx := context.Background()
	for want, call := range map[string]func(c *client.Client) error{
		"POST /api/v1/people": func(c *client.Client) error {
			_, err := c.SignUp(ctx, client.SignUpParams{Login: "one", Password: "p"})
			return err
		},
		"POST /api/v1/session":                                            func(c *client.Client) error { _, err := c.SignInPerson(ctx, "one", "p"); return err },
		"GET /api/v1/session":                                             func(c *client.Client) error { _, err := c.Session(ctx); return err },
		"POST /api/v1/session/proof":                                      func(c *client.Client) error { _, err := c.Prove(ctx, "p"); return err },
		"DELETE /api/v1/session":                                          func(c *client.Client) error { return c.SignOut(ctx) },
		"GET /api/v1/organizations?pageSize=100":                          func(c *client.Client) error { return all(c.Organizations(ctx)) },
		"GET /api/v1/members?pageSize=100":                                func(c *client.Client) error { return all(c.Members(ctx)) },
		"PATCH /api/v1/members/" + user.String():                          func(c *client.Client) error { _, err := c.SetRole(ctx, user, toll.RoleAdmin); return err },
		"DELETE /api/v1/members/" + user.String():                         func(c *client.Client) error { _, err := c.RemoveMember(ctx, user, false); return err },
		"DELETE /api/v1/members/" + user.String() + "?keep=true":          func(c *client.Client) error { _, err := c.RemoveMember(ctx, user, true); return err },
		"DELETE /api/v1/members/me":                                       func(c *client.Client) error { _, err := c.Leave(ctx); return err },
		"POST /api/v1/invitations":                                        func(c *client.Client) error { _, err := c.Invite(ctx, toll.RoleViewer, "x"); return err },
		"GET /api/v1/invitations?pageSize=100":                            func(c *client.Client) error { return all(c.Invitations(ctx)) },
		"DELETE /api/v1/invitations/0x01":                                 func(c *client.Client) error { return c.RevokeInvitation(ctx, "0x01") },
		"POST /api/v1/invitations/accept":                                 func(c *client.Client) error { _, err := c.AcceptInvitation(ctx, "x"); return err },
		"GET /api/v1/audit-log?act=member.removed&pageSize=100":           func(c *client.Client) error { return all(c.AuditLog(ctx, client.OfAct("member.removed"))) },
		"POST /api/v1/api-keys/" + toll.Hash{1}.String() + "/rotate":      func(c *client.Client) error { _, err := c.RotateKey(ctx, toll.Hash{1}, time.Hour); return err },
		"GET /api/v1/sessions?pageSize=100":                               func(c *client.Client) error { return all(c.Sessions(ctx)) },
		"DELETE /api/v1/sessions/1":                                       func(c *client.Client) error { return c.EndSession(ctx, "1") },
		"GET /api/v1/members/" + user.String() + "/sessions?pageSize=100": func(c *client.Client) error { return all(c.MemberSessions(ctx, user)) },
		"DELETE /api/v1/members/" + user.String() + "/sessions":           func(c *client.Client) error { _, err := c.EndMemberSessions(ctx, user); return err },
		"GET /api/v1/credentials?pageSize=100":                            func(c *client.Client) error { return all(c.Credentials(ctx)) },
		"DELETE /api/v1/credentials/" + user.String():                     func(c *client.Client) error { return c.RemoveCredential(ctx, user) },
		"POST /api/v1/credentials/recovery-codes":                         func(c *client.Client) error { _, err := c.RenewRecoveryCodes(ctx); return err },
	} {
		s := serve(t, always(200, `{"members":[],"invitations":[],"organizations":[],"sessions":[],"acts":[],"credentials":[],"nextCursor":null}`))
		must.Check(t, call(s.client(client.WithWorkspace("0xab"))), want)
		got := s.sent[0]
		if got.method+" "+got.target != want || got.header.Get("X-Current-Org-Id") != "0xab" {
			t.Errorf("%s %s %v, not %s", got.method, got.target, got.header, want)
		}
	}
}

func TestSetSpendLimit(t *testing.T) {
	user := toll.UUID{1}
	for want, limit := range map[string]*toll.Cents{`{"spendLimitCents":"5000"}`: new(toll.Cents(5000)), `{"spendLimitCents":null}`: nil} {
		s := serve(t, always(200, `{"userId":"`+user.String()+`","role":"developer","spendLimitCents":"5000","spentCents":"12"}`))
		m, err := s.client().SetSpendLimit(t.Context(), user, limit)
		if err != nil || *m.SpendLimitCents != 5000 || *m.SpentCents != 12 {
			t.Errorf("%+v %v", m, err)
		}
		if got := s.sent[0]; got.method+" "+got.target != "PATCH /api/v1/members/"+user.String() || strings.TrimSpace(string(got.body)) != want {
			t.Errorf("%s %s %s, not %s", got.method, got.target, got.body, want)
		}
	}
}

func all[T any](records func(yield func(*T, error) bool)) error {
	for _, err := range records {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDeleteWorkspace(t *testing.T) {
	s := serve(t, always(200, `{"success":true,"id":"0x01","members":2,"invitations":1,"ended":{"apiKeys":3,"accessTokens":4,"grants":5}}`))
	at := toll.MustAddress("0x0000000000000000000000000000000000000001")
	out, err := s.client(client.WithWorkspace(at.Lower())).DeleteWorkspace(t.Context(), at)
	want := toll.WorkspaceDeleted{
		Success: true, ID: "0x01", Members: 2, Invitations: 1, Ended: toll.Ended{APIKeys: 3, AccessTokens: 4, Grants: 5},
	}
	if err != nil || *out != want {
		t.Errorf("%+v %v", out, err)
	}
	if got := s.sent[0]; got.method+" "+got.target != "DELETE /api/v1/workspaces/"+at.Lower() || got.header.Get("X-Current-Org-Id") != at.Lower() {
		t.Errorf("%s %s %v", got.method, got.target, got.header)
	}
}
