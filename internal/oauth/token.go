package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// maxForm bounds the body of the token endpoint in bytes.
const maxForm = 16 << 10

// verifierForm is the grammar of RFC 7636, section 4.1.
var verifierForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// refusal is an error of the token endpoint (RFC 6749, section 5.2).
type refusal struct {
	status      int
	Word        string `json:"error"`
	Description string `json:"error_description"`
}

func refused(word, description string) *refusal {
	return &refusal{http.StatusBadRequest, word, description}
}

// granted is the answer of the token endpoint (RFC 6749, section 5.1).
type granted struct {
	AccessToken string `json:"access_token"` // an API key
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"` // seconds
	Scope       string `json:"scope"`
}

// ServeHTTP is POST /oauth/token: a code becomes an API key of the person who signed in.
func (o *OAuth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g, no := o.token(w, r)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	if no != nil {
		if no.status == http.StatusServiceUnavailable {
			h.Set("Retry-After", "1")
		}
		w.WriteHeader(no.status)
		_ = json.NewEncoder(w).Encode(no) // the caller has gone; there is nobody to tell
		return
	}
	_ = json.NewEncoder(w).Encode(g)
}

func (o *OAuth) token(w http.ResponseWriter, r *http.Request) (*granted, *refusal) {
	form, no := readForm(w, r)
	if no != nil {
		return nil, no
	}
	switch form.Get("grant_type") {
	case "":
		return nil, refused("invalid_request", "grant_type is missing.")
	case "authorization_code":
	default:
		return nil, refused("unsupported_grant_type", "Only authorization_code is granted.")
	}
	for _, name := range []string{"code", "redirect_uri", "code_verifier"} {
		if form.Get(name) == "" {
			return nil, refused("invalid_request", name+" is missing.")
		}
	}
	client := form.Get("client_id")
	if client == "" || len(client) > 100 || !visible(client) {
		return nil, &refusal{http.StatusUnauthorized, "invalid_client", "client_id must be 1 to 100 visible characters."}
	}
	if res := form.Get("resource"); res != "" && res != o.Resource {
		return nil, refused("invalid_target", "The resource must be "+o.Resource+".")
	}
	if !verifierForm.MatchString(form.Get("code_verifier")) {
		return nil, refused("invalid_request", "code_verifier must be 43 to 128 unreserved characters.")
	}

	ctx := r.Context()
	owner, err := o.exchange(ctx, form.Get("code"), form.Get("redirect_uri"), form.Get("code_verifier"))
	if errors.Is(err, errGrant) {
		return nil, refused("invalid_grant", "The code is unknown, used or expired, or it was issued to another program.")
	}
	var key toll.APIKey
	if err == nil {
		params := auth.KeyParams{Name: client, ExpiresAt: o.Clock().Add(keyLife)}
		key, err = o.Auth.CreateKey(ctx, owner, params, func(tx *store.Tx, _ toll.APIKey) error { return o.room(ctx, tx, owner) })
	}
	if errors.Is(err, errManyKeys) {
		return nil, refused("access_denied", "The account has as many API keys as it may have. Revoke what is no longer needed.")
	}
	if err != nil {
		o.Log.ErrorContext(ctx, "a sign-in code could not be exchanged", slog.Any("err", err))
		if toll.AsError(err).Code == toll.CodeDatabaseUnavailable {
			return nil, &refusal{http.StatusServiceUnavailable, "temporarily_unavailable", "The database is unavailable."}
		}
		return nil, &refusal{http.StatusInternalServerError, "server_error", "The key could not be made."}
	}
	return &granted{AccessToken: key.Key, TokenType: "Bearer", ExpiresIn: int64(keyLife / time.Second), Scope: "api"}, nil
}

var errManyKeys = errors.New("the account has too many keys")

// room proves that the owner has no more keys than it may, the new one included.
func (o *OAuth) room(ctx context.Context, tx *store.Tx, owner toll.Address) error {
	most := cmp.Or(o.MaxKeys, defaultMaxKeys)
	if most < 0 {
		return nil
	}
	has, err := store.Owned(ctx, tx, store.KindAPIKey, owner, o.Clock(), most+1)
	if err == nil && has > most {
		return errManyKeys
	}
	return err
}

// readForm returns the parameters of the body; each may be there once (RFC 6749, section 3.2). Those of the query do not
// count, as secrets have no place there.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, *refusal) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, refused("invalid_request", "The body must be application/x-www-form-urlencoded.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, refused("invalid_request", "The body could not be read.")
	}
	for name, values := range r.PostForm {
		if len(values) > 1 {
			return nil, refused("invalid_request", "The parameter "+parameter(name)+" is there twice.")
		}
	}
	return r.PostForm, nil
}

// parameter returns the name of a parameter that is known, so that nothing else is echoed.
func parameter(name string) string {
	switch name {
	case "grant_type", "code", "redirect_uri", "code_verifier", "client_id", "resource", "scope":
		return name
	}
	return "(unknown)"
}
