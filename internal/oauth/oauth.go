// Package oauth is how a program gets an API key of a person who signed in: one-time codes (RFC 6749, section 4.1) that are
// bound to the program by a code challenge (RFC 7636), and the endpoint that exchanges them.
package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

const (
	// codeLife is how long a code may wait for its exchange.
	codeLife = time.Minute
	// keyLife is the life of the API keys that are given for codes.
	keyLife = 90 * 24 * time.Hour

	defaultMaxKeys = 1000
)

// Deps is what the room is built on.
type Deps struct {
	Store *store.Store
	Auth  *auth.Auth
	Clock func() time.Time
	// Resource is the address of the API, for which the keys are.
	Resource string
	// MaxKeys is how many valid API keys an account may have: 0 is 1,000, a negative number lifts the limit.
	MaxKeys int64
	Log     *slog.Logger
}

// OAuth issues and exchanges codes.
type OAuth struct{ Deps }

// New returns the room.
func New(d Deps) *OAuth { return &OAuth{d} }

// StartError is a sign-in that does not begin as it must; its text says why and is safe to show.
type StartError struct{ Text string }

func (e StartError) Error() string { return e.Text }

// Start is how a program asks a person to sign in.
type Start struct {
	Callback  string // where the code goes: http on this machine
	State     string // comes back with the code
	Challenge string // S256 code challenge
}

// ParseStart reads the parameters of a start. Errors are [StartError].
func ParseStart(q url.Values) (Start, error) {
	one := func(name string) string {
		if len(q[name]) == 1 {
			return q[name][0]
		}
		return ""
	}
	s := Start{Callback: one("callback_url"), State: one("state"), Challenge: one("code_challenge")}
	if _, err := callbackHost(s.Callback); err != nil {
		return Start{}, err
	}
	if s.State == "" || len(s.State) > 512 || !visible(s.State) {
		return Start{}, StartError{"state must be 1 to 512 visible characters."}
	}
	if s.Challenge == "" {
		return Start{}, StartError{"code_challenge is missing: this service sends no key to a callback, only a code that the program exchanges."}
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(s.Challenge); err != nil || len(b) != sha256.Size {
		return Start{}, StartError{"code_challenge must be the S256 challenge of 43 characters."}
	}
	if m := q["code_challenge_method"]; len(m) > 1 || len(m) == 1 && m[0] != "S256" {
		return Start{}, StartError{"code_challenge_method must be S256."}
	}
	return s, nil
}

// Host returns where the code goes, as host and port.
func (s Start) Host() string {
	host, _ := callbackHost(s.Callback)
	return host
}

// Answer returns the callback with the code.
func (s Start) Answer(code string) string {
	u, err := url.Parse(s.Callback)
	if err != nil {
		return s.Callback // ParseStart has read it
	}
	u.RawQuery = url.Values{"code": {code}, "state": {s.State}}.Encode()
	return u.String()
}

// callbackHost proves that a callback leads to a program on the machine of the person. IPv6 is not taken, as no content
// security policy can name such a host.
func callbackHost(callback string) (string, error) {
	bad := StartError{"callback_url must be http://127.0.0.1:<port>/<path>: a program on this computer."}
	u, err := url.Parse(callback)
	if err != nil || len(callback) > 1024 || !visible(callback) || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", bad
	}
	host, port, err := net.SplitHostPort(u.Host)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", bad
	}
	if host != "127.0.0.1" && host != "localhost" {
		return "", bad
	}
	return u.Host, nil
}

func visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Issue returns a code for the start of a program, with which it gets an API key of the owner. Once, within 60 s.
func (o *OAuth) Issue(ctx context.Context, owner toll.Address, s Start) (string, error) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	code := base64.RawURLEncoding.EncodeToString(b)
	now := o.Clock()
	row := store.SignInCode{Hash: sumOf(code), Address: owner, Challenge: s.Challenge, Redirect: s.Callback, ExpiresAt: now.Add(codeLife)}
	err := o.Store.Tx(ctx, func(tx *store.Tx) error { return store.InsertSignInCode(ctx, tx, row, now) })
	if err != nil {
		return "", err
	}
	return code, nil
}

func sumOf(code string) []byte {
	sum := sha256.Sum256([]byte(code))
	return sum[:]
}

var errGrant = errors.New("the code is unknown, used, expired or of another program")

// exchange takes a code and returns whose it is. A code that is presented wrongly is gone as well: who guesses a verifier
// has one try.
func (o *OAuth) exchange(ctx context.Context, code, redirect, verifier string) (toll.Address, error) {
	var row store.SignInCode
	err := o.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		row, err = store.TakeSignInCode(ctx, tx, sumOf(code))
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return toll.Address{}, errGrant
	}
	if err != nil {
		return toll.Address{}, err
	}
	challenge := base64.RawURLEncoding.EncodeToString(sumOf(verifier))
	match := subtle.ConstantTimeCompare([]byte(challenge), []byte(row.Challenge)) == 1
	if !match || row.Redirect != redirect || !o.Clock().Before(row.ExpiresAt) {
		return toll.Address{}, errGrant
	}
	return row.Address, nil
}
