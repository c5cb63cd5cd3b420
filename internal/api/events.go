package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

type eventLog struct {
	events *events.Events
	auth   *auth.Auth
	log    *slog.Logger
}

func (l eventLog) routes() []route {
	const at = Base + "/events"
	return []route{
		{
			op: "listEvents", export: toll.RightRead, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Events", summary: "List the events of your workspace, ordered by sequence number",
			action: lists("EventList", list.Events, l.listEvents), codes: []toll.Code{toll.CodeBadRequest, toll.CodeBadPage},
			query: append([]query{
				{"type", "Only events of this type, for example settlement.settled. Lists never contain webhook.test."},
				{"since", "Only events created at or after this time, ISO 8601."},
			}, sortedBy(store.SortCreated)...),
		},
		{
			op: "followEvents", method: "GET", path: at + "/stream", auth: keyed, right: toll.RightRead, tag: "Events",
			summary: "Stream events as they happen (text/event-stream); Last-Event-ID resumes after an event", action: stream(l.followEvents),
			codes: []toll.Code{toll.CodeBadRequest, toll.CodeRateLimited},
		},
	}
}

// stream is an action that writes its answer itself, as text/event-stream.
func stream(f func(c *call) error) action {
	return action{events: true, run: func(c *call) (any, error) { return served{}, f(c) }}
}

func (l eventLog) listEvents(c *call, p store.Page, q url.Values) (none store.List[*toll.Event], err error) {
	f := store.EventFilter{Principal: c.caller.Address}
	var faults []toll.Fault
	if text, ok := single(q, "type", &faults); ok {
		if f.Type, ok = eventType(text); !ok {
			faults = append(faults, toll.Fault{Path: "type", Message: noEventType()})
		}
	}
	if text, ok := single(q, "since", &faults); ok {
		if f.Since, err = toll.ParseTime(text); err != nil {
			faults = append(faults, toll.Fault{Path: "since", Message: "must be an ISO 8601 time"})
		}
	}
	if len(faults) > 0 {
		return none, toll.Faults(faults)
	}
	return l.events.List(c.context, f, p)
}

func single(q url.Values, name string, faults *[]toll.Fault) (string, bool) {
	values := q[name]
	if len(values) > 1 {
		*faults = append(*faults, toll.Fault{Path: name, Message: "must be sent only once"})
	}
	return q.Get(name), len(values) == 1 && values[0] != ""
}

func noEventType() string {
	var b strings.Builder
	b.WriteString("must be an event type")
	for i, t := range toll.EventTypes() {
		b.WriteString([]string{": ", ", "}[min(i, 1)] + string(t))
	}
	return b.String()
}

func eventType(text string) (toll.EventType, bool) {
	t := toll.EventType(strings.ToLower(text))
	return t, slices.Contains(toll.EventTypes(), t)
}

const (
	// heartbeat is how often a stream without events shows that it lives.
	heartbeat = 15 * time.Second
	// streamIdle is when a stream without events ends; its reader continues with Last-Event-ID.
	streamIdle = 10 * time.Minute
	// streamWrite is how long one write may take: who does not read is cut off.
	streamWrite = 10 * time.Second
)

var eventStream = []string{"text/event-stream"}

func (l eventLog) followEvents(c *call) error {
	ctx := c.context
	after := c.r.Header["Last-Event-Id"]
	if len(after) > 1 || len(after) == 1 && len(after[0]) > 64 {
		return toll.Faults([]toll.Fault{{Path: "Last-Event-ID", Message: "must be a single event id"}})
	}
	s, err := l.events.Follow(ctx, c.caller.Address, strings.Join(after, ""))
	if err != nil {
		return err
	}
	defer s.Close()
	out := http.NewResponseController(c.w)
	c.written = true
	c.w.Header()["Content-Type"] = eventStream
	c.w.Header()["X-Accel-Buffering"] = []string{"no"} // proxies that gather would hold events back
	write := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(streamWrite)) // a connection without deadlines has other guards
		if _, err := c.w.Write([]byte(text)); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead || !write(": hello\n\n") {
		return nil
	}
	idle := time.Now()
	for {
		all, over, err := s.Next(ctx, heartbeat)
		switch {
		case err != nil:
			l.log.WarnContext(c.context, "reading events for a stream failed", "error", err.Error())
			return nil // the reader continues behind its last event
		case over, len(all) == 0 && time.Since(idle) > streamIdle:
			return nil
		}
		if _, err := l.auth.Authenticate(ctx, c.r.Header["Authorization"]); err != nil {
			return nil // the API key has ended, and the stream with it
		}
		if len(all) == 0 {
			if !write(": \n\n") {
				return nil
			}
			continue
		}
		idle = time.Now()
		for _, e := range all {
			data, err := x402.Encode(e)
			if err != nil {
				return nil
			}
			if !write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)) {
				return nil
			}
		}
	}
}

// insertAgentEvent writes the event of an agent, as the last thing of its transaction.
func insertAgentEvent(ctx context.Context, tx *store.Tx, id toll.AgentID, t toll.EventType) error {
	a, err := store.AgentByID(ctx, tx, id) // with its plans as they are now
	if err != nil {
		return err
	}
	return store.InsertEvent(ctx, tx, store.NewEvent{Principal: a.Owner, Type: t, Kind: "agent", ID: string(id), Data: a, At: a.UpdatedAt})
}

func insertPlanEvent(ctx context.Context, tx *store.Tx, p *toll.Plan, t toll.EventType) error {
	return store.InsertEvent(ctx, tx, store.NewEvent{Principal: p.Owner, Type: t, Kind: "plan", ID: string(p.ID), Data: p, At: p.UpdatedAt})
}
