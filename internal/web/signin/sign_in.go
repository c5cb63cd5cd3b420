package signin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

type signIn struct {
	Why   string // what for; may be empty
	Next  string // path of the page that comes then
	Fault bool   // what was sent was wrong
	Login string
	Open  bool   // everybody may sign up
	Mail  bool   // codes are sent by mail
	Weak  bool   // who is signed in proved a code by mail alone
	OIDC  string // name of the provider; "" for none

	NoPasswords bool

	Passkey   people.Ceremony // zero where browsers take none
	Elsewhere string          // address at which they do; "" for none
}

// signIn is GET and POST /sign-in: a person who has an API key signs in.
func (w *Pages) signIn() page.Route {
	return route(page.PathSignIn, func(c *page.Context) (page.View, error) {
		next := page.LocalPath(c.R.URL.Query().Get("next"))
		if c.Person != nil && next == "" {
			return c.Redirect(http.StatusSeeOther, firstPage(c))
		}
		return w.Ask(c, http.StatusOK, "", next, "")
	}, func(c *page.Context) (page.View, error) {
		next := page.LocalPath(c.Form.Get("next"))
		if c.Form.Get("answer") != "" {
			return w.signInPasskey(c, next)
		}
		if c.Form.Get("api_key") == "" && c.Form.Get("login")+c.Form.Get("password") != "" {
			return w.signInPassword(c, next)
		}
		p, err := c.Sessions.AdmitKey(c.Ctx(), c.Form.Get("api_key"))
		if err != nil {
			return badKey(c, err, w.asking(c, next))
		}
		c.Person = p
		return c.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(c)))
	})
}

// home is GET /w: the overview of the workspace that was used last.
func (w *Pages) home() page.Route {
	return route(page.PathHome, func(c *page.Context) (page.View, error) {
		if c.Person == nil {
			return w.Ask(c, http.StatusOK, "", page.PathHome, "")
		}
		return c.Redirect(http.StatusSeeOther, firstPage(c))
	}, nil)
}

// firstPage is the page to which a sign-in leads that was for no other: the overview of the workspace.
func firstPage(c *page.Context) string {
	if c.Person.Address.IsZero() {
		return page.PathSecurity
	}
	return c.Base()
}

// MayRegister reports whether everybody may sign up.
func (w *Pages) MayRegister() bool { return w.People.SignUps.Registration == people.Open }

func (w *Pages) signInPasskey(c *page.Context, next string) (page.View, error) {
	u, err := w.People.Passkeys.SignIn(c.Ctx(), c.Address(c.R), c.Form.Get("state"), c.Form.Get("answer"))
	return enter(c, u, people.Passkey, toll.Address{}, next, err, w.asking(c, next))
}

func (w *Pages) signInPassword(c *page.Context, next string) (page.View, error) {
	u, err := w.People.Passwords.SignIn(c.Ctx(), c.Address(c.R), c.Form.Get("login"), c.Form.Get("password"))
	return enter(c, u, people.Password, toll.Address{}, next, err, w.asking(c, next))
}

// enter begins a session for a person who proved a credential, and leads to the page next. again shows the form for err.
func enter(
	c *page.Context, u toll.Person, proof string, at toll.Address, next string, err error, again func(status int, fault string) (page.View, error),
) (page.View, error) {
	if err == nil {
		err = admitUser(c, u, proof, at)
	}
	if err != nil {
		return c.Rejected(err, again)
	}
	return c.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(c)))
}

// asking returns what shows the form again after a fault.
func (w *Pages) asking(c *page.Context, next string) func(status int, fault string) (page.View, error) {
	return func(status int, fault string) (page.View, error) { return w.Ask(c, status, "", next, fault) }
}

// Ask shows the form; why says what for, fault what was wrong with the last one.
func (w *Pages) Ask(c *page.Context, status int, why, next, fault string) (page.View, error) {
	f := signIn{Why: why, Next: next, Fault: fault != "", Login: c.Form.Get("login"), Open: w.MayRegister()}
	f.Mail, f.Weak = w.People.Notices.HasMail(), c.Person != nil && c.Person.Proof == people.Mail
	f.NoPasswords = w.People.Credentials.NoPasswords
	s := page.Layout{Title: "Sign in", Fault: fault}
	var err error
	if f.Passkey, s.Passkey, err = w.passkey(c, w.People.Passkeys.BeginSignIn); err != nil {
		return nil, err
	}
	f.Elsewhere = w.elsewhere(c, page.PathSignIn)
	f.OIDC = w.provider(c)
	s.Body = f
	offerWallets(c, &s, page.Wallets{Label: "Sign in with", Next: next})
	return c.Show(status, "sign_in", s, "")
}

// elsewhere is a page at the public address, on a page of another address; "" for none, and where browsers take passkeys nowhere.
func (w *Pages) elsewhere(c *page.Context, path string) string {
	u, err := url.Parse(c.PublicURL)
	if err != nil || !w.People.Passkeys.Supported() || strings.EqualFold(c.R.Host, u.Host) {
		return ""
	}
	return c.PublicURL + path
}

// passkey asks for one with the script of the page, where browsers take them: at the public host alone.
func (w *Pages) passkey(c *page.Context, begin func() (people.Ceremony, error)) (people.Ceremony, bool, error) {
	u, err := url.Parse(c.PublicURL)
	if err != nil || !w.People.Passkeys.Supported() || !strings.EqualFold(c.R.Host, u.Host) {
		return people.Ceremony{}, false, err
	}
	ceremony, err := begin()
	return ceremony, err == nil, err
}

// badKey answers a sign-in that failed: again tells the person what was wrong with the key, and the rest is our fault.
func badKey(c *page.Context, err error, again func(status int, fault string) (page.View, error)) (page.View, error) {
	e := toll.AsError(err)
	if status := e.HTTPStatus(); status < http.StatusInternalServerError {
		return again(status, keyFault(e))
	}
	return nil, err
}

// keyFault says what is wrong with a key that a person pasted. The texts of the API speak of headers.
func keyFault(e *toll.Error) string {
	if e.Message != "" && e.Code != toll.CodeBadRequest { // it is about this key
		return e.Text()
	}
	switch e.Code {
	case toll.CodeNotAuthenticated:
		return "This API key is unknown, expired, or revoked. Paste another key."
	case toll.CodeKeyWrongEnvironment:
		return "This API key belongs to the other environment. Paste a key of this service."
	case toll.CodeKeyForeign:
		if e.Hint != "" { // it tells what was pasted
			return e.Hint
		}
		return "This API key was not created by this service. Paste a key of this service."
	}
	return "This is not an API key. Paste the whole key, from its prefix to its last character, without the word Bearer."
}

func (w *Pages) signOut() page.Route {
	return route(page.PathSignOut, nil, func(c *page.Context) (page.View, error) {
		if c.Person != nil {
			if !c.Sessions.Holds(c.Ctx(), c.Form.Get("ticket"), page.FormSignOut) {
				return nil, c.Refuse(http.StatusForbidden, "This form belongs to another session.")
			}
			if err := c.Sessions.End(c.Ctx()); err != nil {
				return nil, err
			}
		}
		return c.Redirect(http.StatusSeeOther, cmp.Or(page.LocalPath(c.Form.Get("next")), page.PathSignIn))
	})
}

type mailForm struct {
	people.CodeFor
	State string
	Adds  bool // the address becomes a credential of who is signed in
}

// mail is GET and POST /sign-in/mail: a person signs in, or adds the address, with a code by mail. It needs no script.
func (w *Pages) mail() page.Route {
	return route(page.PathMail, func(c *page.Context) (page.View, error) {
		q := c.R.URL.Query()
		return w.askMail(c, http.StatusOK, people.CodeFor{Next: page.LocalPath(q.Get("next")), Link: q.Get("link")}, "")
	}, func(c *page.Context) (page.View, error) {
		if state := c.Form.Get("state"); state != "" {
			return w.checkCode(c, state)
		}
		return w.sendCode(c, people.CodeFor{Mail: c.Form.Get("mail"), Next: page.LocalPath(c.Form.Get("next")), Link: c.Form.Get("link")})
	})
}

type mailStopForm struct {
	State, Mail string
	Stopped     bool
}

// mailStop is GET and POST /sign-in/mail/stop: the owner of a mail address stops codes to it, or allows them again.
func (w *Pages) mailStop() page.Route {
	refuse := func(c *page.Context, err error) (page.View, error) {
		return c.Rejected(err, func(status int, fault string) (page.View, error) {
			return nil, c.RefuseNext(status, fault, "Open the link in the mail again.")
		})
	}
	ask := func(c *page.Context, state string) (page.View, error) {
		address, stopped, err := w.People.Codes.Stopped(c.Ctx(), state)
		if err != nil {
			return refuse(c, err)
		}
		return c.Show(http.StatusOK, "mail_stop", page.Layout{Title: "Codes by mail", Body: mailStopForm{state, address, stopped}}, "")
	}
	return route(people.PathMailStop, func(c *page.Context) (page.View, error) { return ask(c, c.R.URL.Query().Get("state")) }, func(c *page.Context) (page.View, error) {
		state := c.Form.Get("state")
		err := w.People.Codes.Stop(c.Ctx(), state, c.Form.Get("act") == "stop")
		if err != nil {
			return refuse(c, err)
		}
		return ask(c, state)
	})
}

func (w *Pages) askMail(c *page.Context, status int, to people.CodeFor, fault string) (page.View, error) {
	if !w.People.Notices.HasMail() {
		return nil, c.RefuseNext(http.StatusNotFound, "This service does not send codes by mail.", "Sign in another way.")
	}
	return c.Show(status, "mail", page.Layout{Title: "Get a code by mail", Fault: fault, Body: mailForm{CodeFor: to}}, "")
}

func (w *Pages) sendCode(c *page.Context, to people.CodeFor) (page.View, error) {
	state, err := w.People.Codes.Send(c.Ctx(), c.Address(c.R), to)
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) { return w.askMail(c, status, to, fault) })
	}
	return askCodeOf(c, http.StatusOK, to, state, "")
}

func askCodeOf(c *page.Context, status int, to people.CodeFor, state, fault string) (page.View, error) {
	f := mailForm{CodeFor: to, State: state, Adds: !to.User.IsZero()}
	return c.Show(status, "mail", page.Layout{Title: "Enter the code", Fault: fault, Body: f}, "")
}

func (w *Pages) checkCode(c *page.Context, state string) (page.View, error) {
	to, err := w.People.Codes.Read(state)
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) {
			return w.askMail(c, status, people.CodeFor{}, fault)
		})
	}
	adds := !to.User.IsZero()
	if adds && (c.Person == nil || c.Person.User == nil || c.Person.User.ID != to.User) {
		return nil, c.RefuseNext(http.StatusForbidden, page.Stale, "Sign in and start again.")
	}
	_, pr, err := w.People.Codes.Check(c.Ctx(), c.Address(c.R), state, c.Form.Get("code"))
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) { return askCodeOf(c, status, to, state, fault) })
	}
	if adds {
		return w.addCredential(c, pr)
	}
	return w.admitCredential(c, pr, c.Clock(), to.Next, to.Link)
}

// provider returns the name of the provider, "" where there is none: the provider leads back to the public address alone.
func (w *Pages) provider(c *page.Context) string {
	u, err := url.Parse(c.PublicURL)
	if err != nil || !strings.EqualFold(c.R.Host, u.Host) {
		return ""
	}
	return w.People.Provider.Name()
}

// needFresh are the pages for which a sign-in must be a fresh proof.
var needFresh = []string{page.PathAuthorize, page.PathDevice, page.PathCLI, page.PathConfirm}

// oidc is POST /sign-in/oidc: a person signs in, or proves who they are, with an account of the provider.
func (w *Pages) oidc() page.Route {
	return route(page.PathOIDC, nil, func(c *page.Context) (page.View, error) {
		f := people.OIDCFor{Next: page.LocalPath(c.Form.Get("next")), Link: c.Form.Get("link")}
		path, _, _ := strings.Cut(f.Next, "?")
		f.Proves = slices.Contains(needFresh, path)
		if c.Person != nil && c.Person.User != nil {
			f.User, f.Proves = c.Person.User.ID, true
		}
		return w.beginOIDC(c, f, w.asking(c, f.Next))
	})
}

func (w *Pages) beginOIDC(c *page.Context, f people.OIDCFor, again func(status int, fault string) (page.View, error)) (page.View, error) {
	s, err := w.People.Provider.Begin(c.Ctx(), c.Address(c.R), f)
	if err != nil {
		return c.Rejected(err, again)
	}
	http.SetCookie(c.W, oidcCookie(c, s.Cookie, int(s.Life.Seconds())))
	return leaveFor(c, s.URL, w.People.Provider.Name())
}

// oidcCookie binds what comes back from the provider to the browser that went there. It is Lax, as the way back is one from another site.
func oidcCookie(c *page.Context, value string, maxAge int) *http.Cookie {
	cookie := c.Sessions.CookieBeside("oidc")
	cookie.Value, cookie.MaxAge = value, maxAge
	return cookie
}

// oidcBack is GET /sign-in/oidc/callback: the browser comes back from the provider.
func (w *Pages) oidcBack() page.Route {
	return route(people.PathOIDC, func(c *page.Context) (page.View, error) {
		cookie := ""
		if sent, err := c.R.Cookie(oidcCookie(c, "", 0).Name); err == nil {
			cookie = sent.Value
		}
		http.SetCookie(c.W, oidcCookie(c, "", -1))
		f, pr, provedAt, err := w.People.Provider.Finish(c.Ctx(), c.Address(c.R), cookie, c.R.URL.Query())
		c.At = f.Next
		again := w.asking(c, f.Next)
		switch {
		case err != nil:
			return c.Rejected(err, again)
		case f.User.IsZero():
			if !provedAt.IsZero() {
				provedAt = c.Clock().Add(-time.Since(provedAt)) // by the clock of the service, which a sandbox may have moved
			}
			return w.admitCredential(c, pr, provedAt, f.Next, f.Link)
		case c.Person == nil || c.Person.User == nil || c.Person.User.ID != f.User:
			return again(http.StatusForbidden, "You signed out or signed in as another person. Start again.")
		case f.Adds:
			return w.addCredential(c, pr)
		default:
			return w.confirmCredential(c, pr, f.Next, again)
		}
	}, nil)
}

func (w *Pages) confirmCredential(c *page.Context, pr people.Proof, next string, again func(status int, fault string) (page.View, error)) (page.View, error) {
	return noteProof(c, pr.Kind, next, w.People.Proofs.Confirm(c.Ctx(), c.Person.User.ID, pr), again)
}

// noteProof notes a proof of the signed-in person, and leads to the page next. again shows the form for err.
func noteProof(c *page.Context, kind, next string, err error, again func(status int, fault string) (page.View, error)) (page.View, error) {
	if err == nil {
		err = c.Sessions.Renew(c.Ctx())
	}
	if err != nil {
		return c.Rejected(err, again)
	}
	c.Sessions.NoteProof(c.Ctx(), kind, c.Clock())
	return c.Redirect(http.StatusSeeOther, cmp.Or(next, page.PathSecurity))
}

// offerWallets adds that form to a page, with its script, where a wallet can sign: its text names the public host.
func offerWallets(c *page.Context, s *page.Layout, form page.Wallets) {
	if u, err := url.Parse(c.PublicURL); err == nil && strings.EqualFold(c.R.Host, u.Host) {
		s.Wallets, s.Wallet = form, true
	}
}

type signing struct {
	people.WalletText
	Wallet string // name of the wallet in the browser
	Back   string
}

// wallet is POST /sign-in/wallet: with an address it answers the text to sign, with a signature it signs in, adds or proves.
func (w *Pages) wallet() page.Route {
	return route(page.PathWallet, nil, func(c *page.Context) (page.View, error) {
		if state := c.Form.Get("state"); state != "" {
			return w.finishWallet(c, state)
		}
		f := people.WalletFor{Next: page.LocalPath(c.Form.Get("next")), Link: c.Form.Get("link")}
		if c.Person != nil && c.Person.User != nil {
			f.User, f.Proves = c.Person.User.ID, true
		}
		return w.beginWallet(c, f, w.asking(c, f.Next))
	})
}

func (w *Pages) beginWallet(c *page.Context, f people.WalletFor, again func(status int, fault string) (page.View, error)) (page.View, error) {
	t, err := w.People.Wallets.Begin(c.Ctx(), c.Address(c.R), c.Form.Get("address"), f)
	if err != nil {
		return c.Rejected(err, again)
	}
	return showText(c, http.StatusOK, f, t, "")
}

func showText(c *page.Context, status int, f people.WalletFor, t people.WalletText, fault string) (page.View, error) {
	back := page.PathSignIn
	switch {
	case f.Adds:
		back = page.PathSecurity
	case f.Proves:
		back = page.PathConfirm
	}
	if f.Next != "" && !f.Adds {
		back += "?" + url.Values{"next": {f.Next}}.Encode()
	}
	return c.Show(status, "wallet", page.Layout{
		Title: "Sign with the wallet", Fault: fault, Body: signing{t, c.Form.Get("wallet"), back}, Wallet: true,
	}, "")
}

func (w *Pages) finishWallet(c *page.Context, state string) (page.View, error) {
	f, t, err := w.People.Wallets.Read(state)
	again := w.asking(c, f.Next)
	if err != nil {
		return c.Rejected(err, again)
	}
	if !f.User.IsZero() && (c.Person == nil || c.Person.User == nil || c.Person.User.ID != f.User) {
		return again(http.StatusForbidden, "You signed out or signed in as another person. Start again.")
	}
	_, pr, err := w.People.Wallets.Finish(c.Ctx(), c.Address(c.R), state, c.Form.Get("signature"))
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) { return showText(c, status, f, t, fault) })
	}
	switch {
	case f.Adds:
		return w.addCredential(c, pr)
	case f.Proves:
		return w.confirmCredential(c, pr, f.Next, func(status int, fault string) (page.View, error) {
			return w.Confirm(c, status, page.ConfirmWhy, f.Next, fault)
		})
	default:
		return w.admitCredential(c, pr, c.Clock(), f.Next, f.Link)
	}
}

// admitCredential signs a person in with what they proved at a time, zero for an unknown one. A person who is not known is asked whether to make an account: somebody who
// has one would get a second one else.
func (w *Pages) admitCredential(c *page.Context, pr people.Proof, at time.Time, next, link string) (page.View, error) {
	if link != "" {
		next = page.PathJoin + "?" + url.Values{"link": {link}}.Encode()
	}
	u, err := w.People.Proofs.SignIn(c.Ctx(), pr)
	if session.IsUnknown(err) {
		return w.askNewcomer(c, pr, next, link)
	}
	if err == nil {
		err = admitUser(c, u, pr.Kind, toll.Address{})
		c.Sessions.NoteProof(c.Ctx(), pr.Kind, at)
		c.Sessions.Shorten(c.Ctx(), pr)
	}
	if err != nil {
		return c.Rejected(err, w.asking(c, next))
	}
	return c.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(c)))
}

type newcomer struct {
	people.Proof
	State, Next string
	Given       string // name that was typed
	Workspace   string // the same for the workspace
	Joins       bool   // an invitation names the workspace
}

func (w *Pages) askNewcomer(c *page.Context, pr people.Proof, next, link string) (page.View, error) {
	state, err := w.People.Proofs.Keep(c.Ctx(), pr, link)
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) {
			return nil, c.RefuseNext(status, fault, "There is no account for "+pr.Name+".")
		})
	}
	return showNewcomer(c, http.StatusOK, newcomer{Proof: pr, State: state, Next: next, Joins: link != ""}, "")
}

func showNewcomer(c *page.Context, status int, f newcomer, fault string) (page.View, error) {
	return c.Show(status, "newcomer", page.Layout{Title: "Create an account?", Fault: fault, Body: f}, "")
}

func (w *Pages) signUpCredential(c *page.Context, state, next string) (page.View, error) {
	pr, err := w.People.Proofs.Read(state)
	if err != nil {
		return c.Rejected(err, w.asking(c, next))
	}
	u, kind, at, err := w.People.Proofs.SignUp(c.Ctx(), c.Address(c.R), state, c.Form.Get("name"), c.Form.Get("workspace"))
	if err == nil {
		err = admitUser(c, u, kind, at)
		c.Sessions.Shorten(c.Ctx(), pr)
	}
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) {
			return showNewcomer(c, status, newcomer{Proof: pr, State: state, Next: next, Given: c.Form.Get("name"), Workspace: c.Form.Get("workspace"), Joins: strings.HasPrefix(next, page.PathJoin)}, fault)
		})
	}
	return c.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(c)))
}

func (w *Pages) addCredential(c *page.Context, pr people.Proof) (page.View, error) {
	c.At = page.PathSecurity
	if err := w.mayAdd(c); err != nil {
		return nil, err
	}
	err := w.People.Proofs.Add(c.Ctx(), c.Person.User.ID, pr)
	if err == nil {
		err = c.Sessions.Renew(c.Ctx())
	}
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) { return w.showSecurity(c, status, security{}, fault) })
	}
	return w.showSecurity(c, http.StatusOK, security{Done: kindTexts[pr.Kind] + " " + pr.Name + " is added."}, "")
}

// mayAdd is [hasProof], also for a person who has a code by mail alone: the first credential needs no other one.
func (w *Pages) mayAdd(c *page.Context) error {
	if c.Person.Proof == people.Mail && c.Clock().Sub(c.Person.Since) < session.RecentTime {
		kinds, err := w.People.Credentials.Has(c.Ctx(), c.Person.User.ID)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(kinds, func(k string) bool { return k != people.Mail && k != people.Recovery }) {
			return nil
		}
	}
	return page.NeedProof(c, page.ConfirmWhy)
}
