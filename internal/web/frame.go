package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// Groups of the side navigation, in their order.
const (
	groupSell    = "Sell"
	groupBuy     = "Buy"
	groupDevelop = "Develop"
	groupManage  = "Workspace"
	groupOperate = "Operator"
)

var groups = []string{groupSell, groupBuy, groupDevelop, groupManage, groupOperate}

// areaPage is a page of a workspace: one row of the table of [areaPages]. Whoever opens it is a member of the workspace, with the
// right that the row names; a form that reaches Post was shown to this member on this page, in this workspace.
type areaPage struct {
	Path     string // below /w/{workspace}, with {name} for parts that vary; "" is the overview
	Title    string
	Template string // name of a file NAME.html, which defines "body"

	Group string // of the navigation; "" for a page without an entry
	Nav   string // text of the entry
	Icon  string
	Key   string // goes there after g; "" for none
	Under string // Path of the page whose entry is marked on this one; "" for its own

	Right toll.Right // to open the page
	Act   toll.Right // to send its form; "" for a page without forms, or whose acts check their rights
	Get   func(*visit)
	Post  func(*visit) // nil: the page has no form

	OwnTickets bool // Post checks the tickets of its forms itself
	Persons    bool // not for the session of an API key
	Operators  bool // for persons who run the service
	Sandbox    bool // not on live
}

// areaPages returns every page of a workspace. Each area adds its own, in a file of its own.
func areaPages() []areaPage {
	return slices.Concat(
		overviewPages(), agentPages(), planPages(), usagePages(), requestPages(), orderPages(), buyingPages(), moneyPages(), exportPages(),
		keyPages(), programPages(), hookPages(), memberPages(), tryPages(), workspacePages(), noticePages(), searchPages(),
		clockPages(), operatorPages(), componentPages(),
	)
}

// pathOf is the path of a page as the router takes it.
func (p *areaPage) pathOf() string { return "/w/{workspace}" + p.Path }

// Route is a page with its methods.
type Route struct {
	Method, Path string
	Handler      http.Handler
}

// WorkspaceRoutes are the routes of all pages of workspaces, and of the files that they use.
func (w *Web) WorkspaceRoutes() []Route {
	routes := []Route{
		{http.MethodGet, PathAsset, w.Asset()}, {http.MethodGet, PathHome, w.Home()}, {http.MethodPost, PathTheme, w.Theme()},
		{http.MethodGet, PathLive, w.Live()},
	}
	for i := range w.areas {
		p := &w.areas[i]
		routes = append(routes, Route{http.MethodGet, p.pathOf(), w.areaPage(p)})
		if p.Post != nil {
			routes = append(routes, Route{http.MethodPost, p.pathOf(), w.areaPage(p)})
		}
	}
	return routes
}

// areaPage serves a row of the table.
func (w *Web) areaPage(p *areaPage) http.Handler {
	return w.page(func(v *visit) {
		v.area = p
		if v.person == nil {
			askSignIn(v, http.StatusOK, "", v.here(), "")
			return
		}
		if mayOpen(v) {
			p.Get(v)
		}
	}, func(v *visit) {
		v.area, v.at = p, v.r.URL.Path
		if v.person == nil {
			askSignIn(v, http.StatusForbidden, "You are not signed in any more, so nothing was changed.", v.here(), "")
			return
		}
		if !mayOpen(v) || p.Act != "" && !v.hasRight(p.Act) {
			return
		}
		if !p.OwnTickets && !v.holds(v.form.Get("ticket"), v.at) {
			v.fault, v.status = stale, http.StatusForbidden
			p.Get(v)
			return
		}
		p.Post(v)
	})
}

// mayOpen reports whether the person may open the page; it refuses else.
func mayOpen(v *visit) bool {
	if !v.hasRight(v.area.Right) || v.area.Persons && !isPerson(v) {
		return false
	}
	if v.area.Operators && !v.person.User.Operator {
		v.refuseNext(http.StatusForbidden, "This page is for the operators of the service.", "")
		return false
	}
	return true
}

// hasRight reports whether the person has a right here; it refuses else.
func (v *visit) hasRight(right toll.Right) bool {
	if v.person.Rights.Has(right) {
		return true
	}
	who := "The API key with which you signed in lacks it."
	if v.person.User != nil {
		who = "Your role here, " + string(v.person.Workspace.Role) + ", does not have it. An owner or admin of the workspace can change that."
	}
	v.refuseNext(http.StatusForbidden, "This takes the right "+string(right)+".", who)
	return false
}

// param returns a part of the path that varies.
func (v *visit) param(name string) string {
	have := strings.FieldsFunc(v.r.URL.EscapedPath(), func(r rune) bool { return r == '/' })
	for i, part := range strings.Split(strings.Trim(v.area.pathOf(), "/"), "/") {
		if part == "{"+name+"}" && i < len(have) {
			text, err := url.PathUnescape(have[i])
			if err != nil {
				return ""
			}
			return text
		}
	}
	return ""
}

// base is the path of the workspace, without a slash at its end.
func (v *visit) base() string { return "/w/" + v.person.Address.String() }

// to is the path of a page of the workspace.
func (v *visit) to(parts ...string) string {
	out := v.base()
	for _, p := range parts {
		out += "/" + url.PathEscape(p)
	}
	return out
}

// draw shows a page of the table.
func (v *visit) draw(title string, body any) {
	v.show(cmp.Or(v.status, http.StatusOK), v.area.Template, shown{Title: title, Fault: v.fault, Body: body}, "")
}

// missing answers for a record that is not there, or not of this workspace, which is the same.
func (v *visit) missing(what string) {
	v.refuseNext(http.StatusNotFound, "There is no such "+what+" in this workspace.", "")
}

// failed answers an error on a page of the table: a record that is not there, a refusal, a fault of the service. It reports
// whether there was one.
func (v *visit) failed(what string, err error) bool {
	if err == nil {
		return false
	}
	if e := toll.AsError(err); e.HTTPStatus() == http.StatusNotFound || e.HTTPStatus() == http.StatusBadRequest && v.r.Method != http.MethodPost {
		v.missing(what)
		return true
	}
	v.fail(err)
	return true
}

// frame is what the layout of a page of a workspace shows around it.
type frame struct {
	Base   string
	Name   string
	Role   string
	Test   bool
	Groups []navGroup
}

type navGroup struct {
	Name  string
	Items []navItem
}

type navItem struct {
	Text, Icon, Key, To string
	Here                bool
}

func frameAround(v *visit) *frame {
	p := v.person
	f := &frame{
		Base: v.base(), Name: cmp.Or(plain.Name(p.Workspace.Name), short(p.Address.String())), Role: "API key", Test: v.w.Environment != toll.Live,
	}
	if p.User != nil {
		f.Role = strings.ToUpper(string(p.Workspace.Role[:1])) + string(p.Workspace.Role[1:])
	}
	here := cmp.Or(v.area.Under, v.area.Path)
	for _, name := range groups {
		g := navGroup{Name: name}
		for _, a := range v.w.areas {
			if a.Group == name && mayGo(v, a) {
				g.Items = append(g.Items, navItem{a.Nav, a.Icon, a.Key, f.Base + a.Path, a.Path == here})
			}
		}
		if len(g.Items) > 0 {
			f.Groups = append(f.Groups, g)
		}
	}
	return f
}

// Paths of the pages around workspaces.
const (
	PathHome  = "/w"
	PathTheme = "/theme"
)

// Home is GET /w: the overview of the workspace that was used last.
func (w *Web) Home() http.Handler {
	return w.page(func(v *visit) {
		switch {
		case v.person == nil:
			askSignIn(v, http.StatusOK, "", PathHome, "")
		default:
			v.redirect(http.StatusSeeOther, firstPage(v))
		}
	}, nil)
}

// themeCookie says which colours the browser wants: light, dark, or, without it, those of the system. It says nothing else.
const themeCookie = "theme"

// Theme is POST /theme: a browser chooses its colours.
func (w *Web) Theme() http.Handler {
	return w.page(nil, func(v *visit) {
		to := v.form.Get("theme")
		v.setChoice(themeCookie, to, "/", to == "light" || to == "dark")
		v.redirect(http.StatusSeeOther, cmp.Or(place(v.form.Get("next")), PathHome))
	})
}

// setChoice has the browser remember a choice for the pages below a path, or forget it.
func (v *visit) setChoice(name, value, path string, keep bool) {
	c := &http.Cookie{
		Name: name, Value: value, Path: path, MaxAge: 400 * 24 * 3600, HttpOnly: true, Secure: v.w.sessions.Cookie.Secure,
		SameSite: http.SameSiteLaxMode,
	}
	if !keep {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(v.rw, c)
}

// theme returns what the browser chose; "" for the colours of the system.
func theme(v *visit) string {
	c, err := v.r.Cookie(themeCookie)
	if err != nil || c.Value != "light" && c.Value != "dark" {
		return ""
	}
	return c.Value
}

// mostRows is how many rows a page of a list has.
const mostRows = 25

// oldest is the order of a list that begins with its oldest record.
const oldest = "oldest"

// Orders of lists: timeSorts those of every list, nameSorts those of records with names.
var (
	timeSorts = []option{{Text: "Newest first"}, {Value: oldest, Text: "Oldest first"}}
	nameSorts = append(slices.Clone(timeSorts), option{Value: string(store.SortUpdated), Text: "Last changed first"}, option{Value: string(store.SortName), Text: "By name"})
)

// listPage reads the cursor and the order of a list from the query string. The page offers the orders of [timeSorts].
func (v *visit) listPage() store.Page { return v.pageOf(timeSorts) }

// pageOf is [visit.listPage] for other orders.
func (v *visit) pageOf(sorts []option) store.Page {
	v.sort = &field{Name: "sort", Label: "Sorted", Value: v.r.URL.Query().Get("sort"), Options: sorts}
	if !hasOption(sorts, v.sort.Value) {
		v.sort.Value = ""
	}
	p := store.Page{Size: mostRows, Cursor: v.r.URL.Query().Get("cursor")}
	switch by := v.sort.Value; by {
	case "": // the newest record first
	case oldest:
		p.Ascending = true
	default:
		p.Sort, p.Ascending = store.Sort(by), by == string(store.SortName)
	}
	return p
}

// sortField is the field that chooses the order of a list, which a list of one has no use for.
func sortField(v *visit, t *table) []field {
	if v.sort == nil || t == nil || t.Pager == nil || len(t.Rows) == 0 || t.Pager.Total == 1 && v.sort.Value == "" {
		return nil
	}
	return []field{*v.sort}
}

// setPage asks the API for a page of a list.
func setPage(q url.Values, p store.Page) {
	q.Set("pageSize", strconv.Itoa(p.Size))
	if p.Cursor != "" {
		q.Set("cursor", p.Cursor)
	}
	if p.Ascending {
		q.Set("sortOrder", "asc")
	}
}
