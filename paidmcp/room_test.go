package paidmcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// TestRoomOfSessions: whoever opens sessions without end, without a credential or with one, ends
// their own, and not those of others. A session with a paid result that waits goes last.
// T135
func TestRoomOfSessions(t *testing.T) {
	svc := service(t)
	ann, eve := svc.Subscriber(50), svc.Subscriber(50)
	h := host(t, svc, paidmcp.ServerConfig{MaxSessions: 32})
	from := func(address string) string { return "X-Forwarded-For: 203.0.113.77, " + address }
	alive := func(id string, headers ...string) bool {
		return h.post(message(1, "ping", nil), append(headers, "Mcp-Session-Id: "+id)...).status == http.StatusOK
	}
	s := h.addStory()
	anns, bobs := h.session(bearer(ann.AccessToken)), h.session(from("192.0.2.1"))
	sixth := h.session(from("2001:db8:1::1"))
	// What she paid waits in a session without a credential, at the address from which the flood comes.
	waits := "Mcp-Session-Id: " + h.session(from("192.0.2.9"))
	c, first := h.begin(t, s, ann.AccessToken, "waits", waits, from("192.0.2.9"))
	c.cut()
	s.goOn()
	must.Do(t, s.end(t))
	for range 80 {
		if a := h.post(initialize, from("192.0.2.9")); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for i := range 80 { // a network of IPv6 is one address
		h.session(from(fmt.Sprintf("2001:db8:2::%x", i+1)))
	}
	for range 80 {
		h.session(bearer(eve.AccessToken))
	}
	if !alive(anns, bearer(ann.AccessToken)) || !alive(bobs, from("192.0.2.1")) || !alive(sixth, from("2001:db8:1::1")) {
		t.Error("sessions of others ended")
	}
	if all := h.stream(t, http.MethodGet, "", again(first.id, waits)...).rest(); !isStory(all, 2, "waits") {
		t.Errorf("what was paid is lost: %+v", all)
	}
}

// TestRoomOfStreams: what was paid and waits to be fetched is not pushed out by what was not, and
// one caller does not take the room of all.
// T135
func TestRoomOfStreams(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(50)
	const most = 64 << 10
	h := host(t, svc, paidmcp.ServerConfig{ResumeBytes: most})
	s := h.addStory()
	from := func(n int) string { return fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", n) }
	waits := "Mcp-Session-Id: " + h.session()
	c, first := h.begin(t, s, ann.AccessToken, "waits", waits)
	c.cut()
	s.goOn()
	must.Do(t, s.end(t))
	talk := func(in string) {
		t.Helper()
		all := h.stream(t, http.MethodPost, call(1, "talk", strings.Repeat("x", 2000), `{"progressToken":"p"}`), in).rest()
		if len(all) == 0 {
			t.Fatal("no answer")
		}
	}
	for range 20 { // many sessions at one address
		talk("Mcp-Session-Id: " + h.session(from(1)))
		if n := h.server.Kept(); n > most/2 {
			t.Fatalf("one address keeps %d bytes", n)
		}
	}
	for n := range 20 {
		talk("Mcp-Session-Id: " + h.session(from(n)))
	}
	for range 20 { // beside what was paid, in its own session
		talk(waits)
	}
	if n := h.server.Kept(); n > most {
		t.Errorf("%d bytes are kept", n)
	}
	if all := h.stream(t, http.MethodGet, "", again(first.id, waits)...).rest(); !isStory(all, 2, "waits") {
		t.Errorf("what was paid is lost: %+v", all)
	}
	if ann.Balance() != 45 {
		t.Errorf("balance %s", ann.Balance())
	}
}
