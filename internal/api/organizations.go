package api

import (
	"errors"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

type workspaces struct {
	store    *store.Store
	auth     *auth.Auth
	people   *people.People
	checkout *checkout.Checkout
	clock    clock
}

func (s workspaces) routes() []route {
	return []route{{
		op: "readWorkspace", method: "GET", path: Base + "/workspaces/{workspace}", auth: keyed, right: toll.RightRead, tag: "People",
		summary: "Read the name, address, and creation time of the workspace",
		action:  reads(s.readWorkspace), codes: []toll.Code{toll.CodePersonNotFound},
	}, {
		op: "deleteWorkspace", method: "DELETE", path: Base + "/workspaces/{workspace}", auth: keyed, right: toll.RightExport, session: true, fresh: true, tag: "People",
		summary: "Delete the workspace: this ends its memberships, invitations, API keys, access tokens, consents, and webhooks, and unlists its plans and agents",
		action:  reads(s.deleteWorkspace), codes: []toll.Code{toll.CodePersonNotFound, toll.CodeWorkspaceOwes},
	}, {
		op: "renameWorkspace", method: "PATCH", path: Base + "/workspaces/{workspace}", auth: person, right: toll.RightMembers, tag: "People",
		summary: "Rename the workspace. The name is only for display",
		action:  takes(s.renameWorkspace), codes: []toll.Code{toll.CodePersonNotFound},
	}, {
		op: "listOrganizations", method: "GET", path: Base + "/organizations", auth: keyed, right: toll.RightRead, anywhere: true, tag: "API keys",
		summary: "List your workspaces; an API key has only one",
		action:  lists("OrganizationList", list.Organizations, s.listOrganizations), query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodeBadPage},
	}, {
		op: "listMyMemberships", method: "GET", path: Base + "/organizations/my-memberships", auth: keyed, right: toll.RightRead, anywhere: true, tag: "API keys",
		summary: "List your workspaces in an older format, for existing clients",
		action:  reads(s.listMyMemberships),
	}}
}

func (s workspaces) readWorkspace(c *call) (*toll.WorkspaceRecord, error) {
	if err := c.namesWorkspace(); err != nil {
		return nil, err
	}
	p, err := store.PrincipalByAddress(c.context, s.store, c.caller.Address)
	return &toll.WorkspaceRecord{ID: p.Address.Lower(), Name: p.Shown(), Address: p.Address, CreatedAt: toll.At(p.CreatedAt)}, err
}

// deleteWorkspace names the workspace twice, in the path and by the call, so that no other one is deleted by mistake.
func (s workspaces) deleteWorkspace(c *call) (*toll.WorkspaceDeleted, error) {
	if err := c.namesWorkspace(); err != nil {
		return nil, err
	}
	if c.caller.UserID.IsZero() || !c.caller.KeyID.IsZero() {
		return nil, toll.NewError(toll.CodePersonNeeded)
	}
	began := s.clock()
	if err := s.checkout.Reports.Owes(c.context, c.caller.Address); err != nil {
		return nil, err
	}
	out, err := s.people.Members.Delete(c.context, c.caller, began)
	return &out, err
}

// namesWorkspace refuses a path with another workspace than that of the call.
func (c *call) namesWorkspace() error {
	if strings.EqualFold(c.param("workspace"), c.caller.Address.Lower()) {
		return nil
	}
	return toll.Errorf(toll.CodePersonNotFound, "The workspace in the path is not the workspace of the call.").
		WithHint("Send the same id in the path and in X-Current-Org-Id.")
}

type WorkspaceInput struct {
	Name string `json:"name" doc:"At most 100 printable characters. Empty removes the name."`
}

func (*WorkspaceInput) required() []string { return []string{"name"} }

func (s workspaces) renameWorkspace(c *call, in *WorkspaceInput) (*toll.Organization, error) {
	if err := c.namesWorkspace(); err != nil {
		return nil, err
	}
	if err := s.people.Members.Rename(c.context, c.caller, in.Name); err != nil {
		return nil, err
	}
	return s.organization(c)
}

func (s workspaces) listOrganizations(c *call, page store.Page, _ url.Values) (none store.List[toll.Organization], err error) {
	all, err := s.organizations(c)
	if err != nil {
		return none, err
	}
	return shortList(page, all)
}

// MyMembership is a workspace with the role of the caller, for clients that were written for this interface before.
type MyMembership struct {
	OrgID   string `json:"orgId"`
	OrgName string `json:"orgName"`
	Role    string `json:"role"`
	OrgType string `json:"orgType" doc:"Always workspace."`
	IsAdmin bool   `json:"isAdmin" doc:"True for owners and admins."`
}

func (s workspaces) listMyMemberships(c *call) ([]MyMembership, error) {
	all, err := s.organizations(c)
	out := make([]MyMembership, len(all))
	for i, o := range all {
		out[i] = MyMembership{
			OrgID: o.ID, OrgName: o.Name, Role: o.Role, OrgType: "workspace", IsAdmin: o.Role == string(toll.RoleOwner) || o.Role == string(toll.RoleAdmin),
		}
	}
	return out, err
}

// organizations are the workspaces of a person, or the one of an API key with the role of the person under whose membership it stands.
func (s workspaces) organizations(c *call) ([]toll.Organization, error) {
	if c.signed != nil {
		return s.people.Organizations(c.context, c.signed.Person.ID)
	}
	o, err := s.organization(c)
	if err != nil {
		return nil, err
	}
	return []toll.Organization{*o}, nil
}

func (s workspaces) organization(c *call) (*toll.Organization, error) {
	p, err := store.PrincipalByAddress(c.context, s.store, c.caller.Address)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	role := toll.RoleOwner
	if !c.caller.UserID.IsZero() {
		if role, err = s.auth.RoleOf(c.context, s.store, c.caller.Address, c.caller.UserID); err != nil {
			return nil, err
		}
	}
	return &toll.Organization{ID: c.caller.Address.Lower(), Name: p.Shown(), Role: string(role)}, nil
}
