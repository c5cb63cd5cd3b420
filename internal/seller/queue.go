package seller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/x402"
)

const (
	maxUnsettled    = 10000 // streams in one queue
	queueAtOnce     = 8     // concurrent settlements of one queue
	queueFirstDelay = time.Second
	queueMaxDelay   = time.Minute
	queueDrainDelay = 200 * time.Millisecond
	queueLife       = 24 * time.Hour
)

// Unsettled is a stream that was delivered but not settled.
type Unsettled struct {
	AgentRequestID string
	PlanID         toll.PlanID
	Payer          string
	Credits        toll.Credits // credits to burn
	Bytes          int64        // delivered body bytes
	Attempts       int
	Since          time.Time
	Reason         string // errorReason of the last attempt
	// Final means that it will never be settled: the service refused, or the queue was full or gave up after 24 hours.
	Final bool
}

// Queue settles streams that were delivered while the service was unreachable. It uses the id of each request, so that credits
// are burned only once. It is kept in memory. Use [NewQueue].
type Queue struct {
	mu      sync.Mutex
	waiting int
	idle    chan struct{} // closed while the queue is empty
	hurry   chan struct{} // closed by Drain
	once    sync.Once
	slots   chan struct{}
}

// NewQueue returns an empty queue. One queue may serve many routes.
func NewQueue() *Queue {
	q := &Queue{idle: make(chan struct{}), hurry: make(chan struct{}), slots: make(chan struct{}, queueAtOnce)}
	close(q.idle)
	return q
}

// Len returns the number of queued streams.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Drain settles all queued streams without the usual pauses, and returns when the queue is empty, or an error when ctx ends. Call
// it before the program exits: the builder is not paid for streams that are still queued then. They are in the log.
func (q *Queue) Drain(ctx context.Context) error {
	q.once.Do(func() { close(q.hurry) })
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("paid: %d streams are not settled: %w", q.Len(), ctx.Err())
	}
}

// add queues a delivered sale whose settlement has no outcome. It raises the alarm and retries the settlement in the background
// for up to 24 hours, under the id of its request. If u is final or the queue is full, it only raises the alarm.
func (q *Queue) add(p *Sale, u Unsettled) {
	q.mu.Lock()
	if !u.Final && q.waiting >= maxUnsettled {
		u.Final, u.Reason = true, "the queue of unsettled streams is full"
	}
	if !u.Final {
		if q.waiting == 0 {
			q.idle = make(chan struct{})
		}
		q.waiting++
	}
	q.mu.Unlock()
	p.unsettled(u) // before the work begins, so that its final alarm comes second
	if !u.Final {
		go q.work(p, u)
	}
}

func (q *Queue) work(p *Sale, u Unsettled) {
	defer func() {
		q.mu.Lock()
		if q.waiting--; q.waiting == 0 {
			close(q.idle)
		}
		q.mu.Unlock()
	}()
	delay := queueFirstDelay
	for tries, waited := 2, time.Duration(0); waited < queueLife; tries, waited = tries+1, waited+delay {
		q.pause(delay)
		q.slots <- struct{}{}
		s, again, wait := p.settleOnce(context.Background(), u.Credits)
		<-q.slots
		u.Attempts++
		if s.Success {
			p.Log.Info(p.Room+": a stream was settled late", p.about()...)
			p.outcome(context.Background(), s)
			return
		}
		u.Reason = s.ErrorReason
		if !again && s.ErrorReason != x402.ReasonPending {
			break
		}
		delay = max(backoff.Double(queueFirstDelay, queueMaxDelay, tries), min(wait, queueMaxDelay))
	}
	u.Final = true
	p.unsettled(u)
}

func (q *Queue) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return
	case <-q.hurry:
	}
	select {
	case <-t.C:
	case <-time.After(queueDrainDelay):
	}
}
