package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/tempfile"
	"github.com/tollhq/toll/x402"
)

// hookTimeout is the time limit of a target for its response, the same as for a delivery of the service.
const hookTimeout = 10 * time.Second

// hookTarget is a server of the user that gets events in the form of webhook deliveries.
type hookTarget struct {
	URL       string         `json:"url"`
	Secret    string         `json:"secret"`
	Namespace x402.Namespace `json:"namespace"`
}

// forwarded is the outcome of a delivery to a target.
type forwarded struct {
	At             toll.Time      `json:"at"`
	Type           toll.EventType `json:"type"`
	ID             string         `json:"id"` // of the event
	URL            string         `json:"url"`
	Status         *int           `json:"status"` // of the response; nil without a response
	DurationMicros int64          `json:"durationMicros"`
	Error          *string        `json:"error"`
}

var forwardedLine = list.Local("deliveries", list.Time("at", "Time"), list.State("type"), list.ID("id", "Event"), list.Text("status", "Response"),
	list.Micros("durationMicros", "Duration"), list.Text("error"))

func listenCommand(a *app) *cobra.Command {
	var to, secret string
	var names []string
	c := command("listen", "Forward the events of your workspace to a server on your machine", func(cmd *cobra.Command, _ []string) error {
		return listen(cmd.Context(), a, to, secret, names)
	})
	c.Long = `Forward the events of your workspace to a server on your machine, until Ctrl-C. Each event is a POST request with the body, the headers,
and the signatures of a webhook delivery. The signing secret is printed at the start.

The command prints a line for each delivery: time, event type, event id, response status, duration, and error. The server has 10 seconds
to respond. Failed deliveries are not retried, and redirects are not followed. An interrupted stream resumes where it stopped.

Without --forward-to, the command only prints the events.`
	c.Example = "toll listen --forward-to localhost:3000/hooks\ntoll listen --events order.paid,settlement.settled -o json"
	f := c.Flags()
	f.StringSliceVar(&names, "events", nil, "event types, separated by commas; default all")
	hookFlags(c, &to, &secret)
	f.Lookup("secret").Usage += "; default a new secret"
	return c
}

func hookFlags(c *cobra.Command, to, secret *string) {
	c.Flags().StringVar(to, "forward-to", "", "address of your server, such as localhost:3000/hooks")
	c.Flags().StringVar(secret, "secret", "", "signing secret; - reads it from stdin, @path from a file")
}

func listen(ctx context.Context, a *app, to, secret string, names []string) (err error) {
	if secret != "" && to == "" {
		return usagef("--secret requires --forward-to")
	}
	var types []toll.EventType
	for _, name := range names {
		t, err := eventType(name)
		if err != nil {
			return err
		}
		types = append(types, t)
	}
	var r *hookTarget
	if to != "" {
		if r, err = newHookTarget(&a.console, to, secret); err != nil {
			return err
		}
	}
	after, err := newest(ctx, a)
	if err != nil {
		return err
	}
	if r == nil {
		return followEvents(ctx, a, after, types, showEvents(a))
	}
	announced, err := r.announce(&a.console)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, announced.Remove()) }()
	a.say("", "Forwarding events to %s. Press Ctrl-C to stop.", r.URL)
	a.say("signing secret", "%s", r.Secret)
	return followEvents(ctx, a, after, types, func(e *toll.Event) error {
		_, err := r.deliver(ctx, &a.console, e)
		return err
	})
}

// newHookTarget returns the target with an address, which may lack http://. Without a secret, it gets a new one.
func newHookTarget(con *console, to, secret string) (*hookTarget, error) {
	if !strings.Contains(to, "://") {
		to = "http://" + to
	}
	if _, err := httpURL(to); err != nil {
		return nil, usagef("--forward-to must be an address such as localhost:3000/hooks, or an http or https URL")
	}
	secret, err := con.textArgument(secret)
	if err != nil {
		return nil, flagError("secret", err)
	}
	return &hookTarget{URL: to, Secret: cmp.Or(secret, x402.NewWebhookSecret()), Namespace: con.set.names}, nil
}

// hookClient sends the deliveries.
var hookClient = &http.Client{
	Timeout:       hookTimeout,
	Transport:     &http.Transport{}, // no proxy
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// deliver sends an event once and prints the outcome, unless ctx ends first. It reports whether the target accepted the event.
func (r *hookTarget) deliver(ctx context.Context, con *console, e *toll.Event) (accepted bool, err error) {
	body, err := x402.Encode(e)
	if err != nil {
		return false, err
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header = x402.WebhookHeader(r.Namespace, e.ID, began, body, r.Secret)
	out := forwarded{At: toll.At(began), Type: e.Type, ID: e.ID, URL: r.URL}
	if res, err := hookClient.Do(req); err == nil {
		out.Status, accepted = &res.StatusCode, res.StatusCode >= 200 && res.StatusCode <= 299
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // the status is the answer
		_ = res.Body.Close()
	} else if ctx.Err() != nil {
		return false, nil
	} else {
		text := cause(err).Error()
		if errors.Is(err, context.DeadlineExceeded) {
			text = fmt.Sprintf("no response within %v", hookClient.Timeout)
		}
		out.Error = &text
	}
	out.DurationMicros = time.Since(began).Microseconds()
	return accepted, showLine(con, out, forwardedLine)
}

// announcement is the file in which a running toll listen describes its target for toll trigger. It is locked while the process runs.
var announcement = tempfile.Kind{Prefix: "listen-", Suffix: ".json"}

// announcements is the directory of the files of this user.
func announcements(con *console) (string, error) {
	path, _ := con.configPath()
	if path == "" {
		return "", errors.New("toll listen has no directory for its state: set TOLL_CONFIG to the path of a configuration file")
	}
	return filepath.Dir(path), nil
}

func (r *hookTarget) announce(con *console) (*tempfile.File, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	dir, err := announcements(con)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	file, err := announcement.Create(dir)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(b); err != nil {
		return nil, errors.Join(err, file.Remove())
	}
	return file, nil
}

// announced returns the targets of all running toll listen.
func announced(con *console) (all []*hookTarget, err error) {
	dir, err := announcements(con)
	if err != nil {
		return nil, err
	}
	_, _ = announcement.Clean(dir) // of processes that were killed; best effort, as some systems do not remove open files
	paths, err := filepath.Glob(filepath.Join(dir, announcement.Prefix+"*"+announcement.Suffix))
	for _, path := range paths {
		var r hookTarget
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &r) == nil { // else it has just started or ended
			all = append(all, &r)
		}
	}
	return all, err
}

// eventType returns the event type with a name. The error suggests similar types and lists all types.
func eventType(name string) (toll.EventType, error) {
	t := toll.EventType(strings.ToLower(name))
	if slices.Contains(toll.EventTypes(), t) {
		return t, nil
	}
	names := eventTypeNames()
	meant := ""
	if near := nearest(string(t), names); len(near) > 0 {
		meant = "; did you mean " + strings.Join(near, ", ") + "?"
	}
	return "", usagef("unknown event type %q%s Event types: %s", name, cmp.Or(meant, "."), strings.Join(names, ", "))
}

func eventTypeNames() (names []string) {
	for _, t := range toll.EventTypes() {
		names = append(names, string(t))
	}
	return names
}
