package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// maxSilence bounds the time between two lines of a stream; the service sends lines far more often.
const maxSilence = 2 * time.Minute

// maxEvent bounds one line of a stream in bytes.
const maxEvent = 4 << 20

// OfType keeps the events of one type.
func OfType(t toll.EventType) ListOption { return Filter("type", string(t)) }

// Events returns the events of the caller's records, newest first; [Ascending] reverses the order. [OfType] and [Since] filter it.
func (c *Client) Events(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Event, error] {
	return list[toll.Event](ctx, c, api("/events"), "events", opts)
}

// FollowEvents returns events as they happen, each once and in order, until ctx or the loop ends. It starts after the event with
// id after, or with new events if after is "". It reconnects and resumes after failures. An error ends the sequence and means
// that the service refused the request or sent an unreadable event. The end of ctx is not an error.
func (c *Client) FollowEvents(ctx context.Context, after string) iter.Seq2[*toll.Event, error] {
	return func(yield func(*toll.Event, error) bool) {
		for attempt := 0; ; attempt++ {
			stopped := false
			err := c.stream(ctx, after, func(e *toll.Event, id string) bool {
				attempt, after = 0, id
				stopped = !yield(e, nil)
				return !stopped
			})
			if stopped || ctx.Err() != nil {
				return
			}
			e, ok := errors.AsType[*toll.Error](err)
			if ok && e.Status != 0 && !transient(e.Status) {
				yield(nil, err)
				return
			}
			wait := c.backoff(attempt)
			if ok && e.RetryAfterSecs > 0 {
				wait = time.Duration(e.RetryAfterSecs) * time.Second
			}
			select {
			case <-ctx.Done():
				return
			case <-c.sleep(wait):
			}
		}
	}
}

// transient reports whether a refusal with this status may succeed later.
func transient(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// stream reads one connection until it ends or each returns false.
func (c *Client) stream(ctx context.Context, after string, each func(e *toll.Event, id string) bool) error {
	if c.baseErr != nil {
		e := toll.NewError(toll.CodeBadRequest).WithDetails("%s", c.baseErr).WithCause(c.baseErr)
		e.Status = http.StatusBadRequest
		return e
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(maxSilence, cancel)
	defer silence.Stop()
	req, err := c.request(ctx, call{method: http.MethodGet, path: api("/events/stream")}, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		if err != nil {
			return c.unreachable(err)
		}
		return (&answer{status: res.StatusCode, header: res.Header, body: b}).err()
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 16<<10), maxEvent)
	var data []byte
	var id string
	for lines.Scan() {
		silence.Reset(maxSilence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch {
		case len(lines.Bytes()) == 0 && len(data) > 0:
			var e toll.Event
			if err := x402.Decode(bytes.TrimSuffix(data, []byte("\n")), &e); err != nil {
				return unreadable(&answer{header: res.Header}, err)
			}
			data = nil
			if !each(&e, id) {
				return nil
			}
		case name == "data":
			data = append(append(data, strings.TrimPrefix(value, " ")...), '\n')
		case name == "id":
			id = strings.TrimPrefix(value, " ")
		}
	}
	return c.unreachable(errors.Join(lines.Err(), io.EOF))
}
