package api

// RouteInfo is a row of the route table, for tests.
type RouteInfo struct{ Operation, Method, Path, Auth string }

// Routes returns the route table.
func Routes() []RouteInfo {
	var out []RouteInfo
	for _, r := range table() {
		out = append(out, RouteInfo{r.op, r.method, r.path, string(r.auth)})
	}
	return out
}
