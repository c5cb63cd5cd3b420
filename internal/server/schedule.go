package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/jobs"
)

// BackupSchedule says when a service makes backups of its embedded database.
type BackupSchedule struct {
	Dir   string        // an existing folder; "" makes none
	Every time.Duration // 10 minutes and more
	Keep  int           // the newest ones that stay, 1 and more
}

const (
	minBackupEvery = 10 * time.Minute
	// backupName is the form of the names of scheduled backups, in UTC: they sort by time.
	backupName = "toll-20060102T150405Z.backup"
	// backupRetry is the pause after a backup that failed.
	backupRetry = 10 * time.Minute
)

var backupNames = regexp.MustCompile(`^toll-\d{8}T\d{6}Z\.backup$`)

func (c Config) checkBackups() error {
	b := c.Backups
	switch {
	case b.Dir == "":
		return nil
	case c.Database != "":
		return errors.New("backups of a PostgreSQL database are made with its tools: leave TOLL_BACKUP_DIR (--backup-dir) out")
	case b.Every < minBackupEvery:
		return fmt.Errorf("backups are made every %s or less often; got %s: correct TOLL_BACKUP_EVERY (--backup-every)", minBackupEvery, b.Every)
	case b.Keep < 1:
		return fmt.Errorf("at least one backup is kept; got %d: correct TOLL_BACKUP_KEEP (--backup-keep)", b.Keep)
	}
	return nil
}

// scheduled returns the scheduled backups in the folder, the oldest first. Other files are not touched.
func (b BackupSchedule) scheduled() (names []string, err error) {
	entries, err := os.ReadDir(b.Dir)
	for _, e := range entries {
		if backupNames.MatchString(e.Name()) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// lastBackup returns when the newest scheduled backup was made, zero for none.
func (b BackupSchedule) lastBackup() (at time.Time, err error) {
	names, err := b.scheduled()
	if err != nil || len(names) == 0 {
		return at, err
	}
	return time.Parse(backupName, names[len(names)-1])
}

// backupLoop makes a backup when the newest one is old enough, also across restarts, and removes the
// oldest ones.
func (s *Server) backupLoop() jobs.Loop {
	return jobs.Loop{Name: "database.backup", Every: time.Minute, Turn: s.backUp}
}

func (s *Server) backUp(ctx context.Context) (next time.Duration, err error) {
	s.backing.Lock()
	defer s.backing.Unlock()
	b, now := s.cfg.Backups, s.base.clock.machine()
	last, err := b.lastBackup()
	if err == nil && now.Sub(last) < b.Every {
		return min(time.Minute, b.Every-now.Sub(last)), nil
	}
	if err == nil {
		cfg := s.cfg
		cfg.Clock = s.base.clock.machine
		_, err = Backup(ctx, cfg, filepath.Join(b.Dir, now.UTC().Format(backupName)))
	}
	if err != nil {
		if ctx.Err() == nil {
			alarm.Log(s.cfg.Log, alarm.BackupFailed, "a backup was not made", "dir", b.Dir, "error", err.Error())
		}
		return backupRetry, nil // the alarm has said it
	}
	names, err := b.scheduled()
	for len(names) > b.Keep && err == nil {
		err = os.Remove(filepath.Join(b.Dir, names[0]))
		names = names[1:]
	}
	return 0, err
}
