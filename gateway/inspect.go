package gateway

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tollhq/toll/x402"
)

// Check is something that [Inspect] looked at.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // "ok", "warning" or "failed"
	Detail string `json:"detail"` // what is so and, unless it is good, what mends it; holds no secret
}

// Inspect looks for what keeps a core with these options from working, with the configuration of a
// plugin, the zero value without one. It changes nothing, and asks the service about the key, the
// plan and the paid endpoint.
func Inspect(ctx context.Context, opts Options, plugin Config) (found []Check) {
	add := func(name, status, format string, args ...any) {
		found = append(found, Check{name, status, redact(fmt.Sprintf(format, args...))})
	}
	opts.Names = cmp.Or(opts.Names, x402.Default)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s, err := plugin.over(opts.Config).resolve(opts.Names)
	if err != nil {
		add("configuration", "failed", "%s", err)
		return found
	}
	add("configuration", "ok", "environment %s", s.Environment)
	c := &Core{opts: opts, now: opts.Now, log: redactLog(nil), settings: s}
	a, err := c.account()
	if err != nil {
		status := "failed"
		if s.APIKey == "" && c.signIn.stored == nil && c.signIn.damaged == nil {
			status = "warning"
		}
		add("login", status, "%s", err)
		return found
	}
	if warning := a.loginWarning(c.now()); warning != "" {
		add("login", "warning", "%s", warning)
	}
	if err := c.inspectService(ctx, a); err != nil {
		add("login", "failed", "%s", asError(err))
		return found
	}
	add("login", "ok", "%s on %s at %s", a.address, a.environment, a.service.URL())
	switch {
	case a.PlanID == "":
		add("plan", "warning", "planId is not set: prompts get no balance, and each tool needs a planId")
	default:
		if plan, err := a.service.Plan(ctx, a.PlanID); err != nil {
			add("plan", "failed", "plan %s: %s", a.PlanID, asError(err))
		} else {
			add("plan", "ok", "plan %s, version %d", a.PlanID, plan.Version)
		}
	}
	if !s.paidEndpoint {
		return found
	}
	if err := c.CheckPaidEndpoint(ctx); err != nil {
		add("paid endpoint", "failed", "%s", asError(err))
	} else if a.PublicURL == "" {
		add("paid endpoint", "warning", "publicUrl is not set: payers see a path in place of an address")
	} else {
		add("paid endpoint", "ok", "POST %s%s, handler %s", a.PublicURL, a.AgentEndpointPath, a.handler.Kind)
	}
	return found
}

// inspectService asks the service of an account whether it takes the key.
func (c *Core) inspectService(ctx context.Context, a *account) error {
	if err := checkEnvironment(ctx, c.client("", a.BaseURL), a.environment); err != nil {
		return err
	}
	if _, err := a.service.Versions(ctx); err != nil {
		return err
	}
	id, err := claimsOf(a.APIKey)
	if err != nil {
		return err
	}
	key, err := a.service.Key(ctx, id.ID)
	if err != nil {
		return err
	}
	for _, right := range loginRights(a.settings) {
		if !key.Rights.Has(right) {
			return errorf(InvalidParams, "The key lacks the right %s.", right).
				withHint("Log in again and leave it ticked, or use another key.")
		}
	}
	return nil
}
