package gateway

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

// account is a key in use with the settings that apply to it. It is immutable: a login, a logout
// or another configuration make a new one.
type account struct {
	settings
	service     *client.Client
	environment toll.Environment
	address     toll.Address
	loginEnds   time.Time // of a key of the browser login; zero for others
}

// endWarning is how long before its end a login is warned of.
const endWarning = 7 * 24 * time.Hour

// loginWarning returns a sentence for the user when the login ends soon, "" otherwise.
func (a *account) loginWarning(now time.Time) string {
	left := a.loginEnds.Sub(now)
	if a.loginEnds.IsZero() || left > endWarning {
		return ""
	}
	return fmt.Sprintf("The login ends on %s: log in again before.",
		a.loginEnds.UTC().Format("2 January 2006"))
}

// account returns the account of the core, or [NotAuthenticated]. A login wins over the key of the
// configuration.
func (c *Core) account() (*account, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return c.current, nil
	}
	if c.settings.APIKey == "" {
		return nil, c.notAuthenticated()
	}
	a, err := c.accountOf(c.settings.APIKey, c.settings.Environment, c.settings.BaseURL)
	if err != nil {
		return nil, errorf(NotAuthenticated, "The API key of the configuration is not usable: %v", err).
			withHint("Correct apiKey, or run " + c.command("login") + ".")
	}
	c.current = a
	return a, nil
}

// accountOf returns the account of a key at a service; c.mu is held. Errors do not hold the key.
func (c *Core) accountOf(key string, env toll.Environment, baseURL string) (*account, error) {
	claims, err := claimsOf(key)
	if err != nil {
		return nil, err
	}
	if named := environmentOf(key); named != "" {
		env = named
	}
	return &account{
		settings:    c.settings,
		service:     c.client(key, baseURL),
		environment: env,
		address:     claims.Address,
	}, nil
}

// client returns a client of a service, without a key for "".
func (c *Core) client(key, baseURL string) *client.Client {
	opts := []client.Option{
		client.WithUserAgent("toll-gateway/" + c.opts.Version),
		client.WithNamespace(c.opts.Names),
		client.WithHTTPClient(c.opts.ServiceClient),
		client.WithLog(c.log),
	}
	if baseURL != "" {
		opts = append(opts, client.WithURL(baseURL))
	}
	if key == "" {
		opts = append(opts, client.WithoutKey()) // that of the environment may be of another service
	}
	return client.New(key, opts...)
}

func (c *Core) notAuthenticated() *Error {
	return errorf(NotAuthenticated, "Not authenticated. Run %s first.", c.command("login"))
}

// command returns a slash command as a user types it.
func (c *Core) command(name string) string { return "/" + c.opts.Names.Command(name) }

// environmentOf returns the environment that the prefix of a key names, "" for none.
func environmentOf(key string) toll.Environment {
	prefix, _, _ := strings.Cut(key, ":")
	if e := toll.Environment(prefix); e == toll.Sandbox || e == toll.Live {
		return e
	}
	return ""
}

// claims are what an API key says of itself, unchecked.
type claims struct {
	Address toll.Address `json:"sub"`
	ID      toll.Hash    `json:"jti"`
}

var errNoKey = errors.New("it does not have the form of a key")

// claimsOf reads a key with or without a prefix. The error does not repeat it.
func claimsOf(key string) (c claims, err error) {
	_, jwt, found := strings.Cut(key, ":")
	if !found {
		jwt = key
	}
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return c, errNoKey
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || x402.Decode(b, &c) != nil || c.Address.IsZero() || c.ID.IsZero() {
		return claims{}, errNoKey
	}
	return c, nil
}
