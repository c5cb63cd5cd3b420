package paida2a

import (
	"context"
	"time"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
)

const textCanceled = "The task was canceled. Nothing was charged."

// enter adds a caller that waits for a task, until leave is called. pays means that the caller may have sent the payment.
func (d *handler) enter(t *task, pays bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.followers++
	t.waited = t.waited || pays
}

// leave removes a caller. With [paid.Release], it cancels the work if the last caller disconnected and the payer had waited.
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

// cancelLocked ends a task as canceled and cancels its agent. No credits are burned. The caller holds the lock.
func (d *handler) cancelLocked(ctx context.Context, t *task) {
	d.publish(t, phaseOver, d.status(t, a2a.TaskStateCanceled, say(textCanceled), nil))
	d.stop(ctx, t)
}

// stop cancels the agent of a task, once.
func (d *handler) stop(ctx context.Context, t *task) {
	if t.cancel == nil || t.canceling {
		return
	}
	t.canceling = true
	t.cancel()
	d.stopAgent(context.WithoutCancel(ctx), t.told)
}

// cancelWork cancels the agent of a task and waits for the outcome. It fails if the agent still finished the task.
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

// finish waits for a canceled agent, at most for the life of a hold. Finished work is paid, except with [paid.Release], when finish
// does not wait.
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
