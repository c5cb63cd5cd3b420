package seller

import (
	"context"
	"errors"
	"time"
)

// Left reports whether the caller of a request has gone away. A deadline is one that the program has
// set itself.
func Left(caller context.Context) bool { return errors.Is(caller.Err(), context.Canceled) }

// Disconnect says what becomes of work whose caller goes away. It is documented in package paid.
type Disconnect int

// What becomes of such work.
const (
	DisconnectByMethod Disconnect = iota
	DisconnectSettle
	DisconnectRelease
)

// Check panics over an unknown value, which room was given.
func (g Disconnect) Check(room string) {
	if g < DisconnectByMethod || g > DisconnectRelease {
		panic(room + ": OnDisconnect is paid.DisconnectByMethod, paid.Settle or paid.Release")
	}
}

// ErrHoldEnded says that work was cut because the hold that pays for it ended.
var ErrHoldEnded = errors.New("paid: the hold that pays for this answer has ended")

// WorkContext returns the context of paid work: it has the values and the deadline of caller, and
// ends with it. A caller who leaves ends it only when goesOn, called then, is false. Otherwise it
// ends with the hold, or with what a wallet has signed, with the cause [ErrHoldEnded]: that bounds
// what callers who left keep running. Call the returned function when the work is done.
func (p *Sale) WorkContext(caller context.Context, goesOn func() bool) (context.Context, context.CancelCauseFunc) {
	work, cancel := context.WithCancelCause(detached{context.WithoutCancel(caller), caller})
	life := p.life()
	if p.Stock != nil {
		life = time.Duration(p.Stock.Requirements.MaxTimeoutSeconds) * time.Second
	}
	end := p.Clock().Add(life)
	stop := context.AfterFunc(caller, func() {
		if !Left(caller) || !goesOn() {
			cancel(context.Cause(caller))
			return
		}
		left := end.Sub(p.Clock())
		if p.end != nil {
			left = p.left(p.Clock())
		}
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(ErrHoldEnded)
		case <-work.Done():
		}
	})
	return work, func(cause error) {
		stop()
		cancel(cause)
	}
}

// detached has the values and the deadline of a request, but does not end with it.
type detached struct {
	context.Context
	caller context.Context
}

func (d detached) Deadline() (time.Time, bool) { return d.caller.Deadline() }
