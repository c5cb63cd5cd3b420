package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/web"
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

// backupNotes are what this process knows of backups besides their files.
type backupNotes struct {
	mu       sync.Mutex
	failed   time.Time // of the last try, zero when it succeeded
	failure  string
	verified web.VerifiedBackup
}

func (n *backupNotes) tried(at time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed, n.failure = (time.Time{}), ""; err != nil {
		n.failed, n.failure = at, err.Error()
	}
}

// backups is what the page of the operators shows of scheduled backups; nil without a schedule.
func (s *Server) backups() *web.Backups {
	b := s.cfg.Backups
	if b.Dir == "" {
		return nil
	}
	s.backedUp.mu.Lock()
	out := &web.Backups{
		Dir: b.Dir, Every: b.Every, Keep: b.Keep, Now: s.base.clock.machine(), Failed: s.backedUp.failed, Failure: s.backedUp.failure,
		Verified: s.backedUp.verified,
	}
	s.backedUp.mu.Unlock()
	names, err := b.scheduled()
	if err != nil {
		out.Failed, out.Failure = out.Now, err.Error()
	}
	for _, name := range slices.Backward(names) {
		one := web.Backup{Name: name}
		if one.At, err = time.Parse(backupName, name); err != nil {
			continue // the name has the form, and no date
		}
		if f, err := os.Stat(filepath.Join(b.Dir, name)); err == nil {
			one.Bytes = f.Size()
		}
		out.Files = append(out.Files, one)
	}
	return out
}

// verifyBackup reads a whole scheduled backup and opens it, for the page of the operators.
func (s *Server) verifyBackup(ctx context.Context, name string) (web.VerifiedBackup, error) {
	if !backupNames.MatchString(name) || s.cfg.Backups.Dir == "" {
		return web.VerifiedBackup{}, toll.Errorf(toll.CodeBadRequest, "This is no scheduled backup.")
	}
	v := web.VerifiedBackup{Name: name, At: s.base.clock.machine()}
	info, err := backup.Verify(ctx, s.base.ring, filepath.Join(s.cfg.Backups.Dir, name))
	if err != nil {
		v.Failure = err.Error()
	}
	v.Bytes = info.Bytes
	s.backedUp.mu.Lock()
	defer s.backedUp.mu.Unlock()
	s.backedUp.verified = v
	return v, ctx.Err()
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
	if ctx.Err() == nil {
		s.backedUp.tried(now, err)
	}
	if err != nil {
		if ctx.Err() == nil {
			alarm.Log(ctx, s.cfg.Log, alarm.BackupFailed, "a backup was not made", "dir", b.Dir, "error", err.Error())
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
