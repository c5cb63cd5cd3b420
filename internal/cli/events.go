package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

var eventColumns = []column{
	{"SEQUENCE", "sequence"}, {"TYPE", "type"}, {"KIND", "object.kind"}, {"OBJECT", "object.id"}, {"CREATED", "createdAt"}, {"ID", "id"},
}

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var kind, since, after string
	c := a.queryCommand("events", "What happened to your agents, plans, credits and keys", "events", eventColumns,
		func([]string) string { return "/events" }, func(q url.Values) error {
			if kind != "" {
				q.Set("type", kind)
			}
			if since == "" {
				return nil
			}
			at := since
			if span, err := time.ParseDuration(since); err == nil && span > 0 {
				at = time.Now().Add(-span).UTC().Format(time.RFC3339Nano)
			}
			q.Set("since", at)
			return nil
		})
	c.Long = `What happened to your agents, plans, credits and keys.

With --follow new events are printed as they happen, until Ctrl-C; as JSON there is one on each line. A stream that breaks is
continued where it broke.`
	c.Example = "toll events --type settlement.settled --since 1h\ntoll events --follow -o ndjson"
	c.Flags().StringVar(&kind, "type", "", "only those of this type, for example order.paid")
	c.Flags().StringVar(&since, "since", "", "only those from this time on: 2026-11-21T08:00:00Z, or 1h for the last hour")
	c.Flags().BoolVar(&follow, "follow", false, "print new events as they happen")
	c.Flags().StringVar(&after, "after", "", "id of the last event that is known, with --follow")
	list := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !follow && after != "":
			return usagef("--after goes with --follow")
		case !follow:
			return list(cmd, args)
		case since != "":
			return usagef("--since does not go with --follow; --after continues after an event")
		}
		return a.follow(cmd.Context(), kind, after)
	}
	return c
}

// Waits of a stream that broke, and the silence after which one counts as broken: the service sends something every 15 s
// or so.
const (
	followWait    = time.Second
	followMaxWait = 30 * time.Second
	followSilence = 2 * time.Minute
)

// follow prints events until the context ends.
func (a *app) follow(ctx context.Context, kind, after string) error {
	wait := followWait
	for connected := false; ; connected = true {
		began := time.Now()
		opened, err := a.stream(ctx, &after, func(event json.RawMessage) error {
			if kind != "" && at(event, "type") != kind {
				return nil
			}
			return a.event(event)
		})
		if ctx.Err() != nil {
			return nil
		}
		var e *toll.Error
		if !connected && !opened || errors.As(err, &e) && exitCode(err) != exitTryAgain {
			return err
		}
		if time.Since(began) > followMaxWait {
			wait = followWait
		}
		if a.flags.verbose {
			a.say("note", "the stream ended, trying again in %s", wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, followMaxWait)
	}
}

func (a *app) event(event json.RawMessage) error {
	switch a.set.output {
	case formatQuiet:
		return nil
	case formatJSON, formatNDJSON:
		return a.writeCompact(event)
	}
	row := make([]string, len(eventColumns))
	for i, c := range eventColumns {
		row[i] = at(event, c.path)
	}
	if a.set.output == formatCSV {
		return writeCSV(a.out, [][]string{row})
	}
	return a.writeRows(nil, [][]string{row})
}

// stream reads one connection of events, keeps the id of the last one, and reports whether there was a connection.
func (a *app) stream(ctx context.Context, last *string, each func(json.RawMessage) error) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.client().URL()+apiBase+"/events/stream", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "toll-cli/"+release())
	req.Header.Set(x402.Default.HeaderVersion(), client.Version)
	if a.set.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.set.key)
	}
	if *last != "" {
		req.Header.Set("Last-Event-ID", *last)
	}
	h := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := h.Do(req)
	if err != nil {
		return false, fmt.Errorf("the service did not answer: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false, answerError(res)
	}
	silence := time.AfterFunc(followSilence, cancel)
	defer silence.Stop()

	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 64<<10), 16<<20)
	var data []string
	id := *last
	for lines.Scan() {
		silence.Reset(followSilence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if len(data) == 0 {
				continue
			}
			event := strings.Join(data, "\n")
			data = nil
			if !json.Valid([]byte(event)) {
				return true, unreadable(errors.New("an event is not JSON"))
			}
			if err := each(json.RawMessage(event)); err != nil {
				return true, err
			}
			*last = id
		case name == "data":
			data = append(data, value)
		case name == "id":
			id = value
		}
	}
	return true, lines.Err()
}

// answerError is the error of an answer that is no success.
func answerError(res *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(res.Body, maxArgument))
	if err != nil {
		return err
	}
	var body toll.ErrorBody
	if x402.Decode(b, &body) == nil && body.Code != "" {
		e := body.Err()
		e.Status = res.StatusCode
		return e
	}
	return fmt.Errorf("the service answered %s", res.Status)
}
