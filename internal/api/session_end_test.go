package api_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/people"
)

// A session of the API ends twelve hours after the sign-in however often it is used, ends at once and for every call when its person
// signs out, and cannot be ended twice. Other sessions of the person stay.
func TestSessions_End(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		p := s.human("one")
		signIn := func() *human {
			t.Helper()
			a := s.do(actor{}, "POST", base+"/session", `{"login":"one","password":"`+goodPassword+`"}`)
			if a.status != 201 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			return p.with(a.text(t, "token"))
		}
		alive := func(h *human, is bool, when string) {
			t.Helper()
			for _, path := range []string{"/session", "/sessions", "/credentials"} {
				a := h.do("GET", path, "")
				if is && a.status != 200 || !is && (a.status != 401 || a.code() != string(toll.CodeNotAuthenticated)) {
					t.Fatalf("%s: GET %s: %d %s", when, path, a.status, a.body)
				}
			}
		}
		s.clock.advance(time.Hour)
		second := signIn()
		for range 10 { // its use makes it no longer
			s.clock.advance(time.Hour)
			alive(p, true, "in use")
		}
		s.clock.advance(time.Hour - time.Second)
		alive(p, true, "a second before its end")
		s.clock.advance(time.Second)
		alive(p, false, "at its end")
		alive(second, true, "the second one")
		if a := p.do("DELETE", "/session", ""); a.status != 401 {
			t.Errorf("an ended session signs out: %d %s", a.status, a.body)
		}
		third := signIn()
		if a := second.do("DELETE", "/session", ""); a.status/100 != 2 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		alive(second, false, "signed out")
		if a := second.do("DELETE", "/session", ""); a.status != 401 {
			t.Errorf("signed out twice: %d %s", a.status, a.body)
		}
		alive(third, true, "the third one")
		// A proof is fresh for its time, and not at the end of it.
		proved := func() int { return third.do("POST", "/credentials/recovery-codes", "").status }
		s.clock.advance(people.FreshTime - time.Second)
		if got := proved(); got != 200 {
			t.Errorf("a second before the end of the proof: %d", got)
		}
		s.clock.advance(time.Second)
		if got := proved(); got != 403 {
			t.Errorf("at the end of the proof: %d", got)
		}
	})
}
