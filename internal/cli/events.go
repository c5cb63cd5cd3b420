package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/x402"
)

func eventsCommand(a *app) *cobra.Command {
	var follow bool
	var after string
	since := kind{name: "time", read: readLast(func(text string) (string, error) {
		if span, err := time.ParseDuration(text); err == nil && span > 0 {
			return time.Now().Add(-span).UTC().Format(time.RFC3339Nano), nil
		}
		return text, nil
	})}
	c := a.resource(call{
		use: "events", short: "List events of your agents, plans, credits, and API keys",
		list: list.Events,
		flags: []flag{
			{"type", "type", word, "only events of this type, such as order.paid"},
			{"since", "since", since, "only events since this time, such as 2026-11-21T08:00:00Z, or 1h for the last hour"},
		},
	})
	c.Long = `List events of your agents, plans, credits, and API keys.

With --follow, new events are printed as they happen, until Ctrl-C; JSON output has one event per line. An interrupted stream
resumes where it stopped.`
	c.Example = "toll events --type settlement.settled --since 1h\ntoll events --follow -o ndjson"
	c.Flags().BoolVar(&follow, "follow", false, "print new events as they happen")
	c.Flags().StringVar(&after, "after", "", "print only events after the event with this id; requires --follow")
	c.MarkFlagsMutuallyExclusive("follow", "since")
	list := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case follow:
			last, err := newest(cmd.Context(), a)
			if err != nil {
				return err
			}
			var types []toll.EventType
			if text := cmd.Flag("type").Value.String(); text != "" {
				types = []toll.EventType{toll.EventType(text)}
			}
			return followEvents(cmd.Context(), a, cmp.Or(after, last), types, showEvents(a))
		case after != "":
			return usagef("--after requires --follow")
		}
		return list(cmd, args)
	}
	return c
}

// newest returns the id of the newest event, "0" when there is none: a stream after it has every later event. It finds a wrong API key or
// address, while [client.Client.FollowEvents] would reconnect without end.
func newest(ctx context.Context, a *app) (string, error) {
	for event, err := range a.client().Events(ctx, client.PageSize(1)) {
		if err != nil {
			return "", err
		}
		return event.ID, nil
	}
	return "0", nil
}

// followEvents passes on events of some types, or of all types, until the context ends.
func followEvents(ctx context.Context, a *app, after string, types []toll.EventType, each func(*toll.Event) error) error {
	for event, err := range a.client().FollowEvents(ctx, after) {
		if err != nil {
			return err
		}
		if len(types) > 0 && !slices.Contains(types, event.Type) {
			continue
		}
		if err := each(event); err != nil {
			return err
		}
	}
	return nil
}

func showEvents(a *app) func(*toll.Event) error {
	return func(e *toll.Event) error { return showLine(&a.console, e, list.Events) }
}

// showLine prints a record in a line.
func showLine(con *console, record any, of list.List) error {
	b, err := x402.Encode(record)
	if err != nil {
		return err
	}
	if con.set.output == formatJSON {
		return con.writeCompact(b)
	}
	return con.rows([]json.RawMessage{b}, nil, of)
}
