package x402

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
)

// Every paid call reads a verify and a settle response, so their usual form is parsed by hand: compact, known members only, no escapes. Any
// other text, also a faulty one, goes to the strict decoder, so that both accept the same texts and return the same values.

// maxPlain bounds responses that are parsed by hand, in bytes: their values share one copy of the text.
const maxPlain = 16 << 10

func (v *VerifyResponse) decodeBody(data []byte) error {
	if readPlain(data, v) {
		return nil
	}
	*v = VerifyResponse{}
	return decode(data, v)
}

func (s *SettleResponse) decodeBody(data []byte) error {
	if readPlain(data, s) {
		return nil
	}
	*s = SettleResponse{}
	return decode(data, s)
}

// readPlain parses a response and reports whether it could. Otherwise into is undefined.
func readPlain(data []byte, into any) bool {
	if len(data) > maxPlain {
		return false
	}
	r := plainReader{rest: string(data)}
	r.value(into)
	return !r.bad && r.rest == ""
}

// Names of members, in the order of the structs and of the pointers in value.
var (
	verifyMembers = []string{
		"isValid", "invalidReason", "invalidMessage", "code", "payer", "network", "agentRequestId", "planId", "agentId", "amount",
		"urlMatching", "verbMatching", "agentRequest", "extra",
	}
	agentRequestMembers = []string{"agentRequestId", "agentName", "agentId", "balance", "urlMatching", "verbMatching", "batch"}
	balanceMembers      = []string{
		"planId", "planName", "planType", "holderAddress", "balance", "held", "available", "creditsContract", "isSubscriber",
		"is_subscriber", "pricePerCredit", "batch", "total", "used", "remaining", "expiresAt",
	}
	verifyExtraMembers = []string{"agentRequestId", "heldAmount", "holdExpiresAt", "checkoutUrl"}
	settleMembers      = []string{
		"success", "errorReason", "errorMessage", "code", "transaction", "network", "payer", "creditsRedeemed", "remainingBalance",
		"amount", "orderTx", "extra", "extensions",
	}
	settleExtraMembers = []string{
		"agentRequestId", "planId", "agentId", "creditsRedeemed", "remainingBalance", "orderTx", "requestedAmount",
		"originalTransaction", "checkoutUrl",
	}
)

// value parses the type of the pointer.
func (r *plainReader) value(into any) {
	switch v := into.(type) {
	case *string:
		*v = r.text()
	case *bool:
		*v = r.bool()
	case *toll.Code:
		*v = toll.Code(r.text())
	case *toll.AccessLimit:
		*v = toll.AccessLimit(r.text())
	case *toll.PlanID:
		*v = parsed(r, toll.ParsePlanID)
	case *toll.AgentID:
		*v = parsed(r, toll.ParseAgentID)
	case *toll.Address:
		*v = parsed(r, toll.ParseAddress)
	case *toll.Credits:
		*v = parsed(r, toll.ParseCredits)
	case **toll.Credits:
		if !r.null() {
			*v = parsed(r, toll.ParseCredits).Ptr()
		}
	case **toll.Time:
		if !r.null() {
			*v = &toll.Time{Time: parsed(r, toll.ParseTime)}
		}
	case **string:
		if !r.null() {
			text := r.text()
			*v = &text
		}
	case *toll.Bool:
		*v = toll.Bool(r.bool())
	case **toll.Int:
		*v = new(toll.Int)
		r.bad = (*v).UnmarshalJSON([]byte(r.number())) != nil || r.bad
	case *tokenField:
		v.text = r.text()
		v.set = !r.bad
	case *toll.UsageLabels:
		r.object(labelMembers, &v.Upstream, &v.Route, &v.Model)
	case *knownRequired:
		r.bad = !v.read(r) || r.bad
	case *json.RawMessage:
		*v = json.RawMessage(r.number())
	case *map[string]json.RawMessage:
		*v = r.extensions()
	case *VerifyResponse:
		r.object(verifyMembers, &v.IsValid, &v.InvalidReason, &v.InvalidMessage, &v.Code, &v.Payer, &v.Network, &v.AgentRequestID,
			&v.PlanID, &v.AgentID, &v.Amount, &v.URLMatching, &v.VerbMatching, &v.AgentRequest, &v.Extra)
	case **AgentRequest:
		a := new(AgentRequest)
		*v = a
		r.object(agentRequestMembers, &a.AgentRequestID, &a.AgentName, &a.AgentID, &a.Balance, &a.URLMatching, &a.VerbMatching, &a.Batch)
	case *toll.Balance:
		r.object(balanceMembers, &v.PlanID, &v.PlanName, &v.PlanType, &v.HolderAddress, &v.Balance, &v.Held, &v.Available,
			&v.CreditsContract, &v.IsSubscriber, &v.IsSubscriberAlias, &v.PricePerCredit, &v.Batch, &v.Total, &v.Used, &v.Remaining,
			&v.ExpiresAt)
	case **VerifyExtra:
		e := new(VerifyExtra)
		*v = e
		r.object(verifyExtraMembers, &e.AgentRequestID, &e.HeldAmount, &e.HoldExpiresAt, &e.CheckoutURL)
	case *SettleResponse:
		r.object(settleMembers, &v.Success, &v.ErrorReason, &v.ErrorMessage, &v.Code, &v.Transaction, &v.Network, &v.Payer,
			&v.CreditsRedeemed, &v.RemainingBalance, &v.Amount, &v.OrderTx, &v.Extra, &v.Extensions)
	case **SettleExtra:
		e := new(SettleExtra)
		*v = e
		r.object(settleExtraMembers, &e.AgentRequestID, &e.PlanID, &e.AgentID, &e.CreditsRedeemed, &e.RemainingBalance, &e.OrderTx,
			&e.RequestedAmount, &e.OriginalTransaction, &e.CheckoutURL)
	default:
		r.bad = true
	}
}

// plainReader reads compact JSON of known shape. Its methods return zero values once bad is set.
type plainReader struct {
	rest string
	bad  bool // the text is for the strict decoder
}

func (r *plainReader) next(c byte) bool {
	if r.bad || r.rest == "" || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

func (r *plainReader) need(c byte) {
	if !r.next(c) {
		r.bad = true
	}
}

func (r *plainReader) word(w string) bool {
	if r.bad || len(r.rest) < len(w) || r.rest[:len(w)] != w {
		return false
	}
	r.rest = r.rest[len(w):]
	return true
}

// object parses each member, a unique one of at most 32 names, into the pointer of its name. It first looks for the next name,
// because the writer keeps an order.
func (r *plainReader) object(names []string, into ...any) {
	seen, likely := uint32(0), 0
	r.members(func(name string) {
		for range names {
			if likely == len(names) {
				likely = 0
			}
			at := likely
			if likely++; names[at] == name {
				r.bad = seen&(1<<at) != 0
				seen |= 1 << at
				r.value(into[at])
				return
			}
		}
		r.bad = true
	})
}

// members calls read after the name of each member.
func (r *plainReader) members(read func(name string)) {
	if r.need('{'); r.next('}') {
		return
	}
	for !r.bad {
		name := r.text()
		r.need(':')
		if r.bad {
			return
		}
		read(name)
		if r.next('}') {
			return
		}
		r.need(',')
	}
}

// text reads a string without escapes.
func (r *plainReader) text() string {
	r.need('"')
	if r.bad {
		return ""
	}
	if end := strings.IndexByte(r.rest, '"'); end >= 0 && isPlain(r.rest[:end]) {
		s := r.rest[:end]
		r.rest = r.rest[end+1:]
		return s
	}
	ascii := true
	for i := range len(r.rest) {
		switch c := r.rest[i]; {
		case c == '"':
			s := r.rest[:i]
			r.rest = r.rest[i+1:]
			r.bad = !ascii && !utf8.ValidString(s)
			return s
		case c == '\\' || c < ' ':
			r.bad = true
			return ""
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	r.bad = true
	return ""
}

func (r *plainReader) null() bool { return r.word("null") }

func (r *plainReader) bool() bool {
	if r.word("true") {
		return true
	}
	r.bad = r.bad || !r.word("false")
	return false
}

// number reads a number without sign and exponent.
func (r *plainReader) number() string {
	n := 0
	for n < len(r.rest) && (r.rest[n] >= '0' && r.rest[n] <= '9' || r.rest[n] == '.') {
		n++
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	whole, fraction, dot := strings.Cut(s, ".")
	r.bad = r.bad || whole == "" || whole[0] == '0' && len(whole) > 1 || dot && (fraction == "" || strings.Contains(fraction, "."))
	return s
}

// parsed parses a string with parse.
func parsed[T any](r *plainReader, parse func(string) (T, error)) (v T) {
	text := r.text()
	if r.bad {
		return v
	}
	v, err := parse(text)
	r.bad = err != nil
	return v
}

// extensions parses an object of objects of strings, as deep as the extensions of the service.
func (r *plainReader) extensions() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	r.members(func(name string) {
		from := r.rest
		if r.skip(3); r.bad {
			return
		}
		if _, twice := out[name]; twice {
			r.bad = true
			return
		}
		out[name] = json.RawMessage(from[:len(from)-len(r.rest)])
	})
	return out
}

// maxSkipped bounds the members of a skipped object.
const maxSkipped = 8

// skip skips a string, or an object of strings and of such objects.
func (r *plainReader) skip(depth int) {
	if r.rest == "" || depth == 0 || r.rest[0] != '{' {
		r.text()
		return
	}
	var names [maxSkipped]string
	n := 0
	r.members(func(name string) {
		for i := range n {
			r.bad = r.bad || names[i] == name
		}
		if r.bad = r.bad || n == maxSkipped; r.bad {
			return
		}
		names[n] = name
		n++
		r.skip(depth - 1)
	})
}
