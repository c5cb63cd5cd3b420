package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
)

// chatClient is the client name of this program at the service, which issues 90-day keys to it.
const chatClient = "toll-chat"

const (
	revokeTime   = 10 * time.Second // limits a request to revoke a key
	announceTime = 10 * time.Second // limits a request for the workspace of a key
)

// signIn is the state of logins. [Core.mu] guards it.
type signIn struct {
	stored  *login        // nil if logged out
	damaged error         // error of reading the stored login
	stamp   os.FileInfo   // of the file that contained stored; nil without a file
	pending *pendingLogin // waiting for approval; nil without one
	outcome string        // sentence about the failure of the last browser login, or ""
	// approved is a sentence that names the account of the last browser login, until a tool has shown it to the owner.
	approved string
	// pause is [backoff.Sleep] between polls; tests replace it.
	pause   func(ctx context.Context, d time.Duration) bool
	waiting sync.WaitGroup // polling logins
}

// pendingLogin is a browser login that waits for approval.
type pendingLogin struct {
	cancel      context.CancelFunc
	environment toll.Environment
	baseURL     string
}

// loginStarted is the page and code for a browser login. It contains no secret: approving the code selects the account.
type loginStarted struct {
	URL         string           `json:"url"`
	Code        string           `json:"code"`
	Environment toll.Environment `json:"environment"`
	Service     string           `json:"serviceUrl"`
	ExpiresIn   int64            `json:"expiresInSecs"`
}

// loginRights returns the rights that a browser login requests. The person can grant fewer.
func loginRights(s settings) []toll.Right {
	rights := []toll.Right{toll.RightRead, toll.RightSpend, toll.RightManage}
	if s.paidEndpoint {
		rights = append(rights, toll.RightSell)
	}
	return rights
}

// startLogin starts a browser login (RFC 8628) at the service of an environment, "" for the configured one, and polls for its
// approval in the background. It cancels a pending login. It returns [InvalidParams] if the service belongs to another
// environment, or an error of the service.
func (c *Core) startLogin(ctx context.Context, env toll.Environment) (*loginStarted, error) {
	s, err := c.loginSettings(env)
	if err != nil {
		return nil, err
	}
	service := c.client("", s.BaseURL)
	if err := checkEnvironment(ctx, service, s.Environment); err != nil {
		return nil, err
	}
	device, err := service.StartDevice(ctx, chatClient, loginRights(s)...)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(context.Background(), device.ExpiresIn)
	p := &pendingLogin{cancel: cancel, environment: s.Environment, baseURL: service.URL()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelLogin()
	c.signIn.pending = p
	c.signIn.waiting.Go(func() {
		defer cancel()
		c.awaitPerson(wait, p, service, device)
	})
	return &loginStarted{
		URL:         cmp.Or(device.FullURL, device.URL),
		Code:        device.UserCode,
		Environment: s.Environment,
		Service:     service.URL(),
		ExpiresIn:   int64(device.ExpiresIn / time.Second),
	}, nil
}

// loginSettings returns the settings for a login, or [InvalidParams] if they do not fit its environment. A login uses the
// service of the core, if configured, because the address from a plugin with its own key applies only to that key.
func (c *Core) loginSettings(env toll.Environment) (settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := c.settings.Config
	if core := c.opts.Config; core.hasService() {
		config.BaseURL = core.BaseURL
		config.Environment = cmp.Or(environmentOf(core.APIKey), core.Environment, config.Environment)
	}
	config.APIKey, config.Environment = "", cmp.Or(env, config.Environment)
	return config.resolve(c.opts.Names)
}

// checkEnvironment returns [InvalidParams] if the service belongs to another environment, or an error of the service.
func checkEnvironment(ctx context.Context, service *client.Client, want toll.Environment) error {
	info, err := service.Info(ctx)
	if err != nil {
		return err
	}
	if info.Environment != want {
		return errorf(InvalidParams, "The service at %s is not a %s service: its environment is %s.",
			service.URL(), want, plain.Text(string(info.Environment), 20)).
			withHint("Set baseUrl to the " + string(want) + " service, or log in to the other environment.")
	}
	return nil
}

// cancelLogin cancels the pending login, if any, and clears the outcome of the previous login. The caller must hold c.mu.
func (c *Core) cancelLogin() {
	if p := c.signIn.pending; p != nil {
		p.cancel()
		c.signIn.pending = nil
	}
	c.signIn.outcome = ""
}

// Close cancels a pending login and waits for its goroutine to end. It does not wait for calls in progress.
func (c *Core) Close() {
	c.mu.Lock()
	c.cancelLogin()
	c.mu.Unlock()
	c.signIn.waiting.Wait()
}

// awaitPerson polls the service until the person approves or refuses the login, the service ends it, or ctx ends.
func (c *Core) awaitPerson(
	ctx context.Context, p *pendingLogin, service *client.Client, device *client.DeviceSignIn,
) {
	for {
		if !c.signIn.pause(ctx, device.Interval) {
			c.failLogin(p, "The last login expired before it was approved.")
			return
		}
		key, life, err := service.ExchangeDevice(ctx, device)
		e := toll.AsError(err)
		switch {
		case err == nil:
			c.finishLogin(ctx, p, key, life)
			return
		case errors.Is(err, client.ErrUndecided):
		case e.Params["error"] == "access_denied":
			c.failLogin(p, "The last login was denied in the browser.")
			return
		case e.Params["error"] == "expired_token":
			c.failLogin(p, "The last login expired before it was approved.")
			return
		case e.HTTPStatus() >= 500 || e.HTTPStatus() == 429: // retry at the next poll
		default:
			c.log.Warn("a login failed", "error", err)
			c.failLogin(p, "The service rejected the last login.")
			return
		}
	}
}

// failLogin records the reason that a login failed, unless the login was replaced or canceled.
func (c *Core) failLogin(p *pendingLogin, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signIn.pending == p {
		c.signIn.pending, c.signIn.outcome = nil, outcome
	}
}

// finishLogin stores the key of a browser login. If the login was canceled meanwhile or storing fails, it revokes the key.
func (c *Core) finishLogin(ctx context.Context, p *pendingLogin, key string, life time.Duration) {
	l := &login{
		Key:         key,
		Environment: p.environment,
		BaseURL:     p.baseURL,
		Browser:     true,
	}
	if life > 0 {
		l.Ends = toll.AtPtr(c.now().Add(life).UTC().Truncate(time.Second))
	}
	announced := announce(ctx, c.client(key, p.baseURL), l, c.log)
	c.mu.Lock()
	current := c.signIn.pending == p
	var old *login
	err := context.Canceled
	if current {
		c.signIn.pending = nil
		old = c.signIn.stored
		if err = c.keep(l); err != nil {
			c.signIn.outcome = "The key of the last login could not be stored."
		} else {
			c.signIn.approved = announced
		}
	}
	c.mu.Unlock()
	if err != nil {
		c.log.Error("a login could not be completed", "error", err)
		_ = c.revoke(context.Background(), l) // best effort: the key is not in use
		return
	}
	c.log.Info("logged in", "environment", l.Environment, "url", l.BaseURL)
	c.replaced(old)
	if a, err := c.account(); err == nil {
		c.balanceChanged(a)
	}
}

// announce returns a sentence with the account of a login for [Core.announcement]. The service names it if the key does not.
func announce(ctx context.Context, service *client.Client, l *login, log *slog.Logger) string {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	address, err := service.Address(ctx)
	if err != nil {
		log.WarnContext(ctx, "the workspace of a login cannot be read", "error", err)
		return fmt.Sprintf("Logged in to %s. The service did not name the workspace: check it before you spend.", l.Environment)
	}
	return fmt.Sprintf("Logged in to %s as %s. If this is not your workspace, log out.", l.Environment, address)
}

// announcement returns a sentence with the account of a browser login, once and only to the owner, because in a group anyone
// could have approved the code.
func (c *Core) announcement(caller Caller) (warnings []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signIn.approved == "" || !caller.SenderIsOwner {
		return nil
	}
	text := c.signIn.approved
	c.signIn.approved = ""
	return []string{text}
}

// keep stores a login and makes it current. After an error the earlier login remains. The caller must hold c.mu.
func (c *Core) keep(l *login) error {
	if _, err := c.accountOf(l); err != nil {
		return err
	}
	store := keyStore{c.opts.Dir}
	if err := store.write(l); err != nil {
		return err
	}
	c.signIn.stored, c.signIn.damaged, c.signIn.stamp = l, nil, store.stamp()
	c.signIn.outcome, c.signIn.approved = "", ""
	c.current = nil
	return nil
}

// replaced revokes the key of a replaced browser login, and logs a failure.
func (c *Core) replaced(old *login) {
	if old == nil || !old.Browser {
		return
	}
	if err := c.revoke(context.Background(), old); err != nil {
		c.log.Warn("the key of the previous login could not be revoked", "error", err)
	}
}

// revoke revokes the key of a login and its access tokens at its service (RFC 7009).
func (c *Core) revoke(ctx context.Context, l *login) error {
	ctx, cancel := context.WithTimeout(ctx, revokeTime)
	defer cancel()
	return c.client("", l.BaseURL).RevokeToken(ctx, l.Key)
}

// readLogin reads the stored login if its file has changed. The caller must hold c.mu.
func (c *Core) readLogin() {
	store := keyStore{c.opts.Dir}
	stamp := store.stamp()
	if sameStamp(stamp, c.signIn.stamp) {
		return
	}
	c.signIn.stored, c.signIn.damaged = store.read()
	c.signIn.stamp = stamp
	c.current = nil
	if c.signIn.damaged != nil {
		c.log.Error("the stored login cannot be read", "error", c.signIn.damaged)
	}
}

type loggedOut struct {
	was     *login // nil if not logged in
	revoked error  // error of the revocation at the service
	other   bool   // the configured key is in use now
}

// logout deletes the stored login, cancels a pending login, and revokes the key of a browser login. It returns an error only if
// the stored key cannot be deleted.
func (c *Core) logout(ctx context.Context) (out loggedOut, err error) {
	c.mu.Lock()
	c.readLogin()
	c.cancelLogin()
	out.was = c.signIn.stored
	out.other = c.settings.APIKey != ""
	err = keyStore{c.opts.Dir}.remove()
	if err == nil {
		c.signIn.stored, c.signIn.damaged, c.signIn.stamp = nil, nil, nil
		c.signIn.approved, c.current = "", nil
	}
	c.mu.Unlock()
	if err != nil {
		return out, err
	}
	if out.was != nil && out.was.Browser {
		out.revoked = c.revoke(context.WithoutCancel(ctx), out.was)
	}
	return out, nil
}

// paste stores a key from the chat after the service has accepted it. Errors do not contain the key.
func (c *Core) paste(ctx context.Context, env toll.Environment, key string) (*account, error) {
	s, err := c.loginSettings(env)
	if err != nil {
		return nil, err
	}
	service := c.client(key, s.BaseURL)
	if err := checkEnvironment(ctx, c.client("", s.BaseURL), s.Environment); err != nil {
		return nil, err
	}
	if _, err := service.Versions(ctx); err != nil {
		if toll.AsError(err).HTTPStatus() == 401 {
			return nil, errorf(InvalidParams, "The service rejected this key: it is revoked, expired, or not for %s.", s.Environment)
		}
		return nil, err
	}
	c.mu.Lock()
	c.cancelLogin()
	old := c.signIn.stored
	err = c.keep(&login{Key: key, Environment: s.Environment, BaseURL: service.URL()})
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("login: %w", err)
	}
	c.replaced(old)
	a, err := c.account()
	if err == nil {
		c.balanceChanged(a)
	}
	return a, err
}
