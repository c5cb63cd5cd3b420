// Package storetest opens real databases for tests: SQLite in a directory of the test and PostgreSQL, plain and with partitioned ledger
// tables, in databases of their own on the cluster that TOLL_TEST_POSTGRES names (scripts/postgres.sh).
package storetest

import (
	"context"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// Variant is one of the databases that a test runs on.
type Variant string

// Variants.
const (
	SQLite      Variant = "sqlite"
	Postgres    Variant = "postgres"
	Partitioned Variant = "partitioned" // PostgreSQL with the ledger tables partitioned by account
)

const partitions = 4

// patience is for how many seconds a connection is waited for: a machine that stands still for some of them fails no test.
const patience = "120"

// Variants returns all variants, in the order of [Each].
func Variants() []Variant { return []Variant{SQLite, Postgres, Partitioned} }

// Each runs f as one subtest for each variant, on a fresh database.
func Each(t *testing.T, f func(t *testing.T, st *store.Store)) {
	t.Helper()
	for _, v := range Variants() {
		t.Run(string(v), func(t *testing.T) {
			st, _ := OpenVariant(t, v)
			f(t, st)
		})
	}
}

// Open returns a store of the engine on a fresh database, and the configuration with which other stores and processes
// open the same one. The store is closed and the database dropped when the test ends.
func Open(t testing.TB, e store.Engine) (*store.Store, store.Config) {
	t.Helper()
	return OpenVariant(t, Variant(e))
}

// OpenVariant is [Open] for a variant.
func OpenVariant(t testing.TB, v Variant) (*store.Store, store.Config) {
	t.Helper()
	cfg := Config(t, v)
	return OpenConfig(t, cfg), cfg
}

// OpenConfig opens the store of cfg and closes it when the test ends. Its transactions are followed: see [Follow].
func OpenConfig(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	if _, benchmark := t.(*testing.B); !benchmark {
		Follow(t, st)
	}
	return st
}

// Acts returns the newest entries of one act in the audit log of a workspace ("" for the operator's), at most 100: object and detail.
func Acts(t testing.TB, st *store.Store, workspace, act string) (all []string) {
	t.Helper()
	list := must.Get(store.AuditList(t.Context(), st, workspace, act, time.Time{}, time.Time{}, store.Page{Size: 100}))(t)
	for _, e := range list.Items {
		all = append(all, e.Object+" "+e.Detail)
	}
	return all
}

// Config returns the configuration of a fresh database with the schema of today and no record, which is dropped when the test
// ends. Without TOLL_TEST_POSTGRES a test of PostgreSQL is skipped.
func Config(t testing.TB, v Variant) store.Config {
	t.Helper()
	if v == SQLite {
		return store.Config{Data: Dir(t)}
	}
	cfg, dsn := server(t, v)
	cfg.Database = createDatabase(t, dsn, " TEMPLATE "+template(t, dsn, cfg.Partitions))
	return cfg
}

// Empty is [Config] without a schema.
func Empty(t testing.TB, v Variant) store.Config {
	t.Helper()
	if v == SQLite {
		return store.Config{Data: t.TempDir()}
	}
	cfg, dsn := server(t, v)
	cfg.Database = createDatabase(t, dsn, "")
	return cfg
}

// server returns what is common to all databases of a variant, and the address of their cluster.
func server(t testing.TB, v Variant) (store.Config, string) {
	t.Helper()
	dsn := os.Getenv("TOLL_TEST_POSTGRES")
	if dsn == "" {
		t.Skip("TOLL_TEST_POSTGRES is not set: scripts/postgres.sh run COMMAND sets it")
	}
	if v == Partitioned {
		return store.Config{Partitions: partitions}, dsn
	}
	return store.Config{}, dsn
}

func createDatabase(t testing.TB, dsn, like string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("TOLL_TEST_POSTGRES is not a valid URL")
	}
	name := "toll_test_" + toll.NewHash().String()[2:18]
	Exec(t, dsn, "CREATE DATABASE "+name+like)
	t.Cleanup(func() { Exec(t, dsn, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	q := u.Query()
	if !q.Has("pool_max_conns") {
		q.Set("pool_max_conns", "8") // many tests share the cluster
	}
	if !q.Has("connect_timeout") {
		q.Set("connect_timeout", patience) // a service says 503 much earlier
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Exec runs a statement on a PostgreSQL database over a connection of its own, beside all rules of the store.
func Exec(t testing.TB, dsn, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // also in cleanup, when t.Context() is over
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, ConnConfig(t, dsn))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// ConnConfig returns the settings of a single connection to a database that [Config] made.
func ConnConfig(t testing.TB, dsn string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal("not a valid PostgreSQL URL")
	}
	delete(cfg.RuntimeParams, "pool_max_conns") // known to the pool alone
	return cfg
}
