package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
)

const (
	quoteLife  = 10 * time.Minute // for which a quote can be confirmed
	repeatTime = 30 * time.Second // in which a call without an id counts as the call before it
	askTime    = 3 * time.Second  // which a person needs at least to read a quote
	actLife    = 24 * time.Hour   // for which the service knows an Idempotency-Key
	maxActs    = 8192             // that are remembered
)

// act is the state of one thing that needs a confirmation in one conversation, for example the order of a plan.
type act struct {
	shown   string // terms of the last quote; "" after it was confirmed
	shownAt time.Time
	// shownBy is the call that the quote answered although it asked to act: that call and concurrent ones are not the answer of
	// a person to the quote.
	shownBy *string

	agreed  string // terms of the last confirmation
	key     string // its Idempotency-Key
	callID  string
	at      time.Time
	running int    // calls under the key that have no answer yet
	unknown bool   // whether the service acted is not known
	orderID string // an order that is not decided
	made    string // the delegation that was made or chosen
}

// acts are the acts of all conversations. The zero value is empty. It is safe for concurrent use.
type acts struct {
	mu    sync.Mutex
	known *cache.Cache[string, act]
}

// change runs f on an act under the lock.
func (a *acts) change(id string, now time.Time, f func(*act)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = cache.New[string, act](maxActs)
	}
	one, _ := a.known.Get(id, now)
	f(&one)
	a.known.Put(id, one, now.Add(actLife), now)
}

// permit allows one act. End it with [permit.end].
type permit struct {
	act
	repeated bool // an earlier call did it, or is doing it

	id   string
	core *Core
}

// agree returns a permit for an act on these terms, or nil if the answer is a quote: without a confirmation, or if the terms
// were not shown in this conversation in the last ten minutes, or if others were, which changed reports. One quote allows one
// act: a repeated call finds the act of the first one by its key, and every other call needs its own quote. A subject with
// other terms, such as a plan whose price changed, is the same act.
func (c *call) agree(subject, terms string) (p *permit, changed bool) {
	now := c.core.now()
	p = &permit{id: c.subject(subject), core: c.core}
	c.core.acts.change(p.id, now, func(a *act) {
		recent := !a.shownAt.IsZero() && now.Sub(a.shownAt) <= quoteLife
		switch {
		case !c.args.flag("confirm"):
			a.shown, a.shownAt, a.shownBy = terms, now, nil
			p = nil
			return
		case a.orderID != "" || a.agreed == terms && c.repeats(a, now):
			p.repeated = a.orderID != "" || !a.unknown
			if c.id == "" || c.id != a.callID {
				a.shown, a.shownAt = "", time.Time{} // this confirmation was the answer to it
			}
		case recent && a.shown == terms && c.wasRead(a, now):
			// Without an answer the key stays, which finds an order that was made. A delegation was for the terms of its own
			// confirmation.
			if !a.unknown {
				*a = act{key: digest(c.key(subject, terms, now), a.shownAt.String())}
			} else if a.agreed != terms {
				a.made = ""
			}
			a.agreed, a.callID, a.at = terms, c.id, now
			a.shown, a.shownAt = "", time.Time{}
		default:
			changed = recent && a.shown != "" && a.shown != terms
			if !recent || a.shown != terms {
				a.shown, a.shownAt, a.shownBy = terms, now, &c.id
			}
			p = nil
			return
		}
		a.running++
		p.act = *a
	})
	return p, changed
}

// wasRead reports whether a person can have read the last quote before this call.
func (c *call) wasRead(a *act, now time.Time) bool {
	since := now.Sub(a.shownAt)
	switch {
	case a.shownBy == nil:
		return true
	case c.id != "" && c.id == *a.shownBy:
		return since >= repeatTime
	}
	return since >= askTime
}

// repeats reports whether a call repeats the previous one: the same call id, no id soon after it, or before its outcome is
// known. Some hosts reuse call ids, so after a newer quote the id counts only for a short time.
func (c *call) repeats(a *act, now time.Time) bool {
	since := now.Sub(a.at)
	switch {
	case a.key == "":
		return false
	case a.running > 0, a.unknown && since <= quoteLife:
		return true
	case c.id == "", a.shown != "" && c.id == a.callID:
		return since < repeatTime
	}
	return c.id == a.callID
}

// end stores the outcome of an act: made and orderID of the permit, and whether it is unknown.
func (p *permit) end(unknown bool) {
	p.core.acts.change(p.id, p.core.now(), func(a *act) {
		if a.key != p.key {
			return // forgotten meanwhile
		}
		a.running = max(a.running-1, 0)
		a.unknown = unknown
		if p.orderID != "" || !unknown {
			a.orderID = p.orderID
		}
		if p.made != "" && p.agreed == a.agreed {
			a.made = p.made
		}
	})
}

// undecided reports whether an error of the service leaves the outcome of a request open, also if it answers a repeat.
func undecided(err error) bool {
	if err == nil {
		return false
	}
	e := toll.AsError(err)
	switch s := e.HTTPStatus(); s {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	default:
		return s >= 500 || e.Code == toll.CodeIdempotencyRunning
	}
}

// subject names an act of this conversation and account.
func (c *call) subject(of string) string {
	return digest("act", string(c.account.environment), c.account.address.Lower(), c.caller.SessionKey, of)
}

// key is an Idempotency-Key for the call id, else for half a minute. The key of an act also includes the time of its quote.
func (c *call) key(subject, terms string, now time.Time) string {
	id := "call " + c.id
	if c.id == "" {
		id = "window " + strconv.FormatInt(now.Unix()/int64(repeatTime/time.Second), 10)
	}
	return digest("key", c.subject(subject), terms, id)
}

// once is [call.key] for a creation without a confirmation: a repeated call gets the first answer.
func (c *call) once(subject string) string {
	now := c.core.now()
	key := c.key(subject, "", now)
	c.core.acts.change(c.subject("once "+subject), now, func(a *act) {
		if c.repeats(a, now) {
			key = a.key
			return
		}
		*a = act{key: key, callID: c.id, at: now}
	})
	return key
}

// digest hashes strings to 64 hexadecimal digits.
func digest(parts ...string) string {
	b, _ := json.Marshal(parts) // texts always have JSON
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// termsOf identifies what a person agrees to: who gets how much for what.
func termsOf(p *toll.Plan, more ...string) string {
	parts := []string{
		string(p.ID), p.Price.CurrencyName(), p.Price.TokenAddress.Lower(), p.Credits.Amount.String(),
		string(p.AccessLimit), p.Credits.DurationSecs.String(), strconv.FormatBool(!p.Kind().Prepaid()),
	}
	for i, amount := range p.Price.Amounts {
		parts = append(parts, amount.String())
		if i < len(p.Price.Receivers) {
			parts = append(parts, p.Price.Receivers[i].Lower())
		}
	}
	return digest(append(parts, more...)...)
}
