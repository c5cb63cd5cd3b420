package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// account is an API key with its settings. It is immutable: a login, logout, or configuration change creates a new one.
type account struct {
	settings
	service     *client.Client
	environment toll.Environment
	keyID       toll.Hash
	loginEnds   time.Time // end of a browser login; zero if unknown or for a key without a browser login
}

// endWarning is the time before the end of a login during which the user is warned.
const endWarning = 7 * 24 * time.Hour

// loginWarning returns a sentence for the user if the login ends within endWarning, else "".
func (a *account) loginWarning(now time.Time) string {
	left := a.loginEnds.Sub(now)
	if a.loginEnds.IsZero() || left > endWarning {
		return ""
	}
	return fmt.Sprintf("The login expires on %s. Log in again before then.",
		a.loginEnds.UTC().Format("January 2, 2006"))
}

// account returns the current account, or [NotAuthenticated]. A stored login takes precedence over the configured key.
func (c *Core) account() (*account, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLogin()
	l := c.signIn.stored
	switch {
	case c.signIn.damaged != nil:
		return nil, errorf(NotAuthenticated, "The stored login cannot be read.").
			withHint("Run " + c.command(actLogin) + " again, or " + c.command(actLogout) + ".")
	case l == nil && c.settings.APIKey == "":
		return nil, c.notAuthenticated()
	case l == nil:
		l = &login{
			Key:         c.settings.APIKey,
			Environment: c.settings.Environment,
			BaseURL:     c.settings.BaseURL,
		}
	case !l.ends().IsZero() && !c.now().Before(l.ends()):
		return nil, errorf(NotAuthenticated, "The login has expired. Run %s again.", c.command(actLogin))
	}
	if c.current != nil {
		return c.current, nil
	}
	a, err := c.accountOf(l)
	if err != nil {
		return nil, errorf(NotAuthenticated, "The API key cannot be used: %v", err).
			withHint("Correct the configuration, or run " + c.command(actLogin) + ".")
	}
	c.current = a
	return a, nil
}

// notAuthenticated returns a [NotAuthenticated] error with a hint about the pending or last login. The caller must hold c.mu.
func (c *Core) notAuthenticated() *Error {
	e := errorf(NotAuthenticated, "Not authenticated. Run %s first.", c.command(actLogin))
	switch {
	case c.signIn.pending != nil:
		e.Retryable = true
		return e.withHint("A login is pending. Retry after the user has approved it in the browser.")
	case c.signIn.outcome != "":
		return e.withHint(c.signIn.outcome)
	}
	return e
}

// accountOf returns the account for a login, which determines the key, environment, and service. Errors do not contain the key.
// The caller must hold c.mu.
func (c *Core) accountOf(l *login) (*account, error) {
	claims, err := client.ReadKey(l.Key)
	if err != nil {
		return nil, err
	}
	top := Config{APIKey: l.Key, Environment: l.Environment, BaseURL: l.BaseURL}
	config := c.settings.Config
	config.APIKey = "" // its prefix does not apply to a login
	s, err := top.over(config).resolve(c.opts.Names)
	if err != nil {
		return nil, err
	}
	return &account{
		settings:    s,
		service:     c.client(l.Key, l.BaseURL),
		environment: s.Environment,
		keyID:       claims.ID,
		loginEnds:   l.ends(),
	}, nil
}

// client returns a client for the service at baseURL, "" for the default. It sends the key, or no key if key is "".
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
		opts = append(opts, client.WithoutKey()) // ignore TOLL_API_KEY, which may belong to another service
	}
	return client.New(key, opts...)
}

// command returns a slash command as the user types it.
func (c *Core) command(name string) string { return "/" + c.opts.Names.Command(name) }

// environmentOf returns the environment in the prefix of a key, or "" if the prefix is missing or unknown.
func environmentOf(key string) toll.Environment {
	if e, _, short := toll.ParseShortKey(key); short {
		return e
	}
	prefix, _, _ := strings.Cut(key, ":")
	if e := toll.Environment(prefix); e == toll.Sandbox || e == toll.Live {
		return e
	}
	return ""
}
