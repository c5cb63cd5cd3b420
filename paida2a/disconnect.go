package paida2a

import (
	"context"
	"time"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
)

const textCanceled = "The task was canceled. Nothing was charged."

// enter counts a caller who waits for a task until leave is called. pays says that it may have brought
// the payment.
func (d *handler) enter(t *task, pays bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.followers++
	t.waited = t.waited || pays
}

// leave is called when a caller no longer waits. When it has gone away, and nobody else waits for what
// it paid, the builder may want that the work ends.
func (d *handler) leave(ctx context.Context, t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.followers--
	if d.OnDisconnect != paid.Release || !seller.Left(ctx) {
		return
	}
	if t.waited && t.followers == 0 && t.phase == phaseRunning {
		d.cancelLocked(ctx, t)
	}
}

// cancelLocked ends a task whose agent may be at work. Nothing is burned.
func (d *handler) cancelLocked(ctx context.Context, t *task) {
	d.publish(t, phaseOver, d.status(t, a2a.TaskStateCanceled, say(textCanceled), nil))
	d.stop(ctx, t)
}

// stop tells the agent of a task that it was canceled, once.
func (d *handler) stop(ctx context.Context, t *task) {
	if t.cancel == nil || t.canceling {
		return
	}
	t.canceling = true
	t.cancel()
	d.stopAgent(context.WithoutCancel(ctx), t.told)
}

// cancelWork tells an agent that its task was canceled, and waits for what it makes of that.
func (d *handler) cancelWork(ctx context.Context, t *task) (*a2a.Task, error) {
	d.mu.Lock()
	d.stop(ctx, t)
	d.mu.Unlock()
	told, err := d.await(ctx, t, true)
	switch {
	case told == nil:
		return nil, err
	case told.Status.State != a2a.TaskStateCanceled:
		return nil, a2a.ErrTaskNotCancelable
	}
	return told, nil
}

// finish waits for an agent that was told to stop, at most as long as the hold can last. Work that is
// finished all the same is paid, unless the builder gives it away.
func (w *work) finish(c *collector, done <-chan error) error {
	if w.OnDisconnect == paid.Release {
		return errCanceled
	}
	t := time.NewTimer(time.Duration(w.HoldSecs) * time.Second)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-c.ended:
	case <-t.C:
	}
	return errCanceled
}
