package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
)

// failingDisk mounts an ext4 of its own. fail has the kernel make it read-only under the processes that write there, as it does after
// an error of the disk. repair checks and mounts it again when no process has a file of it open.
func failingDisk(t *testing.T) (dir string, fail, repair func()) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	must.Do(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("no ext4 can be made: %v %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device can be had: %v %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	dir = must.Get(os.MkdirTemp("", "toll-disk-"))(t)
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the user of PostgreSQL gets to its files
		t.Fatal(err)
	}
	mount := func() error { return unix.Mount(device, dir, "ext4", 0, "errors=remount-ro") }
	if err := mount(); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
	if err := unix.Access(trigger, unix.W_OK); err != nil {
		t.Skipf("the kernel makes no errors of a disk: %v", err)
	}
	fail = func() {
		t.Helper()
		must.Do(t, os.WriteFile(trigger, []byte("a test"), 0))
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Fatalf("the disk is not read-only: %v", err)
		}
	}
	repair = func() {
		t.Helper()
		eventually(t, "nobody uses the disk", func() bool { return unix.Unmount(dir, 0) == nil })
		out, err := exec.Command("e2fsck", "-fy", device).CombinedOutput()
		if ended, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || ended.ExitCode() > 1) { // 1: what was wrong is right now
			t.Fatalf("%v: %s", err, out)
		}
		must.Do(t, mount())
	}
	return dir, fail, repair
}

var logPages = regexp.MustCompile(`(?m)^toll_database_log_pages (\d+)$`) // of 4 KiB

// F16: the disk becomes read-only while the service settles. Nothing is acknowledged that is not on the disk, nobody is refused for
// good, the service is not ready or ends, and after a repair it has every settlement that was answered.
// F16
func TestDiskBecomesReadOnly(t *testing.T) {
	if rounds.Deferred(t) {
		return // it needs a device of its own
	}
	t.Run("sqlite", func(t *testing.T) {
		dir, fail, repair := failingDisk(t)
		metrics := servertest.FreeAddress(t)
		o := servertest.Options{Data: filepath.Join(dir, "data"), Args: []string{"--metrics-listen", metrics}}
		p, repeat := underLoad(t, o)
		// Linux reports some flushes of a file that grows as done in the moment in which an ext4 becomes read-only, see
		// docs/OPERATING.md. From here on commits go into the file of a log that was written before.
		eventually(t, "the log has begun anew", func() bool {
			info, err := os.Stat(filepath.Join(o.Data, "toll.db-wal"))
			found := logPages.FindStringSubmatch(metricsAt(t, "http://"+metrics))
			var pages int64
			if len(found) == 2 {
				_, _ = fmt.Sscan(found[1], &pages)
			}
			return err == nil && pages > 0 && pages*4096 < info.Size()/2 && info.Size() > 12<<20
		})
		fail()
		eventually(t, "not ready, or ended", func() bool {
			res, err := http.Get(p.URL + "/ready")
			return err != nil && gone(p) || err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusServiceUnavailable
		})
		if !gone(p) {
			eventually(t, "a line about the disk, or the end", func() bool { return gone(p) || strings.Contains(p.Log.String(), "read-only file system") })
		}
		p.Kill()
		repeat(func() *servertest.Process { repair(); return servertest.Start(t, o) })
	})
	t.Run("postgres", func(t *testing.T) {
		if os.Getenv("TOLL_TEST_POSTGRES") == "" {
			storetest.Config(t, storetest.Postgres) // says what is missing
		}
		dir, fail, repair := failingDisk(t)
		dir, postgres := clusterIn(t, filepath.Join(dir, "cluster"))
		o := servertest.Options{Database: postgres("dsn", dir), MasterKeyFile: freshMasterKey(t)}
		p, repeat := underLoad(t, o)
		disk := must.Get(os.Open(dir))(t)
		if err := errors.Join(unix.Syncfs(int(disk.Fd())), disk.Close()); err != nil { // the script flushes nothing
			t.Fatal(err)
		}
		fail()
		eventually(t, "not ready", func() bool { return !readyNow(t, p.URL) })
		if status(t, p.URL+"/health") != http.StatusOK {
			t.Error("not healthy")
		}
		repeat(func() *servertest.Process {
			killCluster(t, dir)
			repair()
			postgres("start", dir)
			eventually(t, "ready", func() bool { return readyNow(t, p.URL) })
			return p
		})
	})
}

// gone reports whether a process has ended.
func gone(p *servertest.Process) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// underLoad starts a service that settles. repeat, called after a fault, ends the load and compares the answers with the books of the
// process that it gets.
func underLoad(t *testing.T, o servertest.Options) (p *servertest.Process, repeat func(func() *servertest.Process)) {
	t.Helper()
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	p = servertest.Start(t, o)
	c := newStand(t, p.URL, builder, subscriber, 1_000_000)
	y := newTally()
	ctx, stop := context.WithCancel(t.Context())
	running, _ := load(ctx, 8, y, func(int) *stand { return c })
	eventually(t, "load", func() bool { return y.settled() > 300 })
	return p, func(next func() *servertest.Process) {
		t.Helper()
		stop()
		running.Wait()
		if len(y.unknown) == 0 {
			t.Error("no call met the fault")
		}
		after := next()
		y.repeat(t, c.on(after.URL, builder, subscriber))
		after.Kill()
		auditAfter(t, o)
	}
}

// killCluster ends all processes of a cluster that still run.
func killCluster(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var pid int
	if _, e := fmt.Sscan(string(text), &pid); err != nil || e != nil {
		t.Fatal(err, e)
	}
	eventually(t, "the cluster has ended", func() bool {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}
