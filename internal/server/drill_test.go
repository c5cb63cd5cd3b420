package server_test

import (
	"context"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// drill is an installation of two processes on PostgreSQL. As behind a proxy, a process that restarts gets no new requests.
type drill struct {
	*testing.T
	o         servertest.Options
	listen    [2]string
	processes [2]*servertest.Process
	stands    [2]*stand
	down      atomic.Int64 // the process that gets no requests, -1 for none
	tally     *tally
}

func (d *drill) start(i int, program string) {
	d.Helper()
	on := d.o
	on.Listen, on.Args = d.listen[i], []string{"--drain", "2s", "--rate-limit-ip", "0"}
	d.processes[i] = servertest.StartProgram(d.T, program, on)
	eventually(d.T, "ready", func() bool { return readyNow(d.T, d.processes[i].URL) })
}

func (d *drill) stop(i int) {
	d.Helper()
	must.Do(d, d.processes[i].Signal(syscall.SIGTERM))
	if code, err := d.processes[i].Wait(patience); err != nil || code != 0 {
		d.Fatalf("exit %d: %v\n%s", code, err, d.processes[i].Log)
	}
}

// roll restarts one process after the other with a program, under load.
func (d *drill) roll(what, program string) {
	d.Helper()
	for i := range d.processes {
		d.down.Store(int64(i))
		d.stop(i)
		d.start(i, program)
		d.down.Store(-1)
		target := d.tally.ended() + 200
		eventually(d.T, what, func() bool { return d.tally.ended() > target })
	}
}

// toolDSN returns the address of a database for the programs of PostgreSQL.
func toolDSN(t *testing.T, dsn string) string {
	t.Helper()
	c := storetest.ConnConfig(t, dsn)
	host := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Host: host, Path: "/" + c.Database}).String()
}

// TestDrill upgrades two processes and goes back, as docs/OPERATING.md says. A release with an online migration replaces this one under
// load, gives way to it, and replaces it again, and each request has its answer at the first try. A release with an offline migration
// needs both processes stopped, and the way back from it is the dump of before.
// F24
func TestDrill(t *testing.T) {
	if !needs(t, "pg_dump") {
		return
	}
	t.Parallel()
	ours, online, offline := servertest.Program(t), laterSafe(t), laterUnsafe(t)
	cfg := storetest.Config(t, storetest.Postgres)
	d := &drill{T: t, o: servertest.Options{Database: cfg.Database, MasterKeyFile: freshMasterKey(t)}, tally: newTally()}
	d.down.Store(-1)
	builder, subscriber := servertest.Key(t, d.o, "builder"), servertest.Key(t, d.o, "subscriber")
	for i := range d.processes {
		d.listen[i] = servertest.FreeAddress(t)
		d.start(i, ours)
	}
	s := newStand(t, d.processes[0].URL, builder, subscriber, 1_000_000)
	d.stands = [2]*stand{s, s.on(d.processes[1].URL, builder, subscriber)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	running, _ := load(ctx, 4, d.tally, func(worker int) *stand {
		if down := d.down.Load(); down >= 0 {
			return d.stands[1-down]
		}
		return d.stands[worker%2]
	})
	works(t, online, d.o, "migrate", "--online")
	d.roll("upgrade", online)
	d.roll("roll back", ours)
	d.roll("upgrade again", online)
	fails(t, offline, d.o, "not safe", "migrate", "--online")

	dump, at := filepath.Join(t.TempDir(), "toll.dump"), time.Now().UTC()
	d.tally.mu.Lock()
	answered := maps.Clone(d.tally.answers)
	d.tally.mu.Unlock()
	succeeds(t, t.TempDir(), "pg_dump", "-Fc", "-f", dump, toolDSN(t, cfg.Database))
	target := d.tally.ended() + 200
	eventually(t, "load after the dump", func() bool { return d.tally.ended() > target })
	stop()
	running.Wait()
	if lost := len(d.tally.unknown) + len(d.tally.refused); lost > 0 {
		t.Errorf("%d requests have no answer at their first try: %v", lost, d.tally.refused)
	}
	d.tally.repeat(t, s)
	requests := len(d.tally.answers) + len(d.tally.unknown)
	for i := range d.processes {
		d.stop(i)
	}
	works(t, offline, d.o, "migrate")
	d.start(0, offline)
	d.tally.repeat(t, s)
	d.stop(0)
	works(t, offline, d.o, "audit")
	fails(t, online, d.o, "newer", "audit")

	restored := storetest.Empty(t, storetest.Postgres)
	succeeds(t, t.TempDir(), "pg_restore", "--no-owner", "--exit-on-error", "--dbname", toolDSN(t, restored.Database), dump)
	d.o.Database = restored.Database
	works(t, online, d.o, "recovery", "begin", "--backup-time", at.Format(time.RFC3339))
	d.start(0, online)
	used := s.balance(t).Used
	if used < toll.Credits(len(answered)) || used >= toll.Credits(requests) {
		t.Errorf("%v credits are burned in the dump, which was made between request %d and %d", used, len(answered), requests)
	}
	for id, tx := range answered {
		if res, err := s.patient.settle(t.Context(), id); err != nil || !res.Success || res.Transaction != tx {
			t.Fatalf("%s, which was answered before the dump: %+v, %v", id, res, err)
		}
	}
	if after := s.balance(t).Used; after != used {
		t.Errorf("the repeats burned %v credits", after-used)
	}
	works(t, online, d.o, "recovery", "end")
	works(t, online, d.o, "audit")
}
