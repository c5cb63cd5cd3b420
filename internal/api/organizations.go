package api

import (
	"errors"
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

func organizationRoutes() []route {
	return []route{{
		op: "listOrganizations", method: "GET", path: Base + "/organizations", auth: keyed, right: toll.RightRead, anywhere: true, tag: "API keys",
		summary: "The workspaces of a person; that of an API key is the only one",
		action:  lists((*handler).listOrganizations), query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodeBadPage},
	}}
}

// OrganizationList has the workspaces of a person, or the one of an API key.
type OrganizationList struct {
	Organizations []toll.Organization `json:"organizations"`
	Paging
}

func (h *handler) listOrganizations(c *call, page store.Page, _ url.Values) (*OrganizationList, error) {
	all, err := h.organizations(c)
	if err != nil {
		return nil, err
	}
	list, err := shortList(page, all)
	return &OrganizationList{Organizations: list.Items, Paging: pagingOf(page, list)}, err
}

// organizations are the workspaces of a person, or the one of an API key with the role of the person under whose membership it stands.
func (h *handler) organizations(c *call) ([]toll.Organization, error) {
	if c.signed != nil {
		return h.People.Organizations(c.r.Context(), c.signed.Person.ID)
	}
	p, err := store.PrincipalByAddress(c.r.Context(), h.Store, c.caller.Address)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	role := toll.RoleOwner
	if !c.caller.UserID.IsZero() {
		if role, err = h.Auth.RoleOf(c.r.Context(), h.Store, c.caller.Address, c.caller.UserID); err != nil {
			return nil, err
		}
	}
	return []toll.Organization{{ID: c.caller.Address.Lower(), Name: p.Name, Role: string(role)}}, nil
}
