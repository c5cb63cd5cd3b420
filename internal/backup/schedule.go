package backup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Schedule says when backups are made, and how many stay.
type Schedule struct {
	Dir   string        // a folder, or s3://bucket/prefix; "" makes none
	Every time.Duration // 10 minutes and more
	Keep  int           // the newest ones that stay, 1 and more; -1 keeps all
}

const (
	minEvery = 10 * time.Minute
	// maxPause is how long a schedule relies on what it knows of its place.
	maxPause = time.Hour
	// scheduledName is the form of the names of scheduled backups, in UTC: they sort by time.
	scheduledName = "toll-20060102T150405Z.backup"
	// ahead is how far the clock of another machine may be ahead. A backup with a later time is left alone: it must not keep
	// new backups from being made.
	ahead = time.Minute
)

// ErrNotRemoved is a backup that was made while older ones could not be removed.
var ErrNotRemoved = errors.New("old backups were not removed")

// Check refuses a schedule that cannot be kept.
func (s Schedule) Check(stores ObjectStore) error {
	switch {
	case s.Dir == "":
		return nil
	case s.Every < minEvery:
		return fmt.Errorf("the time between backups must be at least %s; got %s: fix TOLL_BACKUP_EVERY (--backup-every)", minEvery, s.Every)
	case s.Keep < 1 && s.Keep != -1:
		return fmt.Errorf("the number of backups to keep must be at least 1, or -1 to keep all; got %d: fix TOLL_BACKUP_KEEP (--backup-keep)", s.Keep)
	}
	_, err := stores.Destination(s.Dir)
	return err
}

// Scheduled is a backup of a schedule.
type Scheduled struct {
	Name  string    `json:"name"`
	At    time.Time `json:"at"`
	Bytes int64     `json:"bytes"` // of the sealed file
}

// IsScheduled reports whether a name is that of a scheduled backup.
func IsScheduled(name string) bool {
	_, err := time.Parse(scheduledName, name)
	return err == nil
}

// List returns the scheduled backups at a place, the oldest first, without those that are later than now. Other files are passed over.
func List(ctx context.Context, p Destination, now time.Time) (made []Scheduled, err error) {
	files, err := p.Files(ctx)
	made = []Scheduled{}
	for _, f := range files {
		at, err := time.Parse(scheduledName, f.Name)
		if err == nil && !at.After(now.Add(ahead)) {
			made = append(made, Scheduled{f.Name, at, f.Bytes})
		}
	}
	return made, err
}

// Run creates a backup when the newest one is old enough, and then removes the oldest ones. It returns when the newest
// one was made and how long to wait. [ErrNotRemoved] is the only error after a backup that was made.
func (s Schedule) Run(ctx context.Context, p Destination, now time.Time, write func(name string) error) (last time.Time, wait time.Duration, err error) {
	made, err := List(ctx, p, now)
	if err != nil {
		return last, 0, err
	}
	if len(made) > 0 {
		last = made[len(made)-1].At
		if age := now.Sub(last); age < s.Every {
			return last, min(maxPause, s.Every-age), nil
		}
	}
	tidied := p.tidy(ctx, now) // what cannot be removed does not stop a backup
	this := Scheduled{Name: now.UTC().Format(scheduledName), At: now}
	if err := write(this.Name); err != nil {
		return last, 0, err
	}
	made = append(made, this)
	for s.Keep > 0 && len(made) > s.Keep {
		if err := p.Remove(ctx, made[0].Name); err != nil {
			return now, 0, fmt.Errorf("%w: %w", ErrNotRemoved, err)
		}
		made = made[1:]
	}
	if tidied != nil {
		return now, 0, fmt.Errorf("%w: %w", ErrNotRemoved, tidied)
	}
	return now, 0, nil
}
