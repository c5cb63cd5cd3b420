package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"

	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// lines is a log that several may write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A service makes backups by itself: at its start when the newest one is too old, in time again, and it
// keeps as many as it shall. Other files stay. A folder that is gone is an alarm, and the next try works.
// F28
func TestBackupSchedule(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "toll-notes.txt")
	must.Do(t, os.WriteFile(other, []byte("mine"), 0o600))
	var moved atomic.Int64
	base := time.Now()
	out := &lines{}
	log := slog.New(slog.NewTextHandler(out, nil))
	cfg := server.Config{
		Data: storetest.Dir(t), Metrics: true, Log: log, Backups: backup.Schedule{Dir: dir, Every: time.Hour, Keep: 2},
		Clock: func() time.Time { return base.Add(time.Duration(moved.Load())) },
	}
	files := func() (names []string) {
		return must.Get(filepath.Glob(filepath.Join(dir, "*.backup")))(t)
	}
	s, _ := start(t, cfg)
	for n := range 4 {
		eventually(t, "a backup is made", func() bool { return s.BackUp(t.Context()) == nil && len(files()) == min(n+1, 2) })
		if err := s.BackUp(t.Context()); err != nil || len(files()) != min(n+1, 2) {
			t.Errorf("a second backup at once: %v, %v", files(), err)
		}
		newest := files()[len(files())-1]
		if info, err := server.VerifyBackup(t.Context(), cfg, newest); err != nil || info.Bytes == 0 {
			t.Errorf("%+v, %v", info, err)
		}
		moved.Add(int64(61 * time.Minute))
	}
	if got := scrape(t, s); !strings.Contains(got, "toll_backup_age_seconds 3") {
		t.Error("the metrics do not tell the age of the newest backup")
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "mine" {
		t.Errorf("another file: %q, %v", b, err)
	}
	away := dir + "-away"
	must.Do(t, os.Rename(dir, away))
	if err := s.BackUp(t.Context()); err != nil || !strings.Contains(out.String(), "alarm=backup-failed") {
		t.Errorf("no alarm: %v\n%s", err, out)
	}
	if got := scrape(t, s); !strings.Contains(got, `toll_alarms_total{alarm="backup-failed"} 1`) {
		t.Error("the alarm is not counted")
	}
	must.Do(t, os.Rename(away, dir))
	// A larger one has several parts, of which each is read.
	must.Do(t, server.StoreOf(s).Tx(t.Context(), func(tx *store.Tx) error {
		return store.PutSetting(t.Context(), tx, "big", make([]byte, 3<<20))
	}))
	var copied bytes.Buffer
	must.Get(server.BackupTo(t.Context(), cfg, &copied))(t)
	path := filepath.Join(dir, "stdout")
	must.Do(t, os.WriteFile(path, copied.Bytes(), 0o600))
	if _, err := server.VerifyBackup(t.Context(), cfg, path); err != nil {
		t.Error(err)
	}
	must.Do(t, os.Truncate(path, int64(copied.Len()-1)))
	if _, err := server.VerifyBackup(t.Context(), cfg, path); err == nil {
		t.Error("a backup that was cut off is whole")
	}
}

// The backups of a schedule are kept in an object store, one of them is restored from there, and nothing of others is touched.
// F28
func TestBackupsInAnObjectStore(t *testing.T) {
	backend := s3mem.New()
	must.Do(t, backend.CreateBucket(t.Context(), "vault"))
	var away atomic.Bool
	store := gofakes3.New(backend, gofakes3.WithV4Auth(map[string]string{"key-of-toll": "secret-of-toll"})).Server()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(host.Close)
	must.Get(backend.PutObject(t.Context(), "vault", "toll/notes", nil, strings.NewReader("mine"), 4))(t)
	keyFile := filepath.Join(t.TempDir(), "s3.key")
	must.Do(t, os.WriteFile(keyFile, []byte("key-of-toll secret-of-toll\n"), 0o600))
	var moved atomic.Int64
	base := time.Now()
	out := &lines{}
	cfg := server.Config{
		Data: storetest.Dir(t), Metrics: true, Log: slog.New(slog.NewTextHandler(out, nil)), MasterKeyFile: freshMasterKey(t),
		Backups:     backup.Schedule{Dir: "s3://vault/toll", Every: time.Hour, Keep: 2},
		ObjectStore: backup.ObjectStore{Endpoint: host.URL, KeyFile: keyFile},
		Clock:       func() time.Time { return base.Add(time.Duration(moved.Load())) },
	}
	s, url := start(t, cfg)
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 1000)
	made := func() []backup.Scheduled {
		t.Helper()
		return must.Get(server.ListBackups(t.Context(), cfg, cfg.Backups.Dir))(t)
	}
	for n := range 3 {
		if r, err := c.settle(t.Context(), fmt.Sprint("before-", n)); err != nil || !r.Success {
			t.Fatal(err, r)
		}
		moved.Add(int64(61 * time.Minute))
		if err := s.BackUp(t.Context()); err != nil || len(made()) == 0 || made()[len(made())-1].At.Before(cfg.Clock().Add(-time.Minute)) {
			t.Fatalf("%v, %v\n%s", made(), err, out)
		}
	}
	if len(made()) != 2 {
		t.Errorf("%v", made())
	}
	newest := cfg.Backups.Dir + "/" + made()[1].Name
	if info, err := server.VerifyBackup(t.Context(), cfg, newest); err != nil || info.Bytes == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if got := scrape(t, s); !regexp.MustCompile(`\ntoll_backup_age_seconds \d{1,2}[.\n]`).MatchString(got) {
		t.Error("the metrics do not tell the age of the newest backup")
	}
	if left, err := filepath.Glob(filepath.Join(cfg.Data, "*.backup")); err != nil || len(left) > 0 {
		t.Errorf("left in the data directory: %v, %v", left, err)
	}
	restored := server.Config{Data: t.TempDir(), MasterKeyFile: cfg.MasterKeyFile, ObjectStore: cfg.ObjectStore}
	must.Get(server.Restore(t.Context(), restored, newest))(t)
	if found, err := auditBooks(t.Context(), restored); err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := backend.HeadObject(t.Context(), "vault", "toll/notes"); err != nil {
		t.Errorf("another object: %v", err)
	}
	away.Store(true)
	moved.Add(int64(61 * time.Minute))
	if err := s.BackUp(t.Context()); err != nil || !strings.Contains(out.String(), "alarm=backup-failed") || strings.Contains(out.String(), "secret-of-toll") {
		t.Errorf("no alarm: %v\n%s", err, out)
	}
	if got := scrape(t, s); !regexp.MustCompile(`\ntoll_backup_age_seconds 3[67]\d\d[.\n]`).MatchString(got) {
		t.Error("the age of the newest backup does not grow while the store is away")
	}
}
