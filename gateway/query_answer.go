package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

const (
	maxErrorBody  = 2000 // characters shown of an agent's error
	maxForeign    = 300  // characters of other texts from an agent
	maxForeignKey = 200  // characters of a name in an agent's JSON
)

// responseJSON returns the response of an agent as JSON. Strict JSON keeps its structure, and any other body becomes a string.
// Invisible characters are removed from all texts.
func responseJSON(body []byte) json.RawMessage {
	if len(body) == 0 {
		return json.RawMessage(`""`)
	}
	var value json.RawMessage
	if x402.Decode(body, &value) == nil && len(value) > 0 {
		return clean(value)
	}
	return encoded(plain.Lines(string(body), outbound.MaxBody))
}

// clean removes invisible characters from the strings and names of a JSON value, which must be valid and at most
// [x402.MaxDepth] deep. If names become equal, only one of them remains.
func clean(value json.RawMessage) json.RawMessage {
	switch value[0] {
	case '"':
		var s string
		_ = x402.Decode(value, &s)
		return encoded(plain.Lines(s, outbound.MaxBody))
	case '[':
		var list []json.RawMessage
		_ = x402.Decode(value, &list)
		for i := range list {
			list[i] = clean(list[i])
		}
		return encoded(list)
	case '{':
		members, cleaned := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		_ = x402.Decode(value, &members)
		for name, member := range members {
			cleaned[plain.Lines(name, maxForeignKey)] = clean(member)
		}
		return encoded(cleaned)
	}
	return value
}

// encoded returns the JSON of a value that always encodes.
func encoded(v any) json.RawMessage {
	b, err := x402.Encode(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// queryFault contains the details of a failed query: untrusted texts and the payment.
type queryFault struct {
	Accepts  []offered     `json:"accepts,omitempty"`
	Error    string        `json:"error,omitempty"`    // from the agent's 402
	Body     string        `json:"body,omitempty"`     // from the agent's answer
	Location string        `json:"location,omitempty"` // of an unfollowed redirect
	Payment  *agentPayment `json:"payment,omitempty"`
	Notice   string        `json:"notice,omitempty"`
}

// offered is a payment option in an agent's 402.
type offered struct {
	Scheme  string `json:"scheme"`
	Network string `json:"network"`
	Amount  string `json:"amount,omitempty"` // credits, or base units of the asset
	Asset   string `json:"asset,omitempty"`
	PayTo   string `json:"payTo,omitempty"`
	PlanID  string `json:"planId,omitempty"`
	AgentID string `json:"agentId,omitempty"`
}

func offersOf(c *x402.Challenge) (all []offered) {
	line := func(s string) string { return plain.Text(s, maxForeign) }
	for i := range c.Entries {
		e := &c.Entries[i]
		all = append(all, offered{
			Scheme:  line(e.Scheme),
			Network: line(e.Network),
			Amount:  line(e.Amount),
			Asset:   line(e.Asset),
			PayTo:   line(e.PayTo),
			PlanID:  line(string(e.Plan())),
			AgentID: line(string(e.Agent())),
		})
	}
	return all
}

// with adds details to an error of a query. If a payment was sent and its cost is unknown, the error is not retryable.
func (q *query) with(e *Error, f queryFault) *Error {
	f.Payment = q.paid()
	if f.Payment != nil && f.Payment.CreditsRedeemed == "" {
		// A repeat could pay twice.
		e.Retryable = false
		e.Hint = strings.TrimSpace(e.Hint + " A payment was sent: up to " + f.Payment.MaxCredits +
			" credits may have been burned. Check the balance before you repeat the call.")
	}
	if f.Error != "" || f.Body != "" || f.Location != "" || len(f.Accepts) > 0 {
		f.Notice = foreignNotice
	}
	e.Details = encoded(f)
	return e
}

func (q *query) withPayment(e *Error) *Error { return q.with(e, queryFault{}) }

// unanswered returns an [*Error] for a query that could not be sent or paid, or whose agent did not answer.
func (q *query) unanswered(err error) error {
	unpaid, ok := errors.AsType[*client.PaymentError](err)
	switch {
	case !ok:
		return q.withPayment(reachError(q.url, err))
	case unpaid.Sent:
		e := reachError(q.url, unpaid.Reason)
		e.Message = q.url.Host + " did not answer after a payment was sent"
		return q.withPayment(e)
	}
	if e, ok := errors.AsType[*Error](unpaid.Reason); ok {
		return e // such as a missing card or a refused limit
	}
	if e, ok := errors.AsType[*toll.Error](unpaid.Reason); ok && undecided(e) {
		return asError(e)
	}
	e := errorf(PaymentRequired, "%s requires payment, but nothing was paid: %s",
		q.url.Host, plain.Text(withoutSentences(unpaid.Reason.Error()), 2*maxForeign))
	e.Status = http.StatusPaymentRequired
	return q.with(e.withHint(q.guidance(unpaid.Challenge)), queryFault{
		Accepts: offersOf(unpaid.Challenge),
		Error:   plain.Text(unpaid.Challenge.Error, maxForeign),
	})
}

var (
	quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	oneSymbol  = regexp.MustCompile(`^[A-Za-z0-9:/._?&=%+-]{1,128}$`)
)

// withoutSentences reduces each quoted text in a reason, which an agent wrote, to a [symbol]. Hosts pass the message of an
// error to the model without the notice in its details.
func withoutSentences(reason string) string {
	return quotedText.ReplaceAllStringFunc(reason, func(quoted string) string {
		return `"` + symbol(quoted[1:len(quoted)-1]) + `"`
	})
}

// symbol returns s if it is a single symbol, such as an address, else "…".
func symbol(s string) string {
	if !oneSymbol.MatchString(s) {
		return "…"
	}
	return s
}

// guidance suggests a next step when nothing was paid. A chat never pays from a wallet (scheme exact), so price and address are
// for the user.
func (q *query) guidance(asked *x402.Challenge) string {
	var plans, exact []string
	for i := range asked.Entries {
		e := &asked.Entries[i]
		switch id, err := toll.ParsePlanID(string(e.Plan())); {
		case err == nil && id == q.plan.ID:
			return fmt.Sprintf("This call may spend at most %s of plan %s, and agentUrl must be a full URL that the agent has registered. "+
				"Ask the user before you raise maxCredits or change agentUrl.", q.most.Text(), q.plan.ID)
		case err == nil:
			plans = append(plans, string(id))
		case e.Scheme == x402.SchemeExact:
			exact = append(exact, fmt.Sprintf("%s base units of %s to %s on %s",
				symbol(e.Amount), symbol(e.Asset), symbol(e.PayTo), symbol(e.Network)))
		}
	}
	switch {
	case len(plans) > 0:
		return "The agent accepts credits of plan " + strings.Join(plans, ", ") + ". The gateway never switches to another plan: ask the user, then pass planId."
	case len(exact) > 0:
		return "The agent accepts only wallet payments, which this gateway does not make: " + strings.Join(exact, "; ") + "."
	}
	return "The agent offers no payment option that this gateway supports."
}

// refused returns the error for a status other than 2xx.
func (q *query) refused(res *http.Response, body []byte) *Error {
	f := queryFault{Body: plain.Lines(string(body), maxErrorBody)}
	switch {
	case res.StatusCode == http.StatusPaymentRequired:
		return q.unsold(res, body)
	case res.StatusCode/100 == 3:
		f = queryFault{Location: plain.Text(res.Header.Get("Location"), maxForeign)}
		e := errorf(AgentError, "%s answered with a redirect, which was not followed", q.url.Host).
			withHint("The gateway never follows a redirect to another server. The user can provide the new URL.")
		e.Status = res.StatusCode
		return q.with(e, f)
	}
	e := errorf(AgentError, "%s answered with status %d", q.url.Host, res.StatusCode)
	e.Status = res.StatusCode
	e.Retryable = res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable
	return q.with(e, f)
}

// unsold returns the error for a final 402: an unknown challenge, or a refused payment.
func (q *query) unsold(res *http.Response, body []byte) *Error {
	f := queryFault{}
	if asked, err := x402.ReadChallenge(res.Header, body); err == nil {
		f.Accepts, f.Error = offersOf(asked), plain.Text(asked.Error, maxForeign)
	} else {
		f.Body = plain.Lines(string(body), maxErrorBody)
	}
	e := errorf(PaymentRequired, "%s requires payment in an unsupported format", q.url.Host)
	if len(q.purse.Payments()) > 0 {
		e = errorf(PaymentRequired, "%s did not accept the payment", q.url.Host).withHint(q.shortage())
	}
	e.Status = http.StatusPaymentRequired
	return q.with(e, f)
}

// shortage suggests a next step after a refused payment, usually because credits are missing.
func (q *query) shortage() string {
	check := "Check the balance of plan " + string(q.plan.ID) + ". If credits are missing, "
	switch {
	case q.backed != nil:
		return check + "the spending limit or its delegation did not cover an order: ask the user for a higher spendingLimitCents."
	case paymentTypeOf(q.plan.Price) == "fiat":
		return check + "ask the user to order the plan on its page, or to enroll a card and set spendingLimitCents."
	}
	return check + "ask the user whether to order the plan or set spendingLimitCents."
}
