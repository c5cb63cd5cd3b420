package paidmcp

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/pace"
)

const (
	maxSessions  = 10_000
	sessionLife  = 4 * time.Hour   // without a request or an open stream
	strangerLife = 5 * time.Minute // the same, of a session that never was initialized
	sweepEvery   = time.Minute     // how often all sessions are looked at, when there is room for others
)

// session is one of the older era. It belongs to the credential that opened it: to everybody else its id means nothing.
type session struct {
	id        string
	owner     string // see caller.owner; "" when it was opened without a credential
	stranger  bool   // opened without initialize
	group     *group // who shares its room
	transport *mcp.StreamableServerTransport
	server    *mcp.ServerSession
	streams   int  // that are open
	messages  int  // that are being served
	ended     bool // nobody finds it any more
	closing   bool
	last      time.Time
	turn      int  // the higher, the later it became idle
	kept      kept // streams that a client can come back to
}

func (s *session) isIdle() bool { return s.streams == 0 && s.messages == 0 }

func (s *session) life() time.Duration {
	if s.stranger {
		return strangerLife
	}
	return sessionLife
}

// group is who shares room for sessions and for streams that are kept: a subscriber, or everybody else
// at an address.
type group struct {
	name  string
	known bool // of a subscriber
	size  int  // sessions that are open, guarded by the lock of the sessions

	// Streams that are kept, guarded by the lock of the backlog.
	bytes      int64
	idle, paid list.List // as in the backlog
}

// sessionShare is the part of all sessions that a group may have before it makes room for others.
const sessionShare = 16

// sessions are those that are open. When there are too many, one ends that is idle, see victim.
type sessions struct {
	mcp     *mcp.Server
	most    int
	backlog *backlog
	clock   func() time.Time
	log     *slog.Logger

	mu     sync.Mutex
	byID   map[string]*session
	groups map[string]*group
	turn   int
	swept  time.Time // when those that were idle for too long ended
	closed bool
	ending sync.WaitGroup
}

// open makes a session and takes it into use. A client that does not initialize gets the state that this would have left.
// It returns nil when too many sessions are in use.
func (ss *sessions) open(owner, room string, m *message, version string) (*session, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	s := &session{id: hex.EncodeToString(id[:]), owner: owner, stranger: m.method != methodInitialize, messages: 1, last: ss.clock()}
	s.transport = &mcp.StreamableServerTransport{SessionID: s.id}
	state := &mcp.ServerSessionState{}
	if s.stranger {
		version = cmp.Or(version, "2025-03-26") // what a request without the header means (MCP 2025-06-18, transports)
		state.InitializeParams = &mcp.InitializeParams{ProtocolVersion: version}
		state.InitializedParams = &mcp.InitializedParams{}
	}
	// Not the context of the request: the session outlives it, and each request brings its own credential.
	var err error
	if s.server, err = ss.mcp.Connect(context.Background(), s.transport, &mcp.ServerSessionOptions{State: state}); err != nil {
		return nil, err
	}
	if !ss.enter(s, room) {
		return nil, s.server.Close()
	}
	return s, nil
}

// enter takes a session in, and makes room for it.
func (ss *sessions) enter(s *session, room string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	if now := ss.clock(); len(ss.byID) >= ss.most || now.Sub(ss.swept) >= sweepEvery {
		ss.swept = now
		for _, old := range ss.byID {
			if old.isIdle() && now.Sub(old.last) >= old.life() {
				ss.endLocked(old)
			}
		}
	}
	for len(ss.byID) >= ss.most {
		old := ss.victim(room)
		if old == nil {
			return false
		}
		ss.endLocked(old)
	}
	g := ss.groups[room]
	if g == nil {
		g = &group{name: room, known: strings.HasPrefix(room, ownSubscriber)}
		ss.groups[room] = g
	}
	g.size++
	s.group, ss.byID[s.id] = g, s
	return true
}

// victim returns the session that makes room for one of a group, or nil. Sessions with a paid result
// that its client can still fetch go last. Before that go those of groups that have more than their
// share, the largest group first; then those without a subscriber, and strangers before others. Of
// these it is the one that has been idle for longest. Where none is idle, one goes that only listens,
// of another group with more than its share.
func (ss *sessions) victim(room string) *session {
	var chosen, listens *session
	var best [5]int
	ss.backlog.mu.Lock()
	defer ss.backlog.mu.Unlock()
	for _, s := range ss.byID {
		if !s.isIdle() {
			if s.messages == 0 && s.group.name != room && ss.hasMore(s.group) {
				listens = s
			}
			continue
		}
		rank := [5]int{4: s.turn} // the lowest goes
		if s.kept.paid > 0 {
			rank[0] = 1
		}
		if ss.hasMore(s.group) {
			rank[1] = -s.group.size
		}
		if s.group.known {
			rank[2] = 1
		}
		if !s.stranger {
			rank[3] = 1
		}
		if chosen == nil || slices.Compare(rank[:], best[:]) < 0 {
			chosen, best = s, rank
		}
	}
	return cmp.Or(chosen, listens)
}

// hasMore reports whether a group has more sessions than its share.
func (ss *sessions) hasMore(g *group) bool { return g.size > max(1, ss.most/sessionShare) }

// use returns the session of this id and owner, or nil, and keeps it until done: for its stream, or for a message.
func (ss *sessions) use(id, owner string, stream bool) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s == nil || s.owner != owner {
		return nil
	}
	if s.isIdle() && ss.clock().Sub(s.last) >= s.life() {
		ss.endLocked(s)
		return nil
	}
	if stream {
		s.streams++
	} else {
		s.messages++
	}
	return s
}

// done gives a session back after a message. Without keep it ends.
func (ss *sessions) done(s *session, keep bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.messages--
	if !keep && !s.ended {
		ss.endLocked(s)
		return
	}
	ss.restedLocked(s)
}

// left gives a session back after a stream.
func (ss *sessions) left(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.streams--
	ss.restedLocked(s)
}

func (ss *sessions) restedLocked(s *session) {
	ss.turn++
	s.last, s.turn = ss.clock(), ss.turn
	if s.ended && s.messages == 0 {
		ss.closeLocked(s)
	}
}

// end ends the session of this id and owner, and reports whether there was one.
func (ss *sessions) end(id, owner string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s == nil || s.owner != owner {
		return false
	}
	ss.endLocked(s)
	return true
}

// endLocked takes the session out at once. What it is serving comes to its end before: it may be paid, and the SDK loses
// the answers of a session that it closes. Calls whose client has gone are cancelled, as nobody can come back for them.
func (ss *sessions) endLocked(s *session) {
	delete(ss.byID, s.id)
	if s.group.size--; s.group.size == 0 {
		delete(ss.groups, s.group.name)
	}
	s.ended = true
	ss.backlog.closed(s)
	ss.ending.Add(1)
	if s.messages == 0 {
		ss.closeLocked(s)
	}
}

// closeLocked closes a session that has ended, and so its stream.
func (ss *sessions) closeLocked(s *session) {
	if s.closing {
		return // its stream has gone after it
	}
	s.closing = true
	go func() {
		defer ss.ending.Done()
		_ = s.server.Close() // its connection is memory, and tells nothing
	}()
}

// close ends all sessions and waits for what they run, as long as the context lets it.
func (ss *sessions) close(ctx context.Context) error {
	ss.mu.Lock()
	ss.closed = true
	for _, s := range ss.byID {
		ss.endLocked(s)
	}
	ss.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		ss.ending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveSession takes a message of the older era, of a session or for a new one.
func (s *Server) serveSession(w *reply, r *http.Request, who *caller, m *message) {
	id := r.Header.Get(headerSession)
	if len(r.Header.Values(headerSession)) > 0 {
		one := s.sessions.use(id, who.owner(), false)
		if one == nil {
			// The id is not, or no longer, one of this caller: a client starts a new session then.
			(&messageFault{http.StatusNotFound, codeNoSession, "Session not found", m.id}).write(w)
			return
		}
		if m.id != nil && m.method != "" {
			s.sessions.call(w, r, one, m, func(int) bool { return true })
			return
		}
		defer s.sessions.done(one, true)
		one.transport.ServeHTTP(w, r)
		return
	}
	switch {
	case m.isNotice: // nobody could answer it, and it is about no session
		w.WriteHeader(http.StatusAccepted)
		return
	case m.method == "":
		invalid(m.id, "A response needs the session of its request.").write(w)
		return
	}
	one, err := s.sessions.open(who.owner(), roomOf(who, r), m, r.Header.Get(headerVersion))
	if err != nil || one == nil {
		if err != nil {
			s.log.Error("mcp: a session could not be opened", "error", err)
		}
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "There are too many sessions.")
		return
	}
	lives := func(status int) bool { return one.server.InitializeParams() != nil && status < http.StatusBadRequest }
	w.before = func(h http.Header) {
		h.Del(headerSession)
		if lives(w.status) {
			h.Set(headerSession, one.id)
		}
	}
	s.sessions.call(w, r, one, m, lives)
}

// roomOf names whose room for sessions a caller takes: that of the subscriber, or of the address.
func roomOf(who *caller, r *http.Request) string {
	if who != nil && !who.subscriber.IsZero() {
		return who.owner()
	}
	return "address " + pace.Source(r)
}

// call hands a call to its session, and gives the session back when the call has ended, which may be long after its client
// has gone. keep says by the status of the answer whether the session stays.
//
// The protocol lets a client go away and fetch the answer of its call later. It can when it was told the number of an event;
// what nobody can get must not be paid, so any other call whose client has gone is cancelled.
func (ss *sessions) call(w *reply, r *http.Request, s *session, m *message, keep func(status int) bool) {
	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
	p := s.server.InitializeParams()
	st := ss.backlog.open(s, w.streams && p != nil && p.ProtocolVersion >= pollingVersion, func() {
		if m.method != methodInitialize {
			s.cancel(m.id)
		}
		stop()
	})
	first := st.reader
	run := r.WithContext(ctx)
	run.Header = r.Header.Clone()
	run.Header[headerStream] = []string{st.id}
	go func() {
		defer stop()
		defer func() {
			// Nobody else catches it here, and it would end the process.
			if v := recover(); v != nil {
				ss.log.Error("mcp: the transport panicked", "panic", v, "stack", string(debug.Stack()))
				st.WriteHeader(http.StatusInternalServerError)
			}
			ss.done(s, keep(st.answered()))
			ss.backlog.end(st)
		}()
		s.transport.ServeHTTP(st, run)
	}()
	st.answer(r.Context(), first, w)
}

// cancel tells the session what its client would have told.
func (s *session) cancel(id json.RawMessage) {
	body := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(id) + `,"reason":"the client has gone"}}`
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, pathMCP, strings.NewReader(body))
	if err != nil {
		return // the text is ours
	}
	s.transport.ServeHTTP(&nowhere{h: http.Header{}}, r)
}

// nowhere takes an answer that nobody reads.
type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// serveStream is the stream of what a session says by itself, or the rest of one that broke.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, who *caller) {
	if len(r.Header.Values(headerSession)) == 0 {
		refuse(w, http.StatusBadRequest, "invalid_request", "A stream needs the Mcp-Session-Id of its session.")
		return
	}
	if _, asEvents := accepts(r.Header.Values("Accept")); !asEvents {
		refuse(w, http.StatusNotAcceptable, "invalid_request", "The stream is text/event-stream.")
		return
	}
	one := s.sessions.use(r.Header.Get(headerSession), who.owner(), true)
	if one == nil {
		noSession(w)
		return
	}
	defer s.sessions.left(one)
	if len(r.Header.Values(headerLastEvent)) > 0 {
		s.resume(w, r, one)
		return
	}
	one.transport.ServeHTTP(w, r)
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request, who *caller) {
	if !s.sessions.end(r.Header.Get(headerSession), who.owner()) {
		noSession(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func noSession(w http.ResponseWriter) {
	writeJSON(w, http.StatusNotFound, webError{Error: "Session not found"})
}
