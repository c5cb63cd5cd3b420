package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/fiat"
	"github.com/tollhq/toll/internal/store"
)

// Check is one finding of [Inspect].
type Check struct {
	Name   string `json:"check"`
	Status string `json:"status"` // CheckOK, CheckWarning or CheckFailed
	Detail string `json:"detail"`
}

// Outcomes of a check.
const (
	CheckOK      = "ok"
	CheckWarning = "warning"
	CheckFailed  = "failed"
)

// Inspect looks for what is careless or broken about a database and its configuration: modes of files, the master key, the
// settings of the engine, the schema. It refuses nothing; the checks say what is wrong and what to do.
func Inspect(ctx context.Context, cfg Config) []Check {
	cfg = cfg.withDefaults()
	var checks []Check
	add := func(name, status, format string, args ...any) {
		checks = append(checks, Check{name, status, fmt.Sprintf(format, args...)})
	}
	if err := cfg.existing(); err != nil {
		add("database", CheckFailed, "%s: start toll serve there, or name another place with --data or --database", err)
		return checks
	}
	if cfg.Database == "" {
		inspectDirectory(cfg.Data, add)
	}
	f, ok := inspectSchema(ctx, cfg, add)
	if !ok {
		return checks
	}
	defer func() { _ = f.close() }() // nothing was written
	if !cfg.ownMasterKey() {
		add("master key", CheckWarning, "%s lies beside the database; a copy of the directory holds both: set TOLL_MASTER_KEY_FILE (--master-key-file)",
			cfg.masterKeyPath())
	} else {
		add("master key", CheckOK, "the key with the id %s opens what is stored", f.ring.KeyID())
	}
	inspectMaster(ctx, cfg, f, add)
	address := publicURL(f.auth.Issuer())
	guess, err := setting(ctx, f.store, settingProvisional)
	switch {
	case err != nil:
		add("public address", CheckFailed, "%s", err)
	case guess != "":
		add("public address", CheckWarning, "no service has been started yet; the first one says its address")
	default:
		add("public address", CheckOK, "%s", address)
	}
	crypto.Inspect(ctx, cfg.Chain, f.chainDeps(cfg, nil), add)
	fiat.Inspect(ctx, cfg.Card, f.cardDeps(cfg), add)
	inspectUnmatched(ctx, f.store, add)
	inspectRecovery(ctx, f.store, add)
	return checks
}

// inspectSchema says whether this release can work with a database, and opens it if so.
func inspectSchema(ctx context.Context, cfg Config, add crypto.Report) (*foundation, bool) {
	schema, err := cfg.schema(ctx)
	if err == nil {
		if err = schema.Usable(); errors.Is(err, store.ErrOlderSchema) {
			pending := schema.Pending()
			beside := "stop the service first"
			if len(schema.Unsafe()) == 0 {
				beside = "with --online it can go on meanwhile"
			}
			add("database", CheckWarning, "schema %d; %d migrations to schema %d are pending. The release "+
				"that serves it now can go on. To upgrade, run toll migrate (%s). Nothing else of the "+
				"database was checked", schema.Version, len(pending), schema.Known, beside)
			return nil, false
		}
	}
	var f *foundation
	if err == nil {
		f, err = open(ctx, cfg, reading)
	}
	if err != nil {
		add("database", CheckFailed, "%s", err)
		return nil, false
	}
	add("database", CheckOK, "%s, %s, schema %d, commits are durable",
		f.store.Engine(), f.auth.Environment(), schema.Version)
	return f, true
}

// lowDisk is the free space below which [Inspect] warns, and scarceDisk that below which it finds a
// fault: the database writes its log in advance, and a checkpoint needs room for it again.
const (
	lowDisk    = 512 << 20
	scarceDisk = 32 << 20
)

// inspectDirectory says who can read the data directory, whether it can be written, and what room
// there is.
func inspectDirectory(dir string, add crypto.Report) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		add("data directory", CheckFailed, "%s", err)
	case info.Mode().Perm()&0o077 != 0:
		add("data directory", CheckWarning, "others can look into %s: chmod 700 it", dir)
	default:
		add("data directory", CheckOK, "%s", dir)
	}
	if err := store.CanWrite(dir); err != nil {
		add("data directory", CheckFailed, "%s cannot be written: %s", dir, err)
	}
	for _, kind := range backup.Copies {
		names, _ := kind.Left(dir) // what cannot be read was said above
		for _, name := range names {
			add("data directory", CheckWarning, "%s is a plain copy of the database, which a killed command "+
				"left: the next start of the service removes it, and so does the next toll backup or "+
				"toll restore", filepath.Join(dir, name))
		}
	}
	free, ok := store.FreeBytes(dir)
	if !ok {
		return
	}
	size := int64(0)
	if info, err := os.Stat(filepath.Join(dir, databaseName)); err == nil {
		size = info.Size()
	}
	switch {
	case free < scarceDisk:
		add("disk", CheckFailed, "%d MiB free for %s: make room, or the service cannot write any more",
			free>>20, dir)
	case free < max(lowDisk, size):
		add("disk", CheckWarning, "%d MiB free for %s; a backup needs %d MiB there, and the database grows",
			free>>20, dir, size>>20)
	default:
		add("disk", CheckOK, "%d MiB free for %s", free>>20, dir)
	}
}
