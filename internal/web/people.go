package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

// First words of what the tickets of these forms say.
const (
	formSignUp   = "sign-up"
	formJoin     = "join"
	formConfirm  = "confirm"
	formSecurity = "security"
	formMembers  = "members"
)

// stale is said of a form that was not shown in this session.
const stale = "The form is not one of this session. Send it once more."

// signUp is the form with which a person signs up.
type signUp struct {
	Next, Link, Ticket string
	Name, Login        string
	Joins              string // workspace of an invitation
	Role               toll.Role
	SignInNext         string
	Operator           bool
	NoPasswords        bool
	Mail               bool            // codes are sent by mail
	OIDC               string          // name of the provider; "" for none
	Passkey            people.Ceremony // zero where browsers take none
	Elsewhere          string          // address at which they do; "" for none
}

// SignUp is GET and POST /sign-up. Opening the page uses nothing up.
func (w *Web) SignUp() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		q := v.R.URL.Query()
		return askSignUp(v, http.StatusOK, q.Get("link"), page.LocalPath(q.Get("next")), "")
	}, func(v *page.Context) (page.View, error) {
		link, next := v.Form.Get("link"), page.LocalPath(v.Form.Get("next"))
		again := func(status int, fault string) (page.View, error) { return askSignUp(v, status, link, next, fault) }
		if state := v.Form.Get("proved"); state != "" {
			return signUpCredential(v, state, next)
		}
		if !w.onHost(v.R) {
			return again(http.StatusForbidden, "Sign up at "+w.PublicURL+".")
		}
		in := people.SignUp{
			Name: v.Form.Get("name"), Login: v.Form.Get("login"), Secret: v.Form.Get("password"), Link: link,
		}
		var u toll.Person
		var at toll.Address
		var err error
		proof := people.Password
		if answer := v.Form.Get("answer"); answer != "" {
			proof = people.Passkey
			u, at, err = w.People.Passkeys.SignUp(v.Ctx(), w.Address(v.R), in, v.Form.Get("state"), answer)
		} else {
			u, at, err = w.People.Passwords.SignUp(v.Ctx(), w.Address(v.R), in)
		}
		if err == nil {
			err = admitUser(v, u, proof, at)
		}
		if err != nil {
			return v.Rejected(err, again)
		}
		return v.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
	})
}

// onHost reports whether a request came to the public host, or to another name of this machine that stands for it.
func (w *Web) onHost(r *http.Request) bool {
	u, err := url.Parse(w.PublicURL)
	if err != nil {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	return strings.EqualFold(host, u.Hostname()) || toll.IsLoopback(host) && toll.IsLoopback(u.Hostname())
}

func askSignUp(v *page.Context, status int, link, next, fault string) (page.View, error) {
	if err := deps(v).People.SignUps.MaySignUp(v.Ctx(), link); err != nil {
		e := toll.AsError(err)
		if e.HTTPStatus() >= http.StatusInternalServerError {
			return nil, err
		}
		return nil, v.RefuseNext(e.HTTPStatus(), e.Text(), "")
	}
	f := signUp{Next: next, Link: link, NoPasswords: deps(v).People.Credentials.NoPasswords, Mail: deps(v).People.Notices.HasMail(), Name: v.Form.Get("name"), Login: v.Form.Get("login")}
	if link != "" {
		kind, to, err := deps(v).People.Links.Read(v.Ctx(), v.Address(v.R), link)
		if err != nil {
			return nil, err
		}
		f.Operator = kind == people.OperatorLink
		if !to.Address.IsZero() {
			f.Joins, f.Role = cmp.Or(plain.Name(to.Name), to.Address.String()), to.Role
			f.SignInNext = page.PathJoin + "?" + url.Values{"link": {link}}.Encode()
		}
	}
	s := page.Layout{Title: "Sign up", Fault: fault}
	var err error
	if f.Passkey, s.Passkey, err = passkey(v, deps(v).People.Passkeys.BeginSignUp); err != nil {
		return nil, err
	}
	f.Elsewhere = elsewhere(v, page.PathSignUp+"?"+url.Values{"link": {link}, "next": {next}}.Encode())
	f.OIDC = oidc(v)
	s.Body = f
	offerWallets(v, &s, page.Wallets{Label: "Sign up with", Next: next, Link: link})
	return v.Show(status, "sign_up", s, "")
}

// joining is what a person reads of an invitation.
type joining struct {
	people.Workspace
	Link, Ticket string
}

// Join is GET and POST /join: a person accepts an invitation to a workspace. Opening the page uses nothing up.
func (w *Web) Join() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		return askJoin(v, http.StatusOK, v.R.URL.Query().Get("link"), "")
	}, func(v *page.Context) (page.View, error) {
		link := v.Form.Get("link")
		if v.Person == nil || v.Person.User == nil || !v.Sessions.Holds(v.Ctx(), v.Form.Get("ticket"), formJoin, link) {
			return askJoin(v, http.StatusForbidden, link, stale)
		}
		at, err := w.People.Links.Join(v.Ctx(), w.Address(v.R), v.Person.User.ID, link)
		if err != nil {
			return v.Rejected(err, func(status int, fault string) (page.View, error) { return nil, v.RefuseNext(status, fault, "") })
		}
		return v.Redirect(http.StatusSeeOther, membersOf(at))
	})
}

func askJoin(v *page.Context, status int, link, fault string) (page.View, error) {
	if v.Person == nil || v.Person.User == nil {
		return v.Redirect(http.StatusSeeOther, page.PathSignUp+"?"+url.Values{"link": {link}}.Encode())
	}
	_, to, err := deps(v).People.Links.Read(v.Ctx(), v.Address(v.R), link)
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return nil, v.RefuseNext(status, fault, "") })
	}
	if to.Address.IsZero() {
		return nil, v.RefuseNext(http.StatusBadRequest, "This link is not an invitation to a workspace.", "")
	}
	return v.Show(status, "join", page.Layout{Title: "Join a workspace", Fault: fault, Body: joining{to, link, v.Sessions.Ticket(v.Ctx(), formJoin, link)}}, "")
}

// confirming asks a person for a fresh proof.
type confirming struct {
	Why, Next, Ticket string
	Passkey           people.Ceremony
	Password          bool   // the person has one
	OIDC              string // name of the provider of the person; "" for none
	NoPasswords       bool
	Nothing           bool // the person has nothing that counts here
}

// hasProof returns nil for a person who proved a credential a short time ago, else it asks for a proof.
func hasProof(v *page.Context, why string) error {
	switch {
	case v.Person == nil:
		return page.Instead(askSignIn(v, http.StatusOK, why, v.Here(), ""))
	case v.Person.User == nil:
		return v.RefuseNext(http.StatusForbidden, "This takes a person, and you signed in with an API key.", "Sign out, and sign in as a person.")
	case !v.Sessions.Recent(v.Person):
		return page.Instead(askConfirm(v, http.StatusOK, why, v.Here(), ""))
	}
	return nil
}

func askConfirm(v *page.Context, status int, why, next, fault string) (page.View, error) {
	f := confirming{Why: why, Next: next, NoPasswords: deps(v).People.Credentials.NoPasswords, Ticket: v.Sessions.Ticket(v.Ctx(), formConfirm)}
	s := page.Layout{Title: "Confirm that it is you", Fault: fault}
	kinds, err := deps(v).People.Credentials.Has(v.Ctx(), v.Person.User.ID)
	f.Password = slices.Contains(kinds, people.Password)
	if slices.Contains(kinds, people.OIDC) {
		f.OIDC = oidc(v)
	}
	if slices.Contains(kinds, people.Wallet) {
		offerWallets(v, &s, page.Wallets{Label: "Sign again with", Next: next})
	}
	f.Nothing = !f.Password && f.OIDC == "" && !s.Wallet && !slices.Contains(kinds, people.Passkey)
	if err == nil && (f.Password || slices.Contains(kinds, people.Passkey)) {
		f.Passkey, s.Passkey, err = passkey(v, deps(v).People.Passkeys.BeginSignIn)
	}
	if err != nil {
		return nil, err
	}
	s.Body = f
	return v.Show(status, "confirm", s, "")
}

// confirmWhy is what the page of a fresh proof says.
const confirmWhy = "This changes who can use your account. Prove first that it is you: the proof counts for ten minutes."

// Confirm is GET and POST /confirm: a person proves the password once more.
func (w *Web) Confirm() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		next := page.LocalPath(v.R.URL.Query().Get("next"))
		if v.Person == nil || v.Person.User == nil {
			return askSignIn(v, http.StatusOK, "", next, "")
		}
		return askConfirm(v, http.StatusOK, confirmWhy, next, "")
	}, func(v *page.Context) (page.View, error) {
		next := page.LocalPath(v.Form.Get("next"))
		again := func(status int, fault string) (page.View, error) {
			return askConfirm(v, status, confirmWhy, next, fault)
		}
		if v.Person == nil || v.Person.User == nil {
			return askSignIn(v, http.StatusForbidden, "", next, "")
		}
		if !v.Sessions.Holds(v.Ctx(), v.Form.Get("ticket"), formConfirm) {
			return again(http.StatusForbidden, stale)
		}
		proof := people.Password
		var err error
		if v.Form.Get("answer") != "" {
			proof = people.Passkey
			err = w.People.Passkeys.Prove(v.Ctx(), w.Address(v.R), v.Person.User.ID, v.Form.Get("state"), v.Form.Get("answer"))
		} else {
			err = w.People.Passwords.Prove(v.Ctx(), v.Person.User.ID, v.Form.Get("password"))
		}
		if err == nil {
			err = v.Sessions.Renew(v.Ctx())
		}
		if err != nil {
			return v.Rejected(err, again)
		}
		v.Sessions.NoteProof(v.Ctx(), proof, w.Clock())
		return v.Redirect(http.StatusSeeOther, cmp.Or(next, page.PathSecurity))
	})
}

// recovering is the form with which a person who lost the password gets another one.
type recovering struct {
	Link, Login string
	NoPasswords bool
}

// Recover is GET and POST /recover.
func (w *Web) Recover() http.Handler {
	ask := func(v *page.Context, status int, link, fault string) (page.View, error) {
		title := "Choose a new password"
		if w.People.Credentials.NoPasswords {
			title = "Get in again"
		}
		return v.Show(status, "recover", page.Layout{Title: title, Fault: fault, Body: recovering{link, v.Form.Get("login"), w.People.Credentials.NoPasswords}}, "")
	}
	return w.page(func(v *page.Context) (page.View, error) {
		return ask(v, http.StatusOK, v.R.URL.Query().Get("link"), "")
	}, func(v *page.Context) (page.View, error) {
		link := v.Form.Get("link")
		u, err := w.People.Passwords.Recover(v.Ctx(), w.Address(v.R), link, v.Form.Get("login"), v.Form.Get("code"), v.Form.Get("password"))
		if err == nil {
			err = admitUser(v, u, people.Password, toll.Address{})
		}
		if err != nil {
			return v.Rejected(err, func(status int, fault string) (page.View, error) { return ask(v, status, link, fault) })
		}
		return v.Redirect(http.StatusSeeOther, page.PathSecurity)
	})
}

// security is what a person reads of their own credentials and sessions.
type security struct {
	Done        string
	Codes       []string
	Credentials []shownCredential
	CodesLeft   int
	HasPassword bool
	NoPasswords bool
	Mail        bool   // codes are sent by mail
	OIDC        string // name of a provider whose account can be added; "" for none
	Sessions    []shownSession
	Ticket      string
	Passkey     people.Ceremony // for a new one; zero where browsers take none
	Elsewhere   string          // address at which they do; "" for none
}

type shownCredential struct {
	ID, Text, Since, Used, Ticket string
	CanRemove                     bool
}

type shownSession struct {
	ID, Agent, Since, Used, Ticket string
	This                           bool
}

// kindTexts are the kinds of credentials as a person reads them.
var kindTexts = map[string]string{
	people.Password: "Password", people.Passkey: "Passkey", people.Mail: "Code by mail to", people.OIDC: "Account of", people.Wallet: "Wallet",
}

// Security is GET and POST /account/security: how a person signs in, and where.
func (w *Web) Security() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		if err := isPerson(v); err != nil {
			return nil, err
		}
		return showSecurity(v, http.StatusOK, security{}, "")
	}, func(v *page.Context) (page.View, error) {
		v.At = page.PathSecurity
		if err := isPerson(v); err != nil {
			return nil, err
		}
		if !v.Sessions.Holds(v.Ctx(), v.Form.Get("ticket"), formSecurity) {
			return showSecurity(v, http.StatusForbidden, security{}, stale)
		}
		var err error
		switch v.Form.Get("act") {
		case "end":
		case "passkey", "password", "mail", "oidc", "wallet":
			err = mayAdd(v)
		default:
			err = hasProof(v, confirmWhy)
		}
		if err != nil {
			return nil, err
		}
		if v.Form.Get("act") == "mail" {
			return sendCode(v, people.CodeFor{Mail: v.Form.Get("mail"), User: v.Person.User.ID})
		}
		again := func(status int, fault string) (page.View, error) { return showSecurity(v, status, security{}, fault) }
		switch v.Form.Get("act") {
		case "oidc":
			return beginOIDC(v, people.OIDCFor{User: v.Person.User.ID, Adds: true}, again)
		case "wallet":
			return beginWallet(v, people.WalletFor{User: v.Person.User.ID, Adds: true}, again)
		}
		body, err := changeSecurity(v)
		if err != nil {
			return v.Rejected(err, again)
		}
		return showSecurity(v, http.StatusOK, body, "")
	})
}

// isPerson returns nil for a person who signed in, else it asks for a sign-in.
func isPerson(v *page.Context) error {
	switch {
	case v.Person == nil:
		return page.Instead(askSignIn(v, http.StatusOK, "", v.Here(), ""))
	case v.Person.User == nil:
		return v.RefuseNext(http.StatusForbidden, "This page is of persons, and you signed in with an API key.", "Sign out, and sign in as a person.")
	}
	return nil
}

// changeSecurity does what the form says. After a change of a credential all other sessions are over, and this one has a new id.
func changeSecurity(v *page.Context) (body security, err error) {
	w, user := deps(v), v.Person.User.ID
	stored := session.Stored(v.Ctx())
	switch v.Form.Get("act") {
	case "codes":
		body.Codes, err = w.People.Credentials.NewRecoveryCodes(v.Ctx(), user)
	case "password":
		body.Done = "The password is set. All other sessions have ended."
		err = w.People.Passwords.Set(v.Ctx(), user, v.Form.Get("login"), v.Form.Get("password"), stored)
	case "remove":
		body.Done = "The credential is removed. All other sessions have ended."
		var id toll.UUID
		if err = id.UnmarshalText([]byte(v.Form.Get("credential"))); err == nil {
			err = w.People.Credentials.Remove(v.Ctx(), user, id, stored)
		}
	case "passkey":
		body.Done = "The passkey is added."
		err = w.People.Passkeys.Add(v.Ctx(), user, v.Form.Get("name"), v.Form.Get("state"), v.Form.Get("answer"))
	case "claim":
		body.Done = "You are the owner of the account."
		_, err = w.People.Members.Claim(v.Ctx(), w.Address(v.R), user, strings.TrimSpace(v.Form.Get("api_key")))
		if err == nil {
			v.Person.Workspaces, err = w.People.Workspaces(v.Ctx(), user)
		}
	case "end":
		body.Done = "The session has ended."
		err = w.People.Sessions.End(v.Ctx(), user, v.Form.Get("session"))
	default:
		err = toll.NewError(toll.CodeBadRequest)
	}
	if err == nil && v.Form.Get("act") != "end" {
		err = v.Sessions.Renew(v.Ctx())
	}
	return body, err
}

func showSecurity(v *page.Context, status int, body security, fault string) (page.View, error) {
	user := v.Person.User.ID
	all, err := deps(v).People.Credentials.List(v.Ctx(), user)
	var open []toll.Session
	if err == nil {
		open, err = deps(v).People.Sessions.List(v.Ctx(), user)
	}
	if err != nil {
		return nil, err
	}
	body.NoPasswords = deps(v).People.Credentials.NoPasswords
	body.Ticket, body.Mail = v.Sessions.Ticket(v.Ctx(), formSecurity), deps(v).People.Notices.HasMail()
	for _, c := range all {
		if c.Kind == people.Recovery {
			body.CodesLeft++
			continue
		}
		one := shownCredential{ID: c.ID.String(), Text: kindTexts[c.Kind] + " " + c.Name, Since: page.Date(c.CreatedAt.Time), Ticket: body.Ticket}
		if c.UsedAt != nil {
			one.Used = page.Date(c.UsedAt.Time)
		}
		body.HasPassword = body.HasPassword || c.Kind == people.Password
		body.Credentials = append(body.Credentials, one)
	}
	for i := range body.Credentials {
		body.Credentials[i].CanRemove = len(body.Credentials) > 1
	}
	for _, s := range open {
		body.Sessions = append(body.Sessions, shownSession{
			ID: s.ID, Agent: s.Agent, Since: page.Date(s.Since.Time), Used: page.Date(s.UsedAt.Time), This: s.ID == v.Person.ID, Ticket: body.Ticket,
		})
	}
	s := page.Layout{Title: "Your account", Fault: fault}
	body.Elsewhere = elsewhere(v, page.PathSecurity)
	body.Passkey, s.Passkey, err = passkey(v, func() (people.Ceremony, error) { return deps(v).People.Passkeys.Begin(v.Ctx(), user) })
	if err != nil {
		return nil, err
	}
	body.OIDC = oidc(v)
	s.Body = body
	offerWallets(v, &s, page.Wallets{Label: "Add", Act: "wallet", Ticket: body.Ticket})
	return v.Show(status, "security", s, "")
}

// membersPage is the people of a workspace.
type membersPage struct {
	Done, Link, LinkEnds string
	Action, Ticket       string
	Members              []shownMember
	Invitations          []shownInvitation
	Roles                []toll.Role
	MayInvite            bool
}

type shownMember struct {
	ID, Name, Since, Ticket, To string
	Spent                       string // of what limit, "" without one
	Role                        toll.Role
	You, CanManage              bool
}

type shownInvitation struct {
	ID, Note, Until, Ticket string
	Role                    toll.Role
}

func membersOf(at toll.Address) string {
	return strings.Replace(page.PathMembers, "{workspace}", at.String(), 1)
}

// memberPages are the people of a workspace.
func memberPages() []page.Area {
	return []page.Area{memberPage(), {
		Path: "/members", Title: "Members", Template: "members", Group: page.GroupManage, Nav: "Members", Icon: "users", Key: "m",
		Right: toll.RightRead, OwnTickets: true, Persons: true,
		Get:  func(v *page.Context) (page.View, error) { return showMembers(v, http.StatusOK, membersPage{}, "") },
		Post: postMembers,
	}}
}

func postMembers(v *page.Context) (page.View, error) {
	if !v.Holds(v.Form.Get("ticket"), formMembers) {
		return showMembers(v, http.StatusForbidden, membersPage{}, stale)
	}
	if err := hasProof(v, confirmWhy); err != nil {
		return nil, err
	}
	body, err := changeMembers(v)
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return showMembers(v, status, membersPage{}, fault) })
	}
	if v.Form.Get("user") == v.Person.User.ID.String() && v.Form.Get("act") == "remove" {
		return v.Redirect(http.StatusSeeOther, page.PathSecurity)
	}
	return showMembers(v, http.StatusOK, body, "")
}

// changeMembers does what the form says.
func changeMembers(v *page.Context) (body membersPage, err error) {
	w, who := deps(v), v.Person.Caller
	var user toll.UUID
	if act := v.Form.Get("act"); act == "role" || act == "remove" {
		if err := user.UnmarshalText([]byte(v.Form.Get("user"))); err != nil {
			return body, err
		}
	}
	switch v.Form.Get("act") {
	case "invite":
		i, err := w.People.Links.Invite(v.Ctx(), who, toll.Role(v.Form.Get("role")), v.Form.Get("note"), nil)
		body.Link, body.LinkEnds = i.Link, page.Date(i.EndsAt.Time)
		return body, err
	case "withdraw":
		body.Done = "The invitation is withdrawn."
		id, err := toll.ParseHash(v.Form.Get("invitation"))
		if err == nil {
			err = w.People.Links.Withdraw(v.Ctx(), who, id)
		}
		return body, err
	case "role":
		body.Done = "The role is changed."
		_, err = w.People.Members.Change(v.Ctx(), who, user, people.MemberChange{Role: new(toll.Role(v.Form.Get("role")))})
		return body, err
	case "remove":
		removed, err := w.People.Members.Remove(v.Ctx(), who, user, false)
		body.Done = "The person is removed." + removedWith(removed)
		return body, err
	}
	return body, toll.NewError(toll.CodeBadRequest)
}

func showMembers(v *page.Context, status int, body membersPage, fault string) (page.View, error) {
	who := v.Person
	o, err := v.Outcome()
	if err != nil {
		return nil, err
	}
	body.Done = cmp.Or(body.Done, o.Done)
	body.Action, body.Ticket = membersOf(who.Address), v.Ticket(formMembers)
	body.MayInvite = who.Rights.Has(toll.RightMembers)
	for _, r := range toll.Roles() {
		if body.MayInvite && who.Workspace.Role.Manages(r) {
			body.Roles = append(body.Roles, r)
		}
	}
	all, err := deps(v).People.Members.List(v.Ctx(), who.Address)
	var open []toll.Invitation
	if err == nil {
		open, err = deps(v).People.Links.Invitations(v.Ctx(), who.Address)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		one := shownMember{
			ID: m.UserID.String(), Name: m.Name, Since: page.Date(m.Since.Time), Role: m.Role, Ticket: body.Ticket,
			You: m.UserID == who.User.ID, To: v.To("members", m.UserID.String()), CanManage: body.MayInvite && who.Workspace.Role.Manages(m.Role),
		}
		if m.SpendLimitCents != nil {
			one.Spent = spentText(m)
		}
		body.Members = append(body.Members, one)
	}
	for _, i := range open {
		body.Invitations = append(body.Invitations, shownInvitation{
			ID: i.ID, Note: i.Note, Until: page.Date(i.EndsAt.Time), Role: i.Role, Ticket: body.Ticket,
		})
	}
	return v.Show(status, "members", page.Layout{Title: "Members", Fault: fault, Body: body}, "")
}
