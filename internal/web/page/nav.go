package page

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
)

// Groups of the side navigation, in their order.
const (
	GroupHome    = "Home" // drawn without its name
	GroupSell    = "Sell"
	GroupBuy     = "Buy"
	GroupDevelop = "Develop"
	GroupManage  = "Workspace"
	GroupOperate = "Operator"
)

var groups = []string{GroupHome, GroupSell, GroupBuy, GroupDevelop, GroupManage, GroupOperate}

// Area is a page of a workspace: one row of the table. Whoever opens it is a member of the workspace, with the
// right that the row names; a form that reaches Post was shown to this member on this page, in this workspace.
type Area struct {
	Path     string // below /w/{workspace}, with {name} for parts that vary; "" is the overview
	Title    string
	Template string // name of a file NAME.html, which defines "body"; "": sheet, which draws a [Record]

	Group string // of the navigation; "" for a page without an entry
	Nav   string // text of the entry
	Icon  string
	Key   string // goes there after g; "" for none
	Under string // Path of the page whose entry is marked on this one; "" for its own

	Bought string // text of an entry in GroupBuy for the same list with role=buyer, once the workspace bought something; may be empty

	Right toll.Right // to open the page
	Act   toll.Right // to send its form; "" for a page without forms, or whose acts check their rights
	Get   func(*Context) (View, error)
	Post  func(*Context) (View, error) // nil: the page has no form

	OwnTickets bool // Post checks the tickets of its forms itself
	Persons    bool // not for the session of an API key
	Operators  bool // for persons who run the service
	Sandbox    bool // not on live
}

// Route is the path of a page as the router takes it.
func (p *Area) Route() string { return "/w/{workspace}" + p.Path }

// served returns the page for people who may open it.
func (p *Area) served() Route {
	get := func(c *Context) (View, error) {
		c.Area = p
		if c.Person == nil {
			return c.SignIn.Ask(c, http.StatusOK, "", c.Here(), "")
		}
		if err := mayOpen(c); err != nil {
			return nil, err
		}
		return p.Get(c)
	}
	if p.Post == nil {
		return Route{Path: p.Route(), Get: get}
	}
	return Route{Path: p.Route(), Get: get, Post: func(c *Context) (View, error) {
		c.Area, c.At = p, c.R.URL.Path
		if c.Person == nil {
			return c.SignIn.Ask(c, http.StatusForbidden, "You are no longer signed in, so nothing was changed.", c.Here(), "")
		}
		err := mayOpen(c)
		if err == nil && p.Act != "" {
			err = c.HasRight(p.Act)
		}
		if err != nil {
			return nil, err
		}
		if !p.OwnTickets && !c.Holds(c.Form.Get("ticket"), c.At) {
			c.Fault, c.Status = Stale, http.StatusForbidden
			return p.Get(c)
		}
		defer c.sides.Drop(c.Person.Address)
		return p.Post(c)
	}}
}

// mayOpen returns nil for a person who may open the page, else a refusal.
func mayOpen(c *Context) error {
	if err := c.HasRight(c.Area.Right); err != nil {
		return err
	}
	if c.Area.Persons {
		if err := NeedPerson(c); err != nil {
			return err
		}
	}
	if c.Area.Operators && !c.Person.User.Operator {
		return c.RefuseNext(http.StatusForbidden, "This page is for the operators of the service.", "")
	}
	return nil
}

// Route is a page at a path of its own.
type Route struct {
	Path      string
	Get, Post func(*Context) (View, error) // nil: the page does not take the method
	Handler   http.Handler                 // of GET, in place of Get: it has no [Context]
	Raw       func(*Context)               // of GET, in place of Get: it writes the answer, without a person
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

func frameAround(c *Context) *frame {
	p := c.Person
	f := &frame{
		Base: c.Base(), Name: cmp.Or(plain.Name(p.Workspace.Name), Short(p.Address.String())), Role: "API key", Test: c.Environment != toll.Live,
	}
	if p.User != nil {
		f.Role = string(p.Workspace.Role)
	}
	sides, order := sidesOf(c), slices.Clone(groups)
	if sides.onlyBuys() {
		order[1], order[2] = GroupBuy, GroupSell
	}
	for _, name := range order {
		g := navGroup{Name: name, Items: insteadOf(c, sides, name)}
		if items, here := itemsOf(c, sides, name); here || g.Items == nil {
			g.Items = items
		}
		if name == GroupHome {
			g.Name = ""
		}
		if len(g.Items) > 0 {
			f.Groups = append(f.Groups, g)
		}
	}
	return f
}

// itemsOf returns the entries of a group, and whether one of them is marked.
func itemsOf(c *Context, sides Sides, group string) (items []navItem, here bool) {
	add := func(a *Area, item navItem, bought bool) {
		item.Icon, item.Here = a.Icon, a.Path == cmp.Or(c.Area.Under, c.Area.Path) && bought == (c.Bought && a.Bought != "" && sides.Buys)
		items, here = append(items, item), here || item.Here
	}
	for i := range c.Areas {
		a := &c.Areas[i]
		switch to := c.Base() + a.Path; {
		case !MayGo(c, *a):
		case a.Group == group:
			add(a, navItem{Text: a.Nav, Key: a.Key, To: to}, false)
		case a.Bought != "" && group == GroupBuy && sides.Buys:
			item := navItem{Text: a.Bought, To: to + "?role=buyer"}
			if sides.onlyBuys() {
				item.Key = a.Key
			}
			add(a, item, true)
		}
	}
	return items, here
}

// Sides says whether a workspace has records of a seller and of a buyer.
type Sides struct{ Sells, Buys bool }

func (s Sides) onlyBuys() bool { return s.Buys && !s.Sells }

// insteadOf returns the entry that replaces a group while the workspace has records only on the other side; nil for any other group.
func insteadOf(c *Context, s Sides, group string) []navItem {
	switch {
	case group == GroupSell && s.onlyBuys():
		for _, a := range c.Areas {
			if a.Path == "/start" && MayGo(c, a) {
				return []navItem{{Text: a.Title, Icon: "store", To: c.Base() + a.Path}}
			}
		}
	case group == GroupBuy && s.Sells && !s.Buys:
		return []navItem{{Text: "Find an agent", Icon: "search", To: PathExplore}}
	}
	return nil
}

const (
	// sidesLife bounds the time in which pages miss the first record on a side. Forms of this process show it at once. With records on both
	// sides, the answer no longer changes and is kept for bothLife.
	sidesLife, bothLife = 10 * time.Second, time.Hour
	// mostSides bounds the workspaces that are kept.
	mostSides = 10_000
)

// sidesOf returns the sides of the workspace, from memory if possible. After an error, it returns both.
func sidesOf(c *Context) Sides {
	at, now := c.Person.Address, c.Machine()
	if known, ok := c.sides.Get(at, now); ok {
		return known
	}
	s, err := c.SidesOf(c.Ctx(), at)
	if err != nil {
		c.Log.WarnContext(c.Ctx(), "cannot read whether a workspace sells and buys", slog.Any("err", err))
		return Sides{true, true}
	}
	life := sidesLife
	if s.Sells && s.Buys {
		life = bothLife
	}
	c.sides.Put(at, s, now.Add(life), now)
	return s
}

// ShowsBought reports whether a list shows the purchases of the workspace: the query says role=buyer, or the workspace only buys.
func ShowsBought(c *Context) bool {
	role := c.R.URL.Query().Get("role")
	c.Bought = role == "buyer" || role == "" && sidesOf(c).onlyBuys()
	return c.Bought
}

// MayGo reports whether the person may open a page.
func MayGo(c *Context, a Area) bool {
	user := c.Person.User
	return c.Person.Rights.Has(a.Right) && (user != nil || !a.Persons) && (!a.Operators || user.Operator)
}

// nextPaths are the pages to which a sign-in or sign-out may lead.
var nextPaths = []string{
	PathSignIn, PathAuthorize, PathDevice, PathCLI, PathAccess, PathEnroll, PathSignUp, PathJoin, PathRecover, PathConfirm, PathSecurity, PathMail, PathExplore,
	PathReceipts,
}

// nextSyntax are the pages of a workspace, and those of plans and agents, to which it may lead.
var nextSyntax = regexp.MustCompile(`^/(w/0x[0-9a-fA-F]{4,40}(/[A-Za-z0-9-]+)*|[ap]/[0-9]{1,78})$`)

// Paths of the pages.
const (
	PathSignIn    = "/sign-in"
	PathSignOut   = "/sign-out"
	PathAuthorize = "/oauth/authorize"
	PathDevice    = "/device"
	PathCLI       = "/auth/cli"
	PathAccess    = "/account/access"
	PathSignUp    = "/sign-up"
	PathJoin      = "/join"
	PathRecover   = "/recover"
	PathConfirm   = "/confirm"
	PathSecurity  = "/account/security"
	PathMembers   = "/w/{workspace}/members"
)

// LocalPath returns the path and query of a page of ours, "" for everything else.
func LocalPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || u.RawPath != "" || !slices.Contains(nextPaths, u.Path) && !nextSyntax.MatchString(u.Path) {
		return ""
	}
	if u.RawQuery == "" {
		return u.Path
	}
	return u.Path + "?" + u.RawQuery
}

// Paths of the pages that everybody may open.
const (
	PathExplore  = "/explore"
	PathAgent    = "/a/{agent}"
	PathPlan     = "/p/{plan}"
	PathReceipts = "/receipts"
)

// PathMail is where a person gets a code by mail, and types it.
const PathMail = "/sign-in/mail"

// PathWallet is where a person signs in with a wallet.
const PathWallet = "/sign-in/wallet"

// PathOIDC is where a person begins to sign in with an account of a provider.
const PathOIDC = "/sign-in/oidc"

// PathEnroll is the page on which a person enrolls a card.
const PathEnroll = "/cards/enroll"
