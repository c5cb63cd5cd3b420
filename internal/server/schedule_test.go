package server_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/server"
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
func TestF28_BackupSchedule(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "toll-notes.txt")
	if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	var moved atomic.Int64
	base := time.Now()
	out := &lines{}
	log := slog.New(slog.NewTextHandler(out, nil))
	cfg := server.Config{
		Data: t.TempDir(), Metrics: true, Log: log, Backups: server.BackupSchedule{Dir: dir, Every: time.Hour, Keep: 2},
		Clock: func() time.Time { return base.Add(time.Duration(moved.Load())) },
	}
	files := func() (names []string) {
		found, err := filepath.Glob(filepath.Join(dir, "*.backup"))
		if err != nil {
			t.Fatal(err)
		}
		return found
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
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if err := s.BackUp(t.Context()); err != nil || !strings.Contains(out.String(), "alarm=backup-failed") {
		t.Errorf("no alarm: %v\n%s", err, out)
	}
	if got := scrape(t, s); !strings.Contains(got, `toll_alarms_total{alarm="backup-failed"} 1`) {
		t.Error("the alarm is not counted")
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	var copied bytes.Buffer
	if _, err := server.BackupTo(t.Context(), cfg, &copied); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "stdout")
	if err := os.WriteFile(path, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.VerifyBackup(t.Context(), cfg, path); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(path, int64(copied.Len()-1)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.VerifyBackup(t.Context(), cfg, path); err == nil {
		t.Error("a backup that was cut off is whole")
	}
}
