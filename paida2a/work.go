package paida2a

import (
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"

	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

const textDone = "The task is done."

// cancelTime bounds the call that cancels an agent.
const cancelTime = 30 * time.Second

var (
	errPanic    = errors.New("the agent panicked")
	errNoEnd    = errors.New("the agent returned without ending the task")
	errCanceled = errors.New("the task was canceled")
)

// work is one run of the agent, under one payment.
type work struct {
	*handler
	*task
	token    string
	asked    *a2a.Message
	required x402.PaymentRequired
	sale     *seller.Sale
}

// serve verifies the payment, runs the agent, settles, and then publishes the result.
func (w *work) serve(ctx context.Context) {
	if r := w.verify(ctx); r != nil {
		switch r.Class {
		case seller.Unavailable, seller.Pending:
			w.undecided(unreachable(r))
		case seller.CallerLeft:
			w.move(phaseOver, w.status(w.task, a2a.TaskStateCanceled, say(textCanceled), nil))
		default:
			w.move(phaseOver, w.failure(w.task, w.refusal(w.task, r)))
		}
		return
	}
	verified := map[string]any{metaStatus: statusVerified}
	if !w.move(phaseRunning, w.status(w.task, a2a.TaskStateWorking, say(textVerified), verified)) {
		w.sale.Release(ctx)
		return
	}
	keeper := w.sale.Keep(ctx)
	out, err := w.run(ctx)
	keeper.Stop()
	if ctx.Err() != nil && (err != nil || out.state != a2a.TaskStateCompleted) {
		w.sale.Release(ctx)
		w.move(phaseOver, w.status(w.task, a2a.TaskStateCanceled, say(textCanceled), nil))
		return
	}
	if err != nil {
		w.sale.Release(ctx)
		if w.move(phaseOver, w.status(w.task, a2a.TaskStateFailed, say(textFailed), verified)) {
			w.Log.Error("paida2a: an agent failed", "task", string(w.id), "agentRequestId", w.sale.AgentRequestID, "error", err.Error())
		}
		return
	}
	switch out.state {
	case a2a.TaskStateCompleted:
		w.complete(ctx, out)
	case a2a.TaskStateInputRequired, a2a.TaskStateAuthRequired:
		w.sale.Release(ctx)
		w.question(out)
	case a2a.TaskStateFailed, a2a.TaskStateRejected, a2a.TaskStateCanceled:
		w.sale.Release(ctx)
		w.move(phaseOver, w.status(w.task, out.state, out.parts(textFailed), verified))
	default:
		w.sale.Release(ctx)
		w.move(phaseOver, w.status(w.task, a2a.TaskStateFailed, say(textFailed), verified))
	}
}

// move publishes a status. It returns false if the task has been canceled meanwhile.
func (w *work) move(p phase, s a2a.TaskStatus) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy() {
		return false
	}
	w.works = p == phaseRunning
	w.publish(w.task, p, s)
	return true
}

// undecided reopens the task with a problem, so that the client can send the payment again.
func (w *work) undecided(problem error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy() {
		w.problem = problem
		w.publish(w.task, phaseOpen, w.offer(w.task))
	}
}

// question publishes a question of the agent. No credits are burned, so artifacts of the run are not published.
func (w *work) question(out *outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy() {
		return
	}
	w.task.asked, w.ran = nil, true
	s := w.status(w.task, a2a.TaskStateInputRequired, out.parts(textRequired), w.asking())
	asked := *s.Message
	asked.Metadata = nil
	w.heard(w.task, &asked)
	w.publish(w.task, phaseOpen, s)
}

// complete settles finished work and then publishes it.
func (w *work) complete(ctx context.Context, out *outcome) {
	size := sizeOf(out.artifacts) + sizeOf(out.metadata)
	w.mu.Lock()
	if !w.busy() {
		w.mu.Unlock()
		w.sale.Release(ctx)
		return
	}
	w.phase = phaseSettling
	w.mu.Unlock()

	s, known := w.sale.Settle(ctx, *w.sale.Max, seller.Tries)
	if !s.Success {
		if known {
			w.sale.Release(ctx)
		}
		w.move(phaseOver, w.failure(w.task, s))
		return
	}
	meta := map[string]any{metaStatus: statusCompleted, metaReceipts: []any{seller.Receipt(s)}}
	settled := w.status(w.task, a2a.TaskStateWorking, say("The payment is settled."), meta)
	events := []a2a.Event{&a2a.TaskStatusUpdateEvent{TaskID: w.id, ContextID: w.context, Status: settled}}
	for _, a := range out.artifacts {
		events = append(events, &a2a.TaskArtifactUpdateEvent{TaskID: w.id, ContextID: w.context, Artifact: a, LastChunk: true})
	}
	done := w.status(w.task, a2a.TaskStateCompleted, out.parts(textDone), out.with(meta))

	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard(w.task, out.said...)
	told := *w.told
	told.Artifacts, told.Metadata = out.artifacts, out.metadata
	w.told, w.isPaid = &told, true
	w.book.fit(size, w.task) // a paid result is stored even if it does not fit
	w.book.grow(w.task, size)
	w.publish(w.task, phaseOver, done, events...)
}

// run runs the agent until it ends the task, returns, or is canceled, and returns the outcome.
func (w *work) run(ctx context.Context) (*outcome, error) {
	req, err := w.request()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, paymentKey{}, paymentOf(w.sale)))
	defer cancel()
	c := newCollector(w.task)
	done := make(chan error, 1)
	go func() { done <- w.execute(ctx, req, c) }()
	select {
	case err = <-done:
	case <-c.ended:
	case <-ctx.Done():
		err = w.finish(c, done)
	}
	return c.close(err)
}

// execute calls the agent. It logs a panic and returns errPanic.
func (w *work) execute(ctx context.Context, req *a2asrv.RequestContext, c *collector) (err error) {
	defer func() {
		if v := recover(); v != nil {
			w.Log.Error("paida2a: an agent panicked", "task", string(w.id), "panic", v, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return w.agent.Execute(ctx, req, c)
}

// request returns the input of the agent. It contains copies, which the agent may change.
func (w *work) request() (*a2asrv.RequestContext, error) {
	w.mu.Lock()
	told, ran := w.told, w.ran
	w.mu.Unlock()
	req := &a2asrv.RequestContext{TaskID: w.id, ContextID: w.context}
	var err error
	if req.Message, err = copied(w.asked); err != nil {
		return nil, err
	}
	req.Metadata = req.Message.Metadata
	if ran {
		if req.StoredTask, err = withoutStatus(told); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// stopAgent calls Cancel of the agent in the background. The context of its run has already ended.
func (d *handler) stopAgent(ctx context.Context, told *a2a.Task) {
	stored, err := withoutStatus(told)
	if err != nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, cancelTime)
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				d.Log.Error("paida2a: an agent panicked", "task", string(told.ID), "panic", v, "stack", string(debug.Stack()))
			}
		}()
		req := &a2asrv.RequestContext{TaskID: told.ID, ContextID: told.ContextID, StoredTask: stored}
		if err := d.agent.Cancel(ctx, req, closedQueue{}); err != nil {
			d.Log.Warn("paida2a: an agent could not be canceled", "task", string(told.ID), "error", err.Error())
		}
	}()
}

// withoutStatus returns a copy of a task for its agent, without the payment messages of its status.
func withoutStatus(t *a2a.Task) (*a2a.Task, error) {
	out := *t
	out.Status.Message = nil
	return copied(&out)
}

func copied[T any](v *T) (*T, error) {
	b, err := x402.Encode(v)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, x402.Decode(b, out)
}

// outcome is the result of an agent.
type outcome struct {
	state     a2a.TaskState
	message   *a2a.Message
	said      []*a2a.Message // earlier messages
	artifacts []*a2a.Artifact
	metadata  map[string]any
}

func (o *outcome) parts(otherwise string) a2a.ContentParts {
	if o.message == nil || len(o.message.Parts) == 0 {
		return say(otherwise)
	}
	return slices.Clone(o.message.Parts)
}

// with merges the metadata of the agent's last message with meta, which wins.
func (o *outcome) with(meta map[string]any) map[string]any {
	out := map[string]any{}
	if o.message != nil {
		maps.Copy(out, o.message.Metadata)
	}
	maps.Copy(out, meta)
	return out
}
