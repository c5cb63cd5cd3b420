package paida2a

import (
	"container/list"
	"context"
	"fmt"
	"time"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll/x402"
)

const maxMessages = 64 // in the history of a task

// phase is the internal state of a task; clients see its status.
type phase int

const (
	phaseOpen     phase = iota // waiting for a payment
	phaseRunning               // verifying the payment or running the agent; can be canceled
	phaseSettling              // settling; cannot be canceled
	phaseOver
)

// task is one A2A task. handler.mu guards it.
type task struct {
	id      a2a.TaskID
	context string

	phase   phase
	told    *a2a.Task     // as clients see it; replaced, never modified
	events  []a2a.Event   // events of all runs, for clients that follow
	changed chan struct{} // closed at each change
	asked   *a2a.Message  // message for the agent; nil while the agent waits for a reply to its question
	ran     bool          // a run has ended with a question, so the agent knows the task
	payment string        // digest of the payment of the latest run
	claim   string        // claim of its payment, see credential; may be empty
	problem error         // reason why the latest run ended without an outcome
	cancel  context.CancelFunc
	demand  *x402.PaymentRequired
	isPaid  bool // the result was paid and can be fetched

	works     bool // the agent is working
	canceling bool // the agent was canceled
	waited    bool // the paying caller waits for the outcome
	followers int  // callers that wait for the task or follow its stream

	at      time.Time
	bytes   int64
	source  string // address that opened it
	place   *list.Element
	in      *list.List    // the list of the book that contains place; nil while running
	ofGroup *list.Element // in the list of its address, while unpaid and idle
}

// group contains the unpaid idle tasks of one address, longest unchanged first.
type group struct {
	tasks list.List
	bytes int64
}

// sourceShare sets the share of an address: if its unpaid tasks use more than 1/sourceShare of the memory, they are evicted first.
const sourceShare = 16

// book contains the tasks. Its lists have the longest unchanged task first.
type book struct {
	life   time.Duration
	most   int   // tasks
	room   int64 // bytes
	tasks  map[a2a.TaskID]*task
	claims map[string]*task  // by claim, for payments that pay for one request only
	groups map[string]*group // by address
	unpaid list.List         // tasks that wait for a payment or ended unpaid
	paid   list.List         // tasks that ended paid
	bytes  int64
}

func newBook(most int, room int64, life time.Duration) *book {
	return &book{
		life: life, most: most, room: room, tasks: map[a2a.TaskID]*task{}, claims: map[string]*task{}, groups: map[string]*group{},
	}
}

var errFull = fmt.Errorf("too many tasks are in progress: %w", a2a.ErrServerError)

func (b *book) add(t *task, now time.Time) error {
	b.expire(now)
	for len(b.tasks) >= b.most {
		if !b.drop(t) {
			return errFull
		}
	}
	if !b.fit(t.bytes, t) {
		return errFull
	}
	b.tasks[t.id] = t
	b.bytes += t.bytes
	b.put(t, now)
	return nil
}

// fit evicts tasks until more bytes fit, except the task of, and reports whether they fit.
func (b *book) fit(more int64, of *task) bool {
	for b.bytes+more > b.room {
		if !b.drop(of) {
			return false
		}
	}
	return true
}

// drop deletes the longest unchanged task, except but: from the largest address above its share, else from all unpaid tasks, else
// from the paid tasks. It reports whether it deleted a task.
func (b *book) drop(but *task) bool {
	lists := []*list.List{&b.unpaid, &b.paid}
	if g := b.largest(); g != nil {
		lists = append([]*list.List{&g.tasks}, lists...)
	}
	for _, l := range lists {
		for e := l.Front(); e != nil; e = e.Next() {
			if t := e.Value.(*task); t != but {
				b.remove(t)
				return true
			}
		}
	}
	return false
}

// largest returns the largest group above its share, or nil.
func (b *book) largest() (largest *group) {
	most := b.room / sourceShare
	for _, g := range b.groups {
		if size := max(g.bytes, int64(g.tasks.Len())*(b.room/int64(b.most))); size > most {
			largest, most = g, size
		}
	}
	return largest
}

// find returns a task, or [a2a.ErrTaskNotFound] if it is unknown or has expired.
func (b *book) find(id a2a.TaskID, now time.Time) (*task, error) {
	b.expire(now)
	if t := b.tasks[id]; t != nil {
		return t, nil
	}
	return nil, a2a.ErrTaskNotFound
}

// put records a change of a task at the time now. A running task is not in any list, so it is kept until it ends.
func (b *book) put(t *task, now time.Time) {
	b.take(t)
	t.at = now
	switch {
	case t.busy():
		return
	case t.isPaid:
		t.in = &b.paid
	default:
		t.in = &b.unpaid
		g := b.groups[t.source]
		if g == nil {
			g = &group{}
			b.groups[t.source] = g
		}
		t.ofGroup = g.tasks.PushBack(t)
		g.bytes += t.bytes
	}
	t.place = t.in.PushBack(t)
}

func (b *book) take(t *task) {
	if t.in != nil {
		t.in.Remove(t.place)
		t.in, t.place = nil, nil
	}
	if t.ofGroup == nil {
		return
	}
	g := b.groups[t.source]
	g.tasks.Remove(t.ofGroup)
	t.ofGroup = nil
	if g.bytes -= t.bytes; g.tasks.Len() == 0 {
		delete(b.groups, t.source)
	}
}

func (b *book) grow(t *task, more int64) {
	if b.tasks[t.id] == t {
		b.bytes += more
	}
	if t.ofGroup != nil {
		b.groups[t.source].bytes += more
	}
	t.bytes += more
}

func (b *book) expire(now time.Time) {
	for _, l := range []*list.List{&b.unpaid, &b.paid} {
		for e := l.Front(); e != nil && now.Sub(e.Value.(*task).at) >= b.life; e = l.Front() {
			b.remove(e.Value.(*task))
		}
	}
}

func (b *book) remove(t *task) {
	b.take(t)
	b.bytes -= t.bytes
	delete(b.tasks, t.id)
	if b.claims[t.claim] == t {
		delete(b.claims, t.claim)
	}
}

// claimed binds a payment to the task t. It returns false if the payment is bound to another task.
func (b *book) claimed(name string, t *task) bool {
	if name == "" {
		return true
	}
	if other := b.claims[name]; other != nil && other != t {
		return false
	}
	if t.claim != name {
		delete(b.claims, t.claim)
		t.claim = name
	}
	b.claims[name] = t
	return true
}
