package api

import (
	"slices"

	"github.com/tollhq/toll"
)

// RouteInfo is a row of the route table, for tests.
type RouteInfo struct {
	Operation, Method, Path, Auth string
	Paged                         bool // a list
	Codes                         []toll.Code
}

// Routes returns the route table.
func Routes() []RouteInfo {
	var out []RouteInfo
	for _, r := range table() {
		paged := slices.ContainsFunc(r.query, func(q query) bool { return q.name == "pageSize" })
		out = append(out, RouteInfo{r.op, r.method, r.path, string(r.auth), paged, r.codes})
	}
	return out
}
