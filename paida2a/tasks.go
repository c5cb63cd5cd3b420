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
	phaseOpen     phase = iota // waits for a payment
	phaseRunning               // is paid or about to be, may be canceled
	phaseSettling              // is done, and may not be canceled any more
	phaseOver
)

// task is guarded by the lock of its book.
type task struct {
	id      a2a.TaskID
	context string

	phase   phase
	told    *a2a.Task     // what clients see: replaced, never changed
	events  []a2a.Event   // what happened in runs, for clients that follow
	changed chan struct{} // closed at each change
	asked   *a2a.Message  // what the agent is to do; nil when it asked and has no answer
	ran     bool          // the agent has seen the task
	payment string        // digest of the payment of the latest run
	claim   string        // name of the request that its payment claims, may be empty
	problem error         // why the latest run ended without an outcome
	cancel  context.CancelFunc
	demand  *x402.PaymentRequired
	isPaid  bool // what it is for was paid and can be fetched

	works     bool // the agent is at work
	canceling bool // it was told that the task is canceled
	waited    bool // who paid waits for the outcome
	followers int  // callers who wait for it, or follow its stream

	at      time.Time
	bytes   int64
	source  string // address that opened it
	place   *list.Element
	in      *list.List    // of the book
	ofGroup *list.Element // in the list of its address, while it makes room for others
}

// group are the unpaid idle tasks of one address, the oldest first.
type group struct {
	tasks list.List
	bytes int64
}

// sourceShare divides the room for tasks: an address whose unpaid tasks use more than this part makes room first.
const sourceShare = 16

// book holds the tasks, the longest unchanged first.
type book struct {
	life   time.Duration
	most   int   // tasks
	room   int64 // bytes
	tasks  map[a2a.TaskID]*task
	claims map[string]*task  // who claims a payment that pays for one request only
	groups map[string]*group // by address
	unpaid list.List         // tasks that wait for a payment, or ended without one
	paid   list.List         // tasks that ended paid
	bytes  int64
}

func newBook(most int, room int64, life time.Duration) *book {
	return &book{
		life: life, most: most, room: room, tasks: map[a2a.TaskID]*task{}, claims: map[string]*task{}, groups: map[string]*group{},
	}
}

var errFull = fmt.Errorf("too many tasks are being worked on: %w", a2a.ErrServerError)

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

// fit makes room for more bytes of a task, and reports whether there is enough.
func (b *book) fit(more int64, of *task) bool {
	for b.bytes+more > b.room {
		if !b.drop(of) {
			return false
		}
	}
	return true
}

// drop forgets the longest unchanged task: of the largest address above its share, else of all unpaid tasks, else of the paid
// ones.
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

// largest returns the largest group that has more than its share, or nil.
func (b *book) largest() (largest *group) {
	most := b.room / sourceShare
	for _, g := range b.groups {
		if size := max(g.bytes, int64(g.tasks.Len())*(b.room/int64(b.most))); size > most {
			largest, most = g, size
		}
	}
	return largest
}

// find returns a task that has not expired.
func (b *book) find(id a2a.TaskID, now time.Time) (*task, error) {
	b.expire(now)
	if t := b.tasks[id]; t != nil {
		return t, nil
	}
	return nil, a2a.ErrTaskNotFound
}

// put records a change of a task. A running task is in no list, so it is kept until it ends.
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

// claimed binds a payment to the task t, and reports whether no other task has it.
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
