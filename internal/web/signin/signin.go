// Package signin has the pages on which people prove who they are, sign up, and keep their credentials.
package signin

import (
	"embed"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/page"
)

//go:embed *.html
var files embed.FS

// Pages are the pages of people. They implement [page.SignIn].
type Pages struct{ People *people.People }

// Set returns the pages and their templates.
func Set(w *Pages, by *Consent) page.Set {
	return page.Set{Templates: files, Routes: []page.Route{
		w.home(), w.signIn(), w.signOut(), w.mail(), w.mailStop(), w.oidc(), w.oidcBack(), w.wallet(), w.signUp(), w.join(), w.recover(), w.confirm(), w.security(), by.authorizePage(), by.device(), by.cli(), by.access(),
	}}
}

// Consent are the pages on which people let programs act for them.
type Consent struct{ *records.Records }

func route(path string, get, post func(*page.Context) (page.View, error)) page.Route {
	return page.Route{Path: path, Get: get, Post: post}
}

// admitUser begins a session for a person who proved a credential, see [session.Sessions.AdmitPerson].
func admitUser(c *page.Context, u toll.Person, proof string, at toll.Address) (err error) {
	c.Person, err = c.Sessions.AdmitPerson(c.W, c.R, u, proof, at)
	return err
}
