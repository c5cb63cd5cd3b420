package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
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

// TestListen_Receivers: the receivers in docs/WEBHOOKS.md verify what toll listen forwards and what toll trigger sends, and refuse another secret.
func TestListen_Receivers(t *testing.T) {
	t.Parallel()
	p, python := newSDKProject(t), findPython(t)
	shown := blocks(t, filepath.Join("..", "docs", "WEBHOOKS.md"))
	for file, program := range map[string]string{"receive.mjs": p.program, "receive.py": python} {
		t.Run(file, func(t *testing.T) {
			i := slices.IndexFunc(shown, func(b block) bool { return b.word == file })
			if i < 0 {
				t.Fatalf("docs/WEBHOOKS.md does not have %s", file)
			}
			at := servertest.FreeAddress(t)
			_, port, _ := net.SplitHostPort(at)
			must.Do(t, os.WriteFile(filepath.Join(p.dir, file), []byte(strings.ReplaceAll(shown[i].text, "3000", port)), 0o644))
			receiveForwarded(t, at, p.dir, program, file)
		})
	}
}

// delivered is a line of toll listen and toll trigger.
type delivered struct {
	ID, Type string
	Status   int
}

func receiveForwarded(t *testing.T, at, dir, program, file string) {
	svc := tolltest.New(t)
	key := must.Get(svc.NewKey("builder"))(t)
	env := append(os.Environ(), "TOLL_URL="+svc.URL(), "TOLL_API_KEY="+key.Key, "HOME="+t.TempDir(), "XDG_CONFIG_HOME=",
		"PYTHONPATH="+absolute(t, "..", "sdk", "python", "src"), "PYTHONDONTWRITEBYTECODE=1")
	begin := func(said io.Writer, env []string, program string, args ...string) *bufio.Scanner {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = dir, env, said, time.Second
		out := must.Get(cmd.StdoutPipe())(t)
		must.Do(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		return bufio.NewScanner(out)
	}
	log := &servertest.Log{}
	listening := begin(log, env, servertest.Program(t), "listen", "--forward-to", at+"/hooks", "--events", "credits.minted", "-o", "json")
	within := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s\n%s", what, log)
			}
		}
	}
	var secret []string
	within("toll listen prints no secret", func() bool {
		secret = regexp.MustCompile(`signing secret: (whsec_\S+)\n`).FindStringSubmatch(log.String())
		return secret != nil
	})
	receiving := begin(log, append(env, "WEBHOOK_SECRET="+secret[1]), program, file)
	within("the receiver does not start", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	same := func(line []byte) {
		t.Helper()
		var d delivered
		must.Do(t, json.Unmarshal(line, &d))
		if d.Status != http.StatusNoContent {
			t.Fatalf("the receiver refuses %+v\n%s", d, log) // and prints nothing
		}
		for receiving.Scan() && strings.HasPrefix(receiving.Text(), " * ") { // Flask has started
		}
		if receiving.Text() != d.Type+" "+d.ID {
			t.Errorf("%+v arrived as %q\n%s", d, receiving.Text(), log)
		}
	}
	trigger := func(args ...string) ([]byte, int) {
		cmd := exec.CommandContext(t.Context(), servertest.Program(t), append([]string{"trigger", "order.paid", "-o", "json"}, args...)...)
		cmd.Env = env
		out, _ := cmd.Output() // the exit code is the error
		return out, cmd.ProcessState.ExitCode()
	}
	svc.Mint(key.Address, 7) // an event of the workspace
	if !listening.Scan() {
		t.Fatalf("nothing is forwarded\n%s", log)
	}
	same(listening.Bytes())
	out, code := trigger()
	same(out)
	wrong, refused := trigger("--forward-to", at+"/hooks", "--secret", "whsec_"+strings.Repeat("A", 43)+"=")
	if code != 0 || refused != 1 || !bytes.Contains(wrong, []byte(`"status":403`)) {
		t.Errorf("exit codes %d and %d: %s", code, refused, wrong)
	}
}
