package signin

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
	formConsent  = "consent"
	formDevice   = "device"
	formCLI      = "cli"
	formRevoke   = "revoke"
)

type signUp struct {
	Next, Link, Ticket string
	Name, Login        string
	Workspace          string // name that was typed
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

// signUp is GET and POST /sign-up. Opening the page uses nothing up.
func (w *Pages) signUp() page.Route {
	return route(page.PathSignUp, func(c *page.Context) (page.View, error) {
		q := c.R.URL.Query()
		return w.askSignUp(c, http.StatusOK, q.Get("link"), page.LocalPath(q.Get("next")), "")
	}, func(c *page.Context) (page.View, error) {
		link, next := c.Form.Get("link"), page.LocalPath(c.Form.Get("next"))
		again := func(status int, fault string) (page.View, error) { return w.askSignUp(c, status, link, next, fault) }
		if state := c.Form.Get("proved"); state != "" {
			return w.signUpCredential(c, state, next)
		}
		if !onHost(c) {
			return again(http.StatusForbidden, "Sign up at "+c.PublicURL+".")
		}
		in := people.SignUp{
			Name: c.Form.Get("name"), Workspace: c.Form.Get("workspace"), Login: c.Form.Get("login"), Secret: c.Form.Get("password"), Link: link,
		}
		var u toll.Person
		var at toll.Address
		var err error
		proof := people.Password
		if answer := c.Form.Get("answer"); answer != "" {
			proof = people.Passkey
			u, at, err = w.People.Passkeys.SignUp(c.Ctx(), c.Address(c.R), in, c.Form.Get("state"), answer)
		} else {
			u, at, err = w.People.Passwords.SignUp(c.Ctx(), c.Address(c.R), in)
		}
		return enter(c, u, proof, at, next, err, again)
	})
}

// onHost reports whether a request came to the public host, or to another name of this machine that stands for it.
func onHost(c *page.Context) bool {
	u, err := url.Parse(c.PublicURL)
	if err != nil {
		return false
	}
	host := (&url.URL{Host: c.R.Host}).Hostname()
	return strings.EqualFold(host, u.Hostname()) || toll.IsLoopback(host) && toll.IsLoopback(u.Hostname())
}

func (w *Pages) askSignUp(c *page.Context, status int, link, next, fault string) (page.View, error) {
	if err := w.People.SignUps.MaySignUp(c.Ctx(), link); err != nil {
		e := toll.AsError(err)
		if e.HTTPStatus() >= http.StatusInternalServerError {
			return nil, err
		}
		return nil, c.RefuseNext(e.HTTPStatus(), e.Text(), "")
	}
	f := signUp{Next: next, Link: link, NoPasswords: w.People.Credentials.NoPasswords, Mail: w.People.Notices.HasMail(), Name: c.Form.Get("name"), Workspace: c.Form.Get("workspace"), Login: c.Form.Get("login")}
	if link != "" {
		kind, to, err := w.People.Links.Read(c.Ctx(), c.Address(c.R), link)
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
	if f.Passkey, s.Passkey, err = w.passkey(c, w.People.Passkeys.BeginSignUp); err != nil {
		return nil, err
	}
	f.Elsewhere = w.elsewhere(c, page.PathSignUp+"?"+url.Values{"link": {link}, "next": {next}}.Encode())
	f.OIDC = w.provider(c)
	s.Body = f
	offerWallets(c, &s, page.Wallets{Label: "Sign up with", Next: next, Link: link})
	return c.Show(status, "sign_up", s, "")
}

type joining struct {
	people.Workspace
	Link, Ticket string
}

// join is GET and POST /join: a person accepts an invitation to a workspace. Opening the page uses nothing up.
func (w *Pages) join() page.Route {
	return route(page.PathJoin, func(c *page.Context) (page.View, error) {
		return w.askJoin(c, http.StatusOK, c.R.URL.Query().Get("link"), "")
	}, func(c *page.Context) (page.View, error) {
		link := c.Form.Get("link")
		if c.Person == nil || c.Person.User == nil || !c.Sessions.Holds(c.Ctx(), c.Form.Get("ticket"), formJoin, link) {
			return w.askJoin(c, http.StatusForbidden, link, page.Stale)
		}
		at, err := w.People.Links.Join(c.Ctx(), c.Address(c.R), c.Person.User.ID, link)
		if err != nil {
			return c.Rejected(err, func(status int, fault string) (page.View, error) { return nil, c.RefuseNext(status, fault, "") })
		}
		return c.Redirect(http.StatusSeeOther, strings.Replace(page.PathMembers, "{workspace}", at.String(), 1))
	})
}

func (w *Pages) askJoin(c *page.Context, status int, link, fault string) (page.View, error) {
	if c.Person == nil || c.Person.User == nil {
		return c.Redirect(http.StatusSeeOther, page.PathSignUp+"?"+url.Values{"link": {link}}.Encode())
	}
	_, to, err := w.People.Links.Read(c.Ctx(), c.Address(c.R), link)
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) { return nil, c.RefuseNext(status, fault, "") })
	}
	if to.Address.IsZero() {
		return nil, c.RefuseNext(http.StatusBadRequest, "This link is not an invitation to a workspace.", "")
	}
	return c.Show(status, "join", page.Layout{Title: "Join a workspace", Fault: fault, Body: joining{to, link, c.Sessions.Ticket(c.Ctx(), formJoin, link)}}, "")
}

type confirming struct {
	Why, Next, Ticket string
	Passkey           people.Ceremony
	Password          bool   // the person has one
	OIDC              string // name of the provider of the person; "" for none
	NoPasswords       bool
	Nothing           bool // the person has nothing that counts here
}

// Confirm asks the signed-in person for another proof.
func (w *Pages) Confirm(c *page.Context, status int, why, next, fault string) (page.View, error) {
	f := confirming{Why: why, Next: next, NoPasswords: w.People.Credentials.NoPasswords, Ticket: c.Sessions.Ticket(c.Ctx(), formConfirm)}
	s := page.Layout{Title: "Confirm that it is you", Fault: fault}
	kinds, err := w.People.Credentials.Has(c.Ctx(), c.Person.User.ID)
	f.Password = slices.Contains(kinds, people.Password)
	if slices.Contains(kinds, people.OIDC) {
		f.OIDC = w.provider(c)
	}
	if slices.Contains(kinds, people.Wallet) {
		offerWallets(c, &s, page.Wallets{Label: "Sign again with", Next: next})
	}
	f.Nothing = !f.Password && f.OIDC == "" && !s.Wallet && !slices.Contains(kinds, people.Passkey)
	if err == nil && (f.Password || slices.Contains(kinds, people.Passkey)) {
		f.Passkey, s.Passkey, err = w.passkey(c, w.People.Passkeys.BeginSignIn)
	}
	if err != nil {
		return nil, err
	}
	s.Body = f
	return c.Show(status, "confirm", s, "")
}

// confirm is GET and POST /confirm: a person proves the password once more.
func (w *Pages) confirm() page.Route {
	return route(page.PathConfirm, func(c *page.Context) (page.View, error) {
		next := page.LocalPath(c.R.URL.Query().Get("next"))
		if c.Person == nil || c.Person.User == nil {
			return w.Ask(c, http.StatusOK, "", next, "")
		}
		return w.Confirm(c, http.StatusOK, page.ConfirmWhy, next, "")
	}, func(c *page.Context) (page.View, error) {
		next := page.LocalPath(c.Form.Get("next"))
		again := func(status int, fault string) (page.View, error) {
			return w.Confirm(c, status, page.ConfirmWhy, next, fault)
		}
		if c.Person == nil || c.Person.User == nil {
			return w.Ask(c, http.StatusForbidden, "", next, "")
		}
		if !c.Sessions.Holds(c.Ctx(), c.Form.Get("ticket"), formConfirm) {
			return again(http.StatusForbidden, page.Stale)
		}
		proof := people.Password
		var err error
		if c.Form.Get("answer") != "" {
			proof = people.Passkey
			err = w.People.Passkeys.Prove(c.Ctx(), c.Address(c.R), c.Person.User.ID, c.Form.Get("state"), c.Form.Get("answer"))
		} else {
			err = w.People.Passwords.Prove(c.Ctx(), c.Person.User.ID, c.Form.Get("password"))
		}
		return noteProof(c, proof, next, err, again)
	})
}

type recovering struct {
	Link, Login string
	NoPasswords bool
}

func (w *Pages) recover() page.Route {
	ask := func(c *page.Context, status int, link, fault string) (page.View, error) {
		title := "Choose a new password"
		if w.People.Credentials.NoPasswords {
			title = "Recover your account"
		}
		return c.Show(status, "recover", page.Layout{Title: title, Fault: fault, Body: recovering{link, c.Form.Get("login"), w.People.Credentials.NoPasswords}}, "")
	}
	return route(page.PathRecover, func(c *page.Context) (page.View, error) {
		return ask(c, http.StatusOK, c.R.URL.Query().Get("link"), "")
	}, func(c *page.Context) (page.View, error) {
		link := c.Form.Get("link")
		u, err := w.People.Passwords.Recover(c.Ctx(), c.Address(c.R), link, c.Form.Get("login"), c.Form.Get("code"), c.Form.Get("password"))
		again := func(status int, fault string) (page.View, error) { return ask(c, status, link, fault) }
		return enter(c, u, people.Password, toll.Address{}, page.PathSecurity, err, again)
	})
}

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

var kindTexts = map[string]string{
	people.Password: "Password, login name", people.Passkey: "Passkey", people.Mail: "Code by mail to", people.OIDC: "Account at", people.Wallet: "Wallet",
}

// security is GET and POST /account/security: how a person signs in, and where.
func (w *Pages) security() page.Route {
	return route(page.PathSecurity, func(c *page.Context) (page.View, error) {
		if err := page.NeedPerson(c); err != nil {
			return nil, err
		}
		return w.showSecurity(c, http.StatusOK, security{}, "")
	}, func(c *page.Context) (page.View, error) {
		c.At = page.PathSecurity
		if err := page.NeedPerson(c); err != nil {
			return nil, err
		}
		if !c.Sessions.Holds(c.Ctx(), c.Form.Get("ticket"), formSecurity) {
			return w.showSecurity(c, http.StatusForbidden, security{}, page.Stale)
		}
		var err error
		switch c.Form.Get("act") {
		case "end":
		case "passkey", "password", "mail", "oidc", "wallet":
			err = w.mayAdd(c)
		default:
			err = page.NeedProof(c, page.ConfirmWhy)
		}
		if err != nil {
			return nil, err
		}
		if c.Form.Get("act") == "mail" {
			return w.sendCode(c, people.CodeFor{Mail: c.Form.Get("mail"), User: c.Person.User.ID})
		}
		again := func(status int, fault string) (page.View, error) { return w.showSecurity(c, status, security{}, fault) }
		switch c.Form.Get("act") {
		case "oidc":
			return w.beginOIDC(c, people.OIDCFor{User: c.Person.User.ID, Adds: true}, again)
		case "wallet":
			return w.beginWallet(c, people.WalletFor{User: c.Person.User.ID, Adds: true}, again)
		}
		body, err := w.changeSecurity(c)
		if err != nil {
			return c.Rejected(err, again)
		}
		return w.showSecurity(c, http.StatusOK, body, "")
	})
}

// changeSecurity does what the form says. After a change of a credential all other sessions are over, and this one has a new id.
func (w *Pages) changeSecurity(c *page.Context) (body security, err error) {
	user := c.Person.User.ID
	stored := session.Stored(c.Ctx())
	switch c.Form.Get("act") {
	case "codes":
		body.Codes, err = w.People.Credentials.NewRecoveryCodes(c.Ctx(), user)
	case "password":
		body.Done = "The password is set. All other sessions have ended."
		err = w.People.Passwords.Set(c.Ctx(), user, c.Form.Get("login"), c.Form.Get("password"), stored)
	case "remove":
		body.Done = "The credential is removed. All other sessions have ended."
		var id toll.UUID
		if err = id.UnmarshalText([]byte(c.Form.Get("credential"))); err == nil {
			err = w.People.Credentials.Remove(c.Ctx(), user, id, stored)
		}
	case "passkey":
		body.Done = "The passkey is added."
		err = w.People.Passkeys.Add(c.Ctx(), user, c.Form.Get("name"), c.Form.Get("state"), c.Form.Get("answer"))
	case "claim":
		body.Done = "You are now an owner of the workspace."
		_, err = w.People.Members.Claim(c.Ctx(), c.Address(c.R), user, strings.TrimSpace(c.Form.Get("api_key")))
		if err == nil {
			c.Person.Workspaces, err = w.People.Workspaces(c.Ctx(), user)
		}
	case "end":
		body.Done = "The session has ended."
		err = w.People.Sessions.End(c.Ctx(), user, c.Form.Get("session"))
	default:
		err = toll.NewError(toll.CodeBadRequest)
	}
	if err == nil && c.Form.Get("act") != "end" {
		err = c.Sessions.Renew(c.Ctx())
	}
	return body, err
}

func (w *Pages) showSecurity(c *page.Context, status int, body security, fault string) (page.View, error) {
	user := c.Person.User.ID
	all, err := w.People.Credentials.List(c.Ctx(), user)
	var open []toll.Session
	if err == nil {
		open, err = w.People.Sessions.List(c.Ctx(), user)
	}
	if err != nil {
		return nil, err
	}
	body.NoPasswords = w.People.Credentials.NoPasswords
	body.Ticket, body.Mail = c.Sessions.Ticket(c.Ctx(), formSecurity), w.People.Notices.HasMail()
	for _, credential := range all {
		if credential.Kind == people.Recovery {
			body.CodesLeft++
			continue
		}
		one := shownCredential{ID: credential.ID.String(), Text: kindTexts[credential.Kind] + " " + credential.Name, Since: page.Date(credential.CreatedAt.Time), Ticket: body.Ticket}
		if credential.UsedAt != nil {
			one.Used = page.Date(credential.UsedAt.Time)
		}
		body.HasPassword = body.HasPassword || credential.Kind == people.Password
		body.Credentials = append(body.Credentials, one)
	}
	for i := range body.Credentials {
		body.Credentials[i].CanRemove = len(body.Credentials) > 1
	}
	for _, s := range open {
		body.Sessions = append(body.Sessions, shownSession{
			ID: s.ID, Agent: s.Agent, Since: page.Date(s.Since.Time), Used: page.Date(s.UsedAt.Time), This: s.ID == c.Person.ID, Ticket: body.Ticket,
		})
	}
	s := page.Layout{Title: "Your account", Fault: fault}
	body.Elsewhere = w.elsewhere(c, page.PathSecurity)
	body.Passkey, s.Passkey, err = w.passkey(c, func() (people.Ceremony, error) { return w.People.Passkeys.Begin(c.Ctx(), user) })
	if err != nil {
		return nil, err
	}
	body.OIDC = w.provider(c)
	s.Body = body
	offerWallets(c, &s, page.Wallets{Label: "Add", Act: "wallet", Ticket: body.Ticket})
	return c.Show(status, "security", s, "")
}
