package paidmcp

import (
	"container/list"
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	resumeBytes = 64 << 20
	resumeTime  = 5 * time.Minute
	resumeShare = 4    // a group may use a quarter of the memory
	streamBytes = 1024 // upper estimate of the memory of a stream without its events
)

// backlog bounds the memory for streams that clients can resume after their connection broke. It keeps a complete stream from the time at
// which the client receives the first event id until the stream was idle for its lifetime, its session ends, or other streams need the
// memory. A call that still runs then without a client is cancelled, because the client must not pay for an answer that it cannot fetch.
type backlog struct {
	most, each int64 // maximum bytes in total, and per group; most is 0 if streams are not kept
	life       time.Duration

	mu      sync.Mutex
	bytes   int64
	idle    list.List          // ended streams of unpaid calls without a reader, oldest first
	paid    list.List          // ended streams of paid calls without a reader, oldest first
	running map[string]*stream // streams that have not ended, by id
}

// kept are the streams of one session, guarded by the lock of the backlog.
type kept struct {
	streams map[string]*stream // by id
	paid    int                // number of streams whose call was paid
	closed  bool
}

func newBacklog(most int64, life time.Duration) *backlog {
	switch {
	case most == 0:
		most = resumeBytes
	case most < 0:
		most = 0
	}
	if life <= 0 {
		life = resumeTime
	}
	return &backlog{most: most, each: most / resumeShare, life: life, running: make(map[string]*stream)}
}

// open creates the stream of a call, with its first reader. polls means that the client accepts events and can be disconnected
// for a while; cancel ends the call.
func (b *backlog) open(s *session, polls bool, cancel func()) *stream {
	// Only the caller learns the id. It is a secret, since a session may have no owner.
	st := &stream{backlog: b, session: s, id: rand.Text(), polls: polls, cancel: sync.OnceFunc(cancel), header: http.Header{}, reader: &reader{}}
	st.moved.L = &b.mu
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[st.id] = st
	return st
}

// keep starts to keep a stream. It is called when its client is about to receive the first event id. The caller holds the lock.
func (b *backlog) keep(st *stream) {
	k := &st.session.kept
	if st.state != fresh || b.most == 0 || k.closed {
		return
	}
	if k.streams == nil {
		k.streams = make(map[string]*stream)
	}
	st.state, k.streams[st.id] = resumable, st
	if st.paid {
		k.paid++
	}
	n := int64(streamBytes)
	for _, e := range st.events {
		n += int64(len(e))
	}
	b.charge(st, n)
}

// charge counts n bytes for a kept stream, and frees memory for them. It drops unpaid streams before paid streams, and the oldest
// first. An unpaid stream never displaces a paid stream; it is dropped itself.
func (b *backlog) charge(st *stream, n int64) {
	g := st.session.group
	for g.bytes+n > b.each && b.dropOldest(st, &g.idle, &g.paid) {
	}
	for b.bytes+n > b.most && b.dropOldest(st, &b.idle, &b.paid) {
	}
	if g.bytes+n > b.each || b.bytes+n > b.most {
		b.drop(st)
		return
	}
	st.bytes += n
	g.bytes += n
	b.bytes += n
}

// dropOldest drops one stream to free memory for st. It returns false if no stream may be dropped.
func (b *backlog) dropOldest(st *stream, idle, paid *list.List) bool {
	switch {
	case idle.Len() > 0:
		b.drop(idle.Front().Value.(*stream))
	case st.paid && paid.Len() > 0:
		b.drop(paid.Front().Value.(*stream))
	default:
		return false
	}
	return true
}

// pay marks the call of a stream as paid. It is called before the answer is written.
func (b *backlog) pay(st *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !st.paid && st.state == resumable {
		st.session.kept.paid++
	}
	st.paid = true
}

// drop removes a kept stream. Its reader continues if it lacks at most the current event.
func (b *backlog) drop(st *stream) {
	k := &st.session.kept
	st.state = lost
	delete(k.streams, st.id)
	if st.paid {
		k.paid--
	}
	st.session.group.bytes -= st.bytes
	b.bytes -= st.bytes
	st.bytes = 0
	b.wake(st)
	if st.reader != nil && st.reader.read < st.last()-1 {
		st.reader = nil // its missing events are no longer counted
	}
	st.trim()
	st.moved.Broadcast()
	b.readerLeft(st)
}

// readerLeft handles a stream that lost its reader, or ended without one.
func (b *backlog) readerLeft(st *stream) {
	switch {
	case st.reader != nil:
	case st.state == resumable:
		if st.timer == nil {
			st.timer = time.AfterFunc(b.life, func() { b.expire(st) })
		} else {
			st.timer.Reset(b.life)
		}
		if st.ended && st.inAll == nil {
			all, own := b.lists(st)
			st.inAll, st.inGroup = all.PushBack(st), own.PushBack(st)
		}
	case !st.ended:
		go st.cancel()
	default:
		st.events = nil
	}
}

func (b *backlog) wake(st *stream) {
	if st.timer != nil {
		st.timer.Stop()
	}
	if st.inAll != nil {
		all, own := b.lists(st)
		all.Remove(st.inAll)
		own.Remove(st.inGroup)
		st.inAll, st.inGroup = nil, nil
	}
}

// lists returns the lists of idle streams that st belongs to.
func (b *backlog) lists(st *stream) (all, own *list.List) {
	if g := st.session.group; st.paid {
		return &b.paid, &g.paid
	} else {
		return &b.idle, &g.idle
	}
}

func (b *backlog) expire(st *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if st.reader == nil && st.state == resumable {
		b.drop(st)
	}
}

// resume attaches a new reader after the event with this id, and detaches the previous reader, whose connection may be broken
// without notice. It returns nil if the event is unknown or dropped.
func (b *backlog) resume(s *session, event string) (*stream, *reader) {
	id, number, _ := strings.Cut(event, "_")
	n, err := strconv.ParseUint(number, 10, 31)
	b.mu.Lock()
	defer b.mu.Unlock()
	st := s.kept.streams[id]
	if err != nil || st == nil || int(n) < st.before || int(n) > st.last() {
		return nil, nil
	}
	b.wake(st)
	st.reader = &reader{read: int(n)}
	st.moved.Broadcast()
	return st, st.reader
}

// closable is the middleware that lets a handler close the stream of its call until the client resumes it. It replaces the function
// of the SDK, whose transport does not store events. Clients that cannot resume stay connected.
func (b *backlog) closable(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if extra := req.GetExtra(); extra != nil && len(extra.Header[headerStream]) > 0 {
			b.mu.Lock()
			st := b.running[extra.Header[headerStream][0]]
			b.mu.Unlock()
			if st != nil {
				extra.Header = extra.Header.Clone()
				delete(extra.Header, headerStream)
				ctx = context.WithValue(ctx, streamKey{}, st)
				extra.CloseSSEStream = func(args mcp.CloseSSEStreamArgs) { b.part(st, args.RetryAfter) }
			}
		}
		return next(ctx, method, req)
	}
}

func (b *backlog) part(st *stream, retry time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most == 0 || st.reader == nil || !st.polls || st.state == lost || st.session.kept.closed {
		return
	}
	st.reader.leaves, st.reader.retry = true, retry
	st.moved.Broadcast()
}

// end marks a stream as complete.
func (b *backlog) end(st *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, st.id)
	st.ended = true
	st.moved.Broadcast()
	b.readerLeft(st)
}

// closed drops the streams of an ended session.
func (b *backlog) closed(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.kept.closed = true
	for _, st := range s.kept.streams {
		b.drop(st)
	}
}
