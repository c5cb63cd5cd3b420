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

// Limits on the text in a host's approval prompt, in characters.
const (
	maxApprovalTitle = 80
	maxApprovalText  = 512
	maxShortText     = 100 // parameters with a larger limit are shown last
	maxShownText     = 80  // per argument
	maxShownURL      = 120
	maxShownList     = 150 // fits three receivers
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

// serveApproval reports to the host whether it must ask a person before a call, and the text to show. A call with invalid params
// needs no approval because it fails.
func (c *Core) serveApproval(w http.ResponseWriter, r *http.Request) {
	var in approvalRequest
	if !readBody(w, r, &in) {
		return
	}
	t := c.tools[in.Tool]
	if t == nil {
		fail(w, http.StatusNotFound, UnknownTool, "This tool does not exist.")
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

// acts reports whether a call with these arguments can pay, create, or raise something. This is true for confirmed calls, and
// for tools that write, which need no confirmation if the money goes to the account itself.
func (t *tool) acts(args arguments) bool {
	return args.flag(confirmParam.name) || t.effect == EffectWrite
}

// shownArguments formats the given arguments except confirm as "name: value", in registry order. With long it returns ids,
// URLs, and texts with a limit above maxShortText; otherwise it returns all remaining arguments.
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

// approvalTime limits reading the plan for an approval, while a person waits.
const approvalTime = 5 * time.Second

// approvalText describes a call for a person: the plan with its current price, the environment, and the arguments.
func (c *Core) approvalText(ctx context.Context, t *tool, args arguments, caller Caller) string {
	s := c.set()
	parts := []string{string(s.Environment)}
	a, err := c.account()
	if err == nil {
		parts[0] = string(a.environment)
	}
	// The host truncates the text, so arguments that move money precede arguments that a model can make long.
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
