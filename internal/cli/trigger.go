package cli

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// eventSamples has one event of each type, as the service creates them in TestEventSamples. {{scheme}} is replaced by the word of the brand.
//
//go:embed event_samples.json
var eventSamples string

func triggerCommand(con *console) *cobra.Command {
	var to, secret string
	c := command("trigger EVENT", "Send a sample event to a server on your machine", func(cmd *cobra.Command, args []string) error {
		return trigger(cmd.Context(), con, args[0], to, secret)
	})
	c.Long = `Send a signed sample of an event type to the server of every running toll listen --forward-to, or to the server in --forward-to. The
service is not called and does not create an event. The sample has a new id, the current time, and sequence 0. Its other members come
from a real event of this type.

If the server does not respond with a 2xx status, the exit code is 1.`
	c.Example = "toll trigger order.paid\ntoll trigger order.paid --forward-to localhost:3000/hooks --secret @secret.txt"
	c.Annotations = withoutProfile
	c.ValidArgsFunction = cobra.FixedCompletions(eventTypeNames(), cobra.ShellCompDirectiveNoFileComp)
	hookFlags(c, &to, &secret)
	c.MarkFlagsRequiredTogether("forward-to", "secret")
	return c
}

func trigger(ctx context.Context, con *console, name, to, secret string) error {
	t, err := eventType(name)
	if err != nil {
		return err
	}
	var all []*hookTarget
	if to != "" {
		r, err := newHookTarget(con, to, secret)
		if err != nil {
			return err
		}
		all = []*hookTarget{r}
	} else if all, err = announced(con); err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no server to send the event to: start toll listen --forward-to localhost:3000/hooks, or add --forward-to and --secret")
	}
	failed := false
	for _, r := range all {
		e, err := sampleOf(t, r.Namespace, time.Now())
		if err != nil {
			return err
		}
		accepted, err := r.deliver(ctx, con, e)
		if err != nil {
			return err
		}
		failed = failed || !accepted
	}
	if failed {
		return printed(exitFailed)
	}
	return nil
}

// sampleOf returns a sample event of a type, in the words of a brand. Like webhook.test, it is in no stream, so its sequences are 0.
func sampleOf(t toll.EventType, names x402.Namespace, now time.Time) (*toll.Event, error) {
	var all map[toll.EventType]*toll.Event
	if err := json.Unmarshal([]byte(strings.ReplaceAll(eventSamples, "{{scheme}}", names.Scheme)), &all); err != nil {
		return nil, err
	}
	e := all[t]
	if e == nil {
		return nil, fmt.Errorf("this release has no sample of %s", t)
	}
	e.ID, e.CreatedAt = toll.NewTimeUUID(now).String(), toll.At(now)
	e.Sequence, e.Object.Sequence = 0, 0
	return e, nil
}
