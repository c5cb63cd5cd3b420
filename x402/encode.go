package x402

import (
	"slices"
	"strconv"

	"github.com/tollhq/toll"
)

// jsonWriter appends the members of an object.
type jsonWriter struct {
	b   []byte
	odd bool // the output differs from the generic encoder
}

func (w *jsonWriter) raw(s string) { w.b = append(w.b, s...) }

// name writes the name of a member, given in quotes with its colon, and a comma before it if needed.
func (w *jsonWriter) name(quoted string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, quoted...)
}

func (w *jsonWriter) string(name, s string) {
	w.name(name)
	w.b = quote(w.b, s)
}

// text writes a string, and omits it if empty.
func (w *jsonWriter) text(name, s string) {
	if s != "" {
		w.string(name, s)
	}
}

func (w *jsonWriter) bool(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

func (w *jsonWriter) credits(name string, c toll.Credits) {
	w.name(name)
	w.b = append(w.b, '"')
	w.b = strconv.AppendInt(w.b, int64(c), 10)
	w.b = append(w.b, '"')
}

// creditsOf omits the member for nil.
func (w *jsonWriter) creditsOf(name string, c *toll.Credits) {
	if c != nil {
		w.credits(name, *c)
	}
}

// number writes digits, optionally with a fraction, unchanged.
func (w *jsonWriter) number(name string, n []byte) {
	w.name(name)
	digits, points := 0, 0
	for i, c := range n {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.' && i > 0 && i < len(n)-1:
			points++
		default:
			w.odd = true
		}
	}
	w.odd = w.odd || digits == 0 || points > 1 || n[0] == '0' && len(n) > 1 && n[1] != '.'
	w.b = append(w.b, n...)
}

func (w *jsonWriter) time(name string, t *toll.Time) {
	w.name(name)
	if t == nil {
		w.raw("null")
		return
	}
	b, err := t.MarshalJSON()
	w.odd = w.odd || err != nil || !isPlain(string(b[1:len(b)-1]))
	w.b = append(w.b, b...)
}

func (r *VerifyResponse) appendJSON(b []byte) ([]byte, error) {
	if r == nil {
		return nil, errUnusual
	}
	w := &jsonWriter{b: append(slices.Grow(b, 1<<10), '{')} // enough for a usual verdict
	w.bool(`"isValid":`, r.IsValid)
	w.text(`"invalidReason":`, r.InvalidReason)
	w.text(`"invalidMessage":`, r.InvalidMessage)
	w.text(`"code":`, string(r.Code))
	w.text(`"payer":`, r.Payer)
	w.text(`"network":`, r.Network)
	w.text(`"agentRequestId":`, r.AgentRequestID)
	w.text(`"planId":`, string(r.PlanID))
	w.text(`"agentId":`, string(r.AgentID))
	w.creditsOf(`"amount":`, r.Amount)
	w.text(`"urlMatching":`, r.URLMatching)
	w.text(`"verbMatching":`, r.VerbMatching)
	if a := r.AgentRequest; a != nil {
		w.name(`"agentRequest":{`)
		w.string(`"agentRequestId":`, a.AgentRequestID)
		w.string(`"agentName":`, a.AgentName)
		w.string(`"agentId":`, string(a.AgentID))
		w.name(`"balance":`)
		w.balance(&a.Balance)
		w.string(`"urlMatching":`, a.URLMatching)
		w.string(`"verbMatching":`, a.VerbMatching)
		w.bool(`"batch":`, a.Batch)
		w.raw(`}`)
	}
	if e := r.Extra; e != nil && *e != (VerifyExtra{}) {
		w.name(`"extra":{`)
		w.text(`"agentRequestId":`, e.AgentRequestID)
		w.creditsOf(`"heldAmount":`, e.HeldAmount)
		if e.HoldExpiresAt != nil {
			w.time(`"holdExpiresAt":`, e.HoldExpiresAt)
		}
		w.text(`"checkoutUrl":`, e.CheckoutURL)
		w.raw(`}`)
	}
	if w.odd {
		return nil, errUnusual
	}
	return append(w.b, '}'), nil
}

func (w *jsonWriter) balance(b *toll.Balance) {
	w.raw(`{`)
	w.string(`"planId":`, string(b.PlanID))
	w.string(`"planName":`, b.PlanName)
	w.string(`"planType":`, string(b.PlanType))
	w.string(`"holderAddress":`, b.HolderAddress.String())
	w.credits(`"balance":`, b.Balance)
	w.credits(`"held":`, b.Held)
	w.credits(`"available":`, b.Available)
	w.string(`"creditsContract":`, b.CreditsContract.String())
	w.bool(`"isSubscriber":`, b.IsSubscriber)
	w.bool(`"is_subscriber":`, b.IsSubscriberAlias)
	w.number(`"pricePerCredit":`, b.PricePerCredit)
	w.bool(`"batch":`, b.Batch)
	w.credits(`"total":`, b.Total)
	w.credits(`"used":`, b.Used)
	w.credits(`"remaining":`, b.Remaining)
	w.time(`"expiresAt":`, b.ExpiresAt)
	w.raw(`}`)
	w.odd = w.odd || b.Lots != nil
}
