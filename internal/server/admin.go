package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tempfile"
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

// Export writes the entries of the journal from a position on, up to the first that was not made before a time, to the new file path,
// which is there in whole or not at all. It works beside a running service.
func Export(ctx context.Context, cfg Config, path string, first int64, before time.Time) (a ledger.Archived, err error) {
	err = administer(ctx, cfg, reading, func(cfg Config, f *foundation) (err error) {
		books := ledger.New(f.store, ledger.Config{Clock: cfg.Clock, Log: cfg.Log, MACKey: f.auth.MACKey()})
		defer func() { err = errors.Join(err, books.Close(context.WithoutCancel(ctx))) }()
		dir, name := filepath.Split(path)
		out, err := tempfile.Kind{Prefix: "." + name + "."}.Create(cmp.Or(dir, "."))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Remove()) }()
		if a, err = books.Export(ctx, out, first, before); err != nil {
			return err
		}
		if err := out.Sync(); err != nil {
			return err
		}
		if err := out.Publish(path, false); errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s is there already", path)
		} else if err != nil {
			return err
		}
		return nil
	})
	return a, err
}

// NoteBackup notes in the database that a backup was made with other tools, for the metrics of the service.
func NoteBackup(ctx context.Context, cfg Config) error {
	return administer(ctx, cfg, writing, func(_ Config, f *foundation) error {
		return f.store.Tx(ctx, func(tx *store.Tx) error { return store.NoteBackup(ctx, tx, f.clock.machine()) })
	})
}

// Recount has usage and revenue counted anew from the journal, beside a running service or not, and returns when all entries that
// there are have been counted.
func Recount(ctx context.Context, cfg Config) error {
	return administer(ctx, cfg, writing, func(cfg Config, f *foundation) error {
		books := ledger.New(f.store, ledger.Config{Clock: cfg.Clock, Log: cfg.Log, MACKey: f.auth.MACKey()})
		err := books.RecountUsage(ctx)
		for more := true; more && err == nil; {
			more, err = books.CountUsage(ctx)
		}
		return errors.Join(err, books.Close(context.WithoutCancel(ctx)))
	})
}
