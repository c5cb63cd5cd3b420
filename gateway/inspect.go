package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/x402"
)

// Check is a finding of [Inspect].
type Check = check.Check

// Inspect checks whether a core with these options and the configuration of a plugin, which may be zero, can work. It changes
// nothing, and calls the service to check the key, the plan, and the paid endpoint.
func Inspect(ctx context.Context, opts Options, plugin Config) (found []Check) {
	add := func(name, status, format string, args ...any) {
		found = append(found, Check{Name: name, Status: status, Detail: redact(fmt.Sprintf(format, args...))})
	}
	opts.Names = cmp.Or(opts.Names, x402.Default)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s, err := plugin.over(opts.Config).resolve(opts.Names)
	if err != nil {
		add("configuration", check.Failed, "%s", err)
		return found
	}
	add("configuration", check.OK, "environment %s", s.Environment)
	c := &Core{opts: opts, now: opts.Now, log: redactLog(nil), settings: s}
	a, err := c.account()
	if err != nil {
		status := check.Failed
		if s.APIKey == "" && c.signIn.stored == nil && c.signIn.damaged == nil {
			status = check.Warning
		}
		add("login", status, "%s", err)
		return found
	}
	if warning := a.loginWarning(c.now()); warning != "" {
		add("login", check.Warning, "%s", warning)
	}
	lacks, err := c.inspectKey(ctx, a)
	var address toll.Address
	if err == nil {
		address, err = a.service.Address(ctx)
	}
	if err != nil {
		add("login", check.Failed, "%s", asError(err))
		return found
	}
	add("login", check.OK, "workspace %s, environment %s, service %s", address, a.environment, a.service.URL())
	if len(lacks) > 0 {
		add("rights", check.Warning, "the API key lacks these rights: %s. Log in again, and keep every right selected", lacks)
	}
	if a.PlanID == "" {
		add("plan", check.Warning, "planId is not set in this configuration: prompts do not show the balance, and each tool call "+
			"must include planId. Set planId in the plugin or in the file for --config")
	} else if plan, err := a.service.Plan(ctx, a.PlanID); err != nil {
		add("plan", check.Failed, "plan %s: %s", a.PlanID, asError(err))
	} else {
		add("plan", check.OK, "plan %s, version %d", a.PlanID, plan.Version)
	}
	if !s.paidEndpoint {
		return found
	}
	if err := c.CheckPaidEndpoint(ctx); err != nil {
		add("paid endpoint", check.Failed, "%s", asError(err))
	} else if a.PublicURL == "" {
		add("paid endpoint", check.Warning, "publicUrl is not set: buyers see a path instead of a URL")
	} else {
		add("paid endpoint", check.OK, "POST %s%s, handler %s", a.PublicURL, a.AgentEndpointPath, a.handler.Kind)
	}
	return found
}

// inspectKey checks that the service accepts the key of an account, and returns the rights that the key lacks.
func (c *Core) inspectKey(ctx context.Context, a *account) (lacks toll.Rights, err error) {
	if err := checkEnvironment(ctx, c.client("", a.BaseURL), a.environment); err != nil {
		return nil, err
	}
	if _, err := a.service.Versions(ctx); err != nil {
		return nil, err
	}
	return missingRights(ctx, a)
}

// missingRights returns the rights that a core uses and the key of an account lacks.
func missingRights(ctx context.Context, a *account) (toll.Rights, error) {
	key, err := a.service.Key(ctx, a.keyID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(loginRights(a.settings), key.Rights.Has), nil
}
