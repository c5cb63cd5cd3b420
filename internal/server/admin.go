package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// ErrNoDatabase is local administration of a place where no service has ever been. It guards against a mistyped path: a
// database is made by the first start of a service, or by who says so.
var ErrNoDatabase = errors.New("there is no database")

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

// await is existing for who may come right after the start of a service.
func (c Config) await(ctx context.Context) error {
	for end := time.Now().Add(startTime); ; {
		err := c.existing()
		if !errors.Is(err, ErrNoDatabase) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// administer opens a database that exists, beside a running service or not.
func administer(ctx context.Context, cfg Config, work func(Config, *foundation) error) error {
	cfg = cfg.withDefaults()
	if err := cfg.existing(); err != nil {
		return err
	}
	f, err := open(ctx, cfg, true)
	if err != nil {
		return err
	}
	cfg.Clock = f.clock.now
	return errors.Join(work(cfg, f), f.close(context.WithoutCancel(ctx)))
}

// Migrated is the state of a schema after [Migrate].
type Migrated struct {
	Engine string `json:"database"`
	Schema int64  `json:"schema"`
}

// Migrate brings the schema of a database up to date, as a start of the service does. It refuses to do that under a running
// service of an older release.
func Migrate(ctx context.Context, cfg Config) (m Migrated, err error) {
	err = administer(ctx, cfg, func(_ Config, f *foundation) error {
		m.Engine = string(f.store.Engine())
		m.Schema, err = f.store.Schema(ctx)
		return err
	})
	return m, err
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
	err = administer(ctx, cfg, func(cfg Config, f *foundation) error {
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
		if info, err := os.Stat(cfg.Data); err == nil && info.Mode().Perm()&0o077 != 0 {
			add("data directory", CheckWarning, "others can look into %s: chmod 700 it", cfg.Data)
		} else {
			add("data directory", CheckOK, "%s", cfg.Data)
		}
	}
	f, err := open(ctx, cfg, true)
	if err != nil {
		add("database", CheckFailed, "%s", err)
		return checks
	}
	defer func() { _ = f.close(context.WithoutCancel(ctx)) }() // nothing was written
	schema, err := f.store.Schema(ctx)
	if err != nil {
		add("database", CheckFailed, "%s", err)
		return checks
	}
	add("database", CheckOK, "%s, %s, schema %d, commits are durable", f.store.Engine(), f.auth.Environment(), schema)
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
	inspectChain(ctx, cfg, f, add)
	return checks
}
