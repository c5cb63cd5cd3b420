package paidmcp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll/paidmcp"
)

// shelf is a connection that holds on to what it is given, as one does whose client reads nothing.
type shelf struct {
	header http.Header
	large  []*byte // where the large pieces begin
}

func (s *shelf) Header() http.Header { return s.header }
func (s *shelf) WriteHeader(int)     {}

func (s *shelf) Write(b []byte) (int, error) {
	if len(b) > 64<<10 {
		s.large = append(s.large, &b[0])
	}
	return len(b), nil
}

// TestResume_Shared: what is kept is in memory once, however many connections come for it: a client that comes again and again and
// reads nothing fills no memory beyond the bound.
func TestResume_Shared(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{})
	in := "Mcp-Session-Id: " + h.session()
	all := h.stream(t, http.MethodPost, call(1, "talk", strings.Repeat("x", 128<<10), `{"progressToken":"p"}`), in).rest()
	var places []*byte
	for range 2 {
		to := &shelf{header: http.Header{}}
		r := h.request("", again(all[0].id, in, "Accept: text/event-stream")...)
		r.Method = http.MethodGet
		h.handler.ServeHTTP(to, r)
		if len(to.large) != 2 {
			t.Fatalf("%d large pieces of %d events", len(to.large), len(all))
		}
		places = append(places, to.large...)
	}
	if places[0] != places[2] || places[1] != places[3] {
		t.Error("each connection has a copy of what is kept")
	}
	if held, kept := h.server.Held(), h.server.Kept(); held > kept {
		t.Errorf("%d bytes are held, and %d counted", held, kept)
	}
}
