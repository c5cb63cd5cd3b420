package cli

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

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

// follow prints events until the context ends.
func (a *app) follow(ctx context.Context, kind, after string) error {
	// A stream that breaks is made again without end, so that a wrong key or address has to be found before.
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
		if err := a.event(b); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) event(event []byte) error {
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
