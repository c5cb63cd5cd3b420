package api

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/traces"
)

// RouteInfo is a row of the route table, for tests.
type RouteInfo struct {
	Operation, Method, Path, Auth string
	Right                         toll.Right // "public": none
	OwnKey                        bool       // a key may do it to itself
	Session, Fresh                bool       // takes the session of a person; after a fresh proof
	OwnMail                       bool       // a member may do it to their own mails
	Paged                         bool       // a list
	Codes                         []toll.Code
	Filters                       []string // parameters of a list beside those of its pages
	Sorts                         string   // what a list sorts by, in words
	Export                        toll.Right
}

// Routes returns the route table.
func Routes() []RouteInfo {
	var out []RouteInfo
	for _, r := range table(Deps{Facilitator: &pay.Facilitator{}}.withDefaults(), nil) {
		info := RouteInfo{Operation: r.op, Method: r.method, Path: r.path, Auth: string(r.auth), Right: r.right, OwnKey: r.ownKey, Session: r.session, Fresh: r.fresh, OwnMail: r.ownMail, Codes: r.codes, Export: r.export}
		for _, q := range r.query {
			switch q.name {
			case "pageSize":
				info.Paged = true
			case "sortBy":
				info.Sorts = q.description
			case "page", "offset", "limit", "sortOrder", "cursor", exportQuery.name:
			default:
				info.Filters = append(info.Filters, q.name)
			}
		}
		out = append(out, info)
	}
	return out
}

// RememberKeys adds a call of each of so many keys, and one of a key that calls all the time, and returns how many keys are known.
func RememberKeys(keys int, busy toll.Hash) int {
	var r recentCalls
	for i := range keys {
		r.of(toll.Hash{1, byte(i), byte(i >> 8)}, true).add(toll.Address{}, recentCall{}, "x")
		r.of(busy, true).add(toll.Address{}, recentCall{}, "x")
	}
	if len(r.of(busy, true).calls) != keptCalls {
		return -1
	}
	all := map[toll.Hash]bool{}
	for _, half := range []map[toll.Hash]*callRing{r.young, r.old} {
		for k := range half {
			all[k] = true
		}
	}
	return len(all)
}

// RememberTimes remembers n calls of a key.
func RememberTimes(n int) {
	h := &handler{clock: time.Now, recent: &recentCalls{}}
	c := &call{h: h, known: true, route: &route{}, correlation: traces.Context{ID: toll.NewUUID()}}
	for range n {
		c.began, c.answered = time.Now(), 200
		c.remember()
	}
}
