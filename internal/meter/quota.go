package meter

import (
	"cmp"
	"time"

	"github.com/tollhq/toll"
)

// Quota bounds the actions of an account per hour. A nil Quota has no bound. It uses the monotonic clock of this process, so
// setting the clock of the machine does not affect it.
type Quota struct {
	what  string
	meter *Meter[toll.Address]
	began time.Time
}

// NewQuota returns a quota of perHour actions, of usual if that is 0, and nil if it is negative. Messages name the actions as what.
func NewQuota(what string, perHour, usual int64) *Quota {
	perHour = cmp.Or(perHour, usual)
	if perHour < 0 {
		return nil
	}
	return &Quota{what: what, meter: New[toll.Address](time.Hour/time.Duration(perHour), perHour), began: time.Now()}
}

// Take counts n for an account. The error has the code [toll.CodeRateLimited] and names the quota and its limit.
func (q *Quota) Take(who toll.Address, n int64) *toll.Error {
	if q == nil {
		return nil
	}
	r := q.meter.Take(who, n, time.Since(q.began))
	if r.OK {
		return nil
	}
	e := toll.Errorf(toll.CodeRateLimited, "The limit of %d %s per hour is reached.", q.meter.Burst(), q.what).
		WithParam("quota", q.what).WithParam("limit", q.meter.Burst()).
		WithHint("Wait for the number of seconds in Retry-After, or ask the operator to raise the limit.")
	e.RetryAfterSecs = int((r.Retry + time.Second - 1) / time.Second)
	return e
}

// Give returns one action to an account.
func (q *Quota) Give(who toll.Address) {
	if q != nil {
		q.meter.Give(who, 1, time.Since(q.began))
	}
}
