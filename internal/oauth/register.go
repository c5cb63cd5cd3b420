package oauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxURIs and maxContacts bound the lists of a registration.
	maxURIs     = 10
	maxContacts = 5
	// maxUnused is how many addresses there may be of clients that nobody has let in, maxOfSource how many of them one source
	// may have. Of more, the oldest give way, but not within unusedGrace: so long a person may sign in, and after that decide.
	// maxShown is how many clients one person keeps in a minute by reading what they ask for.
	maxUnused   = 10_000
	maxOfSource = 1_000
	unusedGrace = 10 * time.Minute
	maxShown    = 6
	// usualName is what a client is called that says nothing.
	usualName = "MCP Client"
)

// registration is what a client says of itself (RFC 7591, section 2), of what is read.
type registration struct {
	Name          string   `json:"client_name"`
	RedirectURIs  []string `json:"redirect_uris"`
	Scope         string   `json:"scope,omitempty"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	details
	Agent toll.AgentID `json:"-"` // that the client is to stand for
}

// registered is the answer to a registration (RFC 7591, section 3.2.1).
type registered struct {
	ClientID  string `json:"client_id"`
	IssuedAt  int64  `json:"client_id_issued_at"` // seconds since 1970
	Secret    string `json:"client_secret,omitempty"`
	SecretEnd *int64 `json:"client_secret_expires_at,omitempty"`
	registration
}

// Register is POST /oauth/register (RFC 7591): a program makes itself known. It gets no right by it.
func (o *OAuth) Register() http.Handler { return o.endpoint(o.register) }

func (o *OAuth) register(w http.ResponseWriter, r *http.Request) (any, error) {
	source := sourceOf(r.Context())
	if !o.allows(o.registers, source) {
		return nil, tooMany("Too many registrations from your network. Try again later.")
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, refused("invalid_request", "The body must be application/json.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if err != nil {
		return nil, refused("invalid_request", "The body could not be read, or is larger than 16 KiB.")
	}
	in, err := readRegistration(body)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if in.Agent != "" {
		if _, err := store.AgentByID(ctx, o.Store, in.Agent); err != nil {
			return nil, unknownRecord(err, "agent_id does not match an agent.")
		}
	}
	out, err := o.enrol(ctx, in, source)
	return created{out}, err
}

var (
	errManyClients  = tooMany("Too many clients are registered.")
	errManyOfSource = tooMany("Too many unused clients are registered from your network: the limit is " +
		strconv.Itoa(maxOfSource) + " redirect addresses.")
)

// enrol stores a client. One that stands for an agent shares its id with others, so it has no secret and no name that others
// would see: the name belongs to the address.
func (o *OAuth) enrol(ctx context.Context, in *registration, source string) (*registered, error) {
	now := o.Clock()
	out := &registered{IssuedAt: now.Unix(), registration: *in}
	row := store.OAuthClient{Name: in.Name, Scope: in.Scope, CreatedAt: now}
	shown := in.details
	if in.Agent != "" {
		out.ClientID, out.AuthMethod, out.GrantTypes = string(in.Agent), methodNone, []string{grantCode, grantRefresh, grantDevice}
		row.Name, row.Scope, shown = usualName, "", details{}
	} else {
		word := make([]byte, 8)
		_, _ = rand.Read(word) // never fails since Go 1.24
		out.ClientID = o.ClientPrefix + "-mcp-client-" + strconv.FormatInt(now.Unix(), 10) + "-" + hex.EncodeToString(word)
	}
	if out.AuthMethod != methodNone {
		out.Secret, out.SecretEnd = random(), new(int64)
		row.Secret = sumOf(out.Secret)
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	row.ID, row.AuthMethod, row.Grants, row.Details = out.ClientID, out.AuthMethod, out.GrantTypes, string(text)
	err = o.Store.Tx(ctx, func(tx *store.Tx) error {
		n := int64(len(in.RedirectURIs))
		if err := makeRoom(ctx, tx, source, now, n, maxOfSource, errManyOfSource); err != nil {
			return err
		}
		if err := makeRoom(ctx, tx, "", now, n, maxUnused, errManyClients); err != nil {
			return err
		}
		if err := store.InsertOAuthClient(ctx, tx, row); err != nil {
			return err
		}
		for _, uri := range in.RedirectURIs {
			r := store.OAuthRedirect{URI: uri, Name: in.Name, Shared: in.Agent != "", Source: source}
			if err := store.InsertOAuthRedirect(ctx, tx, row.ID, r, now); err != nil {
				return err
			}
			if err := store.TouchOAuthClient(ctx, tx, row.ID, uri, now); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// makeRoom lets what a source registered long ago, and for nothing, give way to n more addresses, so that there are at most that
// many; full is the error when there is no room. The source "" is everybody.
func makeRoom(ctx context.Context, tx *store.Tx, source string, now time.Time, n, most int64, full error) error {
	unused, err := store.CountUnusedOAuthRedirects(ctx, tx, source, most)
	over := unused + n - most
	if err != nil || over <= 0 {
		return err
	}
	gone, err := store.DropUnusedOAuthRedirects(ctx, tx, source, now.Add(-unusedGrace), over)
	if err == nil && gone < over {
		err = full
	}
	return err
}

func readRegistration(body []byte) (*registration, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, refused("invalid_request", "The body must be a JSON object.")
	}
	for name, raw := range members {
		if string(raw) == "null" {
			delete(members, name)
		}
	}
	known := func(name string) bool { return members[name] != nil }
	if !slices.ContainsFunc([]string{"redirect_uris", "grant_types", "token_endpoint_auth_method", "response_types", "client_name"}, known) {
		return nil, refused("invalid_request", "redirect_uris is missing. The body is not a client registration.")
	}
	switch {
	case known("software_statement"):
		return nil, refused("invalid_software_statement", "Software statements are not supported.")
	case known("client_secret"):
		return nil, refused("invalid_client_metadata", "client_secret is not accepted: the service creates the secret.")
	}
	in := &registration{AuthMethod: methodNone, Name: usualName, GrantTypes: []string{grantCode}, ResponseTypes: []string{"code"}}
	for name, into := range map[string]any{
		"redirect_uris": &in.RedirectURIs, "grant_types": &in.GrantTypes, "response_types": &in.ResponseTypes, "token_endpoint_auth_method": &in.AuthMethod,
		"client_name": &in.Name, "scope": &in.Scope, "client_uri": &in.ClientURI, "logo_uri": &in.LogoURI, "contacts": &in.Contacts, "agent_id": &in.Agent,
	} {
		if raw := members[name]; raw != nil && json.Unmarshal(raw, into) != nil {
			word := "invalid_client_metadata"
			if name == "redirect_uris" {
				word = "invalid_redirect_uri"
			}
			return nil, refused(word, name+" has the wrong type.")
		}
	}
	return in, in.judge()
}

// judge proves a registration, and leaves of it what is granted.
func (in *registration) judge() (err error) {
	if len(in.RedirectURIs) == 0 {
		return refused("invalid_request", "redirect_uris is missing or empty.")
	}
	if len(in.RedirectURIs) > maxURIs {
		return refused("invalid_redirect_uri", "redirect_uris must have at most 10 addresses.")
	}
	for _, uri := range in.RedirectURIs {
		if !toll.ValidRedirect(uri) {
			return refused("invalid_redirect_uri", "A redirect URI must use https, http on a loopback address, or a custom scheme of the app, without a fragment or user.")
		}
	}
	bad := func(text string) error { return refused("invalid_client_metadata", text) }
	var ok bool
	if in.GrantTypes, ok = only(in.GrantTypes, []string{grantCode, grantRefresh, grantDevice}, "client_credentials"); !ok {
		return bad("grant_types must be authorization_code, refresh_token, or " + grantDevice + ".")
	}
	if in.ResponseTypes, ok = only(in.ResponseTypes, []string{"code"}, "token"); !ok {
		return bad("response_types must include code.")
	}
	switch in.AuthMethod = cmp.Or(in.AuthMethod, methodNone); in.AuthMethod {
	case methodNone, methodPost, methodBasic:
	default:
		return bad("token_endpoint_auth_method must be none, client_secret_post, or client_secret_basic.")
	}
	if in.Name = strings.TrimSpace(in.Name); in.Name == "" {
		in.Name = usualName
	}
	if !validName(in.Name) {
		return bad("client_name must be one line of at most 256 visible characters.")
	}
	if in.Scope, err = readScope(in.Scope); err != nil {
		return bad(err.Error())
	}
	for _, text := range append([]string{in.ClientURI, in.LogoURI}, in.Contacts...) {
		if len(text) > maxText || !printable(text) {
			return bad("client_uri, logo_uri, and each of contacts must be at most 256 visible characters.")
		}
	}
	if len(in.Contacts) > maxContacts {
		return bad("contacts must have at most 5 entries.")
	}
	return nil
}

// only returns the words of a list that are granted; false when there is another word than those and ignored, or none left.
func only(list, granted []string, ignored string) ([]string, bool) {
	var out []string
	for _, word := range list {
		switch {
		case slices.Contains(granted, word):
			if !slices.Contains(out, word) {
				out = append(out, word)
			}
		case word != ignored:
			return nil, false
		}
	}
	return out, len(out) > 0
}
