package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/seal"
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

// openExisting opens a database that exists, beside a running service or not.
func (c Config) openExisting(ctx context.Context, as Access) (*foundation, error) {
	if err := c.existing(); err != nil {
		return nil, err
	}
	return open(ctx, c, as)
}

// await is openExisting, which gives a service that was started a moment ago the time to make the database.
func (c Config) await(ctx context.Context, as Access) (*foundation, error) {
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

// Database is an open database, for work from the shell.
type Database struct {
	Store     *store.Store
	Auth      *auth.Auth
	Ring      *seal.Ring
	Log       *slog.Logger
	Now       func() time.Time // the clock of the service, which a sandbox can move forward
	Machine   func() time.Time
	PublicURL string
	Step      func(step string) // a test stops work here; nil
}

// Administer opens a database that exists, beside a running service or not, calls work, and closes the database.
func Administer[T any](ctx context.Context, cfg Config, as Access, work func(*Database) (T, error)) (out T, err error) {
	cfg = cfg.withDefaults()
	f, err := cfg.openExisting(ctx, as)
	if err != nil {
		return out, err
	}
	out, err = work(&Database{
		Store: f.store, Auth: f.auth, Ring: f.ring, Log: cfg.Log, Now: f.clock.now, Machine: f.clock.machine,
		PublicURL: publicURL(f.auth.Issuer()), Step: cfg.at,
	})
	return out, errors.Join(err, f.close())
}

// Migrated is the state of a schema after [Migrate].
type Migrated struct {
	Engine string `json:"database"`
	From   int64  `json:"from"` // equal to Schema when there was nothing to do
	Schema int64  `json:"schema"`
	// Floor is the oldest schema whose releases can go on with the database.
	Floor int64 `json:"floor"`
}

// Migrate brings the schema of a database up to date, as a start of the service does. It is refused with [store.ErrOlderInUse] while an
// older release is at work, unless online is set and all pending migrations are safe for it.
func Migrate(ctx context.Context, cfg Config, online bool) (m Migrated, err error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.check(), cfg.existing()); err != nil {
		return m, err
	}
	before, err := cfg.schema(ctx)
	if err != nil {
		return m, err
	}
	to := cfg.storeConfig(Writing)
	to.Schema, to.Online = store.UpgradeSchema, online
	st, err := store.Open(ctx, to)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	after, err := st.Schema(ctx)
	return Migrated{Engine: string(st.Engine()), From: before.Version, Schema: after.Version, Floor: after.Floor}, err
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
	out := c.storeConfig(Reading)
	out.Schema = store.AnySchema
	return out
}
