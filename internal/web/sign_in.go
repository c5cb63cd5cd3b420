package web

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
)

// formSignOut is the first word of what the ticket of that form says.
const formSignOut = "sign-out"

// places are the pages to which a sign-in or sign-out may lead.
var places = []string{
	PathSignIn, PathAuthorize, PathDevice, PathCLI, PathAccess, PathEnroll, PathSignUp, PathJoin, PathRecover, PathConfirm, PathSecurity, PathMail, PathExplore,
	PathReceipts,
}

// placeSyntax are the pages of a workspace, and those of plans and agents, to which it may lead.
var placeSyntax = regexp.MustCompile(`^/(w/0x[0-9a-fA-F]{4,40}(/[A-Za-z0-9-]+)*|[ap]/[0-9]{1,78})$`)

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

// place returns the path and query of a page of ours, "" for everything else.
func place(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || u.RawPath != "" || !slices.Contains(places, u.Path) && !placeSyntax.MatchString(u.Path) {
		return ""
	}
	if u.RawQuery == "" {
		return u.Path
	}
	return u.Path + "?" + u.RawQuery
}

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
	return w.page(func(v *visit) {
		next := place(v.r.URL.Query().Get("next"))
		if v.person != nil && next == "" {
			v.redirect(http.StatusSeeOther, firstPage(v))
			return
		}
		askSignIn(v, http.StatusOK, "", next, "")
	}, func(v *visit) {
		next := place(v.form.Get("next"))
		if v.form.Get("answer") != "" {
			signInPasskey(v, next)
			return
		}
		if v.form.Get("api_key") == "" && v.form.Get("login")+v.form.Get("password") != "" {
			signInPassword(v, next)
			return
		}
		p, err := w.admit(v.ctx(), v.form.Get("api_key"))
		if err != nil {
			badKey(v, err, func(status int, fault string) { askSignIn(v, status, "", next, fault) })
			return
		}
		v.person = p
		v.redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
	})
}

// firstPage is the page to which a sign-in leads that was for no other: the overview of the workspace.
func firstPage(v *visit) string {
	if v.person.Address.IsZero() {
		return PathSecurity
	}
	return v.base()
}

// mayRegister reports whether everybody may sign up.
func (w *Web) mayRegister() bool { return w.People.SignUps.Registration == people.Open }

// signInPasskey signs a person in with the answer of a browser.
func signInPasskey(v *visit, next string) {
	u, err := v.w.People.Passkeys.SignIn(v.ctx(), v.w.Address(v.r), v.form.Get("state"), v.form.Get("answer"))
	if err == nil {
		err = v.w.admitUser(v, u, people.Passkey, toll.Address{})
	}
	if v.faulty(err, func(status int, fault string) { askSignIn(v, status, "", next, fault) }) {
		return
	}
	v.redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// signInPassword signs a person in with a login name and a password.
func signInPassword(v *visit, next string) {
	u, err := v.w.People.Passwords.SignIn(v.ctx(), v.w.Address(v.r), v.form.Get("login"), v.form.Get("password"))
	if err == nil {
		err = v.w.admitUser(v, u, people.Password, toll.Address{})
	}
	if v.faulty(err, func(status int, fault string) { askSignIn(v, status, "", next, fault) }) {
		return
	}
	v.redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// faulty answers an error, and reports whether there was one: again shows the form once more for what the person can mend.
func (v *visit) faulty(err error, again func(status int, fault string)) bool {
	if err == nil {
		return false
	}
	e := toll.AsError(err)
	status := e.HTTPStatus()
	if status >= http.StatusInternalServerError {
		v.fail(err)
		return true
	}
	if e.RetryAfterSecs > 0 {
		v.rw.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	}
	again(status, e.Text())
	return true
}

// askSignIn shows the form; why says what for, fault what was wrong with the last one.
func askSignIn(v *visit, status int, why, next, fault string) {
	f := signIn{Why: why, Next: next, Fault: fault != "", Login: v.form.Get("login"), Open: v.w.mayRegister()}
	f.Mail, f.Weak = v.w.People.Notices.HasMail(), v.person != nil && v.person.Proof == people.Mail
	f.NoPasswords = v.w.People.Credentials.NoPasswords
	s := shown{Title: "Sign in", Fault: fault}
	var err error
	if f.Passkey, s.Passkey, err = passkey(v, v.w.People.Passkeys.BeginSignIn); err != nil {
		v.fail(err)
		return
	}
	f.Elsewhere = elsewhere(v, PathSignIn)
	f.OIDC = oidc(v)
	s.Body = f
	offerWallets(v, &s, wallets{Label: "Sign in with", Next: next})
	v.show(status, "sign_in", s, "")
}

// elsewhere is a page at the public address, on a page of another address; "" for none, and where browsers take passkeys nowhere.
func elsewhere(v *visit, path string) string {
	u, err := url.Parse(v.w.PublicURL)
	if err != nil || !v.w.People.Passkeys.Supported() || strings.EqualFold(v.r.Host, u.Host) {
		return ""
	}
	return v.w.PublicURL + path
}

// origin is where a page of another host sends this browser back: the public address, or the name of this machine under
// which the browser opened the page, which has its cookies.
func (v *visit) origin() string {
	u, err := url.Parse(v.w.PublicURL)
	if err != nil || !toll.IsLoopback(u.Hostname()) || !toll.IsLoopback((&url.URL{Host: v.r.Host}).Hostname()) {
		return v.w.PublicURL
	}
	u.Host = v.r.Host
	return u.String()
}

// passkey asks for one with the script of the page, where browsers take them: at the public host alone.
func passkey(v *visit, begin func() (people.Ceremony, error)) (people.Ceremony, bool, error) {
	u, err := url.Parse(v.w.PublicURL)
	if err != nil || !v.w.People.Passkeys.Supported() || !strings.EqualFold(v.r.Host, u.Host) {
		return people.Ceremony{}, false, err
	}
	c, err := begin()
	return c, err == nil, err
}

// badKey answers a sign-in that failed: again tells the person what was wrong with the key, and the rest is our fault.
func badKey(v *visit, err error, again func(status int, fault string)) {
	e := toll.AsError(err)
	if status := e.HTTPStatus(); status < http.StatusInternalServerError {
		again(status, keyFault(e))
		return
	}
	v.fail(err)
}

// keyFault says what is wrong with a key that a person pasted. The texts of the API speak of
// headers.
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
	return w.page(nil, func(v *visit) {
		if v.person != nil {
			if !w.holds(v.ctx(), v.form.Get("ticket"), formSignOut) {
				v.refuse(http.StatusForbidden, "The form is not one of this session.")
				return
			}
			if err := w.sessions.Destroy(v.ctx()); err != nil {
				v.fail(err)
				return
			}
		}
		v.redirect(http.StatusSeeOther, cmp.Or(place(v.form.Get("next")), PathSignIn))
	})
}
