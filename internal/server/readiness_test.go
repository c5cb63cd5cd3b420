package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// smallDisk mounts a file system of its own for a test. remount changes how it is mounted.
func smallDisk(t *testing.T, size string) (dir string, remount func(flags uintptr)) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		must.Check(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	return dir, func(flags uintptr) {
		t.Helper()
		must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, "mode=0700,size="+size))
	}
}

// fill takes all the space that is left in a directory, and returns what gives it back.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	must.Do(t, err)
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		must.Do(t, os.Remove(path))
	}
}

// readyNow asks for readiness once.
func readyNow(t *testing.T, url string) bool { return status(t, url+"/ready") == http.StatusOK }

// settleUntilRefused settles until the service cannot write any more.
func settleUntilRefused(t *testing.T, c *stand) {
	t.Helper()
	y := newTally()
	for i := range 100_000 {
		id := fmt.Sprint("full-", i)
		res, err := c.settle(t.Context(), id)
		if y.add(id, res, err); len(y.unknown) > 0 {
			return
		}
	}
	t.Fatal("the disk does not get full")
}

// saysDisk makes sure that the log names the database file, the code of the database and the free
// bytes.
func saysDisk(t *testing.T, log *servertest.Log, dir, code string) {
	t.Helper()
	eventually(t, "a line about the disk", func() bool {
		for line := range strings.Lines(log.String()) {
			names := strings.Contains(line, `"path":"`+dir+`/toll.db"`) && strings.Contains(line, code)
			if names && strings.Contains(line, `"freeBytes":`) {
				return true
			}
		}
		return false
	})
}

// With a full disk the service is not ready from the first settlement on that cannot be written,
// says why, and is ready again when there is room.
// F16
func TestReadyTellsOfAFullDisk(t *testing.T) {
	dir, _ := smallDisk(t, "32m")
	o := servertest.Options{Data: dir}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	metrics := servertest.FreeAddress(t)
	o.Args = []string{"--metrics-listen", metrics}
	p := servertest.Start(t, o)
	c := newStand(t, p.URL, builder, subscriber, 1_000_000)
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })
	for _, want := range []string{"toll_disk_free_bytes ", "toll_database_ready 1\n"} {
		if text := metricsAt(t, "http://"+metrics); !strings.Contains(text, want) {
			t.Errorf("metrics without %q", want)
		}
	}
	out, _ := servertest.Run(t, servertest.Program(t), servertest.Options{Data: dir}, "doctor", "--url", p.URL)
	if !strings.Contains(out, "disk\tfailed") {
		t.Errorf("doctor finds no fault with a disk that is nearly full:\n%s", out)
	}

	empty := fill(t, dir)
	settleUntilRefused(t, c)
	if readyNow(t, p.URL) {
		t.Error("ready after a settlement that could not be written")
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if readyNow(t, p.URL) {
			t.Fatal("ready while the disk is full")
		}
	}
	saysDisk(t, p.Log, dir, "SQLITE_FULL")
	for _, want := range []string{"toll_disk_free_bytes 0\n", "toll_database_ready 0\n"} {
		if text := metricsAt(t, "http://"+metrics); !strings.Contains(text, want) {
			t.Errorf("metrics without %q", want)
		}
	}
	if status(t, p.URL+"/health") != http.StatusOK {
		t.Error("not healthy")
	}

	empty()
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })
	if res, err := c.patient.settle(t.Context(), "after"); err != nil || !res.Success {
		t.Fatalf("settle after the disk was emptied: %+v %v", res, err)
	}
}

// A disk that gets full while nobody settles is found by the probe, and so after a restart. A first
// start on it says what is missing.
// F16
func TestIdleServiceFindsAFullDisk(t *testing.T) {
	dir, remount := smallDisk(t, "16m")
	o := servertest.Options{Data: dir}
	servertest.Key(t, o, "builder")
	p := servertest.Start(t, o)
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })
	empty := fill(t, dir)
	eventually(t, "not ready", func() bool { return !readyNow(t, p.URL) })
	saysDisk(t, p.Log, dir, "SQLITE_FULL")
	p.Kill()
	again := servertest.Start(t, o) // there is a log with room in it
	eventually(t, "not ready", func() bool { return !readyNow(t, again.URL) })
	saysDisk(t, again.Log, dir, "SQLITE_FULL")
	again.Kill()
	started := servertest.Launch(t, servertest.Options{Data: filepath.Join(dir, "new")})
	if code, err := started.Wait(patience); err != nil || code == 0 || !strings.Contains(started.Log.String(), dir+"/new") ||
		!strings.Contains(started.Log.String(), "0 bytes free") {
		t.Errorf("a first start on a full disk: exit %d, %v\n%s", code, err, started.Log)
	}
	empty()
	servertest.Start(t, o).Kill()

	// Nothing can be written there at all: a start says so, and doctor still reads.
	remount(unix.MS_RDONLY)
	started = servertest.Launch(t, o)
	if code, err := started.Wait(patience); err != nil || code != 1 || !strings.Contains(started.Log.String(), dir) ||
		!strings.Contains(started.Log.String(), "read-only") {
		t.Errorf("a start in a directory that cannot be written: exit %d, %v\n%s", code, err, started.Log)
	}
	out, code := servertest.Run(t, servertest.Program(t), o, "doctor")
	if code != 1 || !strings.Contains(out, "data directory\tfailed\t") || !strings.Contains(out, "cannot be written") {
		t.Errorf("doctor in a directory that cannot be written: exit %d\n%s", code, out)
	}
	remount(0)
	servertest.Start(t, o).Kill()
}

// The same with a limit on the size of files, which needs no privilege. It is lifted while the
// service runs.
// F16
func TestReadyTellsOfFilesThatCannotGrow(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is missing, whose ulimit keeps files from growing")
	}
	o := servertest.Options{Data: storetest.Dir(t)}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	listen := servertest.FreeAddress(t)
	const script = `ulimit -S -f 700; exec "$0" serve --data "$1" --listen "$2"`
	cmd := exec.Command(shell, "-c", script, servertest.Program(t), o.Data, listen)
	log := &servertest.Log{}
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), "TOLL_CONFIG=", "TOLL_DATABASE=")
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it is killed on purpose
	url := "http://" + listen
	eventually(t, "healthy", func() bool {
		res, err := http.Get(url + "/health")
		return err == nil && res.Body.Close() == nil
	})
	c := newStand(t, url, builder, subscriber, 1_000_000)
	settleUntilRefused(t, c)
	if readyNow(t, url) {
		t.Error("ready after a settlement that could not be written")
	}
	saysDisk(t, log, o.Data, "SQLITE_IOERR")
	none := &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	must.Do(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_FSIZE, none, nil))
	eventually(t, "ready", func() bool { return readyNow(t, url) })
	if res, err := c.patient.settle(t.Context(), "after"); err != nil || !res.Success {
		t.Fatalf("settle after the limit was lifted: %+v %v", res, err)
	}
}

// A database that hangs or is gone makes the service not ready. The answer comes from
// memory, so it is quick.
// F18
func TestReadyTellsOfAStoppedPostgres(t *testing.T) {
	if os.Getenv("TOLL_TEST_POSTGRES") == "" {
		storetest.Config(t, storetest.Postgres) // says what is missing
	}
	dir, postgres := cluster(t)
	o := servertest.Options{Database: postgres("dsn", dir), MasterKeyFile: freshMasterKey(t)}
	p := servertest.Start(t, o)
	defer func() {
		if t.Failed() {
			ps, _ := exec.Command("ps", "-eo", "pid,ppid,stat,wchan,args").Output()
			t.Logf("%s\n%s", ps, p.Log)
		}
	}()
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })

	signalCluster(t, dir, syscall.SIGSTOP)
	quickest := time.Hour
	eventually(t, "not ready while the database hangs", func() bool {
		began := time.Now()
		ready := readyNow(t, p.URL)
		quickest = min(quickest, time.Since(began))
		return !ready
	})
	for range 20 {
		began := time.Now()
		if readyNow(t, p.URL) {
			t.Error("ready while the database hangs")
		}
		quickest = min(quickest, time.Since(began))
	}
	if quickest > 100*time.Millisecond {
		t.Errorf("readiness took %v at least", quickest)
	}
	signalCluster(t, dir, syscall.SIGCONT)
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })

	postgres("crash", dir)
	eventually(t, "not ready without a database", func() bool { return !readyNow(t, p.URL) })
	eventually(t, "a line about the database", func() bool {
		log := p.Log.String()
		return strings.Contains(log, "does not accept writes") && strings.Contains(log, `"path":"127.0.0.1:`)
	})
	postgres("start", dir)
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })
}

// signalCluster sends a signal to every process of a cluster. After SIGSTOP it waits until every
// process has stopped, those included that began while it looked.
func signalCluster(t *testing.T, dir string, s syscall.Signal) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(dir, "data", "postmaster.pid")))(t)
	var pid int
	must.Get(fmt.Sscan(string(text), &pid))(t)
	eventually(t, "a signal for every process of the cluster", func() bool {
		_ = syscall.Kill(pid, s) // first, so that it starts no process that is not on the list
		done := s != syscall.SIGSTOP || stopped(pid)
		children := must.Get(exec.Command("pgrep", "-P", fmt.Sprint(pid)).Output())(t)
		for _, each := range strings.Fields(string(children)) {
			var id int
			must.Get(fmt.Sscan(each, &id))(t)
			_ = syscall.Kill(id, s) // one that has just ended needs none
			done = done && (s != syscall.SIGSTOP || stopped(id))
		}
		return done
	})
}

// stopped reports whether a process is stopped by a signal, or gone (proc(5), field 3 of stat).
func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	after := string(text[strings.LastIndex(string(text), ")")+1:])
	return strings.HasPrefix(after, " T") || strings.HasPrefix(after, " Z")
}
