package oauth

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Words of grants and of the ways in which clients prove who they are.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantDevice  = "urn:ietf:params:oauth:grant-type:device_code"

	methodNone  = "none"
	methodPost  = "client_secret_post"
	methodBasic = "client_secret_basic"
)

// Ids of programs of this service, which need no registration. Keys are named after them.
const (
	CommandLine = "toll-cli"
	ChatGateway = "toll-chat" // has no browser on its machine: its person types a code
)

// Client is a program, as a person is shown it. Everything but ID and Site is what it says of itself.
type Client struct {
	ID   string
	Name string // one line of printable characters
	Site string // host of the document that is the id; "" for a registered client
	URI  string // of its website; "" for none
	Ours bool   // a program of this service
	// Agent is the agent whose id an unregistered program uses as its own. Nobody registered the address to which the answer
	// goes, so the person has to be told. nil for any other client.
	Agent *toll.Agent

	digest    []byte
	refreshes bool
}

// knownClient is a client with what is not shown.
type knownClient struct {
	Client
	redirects []store.OAuthRedirect // unless stored
	grants    []string
	method    string
	secret    []byte
	stored    bool
	// usual are the rights of a request whose scope names none; nil: all that a program can have.
	usual toll.Rights
}

// details are what is only shown, as it is stored.
type details struct {
	ClientURI string   `json:"client_uri,omitempty"`
	LogoURI   string   `json:"logo_uri,omitempty"`
	Contacts  []string `json:"contacts,omitempty"`
}

// maxLocal bounds the addresses of one client that are compared without their ports.
const maxLocal = 1000

var errUnknownClient = errors.New("oauth: unknown client")

// client returns a client. Errors: errUnknownClient, errDocument, those of the database.
func (o *OAuth) client(ctx context.Context, id string) (*knownClient, error) {
	switch {
	case id == CommandLine:
		return &knownClient{
			Client:    Client{ID: id, Name: "Toll command line", Ours: true},
			redirects: []store.OAuthRedirect{{URI: "http://127.0.0.1/callback"}, {URI: "http://[::1]/callback"}},
			grants:    []string{grantCode, grantDevice}, method: methodNone,
		}, nil
	case id == ChatGateway:
		return &knownClient{
			Client: Client{ID: id, Name: "Toll chat gateway", Ours: true},
			grants: []string{grantDevice},
			method: methodNone,
			usual:  toll.Rights{toll.RightRead, toll.RightSpend},
		}, nil
	case id == "" || len(id) > maxDocumentURL || !visible(id):
		return nil, errUnknownClient
	case strings.Contains(id, "://"):
		return o.documents.client(ctx, id)
	}
	row, err := store.OAuthClientByID(ctx, o.Store, id)
	if errors.Is(err, store.ErrNotFound) {
		return o.agentClient(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	c := &knownClient{
		Client: Client{ID: id, Name: row.Name, refreshes: slices.Contains(row.Grants, grantRefresh)},
		grants: row.Grants, method: row.AuthMethod, secret: row.Secret, stored: true,
	}
	var d details
	if err := json.Unmarshal([]byte(row.Details), &d); err != nil {
		return nil, err
	}
	c.URI = d.ClientURI
	return c, nil
}

// agentClient returns the public client of an agent without a registration and without redirects. Errors: those of [OAuth.client].
func (o *OAuth) agentClient(ctx context.Context, id string) (*knownClient, error) {
	if string(agentOf(id)) != id {
		return nil, errUnknownClient
	}
	agent, err := store.AgentByID(ctx, o.Store, toll.AgentID(id))
	if err != nil {
		return nil, store.NotFoundAs(err, errUnknownClient)
	}
	return &knownClient{
		Client: Client{ID: id, Name: "Unregistered app", Agent: agent, refreshes: true},
		grants: []string{grantCode, grantRefresh}, method: methodNone,
	}, nil
}

// agentRedirect reports whether a program of an agent may be answered at an address: https, or http on this computer, not this service.
func (o *OAuth) agentRedirect(uri string) bool {
	u, err := url.Parse(uri)
	own, ownErr := url.Parse(o.Issuer)
	if errors.Join(err, ownErr) != nil || !toll.ValidRedirect(uri) || sameServer(u, own) {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http"
}

// sameServer reports whether two addresses lead to one server: by name, or as the same port of this computer.
func sameServer(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return port(a) == port(b) &&
		(strings.EqualFold(a.Hostname(), b.Hostname()) || toll.IsLoopback(a.Hostname()) && toll.IsLoopback(b.Hostname()))
}

// shownOnPage returns the error of [OAuth.client] as a page shows it.
func shownOnPage(err error) error {
	switch {
	case errors.Is(err, errUnknownClient):
		return &PageError{"The app is not registered with this service."}
	case errors.Is(err, errManyFetches):
		return &PageError{"Too many app descriptions are being fetched for your network. Try again in a few seconds."}
	case errors.Is(err, errDocument):
		return &PageError{"The document that describes the app cannot be used."}
	}
	return err
}

const localhost = "http://localhost"

// redirect returns the registered address that a requested one matches, and whether there is one: the same text, or for http
// on 127.0.0.1 and ::1 the same but for the port (RFC 8252, section 7.3). That holds for localhost where no port is registered,
// as documents of programs do that take any (RFC 9700, section 2.1).
func (o *OAuth) redirect(ctx context.Context, c *knownClient, asked string) (store.OAuthRedirect, bool, error) {
	host, rest, local := withoutPort(asked)
	known := c.redirects
	if c.stored {
		var err error
		if known, err = store.OAuthRedirectsNear(ctx, o.Store, c.ID, asked, host, maxLocal); err != nil {
			return store.OAuthRedirect{}, false, err
		}
	}
	for _, r := range known {
		if r.URI == asked {
			return r, true, nil
		}
		if h, other, ok := withoutPort(r.URI); local && ok && h == host && other == rest && (host != localhost || r.URI == localhost+rest) {
			return r, true, nil
		}
	}
	return store.OAuthRedirect{}, false, nil
}

// withoutPort returns the host of an address of this machine and what follows its port, and whether it is one: by text, as
// parsers disagree. Of any other address it returns nothing.
func withoutPort(uri string) (host, rest string, local bool) {
	for _, host := range []string{"http://127.0.0.1", "http://[::1]", localhost} {
		rest, ok := strings.CutPrefix(uri, host)
		if !ok {
			continue
		}
		if port, isPort := strings.CutPrefix(rest, ":"); isPort {
			digits := len(port) - len(strings.TrimLeft(port, "0123456789"))
			n, err := strconv.ParseUint(port[:digits], 10, 16)
			if err != nil || n == 0 || port[0] == '0' {
				return "", "", false
			}
			rest = port[digits:]
		}
		if rest != "" && rest[0] != '/' && rest[0] != '?' || !visible(rest) || strings.ContainsAny(rest, `\#`) {
			return "", "", false
		}
		return host, rest, true
	}
	return "", "", false
}

// hostOf returns what is shown of an address: its host, or of one of a program its scheme, and the host if there is one.
func hostOf(uri string) string {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return uri
	case u.Scheme == "http" || u.Scheme == "https":
		return u.Host
	case u.Host != "":
		return u.Scheme + "://" + u.Host
	}
	return u.Scheme + ":"
}

// validName reports whether a name is one line of visible characters that do not change the direction of text.
func validName(s string) bool {
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxText {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// credentials are how a client says who it is at an endpoint.
type credentials struct {
	id, secret string
	basic      bool
}

// credentialsOf reads them from the form, or from the Authorization line (RFC 6749, section 2.3.1), but not from both.
func credentialsOf(r *http.Request, form url.Values) (credentials, error) {
	c := credentials{id: form.Get("client_id"), secret: form.Get("client_secret")}
	lines := r.Header["Authorization"]
	if len(lines) == 0 {
		return c, nil
	}
	id, secret, ok := r.BasicAuth()
	if !ok || len(lines) > 1 {
		return c, unknownClient("Send exactly one Authorization header, with Basic credentials of the client.")
	}
	id, err1 := url.QueryUnescape(id)
	secret, err2 := url.QueryUnescape(secret)
	if errors.Join(err1, err2) != nil || c.secret != "" || c.id != "" && c.id != id {
		return c, refused("invalid_request", "Send the client credentials only once: in the Authorization header or in the body.")
	}
	return credentials{id: id, secret: secret, basic: true}, nil
}

// authenticate returns the client that the credentials belong to.
func (o *OAuth) authenticate(ctx context.Context, c credentials) (*knownClient, error) {
	client, err := o.client(ctx, c.id)
	switch {
	case errors.Is(err, errUnknownClient):
		return nil, unknownClient("The client id is unknown.")
	case errors.Is(err, errNoDocument):
		return nil, &refusal{http.StatusServiceUnavailable, "temporarily_unavailable", "The client metadata document could not be fetched."}
	case errors.Is(err, errDocument):
		return nil, unknownClient("The client metadata document cannot be used.")
	case err != nil:
		return nil, err
	}
	if client.method == methodNone {
		if c.secret != "" {
			return nil, unknownClient("This client does not have a secret.")
		}
		return client, nil
	}
	if subtle.ConstantTimeCompare(sumOf(c.secret), client.secret) != 1 {
		return nil, unknownClient("The client secret is missing or wrong.")
	}
	return client, nil
}

func unknownClient(description string) *refusal {
	return &refusal{http.StatusUnauthorized, "invalid_client", description}
}

// agentOf returns the agent that a client stands for, "" when it stands for none.
func agentOf(clientID string) toll.AgentID {
	id, err := toll.ParseAgentID(clientID)
	if err != nil {
		return ""
	}
	return id
}
