package paida2a

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"

	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// handler implements [a2asrv.RequestHandler].
type handler struct {
	a2asrv.RequestHandler // rejects push notifications and extended cards
	*seller.Seller
	agent a2asrv.AgentExecutor
	cfg   Config

	mu   sync.Mutex
	book *book
}

func newHandler(f x402.Facilitator, agent a2asrv.AgentExecutor, cfg Config) *handler {
	s, cfg := cfg.seller(f)
	return &handler{
		RequestHandler: a2asrv.NewHandler(nil), Seller: s, agent: agent, cfg: cfg, book: newBook(cfg.MaxTasks, cfg.MaxBytes, cfg.TaskLife),
	}
}

func invalid(why string) error { return fmt.Errorf("%s: %w", why, a2a.ErrInvalidParams) }

func (d *handler) OnSendMessage(ctx context.Context, params *a2a.MessageSendParams) (a2a.SendMessageResult, error) {
	t, _, err := d.send(ctx, params)
	if err != nil {
		return nil, err
	}
	wait := params.Config == nil || params.Config.Blocking == nil || *params.Config.Blocking
	d.enter(t, wait)
	defer d.leave(ctx, t)
	told, err := d.await(ctx, t, wait)
	if err != nil {
		return nil, err
	}
	return shortened(told, historyLength(params)), nil
}

// await returns the task as clients see it, or the reason why its latest run ended without an outcome. With wait, it blocks while
// the task is running or settling, or until ctx ends.
func (d *handler) await(ctx context.Context, t *task, wait bool) (*a2a.Task, error) {
	for {
		d.mu.Lock()
		told, busy, problem, changed := t.told, t.busy(), t.problem, t.changed
		d.mu.Unlock()
		switch {
		case !busy:
			return told, problem
		case !wait:
			return told, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *handler) OnSendMessageStream(ctx context.Context, params *a2a.MessageSendParams) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		t, from, err := d.send(ctx, params)
		if err != nil {
			yield(nil, err)
			return
		}
		d.enter(t, true)
		defer d.leave(ctx, t)
		d.follow(ctx, t, from, yield)
	}
}

func (d *handler) OnResubscribeToTask(ctx context.Context, params *a2a.TaskIDParams) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		t, err := d.find(params.ID)
		if err != nil {
			yield(nil, err)
			return
		}
		d.mu.Lock()
		from := len(t.events)
		d.mu.Unlock()
		d.enter(t, false)
		defer d.leave(ctx, t)
		d.follow(ctx, t, from, yield)
	}
}

// follow yields the events from index from on, or the task if there are none yet, until the run ends.
func (d *handler) follow(ctx context.Context, t *task, from int, yield func(a2a.Event, error) bool) {
	first := true
	for {
		d.mu.Lock()
		events, told, busy, problem, changed := t.events[from:], t.told, t.busy(), t.problem, t.changed
		d.mu.Unlock()
		if first && len(events) == 0 {
			events = []a2a.Event{told}
		} else {
			from += len(events)
		}
		first = false
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if !busy {
			if problem != nil {
				yield(nil, problem)
			}
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (d *handler) OnGetTask(_ context.Context, query *a2a.TaskQueryParams) (*a2a.Task, error) {
	t, err := d.find(query.ID)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	told := t.told
	d.mu.Unlock()
	return shortened(told, query.HistoryLength), nil
}

// OnCancelTask ends a task before its settlement, without burning credits. It cancels a working agent; if the agent still finishes,
// its work is settled, except with [paid.Release]. A settling or ended task cannot be canceled.
func (d *handler) OnCancelTask(ctx context.Context, params *a2a.TaskIDParams) (*a2a.Task, error) {
	t, err := d.find(params.ID)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	if t.phase == phaseRunning && t.works && d.OnDisconnect != paid.Release {
		d.mu.Unlock()
		return d.cancelWork(ctx, t)
	}
	defer d.mu.Unlock()
	if t.phase == phaseSettling || t.phase == phaseOver {
		return nil, a2a.ErrTaskNotCancelable
	}
	d.cancelLocked(ctx, t)
	return t.told, nil
}

func (d *handler) find(id a2a.TaskID) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.find(id, d.Clock())
}

func (t *task) busy() bool { return t.phase == phaseRunning || t.phase == phaseSettling }

func historyLength(p *a2a.MessageSendParams) *int {
	if p.Config == nil {
		return nil
	}
	return p.Config.HistoryLength
}

// shortened returns the task with the last history messages, or all messages if history is nil.
func shortened(t *a2a.Task, history *int) *a2a.Task {
	if history == nil || *history >= len(t.History) {
		return t
	}
	out := *t
	out.History = t.History[len(t.History)-max(*history, 0):]
	return &out
}
