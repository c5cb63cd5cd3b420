package paidmcp

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pollingVersion is the first protocol version with events without data, and with streams that the server closes for a while.
const pollingVersion = "2025-11-25"

// headerStream carries the stream id inside the program. HTTP requests cannot contain such a name.
const headerStream = ":stream"

const headerLastEvent = "Last-Event-ID"

// stream is the [http.ResponseWriter] for one call of a session. The transport of the SDK writes to it as if the client stayed
// connected; the current connection reads from it.
type stream struct {
	backlog *backlog
	session *session
	id      string
	polls   bool // the client accepts events, and supports streams that close before their end
	cancel  func()
	header  http.Header

	// Guarded by the lock of the backlog:
	moved  sync.Cond // signals a change of the stream
	state  streamState
	status int
	plain  []byte   // response other than an event stream
	events [][]byte // as the SDK writes them
	before int      // number of earlier events, which were freed
	reader *reader
	ended  bool
	paid   bool // its call was settled

	bytes          int64 // counted by the backlog
	timer          *time.Timer
	inAll, inGroup *list.Element
}

type streamState int

const (
	fresh     streamState = iota // the client has not received an event id
	resumable                    // the client has received an event id and can resume
	lost                         // the client can no longer resume
)

// reader is a connection that reads a stream.
type reader struct {
	read   int // number of the last event sent
	leaves bool
	retry  time.Duration // after which the client should reconnect
}

// errNoReader is the error of a write that no client can receive.
var errNoReader = errors.New("paidmcp: the client disconnected")

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) {
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	s.status = status
}

// answered returns the HTTP status that the SDK has written, or 0 if it has not set a status.
func (s *stream) answered() int {
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	return s.status
}

// Write appends one whole event, as the SDK writes it, and waits until the reader, if any, has sent it: a slow client slows its call.
func (s *stream) Write(b []byte) (int, error) {
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	if s.header.Get("Content-Type") != "text/event-stream" {
		s.plain = append(s.plain, b...)
		return len(b), nil
	}
	if s.reader == nil && s.state != resumable {
		return 0, errNoReader
	}
	s.events = append(s.events, bytes.Clone(b))
	if s.state == resumable {
		s.backlog.charge(s, int64(len(b)))
	}
	s.moved.Broadcast()
	for s.reader != nil && s.reader.read < s.last() {
		s.moved.Wait()
	}
	if s.reader == nil && s.state != resumable {
		return 0, errNoReader
	}
	return len(b), nil
}

// last returns the number of the last event. The first event has the number 1.
func (s *stream) last() int { return s.before + len(s.events) }

// trim frees the events that the reader of a stream without a copy has sent.
func (s *stream) trim() {
	if s.state == resumable || s.reader == nil {
		return
	}
	s.events = s.events[s.reader.read-s.before:]
	s.before = s.reader.read
}

// follow passes events to the reader until the stream ends, another reader attaches, or this one disconnects.
func (s *stream) follow(ctx context.Context, r *reader, write func(number, event []byte) error) {
	b := s.backlog
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		s.moved.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for s.reader == r && r.read == s.last() && !s.ended && !r.leaves && ctx.Err() == nil {
			s.moved.Wait()
		}
		parts := r.leaves && !s.ended
		if s.reader != r || ctx.Err() != nil || r.read == s.last() && !parts {
			break
		}
		number, event := r.read, parting(r.retry)
		if !parts {
			number, event = number+1, s.events[number-s.before]
		}
		id := s.eventID(number)
		b.mu.Unlock()
		err := write(id, event)
		b.mu.Lock()
		if err != nil {
			break
		}
		r.read = number
		if s.reader != r || parts {
			break
		}
		s.trim()
		s.moved.Broadcast()
	}
	if s.reader == r {
		s.reader = nil
		s.moved.Broadcast()
		b.readerLeft(s)
	}
}

// parting returns the event that asks the client to reconnect after retry.
func parting(retry time.Duration) []byte {
	if retry <= 0 {
		retry = time.Second
	}
	return []byte("retry: " + strconv.FormatInt(retry.Milliseconds(), 10) + "\ndata: \n\n")
}

// eventID returns the id line of an event, or nil if the client cannot resume. It is separate from the event, so that all
// connections share the memory of the event.
func (s *stream) eventID(number int) []byte {
	if s.state == lost || s.session.kept.closed || s.backlog.most == 0 {
		return nil
	}
	return []byte("id: " + s.id + "_" + strconv.Itoa(number) + "\n")
}

// opens keeps the stream from now on. For a client that polls it returns an empty event with the number 0, to resume from at once.
func (s *stream) opens() []byte {
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	s.backlog.keep(s)
	if s.state != resumable || !s.polls {
		return nil
	}
	return append(s.eventID(0), "data: \n\n"...)
}

// answer sends the stream to the caller.
func (s *stream) answer(ctx context.Context, r *reader, w *reply) {
	w.opens = s.opens
	s.follow(ctx, r, func(number, event []byte) error {
		if !w.begun {
			maps.Copy(w.Header(), s.header)
		}
		_, err := w.write(number, event)
		w.Flush()
		return err
	})
	s.backlog.mu.Lock()
	ended, status, plain := s.ended, s.status, s.plain
	s.backlog.mu.Unlock()
	if !ended || w.begun {
		return
	}
	maps.Copy(w.Header(), s.header)
	if status != 0 {
		w.WriteHeader(status)
	}
	if plain != nil {
		_, _ = w.Write(plain) // fails only if the client has disconnected
	}
	w.finish()
}

// resume sends the missed events of a stream, and then its further events.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, one *session) {
	events := r.Header.Values(headerLastEvent)
	var st *stream
	var reads *reader
	if len(events) == 1 {
		st, reads = s.sessions.backlog.resume(one, events[0])
	}
	if st == nil {
		refuse(w, http.StatusBadRequest, "unknown_event", "The event in Last-Event-ID is unknown or no longer available.")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush() // best effort, as in the SDK
	st.follow(r.Context(), reads, func(number, event []byte) error {
		_, err1 := w.Write(number)
		_, err2 := w.Write(event)
		_ = flush()
		return errors.Join(err1, err2)
	})
}
