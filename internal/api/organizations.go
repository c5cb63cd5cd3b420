package api

import (
	"errors"
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

func organizationRoutes() []route {
	return []route{{
		op: "listOrganizations", method: "GET", path: Base + "/organizations", auth: keyed, right: toll.RightRead, tag: "API keys",
		summary: "The workspace of the caller, as the only organization: an API key belongs to one",
		action:  lists((*handler).listOrganizations), query: sortedBy(store.SortCreated), codes: []toll.Code{toll.CodeBadPage},
	}}
}

// OrganizationList has the one workspace of the caller.
type OrganizationList struct {
	Organizations []Organization `json:"organizations"`
	Paging
}

// Organization is a workspace.
type Organization struct {
	ID   string `json:"id"` // the address in lower case, which X-Current-Org-Id takes
	Name string `json:"name"`
	Role string `json:"role"`
}

func (h *handler) listOrganizations(c *call, page store.Page, _ url.Values) (*OrganizationList, error) {
	if page.Cursor != "" { // a list of one gives none
		return nil, toll.NewError(toll.CodeBadPage).WithParam("parameter", "cursor")
	}
	p, err := store.PrincipalByAddress(c.r.Context(), h.Store, c.caller.Address)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	list := store.List[Organization]{
		Items: []Organization{{ID: c.caller.Address.Lower(), Name: p.Name, Role: "owner"}}, Total: 1,
	}
	if page.Number > 1 {
		list.Items = []Organization{}
	}
	return &OrganizationList{Organizations: list.Items, Paging: pagingOf(page, list)}, nil
}
