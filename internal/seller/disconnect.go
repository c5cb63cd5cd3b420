package seller

import (
	"context"
	"errors"
	"time"
)

// Left reports whether the caller disconnected. An expired deadline does not count, because the program itself sets it.
func Left(caller context.Context) bool { return errors.Is(caller.Err(), context.Canceled) }

// Disconnect chooses what happens to work whose caller disconnects. Package paid documents it.
type Disconnect int

const (
	DisconnectByMethod Disconnect = iota
	DisconnectSettle
	DisconnectRelease
)

// Check panics for an unknown value. The panic message begins with room.
func (g Disconnect) Check(room string) {
	if g < DisconnectByMethod || g > DisconnectRelease {
		panic(room + ": OnDisconnect must be paid.DisconnectByMethod, paid.Settle, or paid.Release")
	}
}

// ErrHoldEnded is the cause of a context that ended with its hold.
var ErrHoldEnded = errors.New("paid: the hold for this response has expired")

// WorkContext returns the context of paid work, with the values and the deadline of caller. It ends with caller, except after a
// disconnect if goesOn, called then, returns true. In that case, it ends with the hold or the signature of a wallet, with the
// cause [ErrHoldEnded], which bounds work without a caller. Call the returned function when the work is done.
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

// detached is a context with the values and the deadline of a request that does not end with the request.
type detached struct {
	context.Context
	caller context.Context
}

func (d detached) Deadline() (time.Time, bool) { return d.caller.Deadline() }
