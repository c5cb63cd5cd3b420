package web

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

// signIn is the form with which a person signs in.
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

// SignIn is GET and POST /sign-in: a person who has an API key signs in.
func (w *Web) SignIn() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		next := page.LocalPath(v.R.URL.Query().Get("next"))
		if v.Person != nil && next == "" {
			return v.Redirect(http.StatusSeeOther, firstPage(v))
		}
		return askSignIn(v, http.StatusOK, "", next, "")
	}, func(v *page.Context) (page.View, error) {
		next := page.LocalPath(v.Form.Get("next"))
		if v.Form.Get("answer") != "" {
			return signInPasskey(v, next)
		}
		if v.Form.Get("api_key") == "" && v.Form.Get("login")+v.Form.Get("password") != "" {
			return signInPassword(v, next)
		}
		p, err := v.Sessions.AdmitKey(v.Ctx(), v.Form.Get("api_key"))
		if err != nil {
			return badKey(v, err, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", next, fault) })
		}
		v.Person = p
		return v.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
	})
}

// firstPage is the page to which a sign-in leads that was for no other: the overview of the workspace.
func firstPage(v *page.Context) string {
	if v.Person.Address.IsZero() {
		return page.PathSecurity
	}
	return v.Base()
}

// mayRegister reports whether everybody may sign up.
func (w *Web) mayRegister() bool { return w.People.SignUps.Registration == people.Open }

// signInPasskey signs a person in with the answer of a browser.
func signInPasskey(v *page.Context, next string) (page.View, error) {
	u, err := deps(v).People.Passkeys.SignIn(v.Ctx(), v.Address(v.R), v.Form.Get("state"), v.Form.Get("answer"))
	if err == nil {
		err = admitUser(v, u, people.Passkey, toll.Address{})
	}
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", next, fault) })
	}
	return v.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// signInPassword signs a person in with a login name and a password.
func signInPassword(v *page.Context, next string) (page.View, error) {
	u, err := deps(v).People.Passwords.SignIn(v.Ctx(), v.Address(v.R), v.Form.Get("login"), v.Form.Get("password"))
	if err == nil {
		err = admitUser(v, u, people.Password, toll.Address{})
	}
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", next, fault) })
	}
	return v.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// askSignIn shows the form; why says what for, fault what was wrong with the last one.
func askSignIn(v *page.Context, status int, why, next, fault string) (page.View, error) {
	f := signIn{Why: why, Next: next, Fault: fault != "", Login: v.Form.Get("login"), Open: deps(v).mayRegister()}
	f.Mail, f.Weak = deps(v).People.Notices.HasMail(), v.Person != nil && v.Person.Proof == people.Mail
	f.NoPasswords = deps(v).People.Credentials.NoPasswords
	s := page.Layout{Title: "Sign in", Fault: fault}
	var err error
	if f.Passkey, s.Passkey, err = passkey(v, deps(v).People.Passkeys.BeginSignIn); err != nil {
		return nil, err
	}
	f.Elsewhere = elsewhere(v, page.PathSignIn)
	f.OIDC = oidc(v)
	s.Body = f
	offerWallets(v, &s, page.Wallets{Label: "Sign in with", Next: next})
	return v.Show(status, "sign_in", s, "")
}

// elsewhere is a page at the public address, on a page of another address; "" for none, and where browsers take passkeys nowhere.
func elsewhere(v *page.Context, path string) string {
	u, err := url.Parse(v.PublicURL)
	if err != nil || !deps(v).People.Passkeys.Supported() || strings.EqualFold(v.R.Host, u.Host) {
		return ""
	}
	return v.PublicURL + path
}

// passkey asks for one with the script of the page, where browsers take them: at the public host alone.
func passkey(v *page.Context, begin func() (people.Ceremony, error)) (people.Ceremony, bool, error) {
	u, err := url.Parse(v.PublicURL)
	if err != nil || !deps(v).People.Passkeys.Supported() || !strings.EqualFold(v.R.Host, u.Host) {
		return people.Ceremony{}, false, err
	}
	c, err := begin()
	return c, err == nil, err
}

// badKey answers a sign-in that failed: again tells the person what was wrong with the key, and the rest is our fault.
func badKey(v *page.Context, err error, again func(status int, fault string) (page.View, error)) (page.View, error) {
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
		return "This API key is unknown, expired or revoked. Paste another one."
	case toll.CodeKeyWrongEnvironment:
		return "This API key is of the other environment. Paste one of this service."
	case toll.CodeKeyForeign:
		if e.Hint != "" { // it tells what was pasted
			return e.Hint
		}
		return "This API key was not made by this service. Paste one that was."
	}
	return "This is not an API key. Paste the whole key, from its prefix to its last character, without the word Bearer."
}

// SignOut is POST /sign-out.
func (w *Web) SignOut() http.Handler {
	return w.page(nil, func(v *page.Context) (page.View, error) {
		if v.Person != nil {
			if !v.Sessions.Holds(v.Ctx(), v.Form.Get("ticket"), page.FormSignOut) {
				return nil, v.Refuse(http.StatusForbidden, "The form is not one of this session.")
			}
			if err := v.Sessions.End(v.Ctx()); err != nil {
				return nil, err
			}
		}
		return v.Redirect(http.StatusSeeOther, cmp.Or(page.LocalPath(v.Form.Get("next")), page.PathSignIn))
	})
}

// mailForm asks for a mail address or, with State, for the code that was sent to it.
type mailForm struct {
	people.CodeFor
	State string
	Adds  bool // the address becomes a credential of who is signed in
}

// Mail is GET and POST /sign-in/mail: a person signs in, or adds the address, with a code by mail. It needs no script.
func (w *Web) Mail() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		q := v.R.URL.Query()
		return askMail(v, http.StatusOK, people.CodeFor{Next: page.LocalPath(q.Get("next")), Link: q.Get("link")}, "")
	}, func(v *page.Context) (page.View, error) {
		if state := v.Form.Get("state"); state != "" {
			return checkCode(v, state)
		}
		return sendCode(v, people.CodeFor{Mail: v.Form.Get("mail"), Next: page.LocalPath(v.Form.Get("next")), Link: v.Form.Get("link")})
	})
}

// mailStopForm asks whether codes to an address stop.
type mailStopForm struct {
	State, Mail string
	Stopped     bool
}

// MailStop is GET and POST /sign-in/mail/stop: the owner of a mail address stops codes to it, or allows them again.
func (w *Web) MailStop() http.Handler {
	ask := func(v *page.Context, state string) (page.View, error) {
		address, stopped, err := w.People.Codes.Stopped(v.Ctx(), state)
		if err != nil {
			return v.Rejected(err, func(status int, fault string) (page.View, error) {
				return nil, v.RefuseNext(status, fault, "Open the link in the mail again.")
			})
		}
		return v.Show(http.StatusOK, "mail_stop", page.Layout{Title: "Codes by mail", Body: mailStopForm{state, address, stopped}}, "")
	}
	return w.page(func(v *page.Context) (page.View, error) { return ask(v, v.R.URL.Query().Get("state")) }, func(v *page.Context) (page.View, error) {
		state := v.Form.Get("state")
		err := w.People.Codes.Stop(v.Ctx(), state, v.Form.Get("act") == "stop")
		if err != nil {
			return v.Rejected(err, func(status int, fault string) (page.View, error) {
				return nil, v.RefuseNext(status, fault, "Open the link in the mail again.")
			})
		}
		return ask(v, state)
	})
}

func askMail(v *page.Context, status int, to people.CodeFor, fault string) (page.View, error) {
	if !deps(v).People.Notices.HasMail() {
		return nil, v.RefuseNext(http.StatusNotFound, "This service sends no codes by mail.", "Sign in another way.")
	}
	return v.Show(status, "mail", page.Layout{Title: "Get a code by mail", Fault: fault, Body: mailForm{CodeFor: to}}, "")
}

// sendCode sends a code and asks for it.
func sendCode(v *page.Context, to people.CodeFor) (page.View, error) {
	state, err := deps(v).People.Codes.Send(v.Ctx(), v.Address(v.R), to)
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askMail(v, status, to, fault) })
	}
	return askCodeOf(v, http.StatusOK, to, state, "")
}

func askCodeOf(v *page.Context, status int, to people.CodeFor, state, fault string) (page.View, error) {
	f := mailForm{CodeFor: to, State: state, Adds: !to.User.IsZero()}
	return v.Show(status, "mail", page.Layout{Title: "Type the code", Fault: fault, Body: f}, "")
}

// checkCode signs in, or adds the address, with a code that was typed.
func checkCode(v *page.Context, state string) (page.View, error) {
	to, err := deps(v).People.Codes.Read(state)
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askMail(v, status, people.CodeFor{}, fault) })
	}
	adds := !to.User.IsZero()
	if adds && (v.Person == nil || v.Person.User == nil || v.Person.User.ID != to.User) {
		return nil, v.RefuseNext(http.StatusForbidden, stale, "Sign in and start again.")
	}
	_, pr, err := deps(v).People.Codes.Check(v.Ctx(), v.Address(v.R), state, v.Form.Get("code"))
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askCodeOf(v, status, to, state, fault) })
	}
	if adds {
		return addCredential(v, pr)
	}
	return admitCredential(v, pr, v.Clock(), to.Next, to.Link)
}

// oidc returns the name of the provider, "" where there is none: the provider leads back to the public address alone.
func oidc(v *page.Context) string {
	u, err := url.Parse(v.PublicURL)
	if err != nil || !strings.EqualFold(v.R.Host, u.Host) {
		return ""
	}
	return deps(v).People.Provider.Name()
}

// needFresh are the pages for which a sign-in must be a fresh proof.
var needFresh = []string{page.PathAuthorize, page.PathDevice, page.PathCLI, page.PathConfirm}

// OIDC is POST /sign-in/oidc: a person signs in, or proves who they are, with an account of the provider.
func (w *Web) OIDC() http.Handler {
	return w.page(nil, func(v *page.Context) (page.View, error) {
		f := people.OIDCFor{Next: page.LocalPath(v.Form.Get("next")), Link: v.Form.Get("link")}
		path, _, _ := strings.Cut(f.Next, "?")
		f.Proves = slices.Contains(needFresh, path)
		if v.Person != nil && v.Person.User != nil {
			f.User, f.Proves = v.Person.User.ID, true
		}
		return beginOIDC(v, f, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", f.Next, fault) })
	})
}

func beginOIDC(v *page.Context, f people.OIDCFor, again func(status int, fault string) (page.View, error)) (page.View, error) {
	s, err := deps(v).People.Provider.Begin(v.Ctx(), v.Address(v.R), f)
	if err != nil {
		return v.Rejected(err, again)
	}
	http.SetCookie(v.W, deps(v).oidcCookie(s.Cookie, int(s.Life.Seconds())))
	return leaveFor(v, s.URL, deps(v).People.Provider.Name())
}

// oidcCookie binds what comes back from the provider to the browser that went there. It is Lax, as the way back is one from another site.
func (w *Web) oidcCookie(value string, maxAge int) *http.Cookie {
	c := w.Sessions.CookieBeside("oidc")
	c.Value, c.MaxAge = value, maxAge
	return c
}

// OIDCBack is GET /sign-in/oidc/callback: the browser comes back from the provider.
func (w *Web) OIDCBack() http.Handler {
	return w.page(func(v *page.Context) (page.View, error) {
		cookie := ""
		if c, err := v.R.Cookie(w.oidcCookie("", 0).Name); err == nil {
			cookie = c.Value
		}
		http.SetCookie(v.W, w.oidcCookie("", -1))
		f, pr, provedAt, err := w.People.Provider.Finish(v.Ctx(), w.Address(v.R), cookie, v.R.URL.Query())
		v.At = f.Next
		again := func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", f.Next, fault) }
		switch {
		case err != nil:
			return v.Rejected(err, again)
		case f.User.IsZero():
			if !provedAt.IsZero() {
				provedAt = w.Clock().Add(-time.Since(provedAt)) // by the clock of the service, which a sandbox may have moved
			}
			return admitCredential(v, pr, provedAt, f.Next, f.Link)
		case v.Person == nil || v.Person.User == nil || v.Person.User.ID != f.User:
			return again(http.StatusForbidden, "Another person is signed in now than when this began. Start again.")
		case f.Adds:
			return addCredential(v, pr)
		default:
			return confirmCredential(v, pr, f.Next, again)
		}
	}, nil)
}

// confirmCredential notes that who is signed in proved themselves once more.
func confirmCredential(v *page.Context, pr people.Proof, next string, again func(status int, fault string) (page.View, error)) (page.View, error) {
	err := deps(v).People.Proofs.Confirm(v.Ctx(), v.Person.User.ID, pr)
	if err == nil {
		err = v.Sessions.Renew(v.Ctx())
	}
	if err != nil {
		return v.Rejected(err, again)
	}
	v.Sessions.NoteProof(v.Ctx(), pr.Kind, v.Clock())
	return v.Redirect(http.StatusSeeOther, cmp.Or(next, page.PathSecurity))
}

// offerWallets adds that form to a page, with its script, where a wallet can sign: its text names the public host.
func offerWallets(v *page.Context, s *page.Layout, form page.Wallets) {
	if u, err := url.Parse(v.PublicURL); err == nil && strings.EqualFold(v.R.Host, u.Host) {
		s.Wallets, s.Wallet = form, true
	}
}

// signing shows the text that a wallet signs.
type signing struct {
	people.WalletText
	Wallet string // name of the wallet in the browser
	Back   string
}

// Wallet is POST /sign-in/wallet: with an address it answers the text to sign, with a signature it signs in, adds or proves.
func (w *Web) Wallet() http.Handler {
	return w.page(nil, func(v *page.Context) (page.View, error) {
		if state := v.Form.Get("state"); state != "" {
			return finishWallet(v, state)
		}
		f := people.WalletFor{Next: page.LocalPath(v.Form.Get("next")), Link: v.Form.Get("link")}
		if v.Person != nil && v.Person.User != nil {
			f.User, f.Proves = v.Person.User.ID, true
		}
		return beginWallet(v, f, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", f.Next, fault) })
	})
}

func beginWallet(v *page.Context, f people.WalletFor, again func(status int, fault string) (page.View, error)) (page.View, error) {
	t, err := deps(v).People.Wallets.Begin(v.Ctx(), v.Address(v.R), v.Form.Get("address"), f)
	if err != nil {
		return v.Rejected(err, again)
	}
	return showText(v, http.StatusOK, f, t, "")
}

func showText(v *page.Context, status int, f people.WalletFor, t people.WalletText, fault string) (page.View, error) {
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
	return v.Show(status, "wallet", page.Layout{
		Title: "Sign with the wallet", Fault: fault, Body: signing{t, v.Form.Get("wallet"), back}, Wallet: true,
	}, "")
}

// finishWallet does what a text was for, with its signature.
func finishWallet(v *page.Context, state string) (page.View, error) {
	f, t, err := deps(v).People.Wallets.Read(state)
	again := func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", f.Next, fault) }
	if err != nil {
		return v.Rejected(err, again)
	}
	if !f.User.IsZero() && (v.Person == nil || v.Person.User == nil || v.Person.User.ID != f.User) {
		return again(http.StatusForbidden, "Another person is signed in now than when this began. Start again.")
	}
	_, pr, err := deps(v).People.Wallets.Finish(v.Ctx(), v.Address(v.R), state, v.Form.Get("signature"))
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return showText(v, status, f, t, fault) })
	}
	switch {
	case f.Adds:
		return addCredential(v, pr)
	case f.Proves:
		return confirmCredential(v, pr, f.Next, func(status int, fault string) (page.View, error) {
			return askConfirm(v, status, confirmWhy, f.Next, fault)
		})
	default:
		return admitCredential(v, pr, v.Clock(), f.Next, f.Link)
	}
}

// admitCredential signs a person in with what they proved at a time, zero for an unknown one. A person who is not known is asked whether to make an account: somebody who
// has one would get a second one else.
func admitCredential(v *page.Context, pr people.Proof, at time.Time, next, link string) (page.View, error) {
	if link != "" {
		next = page.PathJoin + "?" + url.Values{"link": {link}}.Encode()
	}
	u, err := deps(v).People.Proofs.SignIn(v.Ctx(), pr)
	if session.IsUnknown(err) {
		return askNewcomer(v, pr, next, link)
	}
	if err == nil {
		err = admitUser(v, u, pr.Kind, toll.Address{})
		v.Sessions.NoteProof(v.Ctx(), pr.Kind, at)
		v.Sessions.Shorten(v.Ctx(), pr)
	}
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", next, fault) })
	}
	return v.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// newcomer asks a person who proved something whether to make an account.
type newcomer struct {
	people.Proof
	State, Next string
	Given       string // name that was typed
}

func askNewcomer(v *page.Context, pr people.Proof, next, link string) (page.View, error) {
	state, err := deps(v).People.Proofs.Keep(v.Ctx(), pr, link)
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) {
			return nil, v.RefuseNext(status, fault, "Nobody has an account with "+pr.Name+".")
		})
	}
	return showNewcomer(v, http.StatusOK, newcomer{Proof: pr, State: state, Next: next}, "")
}

func showNewcomer(v *page.Context, status int, f newcomer, fault string) (page.View, error) {
	return v.Show(status, "newcomer", page.Layout{Title: "Make an account?", Fault: fault, Body: f}, "")
}

// signUpCredential makes an account of what a person proved.
func signUpCredential(v *page.Context, state, next string) (page.View, error) {
	pr, err := deps(v).People.Proofs.Read(state)
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return askSignIn(v, status, "", next, fault) })
	}
	u, kind, at, err := deps(v).People.Proofs.SignUp(v.Ctx(), v.Address(v.R), state, v.Form.Get("name"))
	if err == nil {
		err = admitUser(v, u, kind, at)
		v.Sessions.Shorten(v.Ctx(), pr)
	}
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) {
			return showNewcomer(v, status, newcomer{Proof: pr, State: state, Next: next, Given: v.Form.Get("name")}, fault)
		})
	}
	return v.Redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// addCredential makes what was proved a credential of who is signed in.
func addCredential(v *page.Context, pr people.Proof) (page.View, error) {
	v.At = page.PathSecurity
	if err := mayAdd(v); err != nil {
		return nil, err
	}
	err := deps(v).People.Proofs.Add(v.Ctx(), v.Person.User.ID, pr)
	if err == nil {
		err = v.Sessions.Renew(v.Ctx())
	}
	if err != nil {
		return v.Rejected(err, func(status int, fault string) (page.View, error) { return showSecurity(v, status, security{}, fault) })
	}
	return showSecurity(v, http.StatusOK, security{Done: kindTexts[pr.Kind] + " " + pr.Name + " is added."}, "")
}

// mayAdd is [hasProof], also for a person who has a code by mail alone: the first credential needs no other one.
func mayAdd(v *page.Context) error {
	if v.Person.Proof == people.Mail && v.Clock().Sub(v.Person.Since) < session.RecentTime {
		kinds, err := deps(v).People.Credentials.Has(v.Ctx(), v.Person.User.ID)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(kinds, func(k string) bool { return k != people.Mail && k != people.Recovery }) {
			return nil
		}
	}
	return hasProof(v, confirmWhy)
}
