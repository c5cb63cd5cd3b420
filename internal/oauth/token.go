package oauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// verifierForm is the grammar of RFC 7636, section 4.1.
var verifierForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// granted is the answer of the token endpoint (RFC 6749, section 5.1).
type granted struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope,omitempty"`
	IDToken      string `json:"id_token,omitempty"`
}

// errManyKeys rolls back an issue.
var errManyKeys = errors.New("oauth: the workspace has too many API keys")

// Token is POST /oauth/token: codes, refresh tokens and devices become access tokens.
func (o *OAuth) Token() http.Handler { return o.endpoint(o.token) }

func (o *OAuth) token(w http.ResponseWriter, r *http.Request) (any, error) {
	form, err := readForm(w, r)
	if err != nil {
		return nil, err
	}
	who, err := credentialsOf(r, form)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	switch form.Get("grant_type") {
	case "":
		return nil, refused("invalid_request", "grant_type is missing.")
	case grantCode:
		return o.exchange(ctx, who, form)
	case grantRefresh, grantDevice:
		client, err := o.authenticate(ctx, who)
		if err != nil {
			return nil, err
		}
		if form.Get("grant_type") == grantRefresh {
			return o.refresh(ctx, client, form)
		}
		return o.poll(ctx, client, form)
	}
	return nil, refused("unsupported_grant_type", "grant_type must be authorization_code, refresh_token, or "+grantDevice+".")
}

// errGrant is returned for every code that cannot be exchanged.
var errGrant = refused("invalid_grant", "The code is unknown, used, or expired, or was issued to another client.")

// exchange is the grant of codes (RFC 6749, section 4.1.3). A code that is presented wrongly is gone as well: who guesses a
// verifier has one try.
func (o *OAuth) exchange(ctx context.Context, who credentials, form url.Values) (*granted, error) {
	for _, name := range []string{"code", "redirect_uri", "code_verifier"} {
		if form.Get(name) == "" {
			return nil, refused("invalid_request", name+" is missing.")
		}
	}
	verifier := form.Get("code_verifier")
	if !verifierForm.MatchString(verifier) {
		return nil, refused("invalid_request", "code_verifier must be 43 to 128 unreserved characters.")
	}
	if _, _, err := o.readResource(form["resource"]); err != nil {
		return nil, err
	}
	row, g, err := o.codeOf(ctx, form.Get("code"))
	unknown := isNotFound(err)
	if err != nil && !unknown {
		return nil, err
	}
	client, err := o.exchanging(ctx, who, g)
	switch {
	case err != nil:
		return nil, err
	case unknown:
		return nil, errGrant
	}
	if err := o.sameTarget(g, form); err != nil {
		return nil, err
	}
	if !row.UsedAt.IsZero() {
		return nil, o.reused(ctx, g.ID)
	}
	now := o.Clock()
	challenge := base64.RawURLEncoding.EncodeToString(sumOf(verifier))
	good := subtle.ConstantTimeCompare([]byte(challenge), []byte(row.Challenge)) == 1 && row.Redirect == form.Get("redirect_uri") &&
		now.Before(row.ExpiresAt) && client.ID == cmp.Or(g.ClientID, client.ID) && bytes.Equal(client.digest, g.Digest)
	if !good {
		err := o.Store.Tx(ctx, func(tx *store.Tx) error { return (&store.OAuthIssue{Code: row.Hash, At: now}).Use(ctx, tx) })
		switch {
		case errors.Is(err, store.ErrUsed):
			err = o.reused(ctx, g.ID)
		case err == nil:
			err = errGrant
		}
		return nil, err
	}
	return o.issue(ctx, client, g, store.OAuthIssue{Code: row.Hash})
}

func (o *OAuth) codeOf(ctx context.Context, code string) (store.OAuthCode, store.OAuthGrant, error) {
	row, err := store.OAuthCodeByHash(ctx, o.Store, sumOf(code))
	if err != nil {
		return row, store.OAuthGrant{}, err
	}
	g, err := store.OAuthGrantByID(ctx, o.Store, row.GrantID)
	return row, g, err
}

// exchanging returns the client that presents a code. The code of a sign-in is of whoever has its verifier, under any name.
func (o *OAuth) exchanging(ctx context.Context, who credentials, g store.OAuthGrant) (*knownClient, error) {
	if g.ClientID != "" || g.ID.IsZero() {
		return o.authenticate(ctx, who)
	}
	if who.id == "" || len(who.id) > 100 || !visible(who.id) {
		return nil, unknownClient("client_id must be 1 to 100 visible characters.")
	}
	return &knownClient{Client: Client{ID: who.id, Name: who.id}}, nil
}

// sameTarget refuses a resource that is not the one that the person agreed to (RFC 8707, section 2.2).
func (o *OAuth) sameTarget(g store.OAuthGrant, form url.Values) error {
	if !form.Has("resource") {
		return nil
	}
	_, resource, err := o.readResource(form["resource"])
	if err == nil && resource != g.Resource {
		err = refused("invalid_target", "The resource must be the same as in the authorization request.")
	}
	return err
}

// sameClient ends the family of a client that is not what the person was shown any more. The document of one that is stays
// remembered longer than others.
func (o *OAuth) sameClient(ctx context.Context, g store.OAuthGrant, client *knownClient) error {
	if bytes.Equal(client.digest, g.Digest) {
		o.documents.needs(client.ID)
		return nil
	}
	return o.endWith(ctx, g.ID, "The client has changed since the person approved it. Request access again.")
}

// endWith ends the family of a grant and returns the reason as an error.
func (o *OAuth) endWith(ctx context.Context, grant toll.Hash, why string) error {
	if _, err := o.end(ctx, grant); err != nil {
		return err
	}
	return refused("invalid_grant", why)
}

// reused ends the family of what was presented a second time: it has been stolen, or what came of it has.
func (o *OAuth) reused(ctx context.Context, grant toll.Hash) error {
	return o.endWith(ctx, grant, "The code or token was already used. All access granted with this code or token is now revoked.")
}

// issue makes the first token of a grant. uses says which code or device is used up by it.
func (o *OAuth) issue(ctx context.Context, client *knownClient, g store.OAuthGrant, uses store.OAuthIssue) (*granted, error) {
	now := o.Clock()
	ends, err := o.endOf(ctx, g, now)
	if err != nil {
		return nil, o.unissued(ctx, g, err)
	}
	out := &granted{TokenType: "Bearer", Scope: g.Scope}
	if g.Refreshes {
		out.RefreshToken = random()
	}
	issue := o.newIssue(&g, ends, out.RefreshToken)
	issue.Code, issue.Device = uses.Code, uses.Device
	if g.Kind == KindAPIKey {
		var key toll.APIKey
		maker := makerOf(g)
		params := auth.KeyParams{Name: keyName(client), ExpiresAt: ends, Rights: maker.Rights, Issue: issue}
		key, err = o.Auth.CreateKey(actorOf(ctx, g), maker, params, &store.Once{Quota: o.quota(g.Owner)})
		out.AccessToken, out.ExpiresIn, out.Scope = key.Key, int64(ends.Sub(now)/time.Second), cmp.Or(g.Scope, "api")
	} else {
		p := permission(&g, ends.Sub(now))
		p.Issue = issue
		var t *toll.AccessToken
		t, err = o.Tokens.Create(ctx, auth.Caller{Address: g.Owner, UserID: g.UserID}, p, nil)
		if err == nil {
			out.AccessToken, out.ExpiresIn = t.AccessToken, *p.ExpiresInSecs
		}
	}
	if err != nil {
		return nil, o.unissued(ctx, g, err)
	}
	return o.withIdentity(ctx, out, g)
}

// actorOf returns a context whose acts are those of who agreed to a grant.
func actorOf(ctx context.Context, g store.OAuthGrant) context.Context {
	who := store.Actor{Kind: "key", ID: g.Parent.String(), Source: sourceOf(ctx)}
	if !g.UserID.IsZero() {
		who.Kind, who.ID = "user", g.UserID.String()
	}
	return store.WithActor(ctx, who)
}

// endOf returns the end of a grant of which something is issued now: no later than that of the API key with which the person agreed.
func (o *OAuth) endOf(ctx context.Context, g store.OAuthGrant, now time.Time) (time.Time, error) {
	ends := now.Add(g.Life)
	if g.Parent.IsZero() {
		return ends, nil
	}
	key, err := store.APIKeyByID(ctx, o.Store, g.Parent)
	if err != nil {
		return ends, err
	}
	if !key.ExpiresAt.IsZero() && ends.After(key.ExpiresAt) {
		ends = key.ExpiresAt
	}
	if ends.Sub(now) < shortestLife {
		return ends, store.ErrGrantRevoked
	}
	return ends, nil
}

func makerOf(g store.OAuthGrant) auth.Maker {
	m := auth.Maker{Address: g.Owner, By: toll.MadeByGrant, Parent: g.ID, Rights: g.Rights, UserID: g.UserID}
	if g.ClientID == "" {
		m.By = toll.MadeByUser
	}
	return m
}

// newIssue returns what is recorded with something that is made of a grant now. refresh is the next refresh token, "" for none.
func (o *OAuth) newIssue(g *store.OAuthGrant, ends time.Time, refresh string) *store.OAuthIssue {
	i := &store.OAuthIssue{Grant: g.ID, Ends: ends, ClientID: g.ClientID, At: o.Clock()}
	if refresh != "" {
		i.Refresh = sumOf(refresh)
	}
	return i
}

// unissued is the answer when nothing was issued.
func (o *OAuth) unissued(ctx context.Context, g store.OAuthGrant, err error) error {
	var e *toll.Error
	switch {
	case errors.Is(err, store.ErrUsed):
		return o.reused(ctx, g.ID)
	case errors.Is(err, store.ErrGrantRevoked):
		return refused("invalid_grant", "The access was revoked.")
	case errors.Is(err, errManyKeys):
		return refused("access_denied", "The workspace has reached its limit of API keys. Revoke an unused key.")
	case errors.Is(err, errEnded):
		return o.endWith(ctx, g.ID, "The access was revoked, or its limits are used up. Request access again.")
	case errors.As(err, &e) && e.HTTPStatus() == http.StatusTooManyRequests:
		return tooMany(e.Text())
	case errors.As(err, &e) && e.HTTPStatus() < http.StatusInternalServerError:
		return refused("invalid_grant", "The approved access cannot be issued: "+e.Text())
	}
	return err
}

// keyName is what a key is called: the name of its program.
func keyName(client *knownClient) string {
	name := client.Name
	if client.Ours {
		name = client.ID
	}
	if r := []rune(name); len(r) > 100 {
		name = string(r[:100])
	}
	return name
}

// quota bounds the API keys of an owner, the new one included; nil when nothing does.
func (o *OAuth) quota(owner toll.Address) *store.Quota {
	most := cmp.Or(o.MaxKeys, defaultMaxKeys)
	if most < 0 {
		return nil
	}
	return &store.Quota{Kind: store.KindAPIKey, Owner: owner, Most: most, At: o.Clock(), Full: errManyKeys}
}

// refresh is the grant of refresh tokens (RFC 6749, section 6). Each can be used once: the answer has the next. See [OAuth.repeat].
func (o *OAuth) refresh(ctx context.Context, client *knownClient, form url.Values) (*granted, error) {
	token := form.Get("refresh_token")
	if token == "" {
		return nil, refused("invalid_request", "refresh_token is missing.")
	}
	unknown := refused("invalid_grant", "The refresh token is unknown or was already used, or its access expired or was revoked.")
	row, err := store.OAuthRefreshByHash(ctx, o.Store, sumOf(token))
	var g store.OAuthGrant
	if err == nil {
		g, err = store.OAuthGrantByID(ctx, o.Store, row.GrantID)
	}
	var access []toll.Hash
	if err == nil {
		access, err = store.OAuthAccess(ctx, o.Store, g.ID, 1)
	}
	if isNotFound(err) || err == nil && len(access) == 0 {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	now := o.Clock()
	if client.ID != g.ClientID || !row.UsedAt.IsZero() && now.Sub(row.UsedAt) > repeatTime {
		return nil, o.reused(ctx, g.ID)
	}
	left := g.EndsAt.Sub(now)
	if !g.RevokedAt.IsZero() || left < shortestLife {
		return nil, unknown
	}
	if err := o.sameClient(ctx, g, client); err != nil {
		return nil, err
	}
	if err := o.sameTarget(g, form); err != nil {
		return nil, err
	}
	scope, err := narrowed(g.Scope, form)
	if err != nil {
		return nil, err
	}
	out := &granted{TokenType: "Bearer", RefreshToken: random(), Scope: scope}
	if !row.UsedAt.IsZero() {
		return o.repeat(ctx, out, token, g)
	}
	seal, err := successorSeal(token)
	if err != nil {
		return nil, err
	}
	issue := o.newIssue(&g, g.EndsAt, out.RefreshToken)
	issue.Used, issue.Successor = row.Hash, seal.Seal(nil, nil, []byte(out.RefreshToken), []byte(scope))
	t, err := o.renewNewest(ctx, &g, access[0], left, issue)
	switch {
	case errors.Is(err, store.ErrUsed): // another call with this token was faster
		return o.repeat(ctx, out, token, g)
	case err != nil:
		return nil, o.unissued(ctx, g, err)
	}
	out.AccessToken, out.ExpiresIn = t.AccessToken, *permission(&g, left).ExpiresInSecs
	return o.withIdentity(ctx, out, g)
}

// repeatTime bounds repeats of a used refresh token: clients send it twice after a lost answer, and from two processes at once.
const repeatTime = 30 * time.Second

// repeat is the answer to a refresh token that was used at most [repeatTime] ago: its successor again, with the newest access token.
// For another scope than at first it ends the family (RFC 9700, section 4.14.2).
func (o *OAuth) repeat(ctx context.Context, out *granted, token string, g store.OAuthGrant) (*granted, error) {
	row, err := store.OAuthRefreshByHash(ctx, o.Store, sumOf(token))
	if err != nil {
		return nil, err
	}
	seal, err := successorSeal(token)
	if err != nil {
		return nil, err
	}
	successor, err := seal.Open(nil, nil, row.Successor, []byte(out.Scope))
	if err != nil {
		return nil, o.reused(ctx, g.ID)
	}
	access, err := store.OAuthAccess(ctx, o.Store, g.ID, 1)
	if err != nil || len(access) == 0 {
		return nil, cmp.Or(err, store.ErrNotFound)
	}
	now := o.Clock()
	t, err := o.Tokens.Reissue(ctx, g.Owner, access[0], permission(&g, g.EndsAt.Sub(now)))
	if err != nil {
		return nil, err
	}
	out.RefreshToken, out.AccessToken = string(successor), t.AccessToken
	out.ExpiresIn = int64(max(t.ExpiresAt.Sub(now), 0) / time.Second)
	return o.withIdentity(ctx, out, g)
}

// successorSeal seals the successor of a refresh token with a key that only this token gives; the database has its hash alone.
func successorSeal(token string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(token), nil, "toll oauth successor", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// renewNewest renews the newest permission of a grant. One that was read before its token was revoked alone has another in its place.
func (o *OAuth) renewNewest(
	ctx context.Context, g *store.OAuthGrant, newest toll.Hash, left time.Duration, issue *store.OAuthIssue,
) (*toll.AccessToken, error) {
	for {
		t, err := o.renew(ctx, g, newest, left, issue)
		if !errors.Is(err, errEnded) {
			return t, err
		}
		access, other := store.OAuthAccess(ctx, o.Store, g.ID, 1)
		if other != nil {
			return nil, other
		}
		if len(access) == 0 || access[0] == newest {
			return nil, err
		}
		newest = access[0]
	}
}

// narrowed returns the scope of a refresh: words of the consent.
func narrowed(scope string, form url.Values) (string, error) {
	asked, err := readScope(form.Get("scope"))
	if err != nil || asked == "" {
		return scope, err
	}
	words := strings.Fields(scope)
	for _, w := range strings.Fields(asked) {
		if !slices.Contains(words, w) {
			return "", refused("invalid_scope", "The scope must not exceed the approved scope.")
		}
	}
	return asked, nil
}
