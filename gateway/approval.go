package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll/internal/plain"
)

// Bounds of what a host shows in its approval prompt, in characters.
const (
	maxApprovalTitle = 80
	maxApprovalText  = 512
)

type approvalRequest struct {
	Tool   string          `json:"tool"`
	Params json.RawMessage `json:"params"`
	Caller Caller          `json:"caller"`
}

type approvalAnswer struct {
	Needed      bool   `json:"needed"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Severity    string `json:"severity,omitempty"`
}

// serveApproval says whether the host has to ask a person before a call. Params that no call would
// take need no approval: the call fails.
func (c *Core) serveApproval(w http.ResponseWriter, r *http.Request) {
	var in approvalRequest
	if !readBody(w, r, &in) {
		return
	}
	t := c.tools[in.Tool]
	if t == nil {
		fail(w, http.StatusNotFound, UnknownTool, "There is no such tool.")
		return
	}
	args, _, err := t.check(in.Params)
	if err != nil || c.set().SpendApproval != approvalByHost || !t.acts(args) {
		answer(w, http.StatusOK, approvalAnswer{})
		return
	}
	answer(w, http.StatusOK, approvalAnswer{
		Needed:      true,
		Title:       plain.Text(t.title, maxApprovalTitle),
		Description: plain.Text(c.approvalText(r.Context(), t, args, in.Caller), maxApprovalText),
		Severity:    "warning",
	})
}

// acts reports whether a call with these arguments would pay, create or raise something: with a
// confirmation, or by a tool that writes, which needs none for money to the own account.
func (t *tool) acts(args arguments) bool {
	return args.flag(confirmParam.name) || t.effect == EffectWrite
}

// approvalTime bounds the reading of the plan for an approval. A person waits for it.
const approvalTime = 5 * time.Second

// approvalText says what a call would do: the plan with its price as it is now, and the arguments in
// the order of the registry.
func (c *Core) approvalText(ctx context.Context, t *tool, args arguments, caller Caller) string {
	s := c.set()
	parts := []string{string(s.Environment)}
	a, err := c.account()
	if err == nil {
		parts[0] = string(a.environment)
	}
	for _, p := range t.params {
		if value, given := args[p.name]; given && p.name != confirmParam.name {
			parts = append(parts, fmt.Sprintf("%s: %s", p.name, plain.Text(fmt.Sprint(value), 80)))
		}
	}
	rest := strings.Join(parts, ", ")
	if err != nil || !slices.ContainsFunc(t.params, func(p param) bool { return p.name == planParam.name }) {
		return rest
	}
	ctx, cancel := context.WithTimeout(ctx, approvalTime)
	defer cancel()
	one := &call{core: c, account: a, args: args, caller: caller}
	plan, err := one.plan(ctx)
	if err != nil {
		return "The plan and its price cannot be read. " + rest
	}
	return fmt.Sprintf("Plan %q (%s), %s for %s credits. %s",
		plain.Name(plan.Metadata.Name), plan.ID, readable(plan.Price), plan.Credits.Amount, rest)
}
