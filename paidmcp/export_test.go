package paidmcp

import (
	"container/list"
	"time"
)

// ForgetBearerWarning lets the process warn of a bearer token once more.
func ForgetBearerWarning() { bearerWarned.Store(false) }

// BreakTransport makes every message to a session panic, as a fault of the SDK would.
func (s *Server) BreakTransport(id string) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.byID[id].transport = nil
}

// Kept returns how many bytes of streams are kept for clients that come back.
func (s *Server) Kept() int64 {
	b := s.sessions.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// Held returns how many bytes of events are in memory, of streams that are kept and have ended.
func (s *Server) Held() (n int64) {
	b := s.sessions.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range []*list.List{&b.idle, &b.paid} {
		for at := l.Front(); at != nil; at = at.Next() {
			st := at.Value.(*stream)
			for _, e := range st.events {
				n += int64(len(e))
			}
		}
	}
	return n
}

// SetPatience shortens how long the servers of a test wait for bodies and readers.
func SetPatience(d time.Duration) (restore func()) {
	before := patience
	patience = d
	return func() { patience = before }
}
