package gateway

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// SetPause replaces the wait between two questions of a browser login.
func (c *Core) SetPause(f func(ctx context.Context, d time.Duration) bool) { c.signIn.pause = f }

// WaitLogin returns when no login waits for a person any more.
func (c *Core) WaitLogin() { c.signIn.waiting.Wait() }

// LoginKey returns the key in use, and what is said of its end.
func (c *Core) LoginKey() (key, warning string, environment toll.Environment, address toll.Address, err error) {
	a, err := c.account()
	if err != nil {
		return "", "", "", toll.Address{}, err
	}
	address, err = a.service.Address(context.Background())
	return a.APIKey, a.loginWarning(c.now()), a.environment, address, err
}
