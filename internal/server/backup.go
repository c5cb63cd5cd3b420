package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tempfile"
)

// Backup writes the embedded database, as it is in one moment, to a new file that only the master key opens: a path, or
// s3://bucket/prefix/name. It works beside a running service. The master key is not in it: a restore needs both.
func Backup(ctx context.Context, cfg Config, location string) (info backup.Info, err error) {
	to, name, err := cfg.ObjectStore.Split(location)
	if err != nil {
		return info, err
	}
	return writeBackup(ctx, cfg, to, name)
}

func writeBackup(ctx context.Context, cfg Config, to backup.Destination, name string) (info backup.Info, err error) {
	if cfg.Database != "" {
		return info, store.ErrNoSnapshot
	}
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.check(), cfg.existing()); err != nil {
		return info, err
	}
	st, err := store.Open(ctx, cfg.anySchema())
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	// An older schema is copied as it is. Nobody could restore a newer one with this release.
	schema, err := st.Schema(ctx)
	if err != nil {
		return info, err
	}
	if err := schema.Usable(); err != nil && !errors.Is(err, store.ErrOlderSchema) {
		return info, err
	}
	environment, err := setting(ctx, st, "environment")
	if err != nil {
		return info, err
	}
	ring, err := cfg.ringOf(toll.Environment(environment), false)
	if err != nil {
		return info, err
	}
	stored, err := auth.ReadStored(ctx, st, ring)
	if err != nil {
		return info, err
	}
	moved, err := newClock(ctx, cfg.Clock, st, stored.Environment)
	if err != nil {
		return info, err
	}
	return backup.Write(ctx, st, ring, backup.Info{
		Environment: stored.Environment,
		CreatedAt:   toll.At(moved.now()),
		Release:     cfg.Release,
		MasterKeyID: ring.KeyID(),
	}, cmp.Or(cfg.TemporaryDir, cfg.Data), to, name)
}

// BackupTo is [Backup] to a writer, after the file was read back.
func BackupTo(ctx context.Context, cfg Config, to io.Writer) (info backup.Info, err error) {
	dir, err := os.MkdirTemp(cfg.TemporaryDir, "toll-backup-")
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "backup")
	if info, err = Backup(ctx, cfg, path); err != nil {
		return info, err
	}
	f, err := os.Open(path)
	if err != nil {
		return info, err
	}
	_, err = io.Copy(to, f)
	return info, errors.Join(err, f.Close())
}

// VerifyBackup reads a whole backup and opens it with the master key, without making a database.
func VerifyBackup(ctx context.Context, cfg Config, location string) (info backup.Info, err error) {
	cfg = cfg.withDefaults()
	ring, err := cfg.openRing(false)
	if err != nil {
		return info, err
	}
	from, name, err := cfg.ObjectStore.Split(location)
	if err != nil {
		return info, err
	}
	return backup.Verify(ctx, ring, from, name)
}

// ListBackups returns the scheduled backups of a folder or of s3://bucket/prefix, the oldest first.
func ListBackups(ctx context.Context, cfg Config, location string) ([]backup.Scheduled, error) {
	place, err := cfg.ObjectStore.Destination(location)
	if err != nil {
		return nil, err
	}
	return backup.List(ctx, place, cfg.withDefaults().Clock())
}

// Restore makes the embedded database of a backup in a directory that holds none. It needs the master key of the backup,
// and the same environment: a backup of live is restored only with Environment live. The books are not what they were
// after the moment of the backup; what happened later is not in them.
func Restore(ctx context.Context, cfg Config, location string) (info backup.Info, err error) {
	cfg = cfg.withDefaults()
	if cfg.Database != "" {
		return info, store.ErrNoSnapshot
	}
	if cfg.Environment == "" {
		cfg.Environment = toll.Sandbox
	}
	if err := cfg.check(); err != nil {
		return info, err
	}
	target := filepath.Join(cfg.Data, databaseName)
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		return info, fmt.Errorf("%s already exists: restore into a directory without a database", target)
	}
	ring, err := cfg.openRing(false)
	if errors.Is(err, os.ErrNotExist) {
		return info, fmt.Errorf("%w: a backup does not contain the master key; set TOLL_MASTER_KEY_FILE (--master-key-file) to its file", err)
	}
	if err != nil {
		return info, err
	}
	from, name, err := cfg.ObjectStore.Split(location)
	if err != nil {
		return info, err
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return info, fmt.Errorf("data directory: %w", err)
	}
	return backup.Read(ctx, ring, cfg.Environment, cfg.Data, target, from, name, cfg.Clock())
}

// removeLeft removes what killed processes left in the data directory, and in the folder of plain copies.
func (c Config) removeLeft() {
	for _, dir := range slices.Compact([]string{c.Data, cmp.Or(c.TemporaryDir, c.Data)}) {
		for _, kind := range append([]tempfile.Kind{seal.NewKey}, backup.Copies...) {
			names, err := kind.Clean(dir)
			for _, name := range names {
				c.Log.Info("removed a temporary file of a killed process", "path", filepath.Join(dir, name))
			}
			if err != nil {
				c.Log.Warn("cannot remove temporary files of a killed process", "error", err.Error())
			}
		}
	}
}
