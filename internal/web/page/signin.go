package page

import "net/http"

// SignIn asks people to prove who they are. Package signin implements it.
type SignIn interface {
	// Ask shows the form of a sign-in: what it is for, the page that comes next, and what was wrong with the last form.
	Ask(c *Context, status int, why, next, fault string) (View, error)
	// Confirm asks the person who is signed in for another proof of a credential.
	Confirm(c *Context, status int, why, next, fault string) (View, error)
}

// Stale is said of a form that was not shown in this session.
const Stale = "This form belongs to another session. Submit it again."

// ConfirmWhy is the reason for another proof before a change of credentials or members.
const ConfirmWhy = "Before you change access to your account or workspace, confirm that it is you. The confirmation is valid for ten minutes."

// NeedPerson returns nil for a person who signed in, else it asks for a sign-in.
func NeedPerson(c *Context) error {
	switch {
	case c.Person == nil:
		return Instead(c.SignIn.Ask(c, http.StatusOK, "", c.Here(), ""))
	case c.Person.User == nil:
		return c.RefuseNext(http.StatusForbidden, "This page is not available with an API key.", "Sign out, then sign in as a person.")
	}
	return nil
}

// NeedProof returns nil for a person who proved a credential a short time ago, else it asks for a proof.
func NeedProof(c *Context, why string) error {
	switch {
	case c.Person == nil:
		return Instead(c.SignIn.Ask(c, http.StatusOK, why, c.Here(), ""))
	case c.Person.User == nil:
		return c.RefuseNext(http.StatusForbidden, "This action is not available with an API key.", "Sign out, then sign in as a person.")
	case !c.Sessions.Recent(c.Person):
		return Instead(c.SignIn.Confirm(c, http.StatusOK, why, c.Here(), ""))
	}
	return nil
}
