// Package web is the pages for people. They work without scripts, ask of others nothing, and keep no session.
package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/oauth"
)

// maxForm bounds the body of a form in bytes.
const maxForm = 16 << 10

//go:embed sign_in.html
var signInText string

//go:embed style.css
var style string

// Deps is what the pages are built on.
type Deps struct {
	Auth        *auth.Auth
	OAuth       *oauth.OAuth
	PublicURL   string // origin of the service, whose pages may send its forms
	Environment toll.Environment
	Log         *slog.Logger
}

// Web serves the pages.
type Web struct {
	Deps
	origin *http.CrossOriginProtection
	page   *template.Template
	styles string // source of the style sheet, for the policy
}

// New returns the pages. Errors: a public address that is no origin.
func New(d Deps) (*Web, error) {
	w := &Web{Deps: d, origin: http.NewCrossOriginProtection()}
	u, err := url.Parse(d.PublicURL)
	if err != nil {
		return nil, err
	}
	if err := w.origin.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(style))
	w.styles = "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	w.page, err = template.New("sign_in.html").Parse(signInText)
	return w, err
}

// signIn is what the page shows.
type signIn struct {
	Style       template.CSS
	Environment toll.Environment
	Host        string // where the code goes
	Start       oauth.Start
	Fault       string // what was wrong with the key; safe to show
	Refused     string // why there is no form
}

// ServeHTTP is GET and POST /auth/cli: a person who has an API key lets a program on the same computer have one of its own.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Frame-Options", "DENY")
	// With no-referrer browsers would send the form with "Origin: null".
	h.Set("Referrer-Policy", "same-origin")
	if r.Method != http.MethodPost {
		start, err := oauth.ParseStart(r.URL.Query())
		if err != nil {
			w.refuse(rw, http.StatusBadRequest, err.Error())
			return
		}
		w.show(rw, http.StatusOK, signIn{Start: start, Host: start.Host()})
		return
	}
	if err := w.origin.Check(r); err != nil {
		w.refuse(rw, http.StatusForbidden, "The form was sent by another page.")
		return
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	r.Body = http.MaxBytesReader(rw, r.Body, maxForm)
	if err != nil || media != "application/x-www-form-urlencoded" || r.ParseForm() != nil {
		w.refuse(rw, http.StatusBadRequest, "The form could not be read.")
		return
	}
	start, err := oauth.ParseStart(r.PostForm)
	if err != nil {
		w.refuse(rw, http.StatusBadRequest, err.Error())
		return
	}
	code, err := w.code(r.Context(), r.PostForm.Get("api_key"), start)
	if err != nil {
		e := toll.AsError(err)
		status := e.HTTPStatus()
		if status >= http.StatusInternalServerError {
			w.Log.ErrorContext(r.Context(), "a sign-in failed", slog.Any("err", err))
			w.refuse(rw, status, "The service cannot sign you in now. Try again.")
			return
		}
		w.show(rw, status, signIn{Start: start, Host: start.Host(), Fault: e.Text()})
		return
	}
	h.Set("Location", start.Answer(code))
	rw.WriteHeader(http.StatusSeeOther)
}

func (w *Web) code(ctx context.Context, key string, start oauth.Start) (string, error) {
	if key = strings.TrimSpace(key); key == "" {
		return "", toll.Errorf(toll.CodeNotAuthenticated, "Paste an API key.")
	}
	caller, err := w.Auth.Authenticate(ctx, []string{"Bearer " + key})
	if err != nil {
		return "", err
	}
	return w.OAuth.Issue(ctx, caller.Address, start)
}

func (w *Web) refuse(rw http.ResponseWriter, status int, why string) {
	w.show(rw, status, signIn{Refused: why})
}

func (w *Web) show(rw http.ResponseWriter, status int, s signIn) {
	s.Style, s.Environment = template.CSS(style), w.Environment
	var b bytes.Buffer
	if err := w.page.Execute(&b, s); err != nil {
		w.Log.Error("page", slog.Any("err", err))
		status = http.StatusInternalServerError
		b.Reset()
	}
	h := rw.Header()
	// A browser holds the redirect after a form to form-action as well.
	targets := "'none'"
	if s.Host != "" {
		targets = "'self' http://" + s.Host
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+w.styles+"; base-uri 'none'; form-action "+targets+"; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	rw.WriteHeader(status)
	_, _ = rw.Write(b.Bytes()) // the browser has gone; there is nobody to tell
}
