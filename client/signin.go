package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// SignIn gets an API key of a person for a program. The program opens [SignIn.URL] in a browser and waits for a callback on the
// same computer with State and a one-time code, which [Client.ExchangeCode] exchanges for the key.
type SignIn struct {
	Callback string // http://127.0.0.1:<port>/<path>
	State    string // random; reject a callback with a different state
	Verifier string // random; proves that the program that exchanges the code began the sign-in (PKCE)
	ClientID string // name of the program, which its keys get
}

// NewSignIn returns a sign-in with new secrets.
func NewSignIn(callback, clientID string) *SignIn {
	random := func() string {
		b := make([]byte, 32)
		_, _ = rand.Read(b) // never fails since Go 1.24
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return &SignIn{Callback: callback, State: random(), Verifier: random(), ClientID: clientID}
}

// URL returns the URL of the consent page.
func (s *SignIn) URL(c *Client) string {
	sum := sha256.Sum256([]byte(s.Verifier))
	return c.URL() + "/auth/cli?" + url.Values{
		"callback_url": {s.Callback}, "state": {s.State},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

// ExchangeCode exchanges the code of a sign-in for an API key, and also returns the life of the key. A code works once, within 60 s.
// The call is not retried.
func (c *Client) ExchangeCode(ctx context.Context, s *SignIn, code string) (key string, life time.Duration, err error) {
	return c.exchange(ctx, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {s.Callback}, "code_verifier": {s.Verifier}, "client_id": {s.ClientID},
	})
}

// exchange exchanges a grant for an API key.
func (c *Client) exchange(ctx context.Context, form url.Values) (key string, life time.Duration, err error) {
	var out struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	a, err := c.oauth(ctx, "/oauth/token", form, &out)
	if err == nil && out.AccessToken == "" {
		err = unreadable(a, nil)
	}
	return out.AccessToken, time.Duration(out.ExpiresIn) * time.Second, err
}

// RevokeToken revokes an API key of a sign-in and the records that the key created (RFC 7009). Held requests still settle. The
// call does not require an API key. An unknown or expired token is not an error.
func (c *Client) RevokeToken(ctx context.Context, token string) error {
	_, err := c.oauth(ctx, "/oauth/revoke", url.Values{"token": {token}}, &struct{}{})
	return err
}

// oauth calls the authorization server. A refusal has the OAuth error in params.error.
func (c *Client) oauth(ctx context.Context, path string, form url.Values, out any) (*answer, error) {
	a, err := c.send(ctx, call{method: http.MethodPost, path: path, exempt: true, form: form})
	if err != nil {
		return nil, err
	}
	var refused struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if x402.Decode(a.body, &refused) == nil && refused.Error != "" {
		e := toll.Errorf(codeOfStatus(a.status), "%s", refused.Description).WithParam("error", refused.Error)
		e.Status, e.CorrelationID = a.status, a.correlationID()
		return nil, e
	}
	if a.status != http.StatusOK {
		return nil, a.err()
	}
	if err := x402.Decode(a.body, out); err != nil {
		return nil, unreadable(a, err)
	}
	return a, nil
}

// KeyClaims are the unverified claims of an API key.
type KeyClaims struct {
	Address toll.Address `json:"sub"` // zero for a short key: see [Client.Address]
	ID      toll.Hash    `json:"jti"`
}

// ReadKey returns the claims of a short API key, or of a long one with or without its prefix. The error [toll.CodeKeyMalformed] does
// not contain the key.
func ReadKey(key string) (c KeyClaims, err error) {
	if _, _, short := toll.ParseShortKey(key); short {
		return KeyClaims{ID: toll.ShortKeyID(key)}, nil
	}
	_, jwt, found := strings.Cut(key, ":")
	if !found {
		jwt = key
	}
	if parts := strings.Split(jwt, "."); len(parts) == 3 {
		b, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err == nil && x402.Decode(b, &c) == nil && !c.Address.IsZero() && !c.ID.IsZero() {
			return c, nil
		}
	}
	return KeyClaims{}, toll.NewError(toll.CodeKeyMalformed)
}

// Address returns the address of the workspace of the client's API key. A long key contains it. For a short key, the first call asks
// the service, and the client keeps the response. Errors: [toll.CodeKeyMalformed], and the errors of [Client.Key].
func (c *Client) Address(ctx context.Context) (toll.Address, error) {
	claims, err := ReadKey(c.key)
	if err != nil || !claims.Address.IsZero() {
		return claims.Address, err
	}
	if known := c.address.Load(); known != nil {
		return *known, nil
	}
	key, err := c.Key(ctx, claims.ID)
	if err != nil {
		return toll.Address{}, err
	}
	c.address.Store(&key.Address)
	return key.Address, nil
}
