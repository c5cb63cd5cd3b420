package paida2a

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll/x402"
)

// collector is the event queue that an agent writes to. It collects the outcome, which is published once the task is paid.
type collector struct {
	task  *task
	ended chan struct{}

	mu     sync.Mutex
	closed bool
	out    outcome
}

func newCollector(t *task) *collector { return &collector{task: t, ended: make(chan struct{})} }

// Write adds an event. It returns an error for an event of another task, an event that cannot be encoded, and any event after the
// event that ended the task.
func (c *collector) Write(_ context.Context, event a2a.Event) error {
	if event == nil {
		return fmt.Errorf("the agent sent an empty event: %w", a2a.ErrInvalidAgentResponse)
	}
	if _, err := x402.Encode(event); err != nil {
		return fmt.Errorf("the event cannot be encoded as JSON: %w", a2a.ErrInvalidAgentResponse)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return eventqueue.ErrQueueClosed
	}
	if _, ok := event.(*a2a.Message); !ok {
		if of := event.TaskInfo(); of.TaskID != c.task.id || of.ContextID != c.task.context {
			return fmt.Errorf("the event belongs to another task: %w", a2a.ErrInvalidAgentResponse)
		}
	}
	final := false
	switch e := event.(type) {
	case *a2a.Message:
		c.setStatus(a2a.TaskStatus{State: a2a.TaskStateCompleted, Message: e})
		final = true
	case *a2a.Task:
		c.out.artifacts = nil
		for _, a := range e.Artifacts {
			c.add(a)
		}
		c.describe(e.Metadata)
		c.setStatus(e.Status)
		final = ends(e.Status.State)
	case *a2a.TaskStatusUpdateEvent:
		c.describe(e.Metadata)
		c.setStatus(e.Status)
		final = e.Final || ends(e.Status.State)
	case *a2a.TaskArtifactUpdateEvent:
		if err := c.update(e); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown event type %T: %w", e, a2a.ErrInvalidAgentResponse)
	}
	if final {
		c.closed = true
		close(c.ended)
	}
	return nil
}

func ends(s a2a.TaskState) bool {
	return s.Terminal() || s == a2a.TaskStateInputRequired || s == a2a.TaskStateAuthRequired
}

func (c *collector) setStatus(s a2a.TaskStatus) {
	if c.out.message != nil {
		c.out.said = append(c.out.said, c.out.message)
	}
	c.out.state, c.out.message = s.State, nil
	if s.Message != nil {
		m := *s.Message
		m.Metadata = withoutPayment(m.Metadata) // the agent's own purchases are not part of this payment
		c.out.message = &m
	}
}

func (c *collector) describe(meta map[string]any) {
	meta = withoutPayment(meta)
	if len(meta) == 0 {
		return
	}
	if c.out.metadata == nil {
		c.out.metadata = map[string]any{}
	}
	maps.Copy(c.out.metadata, meta)
}

func (c *collector) update(e *a2a.TaskArtifactUpdateEvent) error {
	if e.Artifact == nil {
		return fmt.Errorf("the artifact update has no artifact: %w", a2a.ErrInvalidAgentResponse)
	}
	i := slices.IndexFunc(c.out.artifacts, func(a *a2a.Artifact) bool { return a.ID == e.Artifact.ID })
	switch {
	case i < 0 && e.Append:
		return fmt.Errorf("there is no artifact %q to append to: %w", e.Artifact.ID, a2a.ErrInvalidAgentResponse)
	case i < 0:
		c.add(e.Artifact)
	case e.Append:
		a := c.out.artifacts[i]
		a.Parts = append(a.Parts, e.Artifact.Parts...)
		if len(e.Artifact.Metadata) > 0 {
			meta := map[string]any{}
			maps.Copy(meta, a.Metadata)
			maps.Copy(meta, e.Artifact.Metadata)
			a.Metadata = meta
		}
	default:
		c.out.artifacts[i] = own(e.Artifact)
	}
	return nil
}

func (c *collector) add(a *a2a.Artifact) {
	if a != nil {
		c.out.artifacts = append(c.out.artifacts, own(a))
	}
}

func own(a *a2a.Artifact) *a2a.Artifact {
	out := *a
	out.Parts = notNil(slices.Clone(a.Parts))
	return &out
}

// close ends the queue and returns the outcome. An event that ended the task wins over a later error.
func (c *collector) close(err error) (*outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
		out := c.out
		return &out, nil
	default:
	}
	c.closed = true
	if err == nil {
		err = errNoEnd
	}
	return nil, err
}

func (c *collector) Read(context.Context) (a2a.Event, error) { return nil, eventqueue.ErrQueueClosed }

func (c *collector) Close() error { return nil }

// closedQueue is the queue for Cancel of an agent. It discards events, because the handler sets the status of a canceled task.
type closedQueue struct{}

func (closedQueue) Read(context.Context) (a2a.Event, error) { return nil, eventqueue.ErrQueueClosed }
func (closedQueue) Write(context.Context, a2a.Event) error  { return nil }
func (closedQueue) Close() error                            { return nil }
