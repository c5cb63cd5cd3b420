package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

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
			return followEvents(cmd.Context(), a, cmd.Flag("type").Value.String(), after)
		case after != "":
			return usagef("--after requires --follow")
		}
		return list(cmd, args)
	}
	return c
}

// followEvents prints events until the context ends.
func followEvents(ctx context.Context, a *app, kind, after string) error {
	// FollowEvents reconnects without end, so this call finds a wrong key or address first.
	if _, err := a.call(ctx, http.MethodGet, "/events", url.Values{"pageSize": {"1"}}, nil); err != nil {
		return err
	}
	for event, err := range a.client().FollowEvents(ctx, after) {
		if err != nil {
			return err
		}
		if kind != "" && string(event.Type) != kind {
			continue
		}
		b, err := x402.Encode(event)
		if err != nil {
			return err
		}
		if a.set.output == formatJSON {
			err = a.writeCompact(b)
		} else {
			err = a.rows([]json.RawMessage{b}, nil, list.Events)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
