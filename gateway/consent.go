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
	quoteLife  = 10 * time.Minute // within which a quote can be confirmed
	repeatTime = 30 * time.Second // within which a call without an id counts as a repeat of the previous call
	askTime    = 3 * time.Second  // minimum for a person to read a quote
	actLife    = 24 * time.Hour   // for which the service keeps an Idempotency-Key
	maxActs    = 8192             // kept in memory
)

// act is the state of one action that needs a confirmation in one conversation, for example the order of a plan.
type act struct {
	shown   string // terms of the last quote; "" after its confirmation
	shownAt time.Time
	// shownBy is the id of the call that got the quote although it set confirm, or nil if it did not. That call and concurrent
	// calls are not a person's answer to the quote.
	shownBy *string

	agreed  string // terms of the last confirmation
	key     string // its Idempotency-Key
	callID  string
	at      time.Time
	running int    // unfinished calls with the key
	unknown bool   // it is not known whether the service acted
	orderID string // pending order, if any
	made    string // delegation created or chosen, if any
}

// acts stores the acts of all conversations. The zero value is empty. It is safe for concurrent use.
type acts struct {
	mu    sync.Mutex
	known *cache.Cache[string, act]
}

// change calls f with the act, or with a zero act, under the lock, and stores the result for actLife.
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

// permit allows one act. The caller must call [permit.end] with its outcome.
type permit struct {
	act
	repeated bool // an earlier call completed it or is running it

	id   string
	core *Core
}

// agree returns a permit for an act on these terms, or nil if the tool must answer with a quote: without a confirmation, or if
// this conversation has not shown these terms in the last ten minutes or has shown them too recently for a person to read.
// changed reports that the last quote had different terms. Each quote permits one act, and a repeated call gets the key of the
// earlier act. A subject with new terms, such as a plan whose price changed, remains the same act.
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
				a.shown, a.shownAt = "", time.Time{} // this confirmation answered the quote
			}
		case recent && a.shown == terms && c.wasRead(a, now):
			// While the outcome is unknown, keep the key, which finds an order that the service created. A delegation is valid
			// only for the terms of its confirmation.
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

// wasRead reports whether a person can have read the last quote before this call. A quote for a call without confirm always counts.
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

// repeats reports whether a call repeats the last act: its outcome is unknown (for at most quoteLife), the ids are equal, or the
// call has no id and comes within repeatTime. Some hosts reuse ids: after a newer quote, equal ids must come within repeatTime too.
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

// end stores the outcome of an act: orderID and made from the permit, and whether the outcome is unknown.
func (p *permit) end(unknown bool) {
	p.core.acts.change(p.id, p.core.now(), func(a *act) {
		if a.key != p.key {
			return // another act replaced it, or the cache dropped it
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

// undecided reports whether the service may have acted despite err: 401, 403, 429, 5xx, or a request with the same key is running.
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

// subject returns a digest that identifies an act in this conversation of this account.
func (c *call) subject(of string) string {
	return digest("act", string(c.account.environment), c.address.Lower(), c.caller.SessionKey, of)
}

// key returns an Idempotency-Key for the call id or, without an id, for half a minute. agree adds the time of the quote to it.
func (c *call) key(subject, terms string, now time.Time) string {
	id := "call " + c.id
	if c.id == "" {
		id = "window " + strconv.FormatInt(now.Unix()/int64(repeatTime/time.Second), 10)
	}
	return digest("key", c.subject(subject), terms, id)
}

// once returns an Idempotency-Key for a creation without a confirmation. A repeated call gets the same key, and so the first answer.
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

// digest returns the SHA-256 of the parts, encoded as a JSON array, in 64 hexadecimal digits.
func digest(parts ...string) string {
	b, _ := json.Marshal(parts) // strings always encode
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// termsOf returns a digest of the terms that a person agrees to: plan, credits, amounts, receivers, and more.
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
