package x402

import (
	"cmp"
	"strings"

	"github.com/tollhq/toll"
)

// apiPath ends the base address of every service, beside its pages for people.
const apiPath = "/api/v1"

// base returns the address of the service without a trailing slash, "" if unknown.
func (t *Terms) base() string { return strings.TrimRight(absoluteURL(t.ServiceURL), "/") }

// address sets where to read and buy the plan, and where people sign in.
func (e *RequirementsExtra) address(t *Terms) {
	if base := t.base(); base != "" {
		if t.PlanID != "" {
			e.PlanURL = base + "/protocol/plans/" + string(t.PlanID)
			e.OrderURL = e.PlanURL + "/order"
		}
		if origin, ok := strings.CutSuffix(base, apiPath); ok {
			e.SignInURL = origin + "/sign-in"
		}
	}
	if sale := absoluteURL(t.OrderURL); sale != "" {
		e.OrderURL = sale
	}
}

// absoluteURL returns s if it starts as an absolute http or https URL and fits in a line of text, else "".
func absoluteURL(s string) string {
	if !visible(s) || !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
		return ""
	}
	return s
}

// Advice says where to buy the plan and where people sign in, for hints and texts that models read. It is "" without an
// absolute address in the entry.
func (r *Requirements) Advice() string {
	var says []string
	if order := absoluteURL(r.Extra.OrderURL); order != "" {
		says = append(says, "POST "+order+" orders the plan.")
	}
	if signIn := absoluteURL(r.Extra.SignInURL); signIn != "" {
		says = append(says, "People sign in at "+signIn+".")
	}
	return strings.Join(says, " ")
}

// PlanPage returns the page of the service that sells the plan, with the agent that people came from, or "".
func (t *Terms) PlanPage(agent toll.AgentID) string {
	origin, ok := strings.CutSuffix(t.base(), apiPath)
	if !ok || origin == "" {
		return ""
	}
	page := origin + "/p/" + string(t.PlanID)
	if agent != "" {
		page += "?agent=" + string(agent)
	}
	return page
}

// TokenHint explains where to buy the plan, how to get an access token, and in which of these headers to send it.
func (t *Terms) TokenHint(headers ...string) string {
	base := cmp.Or(t.base(), apiPath)
	hint := "Create an access token with POST " + base + "/x402/permissions and send it in " + strings.Join(headers, " or ") + "."
	if page := t.PlanPage(""); page != "" {
		hint = "Buy the plan at " + page + ". " + hint
	}
	return hint
}

// Hint returns the hint of e, or of its code, with absolute addresses, because readers of a 402 are not at the service.
func (t *Terms) Hint(e *toll.Error) string {
	hint := e.Hint
	hint = cmp.Or(hint, e.Code.Info().Hint)
	if base := t.base(); base != "" {
		hint = strings.ReplaceAll(hint, " "+apiPath+"/", " "+base+"/")
	}
	if t.PlanID != "" {
		hint = strings.ReplaceAll(hint, "{planId}", string(t.PlanID))
	}
	return hint
}
