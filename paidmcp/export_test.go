package paidmcp

// ForgetBearerWarning lets the process warn of a bearer token once more.
func ForgetBearerWarning() { bearerWarned.Store(false) }

// Kept returns how many bytes of streams are kept for clients that come back.
func (s *Server) Kept() int64 {
	b := s.sessions.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}
