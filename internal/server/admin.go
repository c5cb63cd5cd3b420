package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// ErrNoDatabase is local administration of a place where no service has ever been. It guards against a mistyped path: a
// database is made by the first start of a service, or by who says so.
var ErrNoDatabase = errors.New("there is no database")

// ErrNoSchema is [ErrNoDatabase] for a PostgreSQL database that is empty.
var ErrNoSchema = store.ErrNoSchema

// existing refuses a place without a database, and makes nothing there.
func (c Config) existing() error {
	if c.Database != "" {
		return nil // what is missing there is told by the database
	}
	found, err := store.Exists(c.Data)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if !found {
		path := c.Data
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		return fmt.Errorf("%w in %s", ErrNoDatabase, path)
	}
	return nil
}

// startTime is how long a service that was started a moment ago may take until there is a database.
const startTime = 2 * time.Second

// openExisting opens a database that exists, for local administration beside a running service or
// not.
func (c Config) openExisting(ctx context.Context, as access) (*foundation, error) {
	if err := c.existing(); err != nil {
		return nil, err
	}
	return open(ctx, c, as)
}

// await is openExisting that gives a service which was started a moment ago the time to make the
// database.
func (c Config) await(ctx context.Context, as access) (*foundation, error) {
	for end := time.Now().Add(startTime); ; {
		f, err := c.openExisting(ctx, as)
		missing := errors.Is(err, ErrNoDatabase) || errors.Is(err, ErrNoSchema)
		if !missing || time.Now().After(end) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// administer works on a database that exists, beside a running service or not.
func administer(
	ctx context.Context, cfg Config, as access, work func(Config, *foundation) error,
) error {
	cfg = cfg.withDefaults()
	f, err := cfg.openExisting(ctx, as)
	if err != nil {
		return err
	}
	cfg.Clock = f.clock.now
	return errors.Join(work(cfg, f), f.close())
}

// Migrated is the state of a schema after [Migrate].
type Migrated struct {
	Engine string `json:"database"`
	From   int64  `json:"from"` // equal to Schema when there was nothing to do
	Schema int64  `json:"schema"`
	// Floor is the oldest schema whose releases can go on with the database.
	Floor int64 `json:"floor"`
}

// Migrate brings the schema of a database up to date, as a start of the service does. It is refused
// with [store.ErrOlderInUse] while an older release is at work, unless online is set and all
// pending migrations are safe for it.
func Migrate(ctx context.Context, cfg Config, online bool) (m Migrated, err error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.check(), cfg.existing()); err != nil {
		return m, err
	}
	before, err := cfg.schema(ctx)
	if err != nil {
		return m, err
	}
	to := cfg.storeConfig(writing)
	to.Schema, to.Online = store.UpgradeSchema, online
	st, err := store.Open(ctx, to)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	after, err := st.Schema(ctx)
	return Migrated{
		Engine: string(st.Engine()),
		From:   before.Version,
		Schema: after.Version,
		Floor:  after.Floor,
	}, err
}

// schema reads the state of a schema that this release need not know.
func (c Config) schema(ctx context.Context) (s store.Schema, err error) {
	st, err := store.Open(ctx, c.anySchema())
	if errors.Is(err, store.ErrNoSchema) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return st.Schema(ctx)
}

// anySchema is how the store is opened to look at it, whatever its schema is.
func (c Config) anySchema() store.Config {
	out := c.storeConfig(reading)
	out.Schema = store.AnySchema
	return out
}

// Finding is a promise of the books that does not hold.
type Finding struct {
	Invariant string `json:"invariant"`
	Account   string `json:"account"` // empty when it is about none
	Detail    string `json:"detail"`
}

// Audit proves the books, account by account, beside a running service or not: conservation of credits, holds, one burn a
// request, limits, the chain of commitments, and orders against credits.
func Audit(ctx context.Context, cfg Config) (findings []Finding, err error) {
	err = administer(ctx, cfg, reading, func(cfg Config, f *foundation) error {
		books := ledger.New(f.store, ledger.Config{Clock: cfg.Clock, Log: cfg.Log, MACKey: f.auth.MACKey()})
		found, err := books.Audit(ctx)
		for _, x := range found {
			finding := Finding{Invariant: x.Invariant, Detail: x.Detail}
			if x.Account != (ledger.AccountID{}) {
				finding.Account = x.Account.String()
			}
			findings = append(findings, finding)
		}
		orders, orderErr := store.AuditOrders(ctx, f.store)
		for _, detail := range orders {
			findings = append(findings, Finding{Invariant: "orders", Detail: detail})
		}
		return errors.Join(err, orderErr, books.Close(context.WithoutCancel(ctx)))
	})
	return findings, err
}

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
