package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/oauth"
)

// formCLI is the first word of what the ticket of that form says.
const formCLI = "cli"

// cliForm lets a program on the computer of the person in.
type cliForm struct {
	Start  oauth.Start
	Host   string // where the code goes
	AskKey bool   // nobody has signed in a short time ago
	Here   string // this page
	Ticket string
}

// CLI is GET and POST /auth/cli: a person lets a program on the same computer have an API key of its own.
func (w *Web) CLI() http.Handler {
	return w.page(func(v *visit) {
		start, err := oauth.ParseStart(v.r.URL.Query())
		if err != nil {
			refuseStart(v, err)
			return
		}
		showCLI(v, http.StatusOK, start, "")
	}, func(v *visit) {
		start, err := oauth.ParseStart(v.form)
		if err != nil {
			refuseStart(v, err)
			return
		}
		letIn(v, start)
	})
}

// refuseStart says why a program cannot be let in, and what the person can do instead.
func refuseStart(v *visit, err error) {
	m := message{Text: err.Error(), Fault: true, Next: startAgain}
	if e, ok := errors.AsType[oauth.StartError](err); ok && e.Next != "" {
		m.Next = e.Next
	}
	v.show(http.StatusBadRequest, "message", shown{Title: titleRefused, Body: m}, "")
}

func showCLI(v *visit, status int, start oauth.Start, fault string) {
	f := cliForm{Start: start, Host: start.Host(), AskKey: !v.w.fresh(v.person), Here: startPlace(start)}
	if !f.AskKey {
		f.Ticket = v.ticket(f.says()...)
	}
	v.show(status, "cli", shown{Title: "Sign in a program on this computer", Fault: fault, Body: f}, "http://"+f.Host)
}

// startPlace is the page of a start.
func startPlace(s oauth.Start) string {
	return PathCLI + "?" + url.Values{"callback_url": {s.Callback}, "state": {s.State}, "code_challenge": {s.Challenge}}.Encode()
}

func (f *cliForm) says() []string {
	return []string{formCLI, f.Start.Callback, f.Start.State, f.Start.Challenge}
}

// letIn gives the program a code: of the owner of the key that was pasted, else of who signed in.
func letIn(v *visit, start oauth.Start) {
	again := func(status int, fault string) { showCLI(v, status, start, fault) }
	var who auth.Caller
	switch key := strings.TrimSpace(v.form.Get("api_key")); {
	case key != "":
		caller, err := v.w.Auth.Authenticate(v.ctx(), []string{"Bearer " + key})
		if err != nil {
			badKey(v, err, again)
			return
		}
		who = caller
	case !v.w.fresh(v.person):
		again(http.StatusUnauthorized, "Paste an API key.")
		return
	case !v.holds(v.form.Get("ticket"), (&cliForm{Start: start}).says()...):
		again(http.StatusForbidden, "This form is not one of this session. Read it again.")
		return
	default:
		who = v.person.Caller
	}
	code, err := v.w.OAuth.Issue(v.ctx(), who, start)
	if e := toll.AsError(err); err != nil && e.Code == toll.CodeRightMissing {
		again(e.HTTPStatus(), e.Text())
		return
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.redirect(http.StatusSeeOther, start.Answer(code))
}
