package server_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// beforeDrill is the release that the drill upgrades from and goes back to. The schema of this one is newer.
const beforeDrill = "fd13727bae435bb0f09a37004b045c24b56642dc"

// drill is an installation as docs/OPERATING.md describes it: PostgreSQL, two processes, nginx before them.
type drill struct {
	*testing.T
	program   string // that serves
	o         servertest.Options
	listen    [2]string
	metrics   [2]string
	processes [2]*servertest.Process
	restarts  int
	began     time.Time
	last      int
	y         *tally
}

// restart starts the processes one after the other with the present program and keys, as a rolling restart does.
func (d *drill) restart(what string, args ...string) {
	d.Helper()
	for i := range d.processes {
		if p := d.processes[i]; p != nil {
			d.restarts++
			if err := p.Signal(syscall.SIGTERM); err != nil {
				d.Fatal(err)
			}
			if code, err := p.Wait(patience); err != nil || code != 0 {
				d.Fatalf("%s: exit %d: %v\n%s", what, code, err, p.Log)
			}
		}
		on := d.o
		on.Listen = d.listen[i]
		on.Args = append([]string{"--drain", "2s", "--rate-limit-ip", "0", "--metrics-listen", d.metrics[i]}, args...)
		d.processes[i] = servertest.StartProgram(d.T, d.program, on)
		eventually(d.T, "ready", func() bool { return readyNow(d.T, d.processes[i].URL) })
	}
	d.step(what)
}

// step waits for some load after a step and prints how it went.
func (d *drill) step(what string) {
	d.Helper()
	if d.y != nil {
		target := d.y.ended() + 300
		eventually(d.T, "load after "+what, func() bool { return d.y.ended() > target })
		now := d.y.ended()
		d.y.mu.Lock()
		lost := len(d.y.unknown) + len(d.y.refused)
		d.y.mu.Unlock()
		d.Logf("%6.1f s  %-44s %6d requests, %d lost at their first try so far", time.Since(d.began).Seconds(), what, now-d.last, lost)
		d.last = now
	}
}

// toll runs a command of the program beside the processes.
func (d *drill) toll(args ...string) string {
	d.Helper()
	out, code := servertest.Run(d.T, d.program, d.o, args...)
	if code != 0 {
		d.Fatalf("toll %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// toolDSN returns the address of a database for the programs of PostgreSQL.
func toolDSN(t *testing.T, dsn string) string {
	t.Helper()
	c := storetest.ConnConfig(t, dsn)
	to := url.URL{
		Scheme: "postgres", User: url.UserPassword(c.User, c.Password),
		Host: fmt.Sprintf("%s:%d", c.Host, c.Port), Path: "/" + c.Database,
	}
	return to.String()
}

// ageKey makes a key of age: the file of the secret part, and the public one.
func ageKey(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "age.key")
	succeeds(t, t.TempDir(), "age-keygen", "-o", file)
	public = strings.TrimSpace(inRoot(t, nil, "age-keygen", "-y", file))
	return file, public
}

// bodyOf returns what a GET is answered with.
func bodyOf(t *testing.T, address string) string {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unpacked is the root of a Debian package of a version, unpacked and not installed: TestPackage_Deb installs it, on a machine of its own.
func unpacked(t *testing.T, version string) string {
	t.Helper()
	root := t.TempDir()
	succeeds(t, root, "dpkg", "-x", debOf(t, version), root)
	return root
}

// TestDrill does under load what a person does who follows docs/OPERATING.md on an empty machine: takes the Debian package, sets up
// PostgreSQL and two processes behind nginx, rotates both keys, upgrades from the release before, goes back, upgrades again, and
// restores yesterday's backup, which age has sealed. Each request that was answered stays answered, and each credit is burned once.
func TestDrill(t *testing.T) {
	for _, program := range []string{"nginx", "dpkg", "age", "pg_dump"} {
		if !needs(t, program) {
			return
		}
	}
	root := unpacked(t, "1.1.0") // not beside the tests of packages, which build in the same folder
	t.Parallel()
	before, ours := releaseOf(t, beforeDrill), filepath.Join(root, "usr", "bin", "toll")
	cfg := storetest.Empty(t, storetest.Postgres)
	old, next := freshMasterKey(t), freshMasterKey(t)
	d := &drill{T: t, program: before, o: servertest.Options{Database: cfg.Database, MasterKeyFile: old}, began: time.Now()}
	for i := range d.listen {
		d.listen[i], d.metrics[i] = servertest.FreeAddress(t), servertest.FreeAddress(t)
	}
	builder, subscriber := keyBy(t, before, d.o, "builder"), keyBy(t, before, d.o, "subscriber")
	d.restart("start")
	front := servertest.FreeAddress(t)
	text, err := os.ReadFile(filepath.Join(root, "usr", "share", "doc", "toll", "examples", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	part := replaceAll(t, string(text), "127.0.0.1:8402", d.listen[0], "127.0.0.1:8403", d.listen[1], "443 ssl", front)
	var kept strings.Builder
	for line := range strings.Lines(part) { // TLS is not what this is about
		if !strings.Contains(line, "ssl_certificate") {
			kept.WriteString(line)
		}
	}
	startNginx(t, front, kept.String())
	s := newStand(t, "http://"+front, builder, subscriber, 1_000_000)
	d.y = newTally()
	ctx, stop := context.WithCancel(t.Context())
	running, _ := load(ctx, 4, d.y, func(int) *stand { return s })
	defer stop()
	d.step("load")

	// Yesterday's backup: what had its answer before is in it.
	secret, public := ageKey(t)
	backup, at := filepath.Join(t.TempDir(), "toll.dump.age"), time.Now().UTC()
	d.y.mu.Lock()
	answered := maps.Clone(d.y.answers)
	d.y.mu.Unlock()
	dsn := toolDSN(t, cfg.Database)
	succeeds(t, t.TempDir(), "bash", "-o", "pipefail", "-euc", `pg_dump -Fc "$0" | age -r "$1" >"$2"`, dsn, public, backup)
	d.step("pg_dump")

	published := len(publishedKeys(t, d.processes[0].URL))
	d.toll("keys", "rotate-signing", "--local")
	for _, p := range d.processes {
		eventually(t, "the next signing key is published", func() bool { return len(publishedKeys(t, p.URL)) > published })
	}
	d.step("rotate the signing key")

	d.restart("both master keys, the old one seals", "--other-master-key-file", next)
	d.o.MasterKeyFile = next
	d.restart("both master keys, the new one seals", "--other-master-key-file", old)
	d.o.MasterKeyFile = old
	d.toll("keys", "rotate-master", "--local", "--new-key-file", next)
	again := d.toll("keys", "rotate-master", "--local", "--new-key-file", next, "-o", "json")
	if !regexp.MustCompile(`"resealed":\s*\{\s*\}`).MatchString(again) {
		t.Errorf("something is left: %s", again)
	}
	d.step("rotate the master key")
	d.o.MasterKeyFile = next
	d.restart("the new master key alone")

	d.program = ours
	d.toll("migrate", "--online")
	d.restart("upgrade")
	d.program = before
	d.restart("roll back")
	d.program = ours
	d.restart("upgrade again")
	for _, address := range d.metrics {
		text := bodyOf(t, "http://"+address+"/metrics")
		for _, name := range []string{"toll_settlements_total", "toll_http_answers_total{", "toll_alarms_total{", "toll_build_info{", "toll_audit_age_seconds -1"} {
			if !strings.Contains(text, "\n"+name) {
				t.Errorf("the metrics of %s lack %s", address, name)
			}
		}
		if !strings.Contains(text, `version="1.1.0+`+commit(t)+`"`) {
			t.Errorf("%s is not a process of the package", address)
		}
	}
	stop()
	running.Wait()
	d.Logf("%d requests in %.0f s, %d restarts; %d lost at their first try: %s", d.y.ended(), time.Since(d.began).Seconds(), d.restarts,
		len(d.y.unknown)+len(d.y.refused), strings.Join(d.y.refused, "; "))
	if lost := len(d.y.unknown) + len(d.y.refused); lost > 0 {
		t.Errorf("%d requests have no answer at their first try", lost)
	}
	requests := len(d.y.answers) + len(d.y.unknown)
	d.y.repeat(t, s)
	d.toll("audit", "--record")
	d.Logf("%6.1f s  each of %d requests has its answer, and one credit was burned for each", time.Since(d.began).Seconds(), requests)

	// The backup becomes another database, beside the one of today.
	restored := storetest.Empty(t, storetest.Postgres)
	plain := inRoot(t, nil, "bash", "-o", "pipefail", "-euc", `age -d -i "$0" "$1" | pg_restore -f -`, secret, backup)
	for _, known := range []string{builder.Key, subscriber.Key} {
		if strings.Contains(plain, known) || strings.Contains(plain, hex.EncodeToString([]byte(known))) {
			t.Error("the dump has an API key in plain")
		}
	}
	succeeds(t, t.TempDir(), "bash", "-o", "pipefail", "-euc", `age -d -i "$0" "$1" | pg_restore --no-owner --exit-on-error --dbname="$2"`,
		secret, backup, toolDSN(t, restored.Database))
	r := &drill{T: t, program: ours, o: servertest.Options{Database: restored.Database, MasterKeyFile: next}, began: d.began}
	r.o.Args = []string{"--other-master-key-file", old, "--rate-limit-ip", "0"} // yesterday the old key sealed
	r.toll("migrate", "--other-master-key-file", old)                           // the backup is of the release before
	r.toll("recovery", "begin", "--backup-time", at.Format(time.RFC3339), "--other-master-key-file", old)
	p := servertest.Start(t, r.o)
	c := s.on(p.URL, builder, subscriber).patient
	used := c.balance(t).Used
	if used < toll.Credits(len(answered)) || used >= toll.Credits(requests) {
		t.Errorf("%v credits are burned in the backup, which was made between request %d and %d", used, len(answered), requests)
	}
	for id, tx := range answered {
		if res, err := c.settle(t.Context(), id); err != nil || !res.Success || res.Transaction != tx {
			t.Fatalf("%s, which was answered before the backup: %+v, %v", id, res, err)
		}
	}
	if after := c.balance(t).Used; after != used {
		t.Errorf("the repeats burned %v credits", after-used)
	}
	if list := r.toll("orders", "unmatched", "--other-master-key-file", old); !strings.Contains(list, "an order explains every payment") {
		t.Errorf("payments without an order:\n%s", list)
	}
	r.toll("recovery", "end", "--other-master-key-file", old)
	r.toll("audit", "--other-master-key-file", old)
	d.Logf("%6.1f s  yesterday's backup has each of %d requests that were answered before it", time.Since(d.began).Seconds(), len(answered))
}
