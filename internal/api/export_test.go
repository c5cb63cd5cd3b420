package api

import (
	"slices"

	"github.com/tollhq/toll"
)

// RouteInfo is a row of the route table, for tests.
type RouteInfo struct {
	Operation, Method, Path, Auth string
	Right                         toll.Right // "public": none
	OwnKey                        bool       // a key may do it to itself
	Paged                         bool       // a list
	Codes                         []toll.Code
}

// Routes returns the route table.
func Routes() []RouteInfo {
	var out []RouteInfo
	for _, r := range table() {
		paged := slices.ContainsFunc(r.query, func(q query) bool { return q.name == "pageSize" })
		out = append(out, RouteInfo{r.op, r.method, r.path, string(r.auth), r.right, r.ownKey, paged, r.codes})
	}
	return out
}
