package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

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
		Description: plain.Text(c.approvalText(t, args), maxApprovalText),
		Severity:    "warning",
	})
}

// acts reports whether a call with these arguments would pay, create or raise something: with a
// confirmation, or by a tool that writes, which needs none for money to the own account.
func (t *tool) acts(args arguments) bool {
	return args.flag(confirmParam.name) || t.effect == EffectWrite
}

// approvalText lists the arguments, in the order of the registry: what is approved is what runs.
func (c *Core) approvalText(t *tool, args arguments) string {
	s := c.set()
	parts := []string{string(s.Environment)}
	for _, p := range t.params {
		value, given := args[p.name]
		switch {
		case p.name == confirmParam.name:
			continue
		case !given && p.name == planParam.name && s.PlanID != "":
			value = s.PlanID
		case !given:
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s", p.name, plain.Text(fmt.Sprint(value), 80)))
	}
	return strings.Join(parts, ", ")
}
