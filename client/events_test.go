package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

func event(n int) string {
	return fmt.Sprintf(`{"id":"00000000-0000-7000-8000-%012d","type":"plan.created","sequence":%d,"object":{"kind":"plan","id":"1","sequence":1},"data":{"a":1},"createdAt":"2026-11-21T01:52:18.322Z"}`, n, n)
}

// TestFollowEvents: each event once and in order over connections that break, and none after a refusal.
func TestFollowEvents(t *testing.T) {
	var mu sync.Mutex
	var after []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		after = append(after, r.Header.Get("Last-Event-ID"))
		n := len(after)
		mu.Unlock()
		if r.URL.Path != "/api/v1/events/stream" || r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Authorization") != "Bearer "+key ||
			r.Header.Get("Service-Version") != client.Version {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		switch n {
		case 1:
			fmt.Fprintf(w, ": hello\n\nid: s1\nevent: plan.created\ndata: %s\n\nid: s2\ndata: %s\n\nid: s3\ndata: %s", event(1), event(2), event(3))
		case 2:
			w.WriteHeader(503)
		case 3: // a line of data that is split, as the format allows
			first, rest, _ := strings.Cut(event(3), `,"type"`)
			fmt.Fprintf(w, "retry: 5\nid: s3\ndata: %s\ndata: ,\"type\"%s\n\n", first, rest)
		default:
			w.WriteHeader(401)
			fmt.Fprint(w, `{"code":"BCK.AUTH.0002","message":"No key."}`)
		}
	}))
	defer s.Close()
	c := client.New(key, client.WithURL(s.URL), client.WithMaxRetryWait(10*time.Millisecond))
	var got []int64
	var last error
	for e, err := range c.FollowEvents(context.Background(), "s0") {
		if err != nil {
			last = err
			continue
		}
		got = append(got, e.Sequence)
	}
	if fmt.Sprint(got) != "[1 2 3]" || !errors.Is(last, toll.NewError(toll.CodeNotAuthenticated)) || fmt.Sprint(after) != "[s0 s2 s2 s3]" {
		t.Errorf("%v, %v, after %v", got, last, after)
	}
}

func TestFollowEvents_End(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "id: 1\ndata: %s\n\n", event(1))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	c := client.New(key, client.WithURL(s.URL))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	for _, err := range c.FollowEvents(ctx, "") {
		must.Check(t, err)
		n++
		cancel()
	}
	for range c.FollowEvents(context.Background(), "") {
		n++
		break
	}
	if n != 2 {
		t.Errorf("%d events", n)
	}
}
