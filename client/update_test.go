package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// agentVersions is a service with one agent, which somebody else changes before each of the first
// updates.
func agentVersions(t *testing.T, others int) *service {
	version := 3
	return serve(t, func(_ int, s sent) (int, map[string]string, string) {
		if s.method == "GET" {
			return 200, nil, fmt.Sprintf(
				`{"id":"5063","agentId":"5063","version":%d,"metadata":{"main":{"description":"v%d"}}}`,
				version,
				version,
			)
		}
		if others > 0 {
			others--
			version++
		}
		if m := s.header.Get("If-Match"); m != fmt.Sprint(version) {
			return 409, nil, `{"code":"BCK.PROTOCOL.0910","message":"m","httpStatus":409,"category":"business"}`
		}
		version++
		return 200, nil, `{"success":true}`
	})
}

func TestEditAgent(t *testing.T) {
	describe := func(c *client.Client, seen *[]string) func(context.Context, *toll.Agent) error {
		return func(ctx context.Context, a *toll.Agent) error {
			*seen = append(*seen, a.Metadata.Description)
			_, err := c.UpdateAgent(
				ctx,
				a.ID,
				toll.AgentUpdate{Description: toll.SetTo(a.Metadata.Description + "!")},
			)
			return err
		}
	}
	t.Run("somebody else is in between twice", func(t *testing.T) {
		s := agentVersions(t, 2)
		c := client.New(key, client.WithURL(s.URL))
		var seen []string
		must.Do(t, c.EditAgent(t.Context(), agent, describe(c, &seen)))
		if fmt.Sprint(seen) != "[v3 v4 v5]" {
			t.Errorf("edited %v", seen)
		}
		if last := s.sent[len(s.sent)-1]; last.body != `{"description":"v5!"}` ||
			last.header.Get("If-Match") != "5" {
			t.Errorf("%s, If-Match %q", last.body, last.header.Get("If-Match"))
		}
	})
	t.Run("somebody else is always in between", func(t *testing.T) {
		s := agentVersions(t, 1000)
		c := client.New(key, client.WithURL(s.URL))
		var seen []string
		if err := c.EditAgent(
			t.Context(),
			agent,
			describe(c, &seen),
		); !errors.Is(
			err,
			toll.NewError(toll.CodeRecordChanged),
		) {
			t.Errorf("%v", err)
		}
		if len(seen) != 8 {
			t.Errorf("%d attempts", len(seen))
		}
	})
	t.Run("another error ends it", func(t *testing.T) {
		s := agentVersions(t, 0)
		c, stop, n := client.New(key, client.WithURL(s.URL)), errors.New("stop"), 0
		if err := c.EditAgent(
			t.Context(),
			agent,
			func(context.Context, *toll.Agent) error { n++; return stop },
		); err != stop ||
			n != 1 {
			t.Errorf("%v after %d attempts", err, n)
		}
	})
}

// TestWithIfMatch_LostAnswer: the repeat of a change that was made would look like a conflict with
// somebody else.
func TestWithIfMatch_LostAnswer(t *testing.T) {
	for _, lost := range []int{0, 502} {
		s := serve(t, func(int, sent) (int, map[string]string, string) { return lost, nil, "" })
		c := client.New(key, client.WithURL(s.URL))
		if _, err := c.UpdateAgent(
			client.WithIfMatch(t.Context(), 3),
			agent,
			toll.AgentUpdate{},
		); err == nil ||
			s.calls() != 1 {
			t.Errorf("a conditional change was sent %d times: %v", s.calls(), err)
		}
		if m := s.sent[0].header.Get("If-Match"); m != "3" {
			t.Errorf("If-Match %q", m)
		}
		if _, err := c.UpdateAgent(
			t.Context(),
			agent,
			toll.AgentUpdate{},
		); err == nil ||
			s.calls() != 4 {
			t.Errorf("an unconditional change was sent %d times: %v", s.calls()-1, err)
		}
		if m := s.sent[1].header.Get("If-Match"); m != "" {
			t.Errorf("If-Match %q", m)
		}
	}
}
