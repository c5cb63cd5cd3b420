package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/web/operator"
)

// backupRetry is the pause after a backup that failed.
const backupRetry = 10 * time.Minute

func (c Config) checkBackups() error {
	if c.Backups.Dir != "" && c.Database != "" {
		return errors.New("scheduled backups need the embedded database: omit TOLL_BACKUP_DIR (--backup-dir), and back up PostgreSQL with its own tools")
	}
	return c.Backups.Check(c.ObjectStore)
}

// backupLoop creates a backup when the newest backup is old enough, also across restarts, and removes the oldest backups.
func (s *Server) backupLoop() jobs.Loop {
	return jobs.Loop{Name: "database.backup", Every: time.Minute, Wake: s.backupDue, Run: s.backUp}
}

// soonestBackup is how old the newest backup is at least when a person gets another one. Each of them removes an old one, so
// that without it some clicks would leave backups of one hour alone.
const soonestBackup = time.Hour

// MakeBackup has the loop make a backup now, if the newest one is [soonestBackup] old.
func (s *Server) MakeBackup() {
	s.backedUp.mu.Lock()
	s.backedUp.wanted = true
	s.backedUp.mu.Unlock()
	s.backupDue.Fire()
}

// takeWanted reports whether somebody asked for a backup since the last call.
func (n *backupNotes) takeWanted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted := n.wanted
	n.wanted = false
	return wanted
}

// backupNotes are what this process knows of backups besides their files.
type backupNotes struct {
	mu       sync.Mutex
	last     time.Time // when the newest one was made; zero: not known, or none
	failed   time.Time // of the last try, zero when it succeeded
	failure  string
	wanted   bool // by a person
	verified operator.VerifiedBackup
}

func (n *backupNotes) tried(at, last time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || !last.IsZero() {
		n.last = last
	}
	if n.failed, n.failure = (time.Time{}), ""; err != nil {
		n.failed, n.failure = at, err.Error()
	}
}

// lastBackup returns when the newest scheduled backup was made, as the loop knows it; zero for none.
func (s *Server) lastBackup() time.Time {
	s.backedUp.mu.Lock()
	defer s.backedUp.mu.Unlock()
	return s.backedUp.last
}

// backups is what the page of the operators shows of scheduled backups; nil without a schedule.
func (s *Server) backups(ctx context.Context) *operator.Backups {
	b := s.cfg.Backups
	if b.Dir == "" {
		return nil
	}
	s.backedUp.mu.Lock()
	out := &operator.Backups{
		Dir: b.Dir, Every: b.Every, Keep: b.Keep, Now: s.base.clock.machine(), Failed: s.backedUp.failed, Failure: s.backedUp.failure,
		Verified: s.backedUp.verified,
	}
	s.backedUp.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	made, err := ListBackups(ctx, s.cfg, b.Dir)
	if err != nil {
		out.Failed, out.Failure = out.Now, err.Error()
	}
	for _, one := range slices.Backward(made) {
		out.Files = append(out.Files, operator.Backup(one))
	}
	return out
}

// VerifyBackup reads a whole scheduled backup and opens it, for the page of the operators.
func (s *Server) VerifyBackup(ctx context.Context, name string) (operator.VerifiedBackup, error) {
	if !backup.IsScheduled(name) || s.cfg.Backups.Dir == "" {
		return operator.VerifiedBackup{}, toll.Errorf(toll.CodeBadRequest, "This is not a scheduled backup.")
	}
	v := operator.VerifiedBackup{Name: name, At: s.base.clock.machine()}
	place, err := s.cfg.ObjectStore.Destination(s.cfg.Backups.Dir)
	if err == nil {
		var info backup.Info
		info, err = backup.Verify(ctx, s.base.ring, place, name)
		v.Bytes = info.Bytes
	}
	if err != nil {
		v.Failure = err.Error()
	}
	s.backedUp.mu.Lock()
	defer s.backedUp.mu.Unlock()
	s.backedUp.verified = v
	return v, ctx.Err()
}

func (s *Server) backUp(ctx context.Context) (next time.Duration, err error) {
	s.backing.Lock()
	defer s.backing.Unlock()
	cfg := s.cfg
	cfg.Clock = s.base.clock.machine
	schedule := cfg.Backups
	if s.backedUp.takeWanted() {
		schedule.Every = min(schedule.Every, soonestBackup)
	}
	now, last := cfg.Clock(), time.Time{}
	place, err := cfg.ObjectStore.Destination(cfg.Backups.Dir)
	if err == nil {
		last, next, err = schedule.Run(ctx, place, now, func(name string) error {
			_, err := writeBackup(ctx, cfg, place, name)
			return err
		})
	}
	if ctx.Err() == nil {
		s.backedUp.tried(now, last, err)
	}
	if err == nil || errors.Is(err, backup.ErrNotRemoved) {
		return next, err
	}
	if ctx.Err() == nil {
		alarm.Log(ctx, s.cfg.Log, alarm.BackupFailed, "a scheduled backup failed", "dir", cfg.Backups.Dir, "error", err.Error())
	}
	return backupRetry, nil // the alarm has said it
}
