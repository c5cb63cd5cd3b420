package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

var webhookPackages = &set{from: "webhooks"}

// sent is a delivery as a receiver got it.
type sent struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// TestStandardWebhooks: the npm packages standardwebhooks and svix verify our deliveries, also with the secret before a rotation, and
// refuse a changed body. The card double answers stripe-node, which sends its default version of the API.
func TestStandardWebhooks(t *testing.T) {
	n := webhookPackages.find(t)
	svc := tolltest.New(t)
	got := make(chan sent, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d := sent{Headers: map[string]string{}, Body: string(body)}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			d.Headers[name] = strings.Join(r.Header.Values(name), ",")
		}
		got <- d
	}))
	defer receiver.Close()
	c := svc.Client()
	w := must.Get(c.CreateWebhook(t.Context(), client.WebhookParams{URL: receiver.URL}))(t)
	rotated, err := c.RotateWebhook(t.Context(), w.ID)
	if err == nil {
		err = c.TestWebhook(t.Context(), w.ID)
	}
	must.Do(t, err)
	var first sent
	select {
	case first = <-got:
	case <-time.After(time.Minute):
		t.Fatal("no delivery came")
	}
	changed := sent{first.Headers, strings.Replace(first.Body, "{", "{ ", 1)}

	d := must.Get(double.New(double.Options{}))(t)
	defer d.Close()
	stripe := httptest.NewServer(d.Handler())
	defer stripe.Close()

	in, err := json.Marshal(map[string]any{"deliveries": []sent{first, changed}, "secrets": []string{w.Secret, rotated.Secret}, "double": stripe.URL})
	must.Do(t, err)
	script := must.Get(os.ReadFile(filepath.Join("webhooks", "check.mjs")))(t)
	dir := must.Get(os.MkdirTemp(n.packages, "run"))(t)
	defer os.RemoveAll(dir)
	must.Do(t, os.WriteFile(filepath.Join(dir, "check.mjs"), script, 0o600))
	cmd := exec.CommandContext(t.Context(), n.program, "check.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	var said struct {
		Verdicts          []string
		Customer, Version string
	}
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err != nil || len(said.Verdicts) != 8 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, v := range said.Verdicts {
		if good := v == first.Headers["webhook-id"]; good != (i < 4) {
			t.Errorf("verdict %d is %q of %+v", i, v, first)
		}
	}
	if said.Customer != "Ann" || said.Version == "" || said.Version == double.Version {
		t.Errorf("stripe-node: %+v", said)
	}
}
