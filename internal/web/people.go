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
	return w.page(func(v *visit) {
		q := v.r.URL.Query()
		askSignUp(v, http.StatusOK, q.Get("link"), place(q.Get("next")), "")
	}, func(v *visit) {
		link, next := v.form.Get("link"), place(v.form.Get("next"))
		again := func(status int, fault string) { askSignUp(v, status, link, next, fault) }
		if state := v.form.Get("proved"); state != "" {
			signUpCredential(v, state, next)
			return
		}
		if !w.onHost(v.r) {
			again(http.StatusForbidden, "Sign up at "+w.PublicURL+".")
			return
		}
		in := people.SignUp{
			Name: v.form.Get("name"), Login: v.form.Get("login"), Secret: v.form.Get("password"), Link: link,
		}
		var u toll.Person
		var at toll.Address
		var err error
		proof := people.Password
		if answer := v.form.Get("answer"); answer != "" {
			proof = people.Passkey
			u, at, err = w.People.Passkeys.SignUp(v.ctx(), w.Address(v.r), in, v.form.Get("state"), answer)
		} else {
			u, at, err = w.People.Passwords.SignUp(v.ctx(), w.Address(v.r), in)
		}
		if err == nil {
			err = w.admitUser(v, u, proof, at)
		}
		if v.faulty(err, again) {
			return
		}
		v.redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
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

func askSignUp(v *visit, status int, link, next, fault string) {
	if err := v.w.People.SignUps.MaySignUp(v.ctx(), link); err != nil {
		e := toll.AsError(err)
		if e.HTTPStatus() >= http.StatusInternalServerError {
			v.fail(err)
			return
		}
		v.refuseNext(e.HTTPStatus(), e.Text(), "")
		return
	}
	f := signUp{Next: next, Link: link, NoPasswords: v.w.People.Credentials.NoPasswords, Mail: v.w.People.Notices.HasMail(), Name: v.form.Get("name"), Login: v.form.Get("login")}
	if link != "" {
		kind, to, err := v.w.People.Links.Read(v.ctx(), v.w.Address(v.r), link)
		if err != nil {
			v.fail(err)
			return
		}
		f.Operator = kind == people.OperatorLink
		if !to.Address.IsZero() {
			f.Joins, f.Role = cmp.Or(plain.Name(to.Name), to.Address.String()), to.Role
			f.SignInNext = PathJoin + "?" + url.Values{"link": {link}}.Encode()
		}
	}
	s := shown{Title: "Sign up", Fault: fault}
	var err error
	if f.Passkey, s.Passkey, err = passkey(v, v.w.People.Passkeys.BeginSignUp); err != nil {
		v.fail(err)
		return
	}
	f.Elsewhere = elsewhere(v, PathSignUp+"?"+url.Values{"link": {link}, "next": {next}}.Encode())
	f.OIDC = oidc(v)
	s.Body = f
	offerWallets(v, &s, wallets{Label: "Sign up with", Next: next, Link: link})
	v.show(status, "sign_up", s, "")
}

// joining is what a person reads of an invitation.
type joining struct {
	people.Workspace
	Link, Ticket string
}

// Join is GET and POST /join: a person accepts an invitation to a workspace. Opening the page uses nothing up.
func (w *Web) Join() http.Handler {
	return w.page(func(v *visit) { askJoin(v, http.StatusOK, v.r.URL.Query().Get("link"), "") }, func(v *visit) {
		link := v.form.Get("link")
		if v.person == nil || v.person.User == nil || !w.holds(v.ctx(), v.form.Get("ticket"), formJoin, link) {
			askJoin(v, http.StatusForbidden, link, stale)
			return
		}
		at, err := w.People.Links.Join(v.ctx(), w.Address(v.r), v.person.User.ID, link)
		if v.faulty(err, func(status int, fault string) { v.refuseNext(status, fault, "") }) {
			return
		}
		v.redirect(http.StatusSeeOther, membersOf(at))
	})
}

func askJoin(v *visit, status int, link, fault string) {
	if v.person == nil || v.person.User == nil {
		v.redirect(http.StatusSeeOther, PathSignUp+"?"+url.Values{"link": {link}}.Encode())
		return
	}
	_, to, err := v.w.People.Links.Read(v.ctx(), v.w.Address(v.r), link)
	if v.faulty(err, func(status int, fault string) { v.refuseNext(status, fault, "") }) {
		return
	}
	if to.Address.IsZero() {
		v.refuseNext(http.StatusBadRequest, "This link is not an invitation to a workspace.", "")
		return
	}
	v.show(status, "join", shown{Title: "Join a workspace", Fault: fault, Body: joining{to, link, v.w.ticket(v.ctx(), formJoin, link)}}, "")
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

// hasProof reports whether the person proved a credential a short time ago; it asks for one else.
func hasProof(v *visit, why string) bool {
	switch {
	case v.person == nil:
		askSignIn(v, http.StatusOK, why, v.here(), "")
	case v.person.User == nil:
		v.refuseNext(http.StatusForbidden, "This takes a person, and you signed in with an API key.", "Sign out, and sign in as a person.")
	case !v.w.fresh(v.person):
		askConfirm(v, http.StatusOK, why, v.here(), "")
	default:
		return true
	}
	return false
}

func askConfirm(v *visit, status int, why, next, fault string) {
	f := confirming{Why: why, Next: next, NoPasswords: v.w.People.Credentials.NoPasswords, Ticket: v.w.ticket(v.ctx(), formConfirm)}
	s := shown{Title: "Confirm that it is you", Fault: fault}
	kinds, err := v.w.People.Credentials.Has(v.ctx(), v.person.User.ID)
	f.Password = slices.Contains(kinds, people.Password)
	if slices.Contains(kinds, people.OIDC) {
		f.OIDC = oidc(v)
	}
	if slices.Contains(kinds, people.Wallet) {
		offerWallets(v, &s, wallets{Label: "Sign again with", Next: next})
	}
	f.Nothing = !f.Password && f.OIDC == "" && !s.Wallet && !slices.Contains(kinds, people.Passkey)
	if err == nil && (f.Password || slices.Contains(kinds, people.Passkey)) {
		f.Passkey, s.Passkey, err = passkey(v, v.w.People.Passkeys.BeginSignIn)
	}
	if err != nil {
		v.fail(err)
		return
	}
	s.Body = f
	v.show(status, "confirm", s, "")
}

// confirmWhy is what the page of a fresh proof says.
const confirmWhy = "This changes who can use your account. Prove first that it is you: the proof counts for ten minutes."

// Confirm is GET and POST /confirm: a person proves the password once more.
func (w *Web) Confirm() http.Handler {
	return w.page(func(v *visit) {
		next := place(v.r.URL.Query().Get("next"))
		if v.person == nil || v.person.User == nil {
			askSignIn(v, http.StatusOK, "", next, "")
			return
		}
		askConfirm(v, http.StatusOK, confirmWhy, next, "")
	}, func(v *visit) {
		next := place(v.form.Get("next"))
		again := func(status int, fault string) { askConfirm(v, status, confirmWhy, next, fault) }
		if v.person == nil || v.person.User == nil {
			askSignIn(v, http.StatusForbidden, "", next, "")
			return
		}
		if !w.holds(v.ctx(), v.form.Get("ticket"), formConfirm) {
			again(http.StatusForbidden, stale)
			return
		}
		proof := people.Password
		var err error
		if v.form.Get("answer") != "" {
			proof = people.Passkey
			err = w.People.Passkeys.Prove(v.ctx(), w.Address(v.r), v.person.User.ID, v.form.Get("state"), v.form.Get("answer"))
		} else {
			err = w.People.Passwords.Prove(v.ctx(), v.person.User.ID, v.form.Get("password"))
		}
		if err == nil {
			err = w.sessions.RenewToken(v.ctx())
		}
		if v.faulty(err, again) {
			return
		}
		w.proved(v.ctx(), proof, w.Clock())
		v.redirect(http.StatusSeeOther, cmp.Or(next, PathSecurity))
	})
}

// recovering is the form with which a person who lost the password gets another one.
type recovering struct {
	Link, Login string
	NoPasswords bool
}

// Recover is GET and POST /recover.
func (w *Web) Recover() http.Handler {
	ask := func(v *visit, status int, link, fault string) {
		title := "Choose a new password"
		if w.People.Credentials.NoPasswords {
			title = "Get in again"
		}
		v.show(status, "recover", shown{Title: title, Fault: fault, Body: recovering{link, v.form.Get("login"), w.People.Credentials.NoPasswords}}, "")
	}
	return w.page(func(v *visit) { ask(v, http.StatusOK, v.r.URL.Query().Get("link"), "") }, func(v *visit) {
		link := v.form.Get("link")
		u, err := w.People.Passwords.Recover(v.ctx(), w.Address(v.r), link, v.form.Get("login"), v.form.Get("code"), v.form.Get("password"))
		if err == nil {
			err = w.admitUser(v, u, people.Password, toll.Address{})
		}
		if v.faulty(err, func(status int, fault string) { ask(v, status, link, fault) }) {
			return
		}
		v.redirect(http.StatusSeeOther, PathSecurity)
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
	return w.page(func(v *visit) {
		if isPerson(v) {
			showSecurity(v, http.StatusOK, security{}, "")
		}
	}, func(v *visit) {
		v.at = PathSecurity
		if !isPerson(v) {
			return
		}
		if !w.holds(v.ctx(), v.form.Get("ticket"), formSecurity) {
			showSecurity(v, http.StatusForbidden, security{}, stale)
			return
		}
		switch act := v.form.Get("act"); {
		case act == "end":
		case slices.Contains([]string{"passkey", "password", "mail", "oidc", "wallet"}, act):
			if !mayAdd(v) {
				return
			}
		case !hasProof(v, confirmWhy):
			return
		}
		if v.form.Get("act") == "mail" {
			sendCode(v, people.CodeFor{Mail: v.form.Get("mail"), User: v.person.User.ID})
			return
		}
		again := func(status int, fault string) { showSecurity(v, status, security{}, fault) }
		switch v.form.Get("act") {
		case "oidc":
			beginOIDC(v, people.OIDCFor{User: v.person.User.ID, Adds: true}, again)
			return
		case "wallet":
			beginWallet(v, people.WalletFor{User: v.person.User.ID, Adds: true}, again)
			return
		}
		page, err := changeSecurity(v)
		if v.faulty(err, again) {
			return
		}
		showSecurity(v, http.StatusOK, page, "")
	})
}

// isPerson reports whether a person signed in; it asks for a sign-in else.
func isPerson(v *visit) bool {
	switch {
	case v.person == nil:
		askSignIn(v, http.StatusOK, "", v.here(), "")
	case v.person.User == nil:
		v.refuseNext(http.StatusForbidden, "This page is of persons, and you signed in with an API key.", "Sign out, and sign in as a person.")
	default:
		return true
	}
	return false
}

// changeSecurity does what the form says. After a change of a credential all other sessions are over, and this one has a new id.
func changeSecurity(v *visit) (page security, err error) {
	w, user := v.w, v.person.User.ID
	stored := v.ctx().Value(visitKey{}).(*visited).token
	switch v.form.Get("act") {
	case "codes":
		page.Codes, err = w.People.Credentials.NewRecoveryCodes(v.ctx(), user)
	case "password":
		page.Done = "The password is set. All other sessions have ended."
		err = w.People.Passwords.Set(v.ctx(), user, v.form.Get("login"), v.form.Get("password"), stored)
	case "remove":
		page.Done = "The credential is removed. All other sessions have ended."
		var id toll.UUID
		if err = id.UnmarshalText([]byte(v.form.Get("credential"))); err == nil {
			err = w.People.Credentials.Remove(v.ctx(), user, id, stored)
		}
	case "passkey":
		page.Done = "The passkey is added."
		err = w.People.Passkeys.Add(v.ctx(), user, v.form.Get("name"), v.form.Get("state"), v.form.Get("answer"))
	case "claim":
		page.Done = "You are the owner of the account."
		_, err = w.People.Members.Claim(v.ctx(), w.Address(v.r), user, strings.TrimSpace(v.form.Get("api_key")))
		if err == nil {
			v.person.Workspaces, err = w.People.Workspaces(v.ctx(), user)
		}
	case "end":
		page.Done = "The session has ended."
		err = w.People.Sessions.End(v.ctx(), user, v.form.Get("session"))
	default:
		err = toll.NewError(toll.CodeBadRequest)
	}
	if err == nil && v.form.Get("act") != "end" {
		err = w.sessions.RenewToken(v.ctx())
	}
	return page, err
}

func showSecurity(v *visit, status int, page security, fault string) {
	user := v.person.User.ID
	all, err := v.w.People.Credentials.List(v.ctx(), user)
	var open []toll.Session
	if err == nil {
		open, err = v.w.People.Sessions.List(v.ctx(), user)
	}
	if err != nil {
		v.fail(err)
		return
	}
	page.NoPasswords = v.w.People.Credentials.NoPasswords
	page.Ticket, page.Mail = v.w.ticket(v.ctx(), formSecurity), v.w.People.Notices.HasMail()
	for _, c := range all {
		if c.Kind == people.Recovery {
			page.CodesLeft++
			continue
		}
		one := shownCredential{ID: c.ID.String(), Text: kindTexts[c.Kind] + " " + c.Name, Since: date(c.CreatedAt.Time), Ticket: page.Ticket}
		if c.UsedAt != nil {
			one.Used = date(c.UsedAt.Time)
		}
		page.HasPassword = page.HasPassword || c.Kind == people.Password
		page.Credentials = append(page.Credentials, one)
	}
	for i := range page.Credentials {
		page.Credentials[i].CanRemove = len(page.Credentials) > 1
	}
	for _, s := range open {
		page.Sessions = append(page.Sessions, shownSession{
			ID: s.ID, Agent: s.Agent, Since: date(s.Since.Time), Used: date(s.UsedAt.Time), This: s.ID == v.person.session, Ticket: page.Ticket,
		})
	}
	s := shown{Title: "Your account", Fault: fault}
	page.Elsewhere = elsewhere(v, PathSecurity)
	page.Passkey, s.Passkey, err = passkey(v, func() (people.Ceremony, error) { return v.w.People.Passkeys.Begin(v.ctx(), user) })
	if err != nil {
		v.fail(err)
		return
	}
	page.OIDC = oidc(v)
	s.Body = page
	offerWallets(v, &s, wallets{Label: "Add", Act: "wallet", Ticket: page.Ticket})
	v.show(status, "security", s, "")
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
	return strings.Replace(PathMembers, "{workspace}", at.String(), 1)
}

// memberPages are the people of a workspace.
func memberPages() []areaPage {
	return []areaPage{memberPage(), {
		Path: "/members", Title: "Members", Template: "members", Group: groupManage, Nav: "Members", Icon: "users", Key: "m",
		Right: toll.RightRead, OwnTickets: true, Persons: true,
		Get:  func(v *visit) { showMembers(v, http.StatusOK, membersPage{}, "") },
		Post: postMembers,
	}}
}

func postMembers(v *visit) {
	if !v.holds(v.form.Get("ticket"), formMembers) {
		showMembers(v, http.StatusForbidden, membersPage{}, stale)
		return
	}
	if !hasProof(v, confirmWhy) {
		return
	}
	page, err := changeMembers(v)
	if v.faulty(err, func(status int, fault string) { showMembers(v, status, membersPage{}, fault) }) {
		return
	}
	if v.form.Get("user") == v.person.User.ID.String() && v.form.Get("act") == "remove" {
		v.redirect(http.StatusSeeOther, PathSecurity)
		return
	}
	showMembers(v, http.StatusOK, page, "")
}

// changeMembers does what the form says.
func changeMembers(v *visit) (page membersPage, err error) {
	w, who := v.w, v.person.Caller
	var user toll.UUID
	if act := v.form.Get("act"); act == "role" || act == "remove" {
		if err := user.UnmarshalText([]byte(v.form.Get("user"))); err != nil {
			return page, err
		}
	}
	switch v.form.Get("act") {
	case "invite":
		i, err := w.People.Links.Invite(v.ctx(), who, toll.Role(v.form.Get("role")), v.form.Get("note"), nil)
		page.Link, page.LinkEnds = i.Link, date(i.EndsAt.Time)
		return page, err
	case "withdraw":
		page.Done = "The invitation is withdrawn."
		id, err := toll.ParseHash(v.form.Get("invitation"))
		if err == nil {
			err = w.People.Links.Withdraw(v.ctx(), who, id)
		}
		return page, err
	case "role":
		page.Done = "The role is changed."
		_, err = w.People.Members.Change(v.ctx(), who, user, people.MemberChange{Role: new(toll.Role(v.form.Get("role")))})
		return page, err
	case "remove":
		removed, err := w.People.Members.Remove(v.ctx(), who, user, false)
		page.Done = "The person is removed." + removedWith(removed)
		return page, err
	}
	return page, toll.NewError(toll.CodeBadRequest)
}

func showMembers(v *visit, status int, page membersPage, fault string) {
	who := v.person
	o, err := v.outcome()
	if err != nil {
		v.fail(err)
		return
	}
	page.Done = cmp.Or(page.Done, o.Done)
	page.Action, page.Ticket = membersOf(who.Address), v.ticket(formMembers)
	page.MayInvite = who.Rights.Has(toll.RightMembers)
	for _, r := range toll.Roles() {
		if page.MayInvite && who.Workspace.Role.Manages(r) {
			page.Roles = append(page.Roles, r)
		}
	}
	all, err := v.w.People.Members.List(v.ctx(), who.Address)
	var open []toll.Invitation
	if err == nil {
		open, err = v.w.People.Links.Invitations(v.ctx(), who.Address)
	}
	if err != nil {
		v.fail(err)
		return
	}
	for _, m := range all {
		one := shownMember{
			ID: m.UserID.String(), Name: m.Name, Since: date(m.Since.Time), Role: m.Role, Ticket: page.Ticket,
			You: m.UserID == who.User.ID, To: v.to("members", m.UserID.String()), CanManage: page.MayInvite && who.Workspace.Role.Manages(m.Role),
		}
		if m.SpendLimitCents != nil {
			one.Spent = spentText(m)
		}
		page.Members = append(page.Members, one)
	}
	for _, i := range open {
		page.Invitations = append(page.Invitations, shownInvitation{
			ID: i.ID, Note: i.Note, Until: date(i.EndsAt.Time), Role: i.Role, Ticket: page.Ticket,
		})
	}
	v.show(status, "members", shown{Title: "Members", Fault: fault, Body: page}, "")
}
