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

// Bounds of the text in the approval prompt of a host, in characters.
const (
	maxApprovalTitle = 80
	maxApprovalText  = 512
	maxShortText     = 100 // of a text that counts as short
	maxShownText     = 80  // of an argument
	maxShownURL      = 120
	maxShownList     = 150 // three receivers
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

// serveApproval decides whether the host must ask a person before a call. Calls with invalid params need no approval, as they
// fail.
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

// acts reports whether a call with these arguments would pay, create or raise something: a confirmed call, or a tool that
// writes, which needs no confirmation for money to the own account.
func (t *tool) acts(args arguments) bool {
	return args.flag(confirmParam.name) || t.effect == EffectWrite
}

// shownArguments returns the arguments that a person approves, in the order of the registry: either those of unbounded length
// and ids, or the others. confirm is left out.
func shownArguments(t *tool, args arguments, long bool) (shown []string) {
	for _, p := range t.params {
		value, given := args[p.name]
		isLong := p.kind == kindID || p.kind == kindURL ||
			p.kind == kindText && p.oneOf == nil && p.mostRunes() > maxShortText
		if !given || p.name == confirmParam.name || isLong != long {
			continue
		}
		text, most := fmt.Sprint(value), maxShownText
		switch p.kind {
		case kindURL:
			most = maxShownURL
		case kindList:
			most = maxShownList
			if n := len(args.list(p.name)); n > 1 {
				text = fmt.Sprintf("%d %s", n, text)
			}
		}
		shown = append(shown, fmt.Sprintf("%s: %s", p.name, plain.Text(text, most)))
	}
	return shown
}

// approvalTime bounds reading the plan for an approval, while a person waits.
const approvalTime = 5 * time.Second

// approvalText describes a call: the plan with its current price, and the arguments.
func (c *Core) approvalText(ctx context.Context, t *tool, args arguments, caller Caller) string {
	s := c.set()
	parts := []string{string(s.Environment)}
	a, err := c.account()
	if err == nil {
		parts[0] = string(a.environment)
	}
	// The host truncates the text, so arguments that move money precede those that a model can make long.
	parts = append(parts, shownArguments(t, args, false)...)
	parts = append(parts, shownArguments(t, args, true)...)
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
