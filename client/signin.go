package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// SignIn is how a program gets an API key of a person: it opens [SignIn.URL] in a browser and waits on a callback on the
// same computer, where a one-time code arrives with its State; [Client.ExchangeCode] makes the key of it.
type SignIn struct {
	Callback string // http://127.0.0.1:<port>/<path>
	State    string // random; a callback with another one is not an answer to this sign-in
	Verifier string // random; proves that who exchanges the code began the sign-in
	ClientID string // name of the program, which its keys get
}

// NewSignIn returns a sign-in with fresh secrets.
func NewSignIn(callback, clientID string) *SignIn {
	random := func() string {
		b := make([]byte, 32)
		_, _ = rand.Read(b) // never fails since Go 1.24
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return &SignIn{Callback: callback, State: random(), Verifier: random(), ClientID: clientID}
}

// URL returns the page on which the person decides.
func (s *SignIn) URL(c *Client) string {
	sum := sha256.Sum256([]byte(s.Verifier))
	return c.URL() + "/auth/cli?" + url.Values{
		"callback_url": {s.Callback}, "state": {s.State},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

// ExchangeCode makes an API key of the code of a sign-in, and says how long it lives. Once, within 60 s of the code; it is
// not repeated.
func (c *Client) ExchangeCode(ctx context.Context, s *SignIn, code string) (key string, life time.Duration, err error) {
	a, err := c.send(ctx, call{method: http.MethodPost, path: "/oauth/token", exempt: true, form: url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {s.Callback}, "code_verifier": {s.Verifier}, "client_id": {s.ClientID},
	}})
	if err != nil {
		return "", 0, err
	}
	key, life, e := keyOf(a)
	if e != nil {
		return "", 0, e
	}
	return key, life, nil
}

// keyOf reads the answer of the token endpoint. An error of OAuth has its word in params.error.
func keyOf(a *answer) (key string, life time.Duration, _ *toll.Error) {
	var out struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	broken := x402.Decode(a.body, &out)
	switch {
	case broken == nil && out.Error != "":
		return "", 0, refusedBy(a, out.Error, out.Description)
	case a.status != http.StatusOK:
		return "", 0, toll.AsError(a.err())
	case broken != nil || out.AccessToken == "":
		return "", 0, unreadable(a, broken)
	}
	return out.AccessToken, time.Duration(out.ExpiresIn) * time.Second, nil
}

func refusedBy(a *answer, word, description string) *toll.Error {
	e := toll.Errorf(codeOfStatus(a.status), "%s", description).WithParam("error", word)
	e.Status, e.CorrelationID = a.status, a.correlationID()
	return e
}
