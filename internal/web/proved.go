package web

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

// PathMail is where a person gets a code by mail, and types it.
const PathMail = "/sign-in/mail"

// PathWallet is where a person signs in with a wallet.
const PathWallet = "/sign-in/wallet"

// PathOIDC is where a person begins to sign in with an account of a provider.
const PathOIDC = "/sign-in/oidc"

// mailForm asks for a mail address or, with State, for the code that was sent to it.
type mailForm struct {
	people.CodeFor
	State string
	Adds  bool // the address becomes a credential of who is signed in
}

// Mail is GET and POST /sign-in/mail: a person signs in, or adds the address, with a code by mail. It needs no script.
func (w *Web) Mail() http.Handler {
	return w.page(func(v *visit) {
		q := v.r.URL.Query()
		askMail(v, http.StatusOK, people.CodeFor{Next: place(q.Get("next")), Link: q.Get("link")}, "")
	}, func(v *visit) {
		if state := v.form.Get("state"); state != "" {
			checkCode(v, state)
			return
		}
		sendCode(v, people.CodeFor{Mail: v.form.Get("mail"), Next: place(v.form.Get("next")), Link: v.form.Get("link")})
	})
}

// mailStopForm asks whether codes to an address stop.
type mailStopForm struct {
	State, Mail string
	Stopped     bool
}

// MailStop is GET and POST /sign-in/mail/stop: the owner of a mail address stops codes to it, or allows them again.
func (w *Web) MailStop() http.Handler {
	ask := func(v *visit, state string) {
		address, stopped, err := w.People.Codes.Stopped(v.ctx(), state)
		if v.faulty(err, func(status int, fault string) { v.refuseNext(status, fault, "Open the link in the mail again.") }) {
			return
		}
		v.show(http.StatusOK, "mail_stop", shown{Title: "Codes by mail", Body: mailStopForm{state, address, stopped}}, "")
	}
	return w.page(func(v *visit) { ask(v, v.r.URL.Query().Get("state")) }, func(v *visit) {
		state := v.form.Get("state")
		err := w.People.Codes.Stop(v.ctx(), state, v.form.Get("act") == "stop")
		if v.faulty(err, func(status int, fault string) { v.refuseNext(status, fault, "Open the link in the mail again.") }) {
			return
		}
		ask(v, state)
	})
}

func askMail(v *visit, status int, to people.CodeFor, fault string) {
	if !v.w.People.Notices.HasMail() {
		v.refuseNext(http.StatusNotFound, "This service sends no codes by mail.", "Sign in another way.")
		return
	}
	v.show(status, "mail", shown{Title: "Get a code by mail", Fault: fault, Body: mailForm{CodeFor: to}}, "")
}

// sendCode sends a code and asks for it.
func sendCode(v *visit, to people.CodeFor) {
	state, err := v.w.People.Codes.Send(v.ctx(), v.w.Address(v.r), to)
	if v.faulty(err, func(status int, fault string) { askMail(v, status, to, fault) }) {
		return
	}
	askCodeOf(v, http.StatusOK, to, state, "")
}

func askCodeOf(v *visit, status int, to people.CodeFor, state, fault string) {
	f := mailForm{CodeFor: to, State: state, Adds: !to.User.IsZero()}
	v.show(status, "mail", shown{Title: "Type the code", Fault: fault, Body: f}, "")
}

// checkCode signs in, or adds the address, with a code that was typed.
func checkCode(v *visit, state string) {
	to, err := v.w.People.Codes.Read(state)
	if v.faulty(err, func(status int, fault string) { askMail(v, status, people.CodeFor{}, fault) }) {
		return
	}
	adds := !to.User.IsZero()
	if adds && (v.person == nil || v.person.User == nil || v.person.User.ID != to.User) {
		v.refuseNext(http.StatusForbidden, stale, "Sign in and start again.")
		return
	}
	_, pr, err := v.w.People.Codes.Check(v.ctx(), v.w.Address(v.r), state, v.form.Get("code"))
	if v.faulty(err, func(status int, fault string) { askCodeOf(v, status, to, state, fault) }) {
		return
	}
	if adds {
		addCredential(v, pr)
		return
	}
	admitCredential(v, pr, v.w.Clock(), to.Next, to.Link)
}

// oidc returns the name of the provider, "" where there is none: the provider leads back to the public address alone.
func oidc(v *visit) string {
	u, err := url.Parse(v.w.PublicURL)
	if err != nil || !strings.EqualFold(v.r.Host, u.Host) {
		return ""
	}
	return v.w.People.Provider.Name()
}

// needFresh are the pages for which a sign-in must be a fresh proof.
var needFresh = []string{PathAuthorize, PathDevice, PathCLI, PathConfirm}

// OIDC is POST /sign-in/oidc: a person signs in, or proves who they are, with an account of the provider.
func (w *Web) OIDC() http.Handler {
	return w.page(nil, func(v *visit) {
		f := people.OIDCFor{Next: place(v.form.Get("next")), Link: v.form.Get("link")}
		path, _, _ := strings.Cut(f.Next, "?")
		f.Proves = slices.Contains(needFresh, path)
		if v.person != nil && v.person.User != nil {
			f.User, f.Proves = v.person.User.ID, true
		}
		beginOIDC(v, f, func(status int, fault string) { askSignIn(v, status, "", f.Next, fault) })
	})
}

func beginOIDC(v *visit, f people.OIDCFor, again func(status int, fault string)) {
	s, err := v.w.People.Provider.Begin(v.ctx(), v.w.Address(v.r), f)
	if v.faulty(err, again) {
		return
	}
	http.SetCookie(v.rw, v.w.oidcCookie(s.Cookie, int(s.Life.Seconds())))
	leaveFor(v, s.URL, v.w.People.Provider.Name())
}

// oidcCookie binds the answer of the provider to the browser. It is Lax, because the provider is another site.
func (w *Web) oidcCookie(value string, maxAge int) *http.Cookie {
	c := w.sessions.Cookie
	return &http.Cookie{
		Name: strings.Replace(c.Name, "session", "oidc", 1), Value: value, Path: "/", MaxAge: maxAge, Secure: c.Secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	}
}

// OIDCBack is GET /sign-in/oidc/callback: the browser comes back from the provider.
func (w *Web) OIDCBack() http.Handler {
	return w.page(func(v *visit) {
		cookie := ""
		if c, err := v.r.Cookie(w.oidcCookie("", 0).Name); err == nil {
			cookie = c.Value
		}
		http.SetCookie(v.rw, w.oidcCookie("", -1))
		f, pr, provedAt, err := w.People.Provider.Finish(v.ctx(), w.Address(v.r), cookie, v.r.URL.Query())
		v.at = f.Next
		again := func(status int, fault string) { askSignIn(v, status, "", f.Next, fault) }
		switch {
		case v.faulty(err, again):
		case f.User.IsZero():
			if !provedAt.IsZero() {
				provedAt = w.Clock().Add(-time.Since(provedAt)) // by the clock of the service, which a sandbox may have moved
			}
			admitCredential(v, pr, provedAt, f.Next, f.Link)
		case v.person == nil || v.person.User == nil || v.person.User.ID != f.User:
			again(http.StatusForbidden, "Another person is signed in now than when this began. Start again.")
		case f.Adds:
			addCredential(v, pr)
		default:
			confirmCredential(v, pr, f.Next, again)
		}
	}, nil)
}

// confirmCredential notes that who is signed in proved themselves once more.
func confirmCredential(v *visit, pr people.Proof, next string, again func(status int, fault string)) {
	err := v.w.People.Proofs.Confirm(v.ctx(), v.person.User.ID, pr)
	if err == nil {
		err = v.w.sessions.RenewToken(v.ctx())
	}
	if v.faulty(err, again) {
		return
	}
	v.w.proved(v.ctx(), pr.Kind, v.w.Clock())
	v.redirect(http.StatusSeeOther, cmp.Or(next, PathSecurity))
}

// wallets is a form that offers the wallets of the browser, which its script finds.
type wallets struct {
	Label      string // what each button says before the name of the wallet; "" for no form
	Next, Link string
	Act        string // what it is for, from the page of the account
	Ticket     string
}

// offerWallets adds that form to a page, with its script, where a wallet can sign: its text names the public host.
func offerWallets(v *visit, s *shown, form wallets) {
	if u, err := url.Parse(v.w.PublicURL); err == nil && strings.EqualFold(v.r.Host, u.Host) {
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
	return w.page(nil, func(v *visit) {
		if state := v.form.Get("state"); state != "" {
			finishWallet(v, state)
			return
		}
		f := people.WalletFor{Next: place(v.form.Get("next")), Link: v.form.Get("link")}
		if v.person != nil && v.person.User != nil {
			f.User, f.Proves = v.person.User.ID, true
		}
		beginWallet(v, f, func(status int, fault string) { askSignIn(v, status, "", f.Next, fault) })
	})
}

func beginWallet(v *visit, f people.WalletFor, again func(status int, fault string)) {
	t, err := v.w.People.Wallets.Begin(v.ctx(), v.w.Address(v.r), v.form.Get("address"), f)
	if v.faulty(err, again) {
		return
	}
	showText(v, http.StatusOK, f, t, "")
}

func showText(v *visit, status int, f people.WalletFor, t people.WalletText, fault string) {
	back := PathSignIn
	switch {
	case f.Adds:
		back = PathSecurity
	case f.Proves:
		back = PathConfirm
	}
	if f.Next != "" && !f.Adds {
		back += "?" + url.Values{"next": {f.Next}}.Encode()
	}
	v.show(status, "wallet", shown{
		Title: "Sign with the wallet", Fault: fault, Body: signing{t, v.form.Get("wallet"), back}, Wallet: true,
	}, "")
}

// finishWallet does what a text was for, with its signature.
func finishWallet(v *visit, state string) {
	f, t, err := v.w.People.Wallets.Read(state)
	again := func(status int, fault string) { askSignIn(v, status, "", f.Next, fault) }
	if v.faulty(err, again) {
		return
	}
	if !f.User.IsZero() && (v.person == nil || v.person.User == nil || v.person.User.ID != f.User) {
		again(http.StatusForbidden, "Another person is signed in now than when this began. Start again.")
		return
	}
	_, pr, err := v.w.People.Wallets.Finish(v.ctx(), v.w.Address(v.r), state, v.form.Get("signature"))
	if v.faulty(err, func(status int, fault string) { showText(v, status, f, t, fault) }) {
		return
	}
	switch {
	case f.Adds:
		addCredential(v, pr)
	case f.Proves:
		confirmCredential(v, pr, f.Next, func(status int, fault string) { askConfirm(v, status, confirmWhy, f.Next, fault) })
	default:
		admitCredential(v, pr, v.w.Clock(), f.Next, f.Link)
	}
}

// admitCredential signs a person in with a proof from a time, zero for unknown, and asks a new person before it creates an account.
func admitCredential(v *visit, pr people.Proof, at time.Time, next, link string) {
	if link != "" {
		next = PathJoin + "?" + url.Values{"link": {link}}.Encode()
	}
	u, err := v.w.People.Proofs.SignIn(v.ctx(), pr)
	if errors.Is(err, store.ErrNotFound) {
		askNewcomer(v, pr, next, link)
		return
	}
	if err == nil {
		err = v.w.admitUser(v, u, pr.Kind, toll.Address{})
		v.w.proved(v.ctx(), pr.Kind, at)
		v.w.endsSoon(v.ctx(), pr)
	}
	if v.faulty(err, func(status int, fault string) { askSignIn(v, status, "", next, fault) }) {
		return
	}
	v.redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// newcomer asks a person who proved something whether to make an account.
type newcomer struct {
	people.Proof
	State, Next string
	Given       string // name that was typed
}

func askNewcomer(v *visit, pr people.Proof, next, link string) {
	state, err := v.w.People.Proofs.Keep(v.ctx(), pr, link)
	if v.faulty(err, func(status int, fault string) { v.refuseNext(status, fault, "Nobody has an account with "+pr.Name+".") }) {
		return
	}
	showNewcomer(v, http.StatusOK, newcomer{Proof: pr, State: state, Next: next}, "")
}

func showNewcomer(v *visit, status int, f newcomer, fault string) {
	v.show(status, "newcomer", shown{Title: "Make an account?", Fault: fault, Body: f}, "")
}

// signUpCredential makes an account of what a person proved.
func signUpCredential(v *visit, state, next string) {
	pr, err := v.w.People.Proofs.Read(state)
	if v.faulty(err, func(status int, fault string) { askSignIn(v, status, "", next, fault) }) {
		return
	}
	u, kind, at, err := v.w.People.Proofs.SignUp(v.ctx(), v.w.Address(v.r), state, v.form.Get("name"))
	if err == nil {
		err = v.w.admitUser(v, u, kind, at)
		v.w.endsSoon(v.ctx(), pr)
	}
	if v.faulty(err, func(status int, fault string) {
		showNewcomer(v, status, newcomer{Proof: pr, State: state, Next: next, Given: v.form.Get("name")}, fault)
	}) {
		return
	}
	v.redirect(http.StatusSeeOther, cmp.Or(next, firstPage(v)))
}

// addCredential makes what was proved a credential of who is signed in.
func addCredential(v *visit, pr people.Proof) {
	v.at = PathSecurity
	if !mayAdd(v) {
		return
	}
	err := v.w.People.Proofs.Add(v.ctx(), v.person.User.ID, pr)
	if err == nil {
		err = v.w.sessions.RenewToken(v.ctx())
	}
	if v.faulty(err, func(status int, fault string) { showSecurity(v, status, security{}, fault) }) {
		return
	}
	showSecurity(v, http.StatusOK, security{Done: kindTexts[pr.Kind] + " " + pr.Name + " is added."}, "")
}

// mayAdd is [hasProof], also for a person who has a code by mail alone: whoever adds the first credential needs no other one.
func mayAdd(v *visit) bool {
	if v.person.Proof == people.Mail && v.w.Clock().Sub(v.person.Since) < freshTime {
		kinds, err := v.w.People.Credentials.Has(v.ctx(), v.person.User.ID)
		if err != nil {
			v.fail(err)
			return false
		}
		if !slices.ContainsFunc(kinds, func(k string) bool { return k != people.Mail && k != people.Recovery }) {
			return true
		}
	}
	return hasProof(v, confirmWhy)
}
