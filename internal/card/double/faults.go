package double

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// Fault is a command to the double: something that goes wrong with one of the next requests or
// webhooks, or something that a bank, a person or time does at once.
//
// These wait for the next requests below Path with Method; empty means any. Only "cut", "hang" and
// "500" know After: the operation is executed first.
//
//	cut          the connection ends without an answer
//	hang         the answer comes after Seconds of real time
//	429, 500     this is the answer; a 500 is replayed under the idempotency key
//
// These wait for the next events of Type; empty means any.
//
//	lose         the webhook is not sent
//	double       it is sent twice
//	delay        it is sent Seconds later, by the double's clock
//	reorder      Count webhooks are held, then sent with the last one first
//
// This waits for the next payment.
//
//	processing   it succeeds later, or fails later when Reason is "fails"
//
// These happen at once. Object is the id of what they happen to.
//
//	clock        the double's clock moves by Seconds
//	dispute      a charge is disputed, with Reason (fraudulent when empty), by Amount (the rest of
//	             it when zero; another dispute of the same charge needs an amount)
//	inquiry      a charge is inquired about
//	escalate     an inquiry becomes a dispute
//	won, lost    a dispute ends
//	prevented    a dispute of a charge is over as soon as it begins, and its money stays away;
//	             or a dispute or inquiry ends in this way, and no more money moves
//	refund       a charge is refunded by Amount, as on Stripe's page
//	refund_ends  a refund that is pending is canceled, as on Stripe's page
//	update_card  the bank renews a payment method: it is valid until Month and Year
//	amount       a session that is open asks for Amount in Currency instead
//	clear        the faults that wait are dropped
type Fault struct {
	Kind    string `json:"kind"`
	Count   int    `json:"count,omitempty"` // how often; zero means once
	Seconds int64  `json:"seconds,omitempty"`
	After   bool   `json:"after,omitempty"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Type    string `json:"type,omitempty"`

	Object   string `json:"object,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Amount   int64  `json:"amount,omitempty"` // cents
	Currency string `json:"currency,omitempty"`
	Month    int64  `json:"month,omitempty"`
	Year     int64  `json:"year,omitempty"`
}

var (
	httpFaults  = []string{"cut", "hang", "429", "500"}
	eventFaults = []string{"lose", "double", "delay", "reorder", "processing"}
)

const (
	maxFaults  = 100
	maxSeconds = 10 * 366 * 24 * 60 * 60
)

func (f *Fault) is(kind string) bool { return f != nil && f.Kind == kind }

// Fault carries out a command, or keeps it for the next request or webhook.
func (d *Double) Fault(f Fault) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.newCall(nil)
	c.advance()
	if err := c.fault(f); err != nil {
		return err
	}
	d.wakeAll()
	return d.save()
}

func (c *call) fault(f Fault) error {
	f.Count = max(f.Count, 1)
	if f.Seconds > maxSeconds || f.Seconds < -maxSeconds ||
		f.Kind == "hang" && (f.Seconds < 0 || f.Seconds > 600) {
		return fmt.Errorf("the seconds of the fault %s are out of range; got %d", f.Kind, f.Seconds)
	}
	switch {
	case f.Kind == "clear":
		c.st.Faults = nil
		c.releaseReversed()
	case f.Kind == "clock":
		c.st.MovedBy += f.Seconds
		c.now += f.Seconds
		c.advance()
	case slices.Contains(httpFaults, f.Kind) || slices.Contains(eventFaults, f.Kind):
		if len(c.st.Faults) >= maxFaults {
			return fmt.Errorf("at most %d faults can be pending", maxFaults)
		}
		c.st.Faults = append(c.st.Faults, &f)
	default:
		return c.act(f)
	}
	return nil
}

// act does at once what a bank, or a person at Stripe's page, does.
func (c *call) act(f Fault) error {
	v, ok := find[row](c.st, f.Object)
	if !ok {
		return fmt.Errorf("fault %q: the object %q does not exist", f.Kind, f.Object)
	}
	switch v := v.(type) {
	case *charge:
		return c.actOnCharge(v, f)
	case *dispute:
		switch f.Kind {
		case "won", "lost":
			c.decide(v, f.Kind == "won")
			return nil
		case "escalate":
			c.escalate(v)
			return nil
		case "prevented":
			c.prevent(v)
			return nil
		}
	case *refund:
		if f.Kind == "refund_ends" && v.Status == "pending" {
			c.refundFailed(v, "canceled")
			return nil
		}
	case *paymentMethod:
		if f.Kind == "update_card" {
			v.Card.ExpMonth, v.Card.ExpYear = f.Month, f.Year
			c.emit("payment_method.automatically_updated", v)
			return nil
		}
	case *session:
		if f.Kind == "amount" && v.Status == "open" && v.Mode == "payment" && f.Amount > 0 &&
			f.Amount <= maxAmount {
			v.AmountTotal, v.AmountSubtotal = &f.Amount, &f.Amount
			v.Currency = text(cmp.Or(f.Currency, string(v.Currency)))
			return nil
		}
	}
	return fmt.Errorf("fault %q cannot be applied to %s", f.Kind, f.Object)
}

func (c *call) actOnCharge(ch *charge, f Fault) error {
	left := c.left(ch)
	contest := f.Kind == "dispute" || f.Kind == "inquiry" || f.Kind == "prevented"
	switch {
	case !ch.Paid:
		return fmt.Errorf("charge %s is not paid", ch.ID)
	case contest && left > 0 && (!ch.Disputed || f.Amount > 0) && f.Amount >= 0 && f.Amount <= left:
		dp := c.dispute(ch, cmp.Or(f.Reason, "fraudulent"), f.Kind == "inquiry", f.Amount)
		if f.Kind == "prevented" {
			c.prevent(dp)
		}
	case f.Kind == "refund" && f.Amount > 0 && f.Amount <= left:
		c.refund(ch, f.Amount)
	default:
		return fmt.Errorf("fault %q cannot be applied to %s, which has %d cents left", f.Kind, ch.ID, left)
	}
	return nil
}

// takeFault returns the first fault of a kind that waits for an event, and counts it down.
func (c *call) takeFault(kind, eventType string) *Fault {
	return c.st.takeFault(func(f *Fault) bool {
		return f.Kind == kind && (f.Type == "" || f.Type == eventType)
	})
}

// takeHTTPFault returns the first fault that waits for a request, and counts it down.
func (d *Double) takeHTTPFault(r *http.Request) *Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.st.takeFault(func(f *Fault) bool {
		return slices.Contains(httpFaults, f.Kind) && (f.Method == "" || f.Method == r.Method) &&
			strings.HasPrefix(r.URL.Path, f.Path)
	})
}

func (s *state) takeFault(match func(*Fault) bool) *Fault {
	i := slices.IndexFunc(s.Faults, match)
	if i < 0 {
		return nil
	}
	f := s.Faults[i]
	if f.Count--; f.Count == 0 {
		s.Faults = slices.Delete(s.Faults, i, i+1)
	}
	return new(*f)
}

// command serves a command. It takes the secret key, and only from programs of this machine that
// did not come through a proxy or a browser's page.
func (d *Double) command(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := d.authorize(r, "double")
		if !local(r) {
			err = &failure{status: http.StatusForbidden, Type: "invalid_request_error",
				Message: "The double accepts commands only from this machine"}
		}
		if err != nil {
			writeJSON(w, nil, err)
			return
		}
		serve(w, r)
	}
}

// proxied are headers of requests that came through a proxy, or from a page.
var proxied = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via", "Origin",
}

func local(r *http.Request) bool {
	passed := slices.ContainsFunc(proxied, func(h string) bool { return r.Header.Get(h) != "" })
	return !passed && loopback(r.RemoteAddr) && loopback(r.Host)
}

// loopback reports whether the host of an address, with or without a port, is this machine.
func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	return toll.IsLoopback(strings.Trim(host, "[]"))
}

func (d *Double) postFault(w http.ResponseWriter, r *http.Request) {
	b, err := readAll(w, r, 4<<10)
	var f Fault
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		err = dec.Decode(&f)
	}
	if err == nil {
		err = d.Fault(f)
	}
	if err != nil {
		err = invalidParam("", "", "%v", err)
	}
	writeJSON(w, map[string]bool{"ok": true}, err)
}

func writeJSON(w http.ResponseWriter, v any, err error) {
	a := newAnswer(v, err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}
