package hold

import (
	"context"
	"errors"
	"time"
)

// Left reports whether the caller of a request has gone away. A deadline is one that the program has
// set itself.
func Left(caller context.Context) bool { return errors.Is(caller.Err(), context.Canceled) }

// WorkContext returns the context of paid work: it has the values and the deadline of caller, and
// ends with it. A caller who leaves ends it only when goesOn is false. Otherwise it ends once the time
// that remains then is over, with the cause over. That bounds what callers who left keep running.
// goesOn and remains are called once the caller has left. Call the returned function when the work is
// done.
func WorkContext(
	caller context.Context, goesOn func() bool, remains func() time.Duration, over error,
) (context.Context, context.CancelCauseFunc) {
	work, cancel := context.WithCancelCause(detached{context.WithoutCancel(caller), caller})
	stop := context.AfterFunc(caller, func() {
		if !Left(caller) || !goesOn() {
			cancel(context.Cause(caller))
			return
		}
		t := time.NewTimer(remains())
		defer t.Stop()
		select {
		case <-t.C:
			cancel(over)
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
