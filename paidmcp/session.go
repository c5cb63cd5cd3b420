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
	sessionLife  = 4 * time.Hour   // lifetime without a request or an open stream
	strangerLife = 5 * time.Minute // the same for a session without initialize
	sweepEvery   = time.Minute     // interval of the search for expired sessions, below the bound
)

// session is a session of the protocol versions up to 2025-11-25. Only the credential that opened it can use it.
type session struct {
	id        string
	owner     string // see caller.owner; "" if it was opened without a credential
	stranger  bool   // opened without initialize
	group     *group // see group
	transport *mcp.StreamableServerTransport
	server    *mcp.ServerSession
	streams   int  // number of open streams
	messages  int  // number of messages in progress
	ended     bool // removed from the open sessions
	closing   bool
	last      time.Time
	turn      int  // order in which sessions became idle
	kept      kept // streams that a client can resume
}

func (s *session) isIdle() bool { return s.streams == 0 && s.messages == 0 }

func (s *session) life() time.Duration {
	if s.stranger {
		return strangerLife
	}
	return sessionLife
}

// group is a subscriber, or all callers without a subscriber at an address. Its members share bounds for sessions and kept streams.
type group struct {
	name  string
	known bool // it is a subscriber
	size  int  // number of open sessions, guarded by the lock of the sessions

	// Kept streams, guarded by the lock of the backlog.
	bytes      int64
	idle, paid list.List // as in the backlog
}

// sessionShare bounds a fair share: groups with more than a sixteenth of the maximum sessions lose sessions first.
const sessionShare = 16

// sessions holds the open sessions. At the bound, a new session ends an idle session, see victim.
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
	swept  time.Time // last removal of idle sessions
	closed bool
	ending sync.WaitGroup
}

// open creates a session and marks it as in use. If the client skips initialize, the session starts in the state after it. open
// returns nil if too many sessions are in use.
func (ss *sessions) open(owner, room string, m *message, version string) (*session, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	s := &session{id: hex.EncodeToString(id[:]), owner: owner, stranger: m.method != methodInitialize, messages: 1, last: ss.clock()}
	s.transport = &mcp.StreamableServerTransport{SessionID: s.id}
	state := &mcp.ServerSessionState{}
	if s.stranger {
		version = cmp.Or(version, "2025-03-26") // the default without the header (MCP 2025-06-18, transports)
		state.InitializeParams = &mcp.InitializeParams{ProtocolVersion: version}
		state.InitializedParams = &mcp.InitializedParams{}
	}
	// The session outlives the request, and each request brings its own credential, so the context is new.
	var err error
	if s.server, err = ss.mcp.Connect(context.Background(), s.transport, &mcp.ServerSessionOptions{State: state}); err != nil {
		return nil, err
	}
	if !ss.enter(s, room) {
		return nil, s.server.Close()
	}
	return s, nil
}

// enter registers a session, and ends expired and surplus sessions. It returns false if too many are in use, or after close.
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

// victim returns the session to end for a new session of the group room, or nil. It chooses among idle sessions, in this order: sessions
// without a fetchable paid result; of groups above their share, the largest first; of groups without a subscriber; never initialized;
// longest idle. If all sessions are busy, it returns a session with streams but no messages from a different group above its share.
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
		rank := [5]int{4: s.turn} // the lowest rank ends
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

func (ss *sessions) hasMore(g *group) bool { return g.size > max(1, ss.most/sessionShare) }

// use returns the session with this id and owner, or nil. It marks it as in use: for a stream until left, for a message until done.
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

// done ends the use of a session by a message. Unless keep is set, it ends the session.
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

// left ends the use of a session by a stream.
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

// end ends the session with this id and owner, and reports whether it existed.
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

// endLocked removes a session at once, and closes it after its running calls: they may be paid, and the SDK loses the answers of a
// closed session. Calls without a client are cancelled, because their answers can no longer be fetched.
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

// closeLocked closes a session that has ended, and its stream.
func (ss *sessions) closeLocked(s *session) {
	if s.closing {
		return // its stream ended later
	}
	s.closing = true
	go func() {
		defer ss.ending.Done()
		_ = s.server.Close() // its connection is in memory; the error has no use
	}()
}

// close ends all sessions and waits for their calls until the context ends.
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

// serveSession handles a message of an existing or a new session.
func (s *Server) serveSession(w *reply, r *http.Request, who *caller, m *message) {
	id := r.Header.Get(headerSession)
	if len(r.Header.Values(headerSession)) > 0 {
		one := s.sessions.use(id, who.owner(), false)
		if one == nil {
			// The id is unknown or belongs to another caller. Clients start a new session then.
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
	case m.isNotice: // it has no response and no session
		w.WriteHeader(http.StatusAccepted)
		return
	case m.method == "":
		invalid(m.id, "Send the header Mcp-Session-Id with a response.").write(w)
		return
	}
	one, err := s.sessions.open(who.owner(), roomOf(who, r), m, r.Header.Get(headerVersion))
	if err != nil || one == nil {
		if err != nil {
			s.log.Error("mcp: a session could not be opened", "error", err)
		}
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "Too many sessions. Retry in a minute.")
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

// roomOf returns the name of the group of a caller: the subscriber, or else the address.
func roomOf(who *caller, r *http.Request) string {
	if who != nil && !who.subscriber.IsZero() {
		return who.owner()
	}
	return "address " + pace.Source(r)
}

// call passes a call to its session, which stays in use until the call ends, even if its client disconnects. keep reports
// for the status of the answer whether to keep the session.
//
// A client that received an event id may disconnect and fetch the answer later. Any other call is cancelled when its client
// disconnects, because an answer that cannot be fetched must not be paid.
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
			// A panic in this goroutine would end the process.
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

// cancel sends the session the cancellation that its client would have sent.
func (s *session) cancel(id json.RawMessage) {
	body := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(id) + `,"reason":"the client disconnected"}}`
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, pathMCP, strings.NewReader(body))
	if err != nil {
		return // impossible: the arguments are constant
	}
	s.transport.ServeHTTP(&nowhere{h: http.Header{}}, r)
}

// nowhere discards a response.
type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// serveStream serves the messages that a session sends outside of calls, or resumes a broken stream.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, who *caller) {
	if len(r.Header.Values(headerSession)) == 0 {
		refuse(w, http.StatusBadRequest, "invalid_request", "Send the header Mcp-Session-Id to open a stream.")
		return
	}
	if _, asEvents := accepts(r.Header.Values("Accept")); !asEvents {
		refuse(w, http.StatusNotAcceptable, "invalid_request", "The client must accept text/event-stream.")
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
